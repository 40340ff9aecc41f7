//! A port with almost no cost. Buffers come from a list and return to it. Sent frames wait in a
//! queue until the program moves them to the other host.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use ironwarp_port::{Burst, Checksum, Frame, Port, PortCaps, RxMeta, Sealed, TxMeta, TxOffloads};
use iwarp_sim::tcp::link_address;

type Pool = Rc<RefCell<Vec<Rc<Buffer>>>>;
type Buffer = [u8; BUFFER_BYTES];

const BUFFER_BYTES: usize = 2_048;
const BUFFERS: usize = 8_192;

/// Frames to receive and frames that were sent.
#[derive(Clone, Default)]
pub struct Queues {
    to_receive: Rc<RefCell<VecDeque<BenchFrame>>>,
    sent: Rc<RefCell<VecDeque<BenchSealed>>>,
    pool: Pool,
}

/// Counts of moved frames: those with much payload, and all others.
#[derive(Clone, Copy, Default)]
pub struct Carried {
    pub full: u64,
    pub small: u64,
}

impl Queues {
    pub fn new() -> Self {
        let queues = Queues::default();
        queues.pool.borrow_mut().extend((0..BUFFERS).map(|_| Rc::new([0; BUFFER_BYTES])));
        queues.sent.borrow_mut().reserve(1_024);
        queues.to_receive.borrow_mut().reserve(1_024);
        queues
    }

    /// Moves the sent frames to the other host's receive queue, as a network card does.
    pub fn carry_to(&self, other: &Queues, rx: RxMeta) -> Carried {
        let mut carried = Carried::default();
        while let Some(sealed) = self.sent.borrow_mut().pop_front() {
            let Some(mut frame) = BenchFrame::take(&other.pool) else { break };
            let bytes = sealed.bytes();
            frame.resize(bytes.len());
            frame.bytes_mut().copy_from_slice(bytes);
            frame.rx = rx;
            *(if bytes.len() > 1_000 { &mut carried.full } else { &mut carried.small }) += 1;
            other.to_receive.borrow_mut().push_back(frame);
        }
        carried
    }
}

/// The receive metadata of a device with or without checksum offload.
pub fn verdict(offloads: bool) -> RxMeta {
    let checksum = if offloads { Checksum::Good } else { Checksum::Unknown };
    RxMeta { rss_hash: None, ip_checksum: checksum, l4_checksum: checksum }
}

pub struct BenchPort {
    caps: PortCaps,
    queues: Queues,
}

impl BenchPort {
    pub fn new(host: u8, mtu_bytes: u16, queues: Queues, offloads: bool) -> Self {
        let tx_offloads = if offloads { TxOffloads::all() } else { TxOffloads::empty() };
        let mac = link_address(host);
        let caps = PortCaps {
            mac,
            mtu_bytes,
            rx_checksum: offloads,
            tx_offloads,
            rss_hash: false,
            spread: Default::default(),
            numa_node: None,
        };
        BenchPort { caps, queues }
    }
}

impl Port for BenchPort {
    type Frame = BenchFrame;

    fn caps(&self) -> &PortCaps {
        &self.caps
    }

    fn rx_burst(&mut self, into: &mut Burst<BenchFrame>) {
        let mut waiting = self.queues.to_receive.borrow_mut();
        let frames = waiting.len().min(into.remaining_capacity());
        into.extend(waiting.drain(..frames));
    }

    fn tx_burst(&mut self, from: &mut Burst<BenchSealed>) {
        self.queues.sent.borrow_mut().extend(from.drain(..));
    }

    fn alloc(&mut self) -> Option<BenchFrame> {
        BenchFrame::take(&self.queues.pool)
    }
}

/// A reference to a buffer. Dropping the last one returns the buffer.
#[derive(Clone)]
pub struct BenchSealed {
    /// `Some` until the handle is dropped.
    buffer: Option<Rc<Buffer>>,
    len: usize,
    pool: Pool,
}

impl Sealed for BenchSealed {
    fn bytes(&self) -> &[u8] {
        self.buffer.as_ref().and_then(|buffer| buffer.get(..self.len)).unwrap_or_default()
    }
}

impl Drop for BenchSealed {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take().filter(|buffer| Rc::strong_count(buffer) == 1) {
            self.pool.borrow_mut().push(buffer);
        }
    }
}

pub struct BenchFrame {
    handle: BenchSealed,
    rx: RxMeta,
}

impl BenchFrame {
    fn take(pool: &Pool) -> Option<Self> {
        let buffer = pool.borrow_mut().pop()?;
        let handle = BenchSealed { buffer: Some(buffer), len: 0, pool: pool.clone() };
        Some(BenchFrame { handle, rx: RxMeta::default() })
    }
}

impl Frame for BenchFrame {
    type Sealed = BenchSealed;

    fn bytes(&self) -> &[u8] {
        self.handle.bytes()
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        let len = self.handle.len;
        let buffer = self.handle.buffer.as_mut().and_then(Rc::get_mut);
        buffer.and_then(|buffer| buffer.get_mut(..len)).unwrap_or_default()
    }

    fn capacity(&self) -> usize {
        BUFFER_BYTES
    }

    fn resize(&mut self, len: usize) {
        self.handle.len = len.min(BUFFER_BYTES);
    }

    fn rx(&self) -> RxMeta {
        self.rx
    }

    fn set_rx(&mut self, rx: RxMeta) {
        self.rx = rx;
    }

    fn seal(self, _tx: TxMeta) -> BenchSealed {
        self.handle
    }
}
