//! Events as JSON lines.

use core::net::SocketAddr;
use std::io::Write;

use ironwarp::{Completion, Terminate};
use serde_json::json;

/// Prints one line and flushes it, so that whoever reads a pipe sees it at once. A closed pipe is not an error.
fn print(line: &serde_json::Value) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// The responder listens and can be connected to.
pub(crate) fn listening(local: SocketAddr) {
    print(&json!({"event": "listening", "local": local.to_string()}));
}

/// A peer is connected.
pub(crate) fn connected(qp: u32, remote: SocketAddr, private_data: &[u8]) {
    print(
        &json!({"event": "connected", "qp": qp, "remote": remote.to_string(), "private_data": hex(private_data)}),
    );
}

/// A work request has ended.
pub(crate) fn completion(completion: &Completion) {
    print(&json!({
        "event": "completion",
        "qp": completion.qp.0,
        "opcode": format!("{:?}", completion.opcode),
        "status": format!("{:?}", completion.status),
        "bytes": completion.byte_len,
    }));
}

/// A Terminate was sent or received.
pub(crate) fn terminated(qp: u32, sent: bool, terminate: Terminate) {
    print(&json!({
        "event": if sent { "terminate_sent" } else { "terminate_received" },
        "qp": qp,
        "layer": terminate.layer,
        "type": terminate.etype,
        "code": terminate.code,
    }));
}

/// A connection has ended, or never came about.
pub(crate) fn disconnected(qp: u32, reason: &str) {
    print(&json!({"event": "disconnected", "qp": qp, "reason": reason}));
}

/// What the counters that are not zero say, at the end.
pub(crate) fn counters(counters: &[(&'static str, u64)]) {
    let nonzero = counters.iter().filter(|(_, value)| *value > 0);
    let table: serde_json::Map<_, _> =
        nonzero.map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
    print(&json!({"event": "counters", "counters": table}));
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
