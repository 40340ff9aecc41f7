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
use ironwarp_net::{IcmpError, NetNews, Part, Steering, TcpSegment};
use ironwarp_rings::spsc;
use ironwarp_stats::{CoreStats, Counter};
use ironwarp_types::Flow;

/// The core that speaks for the others.
pub(crate) const LEADER: u16 = 0;

/// Mail in flight from one core to another.
const MAIL: usize = 256;

/// Mail that waits here because that ring is full: a few for each context, and no more is made while any waits.
const MAIL_WAITING: usize = 128;

/// Something that arrived at one core and belongs to another.
pub(super) enum Steered<F> {
    /// From the port of this number, here and below.
    Segment(u8, TcpSegment<F>),
    /// Somebody on the way reports about a flow of that core.
    Report(u8, IcmpError),
    /// ARP or neighbour discovery, not looked at yet.
    ForLeader(u8, F),
}

/// What cores tell each other.
#[derive(Clone, Copy)]
pub(super) enum Mail {
    /// A context takes connections for an address.
    Listen { context: u16, local: SocketAddr },
    /// It takes no more of them.
    Unlisten { context: u16, local: SocketAddr },
    /// A context is gone, and all its listeners are.
    ContextGone { context: u16 },
    /// What one core knows of the network of a port and others must or may know.
    Net(u8, NetNews),
}

/// The rings between this core and one other.
struct Peer<F> {
    frames_out: spsc::Producer<Steered<F>>,
    frames_in: spsc::Consumer<Steered<F>>,
    mail_out: spsc::Producer<Mail>,
    mail_in: spsc::Consumer<Mail>,
    /// Mail that found the ring full, oldest first.
    waiting: VecDeque<Mail>,
}

/// A core's ends of all rings to the others.
pub(crate) struct Peers<F> {
    core: u16,
    steering: Steering,
    /// By core; none for this one.
    others: Box<[Option<CachePadded<Peer<F>>>]>,
    /// More has come than was taken in one iteration.
    more: bool,
    /// Frames were handed over that the others do not see yet.
    staged: bool,
    /// Mail waits here for room.
    behind: bool,
}

/// The ends of the rings between all cores, for each core its own. None where there is one core. Each ring of frames has
/// places for `frames`.
pub(crate) fn mesh<F>(steering: Steering, frames: usize) -> Vec<Option<Box<Peers<F>>>> {
    let cores = steering.cores();
    if cores == 1 {
        return vec![None];
    }
    let mut others: Vec<Vec<Option<CachePadded<Peer<F>>>>> =
        (0..cores).map(|_| (0..cores).map(|_| None).collect()).collect();
    for (a, b) in (0..usize::from(cores)).flat_map(|b| (0..b).map(move |a| (a, b))) {
        let (at_a, at_b) = peers(frames);
        (others[a][b], others[b][a]) = (Some(CachePadded::new(at_a)), Some(CachePadded::new(at_b)));
    }
    let ends = (0..cores).zip(others);
    ends.map(|(core, others)| {
        Some(Box::new(Peers {
            core,
            steering,
            others: others.into(),
            more: false,
            staged: false,
            behind: false,
        }))
    })
    .collect()
}

/// Both ends of what two cores share.
fn peers<F>(frames: usize) -> (Peer<F>, Peer<F>) {
    let ((frames_to_b, frames_from_a), (frames_to_a, frames_from_b)) =
        (spsc::channel(frames), spsc::channel(frames));
    let ((mail_to_b, mail_from_a), (mail_to_a, mail_from_b)) = (spsc::channel(MAIL), spsc::channel(MAIL));
    let end = |frames_out, frames_in, mail_out, mail_in| Peer {
        frames_out,
        frames_in,
        mail_out,
        mail_in,
        waiting: VecDeque::with_capacity(MAIL_WAITING),
    };
    (
        end(frames_to_b, frames_from_b, mail_to_b, mail_from_b),
        end(frames_to_a, frames_from_a, mail_to_a, mail_from_a),
    )
}

impl<F> Peers<F> {
    /// The part of this core in what the stack knows of the network.
    pub(super) fn part(&self) -> Part {
        if self.core == LEADER { Part::Leads } else { Part::Follows }
    }

    /// Whose a flow is.
    pub(super) fn steering(&self) -> Steering {
        self.steering
    }

    /// The core that a flow belongs to, if it is another.
    #[inline(never)]
    pub(super) fn elsewhere(&self, flow: &Flow, hash: u32) -> Option<u16> {
        let home = self.steering.home(flow, hash);
        (home != self.core).then_some(home)
    }

    /// Hands something to another core, with the next batch.
    #[inline(never)]
    pub(super) fn hand(&mut self, to: u16, what: Steered<F>, stats: &CoreStats) {
        let peer = self.others.get_mut(usize::from(to)).and_then(Option::as_mut);
        let handed = peer.is_some_and(|peer| peer.frames_out.stage(what).is_ok());
        self.staged |= handed;
        stats.count(if handed { Counter::CoresSteered } else { Counter::CoresSteerDrops });
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
        self.others.iter_mut().flatten().for_each(|peer| peer.frames_out.publish());
    }

    /// Whether one of them has sent mail or frames.
    #[inline]
    fn has_come(&mut self) -> bool {
        let mut others = self.others.iter_mut().flatten();
        others.any(|peer| peer.mail_in.available() | peer.frames_in.available() != 0)
    }

    /// Tells all other cores something that must arrive.
    fn tell_all(&mut self, mail: Mail) {
        self.others.iter_mut().flatten().for_each(|peer| peer.tell(mail));
        self.look_behind();
    }

    /// Tells those whom it concerns.
    fn tell_news(&mut self, port: u8, news: NetNews, stats: &CoreStats) {
        let (core, for_leader) = (self.core, news.is_for_leader());
        let concerned = |at: usize| !for_leader || (at == usize::from(LEADER) && core != LEADER);
        let others = self.others.iter_mut().enumerate().filter(|(at, _)| concerned(*at));
        for peer in others.filter_map(|(_, peer)| peer.as_mut()) {
            if news.must_arrive() {
                peer.tell(Mail::Net(port, news));
            } else if !peer.waiting.is_empty() || peer.mail_out.push(Mail::Net(port, news)).is_err() {
                stats.count(Counter::CoresNewsDropped);
            }
        }
        self.look_behind();
    }

    /// Sends what waits, as far as there is room.
    #[inline]
    fn retry(&mut self) {
        if self.behind {
            self.others.iter_mut().flatten().for_each(|peer| peer.retry());
            self.look_behind();
        }
    }

    fn look_behind(&mut self) {
        self.behind = self.others.iter().flatten().any(|peer| !peer.waiting.is_empty());
    }

    /// Whether another core leaves its mail unread.
    #[inline]
    pub(super) fn is_behind(&self) -> bool {
        self.behind
    }

    /// Whether the next iteration has something to do for others already.
    #[inline]
    pub(super) fn is_busy(&self) -> bool {
        self.more || self.is_behind()
    }
}

impl<F> Peer<F> {
    fn tell(&mut self, mail: Mail) {
        self.retry();
        let refused = if self.waiting.is_empty() { self.mail_out.push(mail).err() } else { Some(mail) };
        // Nobody reads what is sent to a core that is gone.
        self.waiting.extend(refused.filter(|_| !self.mail_out.is_abandoned()));
    }

    fn retry(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        while let Some(mail) = self.waiting.front().copied() {
            if !self.mail_out.is_abandoned() && self.mail_out.push(mail).is_err() {
                return;
            }
            self.waiting.pop_front();
        }
    }
}

#[cfg(test)]
mod tests;
