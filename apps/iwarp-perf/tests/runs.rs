//! Short runs over Linux sockets and over memory, and the files that a run writes.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::{NamedTempFile, TempDir};

const PROGRAM: &str = env!("CARGO_BIN_EXE_iwarp-perf");

fn run(line: &str) -> Output {
    Command::new(PROGRAM).args(line.split_whitespace()).output().expect("the program starts")
}

/// Runs the program, which must succeed, and returns its JSON.
fn measured(line: &str) -> Value {
    let json = NamedTempFile::new().expect("a writable folder");
    let output = run(&format!("{line} --json {}", json.path().display()));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{line}: {stderr}");
    serde_json::from_reader(json).expect("JSON")
}

/// Runs one case over memory, and returns its result. A few messages warm up what is not measured.
fn over_memory(line: &str) -> Value {
    let warmup = if line.contains("--warmup") { "" } else { " --warmup 5" };
    measured(&format!("{line}{warmup} --pair memory"))["results"][0].take()
}

/// Returns whether a result has the iterations of `messages` in the rounds that were not dropped.
fn has_iterations(result: &Value, messages: u64) -> bool {
    result["iterations"].as_u64() >= Some(in_counted_rounds(result, messages))
}

/// Returns the share of `messages` in the rounds that were not dropped.
fn in_counted_rounds(result: &Value, messages: u64) -> u64 {
    let rounds = |key: &str| result[key].as_u64().expect("a number");
    messages * rounds("rounds") / (rounds("rounds") + rounds("rounds_dropped"))
}

#[test]
fn a_tcp_latency_has_the_fields_of_the_json_schema() {
    let json = measured("tcp-lat --path lo --iterations 100 --warmup 5 --validate");
    let result = &json["results"][0];
    assert_eq!(result["test"], "tcp-lat");
    assert_eq!((&result["path"], &result["wait"]), (&"lo".into(), &"spin".into()));
    assert_eq!(result["errors"], 0);
    assert!(result["iterations"].as_u64() >= Some(1));
    assert!(result["rtt_ns"]["p999"].as_u64() >= result["rtt_ns"]["p50"].as_u64());
    assert_eq!(result["gbit_per_s"], Value::Null);
    assert_eq!(result["device"], Value::Null);
    assert_eq!(json["schema"], 1);
    assert!(json["machine"]["kernel"].is_string() && json["build"]["version"].is_string());
}

#[test]
fn a_tcp_bandwidth_is_counted_at_the_receiver() {
    for wait in ["spin", "block"] {
        let line = format!("tcp-bw --path lo --size 64k --iterations 100 --validate --wait {wait}");
        let result = measured(&line)["results"][0].take();
        assert!(result["gbit_per_s"].as_f64() > Some(0.0));
        assert_eq!((&result["errors"], &result["wait"]), (&0.into(), &wait.into()));
        assert!(result["verified_bytes"].as_u64() >= Some(in_counted_rounds(&result, 100) * 65_536));
    }
}

#[test]
fn perftest_columns_hold_numbers() {
    let output = run("tcp-lat --path lo --iterations 100 --format perftest");
    let text = String::from_utf8(output.stdout).expect("text");
    let header = text.lines().position(|line| line.starts_with(" #bytes #iterations")).expect("a header");
    let row = text.lines().nth(header + 1).expect("a row");
    let fields: Vec<f64> = row.split_whitespace().map(|field| field.parse().expect("a number")).collect();
    assert_eq!((fields.len(), fields[0]), (9, 64.0), "{row}");
    assert!(fields[2] <= fields[4] && fields[4] <= fields[3], "minimum, typical, maximum: {row}");
    assert!(!text.contains('│'));
}

#[test]
fn each_interval_has_a_line_before_the_results() {
    let output = run("tcp-lat --path lo --duration 0.3 --interval 0.1");
    let text = String::from_utf8(output.stdout).expect("text");
    let (intervals, table) = text.split_once('┌').expect("a table");
    assert!(intervals.starts_with("tcp-lat 64 B, each interval:\n"), "{text}");
    let rows =
        intervals.lines().filter(|line| line.contains('–') && line.trim().starts_with(char::is_numeric));
    assert_eq!(rows.count(), 3, "{text}");
    assert!(table.contains("tcp-lat"));
}

