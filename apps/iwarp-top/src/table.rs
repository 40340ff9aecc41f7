//! Tables of text: a line of headings, then a line for each row.

use comfy_table::CellAlignment;
use comfy_table::Table;
use comfy_table::presets::NOTHING;

/// The text of a table, empty without rows. Numbers, in all but `text_columns`, are aligned to the
/// right.
pub(crate) fn table(
    heads: &[String],
    text_columns: &[usize],
    rows: impl IntoIterator<Item = Vec<String>>,
) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(heads).add_rows(rows);
    if table.row_count() == 0 {
        return String::new();
    }
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if !text_columns.contains(&index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.trim_fmt() + "\n"
}

/// [`number`], or a dash.
pub(crate) fn some_number(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(|| "–".to_owned(), |value| number(value, decimals))
}

/// At most seven characters: 99999, 123k, 1.23M. The decimals are those of a small number.
pub(crate) fn number(value: f64, decimals: usize) -> String {
    const SUFFIXES: [&str; 7] = ["", "k", "M", "G", "T", "P", "E"];
    if !value.is_finite() || value < 99_999.5 {
        let decimals = if value < 999.5 { decimals } else { 0 };
        return format!("{value:.decimals$}");
    }
    let (mut scaled, mut thousands) = (value, 0);
    while scaled >= 999.5 && thousands + 1 < SUFFIXES.len() {
        scaled /= 1000.0;
        thousands += 1;
    }
    let decimals = if scaled < 9.995 { 2 } else { usize::from(scaled < 99.95) };
    format!("{scaled:.decimals$}{}", SUFFIXES.get(thousands).unwrap_or(&""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        for (value, decimals, text) in [
            (0.0, 0, "0"),
            (0.04, 1, "0.0"),
            (999.4, 1, "999.4"),
            (999.6, 1, "1000"),
            (99_999.0, 0, "99999"),
            (99_999.6, 0, "100k"),
            (123_456.0, 0, "123k"),
            (999_600.0, 0, "1.00M"),
            (12_345_678.0, 2, "12.3M"),
            (u64::MAX as f64, 0, "18.4E"),
        ] {
            assert_eq!(number(value, decimals), text, "{value}");
        }
    }

    #[test]
    fn text_is_on_the_left_and_numbers_are_on_the_right() {
        let heads = ["name", "value"].map(str::to_owned);
        let row = |name: &str, value| vec![name.to_owned(), some_number(value, 0)];
        let rows = [row("日本", Some(123_456.0)), row("c", None)];
        assert_eq!(table(&heads, &[0], rows), "name  value\n日本   123k\nc         –\n");
        assert_eq!(table(&heads, &[0], []), "");
    }
}
