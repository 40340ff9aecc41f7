//! Pending acknowledgements.
//!
//! An ACK waits one iteration for a reply to carry it. A segment schedules it in one iteration, and
//! it leaves in the flush of the next, unless payload carried it. ACKs that the peer counts or
//! waits for do not wait. The ACK of a segment that is out of order, is a duplicate, fills a gap or
//! has a FIN leaves in the flush of the same iteration (RFC 5681 s4.2). A burst of in-order
//! segments needs one ACK in all (RFC 9293 s3.10.7.4, MUST-58).
//!
//! ```text
//!   on_segment -> pending --flush--> aged --flush--> sent
//!                    \                  \
//!                     immediate: sent    transmit carried it: dropped
//! ```

use ironwarp_port::Port;
use ironwarp_stats::Counter;

use super::TcpIo;
use crate::conn::{Conn, PendingAck};
use crate::header::{Flags, OptionBytes};

/// The maximum number of duplicate ACKs per connection and iteration: one burst.
const NOW_MAX: u8 = 32;

/// The connections with a pending ACK. Each is queued at most once, so the queue never exceeds its
/// capacity.
#[derive(Default)]
pub(crate) struct AckQueue {
    queued: Box<[bool]>,
    due: Vec<u32>,
    /// How many of `due` were queued before the last flush. The others only wait, unless one is
    /// immediate.
    aged: usize,
    has_immediate: bool,
    round: u16,
}

impl AckQueue {
    pub(crate) fn new(connections: u32) -> Self {
        let connections = connections as usize;
        AckQueue {
            queued: vec![false; connections].into_boxed_slice(),
            due: Vec::with_capacity(connections),
            aged: 0,
            has_immediate: false,
            round: 0,
        }
    }

    /// Queues a connection.
    #[inline]
    pub(crate) fn schedule(&mut self, slot: u32) {
        if let Some(queued) = self.queued.get_mut(slot as usize)
            && !*queued
        {
            *queued = true;
            self.due.push(slot);
        }
    }

    /// Payload has carried the ACK of a connection, and none of its ACKs is immediate. It leaves
    /// the queue if it was queued last; otherwise the flush removes it.
    #[inline(always)]
    fn on_carried(&mut self, slot: u32) {
        if self.due.last() == Some(&slot)
            && let Some(queued) = self.queued.get_mut(slot as usize)
        {
            *queued = false;
            self.due.pop();
            self.aged = self.aged.min(self.due.len());
        }
    }

    /// Returns the number of flushes with a non-empty queue. A pending ACK of an earlier round has
    /// aged. The counter wraps; an ACK that could not be sent for a whole cycle waits once more.
    #[inline]
    pub(crate) fn round(&self) -> u16 {
        self.round
    }

    /// Returns whether the queue is empty.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.due.is_empty()
    }

    /// Calls `send_due` with slot and round for the queued connections whose ACK may be due: all of
    /// them if one has an immediate ACK, otherwise those that were queued before the last flush. It
    /// returns whether an ACK is still pending. The queue stays in `owner`, which `send_due` also
    /// uses.
    #[inline]
    pub(crate) fn flush<W>(
        owner: &mut W,
        queue: impl Fn(&mut W) -> &mut AckQueue,
        mut send_due: impl FnMut(&mut W, u32, u16) -> bool,
    ) {
        let (visited, round, mut left) = (queue(owner).begin_round(), queue(owner).round, 0);
        for index in 0..visited {
            let Some(&slot) = queue(owner).due.get(index) else { break };
            let is_pending = send_due(owner, slot, round);
            queue(owner).keep_if_pending(slot, is_pending, &mut left);
        }
        queue(owner).end_round(left, visited);
    }

    /// Returns how many connections are visited.
    #[inline]
    fn begin_round(&mut self) -> usize {
        if core::mem::take(&mut self.has_immediate) { self.due.len() } else { self.aged }
    }

    /// Keeps a connection with a pending ACK at index `left`, and removes one without.
    #[inline]
    fn keep_if_pending(&mut self, slot: u32, is_pending: bool, left: &mut usize) {
        if !is_pending {
            if let Some(queued) = self.queued.get_mut(slot as usize) {
                *queued = false;
            }
        } else if let Some(entry) = self.due.get_mut(*left) {
            *entry = slot;
            *left += 1;
        }
    }

    /// Ends a round in which the first `visited` connections were processed and `left` of them
    /// kept.
    #[inline]
    fn end_round(&mut self, left: usize, visited: usize) {
        if visited == self.due.len() {
            self.due.truncate(left);
        } else if left != visited {
            self.remove_sent(left, visited);
        }
        self.aged = self.due.len();
        self.round = self.round.wrapping_add(1);
    }

    /// Connections that were not visited stay, after those that were kept.
    #[inline(never)]
    fn remove_sent(&mut self, left: usize, visited: usize) {
        self.due.drain(left..visited);
    }
}

