//! A link whose peer a sequence of bytes describes, for the fuzzer and for tests.
//!
//! Here whole links come and go over sockets; `rings.rs` has the rings alone, a hundred times as
//! fast.
//!
//! The peer sends messages, right ones and any others, with and without descriptors, writes any
//! word and descriptor of the shared memory, and moves its indices, while this end receives and
//! sends. The control side and the rings are those of a port; the harness stands for the port, so
//! that no thread makes a run differ from the next one of the same bytes.
#![forbid(unsafe_code)]

mod rings;
#[cfg(test)]
mod tests;

pub use rings::hostile_rings;

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ironwarp_stats::{CoreStats, Counter};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use zerocopy::little_endian::{U16, U32, U64};

use super::handshake::{Control, QueueRings, Shared};
use super::region::{Descriptor, Holes, Region, RingWords};
use super::ring::RingFault;
use super::socket::{Channel, Received};
use super::wire::{AddRegion, AddRing, Disconnect, Hello, Init, Message, RING_C2S, VERSION};
use super::{MemifConfig, MemifRole};
use super::{MemifFrame, MemifSealed};
use crate::pool::Pool;
use crate::{Burst, Frame, Sealed, TxMeta};

/// Frames of each pool.
const FRAMES: usize = 32;
/// Bytes of the hostile client's memory, of its rings' first one, and the offset of the second.
const REGION_BYTES: u64 = 16 << 10;
const S2C_OFFSET: u32 = 1_024;
/// Descriptors of a ring, as a power of two.
const RING_LOG2: u8 = 3;
/// Received frames that the stack holds at most.
const HELD_MAX: usize = 8;
/// Steps of a script. More of them find no more in the same time: a step costs system calls.
const STEPS_MAX: usize = 96;

/// What a run has reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reached {
    /// Links that came up, and links that ended.
    pub connects: u64,
    /// See above.
    pub disconnects: u64,
    /// Frames received and sent.
    pub received: u64,
    /// See above.
    pub sent: u64,
}

/// The bytes that are left. Past the end it reads zeros.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        let (here, rest) = self.0.split_at(N.min(self.0.len()));
        array.iter_mut().zip(here).for_each(|(to, from)| *to = *from);
        self.0 = rest;
        array
    }

    fn u8(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// A number that is usually `usual`.
    fn near(&mut self, usual: u32) -> u32 {
        match self.u8() {
            0..=199 => usual,
            200..=239 => usual.wrapping_add(u32::from(self.u8())),
            _ => self.u32(),
        }
    }
}

/// This end and its peer.
struct Link {
    config: MemifConfig,
    shared: Arc<Shared>,
    control: Control,
    stats: CoreStats,
    now: Instant,
    generation: u64,
    rings: Option<QueueRings>,
    pools: [Pool; 2],
    held: Vec<MemifFrame>,
    received: u64,
    peer: Peer,
}

/// The hostile end.
struct Peer {
    channel: Channel,
    /// Its view of the shared memory, and of the rings: from client to server, and back.
    region: Option<Arc<Region>>,
    rings: [Option<RingWords>; 2],
    regions_sent: u16,
}

/// Runs a link whose peer does what `script` says; its first byte chooses the roles and the number
/// of queues.
pub fn hostile_peer(script: &[u8]) -> Reached {
    let mut input = Input(script);
    let first = input.u8();
    let role = if first & 1 == 0 { MemifRole::Server } else { MemifRole::Client };
    let mut link = Link::new(role, 1 + u16::from(first >> 1 & 1));
    for _ in 0..STEPS_MAX {
        if input.0.is_empty() {
            break;
        }
        link.step(&mut input);
    }
    link.finish()
}

