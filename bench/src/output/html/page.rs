//! The page's text: headings, tables, the machine.

use std::fmt::Write;

use super::plots::Plot;
use crate::output::{micros, size};
use crate::report::{Comparison, MedianRange, Report, TestResult};

/// Light paper, narrow rules, numbers that stand under each other.
const STYLE: &str = "\
body{margin:0;background:#f5f6f8;color:#1f2733;font:15px/1.5 system-ui,-apple-system,'Segoe UI',sans-serif}\
main{max-width:1080px;margin:0 auto;padding:32px 20px 64px}\
h1{font-size:26px;margin:0 0 4px}h2{font-size:18px;margin:36px 0 10px}\
.sub{color:#5b6675;margin:0}\
section{background:#fff;border:1px solid #e1e5ea;border-radius:10px;padding:14px 18px;margin:0 0 18px;overflow-x:auto}\
section svg{width:100%;height:auto;display:block}section h3{font-size:15px;margin:2px 0 8px}\
table{border-collapse:collapse;width:100%;font-size:14px;font-variant-numeric:tabular-nums}\
th,td{padding:5px 10px;text-align:right;border-bottom:1px solid #eceff3;white-space:nowrap}\
th{color:#5b6675;font-weight:600}th:first-child,td:first-child{text-align:left}\
tr.ironwarp td:first-child{font-weight:600;color:#1d5bbf}\
.spread{color:#7a8594;font-size:12px}\
dl{display:grid;grid-template-columns:max-content 1fr;gap:4px 20px;margin:0}dt{color:#5b6675}dd{margin:0}\
ul{margin:0;padding-left:20px}";

