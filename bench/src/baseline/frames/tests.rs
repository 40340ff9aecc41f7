//! Raw frames between two ends of a port made of two queues.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use ironwarp_port::memory::{self, MemoryConfig};
use ironwarp_port::{Burst, Frame, Port, PortCaps, RxMeta, Sealed, TxMeta, TxOffloads};
use ironwarp_types::MacAddr;

use super::*;
use crate::{Budget, ServerSlice, StopCondition, StopSignal};

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
struct SealedBuffer(Arc<Vec<u8>>);

impl Frame for Buffer {
    type Sealed = SealedBuffer;

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

    fn seal(self, _tx: TxMeta) -> SealedBuffer {
        SealedBuffer(Arc::new(self.0))
    }
}

impl Sealed for SealedBuffer {
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

    fn tx_burst(&mut self, from: &mut Burst<SealedBuffer>) {
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

fn stop_after(iterations: u64, warmup: u64) -> StopCondition<'static> {
    static NEVER: AtomicBool = AtomicBool::new(false);
    StopCondition { budget: Budget::iterations(iterations, warmup), halt: &NEVER }
}

fn pair(lose_every: u64) -> (QueuePort, QueuePort) {
    let ((there, at_server), (returned, at_client)) = (channel(), channel());
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
    (port(1, at_client, there, lose_every), port(2, at_server, returned, 0))
}

/// Runs both ends, the far one on a thread of its own.
fn run<N>(
    lose_every: u64,
    client: impl FnOnce(&mut QueuePort) -> (N, u64),
    server: impl FnOnce(&mut QueuePort, &StopSignal) -> ServerSlice + Send,
) -> (N, ServerSlice) {
    let (mut client_port, mut server_port) = pair(lose_every);
    let stop = StopSignal::default();
    thread::scope(|scope| {
        let server = scope.spawn(|| server(&mut server_port, &stop));
        let (found, sent) = client(&mut client_port);
        stop.raise(sent);
        (found, server.join().expect("the far end ends"))
    })
}

#[test]
fn every_ping_comes_back_and_is_timed_once() {
    let layout = Layout::new(64, 1500);
    let (slice, server) = run(0, |port| (latency(port, layout, stop_after(100, 10), &mut 0), 0), echo);
    assert_eq!((slice.messages, slice.errors), (100, 0));
    assert_eq!(slice.latency.expect("a latency test").len(), 100);
    assert_eq!((slice.bytes, server.messages), (6400, 110));
}

#[test]
fn a_message_of_many_frames_is_back_when_its_last_frame_is() {
    let layout = Layout::new(100_000, 1500);
    let (slice, server) = run(0, |port| (latency(port, layout, stop_after(5, 0), &mut 0), 0), echo);
    assert_eq!((slice.messages, slice.errors, slice.bytes), (5, 0, 500_000));
    assert_eq!(server.messages, 5 * layout.frames);
}

#[test]
fn a_lost_message_is_an_error_and_the_next_one_is_not_confused() {
    let layout = Layout::new(64, 1500);
    let (slice, _) = run(4, |port| (latency(port, layout, stop_after(12, 0), &mut 0), 0), echo);
    assert_eq!((slice.messages, slice.errors), (9, 3));
}

#[test]
fn a_far_end_that_never_answers_ends_the_slice() {
    let layout = Layout::new(64, 1500);
    let budget = stop_after(1_000_000, 0);
    let (slice, _) = run(0, |port| (latency(port, layout, budget, &mut 0), 0), |_, _| ServerSlice::default());
    assert_eq!(slice.messages, 0);
    assert!(slice.errors > 0);
}

#[test]
fn what_is_blasted_is_counted_where_it_arrives() {
    let layout = Layout::new(65_536, 1500);
    let (sent, server) = run(
        0,
        |port| {
            let sent = send_frames(port, layout, stop_after(20, 0));
            (sent, sent.frames)
        },
        |port, stop| receive_frames(port, layout, stop),
    );
    assert_eq!(sent.frames, 20 * layout.frames);
    assert_eq!((server.messages, server.bytes, server.errors), (20, 20 * 65_536, 0));
}

#[test]
fn frames_lost_on_the_way_are_missed() {
    let layout = Layout::new(1500, 1500);
    let (sent, server) = run(
        10,
        |port| {
            let sent = send_frames(port, layout, stop_after(100, 0));
            (sent, sent.frames)
        },
        |port, stop| receive_frames(port, layout, stop),
    );
    assert_eq!(sent.frames, 100);
    assert_eq!((server.messages, server.errors, server.bytes), (90, 10, 90 * 1500));
}

/// One thread sends and receives: every frame that left is counted where it arrived.
#[test]
fn a_thread_that_plays_both_ends_counts_what_arrived() {
    let (mut client, mut server) = memory::pair(&MemoryConfig::default(), &MemoryConfig::default());
    let halt = AtomicBool::new(false);
    let until = StopCondition { budget: Budget::iterations(500, 0), halt: &halt };
    let slice = one_core_transfer(&mut client, &mut server, Layout::new(3000, 1500), until);
    assert!(slice.messages >= 500, "{slice:?}");
    assert_eq!((slice.errors, slice.bytes), (0, slice.messages * 3000));
}
