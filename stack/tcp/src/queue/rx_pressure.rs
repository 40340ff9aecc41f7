//! How long one connection's half FPDU has kept others waiting.
//!
//! When all shared frames are held, the rescue goes to one connection at a time, so that it can finish its FPDU and let
//! go of what it held. One that does not finish keeps everybody else at their reserve. This is the clock that runs
//! against it, from the first refusal that it caused.
//!
//! Source: RFC 9293 s3.8.3 lets an end give a connection up that gets no further; a peer has no claim to memory for half a
//! message. Cost: looked at when bytes in order are refused.

use ironwarp_types::Nanos;

use super::arena::EmergencyGrant;

/// How long. An FPDU of 64 KiB takes that long at 52 kbit/s; a peer whose bytes are refused waits longer before it gives
/// up.
const EMERGENCY_HOLD_MAX: Nanos = Nanos::from_secs(10);

/// The clock.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RxPressure {
    grant_id: u32,
    since: Nanos,
}

impl RxPressure {
    /// Bytes of another connection were refused while `grant` stood. Answers whether it has had its time.
    pub(crate) fn on_rx_full(&mut self, now: Nanos, grant: EmergencyGrant) -> bool {
        if self.grant_id != grant.grant_id {
            *self = RxPressure { grant_id: grant.grant_id, since: now };
        }
        self.has_expired(now, grant)
    }

    /// Whether a rescue has had its time, and others have been refused for it.
    pub(crate) fn has_expired(&self, now: Nanos, grant: EmergencyGrant) -> bool {
        self.grant_id == grant.grant_id && now.since(self.since) >= EMERGENCY_HOLD_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rescue_has_its_time_from_the_first_refusal_on() {
        let mut rx_pressure = RxPressure::default();
        let at = Nanos::from_secs;
        let (first, second) =
            (EmergencyGrant { owner: 1, grant_id: 1 }, EmergencyGrant { owner: 1, grant_id: 2 });
        assert!(!rx_pressure.has_expired(at(100), first), "nobody was refused");
        assert!(!rx_pressure.on_rx_full(at(100), first));
        assert!(!rx_pressure.on_rx_full(at(109), first));
        assert!(rx_pressure.on_rx_full(at(110), first) && rx_pressure.has_expired(at(110), first));
        assert!(!rx_pressure.on_rx_full(at(111), second) && !rx_pressure.has_expired(at(111), first));
    }
}
