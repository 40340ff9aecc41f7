//! The engine's settings and limits.
//!
//! When a limit is reached, the engine refuses and counts the request. No table grows.

use core::net::IpAddr;

use ironwarp_types::Nanos;
use thiserror::Error;

use crate::paths::PATHS_MAX;

/// The most addresses that an association uses, on each side.
pub const ADDRESSES_MAX: usize = PATHS_MAX;

/// RFC 9260 s3.3.2: the smallest receive window that a peer may announce, in bytes.
pub const A_RWND_BYTES_MIN: u32 = 1_500;

/// RFC 9260 s6.2: the longest SACK.Delay.
const SACK_DELAY_MAX: Nanos = Nanos::from_millis(500);

/// Settings of one core's engine. All have defaults.
///
/// What an administrator may set has the names of the keys in a configuration, with their units;
/// what a stack derives from other settings has none.
#[derive(Clone, PartialEq, Eq, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SctpConfig {
    /// The addresses of this host that its associations use beside that of their set-up. Peers
    /// learn them. At most [`ADDRESSES_MAX`]. With none, those that peers list are ignored, too.
    #[serde(skip)]
    pub addresses: Vec<IpAddr>,
    /// Maximum number of associations, including those in set-up and those not yet released.
    #[serde(skip)]
    pub associations_max: u32,
    /// Maximum number of listeners.
    #[serde(skip)]
    pub listeners_max: u32,
    /// The receive window that is announced, in bytes.
    #[serde(rename = "rcv_window_bytes")]
    pub a_rwnd_bytes: u32,
    /// Received messages that each association may hold while others hold all shared ones.
    #[serde(skip)]
    pub held_messages_reserve: u16,
    /// Received messages that all associations may hold beyond their reserves. The receive pool
    /// must have as many frames.
    #[serde(skip)]
    pub held_messages_shared: u32,
    /// Sent and unacknowledged chunks that one association retains. RFC 5043 allows 32 767.
    #[serde(skip)]
    pub retained_chunks_max: u16,
    /// Retained chunks reserved for each association.
    #[serde(skip)]
    pub retained_chunks_reserve: u16,
    /// Retained chunks that all associations share beyond their reserves. The transmit pool must
    /// have as many frames.
    #[serde(skip)]
    pub retained_chunks_shared: u32,
    /// Shortcuts for packets of the usual kind. Without them the results are the same.
    #[serde(skip)]
    pub fast_path: bool,
    /// Packets sent at once after a SACK, Max.Burst.
    #[serde(rename = "burst_packets")]
    pub burst_packets_max: u16,
    /// The number of streams to send on. The peer may allow fewer. A configuration has one number
    /// for both directions (RFC 5043 s8).
    #[serde(rename = "streams")]
    pub outbound_streams: u16,
    /// The number of streams that the peer may send on.
    #[serde(skip)]
    pub inbound_streams: u16,
    /// Whether the user opens sessions in an association that exists, where it can. The engine does
    /// not read it.
    pub share_associations: bool,
    /// Whether the user sets [`SctpConfig::addresses`] to those of its ports. The engine does not
    /// read it.
    pub multihoming: bool,
    /// Our UDP port, from which packets are sent that are encapsulated (RFC 6951). 0: none are.
    pub udp_local_port: u16,
    /// The UDP port of peers that associations are opened to. 0: the first packet is not
    /// encapsulated. Later ones are as those of the peer.
    pub udp_encapsulation_port: u16,
    /// The code point of the adaptation layer indication that is sent, if any (RFC 5061 s4.2.6).
    /// DDP has 1 (RFC 5043 s5.1).
    #[serde(skip)]
    pub adaptation_code_point: Option<u32>,
    /// The retransmission timeout before the first sample, RTO.Initial. RFC 9260 s16 recommends
    /// 1 s; the round trip in a data centre is 10^5 times shorter.
    #[serde(rename = "rto_initial_us", deserialize_with = "ironwarp_types::unit::micros")]
    pub rto_initial: Nanos,
    /// The minimum of the timeout, RTO.Min. RFC 9260 s16 recommends 1 s. It must be longer than the
    /// SACK.Delay of peers.
    #[serde(rename = "rto_min_us", deserialize_with = "ironwarp_types::unit::micros")]
    pub rto_min: Nanos,
    /// The maximum of the timeout, RTO.Max, up to which it doubles.
    #[serde(rename = "rto_max_us", deserialize_with = "ironwarp_types::unit::micros")]
    pub rto_max: Nanos,
    /// Retransmissions of INIT, and then of COOKIE ECHO, before the attempt is given up:
    /// Max.Init.Retransmits.
    pub init_retries: u8,
    /// Retransmissions of INIT to a peer that answers with ABORT. 0 fails at the first one.
    pub refused_retries: u8,
    /// Timeouts in a row, of DATA, HEARTBEAT, SHUTDOWN or SHUTDOWN ACK, before the association is
    /// given up: Association.Max.Retrans.
    pub association_retries: u8,
    /// Timeouts in a row on one path, of DATA or HEARTBEAT, before it counts as inactive, if the
    /// peer has several addresses: Path.Max.Retrans.
    pub path_retries: u8,
    /// Those before another path is preferred (RFC 7829 s3.1, PotentiallyFailed.Max.Retrans).
    #[serde(rename = "potentially_failed_retries")]
    pub potentially_failed: u8,
    /// How long a SACK may wait for a second packet, SACK.Delay. RFC 9260 s16 recommends 200 ms,
    /// which suits an RTO.Min of 1 s.
    #[serde(rename = "sack_delay_us", deserialize_with = "ironwarp_types::unit::micros")]
    pub sack_delay: Nanos,
    /// How long a path is idle before a HEARTBEAT, HB.interval. It adds to the timeout.
    /// [`Nanos::MAX`]: none is sent.
    #[serde(rename = "heartbeat_interval_ms", deserialize_with = "ironwarp_types::unit::millis_or_never")]
    pub heartbeat_interval: Nanos,
    /// How long a state cookie is valid: Valid.Cookie.Life. The wish of a peer for a longer life is
    /// ignored.
    #[serde(skip)]
    pub cookie_life: Nanos,
    /// Replies per second, on average, to packets that belong to no association: ABORT and SHUTDOWN
    /// COMPLETE. INIT ACK, which needs no state, is not limited.
    #[serde(skip)]
    pub replies_per_second: u32,
    /// The same at once.
    #[serde(skip)]
    pub replies_burst: u32,
}

