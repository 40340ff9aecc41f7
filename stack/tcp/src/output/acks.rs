//! Acknowledgements that are owed.
//!
//! An ACK waits one iteration for a reply to carry it: segments owe it in one iteration, and it leaves in the flush of
//! the next, unless payload took it along. What the peer counts or waits for does not wait: ACKs of segments that are
//! out of order, duplicate, fill a gap or bear a FIN leave in the flush of the same iteration (RFC 5681 s4.2). A burst of
//! in-order segments owes one ACK in all (RFC 9293 s3.10.7.4, MUST-58).
//!
//! ```text
//!   on_segment -> fresh --flush--> aged --flush--> sent
//!                   \                  \
//!                    now: sent          transmit carried it: dropped
//! ```

use ironwarp_port::Port;
use ironwarp_stats::Counter;

use super::Io;
use crate::conn::{AckDebt, Conn};
use crate::header::{Flags, OptionBytes};

/// Duplicate ACKs that one iteration sends for a connection at most: a burst's worth.
const NOW_MAX: u8 = 32;

/// Connections that owe an ACK. One is listed at most once, so that the list never grows beyond its capacity.
#[derive(Default)]
pub(crate) struct AckLists {
    listed: Box<[bool]>,
    /// Those that owed one before this iteration, then those that do since.
    due: Vec<u32>,
    aged: usize,
}

impl AckLists {
    pub(crate) fn new(connections: u32) -> Self {
        let connections = connections as usize;
        AckLists {
            listed: vec![false; connections].into_boxed_slice(),
            due: Vec::with_capacity(connections),
            aged: 0,
        }
    }

    /// Lists a connection.
    #[inline]
    pub(crate) fn owe(&mut self, slot: u32) {
        if let Some(listed) = self.listed.get_mut(slot as usize)
            && !*listed
        {
            *listed = true;
            self.due.push(slot);
        }
    }

    /// How many are listed.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.due.len()
    }

    /// Whether nobody is listed.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.due.is_empty()
    }

    /// A connection of the list, and whether its debt has aged.
    #[inline]
    pub(crate) fn due(&self, place: usize) -> Option<(u32, bool)> {
        self.due.get(place).map(|&slot| (slot, place < self.aged))
    }

    /// A debt is left: the connection moves to `place`, at or before its own.
    #[inline]
    pub(crate) fn keep(&mut self, slot: u32, place: usize) {
        if let Some(kept) = self.due.get_mut(place) {
            *kept = slot;
        }
    }

    /// No debt is left.
    #[inline]
    pub(crate) fn strike(&mut self, slot: u32) {
        if let Some(listed) = self.listed.get_mut(slot as usize) {
            *listed = false;
        }
    }

    /// The first `due` have been asked and `left` of them kept: those have aged when the next round comes.
    #[inline]
    pub(crate) fn end_round(&mut self, left: usize, due: usize) {
        if due == self.due.len() {
            self.due.truncate(left);
        } else {
            self.forget(left, due);
        }
        self.aged = left;
    }

    /// Some were listed meanwhile: they stay, behind those that have aged.
    #[cold]
    #[inline(never)]
    fn forget(&mut self, left: usize, due: usize) {
        self.due.drain(left..due);
    }
}

impl Conn {
    /// Owes an ACK that a reply may carry.
    #[inline]
    pub(crate) fn owe_ack<P: Port>(&mut self, io: &mut Io<'_, P>) {
        self.ack.owed = true;
        io.shared.acks.owe(self.slot);
    }

    /// Owes an ACK that leaves in this iteration.
    pub(crate) fn owe_ack_now<P: Port>(&mut self, io: &mut Io<'_, P>) {
        self.ack.now = self.ack.now.max(1);
        self.owe_ack(io);
    }

    /// Owes one more duplicate ACK: the peer counts them (RFC 5681 s3.2). An ACK of in-order bytes that is still owed
    /// goes first and is not one of them. A peer with SACK reads the blocks instead, which tell of the segment that drew them
    /// (RFC 2018 s4): its ACK leaves before the next segment changes them.
    pub(crate) fn owe_duplicate_ack<P: Port>(&mut self, io: &mut Io<'_, P>) {
        if self.opts.sack && self.send_ack(io) {
            self.ack.now = 0;
            return;
        }
        let earlier = u8::from(self.ack.owed && self.ack.now == 0);
        self.ack.now = (self.ack.now + 1 + earlier).min(NOW_MAX);
        self.owe_ack(io);
    }

    /// Sends what is due of the owed ACKs and answers whether any is left.
    #[inline]
    pub(crate) fn pay_acks<P: Port>(&mut self, io: &mut Io<'_, P>, aged: bool) -> bool {
        // What nearly always comes: a debt of this iteration, which a reply may carry yet, or one that a reply has carried.
        let waits = self.ack.now == 0 && !(aged && self.ack.owed) && self.state.is_live();
        if waits { self.ack.owed } else { self.pay_acks_now(io, aged) }
    }

    #[inline(never)]
    fn pay_acks_now<P: Port>(&mut self, io: &mut Io<'_, P>, aged: bool) -> bool {
        if !self.state.is_live() {
            self.ack = AckDebt::default();
        }
        if aged && self.ack.owed {
            self.ack.now = self.ack.now.max(1);
        }
        while self.ack.now > 0 {
            let now = self.ack.now;
            if !self.send_ack(io) {
                return true;
            }
            self.ack.now = now - 1;
        }
        self.ack.owed
    }

    /// Sends an ACK at once and clears the debt that a reply could have carried.
    pub(crate) fn send_ack<P: Port>(&mut self, io: &mut Io<'_, P>) -> bool {
        let control = self.control(io.now, self.snd.ack_seq(), Flags::ACK);
        let blocks = self.sack_option();
        let sent = io.send_control(&self.path, &self.flow, control, blocks.as_slice());
        if sent {
            self.ack.owed = false;
            io.count(Counter::TcpTxAcks);
        }
        sent
    }

    /// RFC 2018 s4: what is held beyond a gap. Time stamps leave room for three blocks.
    fn sack_option(&mut self) -> OptionBytes {
        if !self.opts.sack || self.rcv.held.is_empty() {
            return OptionBytes::EMPTY;
        }
        let most = if self.opts.timestamps { 3 } else { 4 };
        OptionBytes::sack(&self.rcv.held.tell(most))
    }

    /// RFC 5961: an ACK that tells a peer, if it is one, where we stand. Limited, since a stranger can draw it.
    #[cold]
    pub(crate) fn challenge<P: Port>(&mut self, io: &mut Io<'_, P>) {
        if io.may_challenge() {
            io.count(Counter::TcpChallengeAcks);
            self.owe_ack_now(io);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_debt_is_settled_one_flush_after_the_one_that_saw_it_first() {
        let mut lists = AckLists::new(4);
        lists.owe(2);
        lists.owe(2);
        let mut seen = Vec::new();
        lists.flush(|slot, aged| {
            seen.push((slot, aged));
            !aged
        });
        lists.flush(|slot, aged| {
            seen.push((slot, aged));
            !aged
        });
        assert_eq!(seen, [(2, false), (2, true)]);
        assert!(lists.is_empty());
    }

    #[test]
    fn a_debt_that_cannot_be_paid_stays() {
        let mut lists = AckLists::new(1);
        lists.owe(0);
        for _ in 0..5 {
            lists.flush(|_, _| true);
        }
        lists.owe(0);
        let mut paid = 0;
        lists.flush(|_, _| {
            paid += 1;
            false
        });
        assert_eq!(paid, 1);
        assert!(lists.is_empty());
    }
}