impl Link {
    fn new(role: MemifRole, queues: u16) -> Self {
        let config = MemifConfig {
            role,
            buffer_bytes: 512,
            ring_log2: RING_LOG2,
            rx_frames: FRAMES,
            tx_frames: FRAMES,
            queues,
            ..MemifConfig::server("")
        };
        let (shared, stats, now) = (Shared::new(), CoreStats::detached(), Instant::now());
        let (ours, theirs) = Channel::pair();
        let control = Control::with_peer(config.clone(), shared.clone(), ours, (now, &stats));
        let pool = || Pool::new(FRAMES, config.frame_bytes());
        let pools = [pool(), pool()];
        let peer = Peer { channel: theirs, region: None, rings: [None, None], regions_sent: 0 };
        Link {
            config,
            shared,
            control,
            stats,
            now,
            generation: 0,
            rings: None,
            pools,
            held: Vec::new(),
            received: 0,
            peer,
        }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.u8() % 12 {
            0 => self.start(),
            1 => self.receive(),
            2 => self.send(input),
            3 => self.peer.write_word(input),
            4 => self.peer.write_descriptor(input),
            5 => self.peer.move_index(input),
            6 => self.peer.offer(input),
            7 => self.peer.say(input),
            8 => self.peer.say_anything(input),
            9 => self.poll(),
            10 => {
                self.now += Duration::from_millis(u64::from(input.u16()));
                self.poll();
            }
            _ => self.reconnect(),
        }
    }

    /// The control side handles what has arrived, and the peer reads what was sent to it.
    fn poll(&mut self) {
        self.control.poll(self.now, &self.stats);
        self.peer.listen();
    }

    /// The peer closes its socket, and another one comes.
    fn reconnect(&mut self) {
        let (ours, theirs) = Channel::pair();
        self.peer = Peer { channel: theirs, region: None, rings: [None, None], regions_sent: 0 };
        self.poll();
        self.control.set_peer(ours, (self.now, &self.stats));
    }

    /// The peer starts the link as the protocol says, if nothing has been said yet.
    fn start(&mut self) {
        self.poll();
        match self.config.role {
            MemifRole::Server => self.start_as_client(),
            MemifRole::Client => self.start_as_server(),
        }
        self.poll();
    }

    fn start_as_client(&mut self) {
        let (init, add_region) = (usual_init(), usual_region(0));
        self.tell(&Message::Init(init), None);
        let file = memory_file(REGION_BYTES, SealFlags::SHRINK);
        self.peer.map(&file, REGION_BYTES);
        self.peer.regions_sent += 1;
        self.tell(&Message::AddRegion(add_region), Some(&file));
        for queue in 0..self.config.queues {
            for (flags, offset) in [(RING_C2S, 0), (0, S2C_OFFSET)] {
                self.tell(&Message::AddRing(usual_ring(flags, queue, offset)), None);
            }
        }
        self.tell(&Message::Connect, None);
    }

    fn start_as_server(&mut self) {
        self.tell(&Message::Hello(Hello::new("peer", self.config.queues, 16, 14)), None);
        // Init, a region, two rings for each queue pair.
        for _ in 0..2 + 2 * self.config.queues {
            self.tell(&Message::Ack, None);
        }
        self.tell(&Message::Connected, None);
    }

    fn tell(&mut self, message: &Message, fd: Option<&OwnedFd>) {
        self.peer.channel.send(message, "peer", fd.map(AsFd::as_fd));
        self.poll();
    }

    /// Takes the rings of a new link, as a port does.
    fn keep_up(&mut self) {
        if self.shared.generation.load(Ordering::Acquire) != self.generation {
            self.retire_rings();
            (self.generation, self.rings) = self.shared.take(0);
        }
    }

    fn retire_rings(&mut self) {
        if let Some(rings) = self.rings.take() {
            self.shared.retire(rings);
        }
    }

    fn on_fault(&mut self, RingFault(reason): RingFault) {
        self.stats.count(reason);
        self.retire_rings();
        self.shared.broken.store(self.generation, Ordering::Release);
    }

    fn receive(&mut self) {
        self.keep_up();
        let Some(rings) = &mut self.rings else { return };
        let mut burst = Burst::new();
        let result = rings.rx.receive(&mut burst, &mut self.pools[0], &self.stats);
        self.received += burst.len() as u64;
        for frame in &burst {
            // Whatever the peer does meanwhile, a received frame does not change.
            let copy = frame.bytes().to_vec();
            self.peer.scribble();
            assert!(!copy.is_empty() && copy.len() <= frame.capacity() && copy == frame.bytes());
        }
        let room = HELD_MAX - self.held.len();
        self.held.extend(burst.into_iter().take(room));
        if let Err(fault) = result {
            self.on_fault(fault);
        }
    }

