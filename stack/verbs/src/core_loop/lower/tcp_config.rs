//! What TCP of one core gets of the frames of its ports.

use ironwarp_tcp::TcpConfig;

use crate::config::Config;
use crate::core_loop::build::{min_over_ports, rx_frames_per_core};

/// Connections in set-up and teardown are counted in addition to those of queue pairs.
pub(super) fn tcp_config(config: &Config) -> TcpConfig {
    let limits = &config.limits;
    let connections_max = limits.queue_pairs + 2 * limits.half_open;
    let (rx_reserve, rx_shared) = split_reserve(
        rx_frames_per_core(config).saturating_sub(u32::from(RX_EMERGENCY_RESERVE)),
        connections_max,
        RX_RESERVE_MAX,
    );
    let (tx_reserve, tx_shared) = split_reserve(
        min_over_ports(config, |port| port.tx_frames - u32::from(port.ring_size()))
            .saturating_sub(u32::from(TERMINATE_RESERVE_FRAMES)),
        connections_max,
        TX_RESERVE_MAX,
    );
    TcpConfig {
        connections_max,
        listeners_max: limits.listeners,
        half_open_max: limits.half_open,
        rx_frames_reserve: rx_reserve,
        rx_frames_shared: rx_shared,
        rx_frames_emergency_reserve: RX_EMERGENCY_RESERVE,
        retained_units_reserve: tx_reserve,
        retained_units_shared: tx_shared,
        terminate_reserve_frames: TERMINATE_RESERVE_FRAMES,
        fast_path: config.stack.fast_path,
        ..config.tcp.clone()
    }
}

/// Frames reserved for Terminates, for the case that the pool is empty. Each queue pair keeps the
/// text of its Terminate; with more queue pairs than frames, a frame is free again after the peer's
/// acknowledgement.
const TERMINATE_RESERVE_FRAMES: u16 = 8;

/// Received frames that each connection may always hold: the tail of a partial FPDU and one more.
const RX_RESERVE_MAX: u16 = 2;

/// Received frames that complete one FPDU of 64 KiB when all others are in use.
const RX_EMERGENCY_RESERVE: u16 = 48;

/// Units that each connection may always retain: enough for a request and its response.
const TX_RESERVE_MAX: u16 = 4;

/// Splits the frames beyond the device's ring: at most half of them in equal reserves, the rest
/// shared.
fn split_reserve(frames: u32, connections: u32, reserve_max: u16) -> (u16, u32) {
    let reserve = (frames / 2 / connections).min(reserve_max.into());
    (reserve as u16, frames - reserve * connections)
}
