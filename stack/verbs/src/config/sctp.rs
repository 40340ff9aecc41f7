//! Settings of SCTP: the table `[sctp]`, which is the engine's own type. Over TCP it is not used.

use core::net::IpAddr;

use ironwarp_sctp::ADDRESSES_MAX;
use ironwarp_types::Nanos;

pub use ironwarp_sctp::SctpConfig;

use super::{Config, ConfigError, in_range};

impl Config {
    /// Returns the addresses of associations with several: those of all ports that are valid beyond
    /// a link.
    pub(crate) fn sctp_addresses(&self) -> Result<Vec<IpAddr>, ConfigError> {
        let is_global = |addr: &IpAddr| !matches!(addr, IpAddr::V6(v6) if v6.is_unicast_link_local());
        Ok(self.addresses()?.into_iter().filter(is_global).collect())
    }

    pub(super) fn validate_sctp(&self) -> Result<(), ConfigError> {
        validate(&self.sctp)?;
        let count = self.sctp_addresses()?.len();
        if self.sctp.multihoming && count > ADDRESSES_MAX {
            let value = format!("true, with {count} addresses");
            let allowed = "at most 4 addresses of all ports, without link-local ones";
            return Err(ConfigError::Value { key: "sctp.multihoming", value, allowed });
        }
        Ok(())
    }
}

/// Checks the keys of the table.
fn validate(sctp: &SctpConfig) -> Result<(), ConfigError> {
    let us = |time: Nanos| time.0 / 1_000;
    let window = "131072 to 1073741824 bytes";
    in_range("sctp.rcv_window_bytes", sctp.a_rwnd_bytes, 131_072..=1 << 30, window)?;
    in_range("sctp.burst_packets", sctp.burst_packets_max, 1..=1_024, "1 to 1024 packets")?;
    in_range("sctp.streams", sctp.outbound_streams, 1..=1_024, "1 to 1024")?;
    let minute = "100 to 60000000 microseconds";
    in_range("sctp.rto_min_us", us(sctp.rto_min), 100..=60_000_000, minute)?;
    in_range("sctp.rto_initial_us", us(sctp.rto_initial), 100..=60_000_000, minute)?;
    let least = us(sctp.rto_min.max(sctp.rto_initial));
    let above = "at most 120000000 microseconds, and not below sctp.rto_min_us and sctp.rto_initial_us";
    in_range("sctp.rto_max_us", us(sctp.rto_max), least..=120_000_000, above)?;
    in_range("sctp.init_retries", sctp.init_retries, 0..=32, "0 to 32")?;
    in_range("sctp.path_retries", sctp.path_retries, 0..=64, "0 to 64")?;
    let threshold = "0 to sctp.path_retries";
    let failed = sctp.potentially_failed;
    in_range("sctp.potentially_failed_retries", failed, 0..=sctp.path_retries, threshold)?;
    in_range("sctp.refused_retries", sctp.refused_retries, 0..=16, "0 to 16")?;
    in_range("sctp.association_retries", sctp.association_retries, 0..=64, "0 to 64")?;
    let is_encapsulated = sctp.udp_local_port != 0;
    let value = |key, value: String, allowed| Err(ConfigError::Value { key, value, allowed });
    if sctp.udp_encapsulation_port != 0 && !is_encapsulated {
        let port = sctp.udp_encapsulation_port.to_string();
        return value("sctp.udp_encapsulation_port", port, "0 without sctp.udp_local_port");
    }
    // RFC 6951 s5.7: translators do not change the addresses that a packet lists.
    if sctp.multihoming && is_encapsulated {
        return value("sctp.multihoming", "true".into(), "false with sctp.udp_local_port");
    }
    // RFC 9260 s6.2: it must not be above 500 ms.
    in_range("sctp.sack_delay_us", us(sctp.sack_delay), 0..=500_000, "0 to 500000 microseconds")?;
    if sctp.heartbeat_interval != Nanos::MAX {
        let (ms, or_none) = (sctp.heartbeat_interval.0 / 1_000_000, "0 (none) to 86400000 milliseconds");
        in_range("sctp.heartbeat_interval_ms", ms, 1..=86_400_000, or_none)?;
    }
    Ok(())
}
