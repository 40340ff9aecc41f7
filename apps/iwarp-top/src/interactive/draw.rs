//! One screen, of any size: a title, the names of the views, the table of one of them, the keys.
//!
//! The first column of the table is always there; of the others as many are drawn as fit, from the
//! one on that the user scrolled to. Nothing is wrapped. A terminal of fewer lines shows the title,
//! then the table, then the rest.

use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};

use super::state::State;
use crate::table::{Sorting, Table, cut_end, cut_start, width};
use crate::views::View;

const KEYS: &str = "q quit  Tab 1-5 view  arrows PgUp PgDn scroll  s sort  r reverse  p pause";
/// The same for a narrow terminal.
const KEYS_SHORT: &str = "q quit  Tab view  arrows  s r sort  p";
/// Between two columns.
const GAP: u16 = 1;
/// Lines that are not rows of the table: title, views, headings, keys.
const FIXED_LINES: u16 = 4;

pub(super) fn draw(frame: &mut Frame<'_>, state: &mut State) {
    let area = frame.area();
    let table = state.table();
    let page_rows = area.height.saturating_sub(FIXED_LINES);
    state.fit(table.rows.len(), table.headings.len(), page_rows.into());
    let mut lines = Lines { buffer: frame.buffer_mut(), area, next: 0 };
    title(&mut lines, state, &table, page_rows);
    views(&mut lines, state.view());
    rows(&mut lines, state, &table, page_rows);
    lines.next = lines.next.max(area.height.saturating_sub(1));
    let keys = if usize::from(area.width) < width(KEYS) { KEYS_SHORT } else { KEYS };
    lines.put(keys, Style::new().add_modifier(Modifier::DIM));
}

/// The lines of a screen from the top down. What is beyond the last one, or beyond the right edge,
/// is not drawn.
struct Lines<'a> {
    buffer: &'a mut Buffer,
    area: Rect,
    next: u16,
}

impl Lines<'_> {
    fn put(&mut self, text: &str, style: Style) {
        let text = cut_end(text, self.area.width.into());
        self.put_at(0, &text, style);
        self.next += 1;
    }

    /// Puts text on the current line.
    fn put_at(&mut self, x: u16, text: &str, style: Style) {
        if self.next < self.area.height && x < self.area.width {
            let most = usize::from(self.area.width - x);
            self.buffer.set_stringn(self.area.x + x, self.area.y + self.next, text, most, style);
        }
    }
}

fn title(lines: &mut Lines<'_>, state: &State, table: &Table, page_rows: u16) {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let Some(snapshot) = state.snapshot() else { return lines.put("iwarp-top", bold) };
    let since =
        snapshot.seconds().map_or("since its start".to_owned(), |seconds| format!("in {seconds:.2} s"));
    let paused = if state.is_paused() { ", paused" } else { "" };
    let shown = table.rows.len().min(page_rows.into());
    let first = state.place().first_row;
    let rows = match table.rows.len() {
        all if all > shown => format!(", rows {}-{} of {all}", first + 1, first + shown),
        _ => String::new(),
    };
    lines.put(&format!("process {}, {since}{rows}{paused}", snapshot.pid), bold);
}

/// The names of the views; the one that is shown is marked. If they do not all fit, they begin with
/// that one.
fn views(lines: &mut Lines<'_>, shown: View) {
    let label = |(number, view): (usize, View)| (format!(" {number} {} ", view.name()), view);
    let mut labels: Vec<_> = (1..).zip(View::ALL).map(label).collect();
    let places: usize = labels.iter().map(|(text, _)| width(text)).sum();
    if places > lines.area.width.into() {
        let at = labels.iter().position(|(_, view)| *view == shown).unwrap_or(0);
        labels.rotate_left(at);
    }
    let mut x = 0;
    for (text, view) in labels {
        let style = if view == shown { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() };
        lines.put_at(x, &text, style);
        x = x.saturating_add(width(&text) as u16);
    }
    lines.next += 1;
}

fn rows(lines: &mut Lines<'_>, state: &State, table: &Table, page_rows: u16) {
    if table.rows.is_empty() {
        return lines.put(nothing(state.view()), Style::new());
    }
    let place = state.place();
    let columns = columns(table, place.first_column, place.sorting, lines.area.width);
    let underlined = Style::new().add_modifier(Modifier::UNDERLINED);
    for column in &columns {
        let Some(heading) = table.headings.get(column.index) else { continue };
        let text = titled(&heading.text, column.index, place.sorting);
        column.put(lines, &text, heading.is_text, underlined);
    }
    lines.next += 1;
    for row in table.rows.iter().skip(place.first_row).take(page_rows.into()) {
        for column in &columns {
            if let (Some(heading), Some(cell)) = (table.headings.get(column.index), row.get(column.index)) {
                column.put(lines, &cell.text, heading.is_text, Style::new());
            }
        }
        lines.next += 1;
    }
}

/// What an empty table means.
fn nothing(view: View) -> &'static str {
    match view {
        View::Connections => "no connection",
        View::Namespaces => "the process exports no NVMe namespace",
        View::Losses => "nothing was lost",
        View::Cores | View::Ports => "none",
    }
}

/// A heading, with the direction if rows are sorted by its column.
fn titled(heading: &str, column: usize, sorting: Sorting) -> String {
    match sorting.descending {
        _ if column != sorting.column => heading.to_owned(),
        true => format!("{heading}v"),
        false => format!("{heading}^"),
    }
}

/// A column of the screen.
struct ScreenColumn {
    index: usize,
    x: u16,
    width: u16,
}

impl ScreenColumn {
    /// Puts a cell on the current line: text to the left, numbers to the right.
    fn put(&self, lines: &mut Lines<'_>, text: &str, is_text: bool, style: Style) {
        let places = usize::from(self.width);
        // Names differ more at their ends.
        let text = if self.index == 0 { cut_start(text, places) } else { cut_end(text, places) };
        let space = if is_text { 0 } else { places.saturating_sub(width(&text)) };
        lines.put_at(self.x.saturating_add(space as u16), &text, style);
    }
}

/// The columns that fit: the first one, then those from `from` on. A column of text may be cut, if
/// it is the last one.
fn columns(table: &Table, from: usize, sorting: Sorting, places: u16) -> Vec<ScreenColumn> {
    // One more for the direction of sorting, so that columns stay where they are when it changes.
    let wanted = |index: usize| {
        let marked =
            table.headings.get(index).map_or(0, |heading| width(&titled(&heading.text, index, sorting)));
        table.width(index).max(marked) as u16
    };
    let name = if table.headings.len() > 1 { wanted(0).min(places / 2) } else { wanted(0).min(places) };
    let mut columns = vec![ScreenColumn { index: 0, x: 0, width: name }];
    let mut x = name;
    for index in from..table.headings.len() {
        let at = x.saturating_add(GAP);
        let room = places.saturating_sub(at);
        let is_text = table.headings.get(index).is_some_and(|heading| heading.is_text);
        let column = wanted(index);
        if column > room && (!is_text || room == 0) {
            break;
        }
        columns.push(ScreenColumn { index, x: at, width: column.min(room) });
        x = at.saturating_add(column);
    }
    columns
}
