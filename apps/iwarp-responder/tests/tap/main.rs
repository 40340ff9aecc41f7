//! The responder on a tap device, with Linux's TCP and a client that shares no code with it.
//!
//! Each test starts a responder in a network namespace of its own and runs the scripts under
//! `tests/client` there. Both sides are checked: the client compares every octet that it receives,
//! and every header with the RFCs; the test compares the client's report with the responder's
//! output.
#![cfg(feature = "dpdk")]
#![forbid(unsafe_code)]

mod dissection;
mod events;
mod faults;
mod lab;
mod operations;

use serde_json::Value;

use crate::events::Events;
use crate::lab::{Ended, Lab};

/// The default number of receives that the responder keeps posted for each peer.
const RECEIVES: usize = 32;

/// Small, in one segment, in several, and the longest that the responder accepts.
const SENDS: &str = "0,1,64,5000,16384";
/// Up to all of the memory.
const WRITES: &str = "0,1,3,64,1000,5000,16384,65536";
/// Payload octets in a segment: the size that Linux uses, smaller ones, and FPDUs that need several
/// TCP segments.
const SEGMENTS: &str = "1400,536,9000,60000";

#[test]
fn the_client_agrees_with_the_vectors_that_the_rfcs_print() {
    let output =
        std::process::Command::new("python3").arg("-B").arg(lab::client_script("selftest.py")).output();
    let output = output.expect("python3");
    assert!(output.status.success(), "{}", lab::output_text(&output));
}

/// RFC 5044 s7.1, RFC 5040 s5: start-up, Sends, Writes and Reads in segments of every size, and an
/// orderly end. RFC 5041 s4.1, s4.3 and s5.2.
#[test]
fn a_linux_peer_is_answered_and_let_go() {
    let Some(lab) = Lab::with_shipped_config(&["--once"]) else { return };
    let arguments =
        ["--private-data", "00ff5040", "--sends", SENDS, "--writes", WRITES, "--segments", SEGMENTS];
    let done = lab.client("exchange.py", &arguments);
    let ended = lab.ended();
    assert!(ended.status.success(), "{}: {}", ended.status, ended.log);
    let connected = only(&ended.events, "connected");
    assert_eq!(connected["private_data"], "00ff5040");
    assert_eq!(connected["remote"], format!("10.99.2.2:{}", done["local_port"]));
    assert_eq!(done["memory"]["length"], 65536);
    one_clean_conversation(&ended, done["echoes"].as_u64().unwrap() as usize);
}

/// RFC 5044 s7.1.1: private data is up to 512 octets, or none.
/// RFC 5044 s7.1.2.
#[test]
fn private_data_of_every_allowed_length_arrives() {
    let Some(mut lab) = Lab::with_short_timeouts(&[]) else { return };
    for octets in [0, 1, 511, 512] {
        let private_data = "5a".repeat(octets);
        lab.client("exchange.py", &["--private-data", &private_data, "--sends", "1"]);
        let told = lab.events.wait_for("connected").expect("a connection");
        assert_eq!(told["private_data"], private_data);
        assert_eq!(lab.events.wait_for("disconnected").expect("its end")["reason"], "Closed");
    }
    assert!(lab.interrupt().status.success());
}

/// Every byte arrives although one frame in fifty is lost in each direction.
#[test]
fn a_lossy_link_changes_nothing_but_the_time() {
    let Some(lab) = Lab::with_shipped_config(&["--once", "--drop", "20000"]) else { return };
    let arguments = ["--sends", SENDS, "--writes", WRITES, "--segments", SEGMENTS, "--rounds", "3"];
    let done = lab.client("exchange.py", &arguments);
    let ended = lab.ended();
    assert!(ended.status.success(), "{}: {}", ended.status, ended.log);
    one_clean_conversation(&ended, done["echoes"].as_u64().unwrap() as usize);
    let events = &ended.events;
    assert!(events.counter("tcp_tx_retransmits") > 0, "nothing was lost: {events:?}");
}

/// RFC 5044, RFC 5041 and RFC 5040 as Wireshark reads them.
/// RFC 5040 s6.1; RFC 5044 sA.1.
#[test]
fn wireshark_finds_no_fault_in_a_capture() {
    if !dissection::is_installed() {
        return lab::skipped("tshark is not installed");
    }
    let capture = Lab::path("capture.pcapng");
    let Some(lab) = Lab::with_short_timeouts(&["--pcap", capture.to_str().expect("a plain path")]) else {
        return;
    };
    lab.client("exchange.py", &["--private-data", "5040", "--sends", SENDS, "--writes", WRITES]);
    // A Terminate, and a good connection after it.
    lab.client("faults.py", &["read-beyond"]);
    let ended = lab.interrupt();
    assert!(ended.status.success(), "{}", ended.log);
    dissects_well(&capture);
}

fn dissects_well(capture: &std::path::Path) {
    let text = dissection::text(capture);
    for layer in ["Request frame header", "Reply frame header", "DDP header", "RDMAP header"] {
        assert!(text.contains(layer), "no {layer}");
    }
    let crcs = text.lines().filter(|line| line.contains("CRC check")).collect::<Vec<_>>();
    assert!(crcs.len() > 50, "{} CRCs", crcs.len());
    assert!(crcs.iter().all(|line| line.contains("Good")), "{crcs:?}");
    assert_eq!(dissection::matching(capture, "_ws.malformed || iwarp_mpa.bad_length"), 0);
    // RFC 5044 s5.1: each of our segments begins with an FPDU and holds whole ones. A probe of a
    // peer that acknowledged late repeats one, which Wireshark does not read twice.
    let ours = "tcp.srcport == 4791 && tcp.len > 0 && !tcp.analysis.retransmission \
                && !tcp.analysis.spurious_retransmission && !tcp.analysis.fast_retransmission";
    assert_eq!(dissection::matching(capture, &format!("{ours} && !iwarp_mpa")), 0);
    assert_eq!(dissection::matching(capture, "tcp.srcport == 4791 && tcp.segment"), 0);
    let opcodes = dissection::count_by_value(capture, "iwarp_rdma.opcode");
    for opcode in ["0x00", "0x01", "0x02", "0x03", "0x07"] {
        assert!(opcodes.get(opcode).is_some_and(|count| *count > 0), "no opcode {opcode} in {opcodes:?}");
    }
    assert_eq!(opcodes.len(), 5, "{opcodes:?}");
    assert_eq!(opcodes["0x07"], 1);
}

/// The events of one connection without faults: every echo received and sent, every other receive
/// flushed.
fn one_clean_conversation(ended: &Ended, echoes: usize) {
    let events = &ended.events;
    assert_eq!(only(events, "listening")["local"], "10.99.2.1:4791");
    assert_eq!(only(events, "disconnected")["reason"], "Closed");
    assert_eq!(only(events, "disconnected")["qp"], only(events, "connected")["qp"]);
    assert_eq!(events.completions("Receive", "Success"), echoes);
    assert_eq!(events.completions("Send", "Success"), echoes);
    assert_eq!(events.completions("Receive", "FlushedInError"), RECEIVES, "{events:?}");
    assert_eq!(events.all("completion").len(), 2 * echoes + RECEIVES, "{events:?}");
    for kind in ["terminate_sent", "terminate_received"] {
        assert!(events.all(kind).is_empty(), "{events:?}");
    }
    assert_eq!(events.counter("verbs_connections_established"), 1);
}

fn only<'a>(events: &'a Events, kind: &str) -> &'a Value {
    let all = events.all(kind);
    assert_eq!(all.len(), 1, "{kind}: {events:?}");
    all[0]
}
