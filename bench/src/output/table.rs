//! Results as tables for a terminal: one for latencies, one for bandwidths.

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, ContentArrangement, Row, Table};

use super::rows::{Section, notes, sections};
use crate::report::Report;

/// Columns of text at the left. Numbers follow and are aligned to the right.
const TEXT_COLUMNS: usize = 1;

/// The width of a table that goes to a file or a pipe.
const DEFAULT_WIDTH: u16 = 100;

/// Formats the report for a terminal `width` columns wide; without a width, for one of 100 columns.
pub fn tables(report: &Report, width: Option<u16>) -> String {
    let width = width.unwrap_or(DEFAULT_WIDTH);
    let tables = sections(report, Some(width.into())).into_iter().map(|section| table(section, width));
    let notes = notes(report).join("\n");
    format!(
        "{}\n{}\n{}\n{notes}\n",
        report.machine.summary(),
        report.build.summary(),
        tables.collect::<String>()
    )
}

/// Returns the columns of the terminal on standard output, `None` if it is no terminal.
pub fn terminal_width() -> Option<u16> {
    Table::new().width().filter(|&columns| columns > 0)
}

fn table(section: Section<'_>, width: u16) -> String {
    let rows = section.rows.into_iter().map(|row| row.cells);
    format!("\n{}\n{}\n", section.title, text_table(section.heads, rows, width, TEXT_COLUMNS))
}

/// A table for a terminal `width` columns wide. Columns after the first `text_columns` are aligned
/// to the right.
pub(crate) fn text_table<T: Into<Row>>(
    heads: impl Into<Row>,
    rows: impl IntoIterator<Item = T>,
    width: u16,
    text_columns: usize,
) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED);
    table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    table.set_header(heads);
    table.add_rows(rows);
    for column in table.column_iter_mut().skip(text_columns) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
