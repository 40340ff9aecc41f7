//! Whole screens, at several sizes, of a page that this process writes.

use std::fs;

use ironwarp_stats::{ConnectionRow, ConnectionState, Counter, PageDimensions, StatsPage};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::draw::draw;
use super::state::State;
use crate::snapshot::{ObservedProcess, Snapshot};

/// Two snapshots of a process with two cores, two ports, three connections and two namespaces, of
/// which one has a name that would steer a terminal. The second one is taken a second later.
fn snapshot() -> Snapshot {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("page");
    let page = StatsPage::create_with_ports(&path, PageDimensions { cores: 2, ports: 2 }).expect("a page");
    let mut process = ObservedProcess::open(&path).expect("a page");
    show_connections(&page, 0);
    write_namespaces(&path, 0);
    process.snapshot().expect("a snapshot");
    page.core(0).add(Counter::CoresPolls, 4_000_000);
    page.core(0).add(Counter::CoresPollsIdle, 3_000_000);
    page.core(0).add(Counter::PortRxFrames, 123_456);
    page.port(1, 1).add(Counter::PortTxFrames, 7);
    page.core(1).add(Counter::TcpRxBytes, 125_000_000);
    page.core(1).add(Counter::TcpDropPaws, 42);
    page.port(1, 0).add(Counter::NetDropShort, 3);
    show_connections(&page, 1);
    write_namespaces(&path, 1);
    let mut snapshot = process.snapshot().expect("a snapshot");
    snapshot.set_seconds_for_test(77, 1.0);
    snapshot
}

fn show_connections(page: &StatsPage, seconds: u64) {
    let rows = page.connections(1).expect("rows");
    for (number, remote) in
        ["10.0.0.2:4791", "192.168.100.200:65535", "[2001:db8::1:2:3]:4791"].iter().enumerate()
    {
        let remote: std::net::SocketAddr = remote.parse().expect("an address");
        let local = if remote.is_ipv4() { "10.0.0.1:40001" } else { "[2001:db8::9]:40001" };
        rows.write(
            number,
            Some(&ConnectionRow {
                local: local.parse().expect("an address"),
                remote,
                state: ConnectionState::Established,
                queue_pair: Some(number as u32 + 1),
                tx_bytes: 1_000_000 + seconds * 1_000_000 * (number as u64),
                rx_bytes: 5_000_000_000,
                retransmits: 9 * number as u64,
                srtt_ns: 12_345,
                rto_ns: 1_000_000,
                cwnd_bytes: 65_536,
                flight_bytes: 4096,
            }),
        );
    }
}

fn write_namespaces(page: &std::path::Path, seconds: u64) {
    let of = |nqn: &str, nsid: u32| {
        serde_json::json!({
            "nqn": nqn, "nsid": nsid, "reads": 1000 * seconds, "writes": 0, "read_bytes": 4_096_000 * seconds,
            "written_bytes": 0, "media_errors": 0, "latency_ns": [[12_000, 1000 * seconds]],
        })
    };
    let text = serde_json::json!({
        "schema": 1, "pid": std::process::id(), "controllers": 1,
        "namespaces": [of("nqn.2014-08.org.example:storage.rack-1.disk", 1), of("nqn.\u{1b}[2J", 2)],
    });
    fs::write(page.with_added_extension("namespaces"), text.to_string()).expect("written");
}

/// A user at a terminal of this size.
struct User {
    state: State,
    terminal: Terminal<TestBackend>,
}

impl User {
    fn at(columns: u16, lines: u16) -> Self {
        let mut state = State::new();
        state.update(snapshot());
        User { state, terminal: Terminal::new(TestBackend::new(columns, lines)).expect("a terminal") }
    }

    fn press(&mut self, keys: &str) -> &mut Self {
        for key in keys.chars() {
            let code = match key {
                '>' => KeyCode::Right,
                '<' => KeyCode::Left,
                'v' => KeyCode::Down,
                '\t' => KeyCode::Tab,
                other => KeyCode::Char(other),
            };
            self.state.on_key(KeyEvent::new(code, KeyModifiers::NONE));
            self.terminal.draw(|frame| draw(frame, &mut self.state)).expect("drawn");
        }
        self
    }

    /// The screen, without the space at the ends of its lines.
    fn screen(&mut self) -> Vec<String> {
        self.terminal.draw(|frame| draw(frame, &mut self.state)).expect("drawn");
        let buffer = self.terminal.backend().buffer();
        let width = usize::from(buffer.area.width);
        let lines = buffer.content.chunks(width).map(|line| line.iter().map(|cell| cell.symbol()).collect());
        lines.map(|line: String| line.trim_end().to_owned()).collect()
    }
}

