//! The program beside a process that counts: this one.
#![forbid(unsafe_code)]

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use ironwarp_stats::{ConnectionRow, ConnectionState, Counter, PageDimensions, StatsPage};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_iwarp-top");

/// A page of two cores, and its path.
fn page(name: &str) -> (StatsPage, PathBuf) {
    let path = std::env::temp_dir().join(format!("iwarp-top-{name}-{}", std::process::id()));
    (StatsPage::create(&path, 2).expect("a writable folder"), path)
}

fn run(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).args(arguments).output().expect("the program starts")
}

struct Running(Child, BufReader<ChildStdout>);

impl Running {
    fn start(arguments: &[&str]) -> Self {
        let mut command = Command::new(PROGRAM);
        let mut child = command
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let out = BufReader::new(child.stdout.take().expect("piped"));
        Running(child, out)
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.1.read_line(&mut line).expect("text");
        line
    }

    /// Its exit code and its error output.
    fn ended(mut self) -> (Option<i32>, String) {
        let mut said = String::new();
        self.0.stderr.take().expect("piped").read_to_string(&mut said).expect("text");
        (self.0.wait().expect("it ends").code(), said)
    }
}

#[test]
fn one_look_as_json_has_every_counter_of_every_core_and_no_rate() {
    let (page, path) = page("once");
    page.core(0).add(Counter::IwarpRxSends, 7);
    page.core(1).add(Counter::NetDropShort, 3);
    let output = run(&[path.to_str().expect("text"), "--once", "--json"]);
    assert_eq!(output.status.code(), Some(0));
    let look: Value = serde_json::from_slice(&output.stdout).expect("one line of JSON");
    assert_eq!((&look["schema"], &look["pid"]), (&1.into(), &std::process::id().into()));
    assert_eq!(look["seconds"], Value::Null);
    let cores = look["cores"].as_array().expect("a list");
    assert_eq!(cores.len(), 2);
    assert_eq!(cores[0]["counters"].as_object().expect("by name").len(), Counter::ALL.len());
    assert_eq!(cores[0]["counters"]["iwarp_rx_sends"], 7);
    assert_eq!(cores[1]["counters"]["net_drop_short"], 3);
    assert_eq!(cores[1]["per_second"], Value::Null);
}

#[test]
fn from_the_second_look_on_there_are_rates() {
    let (page, path) = page("rates");
    let mut top =
        Running::start(&[path.to_str().expect("text"), "--json", "--interval", "0.05", "--count", "2"]);
    let first: Value = serde_json::from_str(&top.line()).expect("JSON");
    assert_eq!(first["cores"][0]["counters"]["port_rx_frames"], 0);
    page.core(0).add(Counter::PortRxFrames, 1000);
    let second: Value = serde_json::from_str(&top.line()).expect("JSON");
    let seconds = second["seconds"].as_f64().expect("a time");
    let rate = second["cores"][0]["per_second"]["port_rx_frames"].as_f64().expect("a rate");
    assert!((rate * seconds - 1000.0).abs() < 1.0, "{rate} a second in {seconds} s");
    assert_eq!(top.ended(), (Some(0), String::new()));
}

#[test]
fn a_screen_has_a_column_a_core_and_losses_by_reason() {
    let (page, path) = page("screen");
    page.core(1).add(Counter::TcpDropPaws, 42);
    let output = run(&[path.to_str().expect("text"), "--once"]);
    let text = String::from_utf8(output.stdout).expect("text");
    let row = |title: &str| text.lines().find(|line| line.starts_with(title)).expect("a row").to_owned();
    assert_eq!(row("core ").split_whitespace().collect::<Vec<_>>(), ["core", "0", "1"]);
    assert!(text.contains("42  tcp_drop_paws: Segments older"), "{text}");
    assert!(!text.contains("tcp_drop_bad_header") && !text.contains('\x1b'), "{text}");
}

