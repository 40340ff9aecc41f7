//! Calls from one core to another, each answered exactly once.
//!
//! ```text
//!   Caller ── calls, at most `credits` unanswered ──▸ Callee
//!          ◂── replies, room for `credits` ──────────
//! ```
//! An ordered pair of cores has one mailbox. The caller counts what it has asked and not heard back; at its limit it
//! keeps further calls to itself. So every call that the callee takes out has a place waiting for its reply: replies
//! never wait, and two cores that call each other at their limits still answer each other. Neither side waits for
//! anything; both work off what is there, once an iteration, and publish a batch with one store.
//!
//! Replies come in the order of the calls. What the callee did before it replied happened before the reply is read.
//! Every call and every reply begins a cache line, and either end keeps its own state on lines of its own, so no line
//! is written by both sides save the ones that hand something over. A core that is about to sleep arms an
//! [`Armed`](crate::notify::Armed) and looks once more; a caller fires it after [`Caller::flush`].
//!
//! Whoever drops its end leaves calls unanswered: [`Caller::is_abandoned`] tells. Frames that one core hands to
//! another may be lost at any time and take no reply, so they go through a [`spsc`] ring of their own, whose producer
//! drops what finds no room.
//! Cost: two line transfers there and two back for a call that is waited for; 2 to 5 ns a call in a batch.

use crate::spsc::{self, Consumer, Producer};

/// A mailbox of `credits` unanswered calls at most, at least one.
///
/// ```
/// let (mut caller, mut callee) = ironwarp_rings::mailbox::pair(1);
/// caller.call(20).unwrap();
/// assert_eq!(caller.call(30), Err(30));
/// caller.flush();
/// assert_eq!(callee.answer(8, |call: u32| u64::from(call) + 1), 1);
/// assert_eq!(caller.reply(), Some(21));
/// assert_eq!(caller.call(30), Ok(()));
/// ```
pub fn pair<Q, R>(credits: usize) -> (Caller<Q, R>, Callee<Q, R>) {
    let (calls_in, calls_out) = spsc::channel(credits);
    let (replies_in, replies_out) = spsc::channel(credits);
    // The ring may have more places than credits, and rings have a limit of their own.
    let credits = credits.clamp(1, calls_in.capacity()) as u32;
    let caller = Caller { calls: calls_in, replies: replies_out, credits, unanswered: 0 };
    (caller, Callee { calls: calls_out, replies: replies_in })
}

/// Something that begins a cache line.
#[repr(align(64))]
struct Line<T>(T);

/// The end that asks. One thread uses it at a time.
#[repr(align(128))]
pub struct Caller<Q, R> {
    calls: Producer<Line<Q>>,
    replies: Consumer<Line<R>>,
    credits: u32,
    unanswered: u32,
}

/// The end that answers. One thread uses it at a time.
#[repr(align(128))]
pub struct Callee<Q, R> {
    calls: Consumer<Line<Q>>,
    replies: Producer<Line<R>>,
}

impl<Q, R> Caller<Q, R> {
    /// Puts a call in; the callee sees it at the next [`Caller::flush`]. Gives it back when no credit is left.
    #[inline]
    pub fn call(&mut self, call: Q) -> Result<(), Q> {
        if self.unanswered >= self.credits {
            return Err(call);
        }
        // The ring has a place for every credit.
        self.calls.stage(Line(call)).map_err(|Line(call)| call)?;
        self.unanswered += 1;
        Ok(())
    }

    /// Hands over every call that was put in. One store, or nothing.
    #[inline]
    pub fn flush(&mut self) {
        self.calls.publish();
    }

    /// The reply to the oldest unanswered call, if it has come. Its credit is free again.
    #[inline]
    pub fn reply(&mut self) -> Option<R> {
        let Line(reply) = self.replies.pop()?;
        self.unanswered = self.unanswered.saturating_sub(1);
        Some(reply)
    }

    /// Calls that may be put in now.
    #[inline]
    pub fn credits(&self) -> u32 {
        self.credits - self.unanswered
    }

    /// Calls whose reply has not been taken.
    #[inline]
    pub fn unanswered(&self) -> u32 {
        self.unanswered
    }