/// Asserts a whole screen: the lines of `expected`, then empty ones, then the keys.
#[track_caller]
fn assert_screen(screen: &[String], expected: &[&str]) {
    let (keys, rest) = screen.split_last().expect("lines");
    let all = "q quit  Tab 1-5 view  arrows PgUp PgDn scroll  s sort  r reverse  p pause";
    assert!([all, "q quit  Tab view  arrows  s r sort  p"].contains(&keys.as_str()), "{screen:#?}");
    let shown: Vec<_> = rest.iter().map(String::as_str).collect();
    let mut wanted = expected.to_vec();
    wanted.resize(rest.len().max(expected.len()), "");
    assert_eq!(shown, wanted, "{screen:#?}");
}

#[test]
fn cores_at_80_by_24() {
    assert_screen(
        &User::at(80, 24).screen(),
        &[
            "process 77, in 1.00 s",
            " 1 cores  2 ports  3 connections  4 namespaces  5 losses",
            "core^ busy % polls/s opened frames in/s frames out/s Mbit in/s Mbit out/s",
            "    0   25.0   4.00M      0        123k            0         0          0",
            "    1      –       0      0           0            7      1000          0",
        ],
    );
}

#[test]
fn columns_are_scrolled_and_the_first_one_stays() {
    assert_screen(
        &User::at(80, 24).press(">>>>>>>>").screen(),
        &[
            "process 77, in 1.00 s",
            " 1 cores  2 ports  3 connections  4 namespaces  5 losses",
            "core^ FPDUs out/s Sends in/s Writes in/s Reads asked/s atomics asked/s",
            "    0           0          0           0             0               0",
            "    1           0          0           0             0               0",
        ],
    );
}

#[test]
fn ports_at_80_by_24() {
    assert_screen(
        &User::at(80, 24).press("2").screen(),
        &[
            "process 77, in 1.00 s",
            " 1 cores  2 ports  3 connections  4 namespaces  5 losses",
            "port^ frames in/s frames out/s lost",
            "    0        123k            0    0",
            "    1           0            7    3",
        ],
    );
}

#[test]
fn connections_at_80_by_24() {
    assert_screen(
        &User::at(80, 24).press("3").screen(),
        &[
            "process 77, in 1.00 s",
            " 1 cores  2 ports  3 connections  4 namespaces  5 losses",
            "peer                   state       core qp resent MB/sv MB/s in MB/s out MB in",
            "[2001:db8::1:2:3]:4791 ESTABLISHED    1  3     18   2.0     0.0      2.0  5000",
            "192.168.100.200:65535  ESTABLISHED    1  2      9   1.0     0.0      1.0  5000",
            "10.0.0.2:4791          ESTABLISHED    1  1      0   0.0     0.0      0.0  5000",
        ],
    );
}

#[test]
fn namespaces_at_80_by_24() {
    assert_screen(
        &User::at(80, 24).press("4").screen(),
        &[
            "process 77, in 1.00 s",
            " 1 cores  2 ports  3 connections  4 namespaces  5 losses",
            "namespace^                               reads/s writes/s p50 us p99 us MB in/s",
            "…14-08.org.example:storage.rack-1.disk 1    1000        0   12.0   12.0     0.0",
            "nqn.\\u{1b}[2J 2                             1000        0   12.0   12.0     0.0",
        ],
    );
}

#[test]
fn losses_at_80_by_24() {
    assert_screen(
        &User::at(80, 24).press("5").screen(),
        &[
            "process 77, in 1.00 s",
            " 1 cores  2 ports  3 connections  4 namespaces  5 losses",
            "reason         countv /s meaning",
            "tcp_drop_paws      42 42 Segments older than what had arrived, by their time st…",
            "net_drop_short      3  3 Frames shorter than an Ethernet header or than the hea…",
        ],
    );
}

#[test]
fn connections_at_40_by_10() {
    assert_screen(
        &User::at(40, 10).press("3").screen(),
        &[
            "process 77, in 1.00 s",
            " 3 connections  4 namespaces  5 losses",
            "peer                 state       core qp",
            "…01:db8::1:2:3]:4791 ESTABLISHED    1  3",
            "…2.168.100.200:65535 ESTABLISHED    1  2",
            "10.0.0.2:4791        ESTABLISHED    1  1",
        ],
    );
}

