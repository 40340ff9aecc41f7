//! Scheduling by bytes: the delay that a long transfer causes to others, in units; and a silent
//! peer ends what waits for it.

use crate::common;

use common::{Pair, pattern};
use ironwarp::instrument::{FaultRates, Faults};
use ironwarp::{CompletionStatus, DisconnectReason, Event, Nanos, RecvWr, RemoteMemory, SendWr};

/// A quantum is 32 KiB; a unit of these links holds 1460 bytes.
const TURN_UNITS: u64 = 32 * 1024 / 1460 + 1;

/// The same while another queue pair sends small messages: the quantum is 4 KiB.
const SMALL_TURN_UNITS: u64 = 4 * 1024 / 1460 + 1;

const LONG: usize = 8 << 20;

/// semantics "Fairness": while one queue pair answers a Read, a small message of another leaves
/// after at most two quanta, whenever it is posted. From the second small message on the quanta are
/// small.
#[test]
fn a_long_read_delays_another_queue_pairs_small_message_by_a_bounded_number_of_units() {
    let mut pair = Pair::new();
    let (long, _) = pair.connect();
    pair.near.events.clear();
    pair.far.events.clear();
    let (near_small, far_small) = pair.connect();
    let (sink, source) = (pair.near.memory(&vec![0; LONG]), pair.far.memory(&pattern(LONG, 1)));
    let inbox = pair.near.memory(&[0; 64]);
    // The server's small queue pair may send after it received the client's first FPDU.
    let first = SendWr::write_inline(1, b"x", at(&source));
    pair.near.ctx.post_send(near_small, &first).unwrap();
    pair.until("the first message", |pair| pair.near.completions.len() == 1);
    pair.near
        .ctx
        .post_send(long, &SendWr::read(1, &[sink.slice(0, LONG as u32).unwrap()], at(&source)))
        .unwrap();
    (0..20).for_each(|_| pair.turn());

    let mut waited = Vec::new();
    for id in 0..40 {
        let room = [inbox.slice(0, 64).unwrap()];
        pair.near.ctx.post_recv(near_small, &RecvWr::new(id, &room)).unwrap();
        let before = pair.far.counter("iwarp_tx_fpdus");
        let seen = pair.near.counter("iwarp_rx_sends");
        pair.far.ctx.post_send(far_small, &SendWr::send_inline(id, b"small")).unwrap();
        pair.until("the small message", |pair| pair.near.counter("iwarp_rx_sends") > seen);
        waited.push(pair.far.counter("iwarp_tx_fpdus") - before);
        pair.turn();
    }
    let unfinished = pair.near.completions.iter().all(|one| one.qp != long.num());
    assert!(unfinished, "the long Read must still run for this to say anything");
    assert!(waited[0] <= 3 * TURN_UNITS, "{} units went before the first small message", waited[0]);
    let worst = waited[1..].iter().max().expect("several small messages");
    assert!(*worst <= 3 * SMALL_TURN_UNITS, "{worst} units went before a small message");
    pair.until("the Read", |pair| pair.near.completions.iter().any(|one| one.qp == long.num()));
}

fn at(region: &ironwarp::Region) -> RemoteMemory {
    RemoteMemory { stag: region.stag(), tagged_offset: region.base_to() }
}

/// Two queue pairs with full queues get equal bytes, although only one's messages fill segments.
#[test]
fn queue_pairs_share_by_bytes_not_by_messages() {
    let mut pair = Pair::new();
    let (one, _) = pair.connect();
    pair.near.events.clear();
    pair.far.events.clear();
    let (other, _) = pair.connect();
    let source = pair.near.memory(&pattern(1 << 20, 1));
    let target = pair.far.memory(&vec![0; 1 << 20]);
    let sizes = [1 << 20, 3000];
    let mut bytes = [0u64; 2];
    for _ in 0..600 {
        for (index, qp) in [one, other].into_iter().enumerate() {
            let gather = [source.slice(0, sizes[index]).unwrap()];
            while pair.near.ctx.post_send(qp, &SendWr::write(7, &gather, at(&target))).is_ok() {}
        }
        pair.turn();
        for done in pair.near.completions.drain(..) {
            bytes[usize::from(done.qp == other.num())] += u64::from(done.byte_len);
        }
    }
    let ratio = bytes[0] as f64 / bytes[1] as f64;
    assert!((0.5..2.0).contains(&ratio), "{bytes:?} bytes completed");
}

/// semantics "Vanished peers": a queue pair with outstanding work always ends. The peer has
/// acknowledged the Read Request, so TCP waits for nothing.
#[test]
fn a_read_whose_peer_stops_responding_times_out() {
    let mut pair = Pair::over(&ironwarp::memory::MemoryConfig::default(), |address| {
        let mut config = common::config(address);
        if address.starts_with("10.0.0.2") {
            config.tcp.user_timeout = Nanos::from_secs(60);
        }
        config
    });
    let (near, _) = pair.connect();
    let (sink, source) = (pair.near.memory(&vec![0; LONG]), pair.far.memory(&pattern(LONG, 1)));
    let into = [sink.slice(0, LONG as u32).unwrap()];
    let read = SendWr::read(1, &into, at(&source));
    pair.near.ctx.post_send(near, &read).unwrap();
    (0..20).for_each(|_| pair.turn());
    assert!(pair.near.completions.is_empty(), "the Read must still run");
    let everything = FaultRates { drop_ppm: 1_000_000, ..FaultRates::default() };
    let nothing = FaultRates::default();
    pair.near.worker.port_control().set_faults(Faults { seed: 1, rx: everything, tx: nothing });
    pair.until("the end", |pair| pair.near.is_disconnected(near));
    let timed_out = |event: &Event| matches!(event, Event::Disconnected { qp, reason: DisconnectReason::TimedOut } if *qp == near);
    assert!(pair.near.events.iter().any(timed_out));
    assert_eq!(pair.near.completions[0].status, CompletionStatus::FlushedInError);
    assert_eq!(pair.near.counter("verbs_read_timeouts"), 1);
}