impl Default for SctpConfig {
    fn default() -> Self {
        SctpConfig {
            addresses: Vec::new(),
            associations_max: 1_024,
            listeners_max: 64,
            a_rwnd_bytes: 512 * 1024,
            held_messages_reserve: 4,
            held_messages_shared: 4_096,
            retained_chunks_max: 1_024,
            retained_chunks_reserve: 4,
            retained_chunks_shared: 8_192,
            fast_path: true,
            burst_packets_max: 4,
            outbound_streams: 64,
            inbound_streams: 64,
            share_associations: true,
            multihoming: false,
            udp_local_port: 0,
            udp_encapsulation_port: 0,
            adaptation_code_point: None,
            rto_initial: Nanos::from_millis(200),
            rto_min: Nanos::from_millis(5),
            rto_max: Nanos::from_secs(60),
            init_retries: 8,
            refused_retries: 0,
            association_retries: 10,
            path_retries: 5,
            potentially_failed: 0,
            sack_delay: Nanos::from_millis(1),
            heartbeat_interval: Nanos::from_secs(30),
            cookie_life: Nanos::from_secs(60),
            replies_per_second: 10_000,
            replies_burst: 100,
        }
    }
}

/// An invalid combination of settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum SctpConfigError {
    /// There are too many addresses.
    #[error("addresses must be at most {ADDRESSES_MAX}")]
    Addresses,
    /// The number of associations is zero or too large.
    #[error("associations_max must be from 1 to 2^28")]
    Associations,
    /// Peers refuse a smaller window.
    #[error("a_rwnd_bytes must be at least {A_RWND_BYTES_MIN}")]
    Window,
    /// Peers refuse an association without streams.
    #[error("outbound_streams and inbound_streams must not be zero")]
    Streams,
    /// RFC 9260 s6.2: a longer delay is not allowed.
    #[error("sack_delay must not be above 500 ms")]
    SackDelay,
    /// A setting must not be zero.
    #[error("{0} must not be zero")]
    Zero(&'static str),
    /// The timeouts contradict each other.
    #[error("rto_min and rto_initial must be above zero and not above rto_max")]
    Rto,
}

