//! What must hold between two turns, for tests and fuzzers: everything of a core has one owner.

use std::collections::BTreeSet;

use super::Reactor;
use super::connection::Connection;
use super::connection::slot::{Slot, State};
use super::late::NO_CAPSULE;

impl Reactor {
    /// Checks who has which buffer, capsule and position in a list. Looks at all of them.
    ///
    /// # Errors
    ///
    /// What does not add up.
    pub fn check(&self) -> Result<(), String> {
        let limits = self.io.memory.limits();
        let mut held = self.io.orphans.buffers().len();
        let mut capsules: Vec<u32> = self.io.memory.free_capsules().to_vec();
        capsules.extend(self.io.orphans.capsules());
        let mut waiting = 0;
        for connection in self.connections.iter().flatten() {
            let own = buffers_of(connection);
            let accounted = self.io.memory.held_by(connection.who);
            if own != accounted {
                return Err(format!(
                    "connection {}: {own} buffers, {accounted} accounted",
                    connection.who.connection
                ));
            }
            held += own;
            capsules.extend(connection.capsules.iter().filter(|&&one| one != NO_CAPSULE));
            let states = || connection.slots.iter().map(|slot| &slot.state);
            waiting += states().filter(|state| matches!(state, State::Waiting(_))).count();
            let at_device = states().filter(|state| matches!(state, State::Device(..))).count();
            if at_device != connection.device_requests as usize {
                return Err(format!("{at_device} slots at devices, {} counted", connection.device_requests));
            }
        }
        let at_disks: usize = self
            .connections
            .iter()
            .flatten()
            .flat_map(|one| &one.slots)
            .filter(|slot| matches!(slot.state, State::Device(..)))
            .map(Slot::buffers)
            .sum();
        let (at_disks, counted) = (at_disks + self.io.orphans.buffers().len(), self.io.at_disks.all());
        if at_disks != counted {
            return Err(format!("{at_disks} buffers at disks, {counted} counted"));
        }
        let free = self.io.memory.free_buffers();
        // Buffers of connections that have ended may still be in their send queues.
        let in_past = self.io.memory.past_buffers() - self.io.orphans.buffers().len();
        if free + held + in_past != limits.buffers as usize {
            return Err(format!("{free} free buffers, {held} held, {in_past} of the past"));
        }
        let distinct: BTreeSet<_> = capsules.iter().collect();
        if capsules.len() != limits.capsules as usize || distinct.len() != capsules.len() {
            return Err(format!("{} capsules, {} of them distinct", capsules.len(), distinct.len()));
        }
        let listed = self.io.waits.len();
        if listed != waiting {
            return Err(format!("{waiting} slots wait, {listed} are in lists"));
        }
        Ok(())
    }
}

/// Returns the buffers of a connection: of its commands, and of responses that are being sent.
fn buffers_of(connection: &Connection) -> usize {
    let of_slots = connection.slots.iter().map(Slot::buffers);
    let sending = if connection.is_ended { 0 } else { connection.sends_since.len() };
    of_slots.sum::<usize>() + sending
}
