//! Events as JSON lines.

use core::net::SocketAddr;

use ironwarp::{Completion, CompletionFlags, Terminate};
use serde_json::json;

fn print(line: &serde_json::Value) {
    ironwarp_cli::print_stdout(format_args!("{line}\n"));
}

pub(crate) fn listening(local: SocketAddr) {
    print(&json!({"event": "listening", "local": local.to_string()}));
}

pub(crate) fn connected(qp: u32, remote: SocketAddr, private_data: &[u8]) {
    print(
        &json!({"event": "connected", "qp": qp, "remote": remote.to_string(), "private_data": hex(private_data)}),
    );
}

pub(crate) fn rejected(qp: u32, private_data: &[u8]) {
    print(&json!({"event": "rejected", "qp": qp, "private_data": hex(private_data)}));
}

/// A work request is complete. A receive shows whether the Send was solicited and which steering
/// tag it invalidated.
pub(crate) fn completion(completion: &Completion) {
    let invalidated = completion.flags.contains(CompletionFlags::INVALIDATED);
    print(&json!({
        "event": "completion",
        "qp": completion.qp.0,
        "opcode": format!("{:?}", completion.opcode),
        "status": format!("{:?}", completion.status),
        "bytes": completion.byte_len,
        "solicited": completion.flags.contains(CompletionFlags::SOLICITED),
        "invalidated": invalidated.then_some(completion.invalidated.0),
    }));
}

pub(crate) fn terminated(qp: u32, sent: bool, terminate: Terminate) {
    print(&json!({
        "event": if sent { "terminate_sent" } else { "terminate_received" },
        "qp": qp,
        "layer": terminate.layer,
        "type": terminate.etype,
        "code": terminate.code,
    }));
}

/// A connection has ended or was not established.
pub(crate) fn disconnected(qp: u32, reason: &str) {
    print(&json!({"event": "disconnected", "qp": qp, "reason": reason}));
}

/// The counters that are not zero, at the end.
pub(crate) fn counters(counters: &[(&'static str, u64)]) {
    let nonzero = counters.iter().filter(|(_, value)| *value > 0);
    let table: serde_json::Map<_, _> =
        nonzero.map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
    print(&json!({"event": "counters", "counters": table}));
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
