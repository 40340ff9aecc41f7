//! Bad input: each fault has one outcome, is counted, and does not affect the next connection.
//!
//! The expected Terminates are rows of the tables in RFC 5040 s4.8, RFC 5041 s7.2 and RFC 5044 s8;
//! which headers they show is figure 10 of RFC 5040.

use serde_json::{Value, json};

use crate::lab::Lab;

/// The part of the faulty message that a Terminate must contain.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TerminateHeaders {
    Nothing,
    Segment,
    Request,
}

/// A fault's name in `faults.py`, its Terminate (layer, type, code), and what that contains.
type Row = (&'static str, [u8; 3], TerminateHeaders);

const TAGGED: [Row; 9] = [
    // RFC 5041 s7.2, type 1.
    ("write-unknown-stag", [1, 1, 0], TerminateHeaders::Segment),
    ("write-stag-zero", [1, 1, 0], TerminateHeaders::Segment),
    ("write-below", [1, 1, 1], TerminateHeaders::Segment),
    ("write-beyond", [1, 1, 1], TerminateHeaders::Segment),
    ("write-far", [1, 1, 1], TerminateHeaders::Segment),
    ("write-second-segment-beyond", [1, 1, 1], TerminateHeaders::Segment),
    ("write-wraps", [1, 1, 3], TerminateHeaders::Segment),
    ("tagged-ddp-version-0", [1, 1, 4], TerminateHeaders::Segment),
    ("tagged-ddp-version-2", [1, 1, 4], TerminateHeaders::Segment),
];

const UNTAGGED: [Row; 13] = [
    // RFC 5041 s7.2, type 2.
    ("queue-4", [1, 2, 1], TerminateHeaders::Segment),
    ("queue-top", [1, 2, 1], TerminateHeaders::Segment),
    ("send-without-receive", [1, 2, 2], TerminateHeaders::Segment),
    // RFC 7306 s5.1: queue 3 has a buffer for each Atomic Request that is outstanding, and none is.
    ("queue-3", [1, 2, 2], TerminateHeaders::Segment),
    ("msn-0", [1, 2, 3], TerminateHeaders::Segment),
    ("msn-skips-one", [1, 2, 3], TerminateHeaders::Segment),
    ("msn-repeats", [1, 2, 3], TerminateHeaders::Segment),
    ("read-msn-2", [1, 2, 3], TerminateHeaders::Segment),
    ("offset-not-0", [1, 2, 4], TerminateHeaders::Segment),
    ("offset-with-gap", [1, 2, 4], TerminateHeaders::Segment),
    ("send-too-long", [1, 2, 5], TerminateHeaders::Segment),
    ("send-too-long-in-one-segment", [1, 2, 5], TerminateHeaders::Segment),
    ("untagged-ddp-version-3", [1, 2, 6], TerminateHeaders::Segment),
];

const READS: [Row; 8] = [
    // RFC 5040 s4.8, type 1: the request is shown with its segment.
    ("read-unknown-stag", [0, 1, 0], TerminateHeaders::Request),
    ("read-beyond", [0, 1, 1], TerminateHeaders::Request),
    ("read-below", [0, 1, 1], TerminateHeaders::Request),
    ("read-more-than-all", [0, 1, 1], TerminateHeaders::Request),
    ("read-wraps", [0, 1, 4], TerminateHeaders::Request),
    // No code fits a message that is no request.
    ("read-request-cut-short", [0, 2, 0xff], TerminateHeaders::Segment),
    // It fits a buffer of queue 1, since those hold Atomic Requests too (RFC 7306 s5.1).
    ("read-request-too-long", [0, 2, 0xff], TerminateHeaders::Segment),
    // RFC 5040 s5.2.2: queue 1 has as many buffers as Reads are allowed at once.
    ("reads-too-many", [1, 2, 2], TerminateHeaders::Segment),
];

const OPERATIONS: [Row; 9] = [
    // RFC 5040 s4.8, type 2.
    ("opcode-15", [0, 2, 6], TerminateHeaders::Segment),
    ("opcode-of-a-write-untagged", [0, 2, 6], TerminateHeaders::Segment),
    ("opcode-of-a-send-tagged", [0, 2, 6], TerminateHeaders::Segment),
    ("opcode-of-a-send-on-the-read-queue", [0, 2, 6], TerminateHeaders::Segment),
    ("response-that-nobody-asked-for", [0, 2, 6], TerminateHeaders::Segment),
    ("rdmap-version-2", [0, 2, 5], TerminateHeaders::Segment),
    ("tagged-rdmap-version-3", [0, 2, 5], TerminateHeaders::Segment),
    // RFC 5041 s7.2, type 0: there is no header to include.
    ("no-room-for-a-header", [1, 0, 0], TerminateHeaders::Nothing),
    ("no-octet-at-all", [1, 0, 0], TerminateHeaders::Nothing),
];

const MPA: [Row; 3] = [
    // RFC 5044 s8, code 2.
    ("crc-wrong-in-one-bit", [2, 0, 2], TerminateHeaders::Nothing),
    ("crc-complemented", [2, 0, 2], TerminateHeaders::Nothing),
    ("payload-spoilt", [2, 0, 2], TerminateHeaders::Nothing),
];

/// RFC 5044 s7.1.2, rules 2, 5, 8, 9 and 10.
const STARTUP: [&str; 11] = [
    "http",
    "zeros",
    "key-wrong-in-its-last-octet",
    "reply-instead-of-request",
    "revision-0",
    "revision-3",
    "private-data-of-513",
    "private-data-of-65535",
    "private-data-shorter-than-sent",
    "private-data-longer-than-sent",
    "silence",
];

/// RFC 5044 s8, code 4: a start-up fault closes the connection without a Terminate.
#[test]
fn startup_faults_close_without_an_answer() {
    let Some(mut lab) = Lab::with_short_timeouts(&[]) else { return };
    for fault in STARTUP {
        let seen = lab.client("faults.py", &[fault]);
        assert_eq!((&seen["terminate"], &seen["messages"]), (&Value::Null, &json!(0)), "{fault}");
        assert_next_connection_works(&lab.events.take_through(1, "disconnected"), fault);
    }
    let ended = lab.interrupt();
    assert!(ended.status.success(), "{}", ended.log);
    // The two incomplete requests are not faults yet; their timeout ends them.
    assert_eq!(ended.events.counter("verbs_startup_timeouts"), 2, "{:?}", ended.events);
    assert_eq!(ended.events.counter("iwarp_startup_errors"), STARTUP.len() as u64 - 2, "{:?}", ended.events);
}

/// RFC 5044 s4.3, s7.1.1: a peer that asks for markers gets them, in every FPDU that is long enough
/// and in the Terminate.
#[test]
fn a_peer_that_asks_for_markers_gets_them() {
    let Some(mut lab) = Lab::with_short_timeouts(&[]) else { return };
    let seen = lab.client("faults.py", &["markers"]);
    assert_eq!((&seen["terminate"], &seen["end"]), (&json!([1, 2, 1]), &json!("fin")), "{seen}");
    is_reported(&lab.events.take_through(1, "disconnected"), "markers", &[1, 2, 1]);
    assert_eq!(lab.interrupt().events.counter("iwarp_streams_with_markers"), 1);
}

#[test]
fn tagged_segments_that_may_not_be_placed_are_terminated() {
    each_is_terminated(&TAGGED);
}

#[test]
fn untagged_segments_that_fit_no_buffer_are_terminated() {
    each_is_terminated(&UNTAGGED);
}

#[test]
fn reads_of_what_may_not_be_read_are_terminated() {
    each_is_terminated(&READS);
}

#[test]
fn operations_that_do_not_exist_are_terminated() {
    each_is_terminated(&OPERATIONS);
}

#[test]
fn fpdus_with_a_wrong_crc_are_terminated() {
    each_is_terminated(&MPA);
}

/// A Terminate is delivered although more data of the peer arrives after it was sent.
/// RFC 5040 s6.2.1; RFC 5041 s6.2.
#[test]
fn data_behind_a_fault_does_not_destroy_the_terminate() {
    each_is_terminated(&[("data-behind-the-fault", [1, 1, 1], TerminateHeaders::Segment)]);
}

/// RFC 6191 s2: a peer whose connection we closed may connect again from the same port at once.
#[test]
fn a_terminated_peer_can_use_its_port_again() {
    let Some(mut lab) = Lab::with_short_timeouts(&[]) else { return };
    assert_eq!(lab.client("faults.py", &["port-reused"])["terminate"], json!([1, 1, 1]));
    let events = lab.events.take_through(3, "disconnected");
    let ports: Vec<_> = of_kind(&events, "connected").iter().map(|event| event["remote"].clone()).collect();
    assert_eq!(ports[0], ports[1], "{events:?}");
    assert!(lab.interrupt().status.success());
}

/// RFC 5040 s5.4: a Terminate is reported, and the connection closes without another Terminate.
/// RFC 5040 s6.2.1.
#[test]
fn a_peers_terminate_is_reported_and_not_answered() {
    let Some(mut lab) = Lab::with_short_timeouts(&[]) else { return };
    let seen = lab.client("faults.py", &["peer-terminates"]);
    assert_eq!((&seen["terminate"], &seen["end"]), (&Value::Null, &json!("fin")));
    let events = lab.events.take_through(2, "disconnected");
    let terminates = of_kind(&events, "terminate_received");
    assert_eq!(terminates.len(), 1, "{events:?}");
    assert_eq!([&terminates[0]["layer"], &terminates[0]["type"], &terminates[0]["code"]], [1, 2, 2]);
    assert!(of_kind(&events, "terminate_sent").is_empty(), "{events:?}");
    assert_eq!(reason(&events, &terminates[0]["qp"]), "Terminated");
    assert!(lab.interrupt().status.success());
}

/// A peer that disappears at any point ends its own connection only.
#[test]
fn connections_that_end_at_any_octet_end_alone() {
    let Some(mut lab) = Lab::with_short_timeouts(&[]) else { return };
    for fault in ["cut-requests", "cut-fpdus", "reset-in-a-write", "reset-while-reading"] {
        let seen = lab.client("faults.py", &[fault]);
        let connections = seen["connections"].as_u64().unwrap_or(1) as usize;
        let events = lab.events.take_through(connections + 1, "disconnected");
        assert_eq!(of_kind(&events, "connected").len(), connections + 1, "{fault}: {events:?}");
        assert!(of_kind(&events, "terminate_received").is_empty(), "{fault}: {events:?}");
        if fault.starts_with("reset") {
            let first = &of_kind(&events, "connected")[0]["qp"];
            assert_eq!(reason(&events, first), "Reset", "{fault}: {events:?}");
        }
    }
    assert!(lab.interrupt().status.success());
}

/// RFC 5042 s6.4.1: half-open start-ups are bounded in number and in time.
#[test]
fn silent_peers_are_bounded_in_number_and_in_time() {
    let Some(mut lab) = Lab::few_slots() else { return };
    assert_eq!(lab.client("faults.py", &["many-silent"])["ended"], 12);
    assert_next_connection_works(&lab.events.take_through(1, "disconnected"), "many-silent");
    let ended = lab.interrupt();
    let count = |name| ended.events.counter(name);
    let (waited, refused) = (count("verbs_startup_timeouts"), count("verbs_half_open_dropped"));
    // Eight may wait. On a busy machine slots may become free before the last one connects.
    assert_eq!(waited + refused, 12, "{:?}", ended.events);
    assert!((1..=4).contains(&refused), "{:?}", ended.events);
}

/// RFC 5044 s7.1.2, rule 2: a request that is well formed and not acceptable gets a rejecting
/// reply.
#[test]
fn a_peer_beyond_the_limit_is_refused_in_words() {
    let Some(mut lab) = Lab::few_slots() else { return };
    let seen = lab.client("faults.py", &["many-connected"]);
    assert_eq!((&seen["refused"], &seen["why"]), (&json!(true), &json!("no resources")), "{seen}");
    assert_eq!((&seen["end"], &seen["terminate"]), (&json!("fin"), &Value::Null), "{seen}");
    let events = lab.events.take_through(3, "disconnected");
    assert!(of_kind(&events, "disconnected").iter().all(|event| event["reason"] == "Closed"), "{events:?}");
    assert!(lab.interrupt().status.success());
}

/// Runs each row against one responder: the client sees the Terminate and then FIN, the responder
/// reports the same one, and a good connection follows.
fn each_is_terminated(rows: &[Row]) {
    let Some(mut lab) = Lab::with_short_timeouts(&[]) else { return };
    for (fault, terminate, headers) in rows {
        let seen = lab.client("faults.py", &[fault]);
        assert_eq!(seen["terminate"], json!(terminate), "{fault}: {seen}");
        assert_eq!(seen["end"], "fin", "{fault}");
        assert_eq!(seen["shows_segment"], *headers != TerminateHeaders::Nothing, "{fault}: {seen}");
        assert_eq!(seen["shows_request"], *headers == TerminateHeaders::Request, "{fault}: {seen}");
        is_reported(&lab.events.take_through(2, "disconnected"), fault, terminate);
    }
    let ended = lab.interrupt();
    assert!(ended.status.success(), "{}", ended.log);
    assert_eq!(ended.events.counter("iwarp_tx_terminates"), rows.len() as u64, "{:?}", ended.events);
    assert_eq!(ended.events.counter("iwarp_streams_failed"), rows.len() as u64, "{:?}", ended.events);
}

fn is_reported(events: &[Value], fault: &str, terminate: &[u8; 3]) {
    let sent = of_kind(events, "terminate_sent");
    assert_eq!(sent.len(), 1, "{fault}: {events:?}");
    assert_eq!(json!([sent[0]["layer"], sent[0]["type"], sent[0]["code"]]), json!(terminate), "{fault}");
    assert_eq!(reason(events, &sent[0]["qp"]), "Terminated", "{fault}");
    assert!(of_kind(events, "terminate_received").is_empty(), "{fault}: {events:?}");
}

/// The faulty connection raised no event; the good one after it connected and closed.
fn assert_next_connection_works(events: &[Value], fault: &str) {
    let connected = of_kind(events, "connected");
    assert_eq!(connected.len(), 1, "{fault}: {events:?}");
    assert_eq!(reason(events, &connected[0]["qp"]), "Closed", "{fault}");
    assert!(of_kind(events, "terminate_sent").is_empty(), "{fault}: {events:?}");
}

fn of_kind<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["event"] == kind).collect()
}

/// Why a queue pair's connection ended.
fn reason<'a>(events: &'a [Value], qp: &Value) -> &'a Value {
    let of_qp = |event: &&&Value| event["qp"] == *qp;
    let ended = of_kind(events, "disconnected");
    &ended.iter().find(of_qp).unwrap_or_else(|| panic!("{qp} has not ended: {events:?}"))["reason"]
}
