//! A snapshot as a screen of text: a column for each core, and for each port if there are several; then drops by
//! reason, and NVMe namespaces if the process exports any.

use std::fmt::Write;

use ironwarp_stats::CounterInfo;

use crate::snapshot::{Column, Snapshot};

/// Rows: the title, the counter, and the divisor of its rate.
const ROWS: [(&str, &str, f64); 12] = [
    ("frames in /s", "port_rx_frames", 1.0),
    ("frames out /s", "port_tx_frames", 1.0),
    ("Mbit in /s", "tcp_rx_bytes", 125_000.0),
    ("Mbit out /s", "tcp_tx_bytes", 125_000.0),
    ("FPDUs in /s", "iwarp_rx_fpdus", 1.0),
    ("FPDUs out /s", "iwarp_tx_fpdus", 1.0),
    ("Sends in /s", "iwarp_rx_sends", 1.0),
    ("Writes in /s", "iwarp_rx_writes", 1.0),
    ("Reads asked /s", "iwarp_rx_read_requests", 1.0),
    ("atomics asked /s", "iwarp_rx_atomic_requests", 1.0),
    ("immediates in /s", "iwarp_rx_immediates", 1.0),
    ("sent again /s", "tcp_tx_retransmits", 1.0),
];

/// The number of rows, from the first on, that are counted by port.
const PORT_ROWS: usize = 2;

/// The parts of a counter's name that mark drops.
const DROP_WORDS: [&str; 9] =
    ["drop", "no_buffer", "too_long", "no_frame", "no_room", "refused", "errors", "overruns", "evicted"];

/// The whole screen.
pub(crate) fn screen(snapshot: &Snapshot<'_>) -> String {
    let mut text = String::new();
    let since =
        snapshot.seconds().map_or("since its start".to_owned(), |seconds| format!("in {seconds:.2} s"));
    let _ = writeln!(text, "process {}: {} cores, {since}\n", snapshot.pid, snapshot.cores().count());
    row(&mut text, "core", snapshot.cores().map(number));
    row(&mut text, "busy polls %", snapshot.cores().map(|core| busy(snapshot, core)));
    row(&mut text, "polls /s", rates(snapshot, snapshot.cores(), "cores_polls", 1.0));
    for (title, counter, unit) in ROWS {
        row(&mut text, title, rates(snapshot, snapshot.cores(), counter, unit));
    }
    row(&mut text, "connections made", totals(snapshot, "verbs_connections_established"));
    drops(&mut text, snapshot, snapshot.cores(), |_| true);
    if snapshot.ports().count() > 1 {
        ports(&mut text, snapshot);
    }
    if let Some(namespaces) = &snapshot.namespaces {
        text.push_str(&namespaces.screen(snapshot.namespaces_before.as_ref()));
    }
    text
}

/// The same rows by port, as far as they are counted by port.
fn ports(text: &mut String, snapshot: &Snapshot<'_>) {
    text.push('\n');
    row(text, "port", snapshot.ports().map(number));
    for (title, counter, unit) in ROWS.into_iter().take(PORT_ROWS) {
        row(text, title, rates(snapshot, snapshot.ports(), counter, unit));
    }
    drops(text, snapshot, snapshot.ports(), Snapshot::is_port_counter);
}

fn number(column: Column) -> String {
    match column {
        Column::Core(number) | Column::Port(number) => number.to_string(),
    }
}

fn row(text: &mut String, title: &str, cells: impl Iterator<Item = String>) {
    let _ = write!(text, "{title:<18}");
    cells.for_each(|cell| _ = write!(text, "{cell:>12}"));
    text.push('\n');
}

/// The share of a core's polls that found work.
fn busy(snapshot: &Snapshot<'_>, core: Column) -> String {
    let (Some(all), Some(idle)) =
        (snapshot.counter_index("cores_polls"), snapshot.counter_index("cores_polls_idle"))
    else {
        return dash();
    };
    let current = |counter| snapshot.rate(core, counter).unwrap_or(snapshot.value(core, counter) as f64);
    let (all, idle) = (current(all), current(idle));
    if all > 0.0 { format!("{:.1}", (1.0 - idle / all) * 100.0) } else { dash() }
}

/// The rates of a counter; its value if there is no rate yet.
fn rates(
    snapshot: &Snapshot<'_>,
    columns: impl Iterator<Item = Column>,
    counter: &str,
    unit: f64,
) -> impl Iterator<Item = String> {
    let index = snapshot.counter_index(counter);
    columns.map(move |column| {
        let rate = index.and_then(|index| snapshot.rate(column, index));
        rate.map_or_else(dash, |rate| format!("{:.0}", rate / unit))
    })
}

fn totals(snapshot: &Snapshot<'_>, counter: &str) -> impl Iterator<Item = String> {
    let index = snapshot.counter_index(counter);
    snapshot.cores().map(move |core| index.map_or_else(dash, |index| snapshot.value(core, index).to_string()))
}

/// Every drop counter that is not zero, with its meaning.
fn drops(
    text: &mut String,
    snapshot: &Snapshot<'_>,
    columns: impl Iterator<Item = Column> + Clone,
    wanted: impl Fn(&CounterInfo) -> bool,
) {
    text.push_str("\nlost, by reason\n");
    let mut any = false;
    for (index, counter) in snapshot.counters.iter().enumerate() {
        let is_drop = DROP_WORDS.iter().any(|word| counter.name.contains(word));
        if !is_drop || !wanted(counter) || columns.clone().all(|column| snapshot.value(column, index) == 0) {
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

fn dash() -> String {
    "–".to_owned()
}