#[test]
fn a_run_without_end_succeeds_at_ctrl_c_and_prints_the_whole() {
    let mut child = Command::new(PROGRAM)
        .args("tcp-lat --path lo --run-infinitely --interval 0.1".split(' '))
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut output = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    // A title, a header and two intervals.
    (0..4).for_each(|_| _ = output.read_line(&mut line).expect("text"));
    kill(pid(&child), Signal::SIGINT).expect("it runs");
    let mut rest = String::new();
    output.read_to_string(&mut rest).expect("text");
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
    assert!(line.contains("0.0–0.1") && rest.contains("│ tcp-lat"), "{line}{rest}");
}

#[test]
fn tcp_runs_over_veth_or_with_a_note_over_loopback() {
    let result = measured("tcp-lat --iterations 50")["results"][0].take();
    // A busy machine adds a note of its own.
    let notes = result["notes"].as_array().expect("a list").iter().filter_map(Value::as_str);
    let of_path = notes.filter(|note| note.contains("no veth pair")).count();
    assert_eq!(
        (result["path"].as_str(), of_path),
        if of_path == 0 { (Some("veth"), 0) } else { (Some("lo"), 1) }
    );
}

#[test]
fn every_rdma_test_checks_every_byte() {
    for (test, bytes) in [
        ("send-lat", 4096),
        ("write-lat", 4096),
        ("read-lat", 4096),
        ("send-bw", 10_000),
        ("write-bw", 10_000),
        ("read-bw", 10_000),
        ("write-imm-bw", 10_000),
    ] {
        let result = over_memory(&format!("{test} --size {bytes} --iterations 60 --validate"));
        assert_eq!((&result["transport"], &result["path"]), (&"ironwarp".into(), &"memory".into()), "{test}");
        assert_eq!(result["errors"], 0, "{test}");
        let bytes = in_counted_rounds(&result, 60) * bytes;
        assert!(result["verified_bytes"].as_u64() >= Some(bytes), "{test}: {result}");
        assert_eq!((&result["crc"], &result["markers"]), (&true.into(), &false.into()));
    }
}

#[test]
fn tests_with_immediate_data_run_without_errors() {
    for (test, options, bytes) in [
        ("imm-lat", "--qps 2", 8),
        ("write-imm-lat", "--size 3000 --validate", 3000),
        ("imm-lat", "--events", 8),
        ("write-imm-lat", "--events --qps 2", 64),
    ] {
        let line = format!("{test} --iterations 60 {options}");
        let result = over_memory(&line);
        assert_eq!((&result["errors"], &result["bytes"]), (&0.into(), &bytes.into()), "{line}");
        assert!(result["rtt_ns"]["p50"].is_u64(), "{line}");
    }
}

/// The sum of the server's words equals the operations of the client, with any number of queue
/// pairs.
#[test]
fn the_sum_of_the_words_of_an_atomic_test_is_exact() {
    for (test, options, words) in [
        ("atomic-lat", "--warmup 5", 1),
        ("atomic-lat", "--operation cmp-swap --qps 3", 1),
        ("atomic-bw", "--qps 4 --depth 8 --words 16", 16),
        ("atomic-bw", "--qps 3 --depth 4 --operation cmp-swap", 1),
        ("atomic-bw", "--qps 4 --depth 8 --words 3 --cores 2", 3),
        ("atomic-bw", "--qps 4 --depth 4 --cores 2 --operation cmp-swap --events", 1),
        ("atomic-bw", "--qps 4 --depth 8 --words 3 --cores 2 --atomics locked", 3),
    ] {
        let line = format!("{test} --iterations 300 {options}");
        let result = over_memory(&line);
        assert_eq!((&result["errors"], &result["words"]), (&0.into(), &words.into()), "{line}");
        let operation = if options.contains("cmp-swap") { "cmp-swap" } else { "fetch-add" };
        assert_eq!((&result["operation"], &result["bytes"]), (&operation.into(), &8.into()), "{line}");
        assert!(has_iterations(&result, 300), "{line}: {result}");
        let atomics = if options.contains("locked") { "locked" } else { "owner" };
        assert_eq!(result["atomics"], atomics, "{line}");
        assert_eq!(result["rtt_ns"].is_object(), test == "atomic-lat", "{line}");
    }
}

