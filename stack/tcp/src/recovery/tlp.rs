//! Tail loss probes: what is lost at the end of a flight is found by sending its end once more.
//!
//! When an acknowledgement is overdue by a round trip, one segment is sent as a probe; the answer to it tells RACK what
//! was lost before it. When the probe itself repaired the loss, nothing else would tell that there was one: that is found
//! out here, so that congestion control hears of it.
//!
//! Source: RFC 8985 s7. Knows nothing of timers or segments.

use ironwarp_types::{Nanos, Seq};

/// One connection's probe.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tlp {
    /// SND.NXT when the probe was sent, until it is settled (TLP.end_seq).
    end_seq: Option<Seq>,
    /// Whether the probe was sent before (TLP.is_retrans).
    retransmitted: bool,
    /// The count of round trips measured when the last probe was sent.
    measured: u32,
}

/// What an acknowledgement says of the probe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TlpOutcome {
    /// Nothing yet, or there is none.
    Pending,
    /// It arrived, and so did the original.
    Spurious,
    /// It repaired a loss that nobody else knows of.
    Repaired,
}

impl Tlp {
    /// Whether a probe is on its way.
    #[inline]
    pub(crate) fn is_pending(&self) -> bool {
        self.end_seq.is_some()
    }

    /// Recovery begins: it will find out by itself (s7.1).
    pub(crate) fn reset(&mut self) {
        self.end_seq = None;
    }

    /// s7.3: one probe at a time, and a round trip measured between two.
    pub(crate) fn may_probe(&self, measured: u32) -> bool {
        self.end_seq.is_none() && self.measured != measured
    }

    /// A probe left, which ends before `snd_nxt`.
    pub(crate) fn on_probe(&mut self, snd_nxt: Seq, retransmitted: bool, measured: u32) {
        *self = Tlp { end_seq: Some(snd_nxt), retransmitted, measured };
    }

    /// s7.4.2: an acknowledgement of everything before `ack`. `dsack_end` is the end of what it says arrived twice;
    /// `bare_duplicate`, that it says nothing at all.
    pub(crate) fn on_ack(&mut self, ack: Seq, dsack_end: Option<Seq>, bare_duplicate: bool) -> TlpOutcome {
        let Some(end) = self.end_seq.filter(|end| end.leq(ack)) else { return TlpOutcome::Pending };
        let outcome = if !self.retransmitted || dsack_end == Some(end) {
            TlpOutcome::Spurious
        } else if ack.gt(end) {
            TlpOutcome::Repaired
        } else if bare_duplicate {
            TlpOutcome::Spurious
        } else {
            return TlpOutcome::Pending;
        };
        self.end_seq = None;
        outcome
    }
}

/// s7.2: how long to wait for an acknowledgement before probing. `single_segment` when a single segment is on its way, whose
/// acknowledgement the peer may hold back for `ack_delay`. `slack` is what the timer and the peer's loop are worth.
#[inline]
pub(crate) fn tlp_timeout(srtt: Nanos, single_segment: bool, ack_delay: Nanos, slack: Nanos) -> Nanos {
    let delay = if single_segment { ack_delay } else { Nanos::ZERO };
    srtt + srtt + slack + delay
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probed(retransmitted: bool) -> Tlp {
        let mut tlp = Tlp { measured: 0, ..Tlp::default() };
        assert!(tlp.may_probe(1));
        tlp.on_probe(Seq(1_000), retransmitted, 1);
        tlp
    }

    /// RFC 8985 s7.3.
    #[test]
    fn one_probe_at_a_time_and_a_round_trip_between_two() {
        let mut tlp = probed(true);
        assert!(!tlp.may_probe(2));
        assert_eq!(tlp.on_ack(Seq(1_001), None, false), TlpOutcome::Repaired);
        assert!(!tlp.may_probe(1) && tlp.may_probe(2));
    }

    /// RFC 8985 s7.4.2.
    #[test]
    fn what_comes_back_tells_whether_the_probe_repaired_a_loss() {
        assert_eq!(probed(false).on_ack(Seq(1_000), None, false), TlpOutcome::Spurious);
        assert_eq!(probed(true).on_ack(Seq(999), None, false), TlpOutcome::Pending);
        assert_eq!(probed(true).on_ack(Seq(1_000), Some(Seq(1_000)), false), TlpOutcome::Spurious);
        assert_eq!(probed(true).on_ack(Seq(1_000), None, true), TlpOutcome::Spurious);
        let mut tlp = probed(true);
        assert_eq!(tlp.on_ack(Seq(1_000), None, false), TlpOutcome::Pending);
        assert_eq!(tlp.on_ack(Seq(1_100), None, false), TlpOutcome::Repaired);
        assert!(!tlp.is_pending());
    }

    /// RFC 8985 s7.2.
    #[test]
    fn a_lone_segment_is_given_the_peers_delay() {
        let (srtt, delay) = (Nanos::from_micros(10), Nanos::from_millis(1));
        assert_eq!(tlp_timeout(srtt, false, delay, Nanos::ZERO), Nanos::from_micros(20));
        assert_eq!(tlp_timeout(srtt, true, delay, Nanos(7)), Nanos::from_micros(1_020) + Nanos(7));
    }
}
