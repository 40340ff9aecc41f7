//! Checks who reports a Terminate when a connection has ended.

use super::{AttackOutcome, Session};

impl Session {
    /// RFC 5040 s5.4: the side that detects an error sends one Terminate that names it. A side
    /// whose context was dropped gets no event. Where links damage payload, any error may occur.
    /// RFC 5044 s7.1.2: a responder that has received no FPDU sends none.
    pub(super) fn check_terminates(&self) -> Result<(), String> {
        let vanished = self.sides.iter().any(|side| side.context_dropped);
        if self.undetected_corruption || vanished || self.any_end_allowed {
            return Ok(());
        }
        if self.sides.iter().any(|side| side.bad_request_flushed) {
            return Err(format!(
                "{:?} was flushed, but no earlier event ended the connection",
                self.posted_bad_request
            ));
        }
        // A Terminate that was sent after the links healed cannot have been lost, however the
        // connection ended.
        if self.terminate_missing && self.sides[1].terminated_on_clean_link {
            return Err(format!(
                "the Terminate {:?} was reported as sent but never arrived",
                self.attack_outcome
            ));
        }
        let due = match (self.posted_bad_request, self.attack_outcome) {
            (Some((by, bad_request)), _) => Some(if bad_request.is_local() { by } else { 1 - by }),
            (None, Some(AttackOutcome::VictimTerminates(_))) => Some(1),
            _ => None,
        };
        let reported = match (self.posted_bad_request, self.attack_outcome) {
            (Some(_), _) => due.map(|side| 1 - side),
            // The attacker checks the Terminates it receives itself.
            (None, Some(AttackOutcome::VictimReports(_))) => Some(1),
            _ => None,
        };
        let reported = reported.filter(|side| !self.may_have_missed(*side));
        if self.sides[1].failed_before_first_fpdu {
            return match self.sides.iter().position(|side| side.terminates > 0) {
                Some(side) => {
                    Err(format!("side {side} got a Terminate event, but the responder could send none"))
                }
                None => Ok(()),
            };
        }
        let missing =
            |side: &usize| self.sides[*side].terminates != 1 && !self.sides[*side].left_without_event;
        match due.into_iter().chain(reported).find(missing) {
            Some(side) => {
                let count = self.sides[side].terminates;
                let cause = (self.posted_bad_request, self.attack_outcome);
                Err(format!("side {side} got {count} Terminate events after {cause:?}"))
            }
            None => Ok(()),
        }
    }

    /// Returns whether the peer's Terminate may have been lost. That happens only together with the
    /// connection, and while links are faulty. An orderly close follows the Terminate; a stack that
    /// resets the connection first may lose it.
    fn may_have_missed(&self, side: usize) -> bool {
        self.sides[side].was_aborted && !self.sides[1 - side].terminated_on_clean_link
    }
}
