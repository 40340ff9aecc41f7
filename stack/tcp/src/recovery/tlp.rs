//! Tail loss probes: finds losses at the end of a flight by sending its last segment again.
//!
//! When an acknowledgement is overdue by a round trip, one segment is sent as a probe. The answer
//! lets RACK find the losses before it. If the probe itself repaired the only loss, no other signal
//! shows it. This module detects that case, so that congestion control is informed.
//!
//! Source: RFC 8985 s7. Independent of timers and segments.

use ironwarp_types::{Nanos, Seq};
use serde::{Deserialize, Serialize};

/// The probe state of one connection.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Tlp {
    /// SND.NXT when the probe was sent, until its result is known (TLP.end_seq).
    end_seq: Option<Seq>,
    /// The probe was a retransmission (TLP.is_retrans).
    retransmitted: bool,
    /// The count of round-trip samples when the last probe was sent.
    measured: u32,
}

/// What an acknowledgement shows about the probe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TlpOutcome {
    /// No result yet, or no probe is outstanding.
    Pending,
    /// Both the probe and the original arrived.
    Spurious,
    /// The probe repaired a loss that no other signal shows.
    Repaired,
}

impl Tlp {
    /// Returns whether a probe is outstanding.
    #[inline]
    pub(crate) fn is_pending(&self) -> bool {
        self.end_seq.is_some()
    }

    /// Recovery begins, which makes the probe unnecessary (s7.1).
    pub(crate) fn reset(&mut self) {
        self.end_seq = None;
    }

    /// s7.3: one probe at a time, and a round-trip sample between two.
    pub(crate) fn may_probe(&self, measured: u32) -> bool {
        self.end_seq.is_none() && self.measured != measured
    }

    /// A probe was sent that ends before `snd_nxt`.
    pub(crate) fn on_probe(&mut self, snd_nxt: Seq, retransmitted: bool, measured: u32) {
        *self = Tlp { end_seq: Some(snd_nxt), retransmitted, measured };
    }

    /// s7.4.2: processes an acknowledgement of everything before `ack`. `dsack_end` is the end of
    /// its duplicate SACK. `bare_duplicate` means that it carries no other information.
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

/// s7.2: returns how long to wait before a probe. If `single_segment` is in flight, the peer may
/// delay its acknowledgement by `ack_delay`. `slack` is the granularity of the timer and of the
/// peer's loop.
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
    fn one_probe_is_outstanding_and_a_sample_lies_between_two() {
        let mut tlp = probed(true);
        assert!(!tlp.may_probe(2));
        assert_eq!(tlp.on_ack(Seq(1_001), None, false), TlpOutcome::Repaired);
        assert!(!tlp.may_probe(1) && tlp.may_probe(2));
    }

    /// RFC 8985 s7.4.2.
    /// RFC 8985 s7.4.1.
    #[test]
    fn the_answer_shows_whether_the_probe_repaired_a_loss() {
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
    fn a_single_segment_waits_for_the_peers_ack_delay() {
        let (srtt, delay) = (Nanos::from_micros(10), Nanos::from_millis(1));
        assert_eq!(tlp_timeout(srtt, false, delay, Nanos::ZERO), Nanos::from_micros(20));
        assert_eq!(tlp_timeout(srtt, true, delay, Nanos(7)), Nanos::from_micros(1_020) + Nanos(7));
    }
}
