//! The core loop's side of it: what goes to other cores, and what comes from them.

use ironwarp_net::{IcmpError, Received};

use super::{LEADER, Mail, Peers, Steered};
use crate::core_loop::*;

/// Frames taken over from one other core in one iteration, as many as four bursts bring; so that whoever is flooded
/// elsewhere cannot starve the frames that arrive here.
const STEERED_BUDGET: usize = 128;

/// Mail taken from one other core in one iteration.
const MAIL_BUDGET: usize = 64;

impl<P: Port, C: Clock> CoreLoop<P, C> {
    /// Hands over what was received for others, and takes what others have received for us. What is taken here is at home:
    /// nobody is asked again whose it is.
    #[inline(never)]
    pub(in crate::core_loop) fn exchange(&mut self, now: Nanos) {
        let Some(peers) = self.peers.as_deref_mut() else { return };
        peers.publish();
        peers.more = false;
        if peers.has_come() {
            self.take_all_over(now);
        }
    }

    #[inline(never)]
    fn take_all_over(&mut self, now: Nanos) {
        let Some(mut peers) = self.peers.take() else { return };
        for other in 0..peers.others.len() {
            self.read_mail(now, &mut peers, other);
            self.take_over(now, &mut peers, other);
        }
        self.peers = Some(peers);
    }

    fn take_over(&mut self, now: Nanos, peers: &mut Peers<P::Frame>, other: usize) {
        let Some(peer) = peers.others.get_mut(other).and_then(Option::as_mut) else { return };
        let mut taken = 0;
        while taken < STEERED_BUDGET
            && let Some(steered) = peer.frames_in.pop()
        {
            taken += 1;
            self.on_steered(now, steered);
        }
        peers.more |= taken == STEERED_BUDGET;
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
            Steered::Report(port, error) => {
                self.wire.select(port);
                self.on_icmp_error(now, &error);
            }
            Steered::ForLeader(port, frame) => {
                self.wire.select(port);
                self.nets.at_mut::<P>(port).on_handed_frame(now, frame, &mut self.wire);
            }
        }
    }

    fn read_mail(&mut self, now: Nanos, peers: &mut Peers<P::Frame>, other: usize) {
        let Some(peer) = peers.others.get_mut(other).and_then(Option::as_mut) else { return };
        let mut read = 0;
        while read < MAIL_BUDGET
            && let Some(mail) = peer.mail_in.pop()
        {
            read += 1;
            match mail {
                Mail::Listen { context, local } => self.listen_too(context, local),
                Mail::Unlisten { context, local } => self.unlisten_here(context, local),
                Mail::ContextGone { context } => self.on_context_gone(context),
                Mail::Net(port, news) => {
                    self.wire.select(port);
                    self.nets.at_mut::<P>(port).on_news(now, news, &mut self.wire);
                }
            }
        }
        peers.more |= read == MAIL_BUDGET;
        self.work += read;
    }

    /// Tells the others what was found out in this iteration.
    #[inline(never)]
    pub(in crate::core_loop) fn post_news(&mut self) {
        let Some(peers) = self.peers.as_deref_mut() else { return };
        peers.retry();
        for port in 0..self.wire.devices() {
            while let Some(news) = self.nets.at_mut::<P>(port).take_news() {
                peers.tell_news(port, news, &self.stats);
            }
        }
    }

    /// Tells all other cores something that must arrive.
    #[cold]
    pub(in crate::core_loop) fn tell_cores(&mut self, mail: Mail) {
        if let Some(peers) = self.peers.as_deref_mut() {
            peers.tell_all(mail);
        }
    }

    /// Whether the other cores have heard all that must reach them; until then contexts have to wait.
    pub(in crate::core_loop) fn is_heard(&self) -> bool {
        self.peers.as_ref().is_none_or(|peers| !peers.is_behind())
    }

    /// Somebody reports about a flow: that is for the core that it belongs to.
    #[cold]
    #[inline(never)]
    pub(in crate::core_loop) fn on_report(&mut self, now: Nanos, error: IcmpError) {
        if let Some(peers) = &mut self.peers
            && let Some(to) = peers.elsewhere(&error.flow, error.hash)
        {
            return peers.hand(to, Steered::Report(self.wire.selected(), error), &self.stats);
        }
        self.on_icmp_error(now, &error);
    }

    /// A frame of ARP or neighbour discovery, on a core that follows.
    #[cold]
    #[inline(never)]
    pub(in crate::core_loop) fn hand_to_leader(&mut self, frame: P::Frame) {
        if let Some(peers) = &mut self.peers {
            peers.hand(LEADER, Steered::ForLeader(self.wire.selected(), frame), &self.stats);
        }
    }
}
