//! The security associations, and the database of them.
//!
//! Source: RFC 4301 s4.1 and s4.4.2. An association protects packets in one direction. Inbound ones
//! are found by SPI and destination, outbound ones by the request identifier of a policy: the one
//! that was added last, so that a rekeyed flow moves to its new association at once.

use core::net::IpAddr;

use ironwarp_crypto::{KeyError, KeyMaterial, OpeningKey, SealingKey, Suite};
use ironwarp_types::Nanos;

use crate::ip::outer_bytes;
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

/// When an association ends. At a soft limit an event asks for its successor; at a hard limit it
/// passes no more packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lifetime {
    /// Packets until the event.
    pub soft_packets: u64,
    /// Packets in all. The end of the sequence numbers limits them, too.
    pub hard_packets: u64,
    /// Bytes of IP packets, before encryption, until the event.
    pub soft_bytes: u64,
    /// Bytes in all.
    pub hard_bytes: u64,
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
    /// Where its packets come from, in the outer header.
    pub source: IpAddr,
    /// Where its packets go to, in the outer header.
    pub target: IpAddr,
    /// Transport or tunnel mode.
    pub mode: Mode,
    /// ESP in UDP, or none.
    pub encapsulation: Option<UdpEncapsulation>,
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
    /// Another association has the same keys.
    #[error("another association has the same keys")]
    KeyRepeated,
    /// The suite may not have static keys.
    #[error("static keys are for AES-CBC with HMAC-SHA-256 only (RFC 4106 s2)")]
    StaticKey,
    /// The window is too small or too large.
    #[error("the anti-replay window must be 32 to 4096 packets")]
    Window,
    /// Source and target are of two families.
    #[error("source and target are not addresses of one family")]
    Addresses,
    /// A selector has no packets: a prefix too long, two families, an empty range of ports.
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
    /// Bytes of IP packets.
    pub bytes: u64,
    /// When it was added.
    pub added_at: Nanos,
    /// When it last passed a packet.
    pub used_at: Option<Nanos>,
}

/// An association in one direction, with the key of that direction.
pub(crate) struct Association<K> {
    pub(crate) spi: u32,
    pub(crate) reqid: u32,
    pub(crate) source: IpAddr,
    pub(crate) target: IpAddr,
    pub(crate) mode: Mode,
    pub(crate) encapsulation: Option<UdpEncapsulation>,
    pub(crate) suite: Suite,
    pub(crate) key: K,
    pub(crate) usage: Usage,
    lifetime: Lifetime,
    fingerprint: [u8; 16],
    /// Events that the owner has not read, and whether each was raised.
    pub(crate) soft: Limit,
    pub(crate) hard: Limit,
}

/// Whether a limit was reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Limit {
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
    };

    /// RFC 4303 s3.3.3: no number follows the last. The successor is asked for when a sixteenth of
    /// them is left, which lasts minutes at any rate of packets.
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
    fn check(&self) -> Result<(), AddError> {
        let is_static_suite = matches!(self.suite, Suite::AesCbc(_, ironwarp_crypto::Hmac::Sha256));
        match () {
            () if self.spi < 256 => Err(AddError::ReservedSpi),
            () if self.source.is_ipv4() != self.target.is_ipv4() => Err(AddError::Addresses),
            () if !(WINDOW_MIN..=WINDOW_MAX).contains(&self.window) => Err(AddError::Window),
            () if self.key_source == KeySource::Static && !is_static_suite => Err(AddError::StaticKey),
            () => Ok(()),
        }
    }

    fn with_key<K>(self, key: K, now: Nanos) -> Association<K> {
        Association {
            spi: self.spi,
            reqid: self.reqid,
            source: self.source,
            target: self.target,
            mode: self.mode,
            encapsulation: self.encapsulation,
            suite: self.suite,
            key,
            usage: Usage { packets: 0, bytes: 0, added_at: now, used_at: None },
            lifetime: self.lifetime.within_sequence(self.extended),
            fingerprint: self.key.fingerprint(),
            soft: Limit::Ahead,
            hard: Limit::Ahead,
        }
    }
}

