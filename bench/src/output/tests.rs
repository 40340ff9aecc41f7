//! Tests of tables, pages, JSON and logs, with a made-up outcome.

use std::time::Duration;

use tempfile::{NamedTempFile, TempDir};

use super::units::{micros, size};
use super::*;
use crate::host::{Activity, Build, Machine};
use crate::report::SCHEMA;
use crate::rounds::{CaseTotals, Round, Rounds};
use crate::{Case, EndUsage, PathKind, Slice, Test, Wait};

/// Raw frames, Sends and blocking TCP at 64 bytes, raw frames and Writes in one direction, over two
/// rounds.
fn outcome() -> Outcome {
    let mut blocking = Case::new(Test::TcpLat, 64, 1500, PathKind::Veth);
    blocking.wait = Wait::Block;
    let cases = [
        Case::new(Test::FrameLat, 64, 1500, PathKind::Memif),
        Case::new(Test::SendLat, 64, 1500, PathKind::Memif),
        blocking,
        Case::new(Test::FrameBw, 1 << 20, 9000, PathKind::Memif),
        Case::new(Test::WriteBw, 1 << 20, 9000, PathKind::Memif),
    ];
    let round = || Round {
        slices: vec![lat(310), lat(930), lat(47_000), bw(30_000_000), bw(9_000_000)],
        hop_ns: Some(81.0),
        activity: Activity { steal_ns: Some(0), context_switches: Some(3) },
        floor_moved: Some(0.05),
    };
    outcome_of(&cases, &Rounds { rounds: vec![round(), round()] })
}

fn outcome_of(cases: &[Case], rounds: &Rounds) -> Outcome {
    let mut outcome = Outcome {
        report: Report {
            schema: SCHEMA,
            machine: Machine::local(),
            build: Build::current(&["dpdk"]),
            ..Report::default()
        },
        latencies: vec![],
    };
    for (index, case) in cases.iter().enumerate() {
        let floor = if case.test.is_latency() { 0 } else { 3 };
        let baselines: Vec<_> =
            (index != floor).then(|| (&cases[floor], rounds.case(floor))).into_iter().collect();
        let totals = CaseTotals::of(&rounds.case(index));
        let result = totals.result(case, Some("net_memif0".into()), &rounds.case(index), &baselines);
        outcome.report.results.push(result);
        outcome.latencies.push(totals.latency().cloned());
    }
    outcome
}

fn lat(typical_ns: u64) -> Slice {
    let mut latency = Latency::new();
    (1..=10_000_u64).for_each(|n| latency.record(typical_ns + typical_ns * n / (10_001 - n) / 10));
    let elapsed_ns = 10_000 * typical_ns;
    Slice { latency: Some(latency), messages: 10_000, elapsed_ns, client: usage(25), ..Slice::default() }
}

fn bw(bytes: u64) -> Slice {
    let (client, server) = (usage(50), usage(100));
    let (messages, elapsed_ns, cpu_ns) = (bytes >> 20, 1_000_000, Some(2_000_000));
    Slice { bytes, messages, elapsed_ns, cpu_ns, client, server, ..Slice::default() }
}

/// An end that uses 90 % of a processor, and finds work in `busy` of 100 polls.
fn usage(busy: u64) -> EndUsage {
    EndUsage { cpu_ns: Some(900_000), wall_ns: 1_000_000, polls: 100, idle_polls: 100 - busy }
}

/// The text of a file that `write` writes.
fn written(write: impl FnOnce(&Path) -> io::Result<()>) -> String {
    let file = NamedTempFile::new().expect("a writable folder");
    write(file.path()).expect("a writable file");
    std::fs::read_to_string(&file).expect("just written")
}

/// The page of an outcome.
fn html(outcome: &Outcome) -> String {
    let folder = TempDir::new().expect("a writable folder");
    let path = write_html(outcome, &folder.path().join("new")).expect("a writable folder");
    std::fs::read_to_string(path).expect("just written")
}

fn cells<'a>(text: &'a str, start: &str) -> Vec<&'a str> {
    let line = text.lines().find(|line| line.contains(start)).expect("the row is there");
    line.split(['│', '┆']).map(str::trim).filter(|cell| !cell.is_empty()).collect()
}

#[test]
fn sizes_are_in_the_largest_whole_unit() {
    let sizes = [0, 64, 1024, 1500, 65_536, 1 << 20, 3 << 20, 1 << 30].map(size);
    assert_eq!(sizes, ["0 B", "64 B", "1 KiB", "1500 B", "64 KiB", "1 MiB", "3 MiB", "1 GiB"]);
}

#[test]
fn times_below_ten_microseconds_have_two_decimals() {
    assert_eq!([310.0, 47_123.0, 2_345_678.0].map(micros), ["0.31", "47.1", "2346"]);
}

