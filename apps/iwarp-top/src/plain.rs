//! A snapshot as plain text, for a file, a pipe or one look: a column for each core, and for each
//! port if there are several; losses by reason; then connections and NVMe namespaces as tables, if
//! there are any, and what their target refused, ended or let wait.

use std::fmt::Write;

use crate::snapshot::{Column, Snapshot};
use crate::table::{Table, cut_end};
use crate::views::{self, RATES, Rate, View};

/// The number of rates, from the first on, that are counted by port.
const PORT_RATES: usize = 2;

/// The whole text. `width`: lines of a terminal are cut, not wrapped.
pub(crate) fn text(snapshot: &Snapshot, width: Option<usize>) -> String {
    let mut text = String::new();
    let since =
        snapshot.seconds().map_or("since its start".to_owned(), |seconds| format!("in {seconds:.2} s"));
    let _ = writeln!(text, "process {}: {} cores, {since}\n", snapshot.pid, snapshot.cores().count());
    cores(&mut text, snapshot);
    if snapshot.ports().count() > 1 {
        text.push('\n');
        row(&mut text, "port", snapshot.ports().map(|port| port.number().to_string()));
        rates(&mut text, snapshot, snapshot.ports(), &RATES[..PORT_RATES]);
        losses(&mut text, snapshot, snapshot.ports(), true);
    }
    table(&mut text, "connections that moved most", &View::Connections, snapshot);
    if let Some(namespaces) = &snapshot.namespaces {
        let title = format!("{} controllers", namespaces.controllers);
        table(&mut text, &title, &View::Namespaces, snapshot);
        for (name, count) in namespaces.counters.iter().filter(|(_, count)| **count > 0) {
            let _ = writeln!(text, "  {name} {count}");
        }
    }
    match width {
        Some(width) => text.lines().map(|line| cut_end(line, width) + "\n").collect(),
        None => text,
    }
}

fn cores(text: &mut String, snapshot: &Snapshot) {
    row(text, "core", snapshot.cores().map(|core| core.number().to_string()));
    let busy = |core| decimals(views::busy_percent(snapshot, core), 1);
    row(text, "busy polls %", snapshot.cores().map(busy));
    rates(text, snapshot, snapshot.cores(), &[("polls", "cores_polls", 1.0)]);
    rates(text, snapshot, snapshot.cores(), &RATES);
    let opened = |core| snapshot.total_of(core, "verbs_connections_established").to_string();
    row(text, "connections made", snapshot.cores().map(opened));
    losses(text, snapshot, snapshot.cores(), false);
}

fn row(text: &mut String, title: &str, cells: impl Iterator<Item = String>) {
    let _ = write!(text, "{title:<18}");
    cells.for_each(|cell| _ = write!(text, "{cell:>12}"));
    text.push('\n');
}

fn rates(
    text: &mut String,
    snapshot: &Snapshot,
    columns: impl Iterator<Item = Column> + Clone,
    rates: &[Rate],
) {
    for rate in rates {
        let cells = columns.clone().map(|column| decimals(views::rate(snapshot, column, *rate), 0));
        row(text, &format!("{} /s", rate.0), cells);
    }
}

fn decimals(value: Option<f64>, decimals: usize) -> String {
    value.map_or("–".to_owned(), |value| format!("{value:.decimals$}"))
}

/// Every loss that is not zero, with its meaning.
fn losses(
    text: &mut String,
    snapshot: &Snapshot,
    columns: impl Iterator<Item = Column> + Clone,
    by_port: bool,
) {
    text.push_str("\nlost, by reason\n");
    let mut any = false;
    for (index, counter) in snapshot.counters.iter().enumerate() {
        let is_wanted = views::is_loss(counter) && (!by_port || Snapshot::is_port_counter(counter));
        if !is_wanted || columns.clone().all(|column| snapshot.value(column, index) == 0) {
            continue;
        }
        any = true;
        row(text, "", columns.clone().map(|column| snapshot.value(column, index).to_string()));
        // The name may be longer than its column.
        text.truncate(text.len() - 1);
        let _ = writeln!(text, "  {}: {}", counter.name, counter.help);
    }
    if !any {
        text.push_str("  nothing\n");
    }
}

fn table(text: &mut String, title: &str, view: &View, snapshot: &Snapshot) {
    let mut table: Table = view.table(snapshot);
    if table.rows.is_empty() {
        return;
    }
    table.sort(view.sorting());
    let _ = writeln!(text, "\n{title}");
    table.lines().iter().for_each(|line| _ = writeln!(text, "{line}"));
}
