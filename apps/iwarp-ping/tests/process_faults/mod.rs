//! Faults of processes: killed in any state and started again, two on one device, stopped for a
//! while, no hugepages.
//!
//! A peer of a killed process sees a reset or a time-out, and never hangs. A process that starts
//! again serves at once.

mod lab;

use std::time::Duration;

use lab::{Lab, SERVER};
use rustix::process::Signal;

/// Pings until it is stopped.
fn endless() -> String {
    format!("-a {SERVER} -v -S 20 -C 1000000000")
}

#[test]
fn a_server_that_was_killed_while_it_listened_starts_again() {
    let Some(lab) = Lab::new() else { return };
    for _ in 0..3 {
        lab.server("--persistent").kill();
    }
    let _server = lab.server("--persistent");
    lab.pinged("-C 5 -V");
}

/// The killed server's interface stays, and nobody replies: the client's time-out ends it.
#[test]
fn a_client_whose_server_is_killed_ends_by_a_timeout() {
    let Some(lab) = Lab::new() else { return };
    let server = lab.server("--persistent");
    let mut client = lab.start("client", "client", &endless());
    client.line_with("rdma-ping-0");
    server.kill();
    let ended = client.ended();
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    assert!(ended.errors.contains("the connection ended in ping"), "{ended:?}");
}

/// RFC 9293 s3.5.1: a host that has restarted resets the connections of its former life.
#[test]
fn a_server_that_starts_again_resets_the_connections_of_the_killed_one() {
    let Some(lab) = Lab::new() else { return };
    lab.configure("client", "af_packet = { interface = \"iwv1\" }", 2, "");
    let text = std::fs::read_to_string(lab.file("client")).expect("the configuration");
    let patient = text.replace("user_timeout_ms = 3000", "user_timeout_ms = 60000");
    let patient =
        patient.lines().filter(|line| !line.starts_with("keep_alive")).collect::<Vec<_>>().join("\n");
    std::fs::write(lab.file("client"), patient).expect("a writable folder");
    let server = lab.server("--persistent");
    let mut client = lab.start("client", "client", &endless());
    client.line_with("rdma-ping-0");
    server.kill();
    let _again = lab.server("--persistent");
    let ended = client.ended();
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    assert!(ended.errors.contains("the peer reset it"), "{ended:?}");
    lab.pinged("-C 5 -V");
}

/// Keep-alive probes find a client that was killed; the next client is served.
#[test]
fn a_server_whose_client_is_killed_serves_the_next_one() {
    let Some(lab) = Lab::new() else { return };
    let server = lab.server("--persistent");
    for _ in 0..2 {
        let mut client = lab.start("client", "client", &endless());
        client.line_with("rdma-ping-0");
        client.kill();
    }
    // Killed before any reply can have come.
    lab.start("client", "client", &endless()).kill();
    lab.pinged("-C 5 -V");
    server.signal(Signal::INT);
    let ended = server.ended();
    assert!(ended.status.success() && ended.out.contains("1 clients served"), "{ended:?}");
}

/// A processor that is taken away for 100 ms, or for longer than a retransmission timer takes: the
/// connection survives.
#[test]
fn connections_survive_a_process_that_is_stopped_for_a_while() {
    let Some(lab) = Lab::new() else { return };
    let server = lab.server("");
    let mut client = lab.start("client", "client", &format!("{} --verify", endless()));
    client.line_with("rdma-ping-0");
    for (process, ms) in [(&server, 100), (&client, 100), (&server, 700)] {
        process.signal(Signal::STOP);
        // The time without a processor is what is tested.
        std::thread::sleep(Duration::from_millis(ms));
        process.signal(Signal::CONT);
    }
    let line = client.line_with("rdma-ping-");
    let after = |line: &str| line.split("rdma-ping-").nth(1)?.split(':').next()?.parse::<u64>().ok();
    let reached = after(&line).expect("a number");
    client.line_with(&format!("rdma-ping-{}:", reached + 1_000));
    client.signal(Signal::INT);
    let ended = client.ended();
    assert!(ended.errors.contains("stopped after"), "{ended:?}");
    assert!(!ended.errors.contains("the connection ended"), "{ended:?}");
}

#[test]
fn a_second_process_on_a_tap_is_refused_by_name() {
    let Some(lab) = Lab::new() else { return };
    let device = "tap = { interface = \"iwtap7\" }";
    lab.configure("server", device, 1, "");
    lab.configure("second", device, 3, "");
    let _server = lab.server("--persistent");
    let ended = lab.start("server", "second", "--persistent").ended();
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    assert!(ended.errors.contains("iwtap7"), "{ended:?}");
}

#[test]
fn a_second_process_on_a_memif_socket_is_refused_and_a_stale_socket_is_removed() {
    let Some(lab) = Lab::new() else { return };
    let socket = lab.file("m.sock");
    let device = format!("memif = {{ role = \"server\", socket = {socket:?} }}");
    lab.configure("server", &device, 1, "");
    lab.configure("second", &device, 3, "");
    let server = lab.server("--persistent");
    let ended = lab.start("server", "second", "--persistent").ended();
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    assert!(ended.errors.contains("m.sock"), "{ended:?}");
    server.kill();
    assert!(socket.exists(), "the killed process could not remove it");
    let again = lab.server("--persistent");
    again.signal(Signal::INT);
    assert!(again.ended().status.success());
}

/// With a device of DPDK, `eal.hugepages = "require"` names the lack of hugepages; `"auto"`, the
/// default, takes ordinary pages.
#[test]
fn no_hugepages_are_an_error_by_name_or_a_fallback() {
    let Some(lab) = Lab::new() else { return };
    let free = std::fs::read_to_string("/proc/meminfo").expect("the kernel's memory table");
    if !free.lines().any(|line| line.starts_with("HugePages_Free:") && line.ends_with(" 0")) {
        use std::io::Write;
        writeln!(std::io::stderr(), "\nSKIPPED: this machine has free hugepages").expect("a terminal");
        return;
    }
    for (host, role) in [(1, "server"), (2, "client")] {
        let args = format!("iface=iwv{},framesz=2048,blocksz=4096,framecnt=512,qpairs=1", host - 1);
        let device = format!("dpdk = {{ name = \"net_af_packet0\", args = \"{args}\" }}");
        lab.configure(role, &device, host, "");
    }
    let text = std::fs::read_to_string(lab.file("server")).expect("the configuration");
    for (setting, works) in [("require", false), ("auto", true)] {
        let changed = text.replace("hugepages = \"never\"", &format!("hugepages = \"{setting}\""));
        std::fs::write(lab.file("server"), changed).expect("a writable folder");
        if works {
            let _server = lab.server("--persistent");
            lab.pinged("-C 5 -V");
        } else {
            let ended = lab.start("server", "server", "--persistent").ended();
            assert_eq!(ended.status.code(), Some(1), "{ended:?}");
            assert!(ended.errors.contains("hugepages"), "{ended:?}");
        }
    }
}