/// Further ports are not cores: a core shows the sum of all of them, and each port has a column of
/// its own.
#[test]
fn several_ports_are_told_apart() {
    let path = std::env::temp_dir().join(format!("iwarp-top-ports-{}", std::process::id()));
    let page = StatsPage::create_with_ports(&path, PageDimensions { cores: 2, ports: 3 })
        .expect("a writable folder");
    page.core(0).add(Counter::PortRxFrames, 1);
    page.port(1, 0).add(Counter::PortRxFrames, 20);
    page.port(2, 1).add(Counter::PortRxFrames, 300);
    page.port(2, 0).add(Counter::NetDropShort, 7);
    page.core(1).add(Counter::TcpDropPaws, 5);
    let path = path.to_str().expect("text");
    let look: Value = serde_json::from_slice(&run(&[path, "--once", "--json"]).stdout).expect("JSON");
    let of = |list: &str, name: &str| -> Vec<Value> {
        look[list].as_array().expect("a list").iter().map(|one| one["counters"][name].clone()).collect()
    };
    assert_eq!(of("cores", "port_rx_frames"), [21, 300]);
    assert_eq!(of("ports", "port_rx_frames"), [1, 20, 300]);
    assert_eq!(of("ports", "net_drop_short"), [0, 0, 7]);
    assert_eq!(
        (of("ports", "tcp_drop_paws"), of("cores", "tcp_drop_paws")),
        (vec![Value::Null; 3], vec![0.into(), 5.into()])
    );
    assert_eq!((&look["ports"][2]["port"], &look["ports"][2]["per_second"]), (&2.into(), &Value::Null));

    let text = String::from_utf8(run(&[path, "--once"]).stdout).expect("text");
    let (cores, ports) = text.split_once("\nport ").expect("a table of ports");
    assert!(cores.contains("2 cores") && cores.contains("5  tcp_drop_paws: "), "{text}");
    assert_eq!(ports.lines().next().map(|line| line.split_whitespace().collect()), Some(vec!["0", "1", "2"]));
    assert!(ports.contains("7  net_drop_short: ") && !ports.contains("tcp_drop_paws"), "{text}");
}

/// The connections of a page: in the text as a table, in the JSON with rates from the second
/// snapshot on.
#[test]
fn connections_are_shown_with_their_peers() {
    let (page, path) = page("connections");
    let row = ConnectionRow {
        local: "10.0.0.1:4791".parse().expect("an address"),
        remote: "10.0.0.2:40001".parse().expect("an address"),
        protocol: 132,
        state: ConnectionState::Established,
        queue_pair: Some(7),
        tx_bytes: 3_000_000,
        rx_bytes: 5,
        retransmits: 9,
        srtt_ns: 12_345,
        rto_ns: 1_000_000,
        cwnd_bytes: 65_536,
        flight_bytes: 0,
        paths: 2,
        paths_up: 1,
    };
    page.connections(1).expect("rows").write(0, Some(&row));
    let path = path.to_str().expect("text");
    let text = String::from_utf8(run(&[path, "--once"]).stdout).expect("text");
    let line = text.lines().find(|line| line.starts_with("10.0.0.2:40001")).expect(&text);
    assert_eq!(
        line.split_whitespace().take(5).collect::<Vec<_>>(),
        ["10.0.0.2:40001", "ESTABLISHED", "1", "7", "9"]
    );
    let look: Value = serde_json::from_slice(&run(&[path, "--once", "--json"]).stdout).expect("JSON");
    let one = &look["connections"][0];
    assert_eq!(
        (&one["core"], &one["remote"], &one["tx_bytes"]),
        (&1.into(), &"10.0.0.2:40001".into(), &3_000_000.into())
    );
    assert_eq!((&one["srtt_ns"], &one["tx_bytes_per_s"]), (&12_345.into(), &Value::Null));
}

/// Another user's page: what would steer a terminal is escaped in the text, and in the JSON.
#[test]
fn names_of_a_hostile_page_reach_no_terminal() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("page");
    let _page = StatsPage::create(&path, 1).expect("a writable folder");
    let text = format!(
        r#"{{"schema":1,"pid":{},"controllers":2,"namespaces":[{{"nqn":"nqn.\u001b]0;x\u0007\u009b2J\u202e","nsid":3,"reads":5,
        "writes":2,"read_bytes":20480,"written_bytes":8192,"media_errors":1,"latency_ns":[]}}]}}"#,
        std::process::id()
    );
    std::fs::write(folder.path().join("page.namespaces"), text).expect("written");
    let path = path.to_str().expect("text");
    for arguments in [&[path, "--once"][..], &[path, "--once", "--json"]] {
        let said = String::from_utf8(run(arguments).stdout).expect("text");
        let steers = |one: char| (one.is_control() && one != '\n') || one == '\u{202e}';
        assert!(said.contains("nqn.") && !said.contains(steers), "{said:?}");
    }
}

