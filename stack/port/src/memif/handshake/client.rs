//! The client's side of the start: makes the memory of the link and passes it, one message for each
//! acknowledgement.
//!
//! Every page is written before the memory is passed, so that it belongs to the client; once the
//! server has its mapping, nobody can punch holes into it.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use ironwarp_stats::Counter;
use rustix::event::{EventfdFlags, eventfd};
use zerocopy::little_endian::{U16, U32, U64};

use super::{QueueRings, Refusal, Step, UNEXPECTED};
use crate::memif::MemifConfig;
use crate::memif::region::{
    DESCRIPTOR_BYTES, REGION_BYTES_MAX, RING_HEADER_BYTES, Region, RingWords, forbid_holes, has_holes,
};
use crate::memif::ring::{Buffers, RxRing, TxRing};
use crate::memif::socket::Channel;
use crate::memif::wire::{
    AddRegion, AddRing, Hello, Init, MODE_ETHERNET, Message, RING_C2S, VERSION, padded,
};

/// Buffers for frames that are sent in place, for each slot of a ring: as many frames may wait for
/// acknowledgements as for the peer.
const IN_PLACE_PER_SLOT: usize = 2;

/// The memory of a link, and the messages that are not sent yet.
#[derive(Default)]
pub(in crate::memif) struct ClientStart {
    /// The link has buffers for frames that are sent in place.
    in_place: bool,
    memory: Option<Arc<Region>>,
    /// The file of the memory.
    file: Option<OwnedFd>,
    log2: u8,
    partial_checksums: bool,
    messages: VecDeque<(Message, Option<OwnedFd>)>,
}

impl ClientStart {
    pub(super) fn new(in_place: bool) -> Self {
        ClientStart { in_place, ..Self::default() }
    }

    /// Handles a message of the server.
    pub(super) fn on_message(
        &mut self,
        message: Message,
        channel: &Channel,
        config: &MemifConfig,
    ) -> Result<Step, Refusal> {
        match message {
            Message::Hello(hello) if self.memory.is_none() => self.on_hello(&hello, config)?,
            Message::Ack if !self.messages.is_empty() => {}
            Message::Connected if self.memory.is_some() && self.messages.is_empty() => {
                return self.connect(config).map(Step::Up);
            }
            _ => return Err(UNEXPECTED),
        }
        let Some((next, fd)) = self.messages.pop_front() else { return Err(UNEXPECTED) };
        let sent = channel.send(&next, config.name(), fd.as_ref().map(AsFd::as_fd));
        Ok(if sent { Step::Continue } else { Step::Closed })
    }

    fn on_hello(&mut self, hello: &Hello, config: &MemifConfig) -> Result<(), Refusal> {
        if hello.min_version.get() > VERSION || hello.max_version.get() < VERSION {
            return Err(Refusal(Counter::PortMemifBadVersion, "Incompatible memif version"));
        }
        if hello.max_c2s_ring.get().min(hello.max_s2c_ring.get()) < config.queues.saturating_sub(1) {
            return Err(Refusal(Counter::PortMemifRefused, "Another number of rings"));
        }
        self.partial_checksums = config.partial_checksums_with(&hello.name);
        self.log2 = config.ring_log2.min(hello.max_log2_ring_size);
        if self.log2 == 0 {
            return Err(Refusal(Counter::PortMemifBadRing, "Invalid ring size"));
        }
        self.prepare(config).map_err(|_| Refusal(Counter::PortMemifBadSize, "No memory"))
    }