#[test]
fn connections_at_200_by_50() {
    assert_screen(
        &User::at(200, 50).press("3").screen(),
        &[
            "process 77, in 1.00 s",
            " 1 cores  2 ports  3 connections  4 namespaces  5 losses",
            "peer                   state       core qp resent MB/sv MB/s in MB/s out MB in MB out rtt us rto us cwnd kB flight kB local",
            "[2001:db8::1:2:3]:4791 ESTABLISHED    1  3     18   2.0     0.0      2.0  5000    3.0   12.3   1000    65.5       4.1 [2001:db8::9]:40001",
            "192.168.100.200:65535  ESTABLISHED    1  2      9   1.0     0.0      1.0  5000    2.0   12.3   1000    65.5       4.1 10.0.0.1:40001",
            "10.0.0.2:4791          ESTABLISHED    1  1      0   0.0     0.0      0.0  5000    1.0   12.3   1000    65.5       4.1 10.0.0.1:40001",
        ],
    );
}

/// Rows that do not fit are scrolled, and the title says which are shown.
#[test]
fn rows_are_scrolled_on_a_terminal_of_6_lines() {
    assert_screen(
        &User::at(40, 6).press("3v").screen(),
        &[
            "process 77, in 1.00 s, rows 2-3 of 3",
            " 3 connections  4 namespaces  5 losses",
            "peer                 state       core qp",
            "…2.168.100.200:65535 ESTABLISHED    1  2",
            "10.0.0.2:4791        ESTABLISHED    1  1",
        ],
    );
}

/// Sorted by peer, then by state, then by core, each in both directions.
#[test]
fn the_user_sorts() {
    let peers = |keys: &str| {
        let screen = User::at(80, 24).press(keys).screen();
        screen[3..6]
            .iter()
            .map(|line| line.split(' ').next().unwrap_or_default().to_owned())
            .collect::<Vec<_>>()
    };
    let (v4, long, v6) = ("10.0.0.2:4791", "192.168.100.200:65535", "[2001:db8::1:2:3]:4791");
    assert_eq!(peers("3"), [v6, long, v4], "by rate, the largest first");
    assert_eq!(peers("3r"), [v4, long, v6]);
    // Ten more columns, then the first.
    assert_eq!(peers("3ssssssssssr"), [v4, long, v6]);
    assert_eq!(peers("3ssssssssss"), [v6, long, v4]);
}

/// Whatever the size, nothing panics, and no line is longer than the terminal.
#[test]
fn every_size_has_a_screen() {
    for columns in [1, 2, 7, 20, 39, 80, 300] {
        for lines in [1, 2, 3, 4, 5, 24, 100] {
            let mut user = User::at(columns, lines);
            for view in ["1", "2", "3", "4", "5"] {
                for keys in ["", ">>>>>>>>>>>>>>>>>>>>", "vvvvvvv", "s", "<<"] {
                    let screen = user.press(view).press(keys).screen();
                    assert_eq!(screen.len(), usize::from(lines));
                }
            }
        }
    }
}

/// A terminal that changes its size while the last row is shown.
#[test]
fn a_resize_keeps_the_place_inside_the_table() {
    let mut user = User::at(40, 6);
    user.press("3vvvv");
    user.terminal.backend_mut().resize(80, 24);
    let screen = user.screen();
    assert!(screen[3].starts_with('['), "{screen:#?}");
    user.terminal.backend_mut().resize(40, 5);
    assert_eq!(user.screen().len(), 5);
}

#[test]
fn a_pause_keeps_the_snapshot_and_keys_end_the_program() {
    let mut user = User::at(80, 24);
    user.press("p");
    let mut later = snapshot();
    later.set_seconds_for_test(78, 1.0);
    user.state.update(later.clone());
    assert!(user.screen()[0].starts_with("process 77,") && user.screen()[0].ends_with("paused"));
    user.press("p");
    user.state.update(later);
    assert!(user.screen()[0].starts_with("process 78,"));
    for (code, modifiers) in [
        (KeyCode::Char('q'), KeyModifiers::NONE),
        (KeyCode::Esc, KeyModifiers::NONE),
        (KeyCode::Char('c'), KeyModifiers::CONTROL),
    ] {
        let mut state = State::new();
        state.on_key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::NONE));
        assert!(!state.wants_to_quit());
        state.on_key(KeyEvent::new(code, modifiers));
        assert!(state.wants_to_quit(), "{code:?}");
    }
}
