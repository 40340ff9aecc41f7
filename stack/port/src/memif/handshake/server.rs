//! The server's side of the start: takes the client's memory and rings, each checked when it
//! arrives.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use ironwarp_stats::Counter;

use super::limits::Limits;
use super::{QueueRings, Refusal, Step, UNEXPECTED};
use crate::memif::MemifConfig;
use crate::memif::RING_LOG2_MAX;
use crate::memif::region::{Holes, Region, RegionFault, RingWords};
use crate::memif::ring::{Buffers, RxRing, TxRing};
use crate::memif::socket::Channel;
use crate::memif::wire::{
    AddRegion, AddRing, Hello, Init, MODE_ETHERNET, Message, RING_C2S, VERSION, padded, same_secret,
};

/// The most regions of a client.
const REGIONS_MAX: usize = 16;
/// The most bytes of all regions of a client.
pub(super) const ALL_BYTES_MAX: u64 = 2 << 30;

/// What the client has passed so far.
#[derive(Default)]
pub(in crate::memif) struct ServerStart {
    initialised: bool,
    partial_checksums: bool,
    regions: Vec<Arc<Region>>,
    bytes: u64,
    c2s: Vec<Option<RingWords>>,
    s2c: Vec<Option<RingWords>>,
}

impl ServerStart {
    /// Sends the first message. Returns `false` if the peer is gone.
    pub(super) fn hello(channel: &Channel, config: &MemifConfig) -> bool {
        let hello = Hello::new(config.name(), config.queues, REGIONS_MAX as u16, RING_LOG2_MAX);
        channel.send(&Message::Hello(hello), "", None)
    }

    /// Handles a message of the client.
    pub(super) fn on_message(
        &mut self,
        message: Message,
        fd: Option<OwnedFd>,
        channel: &Channel,
        (config, limits): (&MemifConfig, &mut Limits),
    ) -> Result<Step, Refusal> {
        match (message, self.initialised) {
            (Message::Ack, _) => return Ok(Step::Continue),
            (Message::Init(init), false) => self.on_init(&init, config)?,
            (Message::AddRegion(region), true) => self.on_region(&region, fd, (config, limits))?,
            (Message::AddRing(ring), true) => self.on_ring(&ring, config)?,
            (Message::Connect, true) => {
                let rings = self.connect(config)?;
                let told = channel.send(&Message::Connected, config.name(), None);
                return Ok(if told { Step::Up(rings) } else { Step::Closed });
            }
            _ => return Err(UNEXPECTED),
        }
        Ok(if channel.send(&Message::Ack, "", None) { Step::Continue } else { Step::Closed })
    }

    fn on_init(&mut self, init: &Init, config: &MemifConfig) -> Result<(), Refusal> {
        if init.version.get() != VERSION {
            return Err(Refusal(Counter::PortMemifBadVersion, "Incompatible memif version"));
        }
        if init.id.get() != config.id || init.mode != MODE_ETHERNET {
            return Err(Refusal(Counter::PortMemifRefused, "No such interface"));
        }
        if let Some(secret) = &config.secret
            && !same_secret(&padded(secret.0.as_bytes()), &init.secret)
        {
            return Err(Refusal(Counter::PortMemifBadSecret, "Incorrect secret"));
        }
        self.initialised = true;
        self.partial_checksums = config.partial_checksums_with(&init.name);
        let none = || (0..config.queues).map(|_| None).collect();
        (self.c2s, self.s2c) = (none(), none());
        Ok(())
    }

    fn on_region(
        &mut self,
        wanted: &AddRegion,
        fd: Option<OwnedFd>,
        (config, limits): (&MemifConfig, &mut Limits),
    ) -> Result<(), Refusal> {
        let bad_size = |reason| Refusal(Counter::PortMemifBadSize, reason);
        let file = fd.ok_or(Refusal(Counter::PortMemifBadMessage, "Missing region fd"))?;
        if self.regions.len() >= REGIONS_MAX {
            return Err(bad_size("Too many regions"));
        }
        if usize::from(wanted.index.get()) != self.regions.len() {
            return Err(Refusal(Counter::PortMemifBadMessage, "Invalid region index"));
        }
        let bytes = wanted.size.get();
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > ALL_BYTES_MAX {
            return Err(bad_size("Regions too large"));
        }
        if !limits.may_map(bytes) {
            return Err(bad_size("Memory of earlier links is still in use"));
        }
        let holes = if config.sparse { Holes::Fill } else { Holes::Refuse };
        let region = Region::open(&file, bytes, holes).map_err(|fault| match fault {
            RegionFault::Unsealed => Refusal(Counter::PortMemifUnsealed, "Region can lose pages"),
            RegionFault::Holes => Refusal(
                Counter::PortMemifHoles,
                "Region has no pages: write to all before AddRegion, or set sparse = true at the server",
            ),
            RegionFault::Size => bad_size("Invalid region size"),
            RegionFault::Map => bad_size("Region cannot be mapped"),
        })?;
        let region = Arc::new(region);
        limits.on_mapped(&region, bytes);
        self.regions.push(region);
        Ok(())
    }

    /// Takes a ring. Its interrupt descriptor is not kept: this end polls, and writes no descriptor
    /// that the peer could make block.
    fn on_ring(&mut self, wanted: &AddRing, config: &MemifConfig) -> Result<(), Refusal> {
        let bad_ring = |reason| Refusal(Counter::PortMemifBadRing, reason);
        let rings = if wanted.flags.get() & RING_C2S != 0 { &mut self.c2s } else { &mut self.s2c };
        let place = rings.get_mut(usize::from(wanted.index.get()));
        let other_number = Refusal(Counter::PortMemifRefused, "Invalid ring index");
        let place = place.ok_or(other_number)?;
        if place.is_some() || !(1..=RING_LOG2_MAX).contains(&wanted.log2_ring_size) {
            return Err(bad_ring("Invalid ring"));
        }
        debug_assert!(usize::from(wanted.index.get()) < usize::from(config.queues));
        let region =
            self.regions.get(usize::from(wanted.region.get())).ok_or(bad_ring("Invalid ring region"))?;
        let words = RingWords::new(region, wanted.offset.get() as usize, wanted.log2_ring_size);
        let words = words.filter(RingWords::has_cookie).ok_or(bad_ring("Wrong ring"))?;
        *place = Some(words);
        Ok(())
    }

    /// Returns the rings of each queue pair, if the client has passed all.
    fn connect(&mut self, config: &MemifConfig) -> Result<Vec<QueueRings>, Refusal> {
        let regions: Arc<[Arc<Region>]> = core::mem::take(&mut self.regions).into();
        let pairs = core::mem::take(&mut self.c2s).into_iter().zip(core::mem::take(&mut self.s2c));
        let rings = pairs.map(|(c2s, s2c)| {
            let buffers = Buffers::Theirs(regions.clone());
            Some(QueueRings {
                rx: RxRing::new(c2s?, buffers.clone(), self.partial_checksums),
                tx: TxRing::new(s2c?, buffers, self.partial_checksums),
                in_place: None,
            })
        });
        let rings: Option<Vec<_>> = rings.collect();
        let complete = rings.filter(|rings| rings.len() == usize::from(config.queues));
        complete.ok_or(Refusal(Counter::PortMemifRefused, "Another number of rings"))
    }
}