#[test]
fn the_json_file_has_the_keys_of_the_schema() {
    let text = written(|path| outcome().write_json(path));
    let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(json["schema"], 1);
    assert!(json["machine"].is_object() && json["build"].is_object());
    let ours = &json["results"][1];
    assert_eq!((&ours["test"], &ours["transport"]), (&"send-lat".into(), &"ironwarp".into()));
    for key in ["min", "p50", "p90", "p99", "p999", "p9999", "max", "mean", "stddev"] {
        assert!(ours["rtt_ns"][key].is_number(), "{key}");
    }
    assert_eq!(ours["against"][0]["baseline"], "frame-lat");
    assert!(ours["against"][0]["ratio_p50"]["median"].is_number());
}

#[test]
fn the_histogram_log_has_a_line_for_each_latency() {
    let text = written(|path| outcome().write_hdr(path));
    let tags = text.lines().filter_map(|line| line.strip_prefix("Tag=")?.split(',').next());
    let expected = ["frame-lat_64B_memif", "send-lat_64B_memif", "tcp-lat_(blocking)_64B_veth"];
    assert_eq!(tags.collect::<Vec<_>>(), expected);
}

#[test]
fn a_latency_row_has_the_round_trip_and_its_half() {
    let text = tables(&outcome().report, None);
    let cells = cells(&text, "│ send-lat");
    assert_eq!(&cells[..3], ["send-lat", "64 B", "memif"]);
    let cells: Vec<&str> = ["MTU is in the title"].into_iter().chain(cells).collect();
    let number = |cell: &str| cell.parse::<f64>().expect("a number");
    assert!((number(cells[5]) / 2.0 - number(cells[6])).abs() <= 0.01, "{cells:?}");
    assert!(text.contains("full round trip"));
    assert!(text.contains("p99.99") && number(cells[9]) >= number(cells[8]), "{cells:?}");
}

#[test]
fn a_connection_setup_has_a_table_of_its_own() {
    let case = Case { depth: 16, ..Case::new(Test::ConnRate, 0, 1500, PathKind::Memif) };
    let round = Round {
        slices: vec![Slice { errors: 2, ..lat(50_000) }],
        hop_ns: None,
        activity: Activity::default(),
        floor_moved: None,
    };
    let rounds = Rounds { rounds: vec![round] };
    let mut outcome = outcome();
    let totals = CaseTotals::of(&rounds.case(0));
    outcome.report.results = vec![totals.result(&case, None, &rounds.case(0), &[])];
    outcome.latencies = vec![totals.latency().cloned()];
    let text = tables(&outcome.report, None);
    assert!(text.contains("Connection set-up") && !text.contains("goodput") && !text.contains("round trip"));
    let cells = cells(&text, "│ conn-rate");
    assert_eq!((cells[2], cells[3], cells.last()), ("20.0 k", "20.0 k", Some(&"2")));
    assert!(!html(&outcome).contains("<td class=\"bar\""));
    assert!(written(|path| outcome.write_hdr(path)).contains("Tag=conn-rate_0B_memif"));
}

#[test]
fn ratios_have_a_table_of_their_own_without_the_baselines() {
    let text = tables(&outcome().report, None);
    assert_eq!(cells(&text, "tcp-lat (blocking)")[2], "veth");
    let ratios = text.split("p50 to that of baselines").nth(1).expect("a table of ratios");
    let cells = cells(ratios, "│ send-lat");
    assert_eq!(cells[..2], ["send-lat", "64 B"]);
    assert!(cells.last().is_some_and(|cell| cell.starts_with("3.0") && cell.contains('–')), "{cells:?}");
    let of_latency = ratios.split("Bandwidth").next().expect("it begins with the ratios");
    assert!(!of_latency.contains("│ frame-lat"), "{of_latency}");
}

#[test]
fn a_bandwidth_row_has_goodput_and_the_usage_of_both_ends() {
    let text = tables(&outcome().report, None);
    let ours = cells(&text, "│ write-bw");
    assert_eq!((ours[2], &ours[ours.len() - 2..]), ("72.00", &["90/90", "50/100"][..]), "{text}");
    let ratios = text.split("Gbit/s to that of baselines").nth(1).expect("a table of ratios");
    assert_eq!(cells(ratios, "│ write-bw").last(), Some(&"0.30 [0.30–0.30]"));
}

#[test]
fn the_working_set_has_a_column_where_it_is_known() {
    let mut report = outcome().report;
    assert!(!tables(&report, Some(120)).contains("set MiB"));
    report.results[4].working_set_bytes = Some(5 << 19);
    for text in [tables(&report, Some(120)), page::render(&report)] {
        assert!(text.contains("set MiB") && text.contains("2.5") && text.contains("set: memory"), "{text}");
    }
}

/// The title names what all rows have in common, and the columns are those in which they differ.
#[test]
fn a_setting_that_all_rows_have_is_in_the_title() {
    let text = tables(&outcome().report, None);
    let latency = text.split("Bandwidth").next().expect("latencies come first");
    assert!(latency.contains("(MTU 1500; ") && !latency.contains("┆  MTU "), "{text}");
    assert!(latency.contains("path") && text.contains("(MTU 9000; path memif; "), "{text}");
}

