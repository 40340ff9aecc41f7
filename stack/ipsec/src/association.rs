//! The security associations, and the database of them.
//!
//! Source: RFC 4301 s4.1 and s4.4.2. An association protects packets in one direction. Inbound ones
//! are found by SPI and destination, outbound ones by the request identifier of a policy and their
//! selector: the one that was added last, so that a rekeyed flow moves to its new association at
//! once.

use core::net::IpAddr;

use ironwarp_crypto::{KeyError, KeyMaterial, OpeningKey, SealingKey, Suite};
use ironwarp_types::Nanos;

use crate::engine::{Direction, Event};
use crate::ip::outer_bytes;
use crate::policy::{Selector, SelectorValues};
use crate::replay::{ReplayWindow, WINDOW_MAX, WINDOW_MIN};

/// Which headers are protected (RFC 4303 s3.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// The payload of the IP packet.
    Transport,
    /// The whole IP packet, behind an outer header between two addresses.
    Tunnel,
}

/// The ports of ESP in UDP (RFC 3948 s2.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UdpEncapsulation {
    /// Our port: 4500, that of IKE.
    pub source_port: u16,
    /// The peer's port, which a NAT may have changed.
    pub target_port: u16,
}

/// Where the packets of an association come from and go to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Endpoints {
    /// The source in the outer header.
    pub source: IpAddr,
    /// The destination in the outer header.
    pub target: IpAddr,
    /// ESP in UDP, or none.
    pub encapsulation: Option<UdpEncapsulation>,
}

/// When an association ends. At a soft limit an event asks for its successor; at a hard limit it
/// passes no more packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lifetime {
    /// Packets until the event.
    pub soft_packets: u64,
    /// Packets in all. The end of the sequence numbers limits them, too.
    pub hard_packets: u64,
    /// Bytes that the cipher takes, padding and trailer included, until the event.
    pub soft_bytes: u64,
    /// Bytes in all.
    pub hard_bytes: u64,
    /// Time since it was added, until the event.
    pub soft_time: Nanos,
    /// Time in all.
    pub hard_time: Nanos,
}

/// How the keys came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeySource {
    /// By a key exchange, fresh for this association.
    Negotiated,
    /// From a file, for tests. RFC 4106 s2: a restart would repeat the nonces of GCM, so the only
    /// suites are AES-CBC with HMAC-SHA-256.
    Static,
}

/// What both directions of an association have.
#[derive(Debug)]
pub struct AssociationConfig {
    /// The receiver's number of the association: 256 or more (RFC 4303 s2.1).
    pub spi: u32,
    /// Links it to the policies that have the same.
    pub reqid: u32,
    /// Where its packets come from and go to.
    pub endpoints: Endpoints,
    /// Transport or tunnel mode.
    pub mode: Mode,
    /// Which packets it passes, of those that its policies protect (RFC 4301 s4.4.2). In transport
    /// mode their addresses are also the endpoints.
    pub selector: Selector,
    /// What protects the packets.
    pub suite: Suite,
    /// The keys.
    pub key: KeyMaterial,
    /// How they came.
    pub key_source: KeySource,
    /// Whether sequence numbers have 64 bits (RFC 4303 s2.2.1).
    pub extended: bool,
    /// When it ends.
    pub lifetime: Lifetime,
    /// Packets of the anti-replay window, for inbound ones: 32 to 4096.
    pub window: u32,
}

/// Why an association or a policy was not added.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AddError {
    /// The table is full.
    #[error("the table is full")]
    Full,
    /// SPIs below 256 are reserved.
    #[error("the SPI is below 256, which is reserved (RFC 4303 s2.1)")]
    ReservedSpi,
    /// An association with this SPI and destination is there.
    #[error("an association with this SPI and destination exists")]
    Duplicate,
    /// There is no association with this SPI and destination.
    #[error("no association with this SPI and destination exists")]
    NotFound,
    /// Another association has or had the same keys.
    #[error("another association has or had the same keys")]
    KeyRepeated,
    /// The associations of a request identifier have one mode.
    #[error("the request identifier has associations of the other mode")]
    Mode,
    /// A limit is zero, or its event comes after the end.
    #[error("a limit of the lifetime is 0, or a soft limit is above its hard limit")]
    Lifetime,
    /// The suite may not have static keys.
    #[error("static keys are for AES-CBC with HMAC-SHA-256 only (RFC 4106 s2)")]
    StaticKey,
    /// The window is too small or too large.
    #[error("the anti-replay window must be 32 to 4096 packets")]
    Window,
    /// Source and target are of two families.
    #[error("source and target are not addresses of one family")]
    Addresses,
    /// A selector has no packets: a prefix too long, two families, an empty range of ports, ports
    /// of a protocol without ports, or in transport mode other addresses than the endpoints.
    #[error("the selector is not valid")]
    Selector,
    /// The keys were refused.
    #[error(transparent)]
    Key(#[from] KeyError),
}