    fn send(&mut self, input: &mut Input<'_>) {
        let (count, bytes) = (input.u8() % 16, usize::from(input.u16()));
        self.keep_up();
        // The stack is done with some of what it has received.
        self.held.truncate(usize::from(count) / 2);
        let mut burst: Burst<MemifSealed> = Burst::new();
        for _ in 0..count {
            let Some(mut frame) = self.pools[1].take() else { break };
            frame.resize(1 + bytes % self.config.frame_bytes());
            frame.bytes_mut().fill(count);
            burst.push(frame.seal(TxMeta::default()));
        }
        let waiting = burst.len();
        let Some(rings) = &mut self.rings else { return };
        match rings.tx.send(&mut burst) {
            Ok(sent) => {
                assert_eq!(sent + burst.len(), waiting);
                self.stats.add(Counter::PortTxFrames, sent as u64);
            }
            Err(fault) => self.on_fault(fault),
        }
        assert!(burst.iter().all(|frame| frame.bytes().iter().all(|byte| *byte == count)));
    }

    /// Nothing is left behind, whatever happened.
    fn finish(mut self) -> Reached {
        let count = |counter| self.stats.read(counter);
        let reached = Reached {
            connects: count(Counter::PortMemifConnects),
            disconnects: count(Counter::PortMemifDisconnects),
            received: self.received,
            sent: count(Counter::PortTxFrames),
        };
        assert_eq!(count(Counter::PortRxFrames), self.received);
        assert!(reached.disconnects <= reached.connects && reached.connects <= reached.disconnects + 1);
        self.held.clear();
        assert_eq!(self.pools.map(|pool| pool.free_frames()), [FRAMES; 2]);
        reached
    }
}

impl Peer {
    fn map(&mut self, file: &OwnedFd, bytes: u64) {
        let Ok(region) = Region::view(file, bytes as usize) else { return };
        let region = Arc::new(region);
        self.rings = [0, S2C_OFFSET].map(|offset| RingWords::new(&region, offset as usize, RING_LOG2));
        self.rings.iter().flatten().for_each(RingWords::initialise);
        self.region = Some(region);
    }

    /// Reads what was sent to it. As a server it maps the client's memory.
    fn listen(&mut self) {
        while let Received::Message(message, fd) = self.channel.receive() {
            match (message, fd) {
                (Message::AddRegion(added), Some(fd)) => {
                    self.region = Region::open(&fd, added.size.get(), Holes::Refuse).ok().map(Arc::new);
                }
                (Message::AddRing(added), _) if added.index.get() == 0 => {
                    let Some(region) = &self.region else { continue };
                    let words = RingWords::new(region, added.offset.get() as usize, added.log2_ring_size);
                    self.rings[usize::from(added.flags.get() & 1 ^ 1)] = words;
                }
                _ => {}
            }
        }
    }

    /// Changes bytes behind the rings.
    fn scribble(&self) {
        if let Some(region) = &self.region {
            region.write(S2C_OFFSET as usize * 2, &[0xa5; 64]);
        }
    }

    fn write_word(&self, input: &mut Input<'_>) {
        let (at, word) = (usize::from(input.u16()) * 8, input.u64());
        if let Some(region) = &self.region {
            region.write(at, &word.to_le_bytes());
        }
    }

    fn ring(&self, number: u8) -> Option<&RingWords> {
        self.rings[usize::from(number & 1)].as_ref()
    }

    fn write_descriptor(&self, input: &mut Input<'_>) {
        let (number, slot) = (input.u8(), input.u16());
        let descriptor = Descriptor {
            flags: input.near(0) as u16,
            region: input.near(0) as u16,
            len: input.near(64),
            offset: input.near(2 * S2C_OFFSET),
        };
        if let Some(ring) = self.ring(number) {
            ring.set_descriptor(slot, descriptor);
        }
    }

    /// Moves an index from where it is, or from where the other one is.
    fn move_index(&self, input: &mut Input<'_>) {
        let (which, by) = (input.u8(), input.u16());
        let Some(ring) = self.ring(which) else { return };
        let (one, other) =
            if which & 2 == 0 { (ring.head(), ring.tail()) } else { (ring.tail(), ring.head()) };
        let base = if which & 4 == 0 { one } else { other };
        one.store(base.load(Ordering::Acquire).wrapping_add(by), Ordering::Release);
    }

