//! Calls from one core to another; each call gets exactly one reply.
//!
//! ```text
//!   Caller ── calls, at most `credits` outstanding ──▸ Callee
//!          ◂── replies, room for `credits` ──────────
//! ```
//! An ordered pair of cores has one mailbox. The caller counts its outstanding calls and makes no
//! call beyond its credits. Every call therefore has a free slot for its reply: a reply never
//! waits, and two cores that have used up their credits still reply to each other. Neither side
//! blocks; both poll.
//!
//! Replies arrive in the order of the calls. All writes of the callee before a reply are visible to
//! a caller that has taken the reply. Each call and each reply has its own cache line, together
//! with the mark that shows that it is there. Each is therefore published at once, by one line
//! transfer. A reply also frees the slot of its call, so the two sides share no index. A core that
//! is about to sleep arms a [`NotifyState`](crate::notify::NotifyState) and polls once more; a
//! caller fires it after [`Caller::call`].
//!
//! After an end is dropped, calls may have no reply; [`Caller::is_abandoned`] reports that. Calls
//! and replies are plain data, so those left in the mailbox need no destructor. Frames that one
//! core hands to another may be lost and need no reply, so they use a separate
//! [`spsc`](crate::spsc) ring, whose producer drops frames when the ring is full. Cost: two line
//! transfers for a call that is waited for; 2 to 5 ns a call in a batch.

mod mesh;
mod phase_ring;

use core::marker::PhantomData;

pub use mesh::{Mailboxes, mesh};
use phase_ring::PhaseRing;

use crate::end_state::NotSync;
use crate::sync::{Arc, AtomicBool, Ordering};

/// The most credits of a mailbox. Call numbers wrap at 32 bits, and two rounds of the slots must
/// stay distinguishable.
const CREDITS_MAX: usize = 1 << 30;

/// Creates a mailbox that holds at most `credits` outstanding calls. 0 credits count as 1.
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

/// The state that the two ends share. The two flags are written only when an end is dropped.
struct Mailbox<Q, R> {
    calls: PhaseRing<Q>,
    /// Has as many slots as `calls`. A reply has the number of its call.
    replies: PhaseRing<R>,
    caller_dropped: AtomicBool,
    callee_dropped: AtomicBool,
}

/// The calling end. One thread uses it at a time.
#[repr(align(128))]
pub struct Caller<Q, R> {
    mailbox: Arc<Mailbox<Q, R>>,
    /// The number of the next call.
    calls_sent: u32,
    /// The number of the next reply. At most `credits` calls are outstanding.
    replies_taken: u32,
    credits: u32,
    not_sync: NotSync,
}

/// The replying end. One thread uses it at a time.
#[repr(align(128))]
pub struct Callee<Q, R> {
    mailbox: Arc<Mailbox<Q, R>>,
    /// The number of the next call.
    next: u32,
    not_sync: NotSync,
}

impl<Q: Copy, R: Copy> Caller<Q, R> {
    /// Prefetches the slot of the next call for writing, because the callee has a copy of its cache
    /// line.
    #[inline]
    pub fn prefetch(&self) {
        self.mailbox.calls.prefetch(self.calls_sent);
    }

    /// Sends a call.
    ///
    /// # Errors
    /// Returns the call if no credit is left.
    #[inline]
    pub fn call(&mut self, call: Q) -> Result<(), Q> {
        if self.outstanding() >= self.credits {
            return Err(call);
        }
        // SAFETY: one thread at a time uses the only caller, which numbers its calls in order.
        // There are at least as many slots as credits. So the callee took the slot's last call and
        // replied to it, and this caller took that reply.
        unsafe { self.mailbox.calls.put(self.calls_sent, call) };
        self.calls_sent = self.calls_sent.wrapping_add(1);
        Ok(())
    }

    /// Takes the reply to the oldest outstanding call, if it has arrived, and frees its credit.
    #[inline]
    pub fn reply(&mut self) -> Option<R> {
        if self.calls_sent == self.replies_taken {
            return None;
        }
        // SAFETY: one thread at a time uses the only caller, and counts the replies that it took.
        // The next reply in this slot is to a call that is made only after this reply was taken.
        let reply = unsafe { self.mailbox.replies.take(self.replies_taken) }?;
        self.replies_taken = self.replies_taken.wrapping_add(1);
        Some(reply)
    }

    /// Returns whether the reply to the oldest outstanding call has arrived.
    #[inline]
    pub fn has_reply(&self) -> bool {
        self.calls_sent != self.replies_taken && self.mailbox.replies.is_ready(self.replies_taken)
    }

    /// Returns the number of calls that can be made now.
    #[inline]
    pub fn credits(&self) -> u32 {
        self.credits.saturating_sub(self.outstanding())
    }

    /// Returns the number of calls whose reply has not been taken.
    #[inline]
    pub fn outstanding(&self) -> u32 {
        self.calls_sent.wrapping_sub(self.replies_taken)
    }

    /// Returns whether the callee was dropped. Its last replies can still be taken; later calls get
    /// no reply.
    #[inline]
    pub fn is_abandoned(&self) -> bool {
        self.mailbox.callee_dropped.load(Ordering::Acquire)
    }

    /// Gives up all outstanding calls and all credits. Call this after [`Self::is_abandoned`]
    /// returned `true` and the last replies were taken.
    #[cold]
    pub fn abandon_calls(&mut self) {
        (self.credits, self.replies_taken) = (0, self.calls_sent);
    }
}

impl<Q: Copy, R: Copy> Callee<Q, R> {
    /// Executes at most `limit` calls with `reply` and publishes each reply at once. Returns the
    /// number of calls.
    #[inline]
    pub fn serve(&mut self, limit: usize, mut reply: impl FnMut(Q) -> R) -> usize {
        let mut served = 0;
        while served < limit {
            // SAFETY: one thread at a time uses the only callee, and counts the calls that it took.
            // The next call in this slot is made only after the reply to this one was taken.
            let Some(call) = (unsafe { self.mailbox.calls.take(self.next) }) else { break };
            let number = self.next;
            // The caller polls the slot of the reply and has a copy of its line. Fetch the line
            // while the call is executed.
            self.mailbox.replies.prefetch(number);
            self.next = number.wrapping_add(1);
            let reply = reply(call);
            // SAFETY: one thread at a time uses the only callee, which replies in order. There are
            // at least as many slots as credits, so the caller took the slot's last reply before it
            // made this call.
            unsafe { self.mailbox.replies.put(number, reply) };
            served += 1;
        }
        served
    }

    /// Returns whether the caller was dropped. Its calls can still be executed.
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