impl PendingAck {
    /// Schedules an ACK. It belongs to the current round unless one was pending already.
    #[inline]
    pub(crate) fn schedule(&mut self, lists: &mut AckQueue, slot: u32) {
        if !self.pending {
            (self.pending, self.since) = (true, lists.round());
        }
        lists.schedule(slot);
    }

    /// Schedules `count` ACKs that leave in this iteration, instead of those that were to leave in
    /// it before.
    #[inline]
    pub(crate) fn schedule_immediate(&mut self, lists: &mut AckQueue, slot: u32, count: u8) {
        self.immediate = count;
        lists.has_immediate = true;
        self.schedule(lists, slot);
    }
}

impl Conn {
    /// Schedules an ACK that a reply may carry.
    #[inline]
    pub(crate) fn schedule_ack<P: Port>(&mut self, io: &mut TcpIo<'_, P>) {
        self.ack.schedule(&mut io.shared.acks, self.slot);
    }

    /// The payload that was just sent carries the pending ACK.
    #[inline]
    pub(super) fn on_ack_carried<P: Port>(&mut self, io: &mut TcpIo<'_, P>) {
        if core::mem::take(&mut self.ack.pending) && self.ack.immediate == 0 {
            io.shared.acks.on_carried(self.slot);
        }
    }

    /// Schedules an ACK that leaves in this iteration.
    pub(crate) fn schedule_ack_now<P: Port>(&mut self, io: &mut TcpIo<'_, P>) {
        let count = self.ack.immediate.max(1);
        self.ack.schedule_immediate(&mut io.shared.acks, self.slot, count);
    }

    /// Schedules one more duplicate ACK, since the peer counts them (RFC 5681 s3.2). If an ordinary
    /// ACK is pending, one more is sent, because it does not count as a duplicate. A peer with SACK
    /// reads the blocks instead, which describe the segment that triggered the ACK (RFC 2018 s4).
    /// Its ACK leaves at once, before the next segment changes the blocks.
    pub(crate) fn schedule_duplicate_ack<P: Port>(&mut self, io: &mut TcpIo<'_, P>) {
        if self.opts.sack && self.send_ack(io) {
            self.ack.immediate = 0;
            return;
        }
        let earlier = u8::from(self.ack.pending && self.ack.immediate == 0);
        let count = (self.ack.immediate + 1 + earlier).min(NOW_MAX);
        self.ack.schedule_immediate(&mut io.shared.acks, self.slot, count);
    }

    /// Returns whether the flush has nothing to do: the ACK is of this iteration, and a reply may
    /// still carry it, or a reply has carried it.
    #[inline]
    pub(crate) fn may_wait_for_reply(&self, round: u16) -> bool {
        let is_due = self.ack.pending && self.ack.since != round;
        self.ack.immediate == 0 && !is_due && self.state.is_live()
    }

    /// Sends the due ACKs and returns whether one is still pending.
    #[inline(never)]
    pub(crate) fn send_due_acks<P: Port>(&mut self, io: &mut TcpIo<'_, P>, round: u16) -> bool {
        let aged = self.ack.since != round;
        if !self.state.is_live() {
            self.ack = PendingAck::default();
        }
        if aged && self.ack.pending {
            self.ack.immediate = self.ack.immediate.max(1);
        }
        while self.ack.immediate > 0 {
            let now = self.ack.immediate;
            if !self.send_ack(io) {
                return true;
            }
            self.ack.immediate = now - 1;
        }
        self.ack.pending
    }

    /// Sends an ACK at once. It also replaces a pending one.
    pub(crate) fn send_ack<P: Port>(&mut self, io: &mut TcpIo<'_, P>) -> bool {
        let header = self.header(io.now, self.snd.ack_seq(), Flags::ACK);
        let blocks = self.sack_option();
        let sent = io.send_control(&self.path, self.ports, header, blocks.as_slice());
        if sent {
            self.ack.pending = false;
            io.count(Counter::TcpTxAcks);
        }
        sent
    }