/// The whole page.
pub(super) fn render(report: &Report, plots: &[Plot]) -> String {
    let mut page = String::with_capacity(1 << 16);
    page.push_str("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">");
    page.push_str("<meta name=\"viewport\" content=\"width=device-width\"><title>iwarp-perf report</title>");
    push(&mut page, &format!("<style>{STYLE}</style></head><body><main>"));
    page.push_str("<h1>iwarp-perf</h1>");
    push(&mut page, &format!("<p class=\"sub\">{}</p>", escape(&report.build.summary())));
    push(&mut page, &format!("<p class=\"sub\">{}</p>", escape(&report.machine.summary())));
    latencies(&mut page, report);
    bandwidths(&mut page, report);
    if !plots.is_empty() {
        page.push_str("<h2>Plots</h2>");
    }
    for plot in plots {
        push(&mut page, &format!("<section><h3>{}</h3>{}</section>", escape(&plot.title), plot.svg));
    }
    notes(&mut page, report);
    machine(&mut page, report);
    page.push_str("</main></body></html>\n");
    page
}

fn latencies(page: &mut String, report: &Report) {
    let rows: Vec<&TestResult> = report.results.iter().filter(|result| result.test.is_latency()).collect();
    if rows.is_empty() {
        return;
    }
    page.push_str("<h2>Latency: the full round trip, µs</h2><section><table>");
    let heads = ["min", "p50", "half", "p90", "p99", "p99.9", "p99.99", "max", "mean", "against"];
    header(page, &heads);
    for result in rows {
        let rtt = result.rtt_ns;
        let at = |value: Option<u64>| value.map_or_else(dash, |ns| micros(ns as f64));
        let half = rtt.filter(|_| result.test.is_symmetric()).map(|rtt| rtt.p50 / 2);
        let figures = [
            at(rtt.map(|rtt| rtt.min)),
            at(rtt.map(|rtt| rtt.p50)),
            at(half),
            at(rtt.map(|rtt| rtt.p90)),
            at(rtt.map(|rtt| rtt.p99)),
            at(rtt.map(|rtt| rtt.p999)),
            at(rtt.map(|rtt| rtt.p9999)),
            at(rtt.map(|rtt| rtt.max)),
            rtt.map_or_else(dash, |rtt| micros(rtt.mean)),
            comparisons(result, |against| against.ratio_p50),
        ];
        row(page, result, &figures);
    }
    page.push_str("</table></section>");
}

fn bandwidths(page: &mut String, report: &Report) {
    let rows: Vec<&TestResult> = report.results.iter().filter(|result| !result.test.is_latency()).collect();
    if rows.is_empty() {
        return;
    }
    page.push_str("<h2>Bandwidth: goodput, application bytes alone</h2><section><table>");
    header(page, &["Gbit/s", "messages/s", "CPU µs/message", "errors", "against"]);
    for result in rows {
        let figures = [
            result.gbit_per_s.map_or_else(dash, |gbit| format!("{gbit:.2}")),
            result.messages_per_s.map_or_else(dash, |rate| format!("{rate:.0}")),
            result.cpu_ns_per_message.map_or_else(dash, micros),
            result.errors.map_or_else(dash, |errors| errors.to_string()),
            comparisons(result, |against| against.ratio_gbit),
        ];
        row(page, result, &figures);
    }
    page.push_str("</table></section>");
}

fn header(page: &mut String, figures: &[&str]) {
    page.push_str("<tr>");
    for head in ["test", "size", "MTU", "path"].iter().chain(figures) {
        push(page, &format!("<th>{head}</th>"));
    }
    page.push_str("</tr>");
}

fn row(page: &mut String, result: &TestResult, figures: &[String]) {
    let class = if result.against.is_some() { "ironwarp" } else { "" };
    let what = [
        escape(&result.name()),
        size(result.bytes),
        result.mtu.map_or_else(dash, |mtu| mtu.to_string()),
        result.path.map_or_else(dash, |path| path.name().to_owned()),
    ];
    push(page, &format!("<tr class=\"{class}\">"));
    what.iter().chain(figures).for_each(|cell| push(page, &format!("<td>{cell}</td>")));
    page.push_str("</tr>");
}

/// Every baseline with the ratio's median, and its extremes in small print.
fn comparisons(result: &TestResult, ratio: fn(&Comparison) -> Option<MedianRange>) -> String {
    let known =
        result.against.iter().flatten().filter_map(|against| Some((&against.baseline, ratio(against)?)));
    let cells: Vec<String> = known
        .map(|(baseline, MedianRange { median, min, max })| {
            let name = escape(baseline);
            format!("{median:.2} × {name} <span class=\"spread\">[{min:.2}–{max:.2}]</span>")
        })
        .collect();
    if cells.is_empty() { dash() } else { cells.join("<br>") }
}

fn notes(page: &mut String, report: &Report) {
    let with_title = |result: &TestResult, note: &String| {
        format!("<li>{} {}: {}</li>", escape(&result.name()), size(result.bytes), escape(note))
    };
    let items: String = report
        .results
        .iter()
        .flat_map(|result| result.notes.iter().map(move |note| with_title(result, note)))
        .collect();
    if !items.is_empty() {
        push(page, &format!("<h2>Notes</h2><section><ul>{items}</ul></section>"));
    }
}

fn machine(page: &mut String, report: &Report) {
    let machine = &report.machine;
    let hop = MedianRange::of(report.results.iter().filter_map(|result| result.hop_ns));
    let dropped: u32 = report.results.iter().filter_map(|result| result.rounds_dropped).sum();
    let shown = |value: &Option<String>| value.as_deref().map_or_else(dash, escape);
    let number = |value: Option<u64>| value.map_or_else(dash, |value| value.to_string());
    let facts = [
        ("host", shown(&machine.hostname)),
        ("processor", shown(&machine.cpu)),
        ("processors", number(machine.cores.map(u64::from))),
        ("memory, MiB", number(machine.memory_mib)),
        ("kernel", shown(&machine.kernel)),
        ("system", shown(&machine.os)),
        ("clock", shown(&machine.clock_source)),
        ("hugepages", number(machine.hugepages)),
        ("core to core, ns", hop.map_or_else(dash, |hop| format!("{:.0}", hop.median))),
        ("slices dropped", dropped.to_string()),
        ("compiler", shown(&report.build.rustc)),
        ("commit", shown(&report.build.commit)),
        ("target", shown(&report.build.target)),
    ];
    page.push_str("<h2>Machine</h2><section><dl>");
    facts.iter().for_each(|(name, value)| push(page, &format!("<dt>{name}</dt><dd>{value}</dd>")));
    page.push_str("</dl></section>");
}

fn push(page: &mut String, text: &str) {
    // Writing to a String cannot fail.
    let _ = page.write_str(text);
}

fn dash() -> String {
    "–".to_owned()
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::samples;

    #[test]
    fn names_from_outside_cannot_become_markup() {
        let mut report = samples::outcome().report;
        report.machine.hostname = Some("<script>alert(1)</script>".into());
        report.results[0].notes.push("a < b & c".into());
        let page = render(&report, &[]);
        assert!(!page.contains("<script>"));
        assert!(page.contains("a &lt; b &amp; c"));
    }
}
