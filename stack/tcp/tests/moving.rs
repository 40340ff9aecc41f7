//! A connection moves to another engine in the middle of its traffic: it is saved, and restored
//! where neither the tables nor the clock are the same. Its peer notices nothing.

use ironwarp_stats::Counter;
use ironwarp_tcp::{Congestion, RestoreError, SaveError, TcpConfig, Transport};
use ironwarp_testkit::Segment;
use ironwarp_types::Nanos;

use crate::common::link::{Faults, Rng};
use crate::common::node::{Node, addr};
use crate::common::pattern::Pattern;
use crate::lossy_pair::Run;

/// Both sides move again and again, over links with all faults, with every set of options. Every
/// byte arrives, nobody resets, and what a new engine saves at once is what it has read.
#[test]
fn every_byte_arrives_while_both_sides_move() {
    let controllers = [Congestion::NewReno, Congestion::Cubic, Congestion::Dctcp];
    let mut moves = 0;
    for seed in 500..524u64 {
        let [sack, timestamps, ecn] = [seed & 1 != 0, seed & 2 != 0, seed & 4 != 0];
        let congestion = controllers[seed as usize % 3];
        let config = TcpConfig { sack, timestamps, ecn, congestion, ..Run::default().config };
        let faults =
            Faults { lost_percent: seed % 9, duplicated_percent: seed % 7, reordered_percent: seed % 25 };
        let run = Run { faults, config, bytes: [60_000, 30_000], moves_percent: 20, ..Run::default() };
        let ([a, b], _) = run.run(seed);
        moves += a.moves.len() + b.moves.len();
        assert_eq!(a.node.read(Counter::TcpTxResets) + b.node.read(Counter::TcpTxResets), 0);
    }
    assert!(moves > 500, "{moves} moves");
}

/// Units that the peer's window or the path takes only in parts.
#[test]
fn every_byte_arrives_while_both_sides_move_with_small_windows() {
    for seed in 600..610 {
        let config = TcpConfig {
            rcv_window_bytes: 500 + 700 * (seed as u32 % 5),
            retained_units_max: 3,
            ..Run::default().config
        };
        let faults = Faults { lost_percent: seed % 8, duplicated_percent: 2, reordered_percent: 5 };
        let (mtus, bytes) = ([9_000, 1_500], [30_000, 30_000]);
        Run { faults, config, mtus, bytes, unit: 8_960, moves_percent: 3 }.run(seed);
    }
}

/// States of one side of transfers with losses: unread, out-of-order and retained bytes, SACKed and
/// lost units.
fn saved_states() -> Vec<Vec<u8>> {
    let faults = Faults { lost_percent: 10, duplicated_percent: 5, reordered_percent: 20 };
    let controllers = [Congestion::NewReno, Congestion::Cubic, Congestion::Dctcp];
    let states = controllers.into_iter().zip(700..).flat_map(|(congestion, seed)| {
        let config = TcpConfig { congestion, ..Run::default().config };
        let run = Run { faults, config, bytes: [40_000, 20_000], moves_percent: 20, ..Run::default() };
        let ([a, _], _) = run.run(seed);
        a.moves
    });
    states.collect()
}

fn node() -> Node {
    Node::with_frames(128, 1, 1_500, Run::default().config)
}

/// Restores a state, and uses the connection whatever it is, with segments that are plausible and
/// others. The invariants of the engine are checked after each step. Returns whether it was
/// restored.
fn use_restored(saved: &[u8], rng: &mut Rng) -> bool {
    let mut node = node();
    let Ok(id) = node.restore(saved) else {
        node.check();
        assert_eq!(node.tx_frames_in_use(), 0, "a refused state holds no frame");
        return false;
    };
    node.check();
    let mut source = Pattern::new(20_000, 1_000);
    for _ in 0..12 {
        node.transmit(id, &mut source, 4);
        node.flush();
        for frame in node.sent() {
            let (route, sent) = Segment::read(&frame).expect("a segment");
            node.receive(&reply_to(&sent, rng).frame(route.back()));
        }
        node.now += Nanos(1 << rng.below(34));
        node.timers();
    }
    true
}

