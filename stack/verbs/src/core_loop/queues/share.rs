//! Who has taken how much of a shared receive queue (RFC 5042 s6.4.3.1).
//!
//! A peer can take shared receives with one-byte messages, until others find none and are ended for it. So each queue
//! pair's part is known: receives that its messages took and that nobody has replaced. Posts replace the oldest first.
//! A stream reads its messages in order, so no more than one of them is ever half full.
//!
//! Costs one store for each message that takes a shared receive. Posts are looked at when a share seems used up: all of
//! them, each once; and when as many takers are noted as there are receives: a few with each message.

use super::srq::SrqCore;
use crate::context::{QueuePair, ReceiveShare};

/// One queue pair's part.
#[derive(Clone, Copy)]
pub(super) struct Share {
    /// Whose it is: receives that an earlier queue pair in this place took count for nobody.
    pub(super) qp: Option<QueuePair>,
    /// Taken and not replaced, as far as posts have been looked at.
    held: u32,
    most: u32,
    enforced: bool,
    /// That it has more than its share has been told.
    told: bool,
    /// It waits in the list of those to be told of.
    listed: bool,
}

/// Whether a message may take a receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    Fine,
    /// More than its share: the application is to be told.
    Tell,
    /// As [`Verdict::Tell`], and there is none for it.
    Refuse,
}

impl Share {
    pub(super) const NOBODYS: Share =
        Share { qp: None, held: 0, most: u32::MAX, enforced: false, told: false, listed: false };

    pub(super) fn new(qp: QueuePair, share: Option<ReceiveShare>) -> Self {
        let (most, enforced) = share.map_or((u32::MAX, false), |share| (share.receives, share.enforced));
        Share { qp: Some(qp), most, enforced, ..Self::NOBODYS }
    }

    /// Whether one more would be more than its share.
    #[inline]
    pub(super) fn is_used_up(&self) -> bool {
        self.held >= self.most
    }

    fn judge(&mut self) -> Verdict {
        if !self.is_used_up() {
            return Verdict::Fine;
        }
        let first = !core::mem::replace(&mut self.told, true);
        match (self.enforced, first) {
            (true, _) => Verdict::Refuse,
            (false, true) => Verdict::Tell,
            (false, false) => Verdict::Fine,
        }
    }

    /// Puts it into the list of those to be told of. Answers whether it is not there.
    pub(super) fn list(&mut self) -> bool {
        !core::mem::replace(&mut self.listed, true)
    }

    pub(super) fn unlist(&mut self) {
        self.listed = false;
    }

    fn replaced(&mut self) {
        self.held = self.held.saturating_sub(1);
        self.told &= self.held >= self.most;
    }
}

/// Who took the receives of one queue that have not been replaced, oldest first.
pub(super) struct Takers {
    /// The queue pair's place, and who was there. As many as the queue holds receives, a power of two.
    list: Box<[(u32, Option<QueuePair>)]>,
    oldest: u32,
    next: u32,
    /// The number of posts up to which what was taken has been replaced.
    replaced_to: u32,
}

impl Takers {
    pub(super) fn new(depth: u32) -> Self {
        Takers { list: (0..depth).map(|_| (0, None)).collect(), oldest: 0, next: 0, replaced_to: 0 }
    }

    fn count(&self) -> u32 {
        self.next.wrapping_sub(self.oldest)
    }

    fn place(&self, number: u32) -> usize {
        number as usize & (self.list.len() - 1)
    }

    /// Notes that the queue pair at `place` took one.
    #[inline]
    pub(super) fn note(&mut self, place: u32, share: &mut Share, tail: u32) {
        if self.count() == 0 {
            // What was posted before anything was taken replaces nothing.
            self.replaced_to = tail;
        }
        share.held += 1;
        let at = self.place(self.next);
        if let Some(entry) = self.list.get_mut(at) {
            *entry = (place, share.qp);
        }
        self.next = self.next.wrapping_add(1);
    }

    /// Whether there is no room to note another.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.count() as usize >= self.list.len()
    }

    /// Gives shares back for the posts up to number `tail`, for the `most` oldest of them at most.
    #[cold]
    #[inline(never)]
    pub(super) fn settle(&mut self, tail: u32, most: u32, shares: &mut [Share]) {
        let posted = tail.wrapping_sub(self.replaced_to).min(most);
        self.replaced_to = self.replaced_to.wrapping_add(posted);
        for _ in 0..posted.min(self.count()) {
            let at = self.place(self.oldest);
            self.oldest = self.oldest.wrapping_add(1);
            let Some(&(place, qp)) = self.list.get(at) else { continue };
            if let Some(share) = shares.get_mut(place as usize).filter(|share| share.qp == qp) {
                share.replaced();
            }
        }
    }
}

/// Judges a queue pair whose share seems used up, now that posts are looked at.
#[cold]
#[inline(never)]
pub(super) fn judge(srq: &mut SrqCore, shares: &mut [Share], place: u32) -> Verdict {
    srq.settle(shares);
    shares.get_mut(place as usize).map_or(Verdict::Fine, Share::judge)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However deep the queue, one message pays for a few posts and not for all that were not looked at.
    #[test]
    fn settling_a_few_gives_as_many_back_and_the_rest_later() {
        let mut shares = [Share::NOBODYS];
        let mut takers = Takers::new(8);
        (0..8).for_each(|_| takers.note(0, &mut shares[0], 8));
        assert!(takers.is_full());
        takers.settle(14, 4, &mut shares);
        assert_eq!((takers.count(), shares[0].held), (4, 4));
        takers.settle(14, u32::MAX, &mut shares);
        assert_eq!((takers.count(), shares[0].held), (2, 2));
        takers.settle(14, u32::MAX, &mut shares);
        assert_eq!((takers.count(), shares[0].held), (2, 2), "each post once");
        takers.settle(20, u32::MAX, &mut shares);
        assert_eq!((takers.count(), shares[0].held), (0, 0));
    }
}
