//! How long one connection's half FPDU has kept others waiting.
//!
//! When all shared frames are held, the rescue goes to one connection at a time, so that it can finish its FPDU and let
//! go of what it held. One that does not finish keeps everybody else at their reserve. This is the clock that runs
//! against it, from the first refusal that it caused.
//!
//! Source: RFC 9293 s3.8.3 lets an end give a connection up that gets no further; a peer has no claim to memory for half a
//! message. Cost: looked at when bytes in order are refused.

use ironwarp_types::Nanos;

use super::arena::Rescue;

/// How long. An FPDU of 64 KiB takes that long at 52 kbit/s; a peer whose bytes are refused waits longer before it gives
/// up.
const HELD_MAX: Nanos = Nanos::from_secs(10);

/// The clock.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Contest {
    turn: u32,
    since: Nanos,
}

impl Contest {
    /// Bytes of another connection were refused while `rescue` stood. Answers whether it has had its time.
    pub(crate) fn on_refused(&mut self, now: Nanos, rescue: Rescue) -> bool {
        if self.turn != rescue.turn {
            *self = Contest { turn: rescue.turn, since: now };
        }
        self.is_over(now, rescue)
    }

    /// Whether a rescue has had its time, and others have been refused for it.
    pub(crate) fn is_over(&self, now: Nanos, rescue: Rescue) -> bool {
        self.turn == rescue.turn && now.since(self.since) >= HELD_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rescue_has_its_time_from_the_first_refusal_on() {
        let mut contest = Contest::default();
        let at = Nanos::from_secs;
        let (first, second) = (Rescue { owner: 1, turn: 1 }, Rescue { owner: 1, turn: 2 });
        assert!(!contest.is_over(at(100), first), "nobody was refused");
        assert!(!contest.on_refused(at(100), first));
        assert!(!contest.on_refused(at(109), first));
        assert!(contest.on_refused(at(110), first) && contest.is_over(at(110), first));
        assert!(!contest.on_refused(at(111), second) && !contest.is_over(at(111), first));
    }
}
