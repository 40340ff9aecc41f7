//! The time limit for a partial FPDU that keeps other connections from receive frames.
//!
//! When all shared frames are held, one connection at a time gets the emergency reserve, so that it
//! can complete its FPDU and free its frames. Until then, all other connections have only their
//! reserves. The clock of this module runs against the holder, from the first refusal of another
//! connection's bytes.
//!
//! Source: RFC 9293 s3.8.3 permits aborting a connection without progress; a peer has no claim to
//! memory for a partial message. Cost: used only when in-order bytes are refused.

use ironwarp_types::Nanos;

use ironwarp_llp::EmergencyGrant;

/// The time limit. An FPDU of 64 KiB takes this long at 52 kbit/s. A peer whose bytes are refused
/// waits longer before it aborts.
const EMERGENCY_HOLD_MAX: Nanos = Nanos::from_secs(10);

/// The clock of the current grant.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RxPressure {
    grant_id: u32,
    since: Nanos,
}

impl RxPressure {
    /// Bytes of another connection were refused while `grant` is in force. Returns whether its time
    /// limit has expired.
    pub(crate) fn on_rx_full(&mut self, now: Nanos, grant: EmergencyGrant) -> bool {
        if self.grant_id != grant.grant_id {
            *self = RxPressure { grant_id: grant.grant_id, since: now };
        }
        self.has_expired(now, grant)
    }

    /// Returns whether the time limit of a grant has expired since another connection was first
    /// refused.
    pub(crate) fn has_expired(&self, now: Nanos, grant: EmergencyGrant) -> bool {
        self.grant_id == grant.grant_id && now.since(self.since) >= EMERGENCY_HOLD_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_limit_of_each_grant_starts_at_the_first_refusal() {
        let mut rx_pressure = RxPressure::default();
        let at = Nanos::from_secs;
        let (first, second) =
            (EmergencyGrant { owner: 1, grant_id: 1 }, EmergencyGrant { owner: 1, grant_id: 2 });
        assert!(!rx_pressure.has_expired(at(100), first), "no connection was refused");
        assert!(!rx_pressure.on_rx_full(at(100), first));
        assert!(!rx_pressure.on_rx_full(at(109), first));
        assert!(rx_pressure.on_rx_full(at(110), first) && rx_pressure.has_expired(at(110), first));
        assert!(!rx_pressure.on_rx_full(at(111), second) && !rx_pressure.has_expired(at(111), first));
    }
}