/// Acknowledges a segment, or some of it, or nothing; with payload that may be out of order.
fn reply_to(sent: &Segment, rng: &mut Rng) -> Segment {
    let mut reply = sent.clone();
    (reply.src_port, reply.dst_port) = (sent.dst_port, sent.src_port);
    (reply.seq, reply.ack) = (sent.ack, sent.seq.wrapping_add(sent.payload.len() as u32));
    if let Some([one, other]) =
        reply.options.get_mut(4..12).and_then(|stamps| stamps.as_chunks_mut::<4>().0.first_chunk_mut())
    {
        core::mem::swap(one, other);
    }
    match rng.below(6) {
        0 => reply.seq = reply.seq.wrapping_add(rng.below(3_000) as u32),
        1 => reply.ack = reply.ack.wrapping_sub(rng.below(5_000) as u32),
        2 => reply.window = rng.next() as u16,
        3 => {
            let (start, len) = (sent.seq.wrapping_add(rng.below(2_000) as u32), 1 + rng.below(3_000) as u32);
            reply.ack = sent.seq.wrapping_sub(rng.below(3_000) as u32);
            reply.options.extend([1, 1, 5, 10]);
            reply.options.extend([start, start.wrapping_add(len)].map(u32::to_be_bytes).concat());
        }
        _ => {}
    }
    reply
}

/// Bytes that anyone may have written: cut off, changed, with numbers at the ends of their range.
/// They are refused with a name, or they make a connection that obeys the invariants.
#[test]
fn changed_bytes_are_refused_or_do_no_harm() {
    let mut rng = Rng(9);
    let (mut restored, mut refused) = (0, 0);
    let states = saved_states();
    assert!(states.len() > 40, "{}", states.len());
    for saved in states {
        for len in [0, 1, 2, saved.len() / 2, saved.len() - 1] {
            assert_eq!(node().restore(&saved[..len]), Err(RestoreError::Malformed));
        }
        for _ in 0..12 {
            let mut bytes = saved.clone();
            for _ in 0..1 + rng.below(3) {
                // Numbers are in front of the payload and behind it.
                let at = rng.below(bytes.len().min(400) as u64) as usize;
                let at = if rng.percent(50) { at } else { bytes.len() - 1 - at };
                match rng.below(4) {
                    0 => bytes[at] ^= 1 << rng.below(8),
                    1 => bytes[at] = [0, 0x7f, 0x80, 0xff][rng.below(4) as usize],
                    2 => bytes[at] = rng.next() as u8,
                    // The largest number of 64 bits, in the form of the format.
                    _ => drop(bytes.splice(at..=at, [0xff; 9].into_iter().chain([1]))),
                }
            }
            let outcome = use_restored(&bytes, &mut rng);
            (restored, refused) = (restored + u32::from(outcome), refused + u32::from(!outcome));
        }
    }
    assert!(restored > 100 && refused > 100, "{restored} restored, {refused} refused");
}

#[test]
fn a_connection_is_restored_once_and_only_where_it_has_a_path_and_buffers() {
    let ([a, _], _) = Run { moves_percent: 20, ..Run::default() }.run(1);
    let saved = a.moves.iter().max_by_key(|saved| saved.len()).expect("it moved");
    let mut node = node();
    let id = node.restore(saved).expect("a free slot");
    assert_eq!(node.restore(saved), Err(RestoreError::InUse));
    node.tcp.release(id);
    assert_eq!(node.tcp.save(node.now, id), Err(SaveError::NotEstablished));
    assert_eq!(node.tcp.restore(node.now, saved, |_, _| None, &mut node.wires), Err(RestoreError::NoPath));
    node.allow_allocations(false);
    assert_eq!(node.restore(saved), Err(RestoreError::Full));
    node.check();
    assert_eq!(node.tx_frames_in_use(), 0);
    node.allow_allocations(true);
    let connecting = node.connect(50_001, addr(2, 1), 2);
    assert_eq!(node.tcp.save(node.now, connecting), Err(SaveError::NotEstablished));
}
