//! The views of a snapshot, as tables: by core, by port, by connection, by namespace, and losses by
//! reason.

use ironwarp_stats::CounterInfo;

use crate::snapshot::{Column, Connection, Snapshot};
use crate::table::{Cell, Heading, Sorting, Table};

/// What a table has a row for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum View {
    Cores,
    Ports,
    Connections,
    Namespaces,
    Losses,
}

impl View {
    pub(crate) const ALL: [View; 5] =
        [View::Cores, View::Ports, View::Connections, View::Namespaces, View::Losses];

    pub(crate) fn name(self) -> &'static str {
        match self {
            View::Cores => "cores",
            View::Ports => "ports",
            View::Connections => "connections",
            View::Namespaces => "namespaces",
            View::Losses => "losses",
        }
    }

    /// How the rows are sorted until the user chooses.
    pub(crate) fn sorting(self) -> Sorting {
        let (column, descending) = match self {
            View::Cores | View::Ports | View::Namespaces => (0, false),
            View::Connections => (CONNECTION_RATE, true),
            View::Losses => (1, true),
        };
        Sorting { column, descending }
    }

    pub(crate) fn table(self, snapshot: &Snapshot) -> Table {
        match self {
            View::Cores => by_column("core", snapshot, snapshot.cores(), &RATES),
            View::Ports => by_column("port", snapshot, snapshot.ports(), &RATES[..PORT_RATES]),
            View::Connections => connections(snapshot),
            View::Namespaces => namespaces(snapshot),
            View::Losses => losses(snapshot),
        }
    }
}

/// A rate: the heading of its column, the counter, and its divisor.
pub(crate) type Rate = (&'static str, &'static str, f64);

/// The rates of a core. The first [`PORT_RATES`] are counted by port too.
pub(crate) const RATES: [Rate; 12] = [
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

/// The parts of a counter's name that mark drops.
const DROP_WORDS: [&str; 9] =
    ["drop", "no_buffer", "too_long", "no_frame", "no_room", "refused", "errors", "overruns", "evicted"];

/// Whether a counter counts losses.
pub(crate) fn is_loss(counter: &CounterInfo) -> bool {
    DROP_WORDS.iter().any(|word| counter.name.contains(word))
}

/// The share of a core's polls that found work, in percent: since the snapshot before, or since the
/// start.
pub(crate) fn busy_percent(snapshot: &Snapshot, core: Column) -> Option<f64> {
    let current = |name: &str| {
        let counter = snapshot.counter_index(name)?;
        Some(snapshot.rate(core, counter).unwrap_or(snapshot.value(core, counter) as f64))
    };
    let (all, idle) = (current("cores_polls")?, current("cores_polls_idle")?);
    (all > 0.0).then(|| (1.0 - idle / all) * 100.0)
}

pub(crate) fn rate(snapshot: &Snapshot, column: Column, (_, counter, divisor): Rate) -> Option<f64> {
    let counter = snapshot.counter_index(counter)?;
    snapshot.rate(column, counter).map(|rate| rate / divisor)
}

/// A row for each core or port. Everything but the totals is for one second.
fn by_column(
    name: &str,
    snapshot: &Snapshot,
    columns: impl Iterator<Item = Column>,
    rates: &[Rate],
) -> Table {
    let is_core = name == "core";
    let mut headings = vec![Heading::number(name)];
    if is_core {
        headings.extend(["busy %", "polls/s", "opened"].map(Heading::number));
    }
    headings.extend(rates.iter().map(|(title, _, _)| Heading::number(&format!("{title}/s"))));
    headings.push(Heading::number("lost"));
    let rows = columns.map(|column| {
        let mut row = vec![Cell::count(column.number() as u64)];
        if is_core {
            row.push(Cell::some_number(busy_percent(snapshot, column), 1));
            row.push(Cell::some_number(rate(snapshot, column, ("", "cores_polls", 1.0)), 0));
            row.push(Cell::count(snapshot.total_of(column, "verbs_connections_established")));
        }
        row.extend(rates.iter().map(|one| Cell::some_number(rate(snapshot, column, *one), 0)));
        let counters = snapshot.counters.iter().enumerate();
        let lost = counters.filter(|(_, info)| is_loss(info) && (is_core || Snapshot::is_port_counter(info)));
        row.push(Cell::count(
            lost.fold(0, |sum, (index, _)| sum.saturating_add(snapshot.value(column, index))),
        ));
        row
    });
    Table { rows: rows.collect(), headings }
}

/// The column of a connection by which its rows are sorted: both directions together.
const CONNECTION_RATE: usize = 5;

/// The connections that the process shows. `MB/s` is both directions together.
fn connections(snapshot: &Snapshot) -> Table {
    let mut headings = vec![Heading::text("peer"), Heading::text("state")];
    headings.extend(["core", "qp"].map(Heading::number));
    headings.extend(
        [
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
        ]
        .map(Heading::number),
    );
    headings.push(Heading::text("local"));
    let row = |one: &Connection| {
        let (row, rates) = (&one.row, snapshot.connection_rates(one));
        let mega = |bytes: f64| bytes / 1e6;
        let srtt_us = (row.srtt_ns > 0).then_some(row.srtt_ns as f64 / 1e3);
        vec![
            Cell::text(row.remote.to_string()),
            Cell::text(row.state.name()),
            Cell::count(one.core as u64),
            Cell::some_number(row.queue_pair.map(f64::from), 0),
            Cell::count(row.retransmits),
            Cell::some_number(rates.map(|(tx, rx)| mega(tx + rx)), 1),
            Cell::some_number(rates.map(|(_, rx)| mega(rx)), 1),
            Cell::some_number(rates.map(|(tx, _)| mega(tx)), 1),
            Cell::number(mega(row.rx_bytes as f64), 1),
            Cell::number(mega(row.tx_bytes as f64), 1),
            Cell::some_number(srtt_us, 1),
            Cell::number(row.rto_ns as f64 / 1e3, 0),
            Cell::number(row.cwnd_bytes as f64 / 1e3, 1),
            Cell::number(row.flight_bytes as f64 / 1e3, 1),
            Cell::text(row.local.to_string()),
        ]
    };
    Table { headings, rows: snapshot.connections.iter().map(row).collect() }
}

fn namespaces(snapshot: &Snapshot) -> Table {
    let Some(namespaces) = &snapshot.namespaces else { return Table::default() };
    namespaces.table(snapshot.namespaces_before.as_ref())
}

/// Every loss that has happened, by reason, over all cores.
fn losses(snapshot: &Snapshot) -> Table {
    let headings = vec![
        Heading::text("reason"),
        Heading::number("count"),
        Heading::number("/s"),
        Heading::text("meaning"),
    ];
    let counters = snapshot.counters.iter().enumerate().filter(|(_, info)| is_loss(info));
    let rows = counters.filter_map(|(index, info)| {
        let count = snapshot.cores().fold(0u64, |sum, core| sum.saturating_add(snapshot.value(core, index)));
        let rates: Option<f64> = snapshot.cores().map(|core| snapshot.rate(core, index)).sum();
        let row = || {
            vec![
                Cell::text(&*info.name),
                Cell::count(count),
                Cell::some_number(rates, 0),
                Cell::text(&*info.help),
            ]
        };
        (count > 0).then(row)
    });
    Table { headings, rows: rows.collect() }
}
