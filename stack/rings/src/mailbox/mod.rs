//! Calls from one core to another, each answered exactly once.
//!
//! ```text
//!   Caller ── calls, at most `credits` outstanding ──▸ Callee
//!          ◂── replies, room for `credits` ──────────
//! ```
//! An ordered pair of cores has one mailbox. The caller counts what it has asked and not heard back; at its limit it
//! keeps further calls to itself. So every call that the callee takes out has a place waiting for its reply: replies
//! never wait, and two cores that call each other at their limits still answer each other. Neither side waits for
//! anything; both work off what is there as often as they look.
//!
//! Replies come in the order of the calls. What the callee did before it replied happened before the reply is read.
//! Every call and every reply has a cache line of its own and lies there with the mark that says that it is there, so
//! there is nothing to gather: each is handed over at once, by one line that crosses. Since replies are places given
//! back, neither side tells how far it has come. A core that is about to sleep arms an
//! [`NotifyState`](crate::notify::NotifyState) and looks once more; a caller fires it after [`Caller::call`].
//!
//! Dropping an end leaves calls unanswered; [`Caller::is_abandoned`] reports that. Calls and replies are plain data, so those
//! left in the mailbox need no destructor. Frames that one core hands to another may be lost at any time and take no
//! reply, so they go through an [`spsc`](crate::spsc) ring of their own, whose producer drops what finds no room.
//! Cost: one line's way there and one back for a call that is waited for; 2 to 5 ns a call in a batch.

mod mesh;
mod phase_ring;

use core::marker::PhantomData;

pub use mesh::{Mailboxes, mesh};
use phase_ring::PhaseRing;

use crate::end_state::NotSync;
use crate::sync::{Arc, AtomicBool, Ordering};

/// The most credits that a mailbox may have: numbers wrap at 32 bits, and one round of the places must not look like another.
const CREDITS_MAX: usize = 1 << 30;

/// A mailbox of `credits` unanswered calls at most, at least one.
///
/// ```
/// let (mut caller, mut callee) = ironwarp_rings::mailbox::pair(1);
/// caller.call(20).unwrap();
/// assert_eq!(caller.call(30), Err(30));
/// assert_eq!(callee.serve(8, |call: u32| u64::from(call) + 1), 1);
/// assert_eq!(caller.reply(), Some(21));
/// assert_eq!(caller.call(30), Ok(()));
/// ```
pub fn pair<Q: Copy, R: Copy>(credits: usize) -> (Caller<Q, R>, Callee<Q, R>) {
    let credits = credits.clamp(1, CREDITS_MAX);
    let mailbox = Arc::new(Mailbox {
        calls: PhaseRing::new(credits),
        replies: PhaseRing::new(credits),
        caller_dropped: AtomicBool::new(false),
        callee_dropped: AtomicBool::new(false),
    });
    let (replies_taken, calls_sent, credits) = (0, 0, credits as u32);
    let caller =
        Caller { mailbox: mailbox.clone(), calls_sent, replies_taken, credits, not_sync: PhantomData };
    (caller, Callee { mailbox, next: 0, not_sync: PhantomData })
}

/// What the two ends share. Its own words are written when an end leaves and at no other time.
struct Mailbox<Q, R> {
    calls: PhaseRing<Q>,
    /// As many places: the reply to a call has the call's number.
    replies: PhaseRing<R>,
    caller_dropped: AtomicBool,
    callee_dropped: AtomicBool,
}

/// The end that asks. One thread uses it at a time.
#[repr(align(128))]
pub struct Caller<Q, R> {
    mailbox: Arc<Mailbox<Q, R>>,
    /// The number of the next call.
    calls_sent: u32,
    /// The number of the next reply: at most [`Caller::credits`] behind.
    replies_taken: u32,
    credits: u32,
    not_sync: NotSync,
}

/// The end that answers. One thread uses it at a time.
#[repr(align(128))]
pub struct Callee<Q, R> {
    mailbox: Arc<Mailbox<Q, R>>,
    /// The number of the next call.
    next: u32,
    not_sync: NotSync,
}

