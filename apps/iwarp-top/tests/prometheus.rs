//! `--listen`: the program as Prometheus sees it, beside a process that counts: this one.
#![forbid(unsafe_code)]

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use ironwarp_stats::{Counter, PageDimensions, StatsPage};
use rustix::process::{Pid, Signal, kill_process};

const PROGRAM: &str = env!("CARGO_BIN_EXE_iwarp-top");

struct Exporter {
    child: Child,
    address: String,
}

impl Exporter {
    fn start(page: &Path) -> Self {
        let mut child = Command::new(PROGRAM)
            .args([page.to_str().expect("text"), "--listen", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("text");
        let address =
            line.trim().strip_prefix("listening at http://").and_then(|at| at.strip_suffix("/metrics"));
        Exporter { address: address.expect(&line).to_owned(), child }
    }

    fn connect(&self) -> TcpStream {
        TcpStream::connect(&self.address).expect("it listens")
    }

    /// Sends bytes; returns all that comes back until the server closes.
    fn exchange(&self, request: &[u8]) -> String {
        let mut stream = self.connect();
        stream.write_all(request).expect("sent");
        let mut response = Vec::new();
        // A server that closes with unread bytes resets: the data before the reset still counts.
        let _ = stream.read_to_end(&mut response);
        String::from_utf8(response).expect("text")
    }

    fn get(&self, path: &str) -> String {
        self.exchange(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes())
    }

    fn interrupt(mut self) -> Option<i32> {
        kill_process(Pid::from_child(&self.child), Signal::INT).expect("it runs");
        self.child.wait().expect("it ends").code()
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn every_counter_has_a_sample_a_core_and_those_of_ports_one_a_port() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("page");
    let page = StatsPage::create_with_ports(&path, PageDimensions { cores: 2, ports: 2 }).expect("a page");
    page.core(0).add(Counter::IwarpRxSends, 7);
    page.port(1, 1).add(Counter::PortRxFrames, 20);
    let exporter = Exporter::start(&path);
    let response = exporter.get("/metrics");
    let (head, body) = response.split_once("\r\n\r\n").expect("a response");
    assert!(head.starts_with("HTTP/1.1 200 ") && head.contains("text/plain; version=0.0.4"), "{head}");
    for line in [
        "ironwarp_up 1",
        concat!("ironwarp_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"} 1"),
        "ironwarp_cores 2",
        "ironwarp_ports 2",
        "# HELP ironwarp_port_rx_frames_total Frames received.",
        "# TYPE ironwarp_port_rx_frames_total counter",
        "ironwarp_port_rx_frames_total{core=\"1\",port=\"1\"} 20",
        "ironwarp_port_rx_frames_total{core=\"0\",port=\"1\"} 0",
        "ironwarp_iwarp_rx_sends_total{core=\"0\"} 7",
        "ironwarp_iwarp_rx_sends_total{core=\"1\"} 0",
    ] {
        assert!(body.lines().any(|each| each == line), "no {line} in {body}");
    }
    let types = body.lines().filter(|line| line.starts_with("# TYPE ")).count();
    let gauges = ["ironwarp_build_info", "ironwarp_up", "ironwarp_cores", "ironwarp_ports"];
    assert_eq!(types, Counter::ALL.len() + gauges.len(), "one for each counter, and gauges");
    assert!(gauges.iter().all(|name| body.contains(&format!("# TYPE {name} gauge\n{name}"))), "{body}");
    assert_valid(body);
    page.core(0).add(Counter::IwarpRxSends, 1);
    assert!(exporter.get("/metrics").contains("ironwarp_iwarp_rx_sends_total{core=\"0\"} 8\n"));
    assert_eq!(exporter.interrupt(), Some(0));
}

/// A service may be started before the process that counts, and outlive it.
#[test]
fn a_process_that_comes_and_goes_is_up_and_down() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("page");
    let exporter = Exporter::start(&path);
    let state = || exporter.get("/metrics").lines().last().expect("a line").to_owned();
    assert_eq!(state(), "ironwarp_up 0");
    std::fs::write(&path, "no page").expect("written");
    assert_eq!(state(), "ironwarp_up 0");
    std::fs::remove_file(&path).expect("removed");
    let page = StatsPage::create(&path, 1).expect("a page");
    assert!(exporter.get("/metrics").contains("\nironwarp_up 1\n"));
    drop(page);
    assert_eq!(state(), "ironwarp_up 0");
    let _again = StatsPage::create(&path, 3).expect("a page");
    assert!(exporter.get("/metrics").contains("ironwarp_port_rx_frames_total{core=\"2\",port=\"0\"} 0\n"));
}

#[test]
fn other_requests_have_the_status_that_http_names() {
    let folder = tempfile::tempdir().expect("a folder");
    let exporter = Exporter::start(&folder.path().join("page"));
    let many_headers = "A: b\r\n".repeat(100);
    for (request, status) in [
        ("GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(), "200"),
        ("HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(), "200"),
        ("GET /metrics HTTP/1.0\r\n\r\n".to_owned(), "200"),
        ("GET /other HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(), "404"),
        ("POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc".to_owned(), "405"),
        (format!("GET /metrics HTTP/1.1\r\n{many_headers}\r\n"), "431"),
        (format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(9000)), "4"),
        ("\u{1}\u{2}\r\n\r\n".to_owned(), "400"),
    ] {
        let response = exporter.exchange(request.as_bytes());
        let code = response.split(' ').nth(1).unwrap_or_default();
        assert!(code.starts_with(status), "{:.60}: {response:.80}", request);
    }
    assert_eq!(exporter.interrupt(), Some(0));
}

/// More silent connections than it serves at once, all of them still open: a scrape is answered,
/// and takes the place of the oldest of them. The others are not touched.
#[test]
fn silent_connections_do_not_delay_a_scrape() {
    let folder = tempfile::tempdir().expect("a folder");
    let exporter = Exporter::start(&folder.path().join("page"));
    let mut silent: Vec<_> = (0..16).map(|_| exporter.connect()).collect();
    // A server that made it wait would answer when the first of them times out, and that one would
    // be closed by then.
    assert!(exporter.get("/metrics").contains("ironwarp_up 0"));
    let mut last = silent.pop().expect("sixteen");
    last.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
    let mut response = String::new();
    last.read_to_string(&mut response).expect("text");
    assert!(response.contains("ironwarp_up 0"), "{response}");
    let mut oldest = silent.remove(0);
    assert_eq!(oldest.read(&mut [0; 1]).unwrap_or(0), 0, "the oldest is closed");
}

/// More silent connections than it serves at once: it ends at Ctrl-C without waiting for them.
#[test]
fn silent_connections_do_not_keep_it_from_ending() {
    let folder = tempfile::tempdir().expect("a folder");
    let exporter = Exporter::start(&folder.path().join("page"));
    let _silent: Vec<_> = (0..40).map(|_| exporter.connect()).collect();
    assert_eq!(exporter.interrupt(), Some(0));
}

#[test]
fn an_address_that_cannot_be_bound_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = taken.local_addr().expect("an address").to_string();
    for (arguments, code, words) in [
        (["x", "--listen", &taken].as_slice(), 1, taken.as_str()),
        (&["x", "--listen", "localhost"], 2, "--listen"),
        (&["x", "--listen", "127.0.0.1:1", "--json"], 2, "--json"),
    ] {
        let output = Command::new(PROGRAM).args(arguments).output().expect("the program starts");
        let said = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains(words) && said.trim_end().lines().count() == 1, "{arguments:?}: {said}");
    }
}

/// The grammar of the text format (version 0.0.4), by hand: each sample belongs to the family whose
/// HELP and TYPE precede it, no series and no family is there twice, buckets are cumulative and end
/// with `+Inf`, which is the count.
#[track_caller]
fn assert_valid(text: &str) {
    let (mut families, mut series) = (HashSet::new(), HashSet::new());
    let (mut family, mut kind) = (String::new(), String::new());
    let mut buckets: Option<(String, f64)> = None;
    assert!(text.ends_with('\n'));
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            family = help.split(' ').next().expect("a name").to_owned();
            assert!(families.insert(family.clone()), "twice: {line}");
            continue;
        }
        if let Some(typed) = line.strip_prefix("# TYPE ") {
            let (name, type_name) = typed.split_once(' ').expect("a type");
            assert_eq!(name, family, "{line}");
            kind = type_name.to_owned();
            assert!(["counter", "gauge", "histogram"].contains(&type_name), "{line}");
            continue;
        }
        let (name_and_labels, value) = line.rsplit_once(' ').expect("a value");
        let value: f64 = value.parse().unwrap_or_else(|_| panic!("{line}"));
        assert!(series.insert(name_and_labels.to_owned()), "twice: {line}");
        let (name, labels) = name_and_labels.split_once('{').unwrap_or((name_and_labels, "}"));
        assert!(name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'), "{line}");
        let unescaped = labels.replace(r"\\", "").replace(r#"\""#, "");
        assert!(labels.ends_with('}') && unescaped.matches('"').count().is_multiple_of(2), "{line}");
        match kind.as_str() {
            "histogram" => assert!(name.starts_with(&family), "{line}"),
            "counter" => assert!(name == family && name.ends_with("_total") && value >= 0.0, "{line}"),
            _ => assert_eq!(name, family, "{line}"),
        }
        if let Some((of, le)) = labels.split_once("le=\"") {
            let before = buckets.take().filter(|(one, _)| one == of).map_or(0.0, |(_, count)| count);
            assert!(value >= before, "not cumulative: {line}");
            buckets = Some((of.to_owned(), value)).filter(|_| !le.starts_with("+Inf"));
        }
    }
    assert!(buckets.is_none(), "no bucket +Inf");
}

/// Another user's page with names that are none, or twice, and a file of namespaces with counts
/// beyond 2^64 and a namespace twice: what is left is valid.
#[test]
fn a_hostile_page_gives_a_valid_text() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("page");
    let page = StatsPage::create(&path, 1).expect("a page");
    let file = std::fs::File::options().read(true).write(true).open(&path).expect("the page");
    let names = Counter::ALL.iter().map(|one| format!("{}\t{}\t{}\n", one.layer(), one.name(), one.help()));
    let names: String = names.collect();
    let mut bytes = std::fs::read(&path).expect("the page");
    let at = bytes.windows(names.len()).position(|part| part == names.as_bytes()).expect("the names");
    // Of equal length, so that the table stays as long as it says.
    let hostile = names.replacen("port_rx_frames", "port_tx_frames", 1).replacen(
        "net_drop_short",
        "net drop\"short",
        1,
    );
    bytes[at..at + names.len()].copy_from_slice(hostile.as_bytes());
    std::os::unix::fs::FileExt::write_all_at(&file, &bytes, 0).expect("written");
    let of = r#"{"nqn":"a","nsid":3,"reads":5,"writes":2,"read_bytes":2,"written_bytes":8,"media_errors":1,
        "latency_ns":[[1000,18446744073709551615],[2000,18446744073709551615]]}"#;
    let text =
        format!(r#"{{"schema":1,"pid":{},"controllers":1,"namespaces":[{of},{of}]}}"#, std::process::id());
    std::fs::write(folder.path().join("page.namespaces"), text).expect("written");
    let exporter = Exporter::start(&path);
    let response = exporter.get("/metrics");
    let (head, body) = response.split_once("\r\n\r\n").expect("a response");
    assert!(head.starts_with("HTTP/1.1 200 ") && body.contains("ironwarp_up 1\n"), "{response}");
    assert!(
        body.contains("ironwarp_nvmf_latency_seconds_count{nqn=\"a\",nsid=\"3\"} 18446744073709551615\n")
    );
    assert_valid(body);
    drop(page);
}

/// A process that exports NVMe namespaces: its counts and the histogram have labels, and a name
/// cannot break a line.
#[test]
fn namespaces_are_counters_and_a_histogram() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("page");
    let _page = StatsPage::create(&path, 1).expect("a writable folder");
    let text = format!(
        r#"{{"schema":1,"pid":{},"controllers":1,"counters":{{"waits_for_turn":9,"x y":1}},"namespaces":[{{"nqn":"nqn.a\"b\nc","nsid":3,"reads":5,"writes":2,
        "read_bytes":20480,"written_bytes":8192,"media_errors":1,"timeouts":4,"late_answers":3,"refused":6,
        "latency_ns":[[1000,4],[2000,3]]}}]}}"#,
        std::process::id()
    );
    std::fs::write(folder.path().join("page.namespaces"), text).expect("written");
    let exporter = Exporter::start(&path);
    let page = exporter.get("/metrics");
    let labels = r#"nqn="nqn.a\"b\nc",nsid="3""#;
    for line in [
        format!("ironwarp_nvmf_reads_total{{{labels}}} 5"),
        format!("ironwarp_nvmf_written_bytes_total{{{labels}}} 8192"),
        format!("ironwarp_nvmf_latency_seconds_bucket{{{labels},le=\"1e-06\"}} 4"),
        format!("ironwarp_nvmf_latency_seconds_bucket{{{labels},le=\"2e-06\"}} 7"),
        format!("ironwarp_nvmf_latency_seconds_bucket{{{labels},le=\"+Inf\"}} 7"),
        format!("ironwarp_nvmf_latency_seconds_count{{{labels}}} 7"),
        format!("ironwarp_nvmf_latency_seconds_sum{{{labels}}} 0.00001"),
        format!("ironwarp_nvmf_timeouts_total{{{labels}}} 4"),
        format!("ironwarp_nvmf_late_answers_total{{{labels}}} 3"),
        format!("ironwarp_nvmf_refused_total{{{labels}}} 6"),
        "ironwarp_nvmf_target_total{counter=\"waits_for_turn\"} 9".to_owned(),
        "ironwarp_nvmf_controllers 1".to_owned(),
    ] {
        assert!(page.lines().any(|one| one == line), "{line}\n{page}");
    }
    assert_valid(page.split_once("\r\n\r\n").expect("a response").1);
    assert_eq!(exporter.interrupt(), Some(0));
}