    /// Creates the region and all messages.
    fn prepare(&mut self, config: &MemifConfig) -> std::io::Result<()> {
        self.in_place &= self.region_bytes(config) <= REGION_BYTES_MAX as usize;
        let (region, file) = Region::create(self.region_bytes(config))?;
        let (region, bytes) = (Arc::new(region), self.region_bytes(config) as u64);
        self.file = Some(file.try_clone()?);
        let secret = config.secret.as_ref().map_or("", |secret| &secret.0);
        let init = Init {
            version: U16::new(VERSION),
            id: U32::new(config.id),
            mode: MODE_ETHERNET,
            secret: padded(secret.as_bytes()),
            name: padded(config.name().as_bytes()),
        };
        self.messages.push_back((Message::Init(init), None));
        let add_region = AddRegion { index: U16::new(0), size: U64::new(bytes) };
        self.messages.push_back((Message::AddRegion(add_region), Some(file)));
        for (flags, first) in [(RING_C2S, 0), (0, config.queues)] {
            for queue in 0..config.queues {
                let offset = self.ring_offset(first + queue);
                let words =
                    RingWords::new(&region, offset, self.log2).ok_or(std::io::ErrorKind::OutOfMemory)?;
                words.initialise();
                let ring = AddRing {
                    flags: U16::new(flags),
                    index: U16::new(queue),
                    region: U16::new(0),
                    offset: U32::new(offset as u32),
                    log2_ring_size: self.log2,
                    private_hdr_size: U16::new(0),
                };
                // Both ends poll. Drivers expect a descriptor all the same.
                let unused = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
                self.messages.push_back((Message::AddRing(ring), Some(unused)));
            }
        }
        self.messages.push_back((Message::Connect, None));
        self.memory = Some(region);
        Ok(())
    }

    fn ring_bytes(&self) -> usize {
        // Whole cache lines, so that no two rings share one.
        (RING_HEADER_BYTES + (DESCRIPTOR_BYTES << self.log2)).next_multiple_of(128)
    }

    /// Returns the offset of a ring: first those to the server, then those from it.
    fn ring_offset(&self, ring: u16) -> usize {
        usize::from(ring) * self.ring_bytes()
    }

    /// Returns the offset of a ring's buffers, which follow all rings.
    fn buffers_offset(&self, config: &MemifConfig, ring: u16) -> usize {
        let rings = self.ring_offset(config.queues * 2).next_multiple_of(4096);
        rings + (usize::from(ring) << self.log2) * config.slot_bytes()
    }

    /// Returns the offset of the buffers of a queue pair for frames in place, behind all others.
    fn in_place_offset(&self, config: &MemifConfig, queue: u16) -> usize {
        let before = usize::from(queue) * self.in_place_buffers(config);
        self.buffers_offset(config, config.queues * 2) + before * config.slot_bytes()
    }

    /// Returns how many of them a queue pair has. A frame must fit one.
    fn in_place_buffers(&self, config: &MemifConfig) -> usize {
        let has_some = self.in_place && config.slot_bytes() >= config.frame_bytes();
        if has_some { IN_PLACE_PER_SLOT << self.log2 } else { 0 }
    }

    fn region_bytes(&self, config: &MemifConfig) -> usize {
        self.in_place_offset(config, config.queues)
    }

    /// Returns the rings of each queue pair, with empty buffers offered.
    fn connect(&mut self, config: &MemifConfig) -> Result<Vec<QueueRings>, Refusal> {
        let region = self.memory.take().ok_or(UNEXPECTED)?;
        let file = self.file.take().ok_or(UNEXPECTED)?;
        if !forbid_holes(&file) || has_holes(&file, self.region_bytes(config) as u64) {
            return Err(Refusal(Counter::PortMemifHoles, "The server has punched holes into the region"));
        }
        let bytes = config.slot_bytes() as u32;
        let ring = |number| {
            let words = RingWords::new(&region, self.ring_offset(number), self.log2)?;
            let first = self.buffers_offset(config, number) as u32;
            Some((words, Buffers::Ours { region: region.clone(), first, bytes }))
        };
        let pair = |queue| {
            let ((c2s, to_server), (s2c, to_client)) = (ring(queue)?, ring(config.queues + queue)?);
            let (offset, buffers) = (self.in_place_offset(config, queue), self.in_place_buffers(config));
            let in_place = region.pool(offset, buffers, config.slot_bytes());
            let partial = self.partial_checksums;
            Some(QueueRings {
                rx: RxRing::new(s2c, to_client, partial),
                tx: TxRing::new(c2s, to_server, partial),
                in_place,
            })
        };
        let rings: Option<Vec<_>> = (0..config.queues).map(pair).collect();
        rings.ok_or(Refusal(Counter::PortMemifBadRing, "Wrong ring"))
    }
}
