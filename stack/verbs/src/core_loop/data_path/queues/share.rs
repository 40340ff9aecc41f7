//! Who has taken how much of a shared receive queue (RFC 5042 s6.4.3.1).
//!
//! A peer can take shared receives with one-byte messages, until others find none and are ended for it. So each queue
//! pair's part is known: receives that its messages took and that nobody has replaced. Posts replace the oldest first.
//! A stream reads its messages in order, so no more than one of them is ever half full.
//!
//! Costs one store for each message that takes a shared receive. Posts are looked at when a share seems used up: all of
//! them, each once; and when as many takers are noted as there are receives: a few with each message.

use super::srq::SrqCore;
use crate::objects::{QueuePair, ReceiveShare};

/// One queue pair's part.
#[derive(Clone, Copy)]
pub(super) struct SrqShare {
    /// Whose it is: receives that an earlier queue pair in this place took count for nobody.
    pub(super) qp: Option<QueuePair>,
    /// Taken and not replaced, as far as posts have been looked at.
    outstanding: u32,
    limit: u32,
    enforced: bool,
    /// That it has more than its share has been told.
    reported: bool,
    /// It waits in the list of those to be told of.
    event_queued: bool,
}

/// Whether a message may take a receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ShareDecision {
    Allow,
    /// More than its share: the application is to be told.
    AllowAndReport,
    /// As [`ShareDecision::AllowAndReport`], and there is none for it.
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

    /// Whether one more would be more than its share.
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

    /// Puts it into the list of those to be told of. Answers whether it is not there.
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

/// Who took the receives of one queue that have not been replaced, oldest first.
pub(super) struct ConsumedReceives {
    /// The queue pair's place, and who was there. As many as the queue holds receives, a power of two.
    ring: Box<[(u32, Option<QueuePair>)]>,
    oldest: u32,
    next: u32,
    /// The number of posts up to which what was taken has been replaced.
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

    /// Notes that the queue pair at `qp_slot` took one.
    #[inline]
    pub(super) fn record(&mut self, qp_slot: u32, share: &mut SrqShare, tail: u32) {
        if self.count() == 0 {
            // What was posted before anything was taken replaces nothing.
            self.credited_to = tail;
        }
        share.outstanding += 1;
        let at = self.index_of(self.next);
        if let Some(entry) = self.ring.get_mut(at) {
            *entry = (qp_slot, share.qp);
        }
        self.next = self.next.wrapping_add(1);
    }

    /// Whether there is no room to note another.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.count() as usize >= self.ring.len()
    }

    /// Gives shares back for the posts up to number `tail`, for the `limit` oldest of them at most.
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

/// Judges a queue pair whose share seems used up, now that posts are looked at.
#[cold]
#[inline(never)]
pub(super) fn check_share(srq: &mut SrqCore, shares: &mut [SrqShare], qp_slot: u32) -> ShareDecision {
    srq.credit_posts(shares);
    shares.get_mut(qp_slot as usize).map_or(ShareDecision::Allow, SrqShare::check)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However deep the queue, one message pays for a few posts and not for all that were not looked at.
    #[test]
    fn settling_a_few_gives_as_many_back_and_the_rest_later() {
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
