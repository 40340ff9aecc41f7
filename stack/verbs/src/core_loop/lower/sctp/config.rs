//! What SCTP of one core gets of the frames of its ports.

use ironwarp_sctp::SctpConfig;

use crate::config::Config;
use crate::core_loop::build::rx_frames_per_core;

pub(super) fn sctp_config(config: &Config, sessions_max: u32) -> SctpConfig {
    let frames = rx_frames_per_core(config);
    let reserve = (frames / 2 / sessions_max).min(4);
    SctpConfig {
        associations_max: sessions_max,
        listeners_max: config.limits.listeners,
        // All values were checked when the stack was built.
        addresses: if config.sctp.multihoming {
            config.sctp_addresses().unwrap_or_default()
        } else {
            Vec::new()
        },
        fast_path: config.stack.fast_path,
        inbound_streams: config.sctp.outbound_streams,
        held_messages_reserve: reserve as u16,
        held_messages_shared: frames - reserve * sessions_max,
        ..config.sctp.clone()
    }
}
