//! Settings of TCP: the table `[tcp]`, which is the engine's own type.

use ironwarp_types::Nanos;

pub use ironwarp_tcp::{Congestion, KeepAlive, TcpConfig};

use super::{ConfigError, in_range};

/// Checks the keys of the table.
pub(super) fn validate(tcp: &TcpConfig) -> Result<(), ConfigError> {
    let window = "131072 to 1073725440 bytes";
    in_range("tcp.rcv_window_bytes", tcp.rcv_window_bytes, 131_072..=1_073_725_440, window)?;
    let retained = "131072 to 1073741824 bytes";
    in_range("tcp.retransmit_queue_bytes", tcp.retransmit_queue_bytes_max, 131_072..=1 << 30, retained)?;
    validate_times(tcp)?;
    in_range("tcp.syn_retries", tcp.syn_retries, 0..=16, "0 to 16")?;
    in_range("tcp.refused_retries", tcp.refused_retries, 0..=16, "0 to 16")?;
    in_range("tcp.initial_window_segments", tcp.initial_window_segments, 1..=64, "1 to 64 segments")?;
    if tcp.congestion == Congestion::Dctcp && !tcp.ecn {
        let value = "dctcp".to_owned();
        let allowed = "only with tcp.ecn = true, since it goes by marks";
        return Err(ConfigError::Value { key: "tcp.congestion", value, allowed });
    }
    Ok(())
}

fn validate_times(tcp: &TcpConfig) -> Result<(), ConfigError> {
    let us = |time: Nanos| time.0 / 1_000;
    let ms = |time: Nanos| time.0 / 1_000_000;
    let minute = "100 to 60000000 microseconds";
    in_range("tcp.rto_min_us", us(tcp.rto_min), 100..=60_000_000, minute)?;
    in_range("tcp.rto_initial_us", us(tcp.rto_initial), 100..=60_000_000, minute)?;
    let or_none = "0 (that of the SYN) to 60000000 microseconds";
    in_range("tcp.rto_after_syn_loss_us", us(tcp.rto_after_syn_loss), 0..=60_000_000, or_none)?;
    let least = us(tcp.rto_min.max(tcp.rto_initial));
    let above = "at most 120000000 microseconds, and not below tcp.rto_min_us and tcp.rto_initial_us";
    in_range("tcp.rto_max_us", us(tcp.rto_max), least..=120_000_000, above)?;
    in_range("tcp.ack_delay_max_us", us(tcp.ack_delay_max), 0..=1_000_000, "0 to 1000000 microseconds")?;
    in_range("tcp.user_timeout_ms", ms(tcp.user_timeout), 1..=86_400_000, "1 to 86400000 milliseconds")?;
    if tcp.zero_window_timeout != Nanos::MAX {
        let or_never = "0 (never) to 86400000 milliseconds";
        in_range("tcp.zero_window_timeout_ms", ms(tcp.zero_window_timeout), 1..=86_400_000, or_never)?;
    }
    in_range("tcp.time_wait_ms", ms(tcp.time_wait), 0..=240_000, "0 to 240000 milliseconds")?;
    let Some(keep_alive) = &tcp.keep_alive else { return Ok(()) };
    let day = "1 to 86400 seconds";
    in_range("tcp.keep_alive.idle_s", keep_alive.idle.as_secs(), 1..=86_400, day)?;
    in_range("tcp.keep_alive.interval_s", keep_alive.interval.as_secs(), 1..=86_400, day)?;
    in_range("tcp.keep_alive.probes", keep_alive.probes, 2..=255, "2 to 255: one probe alone may be lost")
}