    /// Whether the callee is gone. Its last replies can still be taken; calls behind those are never answered.
    #[inline]
    pub fn is_abandoned(&self) -> bool {
        self.calls.is_abandoned()
    }

    /// Waits for no reply any more and takes no further call: for whoever has found the callee gone, and then taken its last
    /// replies.
    #[cold]
    pub fn give_up(&mut self) {
        (self.credits, self.unanswered) = (0, 0);
    }
}

impl<Q, R> Callee<Q, R> {
    /// Answers what is there, at most `limit` calls, and hands the replies over together. Says how many.
    #[inline]
    pub fn answer(&mut self, limit: usize, mut reply: impl FnMut(Q) -> R) -> usize {
        let mut answered = 0;
        while answered < limit
            && let Some(Line(call)) = self.calls.pop()
        {
            let staged = self.replies.stage(Line(reply(call))).is_ok();
            debug_assert!(staged, "a credit is a place for a reply");
            answered += 1;
        }
        self.replies.publish();
        answered
    }

    /// Whether the caller is gone. What it asked can still be answered.
    #[inline]
    pub fn is_abandoned(&self) -> bool {
        self.calls.is_abandoned()
    }
}

/// One core's ends of the mailboxes that it shares with all others.
pub struct Mailboxes<Q, R> {
    /// By the core that is called; none for the core itself.
    callers: Box<[Option<Caller<Q, R>>]>,
    /// By the core that calls.
    callees: Box<[Option<Callee<Q, R>>]>,
    credits: usize,
}

/// Mailboxes between any two of `cores` cores, of so many credits each. One item for each core, in order.
pub fn mesh<Q, R>(cores: usize, credits: usize) -> Vec<Mailboxes<Q, R>> {
    let nobody = || Mailboxes {
        callers: (0..cores).map(|_| None).collect(),
        callees: (0..cores).map(|_| None).collect(),
        credits: credits.max(1),
    };
    let mut mesh: Vec<_> = (0..cores).map(|_| nobody()).collect();
    for from in 0..cores {
        for to in (0..cores).filter(|&to| to != from) {
            let (caller, callee) = pair(credits);
            mesh[from].callers[to] = Some(caller);
            mesh[to].callees[from] = Some(callee);
        }
    }
    mesh
}

impl<Q, R> Mailboxes<Q, R> {
    /// Puts in a call for `core`, which sees it at the next [`Mailboxes::flush`]. Gives it back when no credit is left,
    /// and when `core` is the caller itself or none.
    #[inline]
    pub fn call(&mut self, core: u16, call: Q) -> Result<(), Q> {
        match self.callers.get_mut(usize::from(core)) {
            Some(Some(caller)) => caller.call(call),
            _ => Err(call),
        }
    }

    /// Whether a call for `core` would be taken now.
    #[inline]
    pub fn has_credit(&self, core: u16) -> bool {
        matches!(self.callers.get(usize::from(core)), Some(Some(caller)) if caller.credits() > 0)
    }

    /// Hands over every call that was put in.
    #[inline]
    pub fn flush(&mut self) {
        self.callers.iter_mut().flatten().for_each(Caller::flush);
    }

    /// Answers what others have asked, each call with the core that it is from, of each core at most as many as it has
    /// credits. Says how many.
    #[inline]
    pub fn answer(&mut self, mut reply: impl FnMut(u16, Q) -> R) -> usize {
        let mut answered = 0;
        for (core, callee) in self.callees.iter_mut().enumerate() {
            let Some(callee) = callee else { continue };
            answered += callee.answer(self.credits, |call| reply(core as u16, call));
        }
        answered
    }

    /// Takes the replies that have come, with the core that each is from, of each core at most as many as there are
    /// credits. Says how many.
    #[inline]
    pub fn replies(&mut self, mut take: impl FnMut(u16, R)) -> usize {
        let mut taken = 0;
        for (core, caller) in self.callers.iter_mut().enumerate() {
            let Some(caller) = caller else { continue };
            for reply in core::iter::from_fn(|| caller.reply()).take(self.credits) {
                take(core as u16, reply);
                taken += 1;
            }
        }
        taken
    }