/// Each core runs a client and a server; each test runs on one core and on two.
#[test]
fn scaling_compares_two_cores_with_one_and_with_raw_frames() {
    let json = measured("scaling --pair memory --cores 2 --iterations 500");
    let results = json["results"].as_array().expect("a list");
    assert_eq!(results.len(), 10);
    for pair in results.chunks(2) {
        let (one, all) = (&pair[0], &pair[1]);
        assert_eq!((&one["cores"], &all["cores"], &one["test"]), (&1.into(), &2.into(), &all["test"]));
        assert_eq!((&one["errors"], &all["errors"]), (&0.into(), &0.into()), "{all}");
        let note = all["notes"][0].as_str().expect("a note");
        assert!(note.contains("2 cores carry"), "{note}");
        assert_eq!(note.contains("raw frames scale"), all["test"] != "frame-bw", "{note}");
        assert!(all["against"][0]["ratio_gbit"]["median"].as_f64() > Some(0.0), "{all}");
    }
}

/// Each end of a core has a thread of its own, over memif and over memory. The first session over
/// memif has two processes. More cores than processors run only when asked.
#[test]
fn cores_measures_one_core_a_side_and_more() {
    let json = measured("cores --quick --duration 0.12 --cores 2 --oversubscribe --pair memif-native");
    let results = json["results"].as_array().expect("a list");
    assert_eq!((results.len(), &json["skipped"]), (3 * 6, &Value::Array(Vec::new())));
    for (index, result) in results.iter().enumerate() {
        let (session, cores) = (index / 6, if index < 12 { 1 } else { 2 });
        assert_eq!((&result["errors"], &result["cores"]), (&0.into(), &cores.into()), "{result}");
        assert_eq!(result["messages_by_qp"].as_array().map(Vec::len), Some(4 * cores), "{result}");
        let scale = &result["scale"];
        assert_eq!(scale.is_null(), session == 0, "{result}");
        if session > 0 {
            assert_eq!(scale["processors"].as_array().map(Vec::len), Some(cores), "{scale}");
            let fairness = scale["fairness"].as_f64().expect("several queue pairs");
            assert!((0.0..=1.0).contains(&fairness), "{scale}");
            assert_eq!(scale["to_one_core"] == 1.0, session == 1, "{scale}");
            assert!(scale["steering_drops"].is_u64() && scale["oversubscribed"].is_boolean(), "{scale}");
        }
    }
}

/// Every sum is exact. Operations are forwarded only if another core owns the word.
#[test]
fn atomics_compares_owner_cores_with_locked_instructions() {
    let json = measured("atomics --pair memory --cores 2 --iterations 100 --warmup 5");
    let results = json["results"].as_array().expect("a list");
    assert_eq!(results.len(), 3 + 6 * 2);
    let has_note = |result: &Value, what: &str| {
        result["notes"]
            .as_array()
            .expect("a list")
            .iter()
            .any(|note| note.as_str().expect("text").contains(what))
    };
    for result in results {
        assert_eq!(result["errors"], 0, "{result}");
        assert!(has_note(result, "the sum is exactly that"), "{result}");
        assert_eq!(has_note(result, "forwarded"), result["atomics"] == "owner", "{result}");
        let share = match result["owner"].as_str() {
            _ if result["atomics"] == "locked" => continue,
            Some("local") => "0 % of them",
            Some("remote") => "100 % of them",
            _ => " % of them were forwarded",
        };
        assert!(has_note(result, share), "{share}: {result}");
    }
    let [locked, local, remote] = &results[..3] else { panic!("three round trips") };
    let against = |result: &Value| result["against"][0]["baseline"].clone();
    assert_eq!(
        (&locked["atomics"], against(local), against(remote)),
        (&"locked".into(), "atomic-lat-locked".into(), "atomic-lat".into())
    );
    assert!(local["rtt_ns"]["p50"].as_u64() > Some(0), "{local}");
    assert!(
        has_note(remote, "more than a local word") && !has_note(local, "more than a local word"),
        "{remote}"
    );
    for pair in results[3..].chunks(2) {
        let of = |key: &str| (pair[0][key].clone(), pair[1][key].clone());
        assert_eq!(of("atomics"), ("locked".into(), "owner".into()));
        assert!([of("words"), of("operation"), of("owner")].iter().all(|(locked, owner)| locked == owner));
        assert_eq!(against(&pair[1]), "atomic-bw-locked");
        assert!(pair[1]["against"][0]["ratio_gbit"]["median"].as_f64() > Some(0.0), "{}", pair[1]);
    }
}

