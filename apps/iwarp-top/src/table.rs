//! Tables: what a view shows, independent of how it is shown.
//!
//! A table has a heading for each column and rows of cells. A cell has its text and what it is
//! sorted by. The first column names the object of the row. Numbers are short, since a screen may
//! be narrow: at most five digits, then three with a suffix.

use std::cmp::Ordering;

use ratatui::text::Span;

/// A column's heading.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Heading {
    pub(crate) text: String,
    /// Text is aligned to the left, numbers to the right.
    pub(crate) is_text: bool,
}

/// A value of a row.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Cell {
    pub(crate) text: String,
    order: Order,
}

/// What a cell is sorted by. No value comes first.
#[derive(Clone, PartialEq, PartialOrd, Debug)]
enum Order {
    Nothing,
    Number(f64),
    Text(String),
}

/// The table of a view.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Table {
    pub(crate) headings: Vec<Heading>,
    pub(crate) rows: Vec<Vec<Cell>>,
}

/// The column that rows are sorted by, and the direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sorting {
    pub(crate) column: usize,
    pub(crate) descending: bool,
}

impl Heading {
    pub(crate) fn text(text: &str) -> Self {
        Heading { text: text.to_owned(), is_text: true }
    }

    pub(crate) fn number(text: &str) -> Self {
        Heading { text: text.to_owned(), is_text: false }
    }
}

impl Cell {
    /// A text, which is printable.
    pub(crate) fn text(text: impl Into<String>) -> Self {
        let text = text.into();
        Cell { order: Order::Text(text.clone()), text }
    }

    /// A whole number.
    pub(crate) fn count(value: u64) -> Self {
        Cell::number(value as f64, 0)
    }

    /// A number with as many decimals, while it is small.
    pub(crate) fn number(value: f64, decimals: usize) -> Self {
        Cell { text: short(value, decimals), order: Order::Number(value) }
    }

    /// [`Cell::number`], if there is one.
    pub(crate) fn some_number(value: Option<f64>, decimals: usize) -> Self {
        value.map_or(Cell { text: "–".to_owned(), order: Order::Nothing }, |value| {
            Cell::number(value, decimals)
        })
    }
}

impl Table {
    /// Sorts the rows. Equal ones stay in their order.
    pub(crate) fn sort(&mut self, by: Sorting) {
        self.rows.sort_by(|one, other| {
            let order = match (one.get(by.column), other.get(by.column)) {
                (Some(one), Some(other)) => one.order.partial_cmp(&other.order).unwrap_or(Ordering::Equal),
                _ => Ordering::Equal,
            };
            if by.descending { order.reverse() } else { order }
        });
    }

    /// The width of the widest cell of a column, with its heading.
    pub(crate) fn width(&self, column: usize) -> usize {
        let heading = self.headings.get(column).map_or(0, |heading| width(&heading.text));
        let cells = self.rows.iter().filter_map(|row| row.get(column)).map(|cell| width(&cell.text));
        cells.fold(heading, usize::max)
    }

    /// The table as lines of text, with columns as wide as they need.
    pub(crate) fn lines(&self) -> Vec<String> {
        let widths: Vec<usize> = (0..self.headings.len()).map(|column| self.width(column)).collect();
        let line = |cells: &mut dyn Iterator<Item = &str>| {
            let padded = cells.zip(&self.headings).zip(&widths).map(|((cell, heading), wanted)| {
                let space = " ".repeat(wanted.saturating_sub(width(cell)));
                if heading.is_text { format!("{cell}{space}") } else { format!("{space}{cell}") }
            });
            padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        };
        let headings = line(&mut self.headings.iter().map(|heading| &*heading.text));
        let rows = self.rows.iter().map(|row| line(&mut row.iter().map(|cell| &*cell.text)));
        std::iter::once(headings).chain(rows).collect()
    }
}

/// Places that a text takes on a terminal.
pub(crate) fn width(text: &str) -> usize {
    Span::raw(text).width()
}

/// Cuts a text to as many columns. A text that is cut ends with an ellipsis.
pub(crate) fn cut_end(text: &str, places: usize) -> String {
    cut(text, places, text.chars(), |kept| kept.into_iter().chain(['…']).collect())
}

/// Cuts the beginning of a text: names differ more at their ends.
pub(crate) fn cut_start(text: &str, places: usize) -> String {
    cut(text, places, text.chars().rev(), |kept| ['…'].into_iter().chain(kept.into_iter().rev()).collect())
}

fn cut(
    text: &str,
    places: usize,
    order: impl Iterator<Item = char>,
    join: impl FnOnce(Vec<char>) -> String,
) -> String {
    if width(text) <= places {
        return text.to_owned();
    }
    let (mut kept, mut taken) = (Vec::new(), 1);
    for one in order {
        taken += width(one.encode_utf8(&mut [0; 4]));
        if taken > places {
            break;
        }
        kept.push(one);
    }
    if places == 0 { String::new() } else { join(kept) }
}

/// A number of at most seven characters: 99999, 123k, 1.23M.
fn short(value: f64, decimals: usize) -> String {
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
            assert_eq!(short(value, decimals), text, "{value}");
        }
    }

    #[test]
    fn a_text_is_cut_where_it_matters_least() {
        assert_eq!(
            [cut_end("abcdef", 6), cut_end("abcdef", 4), cut_start("abcdef", 4)],
            ["abcdef", "abc…", "…def"]
        );
        assert_eq!([cut_end("abc", 1), cut_end("abc", 0), cut_start("日本語", 5)], ["…", "", "…本語"]);
    }

    #[test]
    fn rows_are_sorted_by_value_and_not_by_text() {
        let row = |name: &str, value: Option<f64>| vec![Cell::text(name), Cell::some_number(value, 0)];
        let mut table = Table {
            headings: vec![Heading::text("name"), Heading::number("value")],
            rows: vec![row("b", Some(123_456.0)), row("c", None), row("a", Some(99.0))],
        };
        let names = |table: &Table| table.rows.iter().map(|row| row[0].text.clone()).collect::<String>();
        table.sort(Sorting { column: 1, descending: true });
        assert_eq!(names(&table), "bac");
        table.sort(Sorting { column: 0, descending: false });
        assert_eq!(names(&table), "abc");
        table.sort(Sorting { column: 9, descending: false });
        assert_eq!(table.lines(), ["name  value", "a        99", "b      123k", "c         –"]);
    }
}
