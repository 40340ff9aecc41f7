//! The rings between the cores of one stack: frames that arrived at another core, and messages.
//!
//! Every two cores share two rings each way. The ring of **frames** may drop: a frame that finds it
//! full is lost as on a wire, is counted, and TCP retransmits it. The ring of **messages** must not
//! drop, except network updates that the receiver requests again. Both are written in batches and
//! drained once an iteration, after the receive stage, so a core never waits for another.
//!
//! A frame is checked where it arrives (link, network, TCP) and its flow is determined there. If
//! the flow belongs to another core, the segment goes there in its buffer, which returns to its
//! pool from there. ICMP errors follow the flow that they quote. Core 0 leads: it handles ARP,
//! neighbour discovery and the contexts' listeners, so that all cores have the same listeners.
//!
//! On a stack of one core this costs one pointer test for each frame and two an iteration.

mod exchange;

use std::collections::VecDeque;

use crossbeam_utils::CachePadded;
use ironwarp_net::{CoreMessage, CoreRole, IcmpError, Packet, Steering};
use ironwarp_rings::spsc;
use ironwarp_stats::{CoreStats, Counter};
use ironwarp_types::Flow;

use crate::shared::ListenAddress;

/// The core that leads: it handles ARP, neighbour discovery and listeners.
pub(crate) const LEADER: u16 = 0;

/// Messages in the ring from one core to another.
const MESSAGE_RING_ENTRIES: usize = 256;

/// Messages that wait because that ring is full: a few for each context. None is created while any
/// waits.
const MESSAGE_BACKLOG_ENTRIES: usize = 128;

/// A frame or error that arrived at one core and belongs to another.
pub(super) enum Steered<F> {
    /// A segment from the port of this number, as in the other variants.
    Packet(u8, Packet<F>),
    /// An ICMP error for a flow of that core.
    IcmpError(u8, IcmpError),
    /// ARP or neighbour discovery, not parsed yet.
    ForLeader(u8, F),
}

/// Messages between cores.
#[derive(Clone, Copy)]
pub(super) enum InterCoreMessage {
    /// A context listens on an address.
    Listen { context: u16, at: ListenAddress },
    /// A context stops listening on an address.
    Unlisten { context: u16, at: ListenAddress },
    /// A context is gone, with all its listeners.
    ContextGone { context: u16 },
    /// An update of the network of a port.
    Net(u8, CoreMessage),
}

/// The rings between this core and one other.
struct CoreRings<F> {
    frames_out: spsc::Producer<Steered<F>>,
    frames_in: spsc::Consumer<Steered<F>>,
    messages_out: spsc::Producer<InterCoreMessage>,
    messages_in: spsc::Consumer<InterCoreMessage>,
    /// Messages that found the ring full, oldest first.
    backlog: VecDeque<InterCoreMessage>,
}

/// A core's ends of all rings to the others.
pub(crate) struct OtherCores<F> {
    core: u16,
    steering: Steering,
    /// By core; `None` for this one.
    channels: Box<[Option<CachePadded<CoreRings<F>>>]>,
    /// Another core's ring had more than one iteration takes.
    budget_exhausted: bool,
    /// Cores that frames are staged for that they do not see yet, one bit each.
    staged: u64,
    /// Cores that frames or messages were published for since they were last woken, one bit each.
    to_wake: u64,
    /// Messages wait for room in a ring.
    has_backlog: bool,
}

/// The ends of the rings between all cores, for each core its own; `None` on a stack of one core.
/// Each frame ring has `frames` entries.
pub(crate) fn core_mesh<F>(steering: Steering, frames: usize) -> Vec<Option<Box<OtherCores<F>>>> {
    let cores = steering.cores();
    if cores == 1 {
        return vec![None];
    }
    let mut channels: Vec<Vec<Option<CachePadded<CoreRings<F>>>>> =
        (0..cores).map(|_| (0..cores).map(|_| None).collect()).collect();
    for (a, b) in (0..usize::from(cores)).flat_map(|b| (0..b).map(move |a| (a, b))) {
        let (at_a, at_b) = channel_pair(frames);
        (channels[a][b], channels[b][a]) = (Some(CachePadded::new(at_a)), Some(CachePadded::new(at_b)));
    }
    let ends = (0..cores).zip(channels);
    ends.map(|(core, channels)| {
        Some(Box::new(OtherCores {
            core,
            steering,
            channels: channels.into(),
            budget_exhausted: false,
            staged: 0,
            to_wake: 0,
            has_backlog: false,
        }))
    })
    .collect()
}

/// Both ends of the rings between two cores.
fn channel_pair<F>(frames: usize) -> (CoreRings<F>, CoreRings<F>) {
    let ((frames_to_b, frames_from_a), (frames_to_a, frames_from_b)) =
        (spsc::channel(frames), spsc::channel(frames));
    let ((messages_to_b, messages_from_a), (messages_to_a, messages_from_b)) =
        (spsc::channel(MESSAGE_RING_ENTRIES), spsc::channel(MESSAGE_RING_ENTRIES));
    let end = |frames_out, frames_in, messages_out, messages_in| CoreRings {
        frames_out,
        frames_in,
        messages_out,
        messages_in,
        backlog: VecDeque::with_capacity(MESSAGE_BACKLOG_ENTRIES),
    };
    (
        end(frames_to_b, frames_from_b, messages_to_b, messages_from_b),
        end(frames_to_a, frames_from_a, messages_to_a, messages_from_a),
    )
}