impl<Q: Copy, R: Copy> Caller<Q, R> {
    /// A call is made soon: fetches the line that it will lie in meanwhile, of which the callee has a copy.
    #[inline]
    pub fn prefetch(&self) {
        self.mailbox.calls.prefetch(self.calls_sent);
    }

    /// Hands a call over. Gives it back when no credit is left.
    #[inline]
    pub fn call(&mut self, call: Q) -> Result<(), Q> {
        if self.outstanding() >= self.credits {
            return Err(call);
        }
        // SAFETY: one thread at a time uses the one caller, which numbers its calls in order. There are as many places as credits,
        // so the call that was in this one has been answered, after it was taken, and the reply has been seen.
        unsafe { self.mailbox.calls.put(self.calls_sent, call) };
        self.calls_sent = self.calls_sent.wrapping_add(1);
        Ok(())
    }

    /// The reply to the oldest unanswered call, if it has come. Its credit is free again.
    #[inline]
    pub fn reply(&mut self) -> Option<R> {
        if self.calls_sent == self.replies_taken {
            return None;
        }
        // SAFETY: one thread at a time uses the one caller, and counts what it has taken. The next reply with this place is to a
        // call that is made when this one has been taken.
        let reply = unsafe { self.mailbox.replies.take(self.replies_taken) }?;
        self.replies_taken = self.replies_taken.wrapping_add(1);
        Some(reply)
    }

    /// Whether the reply to the oldest unanswered call has come.
    #[inline]
    pub fn has_reply(&self) -> bool {
        self.calls_sent != self.replies_taken && self.mailbox.replies.is_ready(self.replies_taken)
    }

    /// Calls that may be made now.
    #[inline]
    pub fn credits(&self) -> u32 {
        self.credits.saturating_sub(self.outstanding())
    }

    /// Calls whose reply has not been taken.
    #[inline]
    pub fn outstanding(&self) -> u32 {
        self.calls_sent.wrapping_sub(self.replies_taken)
    }

    /// Whether the callee is gone. Its last replies can still be taken; calls behind those are never answered.
    #[inline]
    pub fn is_abandoned(&self) -> bool {
        self.mailbox.callee_dropped.load(Ordering::Acquire)
    }

    /// Stops waiting for replies and makes no further call. Call this after [`Self::is_abandoned`] returned true and the last
    /// replies were taken.
    #[cold]
    pub fn abandon_calls(&mut self) {
        (self.credits, self.replies_taken) = (0, self.calls_sent);
    }
}

impl<Q: Copy, R: Copy> Callee<Q, R> {
    /// Answers what is there, at most `limit` calls, each as soon as it has been carried out. Says how many.
    #[inline]
    pub fn serve(&mut self, limit: usize, mut reply: impl FnMut(Q) -> R) -> usize {
        let mut served = 0;
        while served < limit {
            // SAFETY: one thread at a time uses the one callee, and counts what it has taken. The next call with this place is made
            // when this one's reply has been seen.
            let Some(call) = (unsafe { self.mailbox.calls.take(self.next) }) else { break };
            let number = self.next;
            // The caller looks at the place of the reply all the time: its line is on its way here while the call is carried out.
            self.mailbox.replies.prefetch(number);
            self.next = number.wrapping_add(1);
            let reply = reply(call);
            // SAFETY: one thread at a time answers, in order. There are as many places as credits, so the caller had taken the last
            // reply from this one when it made this call.
            unsafe { self.mailbox.replies.put(number, reply) };
            served += 1;
        }
        served
    }

    /// Whether the caller is gone. What it asked can still be answered.
    #[inline]
    pub fn is_abandoned(&self) -> bool {
        self.mailbox.caller_dropped.load(Ordering::Acquire)
    }
}

impl<Q, R> Drop for Caller<Q, R> {
    fn drop(&mut self) {
        self.mailbox.caller_dropped.store(true, Ordering::Release);
    }
}

impl<Q, R> Drop for Callee<Q, R> {
    fn drop(&mut self) {
        self.mailbox.callee_dropped.store(true, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
