//! The core loop's side of it: what goes to other cores, and what comes from them.

use ironwarp_net::{IcmpError, Received};

use super::{InterCoreMessage, LEADER, OtherCores, Steered};
use crate::core_loop::*;

/// Frames taken over from one other core in one iteration, as many as four bursts bring; so that whoever is flooded
/// elsewhere cannot starve the frames that arrive here.
const STEERED_BUDGET: usize = 128;

/// Mail taken from one other core in one iteration.
const MESSAGE_BUDGET: usize = 64;

impl<P: Port, C: Clock> CoreLoop<P, C> {
    /// Hands over what was received for others, and takes what others have received for us. What is taken here is at home:
    /// nobody is asked again whose it is.
    #[inline(never)]
    pub(in crate::core_loop) fn exchange(&mut self, now: Nanos) {
        let Some(other_cores) = self.other_cores.as_deref_mut() else { return };
        other_cores.publish();
        other_cores.budget_exhausted = false;
        if other_cores.has_input() {
            self.receive_from_cores(now);
        }
    }

    #[inline(never)]
    fn receive_from_cores(&mut self, now: Nanos) {
        let Some(mut other_cores) = self.other_cores.take() else { return };
        for other in 0..other_cores.channels.len() {
            self.receive_messages(now, &mut other_cores, other);
            self.receive_steered(now, &mut other_cores, other);
        }
        self.other_cores = Some(other_cores);
    }

    fn receive_steered(&mut self, now: Nanos, other_cores: &mut OtherCores<P::Frame>, other: usize) {
        let Some(channel) = other_cores.channels.get_mut(other).and_then(Option::as_mut) else { return };
        let mut taken = 0;
        while taken < STEERED_BUDGET
            && let Some(steered) = channel.frames_in.pop()
        {
            taken += 1;
            self.on_steered(now, steered);
        }
        other_cores.budget_exhausted |= taken == STEERED_BUDGET;
        self.work += taken;
        self.stats.add(Counter::CoresSteeredIn, taken as u64);
    }

    fn on_steered(&mut self, now: Nanos, steered: Steered<P::Frame>) {
        match steered {
            Steered::Segment(port, segment) => {
                self.wire.select(port);
                // One of ours to ourselves: so are the answers.
                if segment.remote_mac == self.net().mac() {
                    self.wire.loop_back(segment.remote_mac);
                }
                self.on_received(now, Received::Segment(segment));
            }
            Steered::IcmpError(port, error) => {
                self.wire.select(port);
                self.on_icmp_error(now, &error);
            }
            Steered::ForLeader(port, frame) => {
                self.wire.select(port);
                self.nets.at_mut::<P>(port).on_handed_frame(now, frame, &mut self.wire);
            }
        }
    }

    fn receive_messages(&mut self, now: Nanos, other_cores: &mut OtherCores<P::Frame>, other: usize) {
        let Some(channel) = other_cores.channels.get_mut(other).and_then(Option::as_mut) else { return };
        let mut read = 0;
        while read < MESSAGE_BUDGET
            && let Some(message) = channel.messages_in.pop()
        {
            read += 1;
            match message {
                InterCoreMessage::Listen { context, local } => self.add_listener(context, local),
                InterCoreMessage::Unlisten { context, local } => self.remove_listener(context, local),
                InterCoreMessage::ContextGone { context } => self.on_context_gone(context),
                InterCoreMessage::Net(port, net_message) => {
                    self.wire.select(port);
                    self.nets.at_mut::<P>(port).on_core_message(now, net_message, &mut self.wire);
                }
            }
        }
        other_cores.budget_exhausted |= read == MESSAGE_BUDGET;
        self.work += read;
    }

    /// Tells the others what was found out in this iteration.
    #[inline(never)]
    pub(in crate::core_loop) fn send_net_messages(&mut self) {
        let Some(other_cores) = self.other_cores.as_deref_mut() else { return };
        other_cores.flush_backlog();
        for port in 0..self.wire.devices() {
            while let Some(net_message) = self.nets.at_mut::<P>(port).take_core_message() {
                other_cores.send_net_message(port, net_message, &self.stats);
            }
        }
    }

    /// Tells all other cores something that must arrive.
    #[cold]
    pub(in crate::core_loop) fn broadcast(&mut self, message: InterCoreMessage) {
        if let Some(other_cores) = self.other_cores.as_deref_mut() {
            other_cores.broadcast(message);
        }
    }

    /// Whether the other cores have heard all that must reach them; until then contexts have to wait.
    pub(in crate::core_loop) fn all_messages_sent(&self) -> bool {
        self.other_cores.as_ref().is_none_or(|other_cores| !other_cores.has_backlog())
    }

    /// Somebody reports about a flow: that is for the core that it belongs to.
    #[cold]
    #[inline(never)]
    pub(in crate::core_loop) fn steer_icmp_error(&mut self, now: Nanos, error: IcmpError) {
        if let Some(other_cores) = &mut self.other_cores
            && let Some(to) = other_cores.other_core_of(&error.flow, error.hash)
        {
            return other_cores.steer(to, Steered::IcmpError(self.wire.selected(), error), &self.stats);
        }
        self.on_icmp_error(now, &error);
    }

    /// A frame of ARP or neighbour discovery, on a core that follows.
    #[cold]
    #[inline(never)]
    pub(in crate::core_loop) fn steer_to_leader(&mut self, frame: P::Frame) {
        if let Some(other_cores) = &mut self.other_cores {
            other_cores.steer(LEADER, Steered::ForLeader(self.wire.selected(), frame), &self.stats);
        }
    }
}