/// What one association has done, for counters and dead peer detection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Usage {
    /// Packets that it passed.
    pub packets: u64,
    /// Bytes that the cipher took, padding and trailer included.
    pub bytes: u64,
    /// When it was added.
    pub added_at: Nanos,
    /// When it last passed a packet.
    pub used_at: Option<Nanos>,
}

/// An association in one direction, with the key of that direction.
pub(crate) struct Association<K> {
    direction: Direction,
    pub(crate) spi: u32,
    pub(crate) reqid: u32,
    pub(crate) endpoints: Endpoints,
    pub(crate) mode: Mode,
    selector: Selector,
    pub(crate) suite: Suite,
    pub(crate) key: K,
    pub(crate) usage: Usage,
    lifetime: Lifetime,
    fingerprint: Fingerprint,
    key_source: KeySource,
    /// Events that the owner has not read, and whether each was raised.
    soft: Limit,
    hard: Limit,
}

/// By which a key is known without keeping it.
pub(crate) type Fingerprint = [u8; 16];

/// Whether a limit was reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Limit {
    Ahead,
    Reached,
    /// The owner knows.
    Reported,
}

/// The key and the window of an inbound association.
pub(crate) struct Opening {
    pub(crate) key: OpeningKey,
    pub(crate) window: ReplayWindow,
}

impl Lifetime {
    /// No limits but the sequence numbers.
    pub const UNLIMITED: Lifetime = Lifetime {
        soft_packets: u64::MAX,
        hard_packets: u64::MAX,
        soft_bytes: u64::MAX,
        hard_bytes: u64::MAX,
        soft_time: Nanos::MAX,
        hard_time: Nanos::MAX,
    };

    fn is_valid(&self) -> bool {
        let is_ordered = |soft, hard| 0 < soft && soft <= hard;
        is_ordered(self.soft_packets, self.hard_packets)
            && is_ordered(self.soft_bytes, self.hard_bytes)
            && is_ordered(self.soft_time.0, self.hard_time.0)
    }

    /// RFC 4303 s3.3.3: no number follows the last. The successor is asked for when a sixteenth of
    /// them is left: with numbers of 32 bits 268 million packets, or 27 s of ten million a second.
    fn within_sequence(self, extended: bool) -> Lifetime {
        let last = if extended { u64::MAX } else { u64::from(u32::MAX) };
        Lifetime {
            soft_packets: self.soft_packets.min(last - last / 16),
            hard_packets: self.hard_packets.min(last),
            ..self
        }
    }
}

impl AssociationConfig {
    fn check(&self, direction: Direction) -> Result<(), AddError> {
        let is_static_suite = matches!(self.suite, Suite::AesCbc(_, ironwarp_crypto::Hmac::Sha256));
        match () {
            () if self.spi < 256 => Err(AddError::ReservedSpi),
            () if !self.lifetime.is_valid() => Err(AddError::Lifetime),
            () if !self.selector.is_valid() => Err(AddError::Selector),
            () if !(WINDOW_MIN..=WINDOW_MAX).contains(&self.window) => Err(AddError::Window),
            () if self.key_source == KeySource::Static && !is_static_suite => Err(AddError::StaticKey),
            () => self.endpoints.check(direction, self.mode, &self.selector),
        }
    }

    /// `make_key` takes the keying material, which no other key may use.
    fn with_key<K>(
        self,
        now: Nanos,
        direction: Direction,
        make_key: impl FnOnce(KeyMaterial) -> Result<K, KeyError>,
    ) -> Result<Association<K>, AddError> {
        self.check(direction)?;
        let fingerprint = self.key.fingerprint();
        Ok(Association {
            direction,
            spi: self.spi,
            reqid: self.reqid,
            endpoints: self.endpoints,
            mode: self.mode,
            selector: self.selector,
            suite: self.suite,
            key: make_key(self.key)?,
            usage: Usage { packets: 0, bytes: 0, added_at: now, used_at: None },
            lifetime: self.lifetime.within_sequence(self.extended),
            fingerprint,
            key_source: self.key_source,
            soft: Limit::Ahead,
            hard: Limit::Ahead,
        })
    }
}