    /// The oldest reply of `core` that has not been taken, as [`Caller::reply`].
    #[inline]
    pub fn reply(&mut self, core: u16) -> Option<R> {
        self.callers.get_mut(usize::from(core))?.as_mut()?.reply()
    }

    /// Whether `core` is gone, as [`Caller::is_abandoned`].
    #[inline]
    pub fn is_abandoned(&self, core: u16) -> bool {
        matches!(self.callers.get(usize::from(core)), Some(Some(caller)) if caller.is_abandoned())
    }

    /// Calls for `core` whose reply has not been taken.
    #[inline]
    pub fn unanswered_by(&self, core: u16) -> u32 {
        self.callers.get(usize::from(core)).and_then(Option::as_ref).map_or(0, Caller::unanswered)
    }

    /// Waits for `core` no more, as [`Caller::give_up`].
    #[cold]
    pub fn give_up(&mut self, core: u16) {
        if let Some(Some(caller)) = self.callers.get_mut(usize::from(core)) {
            caller.give_up();
        }
    }

    /// Calls of this core whose reply has not been taken.
    pub fn unanswered(&self) -> usize {
        self.callers.iter().flatten().map(|caller| caller.unanswered() as usize).sum()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn full<Q: Copy, R>(credits: usize, call: Q) -> (Caller<Q, R>, Callee<Q, R>) {
        let (mut caller, callee) = pair(credits);
        (0..credits).for_each(|_| assert!(caller.call(call).is_ok()));
        caller.flush();
        (caller, callee)
    }

    #[test]
    fn credits_are_the_number_asked_for_even_where_the_ring_is_larger() {
        let (mut caller, mut callee) = full::<u8, u8>(3, 1);
        assert_eq!((caller.call(2), caller.credits(), caller.unanswered()), (Err(2), 0, 3));
        assert_eq!(callee.answer(2, |call| call), 2);
        assert_eq!(caller.call(2), Err(2), "answered is not taken");
        assert_eq!((caller.reply(), caller.credits()), (Some(1), 1));
        assert_eq!(caller.call(2), Ok(()));
    }

    #[test]
    fn no_credit_is_one_credit() {
        let (mut caller, _callee) = pair::<u8, u8>(0);
        assert_eq!((caller.call(1), caller.call(2)), (Ok(()), Err(2)));
    }

    #[test]
    fn calls_and_replies_are_handed_over_a_batch_at_a_time_and_in_order() {
        let (mut caller, mut callee) = pair(4);
        (0..4).for_each(|call| caller.call(call).unwrap());
        assert_eq!(callee.answer(9, |call: u32| call), 0, "not flushed yet");
        caller.flush();
        assert_eq!(callee.answer(3, |call| call * 10), 3);
        assert_eq!(
            [caller.reply(), caller.reply(), caller.reply(), caller.reply()],
            [Some(0), Some(10), Some(20), None]
        );
        assert_eq!(callee.answer(3, |call| call * 10), 1);
        assert_eq!(caller.reply(), Some(30));
    }

    #[test]
    fn two_cores_that_call_each_other_to_the_limit_still_answer_each_other() {
        let mut mesh = mesh::<u32, u32>(2, 2);
        let (one, two) = mesh.split_at_mut(1);
        let (one, two) = (&mut one[0], &mut two[0]);
        for core in [&mut *one, &mut *two] {
            let other = if core.has_credit(0) { 0 } else { 1 };
            assert_eq!(
                [core.call(other, 1), core.call(other, 2), core.call(other, 3)],
                [Ok(()), Ok(()), Err(3)]
            );
            core.flush();
        }
        for core in [one, two] {
            assert_eq!((core.answer(|_, call| call), core.unanswered()), (2, 2));
        }
        for core in &mut mesh {
            let mut replies = vec![];
            assert_eq!(core.replies(|_, reply| replies.push(reply)), 2);
            assert_eq!((replies, core.unanswered()), (vec![1, 2], 0));
        }
    }

    #[test]
    fn every_ordered_pair_of_a_mesh_has_a_mailbox_of_its_own() {
        const CORES: u16 = 4;
        let mut mesh = mesh::<(u16, u16), (u16, u16)>(CORES.into(), 1);
        for from in 0..CORES {
            for to in 0..CORES + 1 {
                let outcome = mesh[usize::from(from)].call(to, (from, to));
                assert_eq!(outcome.is_ok(), to != from && to < CORES);
            }
            mesh[usize::from(from)].flush();
        }
        for core in 0..CORES {
            let answered = mesh[usize::from(core)].answer(|by, (from, to)| {
                assert_eq!((by, to), (from, core));
                (from, to)
            });
            assert_eq!(answered, usize::from(CORES) - 1);
        }
        for core in 0..CORES {
            let mut seen = vec![];
            mesh[usize::from(core)].replies(|by, (from, to)| {
                assert_eq!((from, to), (core, by));
                seen.push(by);
            });
            assert_eq!(seen, (0..CORES).filter(|&by| by != core).collect::<Vec<_>>());
        }
    }

    #[test]
    fn one_caller_does_not_keep_a_core_from_the_rest_of_its_loop() {
        let mut mesh = mesh::<u32, u32>(2, 2);
        let [one, two] = &mut mesh[..] else { unreachable!("two cores") };
        one.call(1, 1).unwrap();
        one.flush();
        let mut asked = 1;
        // As if the caller were as quick as the callee.
        let answered = two.answer(|_, call| {
            let more = one.replies(|_, _| ()) > 0 || asked < 2;
            if more && one.call(1, call + 1).is_ok() {
                asked += 1;
                one.flush();
            }
            call
        });
        assert_eq!(answered, 2);
    }

    #[test]
    fn each_end_can_tell_that_the_other_is_gone() {
        let (mut caller, mut callee) = full::<u8, u8>(2, 7);
        assert!(!caller.is_abandoned() && !callee.is_abandoned());
        callee.answer(1, |call| call);
        drop(callee);
        assert!(caller.is_abandoned());
        assert_eq!((caller.reply(), caller.reply(), caller.unanswered()), (Some(7), None, 1));
        caller.give_up();
        assert_eq!((caller.call(7), caller.credits(), caller.unanswered()), (Err(7), 0, 0));
        let (caller, mut callee) = full::<u8, u8>(2, 7);
        drop(caller);
        assert!(callee.is_abandoned());
        assert_eq!(callee.answer(9, |call| call), 2);
    }

    /// Every line that both sides write is one that hands something over.
    #[test]
    fn no_two_calls_or_ends_share_a_cache_line() {
        type Small = Caller<u8, u8>;
        assert_eq!((align_of::<Small>() % 128, size_of::<Small>() % 128), (0, 0));
        assert_eq!((align_of::<Callee<u8, u8>>() % 128, size_of::<Callee<u8, u8>>() % 128), (0, 0));
        assert_eq!((align_of::<Line<u8>>(), size_of::<Line<u8>>()), (64, 64));
        assert_eq!(size_of::<Line<[u64; 8]>>(), 64);
        assert_eq!(size_of::<Line<[u64; 9]>>(), 128);
        // The addresses themselves: what each side writes in turn while calls go to and fro.
        let mut mesh = mesh::<u64, u64>(3, 4);
        let ends = mesh.iter().flat_map(|core| {
            let callers = core.callers.iter().flatten().map(|end| &raw const *end as usize);
            callers.chain(core.callees.iter().flatten().map(|end| &raw const *end as usize))
        });
        let mut lines: Vec<usize> = ends.map(|at| at / 128).collect();
        lines.sort_unstable();
        lines.dedup();
        assert_eq!(lines.len(), 12, "six mailboxes of two ends");
        let mut places = vec![];
        for place in 0..4u64 {
            mesh[0].call(1, place).unwrap();
            mesh[0].flush();
            let calls = &mut mesh[1].callees[0].as_mut().unwrap().calls;
            places.push(calls.peek().map(|line| &raw const *line as usize).unwrap());
            mesh[1].answer(|_, call| call);
        }
        assert!(places.iter().all(|at| at % 64 == 0));
        places.dedup();
        assert_eq!(places.len(), 4);
    }
}
