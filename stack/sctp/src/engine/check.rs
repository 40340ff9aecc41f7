//! The invariants of the engine, for simulators and tests.

use ironwarp_port::Port;
use ironwarp_types::Nanos;

use super::Sctp;
use crate::association::State;

impl<P: Port> Sctp<P> {
    /// Checks that each slot is free or used, that live associations are found by their flow,
    /// that exactly the states with a timer have one, and that what has arrived is consistent.
    pub fn check(&self) -> Result<(), String> {
        let used = self.slots.iter().filter_map(|slot| slot.association.as_ref());
        let live = used.clone().filter(|association| association.state != State::Closed);
        let flows = live.clone().map(|association| 1 + self.other_flows_found(association.id.slot));
        if used.count() + self.free.len() != self.slots.len() || flows.sum::<usize>() != self.flows.len() {
            return Err("slots, free list and flow table have different counts".into());
        }
        for association in live {
            let slot = association.id.slot;
            let found = self.flows.lookup(association.hash, |found| found == slot);
            let has_timer = association.timers.state != Nanos::MAX;
            let has_cookie = association.init_ack.is_some();
            if found != Some(slot) {
                return Err(format!("the flow of slot {slot} finds {found:?}"));
            }
            if has_timer != association.state.has_timer()
                || has_cookie != (association.state == State::CookieEchoed)
                || association.local.tag == 0
                || (association.peer.tag == 0) != (association.state == State::CookieWait)
            {
                return Err(format!("slot {slot} in {:?}", association.state));
            }
            if self.shared.wheel.deadline(slot) != association.next_deadline() {
                return Err(format!("slot {slot} waits for {:?}", association.next_deadline()));
            }
            association.inbound.check(&self.shared.held)?;
            association.outbound.check(&self.shared.retained, &association.paths)?;
        }
        Ok(())
    }
}
