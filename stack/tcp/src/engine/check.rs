//! The engine's invariants. The simulator checks them after every step.

use ironwarp_port::Port;

use super::Tcp;
use crate::conn::{Conn, State};
use crate::input::check_received;
use crate::queue::UnitState;

impl<P: Port> Tcp<P> {
    /// Checks all invariants: sequence numbers in order, queues contiguous and disjoint, units
    /// covering the outstanding data, timers armed, tables consistent, no frame leaked.
    pub fn check(&self) -> Result<(), String> {
        let mut in_flow_table = 0;
        let (mut received, mut retained, mut half_open) = (0, 0, 0);
        for conn in self.slots.iter().filter_map(|slot| slot.conn.as_ref()) {
            self.check_conn(conn)
                .map_err(|fault| format!("{:?} in {:?}: {fault}", conn.flow(), conn.state))?;
            in_flow_table += usize::from(conn.cold.in_flow_table);
            received +=
                usize::from(conn.rcv.queues.in_order.len()) + usize::from(conn.rcv.queues.out_of_order.len());
            retained += usize::from(conn.snd.retained.len());
            half_open += u32::from(conn.state == State::SynReceived && conn.cold.listener.is_some());
        }
        equal("flows in the table", self.flows.len(), in_flow_table + self.time_wait.len() as usize)?;
        equal("received frames held", self.shared.rx.in_use(), received)?;
        equal("units retained", self.shared.tx.in_use(), retained)?;
        equal("half-open connections", self.half_open as usize, half_open as usize)?;
        let taken = self.slots.iter().filter(|slot| slot.conn.is_some()).count();
        equal("free slots", self.free.len(), self.slots.len() - taken)
    }

    pub(super) fn check_conn(&self, conn: &Conn) -> Result<(), String> {
        conn.check()?;
        check_received(conn, &self.shared.rx)?;
        self.check_retained(conn)?;
        let deadline = conn.deadline();
        if conn.state.is_live() && self.shared.wheel.deadline(conn.slot) > deadline {
            return Err(format!(
                "the timer wheel fires at {:?}, later than the deadline {deadline:?}",
                self.shared.wheel.deadline(conn.slot)
            ));
        }
        Ok(())
    }

    /// Checks that units are contiguous from the one that contains SND.UNA to snd_end.
    fn check_retained(&self, conn: &Conn) -> Result<(), String> {
        let mut at = None;
        let mut bytes = 0;
        for unit in self.shared.tx.iter(&conn.snd.retained) {
            let follows = unit.seq == at.unwrap_or(conn.snd.snd_una);
            let sent = unit.seq_end().leq(conn.snd.snd_nxt);
            if !follows || unit.seq_len() == 0 || sent == (unit.state == UnitState::Unsent) {
                return Err(format!("unit {:?}+{} does not follow {at:?}", unit.seq, unit.len));
            }
            at = Some(unit.seq_end());
            bytes += u32::from(unit.len);
        }
        conn.snd.board.check(&self.shared.tx, &conn.snd.retained, conn.opts.sack)?;
        if at.is_some_and(|at| at != conn.snd.snd_end) {
            return Err(format!("units end at {at:?}, not at {:?}", conn.snd.snd_end));
        }
        if conn.state.is_synchronised() && at.is_none() && conn.snd.snd_una.lt(conn.snd.snd_end) {
            return Err("unacknowledged payload is not retained".into());
        }
        equal("retained bytes", conn.snd.retained_bytes as usize, bytes as usize)
    }
}

fn equal(what: &str, counted: usize, expected: usize) -> Result<(), String> {
    if counted == expected { Ok(()) } else { Err(format!("{what}: {counted}, expected {expected}")) }
}
