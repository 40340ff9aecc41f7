//! The exchange of frames and messages with other cores, from the core loop's side.

use ironwarp_net::Received;
use ironwarp_stats::Counter;
use ironwarp_types::{Clock, Nanos};

use super::{InterCoreMessage, OtherCores, Steered};
use crate::core_loop::CoreLoop;
use crate::core_loop::data_path::DataPath;
use crate::core_loop::lower::{FrameOf, Lower};

/// Frames taken from one other core in one iteration, as many as four bursts, so that a flood there
/// does not starve the frames that arrive here.
const STEERED_BUDGET: usize = 128;

/// Messages taken from one other core in one iteration.
const MESSAGE_BUDGET: usize = 64;

impl<L: Lower, C: Clock> CoreLoop<L, C> {
    /// Publishes what was received for other cores and handles what they received for this one. A
    /// steered frame is not steered again.
    #[inline(never)]
    pub(crate) fn exchange(&mut self, now: Nanos) {
        let Some(other_cores) = self.dp.other_cores.as_deref_mut() else { return };
        other_cores.publish();
        other_cores.budget_exhausted = false;
        if other_cores.has_input() {
            self.receive_from_cores(now);
        }
    }

    #[inline(never)]
    fn receive_from_cores(&mut self, now: Nanos) {
        let Some(mut other_cores) = self.dp.other_cores.take() else { return };
        for other in 0..other_cores.channels.len() {
            self.receive_messages(now, &mut other_cores, other);
            self.receive_steered(now, &mut other_cores, other);
        }
        self.dp.other_cores = Some(other_cores);
    }

    fn receive_steered(&mut self, now: Nanos, other_cores: &mut OtherCores<FrameOf<L>>, other: usize) {
        let Some(channel) = other_cores.channels.get_mut(other).and_then(Option::as_mut) else { return };
        let mut taken = 0;
        while taken < STEERED_BUDGET
            && let Some(steered) = channel.frames_in.pop()
        {
            taken += 1;
            self.on_steered(now, steered);
        }
        other_cores.budget_exhausted |= taken == STEERED_BUDGET;
        self.dp.count_work(taken);
        self.dp.stats.add(Counter::CoresSteeredIn, taken as u64);
    }

    fn on_steered(&mut self, now: Nanos, steered: Steered<FrameOf<L>>) {
        match steered {
            Steered::Packet(port, segment) => {
                // A segment from this host to itself: its replies are looped back too.
                if segment.remote_mac == self.dp.nets.at(port).mac() {
                    self.dp.wires.at_mut(port).loop_back(segment.remote_mac);
                }
                self.on_received(now, port, Received::Packet(segment));
            }
            Steered::IcmpError(port, error) => {
                self.on_icmp_error(now, port, &error);
            }
            Steered::ForLeader(port, frame) => {
                self.dp.nets.at_mut(port).on_forwarded_frame(now, frame, self.dp.wires.at_mut(port));
            }
        }
    }

    fn receive_messages(&mut self, now: Nanos, other_cores: &mut OtherCores<FrameOf<L>>, other: usize) {
        let Some(channel) = other_cores.channels.get_mut(other).and_then(Option::as_mut) else { return };
        let mut read = 0;
        while read < MESSAGE_BUDGET
            && let Some(message) = channel.messages_in.pop()
        {
            read += 1;
            match message {
                InterCoreMessage::Listen { context, at } => self.cm.add_listener(&mut self.dp, context, at),
                InterCoreMessage::Unlisten { context, at } => {
                    self.cm.remove_listener(&mut self.dp, context, at)
                }
                InterCoreMessage::ContextGone { context } => self.cm.on_context_gone(&mut self.dp, context),
                InterCoreMessage::Net(port, net_message) => {
                    let (net, wire) = (self.dp.nets.at_mut(port), self.dp.wires.at_mut(port));
                    net.on_core_message(now, net_message, wire);
                }
            }
        }
        other_cores.budget_exhausted |= read == MESSAGE_BUDGET;
        self.dp.count_work(read);
    }
}

impl<L: Lower> DataPath<L> {
    /// Takes the set of cores that something was published for, one bit each.
    #[inline]
    pub(crate) fn take_cores_to_wake(&mut self) -> u64 {
        let by_rings = self.other_cores.as_deref_mut().map_or(0, |cores| core::mem::take(&mut cores.to_wake));
        by_rings | self.take_owners_to_wake()
    }

    /// Sends the network updates of this iteration to the other cores.
    #[inline(never)]
    pub(crate) fn send_net_messages(&mut self) {
        let Some(other_cores) = self.other_cores.as_deref_mut() else { return };
        other_cores.flush_backlog();
        self.nets.for_each_mut(|port, net| {
            while let Some(net_message) = net.take_core_message() {
                other_cores.send_net_message(port, net_message, &self.stats);
            }
        });
    }
}
