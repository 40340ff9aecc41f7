//! A look as a screen of text: a column a core, then what was dropped, by reason; of several ports a column each as well.

use std::fmt::Write;

use ironwarp_stats::CounterInfo;

use crate::look::{Look, Of};

/// Rows: what they are called, the counter, and what its rate is divided by.
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

/// The first of them are counted by port.
const PORT_ROWS: usize = 2;

/// What a counter's name says when it counts losses.
const LOSSES: [&str; 9] =
    ["drop", "no_buffer", "too_long", "no_frame", "no_room", "refused", "errors", "overruns", "evicted"];

/// The whole screen.
pub(crate) fn screen(look: &Look<'_>) -> String {
    let mut text = String::new();
    let since = look.seconds().map_or("since its start".to_owned(), |seconds| format!("in {seconds:.2} s"));
    let _ = writeln!(text, "process {}: {} cores, {since}\n", look.pid, look.cores().count());
    row(&mut text, "core", look.cores().map(number));
    row(&mut text, "busy polls %", look.cores().map(|core| busy(look, core)));
    row(&mut text, "polls /s", figures(look, look.cores(), "cores_polls", 1.0));
    for (title, counter, unit) in ROWS {
        row(&mut text, title, figures(look, look.cores(), counter, unit));
    }
    row(&mut text, "connections made", counts(look, "verbs_connections_established"));
    losses(&mut text, look, look.cores(), |_| true);
    if look.ports().count() > 1 {
        ports(&mut text, look);
    }
    text
}

/// The same by port, as far as it is counted so.
fn ports(text: &mut String, look: &Look<'_>) {
    text.push('\n');
    row(text, "port", look.ports().map(number));
    for (title, counter, unit) in ROWS.into_iter().take(PORT_ROWS) {
        row(text, title, figures(look, look.ports(), counter, unit));
    }
    losses(text, look, look.ports(), Look::is_by_port);
}

fn number(of: Of) -> String {
    match of {
        Of::Core(number) | Of::Port(number) => number.to_string(),
    }
}

fn row(text: &mut String, title: &str, cells: impl Iterator<Item = String>) {
    let _ = write!(text, "{title:<18}");
    cells.for_each(|cell| _ = write!(text, "{cell:>12}"));
    text.push('\n');
}

/// How many of a core's polls found something to do.
fn busy(look: &Look<'_>, core: Of) -> String {
    let (Some(all), Some(idle)) = (look.place("cores_polls"), look.place("cores_polls_idle")) else {
        return dash();
    };
    let of = |counter| look.rate(core, counter).unwrap_or(look.value(core, counter) as f64);
    let (all, idle) = (of(all), of(idle));
    if all > 0.0 { format!("{:.1}", (1.0 - idle / all) * 100.0) } else { dash() }
}

/// A counter's rates; what it says where there is no rate yet.
fn figures(
    look: &Look<'_>,
    columns: impl Iterator<Item = Of>,
    counter: &str,
    unit: f64,
) -> impl Iterator<Item = String> {
    let place = look.place(counter);
    columns.map(move |of| {
        let rate = place.and_then(|place| look.rate(of, place));
        rate.map_or_else(dash, |rate| format!("{:.0}", rate / unit))
    })
}

fn counts(look: &Look<'_>, counter: &str) -> impl Iterator<Item = String> {
    let place = look.place(counter);
    look.cores().map(move |core| place.map_or_else(dash, |place| look.value(core, place).to_string()))
}

/// Every counter of losses that has counted one, and what it means.
fn losses(
    text: &mut String,
    look: &Look<'_>,
    columns: impl Iterator<Item = Of> + Clone,
    wanted: impl Fn(&CounterInfo) -> bool,
) {
    text.push_str("\nlost, by reason\n");
    let mut any = false;
    for (place, counter) in look.counters.iter().enumerate() {
        let is_loss = LOSSES.iter().any(|word| counter.name.contains(word));
        if !is_loss || !wanted(counter) || columns.clone().all(|of| look.value(of, place) == 0) {
            continue;
        }
        any = true;
        row(text, "", columns.clone().map(|of| look.value(of, place).to_string()));
        // The name may be longer than its column: it follows.
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