impl SctpConfig {
    /// Returns the number of flows that an association has at most.
    pub(crate) fn flows_of_association(&self) -> usize {
        if self.addresses.is_empty() { 1 } else { (self.addresses.len() + 1) * PATHS_MAX }
    }

    /// Checks that the settings are consistent. The engine does not panic with any settings.
    pub fn validate(&self) -> Result<(), SctpConfigError> {
        if self.associations_max == 0 || self.associations_max > 1 << 28 {
            return Err(SctpConfigError::Associations);
        }
        if self.addresses.len() > ADDRESSES_MAX {
            return Err(SctpConfigError::Addresses);
        }
        if self.a_rwnd_bytes < A_RWND_BYTES_MIN {
            return Err(SctpConfigError::Window);
        }
        if self.outbound_streams == 0 || self.inbound_streams == 0 {
            return Err(SctpConfigError::Streams);
        }
        let rtos = [self.rto_min, self.rto_initial];
        if rtos.into_iter().any(|rto| rto == Nanos::ZERO || rto > self.rto_max) {
            return Err(SctpConfigError::Rto);
        }
        let retained = self.retained_chunks_shared.saturating_add(self.retained_chunks_reserve.into());
        let held = self.held_messages_shared.saturating_add(self.held_messages_reserve.into());
        let counts = [
            ("the sum of held_messages_reserve and held_messages_shared", held),
            ("retained_chunks_max", self.retained_chunks_max.into()),
            ("the sum of retained_chunks_reserve and retained_chunks_shared", retained),
            ("burst_packets_max", self.burst_packets_max.into()),
        ];
        if let Some((name, _)) = counts.into_iter().find(|&(_, count)| count == 0) {
            return Err(SctpConfigError::Zero(name));
        }
        if self.sack_delay > SACK_DELAY_MAX {
            return Err(SctpConfigError::SackDelay);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_settings_are_valid() {
        assert_eq!(SctpConfig::default().validate(), Ok(()));
    }

    #[test]
    fn settings_that_peers_or_timers_cannot_use_are_refused() {
        let default = SctpConfig::default;
        let cases = [
            (SctpConfig { associations_max: 0, ..default() }, SctpConfigError::Associations),
            (
                SctpConfig { addresses: vec![[10, 0, 0, 1].into(); 5], ..default() },
                SctpConfigError::Addresses,
            ),
            (SctpConfig { a_rwnd_bytes: 1_499, ..default() }, SctpConfigError::Window),
            (SctpConfig { outbound_streams: 0, ..default() }, SctpConfigError::Streams),
            (SctpConfig { inbound_streams: 0, ..default() }, SctpConfigError::Streams),
            (SctpConfig { rto_max: Nanos(1), ..default() }, SctpConfigError::Rto),
            (SctpConfig { rto_min: Nanos::ZERO, ..default() }, SctpConfigError::Rto),
            (SctpConfig { burst_packets_max: 0, ..default() }, SctpConfigError::Zero("burst_packets_max")),
            (SctpConfig { sack_delay: Nanos::from_millis(501), ..default() }, SctpConfigError::SackDelay),
        ];
        for (config, error) in cases {
            assert_eq!(config.validate(), Err(error));
        }
    }
}