impl<F> OtherCores<F> {
    /// The role of this core in the network of the stack.
    pub(super) fn role(&self) -> CoreRole {
        if self.core == LEADER { CoreRole::Leader } else { CoreRole::Follower }
    }

    /// The map from flows to cores.
    pub(super) fn steering(&self) -> Steering {
        self.steering
    }

    /// The core of a flow, if it is another one.
    #[inline(never)]
    pub(super) fn other_core_of(&self, flow: &Flow, hash: u32) -> Option<u16> {
        let home = self.steering.core_of(flow, hash);
        (home != self.core).then_some(home)
    }

    /// Stages a frame or error for another core; it is published with the next batch.
    #[inline(never)]
    pub(super) fn steer(&mut self, to: u16, what: Steered<F>, stats: &CoreStats) {
        let channel = self.channels.get_mut(usize::from(to)).and_then(Option::as_mut);
        let staged_frame = channel.is_some_and(|channel| channel.frames_out.stage(what).is_ok());
        self.staged |= u64::from(staged_frame) << to;
        stats.count(if staged_frame { Counter::CoresSteeredOut } else { Counter::CoresSteeredDropped });
    }

    /// Publishes the staged frames.
    #[inline]
    fn publish(&mut self) {
        if self.staged != 0 {
            self.publish_staged();
        }
    }

    #[inline(never)]
    fn publish_staged(&mut self) {
        self.channels.iter_mut().flatten().for_each(|channel| channel.frames_out.publish());
        self.to_wake |= core::mem::take(&mut self.staged);
    }

    /// Returns the other cores, one bit each.
    fn others(&self) -> u64 {
        let all = u64::MAX >> (u64::BITS - self.channels.len().clamp(1, 64) as u32);
        all & !(1 << self.core)
    }

    /// Returns whether another core has sent messages or frames.
    #[inline]
    fn has_input(&mut self) -> bool {
        let mut channels = self.channels.iter_mut().flatten();
        channels.any(|channel| channel.messages_in.available() | channel.frames_in.available() != 0)
    }

    /// Sends a message that must arrive to all other cores.
    pub(super) fn broadcast(&mut self, message: InterCoreMessage) {
        self.channels.iter_mut().flatten().for_each(|channel| channel.send(message));
        self.to_wake = self.others();
        self.update_has_backlog();
    }

    /// Sends a network update to the cores that it concerns.
    fn send_net_message(&mut self, port: u8, net_message: CoreMessage, stats: &CoreStats) {
        let (core, for_leader) = (self.core, net_message.is_for_leader());
        let concerned = |at: usize| !for_leader || (at == usize::from(LEADER) && core != LEADER);
        let channels = self.channels.iter_mut().enumerate().filter(|(at, _)| concerned(*at));
        for channel in channels.filter_map(|(_, channel)| channel.as_mut()) {
            if net_message.is_reliable() {
                channel.send(InterCoreMessage::Net(port, net_message));
            } else if !channel.backlog.is_empty()
                || channel.messages_out.push(InterCoreMessage::Net(port, net_message)).is_err()
            {
                stats.count(Counter::CoresMessagesDropped);
            }
        }
        self.to_wake |= if for_leader { self.others() & 1 << LEADER } else { self.others() };
        self.update_has_backlog();
    }

    /// Moves waiting messages to the rings as far as there is room.
    #[inline]
    fn flush_backlog(&mut self) {
        if self.has_backlog {
            self.channels.iter_mut().flatten().for_each(|channel| channel.flush_backlog());
            self.to_wake = self.others();
            self.update_has_backlog();
        }
    }

    fn update_has_backlog(&mut self) {
        self.has_backlog = self.channels.iter().flatten().any(|channel| !channel.backlog.is_empty());
    }

    /// Returns whether messages wait because another core does not read its own.
    #[inline]
    pub(super) fn has_backlog(&self) -> bool {
        self.has_backlog
    }

    /// Returns whether the next iteration already has messages or frames to exchange.
    #[inline]
    pub(super) fn has_pending_work(&self) -> bool {
        self.budget_exhausted || self.has_backlog()
    }
}

impl<F> CoreRings<F> {
    fn send(&mut self, message: InterCoreMessage) {
        self.flush_backlog();
        let refused =
            if self.backlog.is_empty() { self.messages_out.push(message).err() } else { Some(message) };
        // Messages to a core that is gone are dropped.
        self.backlog.extend(refused.filter(|_| !self.messages_out.is_abandoned()));
    }

    fn flush_backlog(&mut self) {
        if self.backlog.is_empty() {
            return;
        }
        while let Some(message) = self.backlog.front().copied() {
            if !self.messages_out.is_abandoned() && self.messages_out.push(message).is_err() {
                return;
            }
            self.backlog.pop_front();
        }
    }
}

#[cfg(test)]
mod tests;