/// The sums are exact if the receiving core owns the word, and if another core does.
#[test]
fn the_owner_of_a_word_is_local_or_remote() {
    for (test, owner) in [("atomic-lat", "local"), ("atomic-lat", "remote"), ("atomic-bw", "remote")] {
        let result = over_memory(&format!("{test} --cores 2 --qps 4 --owner {owner} --iterations 200"));
        assert_eq!((&result["errors"], &result["owner"]), (&0.into(), &owner.into()), "{test}");
    }
}

/// Every connection is established, carries its message if there is one, and is closed in order by
/// both ends.
#[test]
fn connections_are_set_up_and_closed() {
    for options in [
        "--depth 1 --warmup 0",
        "",
        "--size 64 --inline 64 --no-crc",
        "--size 5000 --depth 40",
        "--depth 256",
        "--rate 3000 --size 1",
        "--cores 2",
    ] {
        let line = format!("conn-rate --iterations 600 {options}");
        let result = over_memory(&line);
        assert_eq!((&result["errors"], &result["qps"]), (&0.into(), &Value::Null), "{line}");
        assert!(has_iterations(&result, 600), "{line}: {result}");
        assert_eq!((&result["rtt_ns"], &result["gbit_per_s"]), (&Value::Null, &Value::Null), "{line}");
        assert!(result["setup_ns"]["p999"].as_u64() >= result["setup_ns"]["p50"].as_u64(), "{line}");
        let rates = ["setups_per_s", "setups_per_s_per_core"].map(|key| result[key].as_f64().unwrap_or(0.0));
        let cores = if options.contains("cores") { 2.0 } else { 1.0 };
        assert!(rates[0] > 0.0 && (rates[0] / rates[1] - cores).abs() < 1e-6, "{line}: {rates:?}");
        assert_eq!(result["messages_per_s"].is_f64(), options.contains("size"), "{line}");
        assert_eq!(result["crc"], !options.contains("no-crc"), "{line}");
    }
}

#[test]
fn several_cores_share_the_queue_pairs_and_count_their_polls() {
    for test in ["send-lat", "write-bw", "read-bw", "send-bw"] {
        let result = over_memory(&format!("{test} --cores 2 --qps 4 --size 5000 --iterations 80 --validate"));
        assert_eq!((&result["errors"], &result["cores"]), (&0.into(), &2.into()), "{test}");
        let polls = result["polls"].as_array().expect("a list");
        assert_eq!(polls.len(), 2, "{test}");
        for core in polls {
            let (all, idle) = (core["polls"].as_u64(), core["idle"].as_u64());
            assert!(idle < all, "{test}: every core had work: {polls:?}");
        }
    }
}

#[test]
fn bandwidth_tests_run_with_every_option() {
    for options in [
        "--size 64k",
        "--size 5000 --qps 3 --depth 4",
        "--size 5000 --depth 16 --post-list 4 --signal-every 8",
        "--size 64 --inline 64",
        "--size 5000 --bidirectional",
        "--size 5000 --qps 2 --depth 8 --validate --signal-every 4",
        "--rate 2000 --size 100",
    ] {
        for test in ["send-bw", "write-bw", "read-bw"] {
            if test == "read-bw" && options.contains("inline") {
                continue;
            }
            let line = format!("{test} --iterations 200 {options}");
            let result = over_memory(&line);
            assert_eq!(result["errors"], 0, "{line}");
            assert!(has_iterations(&result, 200), "{line}: {result}");
        }
    }
}

/// More queue pairs than connect at a time, and more than the control queue of a core holds.
#[test]
fn a_thousand_queue_pairs_connect() {
    for test in ["send-bw --size 64 --depth 1", "write-lat", "atomic-bw --depth 1"] {
        let result = over_memory(&format!("{test} --qps 1024 --iterations 3000 --warmup 0"));
        assert_eq!((&result["errors"], &result["qps"]), (&0.into(), &1024.into()), "{test}");
    }
}