#[test]
fn tables_and_pages_show_errors_and_notes() {
    let mut report = outcome().report;
    report.results[1].errors = Some(2);
    report.results[1].notes.push("over loopback instead of veth".into());
    for text in [tables(&report, None), page::render(&report)] {
        assert!(text.contains("send-lat 64 B: 2 errors"));
        assert!(text.contains("send-lat 64 B: over loopback instead of veth"));
    }
}

/// The report says in words whether kernel TCP would do, and where it is the faster one.
#[test]
fn a_comparison_with_kernel_tcp_ends_in_a_verdict() {
    let cases = [
        Case::new(Test::TcpBw, 1 << 20, 1500, PathKind::Veth),
        Case::new(Test::WriteBw, 1 << 20, 1500, PathKind::Memif),
        Case::new(Test::WriteBw, 1 << 20, 9000, PathKind::Memif),
    ];
    let round = |tcp, hop_ns| Round {
        slices: vec![bw(tcp), bw(10_000_000), bw(40_000_000)],
        hop_ns: Some(hop_ns),
        activity: Activity { steal_ns: Some(0), context_switches: Some(3) },
        floor_moved: Some(0.05),
    };
    for (tcp, hop_ns, words) in [
        (
            20_000_000,
            160.0,
            "bandwidth 0.50 to 2.00 times: kernel TCP is faster than write-bw of 1 MiB at MTU 1500 (0.50)",
        ),
        (5_000_000, 50.0, "bandwidth 2.00 to 8.00 times: RDMA is faster in every test of this run"),
    ] {
        let rounds = Rounds { rounds: vec![round(tcp, hop_ns)] };
        let mut report = outcome().report;
        report.results.clear();
        for (index, case) in cases.iter().enumerate() {
            let baseline = (&cases[0], rounds.case(0));
            let baselines = if index == 0 { vec![] } else { vec![baseline] };
            let totals = CaseTotals::of(&rounds.case(index));
            report.results.push(totals.result(case, None, &rounds.case(index), &baselines));
        }
        let far = if hop_ns > 100.0 { "far" } else { "near" };
        for text in [tables(&report, None), page::render(&report)] {
            assert!(text.contains(&format!("beside kernel TCP over veth: {words}")), "{text}");
            assert!(text.contains(&format!("ns: {far} processors")), "{text}");
        }
    }
    assert!(
        !tables(&outcome().report, None).contains("beside kernel TCP"),
        "blocking ends are another baseline"
    );
}

/// No cell is wrapped either: a row of the suite is one line.
#[test]
fn the_tables_of_the_suite_fit_a_hundred_columns() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("results/suite.json");
    let text = std::fs::read_to_string(file).expect("a report of the repository");
    let report: Report = serde_json::from_str(&text).expect("a report");
    let text = tables(&report, Some(100));
    let is_row = |line: &&str| line.starts_with(['│', '├', '┌', '└', '╞']);
    let widest = text.lines().filter(is_row).map(|row| row.chars().count()).max();
    assert!(widest <= Some(100), "{widest:?}: {text}");
    assert!(!text.lines().any(|line| line.starts_with("│  ")), "a wrapped cell: {text}");
}

#[test]
fn no_row_is_wider_than_the_terminal() {
    let text = tables(&outcome().report, Some(60));
    let is_row = |line: &&str| line.starts_with(['│', '├', '┌', '└', '╞']);
    let widths: Vec<_> = text.lines().filter(is_row).map(|row| row.chars().count()).collect();
    assert!(widths.len() > 3 && widths.iter().all(|width| *width <= 60), "{widths:?}");
}

#[test]
fn a_page_has_every_result_and_loads_nothing() {
    let page = html(&outcome());
    assert!(page.starts_with("<!DOCTYPE html>"));
    let widths =
        page.split("<i style=\"width:").skip(1).map(|rest| rest.split('%').next().expect("a number"));
    assert_eq!(widths.collect::<Vec<_>>(), ["0.7", "2.0", "100.0", "100.0", "30.0"]);
    for text in ["send-lat", "frame-lat", "tcp-lat (blocking)", "write-bw", "99.9", "full round trip"] {
        assert!(page.contains(text), "{text}");
    }
    for outside in ["http://", "https://", "<script", "<link", "@import"] {
        assert!(!page.contains(outside), "{outside}");
    }
}

#[test]
fn a_page_escapes_text_from_outside() {
    let mut report = outcome().report;
    report.machine.hostname = Some("<script>alert(1)</script>".into());
    report.results[0].notes.push("a < b & c".into());
    let page = page::render(&report);
    assert!(!page.contains("<script>"));
    assert!(page.contains("a &lt; b &amp; c"));
}

#[test]
fn a_short_run_draws_no_bar_and_counts_its_slices() {
    let bar = progress_bar(3, Duration::from_secs(1));
    bar.inc(1);
    assert!(bar.is_hidden());
    assert_eq!(bar.position(), 1);
}
