//! Checks the local fence: no part of a fenced request executes before every earlier request has
//! completed.
//!
//! The check runs when all completions so far have been reaped and no core runs. A signaled request
//! without a completion has then not completed. So no byte of a Write fenced after it may be in the
//! peer's memory, and the peer may not have received a fenced Send.

use ironwarp::CompletionOpcode;

use super::App;
use super::{Posted, Session, Side};

impl App {
    /// Checks the fences of every queue pair whose completions have all been reaped.
    pub(super) fn check_fences(&self) {
        let own = self.plan.completion_queues;
        let oracle = &mut *self.oracle.borrow_mut();
        for &(number, side) in self.by_qp.values().filter(|(number, _)| self.cqs[number % own].was_drained())
        {
            let checked = oracle.sessions[number].check_fences(side);
            oracle.record(number, side, checked);
        }
    }
}

impl Session {
    /// Checks that no request overtook its local fence.
    fn check_fences(&mut self, side: usize) -> Result<(), String> {
        let (ours, theirs) = self.pair(side);
        let Some(first) = ours.sends.iter().position(|posted| posted.signaled) else { return Ok(()) };
        let later = ours.sends.iter().skip(first + 1).filter(|posted| posted.locally_fenced);
        for posted in later {
            if ours.has_arrived(theirs, posted) {
                let before = ours.sends[first].wr_id;
                return Err(format!(
                    "{:?} {} went past its local fence: request {before} has not completed",
                    posted.opcode, posted.wr_id
                ));
            }
        }
        Ok(())
    }
}

impl Side {
    /// Returns whether the peer has received any part of our request.
    fn has_arrived(&self, theirs: &mut Side, posted: &Posted) -> bool {
        match (posted.opcode, &mut theirs.memory) {
            (CompletionOpcode::Write, Some(memory)) => {
                posted.placed || memory.shared.verify(posted.target).is_err()
            }
            (CompletionOpcode::Send, Some(_)) => {
                self.messages.iter().all(|message| message.wr_id != posted.wr_id)
            }
            _ => false,
        }
    }
}
