//! A snapshot as text: a column for each core, and for each port if there are several; losses by
//! reason; then connections and NVMe namespaces as tables, if there are any, and what their target
//! refused, ended or let wait.

use std::fmt::Write;

use ironwarp_stats::CounterInfo;

use crate::snapshot::{Column, Connection, Snapshot};
use crate::table::{number, some_number, table};

/// The title of a row, the counter, and its divisor.
type Rate = (&'static str, &'static str, f64);

/// The rates of a core. The first [`PORT_RATES`] are counted by port too.
const RATES: [Rate; 12] = [
    ("frames in", "port_rx_frames", 1.0),
    ("frames out", "port_tx_frames", 1.0),
    ("Mbit in", "tcp_rx_bytes", 125_000.0),
    ("Mbit out", "tcp_tx_bytes", 125_000.0),
    ("FPDUs in", "iwarp_rx_fpdus", 1.0),
    ("FPDUs out", "iwarp_tx_fpdus", 1.0),
    ("Sends in", "iwarp_rx_sends", 1.0),
    ("Writes in", "iwarp_rx_writes", 1.0),
    ("Reads asked", "iwarp_rx_read_requests", 1.0),
    ("atomics asked", "iwarp_rx_atomic_requests", 1.0),
    ("immediates in", "iwarp_rx_immediates", 1.0),
    ("sent again", "tcp_tx_retransmits", 1.0),
];
const PORT_RATES: usize = 2;

/// The parts of a counter's name that mark losses.
const LOSS_WORDS: [&str; 9] =
    ["drop", "no_buffer", "too_long", "no_frame", "no_room", "refused", "errors", "overruns", "evicted"];

pub(crate) fn text(snapshot: &Snapshot) -> String {
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
    let connections = connections(snapshot);
    if !connections.is_empty() {
        let _ = write!(text, "\nconnections that moved most\n{connections}");
    }
    if let Some(namespaces) = &snapshot.namespaces {
        let table = namespaces.table(snapshot.namespaces_before.as_ref());
        let _ = write!(text, "\n{} controllers\n{table}", namespaces.controllers);
        for (name, count) in namespaces.counters.iter().filter(|(_, count)| **count > 0) {
            let _ = writeln!(text, "  {name} {count}");
        }
    }
    text
}

/// The text for a terminal of `lines` lines, in place of what it shows. It cuts lines that are too
/// long for it (DECAWM is off while it takes them).
pub(crate) fn screen(text: &str, lines: usize) -> String {
    let (all, room) = (text.lines().count(), lines.saturating_sub(1).max(1));
    let (shown, more) = match all > room {
        true => (room - 1, format!("{} more lines: --plain prints all", all + 1 - room)),
        false => (all, String::new()),
    };
    let shown: String = text.lines().take(shown).flat_map(|line| [line, "\n"]).collect();
    format!("\x1b[H\x1b[2J\x1b[?7l{shown}{more}\x1b[?7h")
}

fn cores(text: &mut String, snapshot: &Snapshot) {
    row(text, "core", snapshot.cores().map(|core| core.number().to_string()));
    let busy = |core| decimals(busy_percent(snapshot, core), 1);
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
    for (title, counter, divisor) in rates {
        let counter = snapshot.counter_index(counter);
        let rate = |column| Some(snapshot.rate(column, counter?)? / divisor);
        row(text, &format!("{title} /s"), columns.clone().map(|column| decimals(rate(column), 0)));
    }
}

/// The share of a core's polls that found work, in percent: since the snapshot before, or since the
/// start.
fn busy_percent(snapshot: &Snapshot, core: Column) -> Option<f64> {
    let current = |name: &str| {
        let counter = snapshot.counter_index(name)?;
        Some(snapshot.rate(core, counter).unwrap_or(snapshot.value(core, counter) as f64))
    };
    let (all, idle) = (current("cores_polls")?, current("cores_polls_idle")?);
    (all > 0.0).then(|| (1.0 - idle / all) * 100.0)
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
    let is_loss = |counter: &CounterInfo| LOSS_WORDS.iter().any(|word| counter.name.contains(word));
    let mut any = false;
    for (index, counter) in snapshot.counters.iter().enumerate() {
        let is_wanted = is_loss(counter) && (!by_port || Snapshot::is_port_counter(counter));
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

/// The connections that the process shows, the fastest first. `MB/s` is both directions together.
/// The addresses are those in use, of those that the peer of an SCTP association has.
fn connections(snapshot: &Snapshot) -> String {
    const HEADS: [&str; 17] = [
        "peer",
        "state",
        "core",
        "qp",
        "resent",
        "MB/s",
        "MB/s in",
        "MB/s out",
        "MB in",
        "MB out",
        "rtt us",
        "rto us",
        "cwnd kB",
        "flight kB",
        "paths up",
        "over",
        "local",
    ];
    let rates = |one: &Connection| snapshot.connection_rates(one);
    let both = |one: &Connection| rates(one).map_or(0.0, |(tx, rx)| tx + rx);
    let mut connections: Vec<&Connection> = snapshot.connections.iter().collect();
    connections.sort_by(|one, other| both(other).total_cmp(&both(one)));
    let cells = |one: &Connection| {
        let (row, rates) = (&one.row, rates(one));
        let mega = |bytes: f64| bytes / 1e6;
        let srtt_us = (row.srtt_ns > 0).then_some(row.srtt_ns as f64 / 1e3);
        vec![
            row.remote.to_string(),
            row.state.name().to_owned(),
            number(one.core as f64, 0),
            some_number(row.queue_pair.map(f64::from), 0),
            number(row.retransmits as f64, 0),
            some_number(rates.map(|(tx, rx)| mega(tx + rx)), 1),
            some_number(rates.map(|(_, rx)| mega(rx)), 1),
            some_number(rates.map(|(tx, _)| mega(tx)), 1),
            number(mega(row.rx_bytes as f64), 1),
            number(mega(row.tx_bytes as f64), 1),
            some_number(srtt_us, 1),
            number(row.rto_ns as f64 / 1e3, 0),
            number(row.cwnd_bytes as f64 / 1e3, 1),
            number(row.flight_bytes as f64 / 1e3, 1),
            format!("{} of {}", row.paths_up, row.paths),
            match row.protocol {
                6 => "TCP".to_owned(),
                132 => "SCTP".to_owned(),
                other => other.to_string(),
            },
            row.local.to_string(),
        ]
    };
    table(
        &HEADS.map(str::to_owned),
        &[0, 1, HEADS.len() - 2, HEADS.len() - 1],
        connections.into_iter().map(cells),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_screen_is_replaced_and_says_what_it_has_no_room_for() {
        assert_eq!(screen("a\nb\n", 3), "\x1b[H\x1b[2J\x1b[?7la\nb\n\x1b[?7h");
        let cut = screen("a\nb\nc\n", 3);
        assert_eq!(cut, "\x1b[H\x1b[2J\x1b[?7la\n2 more lines: --plain prints all\x1b[?7h");
        assert!(screen("a\nb\n", 0).contains("2 more lines"));
    }
}
