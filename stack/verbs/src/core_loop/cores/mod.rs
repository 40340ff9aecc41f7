//! What the cores of one stack have to do with each other: frames that arrived elsewhere, and news.
//!
//! Every two cores share two rings each way. The ring of **frames** may drop: what finds it full is lost as on a wire, is
//! counted, and TCP sends it again. The ring of **mail** may not, save for news that whoever misses them asks for again.
//! Both are written in batches and drained once an iteration, behind the receive stage, so a core never waits for
//! another.
//!
//! A frame is looked at where it arrives: link, network and TCP checks, and what flow it is of. If the flow belongs to
//! another core the segment goes there as it is, in its buffer, which returns to its pool from there. ICMP errors follow
//! the flow that they quote. Core 0 leads: frames of ARP and neighbour discovery go there, and so do the contexts' wishes
//! to listen, so that all cores agree on who listens where.
//!
//! A stack of one core has none of this: it tests one pointer for each frame and twice an iteration.

mod exchange;

use core::net::SocketAddr;
use std::collections::VecDeque;

use crossbeam_utils::CachePadded;
use ironwarp_net::{CoreMessage, CoreRole, IcmpError, Steering, TcpSegment};
use ironwarp_rings::spsc;
use ironwarp_stats::{CoreStats, Counter};
use ironwarp_types::Flow;

/// The core that speaks for the others.
pub(crate) const LEADER: u16 = 0;

/// Mail in flight from one core to another.
const MESSAGE_RING_ENTRIES: usize = 256;

/// Mail that waits here because that ring is full: a few for each context, and no more is made while any waits.
const MESSAGE_BACKLOG_ENTRIES: usize = 128;

/// Something that arrived at one core and belongs to another.
pub(super) enum Steered<F> {
    /// From the port of this number, here and below.
    Segment(u8, TcpSegment<F>),
    /// Somebody on the way reports about a flow of that core.
    IcmpError(u8, IcmpError),
    /// ARP or neighbour discovery, not looked at yet.
    ForLeader(u8, F),
}

/// What cores tell each other.
#[derive(Clone, Copy)]
pub(super) enum InterCoreMessage {
    /// A context takes connections for an address.
    Listen { context: u16, local: SocketAddr },
    /// It takes no more of them.
    Unlisten { context: u16, local: SocketAddr },
    /// A context is gone, and all its listeners are.
    ContextGone { context: u16 },
    /// What one core knows of the network of a port and others must or may know.
    Net(u8, CoreMessage),
}

/// The rings between this core and one other.
struct CoreChannel<F> {
    frames_out: spsc::Producer<Steered<F>>,
    frames_in: spsc::Consumer<Steered<F>>,
    messages_out: spsc::Producer<InterCoreMessage>,
    messages_in: spsc::Consumer<InterCoreMessage>,
    /// Mail that found the ring full, oldest first.
    backlog: VecDeque<InterCoreMessage>,
}

/// A core's ends of all rings to the others.
pub(crate) struct OtherCores<F> {
    core: u16,
    steering: Steering,
    /// By core; none for this one.
    channels: Box<[Option<CachePadded<CoreChannel<F>>>]>,
    /// More has come than was taken in one iteration.
    budget_exhausted: bool,
    /// Frames were handed over that the others do not see yet.
    staged: bool,
    /// Mail waits here for room.
    has_backlog: bool,
}

/// The ends of the rings between all cores, for each core its own. None where there is one core. Each ring of frames has
/// places for `frames`.
pub(crate) fn core_mesh<F>(steering: Steering, frames: usize) -> Vec<Option<Box<OtherCores<F>>>> {
    let cores = steering.cores();
    if cores == 1 {
        return vec![None];
    }
    let mut channels: Vec<Vec<Option<CachePadded<CoreChannel<F>>>>> =
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
            staged: false,
            has_backlog: false,
        }))
    })
    .collect()
}

/// Both ends of what two cores share.
fn channel_pair<F>(frames: usize) -> (CoreChannel<F>, CoreChannel<F>) {
    let ((frames_to_b, frames_from_a), (frames_to_a, frames_from_b)) =
        (spsc::channel(frames), spsc::channel(frames));
    let ((messages_to_b, messages_from_a), (messages_to_a, messages_from_b)) =
        (spsc::channel(MESSAGE_RING_ENTRIES), spsc::channel(MESSAGE_RING_ENTRIES));
    let end = |frames_out, frames_in, messages_out, messages_in| CoreChannel {
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
    /// The part of this core in what the stack knows of the network.
    pub(super) fn role(&self) -> CoreRole {
        if self.core == LEADER { CoreRole::Leader } else { CoreRole::Follower }
    }

    /// Whose a flow is.
    pub(super) fn steering(&self) -> Steering {
        self.steering
    }

    /// The core that a flow belongs to, if it is another.
    #[inline(never)]
    pub(super) fn other_core_of(&self, flow: &Flow, hash: u32) -> Option<u16> {
        let home = self.steering.home(flow, hash);
        (home != self.core).then_some(home)
    }

    /// Hands something to another core, with the next batch.
    #[inline(never)]
    pub(super) fn steer(&mut self, to: u16, what: Steered<F>, stats: &CoreStats) {
        let channel = self.channels.get_mut(usize::from(to)).and_then(Option::as_mut);
        let staged_frame = channel.is_some_and(|channel| channel.frames_out.stage(what).is_ok());
        self.staged |= staged_frame;
        stats.count(if staged_frame { Counter::CoresSteeredOut } else { Counter::CoresSteeredDropped });
    }

    /// Lets the others see what was handed to them.
    #[inline]
    fn publish(&mut self) {
        if core::mem::take(&mut self.staged) {
            self.publish_staged();
        }
    }

    #[inline(never)]
    fn publish_staged(&mut self) {
        self.channels.iter_mut().flatten().for_each(|channel| channel.frames_out.publish());
    }

    /// Whether one of them has sent mail or frames.
    #[inline]
    fn has_input(&mut self) -> bool {
        let mut channels = self.channels.iter_mut().flatten();
        channels.any(|channel| channel.messages_in.available() | channel.frames_in.available() != 0)
    }

    /// Tells all other cores something that must arrive.
    pub(super) fn broadcast(&mut self, message: InterCoreMessage) {
        self.channels.iter_mut().flatten().for_each(|channel| channel.send(message));
        self.update_has_backlog();
    }

    /// Tells those whom it concerns.
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
        self.update_has_backlog();
    }

    /// Sends what waits, as far as there is room.
    #[inline]
    fn flush_backlog(&mut self) {
        if self.has_backlog {
            self.channels.iter_mut().flatten().for_each(|channel| channel.flush_backlog());
            self.update_has_backlog();
        }
    }

    fn update_has_backlog(&mut self) {
        self.has_backlog = self.channels.iter().flatten().any(|channel| !channel.backlog.is_empty());
    }

    /// Whether another core leaves its mail unread.
    #[inline]
    pub(super) fn has_backlog(&self) -> bool {
        self.has_backlog
    }

    /// Whether the next iteration has something to do for others already.
    #[inline]
    pub(super) fn has_pending_work(&self) -> bool {
        self.budget_exhausted || self.has_backlog()
    }
}

impl<F> CoreChannel<F> {
    fn send(&mut self, message: InterCoreMessage) {
        self.flush_backlog();
        let refused =
            if self.backlog.is_empty() { self.messages_out.push(message).err() } else { Some(message) };
        // Nobody reads what is sent to a core that is gone.
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