impl Endpoints {
    fn check(&self, direction: Direction, mode: Mode, selector: &Selector) -> Result<(), AddError> {
        let (local, remote) = self.local_and_remote(direction);
        match mode {
            _ if local.is_ipv4() != remote.is_ipv4() => Err(AddError::Addresses),
            Mode::Transport if !selector.has_addresses(local, remote) => Err(AddError::Selector),
            Mode::Transport | Mode::Tunnel => Ok(()),
        }
    }

    fn local_and_remote(&self, direction: Direction) -> (IpAddr, IpAddr) {
        match direction {
            Direction::Inbound => (self.target, self.source),
            Direction::Outbound => (self.source, self.target),
        }
    }
}

impl Association<Opening> {
    pub(crate) fn inbound(config: AssociationConfig, now: Nanos) -> Result<Self, AddError> {
        let (suite, extended) = (config.suite, config.extended);
        let window = ReplayWindow::new(config.window, extended);
        let make_key = |key| Ok(Opening { key: OpeningKey::new(suite, key, extended)?, window });
        config.with_key(now, Direction::Inbound, make_key)
    }
}

impl Association<SealingKey> {
    pub(crate) fn outbound(config: AssociationConfig, now: Nanos) -> Result<Self, AddError> {
        let (suite, spi, extended) = (config.suite, config.spi, config.extended);
        config.with_key(now, Direction::Outbound, |key| SealingKey::new(suite, key, spi, extended))
    }
}

impl<K> Association<K> {
    /// Bytes of UDP header, ESP header and IV.
    pub(crate) fn header_bytes(&self) -> usize {
        self.udp_bytes() + ironwarp_crypto::ESP_HEADER_BYTES + self.suite.iv_bytes()
    }

    pub(crate) fn udp_bytes(&self) -> usize {
        if self.endpoints.encapsulation.is_some() { crate::UDP_BYTES } else { 0 }
    }

    /// Returns the bytes of the largest IP packet whose protected form has at most `mtu`, given the
    /// bytes of its headers that stay in clear in transport mode. 0 if none has.
    pub(crate) fn packet_bytes_max(&self, mtu: usize, ip_header_bytes: usize) -> usize {
        let (outer, inner) = match self.mode {
            Mode::Transport => (ip_header_bytes, ip_header_bytes),
            Mode::Tunnel => (outer_bytes(self.endpoints.source), 0),
        };
        let room = mtu.saturating_sub(outer + self.header_bytes() + self.suite.icv_bytes());
        let multiple = self.suite.text_multiple_bytes();
        let text = (room / multiple * multiple).saturating_sub(crate::TRAILER_BYTES);
        if text == 0 { 0 } else { inner + text }
    }

    /// RFC 4301 s4.4.2, s5.2: whether a packet has the association's selectors.
    pub(crate) fn selects(&self, values: &SelectorValues) -> bool {
        let has_endpoints = (values.local, values.remote) == self.endpoints.local_and_remote(self.direction);
        self.selector.matches(values) && (self.mode == Mode::Tunnel || has_endpoints)
    }

    /// Whether it passes packets.
    pub(crate) fn is_alive(&self, now: Nanos) -> bool {
        self.hard == Limit::Ahead && now.since(self.usage.added_at) < self.lifetime.hard_time
    }

    /// Counts a packet of which the cipher took `bytes`, and raises what it reaches.
    pub(crate) fn count(&mut self, now: Nanos, bytes: usize) {
        let Usage { packets, bytes: total, used_at, .. } = &mut self.usage;
        *packets = packets.saturating_add(1);
        *total = total.saturating_add(bytes as u64);
        *used_at = Some(now);
        self.raise_limits(now);
    }

    /// Ends it without a packet that counts: its sequence numbers have ended.
    pub(crate) fn end(&mut self) {
        (self.soft, self.hard) = (Limit::Reported, Limit::Reached);
    }

