//! A capture of two stacks of ours, as Wireshark shows it. The project's script shows the fields of
//! RFC 7306 and RFC 6581 beside Wireshark's own dissector. That dissector must find no error in the
//! same frames.

use crate::common;

use std::path::{Path, PathBuf};

use common::{Pair, config, pattern};
use ironwarp::instrument::{Capture, CaptureLimits};
use ironwarp::memory::MemoryConfig;
use ironwarp::{Access, AlignedBuf, AtomicOp, Config, Extensions, Nanos, RecvWr, RemoteMemory, SendWr};

fn extended(address: &str) -> Config {
    let mut config = config(address);
    config.rdmap.extensions = Extensions::Rfc7306;
    config.limits.read_depth = 16;
    // Long timers prevent retransmissions when the scheduler delays this thread.
    (config.tcp.rto_min, config.tcp.ack_delay_max) = (Nanos::from_secs(1), Nanos::from_secs(1));
    config
}

/// Captures one connection with every operation of RFC 7306, and a Send, a Write and a Read.
fn captured(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}.pcapng", std::process::id()));
    let mut pair = Pair::over(&MemoryConfig::default(), extended);
    let capture = Capture::create(&path, CaptureLimits::default()).expect("a file");
    let control = pair.near.worker.port_control();
    control.start_capture(capture.interface("near").expect("an interface"));
    let (near, far) = pair.connect();
    (0..3).for_each(|id| pair.far.ctx.post_recv(far, &RecvWr::new(id, &[])).expect("room"));
    let rights = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
    let pages = || AlignedBuf::pages(4096).expect("a page");
    let target = pair.far.ctx.register(pair.far.pd, pages(), rights).expect("a region");
    let own = pair.near.ctx.register(pair.near.pd, pages(), Access::LOCAL_WRITE).expect("a region");
    own.write_at(64, &pattern(1000, 1)).expect("inside");
    let there = RemoteMemory { stag: target.stag(), tagged_offset: target.base_to() };
    let (sink, block) = ([own.slice(0, 8).expect("inside")], [own.slice(64, 1000).expect("inside")]);
    let swap = AtomicOp::compare_and_swap(5, 6);
    for wr in [
        SendWr::immediate(1, b"8 octets"),
        SendWr::immediate(2, &[0xa5; 8]).solicited(),
        SendWr::atomic(3, &sink, there, &AtomicOp::add(5)),
        SendWr::atomic(4, &sink, there, &swap),
        SendWr::write(5, &block, there),
        SendWr::read(6, &block, there),
        SendWr::send(7, &[]),
    ] {
        pair.near.ctx.post_send(near, &wr).expect("room");
    }
    pair.until("all completions", |pair| pair.near.completions.len() == 7);
    pair.near.ctx.disconnect(near).expect("a connection");
    pair.until("its end", |pair| pair.near.is_disconnected(near) && pair.far.is_disconnected(far));
    control.stop_capture().expect("a whole capture");
    path
}

/// Returns the output of tshark with the project's script; `None` if tshark is not installed.
fn tshark(capture: &Path, arguments: &[&str]) -> Option<String> {
    let script = concat!("lua_script:", env!("CARGO_MANIFEST_DIR"), "/../../scripts/wireshark/ironwarp.lua");
    common::tshark::read(capture, &[&["-X", script], arguments].concat())
}

/// Every value of a field, in the order of the frames.
fn values(capture: &Path, field: &str) -> Option<Vec<String>> {
    let text = tshark(capture, &["-T", "fields", "-E", "aggregator=,", "-e", field])?;
    let lines = text.lines().filter(|line| !line.is_empty());
    Some(lines.flat_map(|line| line.split(',')).map(str::to_owned).collect())
}

/// RFC 7306 s5 and s6, RFC 6581 s9: the script shows what was sent.
#[test]
fn the_dissector_shows_the_sent_messages() {
    let capture = captured("fields");
    let wanted: [(&str, &[&str]); 12] = [
        ("ironwarp.immediate", &["38206f6374657473", "a5a5a5a5a5a5a5a5"]),
        ("ironwarp.solicited", &["0", "1"]),
        ("ironwarp.immediate.bad_length", &[]),
        ("ironwarp.atomic.operation", &["FetchAdd", "CmpSwap"]),
        ("iwarp_rdma.atomic.add_data", &["5"]),
        ("ironwarp.mpa.enhanced", &["1", "1"]),
        ("ironwarp.mpa.ird", &["16", "16"]),
        ("ironwarp.mpa.ord", &["16", "16"]),
        ("ironwarp.mpa.peer_to_peer", &["1", "1"]),
        ("ironwarp.mpa.rtr_write", &["1", "1"]),
        ("ironwarp.mpa.private_data", &["66726f6d206e656172", "66726f6d20666172"]),
        ("_ws.malformed", &[]),
    ];
    for (field, want) in wanted {
        let Some(seen) = values(&capture, field) else { return };
        let seen: Vec<&str> = seen
            .iter()
            .map(|value| match value.as_str() {
                "True" => "1",
                "False" => "0",
                other => other,
            })
            .collect();
        assert_eq!(seen, want, "{field}");
    }
    let _ = std::fs::remove_file(&capture);
}

/// No frame in the capture is malformed, has a wrong checksum or CRC, or looks lost, repeated or
/// out of order.
#[test]
fn wireshark_finds_nothing_wrong_in_a_whole_connection() {
    let capture = captured("faultless");
    let wrong = "_ws.malformed || iwarp_mpa.bad_length || tcp.checksum.status == 0 || ip.checksum.status == 0 || \
                 tcp.analysis.retransmission || tcp.analysis.lost_segment || tcp.analysis.out_of_order || \
                 tcp.analysis.ack_lost_segment || tcp.analysis.zero_window";
    let Some(found) = tshark(&capture, &["-Y", wrong]) else { return };
    assert_eq!(found, "");
    let text = tshark(&capture, &["-V", "-O", "iwarp_mpa,iwarp_ddp_rdmap"]).expect("as before");
    let crcs: Vec<&str> = text.lines().filter(|line| line.contains("CRC check")).collect();
    assert!(crcs.len() >= 9 && crcs.iter().all(|line| line.contains("Good")), "{crcs:?}");
    let _ = std::fs::remove_file(&capture);
}
