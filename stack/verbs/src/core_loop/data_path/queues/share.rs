//! The shares of queue pairs in a shared receive queue (RFC 5042 s6.4.3.1).
//!
//! A peer can consume shared receives with one-byte messages until others find none and their
//! connections end. So each queue pair's part is counted: receives that its messages consumed and
//! that no post has replaced. A post replaces the oldest consumed receive. A stream reads its
//! messages in order, so at most one of its receives is partly filled.
//!
//! Costs one store for each message that consumes a shared receive. Posts are counted when a share
//! seems exhausted: all of them, each once. They are also counted, a few with each message, when
//! the record of consumed receives is full.

use super::srq::SrqCore;
use crate::objects::{QueuePair, ReceiveShare};

/// One queue pair's share.
#[derive(Clone, Copy)]
pub(super) struct SrqShare {
    /// The queue pair: receives that an earlier one in this slot consumed do not count.
    pub(super) qp: Option<QueuePair>,
    /// Consumed and not replaced, as far as posts are counted.
    outstanding: u32,
    limit: u32,
    enforced: bool,
    /// The event that it exceeded its share was sent.
    reported: bool,
    /// That event is queued.
    event_queued: bool,
}

/// Whether a message may consume a receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ShareDecision {
    Allow,
    /// More than its share: the application gets an event.
    AllowAndReport,
    /// As [`ShareDecision::AllowAndReport`], and the message gets no receive.
    Deny,
}

impl SrqShare {
    pub(super) const UNASSIGNED: SrqShare = SrqShare {
        qp: None,
        outstanding: 0,
        limit: u32::MAX,
        enforced: false,
        reported: false,
        event_queued: false,
    };

    pub(super) fn new(qp: QueuePair, share: Option<ReceiveShare>) -> Self {
        let (limit, enforced) = share.map_or((u32::MAX, false), |share| (share.receives, share.enforced));
        SrqShare { qp: Some(qp), limit, enforced, ..Self::UNASSIGNED }
    }

    /// Returns whether one more receive exceeds the share.
    #[inline]
    pub(super) fn is_exhausted(&self) -> bool {
        self.outstanding >= self.limit
    }

    fn check(&mut self) -> ShareDecision {
        if !self.is_exhausted() {
            return ShareDecision::Allow;
        }
        let first = !core::mem::replace(&mut self.reported, true);
        match (self.enforced, first) {
            (true, _) => ShareDecision::Deny,
            (false, true) => ShareDecision::AllowAndReport,
            (false, false) => ShareDecision::Allow,
        }
    }

    /// Marks the event as queued. Returns whether it was not.
    pub(super) fn queue_event(&mut self) -> bool {
        !core::mem::replace(&mut self.event_queued, true)
    }

    pub(super) fn clear_event_queued(&mut self) {
        self.event_queued = false;
    }

    fn credit(&mut self) {
        self.outstanding = self.outstanding.saturating_sub(1);
        self.reported &= self.outstanding >= self.limit;
    }
}

/// The consumed receives of one queue that no post has replaced, oldest first.
pub(super) struct ConsumedReceives {
    /// The slot and handle of the queue pair. As many entries as the queue holds receives, a power
    /// of two.
    ring: Box<[(u32, Option<QueuePair>)]>,
    oldest: u32,
    next: u32,
    /// The number of posts that are counted as replacements.
    credited_to: u32,
}

impl ConsumedReceives {
    pub(super) fn new(depth: u32) -> Self {
        ConsumedReceives { ring: (0..depth).map(|_| (0, None)).collect(), oldest: 0, next: 0, credited_to: 0 }
    }

    fn count(&self) -> u32 {
        self.next.wrapping_sub(self.oldest)
    }

    fn index_of(&self, number: u32) -> usize {
        number as usize & (self.ring.len() - 1)
    }

    /// Records that the queue pair at `qp_slot` consumed a receive.
    #[inline]
    pub(super) fn record(&mut self, qp_slot: u32, share: &mut SrqShare, tail: u32) {
        if self.count() == 0 {
            // Posts before the first consumed receive replace none.
            self.credited_to = tail;
        }
        share.outstanding += 1;
        let at = self.index_of(self.next);
        if let Some(entry) = self.ring.get_mut(at) {
            *entry = (qp_slot, share.qp);
        }
        self.next = self.next.wrapping_add(1);
    }

    /// Returns whether the record is full.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.count() as usize >= self.ring.len()
    }

    /// Credits the posts up to number `tail`, at most the `limit` oldest of them.
    #[cold]
    #[inline(never)]
    pub(super) fn credit_posts(&mut self, tail: u32, limit: u32, shares: &mut [SrqShare]) {
        let posted = tail.wrapping_sub(self.credited_to).min(limit);
        self.credited_to = self.credited_to.wrapping_add(posted);
        for _ in 0..posted.min(self.count()) {
            let at = self.index_of(self.oldest);
            self.oldest = self.oldest.wrapping_add(1);
            let Some(&(qp_slot, qp)) = self.ring.get(at) else { continue };
            if let Some(share) = shares.get_mut(qp_slot as usize).filter(|share| share.qp == qp) {
                share.credit();
            }
        }
    }
}

/// Decides for a queue pair whose share seems exhausted, after counting posts.
#[cold]
#[inline(never)]
pub(super) fn check_share(srq: &mut SrqCore, shares: &mut [SrqShare], qp_slot: u32) -> ShareDecision {
    srq.credit_posts(shares);
    shares.get_mut(qp_slot as usize).map_or(ShareDecision::Allow, SrqShare::check)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However deep the queue, one message counts a few posts, not all.
    #[test]
    fn each_post_credits_one_consumed_receive_once() {
        let mut shares = [SrqShare::UNASSIGNED];
        let mut consumed = ConsumedReceives::new(8);
        (0..8).for_each(|_| consumed.record(0, &mut shares[0], 8));
        assert!(consumed.is_full());
        consumed.credit_posts(14, 4, &mut shares);
        assert_eq!((consumed.count(), shares[0].outstanding), (4, 4));
        consumed.credit_posts(14, u32::MAX, &mut shares);
        assert_eq!((consumed.count(), shares[0].outstanding), (2, 2));
        consumed.credit_posts(14, u32::MAX, &mut shares);
        assert_eq!((consumed.count(), shares[0].outstanding), (2, 2), "each post once");
        consumed.credit_posts(20, u32::MAX, &mut shares);
        assert_eq!((consumed.count(), shares[0].outstanding), (0, 0));
    }
}