    fn raise_limits(&mut self, now: Nanos) {
        let (usage, limit, age) = (self.usage, self.lifetime, now.since(self.usage.added_at));
        let is_reached =
            |packets, bytes, time| usage.packets >= packets || usage.bytes >= bytes || age >= time;
        if self.soft == Limit::Ahead && is_reached(limit.soft_packets, limit.soft_bytes, limit.soft_time) {
            self.soft = Limit::Reached;
        }
        if self.hard == Limit::Ahead && is_reached(limit.hard_packets, limit.hard_bytes, limit.hard_time) {
            // The end says all that the warning would.
            self.end();
        }
    }

    /// Returns the event of a limit that was reached by `now`.
    fn next_event(&mut self, now: Nanos) -> Option<Event> {
        self.raise_limits(now);
        let limits = [(true, &mut self.hard), (false, &mut self.soft)];
        let (is_hard, limit) = limits.into_iter().find(|(_, limit)| **limit == Limit::Reached)?;
        *limit = Limit::Reported;
        let (direction, spi, target) = (self.direction, self.spi, self.endpoints.target);
        Some(Event::Expired { direction, spi, target, is_hard })
    }
}

/// The associations of one direction, in the order in which they were added, without gaps.
pub(crate) struct Sad<K> {
    associations: Vec<Association<K>>,
    max: usize,
}

impl<K> Sad<K> {
    pub(crate) fn new(max: usize) -> Self {
        Sad { associations: Vec::with_capacity(max), max }
    }

    pub(crate) fn add(&mut self, association: Association<K>) -> Result<(), AddError> {
        if self.associations.len() >= self.max {
            return Err(AddError::Full);
        }
        if self.position(association.spi, association.endpoints.target).is_some() {
            return Err(AddError::Duplicate);
        }
        self.associations.push(association);
        Ok(())
    }

    /// Removes an association. Returns what its key is known by, and how it came.
    pub(crate) fn remove(&mut self, spi: u32, target: IpAddr) -> Option<(Fingerprint, KeySource)> {
        let position = self.position(spi, target)?;
        // In order: the last of a request identifier is the newest.
        let removed = self.associations.remove(position);
        Some((removed.fingerprint, removed.key_source))
    }

    pub(crate) fn set_endpoints(
        &mut self,
        spi: u32,
        target: IpAddr,
        endpoints: Endpoints,
    ) -> Result<(), AddError> {
        if endpoints.target != target && self.position(spi, endpoints.target).is_some() {
            return Err(AddError::Duplicate);
        }
        let one = self.find(spi, target).ok_or(AddError::NotFound)?;
        endpoints.check(one.direction, one.mode, &one.selector)?;
        one.endpoints = endpoints;
        Ok(())
    }

    pub(crate) fn has_key(&self, fingerprint: Fingerprint) -> bool {
        self.associations.iter().any(|one| one.fingerprint == fingerprint)
    }

    pub(crate) fn has_other_mode(&self, reqid: u32, mode: Mode) -> bool {
        self.associations.iter().any(|one| one.reqid == reqid && one.mode != mode)
    }

    fn position(&self, spi: u32, target: IpAddr) -> Option<usize> {
        self.associations.iter().position(|one| one.spi == spi && one.endpoints.target == target)
    }

    pub(crate) fn find(&mut self, spi: u32, target: IpAddr) -> Option<&mut Association<K>> {
        self.associations.iter_mut().find(|one| one.spi == spi && one.endpoints.target == target)
    }

    /// Returns the newest that is alive and has the packet's selectors.
    pub(crate) fn newest(
        &mut self,
        now: Nanos,
        reqid: u32,
        values: &SelectorValues,
    ) -> Option<&mut Association<K>> {
        let mut newest_first = self.associations.iter_mut().rev();
        newest_first.find(|one| one.reqid == reqid && one.is_alive(now) && one.selects(values))
    }

    /// Returns what each has done: direction, SPI, destination.
    pub(crate) fn usages(&self) -> impl Iterator<Item = (Direction, u32, IpAddr, Usage)> {
        self.associations.iter().map(|one| (one.direction, one.spi, one.endpoints.target, one.usage))
    }

    pub(crate) fn next_event(&mut self, now: Nanos) -> Option<Event> {
        self.associations.iter_mut().find_map(|one| one.next_event(now))
    }
}
