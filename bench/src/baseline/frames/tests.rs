//! Raw frames between two ends of a port made of two queues.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use ironwarp_port::memory::{self, MemoryConfig};
use ironwarp_port::{Burst, Frame, Port, PortCaps, RxMeta, Sealed, TxMeta, TxOffloads};
use ironwarp_types::MacAddr;

use super::*;
use crate::{Budget, FarSlice, Pace, StopSignal};

struct QueuePort {
    caps: PortCaps,
    rx: Receiver<Vec<u8>>,
    tx: Sender<Vec<u8>>,
    /// Every how many frames one is lost on its way out; 0 loses none.
    lose_every: u64,
    sent: u64,
}

struct Buffer(Vec<u8>, RxMeta);

#[derive(Clone)]
struct Fixed(Arc<Vec<u8>>);

impl Frame for Buffer {
    type Sealed = Fixed;

    fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }

    fn capacity(&self) -> usize {
        10_000
    }

    fn resize(&mut self, len: usize) {
        self.0.resize(len.min(self.capacity()), 0);
    }

    fn rx(&self) -> RxMeta {
        self.1
    }

    fn set_rx(&mut self, meta: RxMeta) {
        self.1 = meta;
    }

    fn seal(self, _tx: TxMeta) -> Fixed {
        Fixed(Arc::new(self.0))
    }
}

impl Sealed for Fixed {
    fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Port for QueuePort {
    type Frame = Buffer;

    fn caps(&self) -> &PortCaps {
        &self.caps
    }

    fn rx_burst(&mut self, into: &mut Burst<Buffer>) {
        while let Some(frame) = (!into.is_full()).then(|| self.rx.try_recv().ok()).flatten() {
            into.push(Buffer(frame, RxMeta::default()));
        }
        if into.is_empty() {
            thread::yield_now();
        }
    }

    fn tx_burst(&mut self, from: &mut Burst<Fixed>) {
        for frame in from.drain(..) {
            self.sent += 1;
            if self.lose_every == 0 || !self.sent.is_multiple_of(self.lose_every) {
                // A far end that has gone takes nothing, as on a real link.
                let _ = self.tx.send(frame.0.to_vec());
            }
        }
    }

    fn alloc(&mut self) -> Option<Buffer> {
        Some(Buffer(Vec::new(), RxMeta::default()))
    }
}

fn pace(iterations: u64, warmup: u64) -> Pace<'static> {
    static NEVER: AtomicBool = AtomicBool::new(false);
    Pace { budget: Budget::iterations(iterations, warmup), halt: &NEVER }
}

fn pair(lose_every: u64) -> (QueuePort, QueuePort) {
    let ((there, at_far), (back, at_near)) = (channel(), channel());
    let port = |mac, rx, tx, lose_every| QueuePort {
        caps: PortCaps {
            mac: MacAddr([2, 0, 0, 0, 0, mac]),
            mtu_bytes: 9000,
            rx_checksum: false,
            tx_offloads: TxOffloads::empty(),
            rss_hash: false,
            spread: Default::default(),
            numa_node: None,
        },
        rx,
        tx,
        lose_every,
        sent: 0,
    };
    (port(1, at_near, there, lose_every), port(2, at_far, back, 0))
}

/// Runs both ends, the far one on a thread of its own.
fn run<N>(
    lose_every: u64,
    near: impl FnOnce(&mut QueuePort) -> (N, u64),
    far: impl FnOnce(&mut QueuePort, &StopSignal) -> FarSlice + Send,
) -> (N, FarSlice) {
    let (mut near_port, mut far_port) = pair(lose_every);
    let stop = StopSignal::default();
    thread::scope(|scope| {
        let far = scope.spawn(|| far(&mut far_port, &stop));
        let (found, sent) = near(&mut near_port);
        stop.raise(sent);
        (found, far.join().expect("the far end ends"))
    })
}

#[test]
fn every_ping_comes_back_and_is_timed_once() {
    let layout = Layout::new(64, 1500);
    let (slice, far) = run(0, |port| (latency(port, layout, pace(100, 10), &mut 0), 0), echo);
    assert_eq!((slice.messages, slice.errors), (100, 0));
    assert_eq!(slice.latency.expect("a latency test").len(), 100);
    assert_eq!((slice.bytes, far.messages), (6400, 110));
}

#[test]
fn a_message_of_many_frames_is_back_when_its_last_frame_is() {
    let layout = Layout::new(100_000, 1500);
    let (slice, far) = run(0, |port| (latency(port, layout, pace(5, 0), &mut 0), 0), echo);
    assert_eq!((slice.messages, slice.errors, slice.bytes), (5, 0, 500_000));
    assert_eq!(far.messages, 5 * layout.frames);
}

#[test]
fn a_lost_message_is_an_error_and_the_next_one_is_not_confused() {
    let layout = Layout::new(64, 1500);
    let (slice, _) = run(4, |port| (latency(port, layout, pace(12, 0), &mut 0), 0), echo);
    assert_eq!((slice.messages, slice.errors), (9, 3));
}

#[test]
fn a_far_end_that_never_answers_ends_the_slice() {
    let layout = Layout::new(64, 1500);
    let budget = pace(1_000_000, 0);
    let (slice, _) = run(0, |port| (latency(port, layout, budget, &mut 0), 0), |_, _| FarSlice::default());
    assert_eq!(slice.messages, 0);
    assert!(slice.errors > 0);
}

#[test]
fn what_is_blasted_is_counted_where_it_arrives() {
    let layout = Layout::new(65_536, 1500);
    let (sent, far) = run(
        0,
        |port| {
            let sent = blast(port, layout, pace(20, 0));
            (sent, sent.frames)
        },
        |port, stop| sink(port, layout, stop),
    );
    assert_eq!(sent.frames, 20 * layout.frames);
    assert_eq!((far.messages, far.bytes, far.errors), (20, 20 * 65_536, 0));
}

#[test]
fn frames_lost_on_the_way_are_missed() {
    let layout = Layout::new(1500, 1500);
    let (sent, far) = run(
        10,
        |port| {
            let sent = blast(port, layout, pace(100, 0));
            (sent, sent.frames)
        },
        |port, stop| sink(port, layout, stop),
    );
    assert_eq!(sent.frames, 100);
    assert_eq!((far.messages, far.errors, far.bytes), (90, 10, 90 * 1500));
}

/// One thread sends and receives: every frame that left is counted where it arrived.
#[test]
fn a_thread_that_plays_both_ends_counts_what_arrived() {
    let (mut near, mut far) = memory::pair(&MemoryConfig::default(), &MemoryConfig::default());
    let halt = AtomicBool::new(false);
    let pace = Pace { budget: Budget::iterations(500, 0), halt: &halt };
    let slice = relay(&mut near, &mut far, Layout::new(3000, 1500), pace);
    assert!(slice.messages >= 500, "{slice:?}");
    assert_eq!((slice.errors, slice.bytes), (0, slice.messages * 3000));
}