impl Association<Opening> {
    pub(crate) fn inbound(config: AssociationConfig, now: Nanos) -> Result<Self, AddError> {
        config.check()?;
        let key = OpeningKey::new(config.suite, &config.key, config.extended)?;
        let window = ReplayWindow::new(config.window, config.extended);
        Ok(config.with_key(Opening { key, window }, now))
    }
}

impl Association<SealingKey> {
    pub(crate) fn outbound(config: AssociationConfig, now: Nanos) -> Result<Self, AddError> {
        config.check()?;
        let key = SealingKey::new(config.suite, &config.key, config.spi, config.extended)?;
        Ok(config.with_key(key, now))
    }
}

impl<K> Association<K> {
    /// Bytes of UDP header, ESP header and IV.
    pub(crate) fn header_bytes(&self) -> usize {
        let udp = if self.encapsulation.is_some() { crate::UDP_BYTES } else { 0 };
        udp + ironwarp_crypto::ESP_HEADER_BYTES + self.suite.iv_bytes()
    }

    /// Returns the bytes of the largest IP packet whose protected form has at most `mtu`, given the
    /// bytes of its headers that stay in clear in transport mode. 0 if none has.
    pub(crate) fn packet_bytes_max(&self, mtu: usize, ip_header_bytes: usize) -> usize {
        let (outer, inner) = match self.mode {
            Mode::Transport => (ip_header_bytes, ip_header_bytes),
            Mode::Tunnel => (outer_bytes(self.source), 0),
        };
        let room = mtu.saturating_sub(outer + self.header_bytes() + self.suite.icv_bytes());
        let multiple = self.suite.text_multiple_bytes();
        let text = (room / multiple * multiple).saturating_sub(crate::TRAILER_BYTES);
        if text == 0 { 0 } else { inner + text }
    }

    /// Whether it passes packets.
    pub(crate) fn is_alive(&self) -> bool {
        self.hard == Limit::Ahead
    }

    /// Counts a packet, and raises what it reaches.
    pub(crate) fn count(&mut self, now: Nanos, bytes: usize) {
        let Usage { packets, bytes: total, used_at, .. } = &mut self.usage;
        *packets = packets.saturating_add(1);
        *total = total.saturating_add(bytes as u64);
        *used_at = Some(now);
        let limit = self.lifetime;
        let is_reached = |packets_max, bytes_max| *packets >= packets_max || *total >= bytes_max;
        if self.soft == Limit::Ahead && is_reached(limit.soft_packets, limit.soft_bytes) {
            self.soft = Limit::Reached;
        }
        if self.hard == Limit::Ahead && is_reached(limit.hard_packets, limit.hard_bytes) {
            self.hard = Limit::Reached;
        }
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
        if self.position(association.spi, association.target).is_some() {
            return Err(AddError::Duplicate);
        }
        self.associations.push(association);
        Ok(())
    }

    pub(crate) fn remove(&mut self, spi: u32, target: IpAddr) -> bool {
        let found = self.position(spi, target);
        // In order: the last of a request identifier is the newest.
        found.map(|position| self.associations.remove(position)).is_some()
    }

    pub(crate) fn has_key(&self, fingerprint: [u8; 16]) -> bool {
        self.associations.iter().any(|one| one.fingerprint == fingerprint)
    }

    fn position(&self, spi: u32, target: IpAddr) -> Option<usize> {
        self.associations.iter().position(|one| one.spi == spi && one.target == target)
    }

    pub(crate) fn find(&mut self, spi: u32, target: IpAddr) -> Option<&mut Association<K>> {
        self.associations.iter_mut().find(|one| one.spi == spi && one.target == target)
    }

    /// Returns the newest that is alive.
    pub(crate) fn newest(&mut self, reqid: u32) -> Option<&mut Association<K>> {
        self.associations.iter_mut().rev().find(|one| one.reqid == reqid && one.is_alive())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Association<K>> {
        self.associations.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Association<K>> {
        self.associations.iter_mut()
    }
}