    /// RFC 2018 s4: the ranges held beyond a gap. Timestamps leave room for three blocks.
    fn sack_option(&mut self) -> OptionBytes {
        if !self.opts.sack || !self.rcv.may_report_ranges {
            return OptionBytes::EMPTY;
        }
        self.rcv.may_report_ranges = !self.cold.sack_ranges.is_empty();
        if !self.rcv.may_report_ranges {
            return OptionBytes::EMPTY;
        }
        let most = if self.opts.timestamps { 3 } else { 4 };
        OptionBytes::sack(&self.cold.sack_ranges.next_blocks(most))
    }

    /// RFC 5961: a challenge ACK, which lets a genuine peer resynchronise. Rate-limited, since
    /// anyone can trigger it.
    #[cold]
    pub(crate) fn challenge<P: Port>(&mut self, io: &mut TcpIo<'_, P>) {
        if io.may_challenge() {
            io.count(Counter::TcpChallengeAcks);
            self.schedule_ack_now(io);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Flushes the queue and returns the slots and rounds that were visited. All stay pending
    /// before `sent_from`.
    fn flush(lists: &mut AckQueue, sent_from: u16) -> Vec<(u32, u16)> {
        let mut seen = Vec::new();
        AckQueue::flush(
            lists,
            |lists| lists,
            |_, slot, round| {
                seen.push((slot, round));
                round < sent_from
            },
        );
        seen
    }

    #[test]
    fn a_pending_ack_is_sent_in_the_flush_after_its_first() {
        let mut lists = AckQueue::new(4);
        lists.schedule(2);
        lists.schedule(2);
        assert!(flush(&mut lists, 0).is_empty());
        lists.schedule(3);
        assert_eq!(flush(&mut lists, 0), [(2, 1)]);
        assert_eq!(flush(&mut lists, 0), [(3, 2)]);
        assert!(lists.is_empty());
    }

    #[test]
    fn an_ack_that_payload_carried_is_not_visited_if_it_was_queued_last() {
        let mut lists = AckQueue::new(4);
        lists.schedule(1);
        lists.schedule(2);
        lists.schedule(3);
        assert!(flush(&mut lists, 0).is_empty());
        lists.on_carried(3);
        lists.on_carried(1);
        assert_eq!(flush(&mut lists, 0), [(1, 1), (2, 1)]);
        lists.schedule(3);
        lists.on_carried(3);
        assert!(lists.is_empty());
        lists.schedule(2);
        assert!(flush(&mut lists, 0).is_empty());
        assert_eq!(flush(&mut lists, 0), [(2, 3)]);
    }

    #[test]
    fn an_immediate_ack_is_sent_in_its_first_flush() {
        let (mut lists, mut ack) = (AckQueue::new(4), PendingAck::default());
        lists.schedule(2);
        ack.schedule_immediate(&mut lists, 1, 1);
        assert_eq!((flush(&mut lists, 1), ack.immediate), (vec![(2, 0), (1, 0)], 1));
        assert_eq!(flush(&mut lists, 1), [(2, 1), (1, 1)]);
        assert!(lists.is_empty());
    }

    #[test]
    fn a_pending_ack_keeps_the_round_of_the_first_unsent_one() {
        let (mut lists, mut ack) = (AckQueue::new(1), PendingAck::default());
        for (round, sent, since) in [(0, false, 0), (1, true, 0), (2, false, 2), (3, false, 2)] {
            ack.schedule(&mut lists, 0);
            assert_eq!((lists.round(), ack.since), (round, since));
            AckQueue::flush(&mut lists, |lists| lists, |_, _, _| true);
            ack.pending = !sent;
        }
    }

    #[test]
    fn an_ack_that_cannot_be_sent_stays_queued() {
        let mut lists = AckQueue::new(1);
        lists.schedule(0);
        for _ in 0..5 {
            AckQueue::flush(&mut lists, |lists| lists, |_, _, _| true);
        }
        lists.schedule(0);
        let mut sent = 0;
        AckQueue::flush(
            &mut lists,
            |lists| lists,
            |_, _, _| {
                sent += 1;
                false
            },
        );
        assert_eq!(sent, 1);
        assert!(lists.is_empty());
    }
}