#[test]
fn every_rdma_test_runs_with_events() {
    for test in ["send-lat", "write-lat", "read-lat", "send-bw", "write-bw", "read-bw"] {
        for options in ["--size 100 --validate", "--qps 3 --size 5000"] {
            let line = format!("{test} --events --iterations 60 --warmup 5 {options}");
            let result = over_memory(&line);
            assert_eq!((&result["errors"], &result["wait"]), (&0.into(), &"block".into()), "{line}");
            assert!(has_iterations(&result, 60), "{line}: {result}");
            assert!(wake_count(&result) > 0, "{line}: {result}");
        }
    }
}

/// Returns how often an event woke the client.
fn wake_count(result: &Value) -> u64 {
    let notes = result["notes"].as_array().expect("a list").iter().filter_map(Value::as_str);
    let woken =
        notes.filter_map(|note| note.split_once("woken by an event ")).map(|(_, remainder)| remainder);
    woken.filter_map(|remainder| remainder.split(' ').next()?.parse::<u64>().ok()).sum()
}

/// RFC 5044 s4.3, s4.4: the wire and the report have the framing of the options.
#[test]
fn the_report_has_the_markers_and_crcs_of_the_wire() {
    for (options, markers, crc) in [
        ("", false, true),
        ("--markers", true, true),
        ("--no-crc", false, false),
        ("--markers --no-crc", true, false),
    ] {
        let pcap = NamedTempFile::new().expect("a writable folder");
        let base = "write-bw --size 3000 --iterations 40 --validate";
        let result = over_memory(&format!("{base} {options} --pcap {}", pcap.path().display()));
        assert_eq!((&result["markers"], &result["crc"]), (&markers.into(), &crc.into()), "{options:?}");
        assert_eq!(result["errors"], 0, "{options:?}");
        let segments = segments(&std::fs::read(pcap.path()).expect("a capture"));
        for key in [REQUEST, REPLY] {
            assert_eq!(startup_flags(&segments, key), (markers, crc), "{options:?}");
        }
        // Start-up frames may have been retransmitted.
        let mut fpdus = segments.iter().filter(|segment| !segment.starts_with(b"MPA ID Re"));
        assert_eq!(framing_of_fpdu(fpdus.next().expect("an FPDU")), (markers, crc), "{options:?}");
    }
}

/// Returns the payloads of the TCP segments over IPv4 in a capture.
fn segments(capture: &[u8]) -> Vec<Vec<u8>> {
    const PACKET: u32 = 6;
    let word =
        |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    let (mut rest, mut segments) = (capture, Vec::new());
    while rest.len() >= 12 {
        let (block, remainder) = rest.split_at(word(rest, 4) as usize);
        rest = remainder;
        let ipv4 = |frame: &[u8]| frame[12..14] == [8, 0] && frame[23] == 6;
        if word(block, 0) != PACKET || !ipv4(&block[28..]) {
            continue;
        }
        let packet = &block[28 + 14..];
        let whole = usize::from(u16::from_be_bytes([packet[2], packet[3]]));
        let header = usize::from(packet[0] & 0xf) * 4;
        let payload = &packet[header + usize::from(packet[header + 12] >> 4) * 4..whole];
        segments.extend((!payload.is_empty()).then(|| payload.to_vec()));
    }
    segments
}

const REQUEST: &[u8; 16] = b"MPA ID Req Frame";
const REPLY: &[u8; 16] = b"MPA ID Rep Frame";

/// RFC 5044 s7.1.1: returns M and C of the start-up frame with this key.
fn startup_flags(segments: &[Vec<u8>], key: &[u8; 16]) -> (bool, bool) {
    let frame = segments.iter().find(|segment| segment.starts_with(key)).expect("a start-up frame");
    (frame[16] & 0x80 != 0, frame[16] & 0x40 != 0)
}

/// Returns whether a marker precedes the first FPDU of a stream, an empty RDMA Write, and whether
/// it has a CRC.
fn framing_of_fpdu(segment: &[u8]) -> (bool, bool) {
    let marker = segment.starts_with(&[0; 4]);
    let fpdu = &segment[if marker { 4 } else { 0 }..];
    assert_eq!(fpdu[..4], [0x00, 0x0e, 0xc1, 0x40]);
    (marker, fpdu[16..20] != [0; 4])
}

#[test]
fn raw_frames_run_over_the_same_device() {
    let result = over_memory("frame-lat --iterations 50");
    assert_eq!((&result["transport"], &result["errors"]), (&"frames".into(), &0.into()));
}