#[test]
fn ctrl_c_ends_it_well() {
    let (_page, path) = page("interrupt");
    let mut top = Running::start(&[path.to_str().expect("text"), "--json", "--interval", "3600"]);
    assert!(top.line().contains("schema"));
    kill_process(Pid::from_child(&top.0), Signal::INT).expect("it runs");
    assert_eq!(top.ended(), (Some(0), String::new()));
}

/// The process has ended: its last values are shown, and that is no failure.
#[test]
fn it_ends_with_the_process_that_counts() {
    let (page, path) = page("ended");
    let mut top = Running::start(&[path.to_str().expect("text"), "--json", "--interval", "0.05"]);
    assert!(top.line().contains("schema"));
    page.core(0).add(Counter::TcpTimeouts, 5);
    drop(page);
    let mut last = String::new();
    loop {
        match top.line() {
            line if line.is_empty() => break,
            line => last = line,
        }
    }
    let last: Value = serde_json::from_str(&last).expect("JSON");
    assert_eq!(last["cores"][0]["counters"]["tcp_timeouts"], 5);
    let (code, said) = top.ended();
    assert!(code == Some(0) && said.contains("has ended"), "{code:?}: {said}");
}

#[test]
fn what_is_no_page_is_named_and_bad_arguments_are_refused_in_one_line() {
    for (arguments, code, words) in [
        (&["/no/such/page"][..], 1, "/no/such/page: No such file"),
        (&[PROGRAM], 1, "not a page of counters"),
        (&["/dev/null"], 1, "not a page of counters"),
        (&[], 2, "PAGE"),
        (&["x", "--interval", "0"], 2, "0.01 to 3600 seconds"),
        (&["x", "--once", "--count", "2"], 2, "--once"),
    ] {
        let output = run(arguments);
        let said = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains(words) && said.trim_end().lines().count() == 1, "{arguments:?}: {said}");
    }
    let help = String::from_utf8(run(&["--help"]).stdout).expect("text");
    assert!(help.contains("Examples:") && help.contains("stats"), "{help}");
}

/// The namespaces of iwarp-nvmf: on the screen, and in the JSON with percentiles.
#[test]
fn a_process_that_exports_namespaces_shows_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("page");
    let _page = StatsPage::create(&path, 1).expect("a writable folder");
    let text = format!(
        r#"{{"schema":1,"pid":{},"controllers":2,"counters":{{"waits_for_turn":9}},"namespaces":[{{"nqn":"nqn.2014-08.org.example:disk","nsid":3,"reads":5,
        "writes":2,"read_bytes":20480,"written_bytes":8192,"media_errors":1,"latency_ns":[[1500,4],[9000,3]]}}]}}"#,
        std::process::id()
    );
    std::fs::write(folder.path().join("page.namespaces"), text).expect("written");
    let path = path.to_str().expect("text");
    let screen = String::from_utf8(run(&[path, "--once"]).stdout).expect("text");
    let row = screen.lines().find(|line| line.contains("org.example:disk 3")).expect(&screen);
    assert!(screen.contains("2 controllers") && row.contains("1.5"), "{screen}");
    assert!(screen.contains("waits_for_turn 9"), "{screen}");
    let look: Value = serde_json::from_slice(&run(&[path, "--once", "--json"]).stdout).expect("JSON");
    let namespace = &look["namespaces"][0];
    assert_eq!((&look["nvmf_counters"]["waits_for_turn"], &namespace["timeouts"]), (&9.into(), &0.into()));
    assert_eq!((&namespace["nsid"], &namespace["reads"]), (&3.into(), &5.into()));
    assert_eq!(
        (&namespace["latency_us"]["p50"], &namespace["latency_us"]["max"]),
        (&1.5.into(), &9.0.into())
    );
}
