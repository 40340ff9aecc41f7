//! What the user chose: the view, and for each view how its rows are sorted and scrolled.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use crate::snapshot::Snapshot;
use crate::table::{Sorting, Table};
use crate::views::View;

/// The state of a view.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) sorting: Sorting,
    /// The first row that is shown.
    pub(super) first_row: usize,
    /// The column that follows the first one, which is always shown.
    pub(super) first_column: usize,
}

/// The state of the program on a terminal.
pub(super) struct State {
    snapshot: Option<Snapshot>,
    view: usize,
    places: [Place; View::ALL.len()],
    /// New snapshots are not shown.
    paused: bool,
    quit: bool,
    /// Rows of the table that the last drawing had room for.
    page_rows: usize,
}

impl State {
    pub(super) fn new() -> Self {
        let place = |view: View| Place { sorting: view.sorting(), first_row: 0, first_column: 1 };
        State {
            snapshot: None,
            view: 0,
            places: View::ALL.map(place),
            paused: false,
            quit: false,
            page_rows: 1,
        }
    }

    /// Shows this snapshot from now on, unless the user has paused.
    pub(super) fn update(&mut self, snapshot: Snapshot) {
        if !self.paused || self.snapshot.is_none() {
            self.snapshot = Some(snapshot);
        }
    }

    pub(super) fn snapshot(&self) -> Option<&Snapshot> {
        self.snapshot.as_ref()
    }

    pub(super) fn view(&self) -> View {
        View::ALL.get(self.view).copied().unwrap_or(View::Cores)
    }

    pub(super) fn place(&self) -> Place {
        self.places[self.view]
    }

    pub(super) fn is_paused(&self) -> bool {
        self.paused
    }

    pub(super) fn wants_to_quit(&self) -> bool {
        self.quit
    }

    /// The table of the view, sorted.
    pub(super) fn table(&self) -> Table {
        let mut table =
            self.snapshot.as_ref().map(|snapshot| self.view().table(snapshot)).unwrap_or_default();
        table.sort(self.place().sorting);
        table
    }

    /// Keeps the position inside a table that has room for `page_rows` rows.
    pub(super) fn fit(&mut self, rows: usize, columns: usize, page_rows: usize) {
        self.page_rows = page_rows.max(1);
        let place = &mut self.places[self.view];
        place.first_row = place.first_row.min(rows.saturating_sub(self.page_rows));
        place.first_column = place.first_column.clamp(1, columns.saturating_sub(1).max(1));
        place.sorting.column = place.sorting.column.min(columns.saturating_sub(1));
    }

    /// Handles a key. Other keys than those of the help line do nothing.
    pub(super) fn on_key(&mut self, key: KeyEvent) {
        if key.kind == KeyEventKind::Release {
            return;
        }
        let views = View::ALL.len();
        let page_rows = self.page_rows;
        let columns = self.table().headings.len();
        let place = &mut self.places[self.view];
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => self.quit = true,
            // A terminal in raw mode makes no signal of it.
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => self.quit = true,
            KeyCode::Char('p') | KeyCode::Char(' ') => self.paused = !self.paused,
            KeyCode::Char(digit @ '1'..='9') => {
                let view = digit as usize - '1' as usize;
                self.view = if view < views { view } else { self.view };
            }
            KeyCode::Tab => self.view = (self.view + 1) % views,
            KeyCode::BackTab => self.view = (self.view + views - 1) % views,
            KeyCode::Char('s') => place.sorting.column = (place.sorting.column + 1) % columns.max(1),
            KeyCode::Char('r') => place.sorting.descending = !place.sorting.descending,
            KeyCode::Up => place.first_row = place.first_row.saturating_sub(1),
            KeyCode::Down => place.first_row = place.first_row.saturating_add(1),
            KeyCode::PageUp => place.first_row = place.first_row.saturating_sub(page_rows),
            KeyCode::PageDown => place.first_row = place.first_row.saturating_add(page_rows),
            KeyCode::Home => place.first_row = 0,
            KeyCode::End => place.first_row = usize::MAX,
            KeyCode::Left => place.first_column = place.first_column.saturating_sub(1).max(1),
            KeyCode::Right => place.first_column = place.first_column.saturating_add(1),
            _ => {}
        }
    }
}