    /// As a client sends a frame or offers buffers, with descriptors that are right, then moves the
    /// head.
    fn offer(&self, input: &mut Input<'_>) {
        let (number, count) = (input.u8(), u16::from(input.u8() % 10));
        let (flags, len) = (u16::from(input.u8() & 1), u32::from(input.u16() % 512));
        let Some(ring) = self.ring(number) else { return };
        let head = ring.head().load(Ordering::Acquire);
        for slot in 0..count {
            let last = slot + 1 == count;
            let flags = if last { 0 } else { flags };
            let offset = 2 * S2C_OFFSET + u32::from(slot) * 512;
            ring.set_descriptor(head.wrapping_add(slot), Descriptor { flags, region: 0, len, offset });
        }
        ring.head().store(head.wrapping_add(count), Ordering::Release);
    }

    /// Sends a message that is usually right in itself.
    fn say(&mut self, input: &mut Input<'_>) {
        let message = match input.u8() % 8 {
            0 => Message::Ack,
            1 => {
                let last_ring = input.near(1) as u16;
                let mut hello = Hello::new("peer", last_ring, input.near(16) as u16, input.near(14) as u8);
                hello.min_version = U16::new(input.near(VERSION.into()) as u16);
                Message::Hello(hello)
            }
            2 => {
                let mut init = usual_init();
                init.version = U16::new(input.near(VERSION.into()) as u16);
                (init.id, init.mode) = (U32::new(input.near(0)), input.near(0) as u8);
                Message::Init(init)
            }
            3 => {
                let mut region = usual_region(input.near(self.regions_sent.into()) as u16);
                region.size = U64::new(u64::from(input.near(REGION_BYTES as u32)));
                self.regions_sent += 1;
                Message::AddRegion(region)
            }
            4 => {
                let (flags, queue) = (input.u8() & 1, input.near(0) as u16);
                let usual = if flags == 0 { S2C_OFFSET } else { 0 };
                let mut ring = usual_ring(flags.into(), queue, input.near(usual));
                ring.region = U16::new(input.near(0) as u16);
                ring.log2_ring_size = input.near(RING_LOG2.into()) as u8;
                Message::AddRing(ring)
            }
            5 => Message::Connect,
            6 => Message::Connected,
            _ => Message::Disconnect(Disconnect::new("fuzz")),
        };
        let fd = self.descriptor(input);
        self.channel.send(&message, "peer", fd.as_ref().map(AsFd::as_fd));
    }

    /// A descriptor of some kind, or none.
    fn descriptor(&mut self, input: &mut Input<'_>) -> Option<OwnedFd> {
        Some(match input.u8() % 8 {
            0..=2 => return None,
            3 => memory_file(REGION_BYTES, SealFlags::empty()),
            4 => sparse_file(REGION_BYTES, SealFlags::SHRINK),
            5 => memory_file(REGION_BYTES, SealFlags::SHRINK | SealFlags::WRITE),
            6 => eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok()?,
            _ => {
                let file = memory_file(REGION_BYTES, SealFlags::SHRINK);
                if self.region.is_none() {
                    self.map(&file, REGION_BYTES);
                }
                file
            }
        })
    }

    /// Sends any bytes.
    fn say_anything(&self, input: &mut Input<'_>) {
        let len = usize::from(input.u8() % 136);
        let bytes: Vec<u8> = (0..len).map(|_| input.u8()).collect();
        self.channel.try_send_raw(&bytes);
    }
}

/// Returns a file all of whose pages exist.
fn memory_file(bytes: u64, seals: SealFlags) -> OwnedFd {
    let file = sparse_file(bytes, SealFlags::empty());
    rustix::io::pwrite(&file, &[0; REGION_BYTES as usize], 0).expect("pages");
    fcntl_add_seals(&file, seals).expect("seals");
    file
}

fn sparse_file(bytes: u64, seals: SealFlags) -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = memfd_create("hostile", flags).expect("a memfd");
    ftruncate(&file, bytes).expect("a length");
    fcntl_add_seals(&file, seals).expect("seals");
    file
}

fn usual_init() -> Init {
    Init { version: U16::new(VERSION), id: U32::new(0), mode: 0, secret: [0; 24], name: [0; 32] }
}

fn usual_region(index: u16) -> AddRegion {
    AddRegion { index: U16::new(index), size: U64::new(REGION_BYTES) }
}

fn usual_ring(flags: u16, queue: u16, offset: u32) -> AddRing {
    AddRing {
        flags: U16::new(flags),
        index: U16::new(queue),
        region: U16::new(0),
        offset: U32::new(offset),
        log2_ring_size: RING_LOG2,
        private_hdr_size: U16::new(0),
    }
}