#[test]
fn smoltcp_runs_over_the_same_device_and_checks_every_byte() {
    for (test, bytes) in [("smoltcp-lat", 3000), ("smoltcp-bw", 20_000)] {
        let result = over_memory(&format!("{test} --size {bytes} --iterations 60 --validate"));
        assert_eq!((&result["transport"], &result["errors"]), (&"smoltcp".into(), &0.into()), "{test}");
        assert!(
            result["verified_bytes"].as_u64() >= Some(in_counted_rounds(&result, 60) * bytes),
            "{result}"
        );
        assert_eq!((&result["device"], &result["qps"]), (&"memory".into(), &Value::Null), "{test}");
        assert_eq!(result["rtt_ns"].is_object(), test == "smoltcp-lat");
        assert_eq!(result["gbit_per_s"].is_f64(), test == "smoltcp-bw");
    }
}

#[test]
fn a_run_writes_a_log_a_page_and_a_capture() {
    let folder = TempDir::new().expect("a writable folder");
    let [hdr, html, pcap] = ["out.hlog", "report", "client.pcapng"].map(|name| folder.path().join(name));
    let files = format!("--hdr {} --html {} --pcap {}", hdr.display(), html.display(), pcap.display());
    let output = run(&format!("send-lat --pair memory --iterations 50 {files}"));
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        text.contains("send-lat") && text.contains("full round trip") && text.contains("index.html"),
        "{text}"
    );
    assert!(std::fs::read_to_string(&hdr).expect("a log").contains("Tag=send-lat_64B_memory"));
    assert!(std::fs::read_to_string(html.join("index.html")).expect("a page").contains("class=\"bar\""));
    let capture = std::fs::read(&pcap).expect("a capture");
    assert_eq!(
        capture.get(..4),
        Some([0x0a, 0x0d, 0x0d, 0x0a].as_slice()),
        "pcapng begins with its section header"
    );
}

/// Starts a long run, and returns its standard error, read up to a line that contains `until`.
fn start(line: &str, until: &str) -> (Child, BufReader<std::process::ChildStderr>, String) {
    let mut child = Command::new(PROGRAM)
        .args(line.split_whitespace())
        .args(["--duration", "600", "--log", "info"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut log = BufReader::new(child.stderr.take().expect("piped"));
    let mut seen = String::new();
    while !seen.contains(until) {
        let read = log.read_line(&mut seen).expect("text");
        assert!(read > 0, "the run ended before {until:?}: {seen}");
    }
    (child, log, seen)
}

fn server_pid(log: &str) -> Pid {
    let (_, rest) = log.split_once("the server is process ").expect("the client logs it");
    Pid::from_raw(rest.lines().next().and_then(|pid| pid.trim().parse().ok()).expect("a number"))
}

fn pid(child: &Child) -> Pid {
    Pid::from_raw(child.id() as i32)
}

#[test]
fn ctrl_c_prints_the_results_so_far() {
    let (mut child, mut log, _) = start("tcp-lat --path lo", "a slice of");
    kill(pid(&child), Signal::SIGINT).expect("it runs");
    let mut stderr = String::new();
    log.read_to_string(&mut stderr).expect("text");
    let mut table = String::new();
    child.stdout.take().expect("piped").read_to_string(&mut table).expect("text");
    assert_eq!(child.wait().expect("it ends").code(), Some(1));
    assert!(table.contains("tcp-lat"), "{table}");
    assert!(stderr.contains("interrupted"), "{stderr}");
}

#[test]
fn a_killed_server_ends_the_run_with_an_error() {
    let (mut child, mut log, seen) = start("tcp-lat --path lo", "a slice of");
    kill(server_pid(&seen), Signal::SIGKILL).expect("it runs");
    let mut stderr = String::new();
    log.read_to_string(&mut stderr).expect("text");
    assert_eq!(child.wait().expect("it ends").code(), Some(1));
    assert!(stderr.contains("server") || stderr.contains("Linux sockets"), "{stderr}");
}

#[test]
fn client_and_server_end_with_a_killed_parent() {
    let (mut child, mut log, _) = start("tcp-lat --path lo", "a slice of");
    kill(pid(&child), Signal::SIGKILL).expect("it runs");
    child.wait().expect("it ends");
    // Client and server have the other end of this pipe, which closes with the last of them.
    log.read_to_string(&mut String::new()).expect("text");
}
