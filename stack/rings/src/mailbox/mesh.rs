//! Mailboxes between all cores of a stack: each core's ends of those that it shares with the others.

use super::{Callee, Caller, pair};

/// One core's ends of the mailboxes that it shares with all others.
pub struct Mailboxes<Q, R> {
    /// By the core that is called; none for the core itself.
    callers: Box<[Option<Caller<Q, R>>]>,
    /// By the core that calls.
    callees: Box<[Option<Callee<Q, R>>]>,
    /// Calls that no reply has been taken to, of all cores.
    outstanding: usize,
    credits: usize,
}

/// Mailboxes between any two of `cores` cores, of so many credits each. One item for each core, in order.
pub fn mesh<Q: Copy, R: Copy>(cores: usize, credits: usize) -> Vec<Mailboxes<Q, R>> {
    let unconnected = || Mailboxes {
        callers: (0..cores).map(|_| None).collect(),
        callees: (0..cores).map(|_| None).collect(),
        outstanding: 0,
        credits: credits.max(1),
    };
    let mut mesh: Vec<_> = (0..cores).map(|_| unconnected()).collect();
    for from in 0..cores {
        for to in (0..cores).filter(|&to| to != from) {
            let (caller, callee) = pair(credits);
            mesh[from].callers[to] = Some(caller);
            mesh[to].callees[from] = Some(callee);
        }
    }
    mesh
}

impl<Q: Copy, R: Copy> Mailboxes<Q, R> {
    /// Hands `core` a call. Gives it back when no credit is left, and when `core` is the caller itself or none.
    #[inline]
    pub fn call(&mut self, core: u16, call: Q) -> Result<(), Q> {
        match self.callers.get_mut(usize::from(core)) {
            Some(Some(caller)) => caller.call(call).inspect(|()| self.outstanding += 1),
            _ => Err(call),
        }
    }

    /// `core` is called soon, as [`Caller::prefetch`].
    #[inline]
    pub fn prefetch(&self, core: u16) {
        if let Some(Some(caller)) = self.callers.get(usize::from(core)) {
            caller.prefetch();
        }
    }

    /// Whether a call for `core` would be taken now.
    #[inline]
    pub fn has_credit(&self, core: u16) -> bool {
        matches!(self.callers.get(usize::from(core)), Some(Some(caller)) if caller.credits() > 0)
    }

    /// Answers what others have asked, each call with the core that it is from, of each core at most as many as it has
    /// credits. Says how many.
    #[inline]
    pub fn serve(&mut self, mut reply: impl FnMut(u16, Q) -> R) -> usize {
        let mut served = 0;
        for (core, callee) in self.callees.iter_mut().enumerate() {
            let Some(callee) = callee else { continue };
            served += callee.serve(self.credits, |call| reply(core as u16, call));
        }
        served
    }

    /// Takes the replies that have come, with the core that each is from, of each core at most as many as there are
    /// credits. Says how many.
    #[inline]
    pub fn replies(&mut self, mut take: impl FnMut(u16, R)) -> usize {
        let mut taken = 0;
        for core in 0..self.callers.len() as u16 {
            for _ in 0..self.credits {
                let Some(reply) = self.reply(core) else { break };
                take(core, reply);
                taken += 1;
            }
        }
        taken
    }

    /// The oldest reply of `core` that has not been taken, as [`Caller::reply`].
    #[inline]
    pub fn reply(&mut self, core: u16) -> Option<R> {
        let reply = self.callers.get_mut(usize::from(core))?.as_mut()?.reply()?;
        self.outstanding = self.outstanding.saturating_sub(1);
        Some(reply)
    }

    /// Whether `core` is gone, as [`Caller::is_abandoned`].
    #[inline]
    pub fn is_abandoned(&self, core: u16) -> bool {
        matches!(self.callers.get(usize::from(core)), Some(Some(caller)) if caller.is_abandoned())
    }

    /// Calls for `core` whose reply has not been taken.
    #[inline]
    pub fn outstanding_to(&self, core: u16) -> u32 {
        self.callers.get(usize::from(core)).and_then(Option::as_ref).map_or(0, Caller::outstanding)
    }

    /// Waits for `core` no more, as [`Caller::abandon_calls`].
    #[cold]
    pub fn abandon_calls(&mut self, core: u16) {
        if let Some(Some(caller)) = self.callers.get_mut(usize::from(core)) {
            self.outstanding = self.outstanding.saturating_sub(caller.outstanding() as usize);
            caller.abandon_calls();
        }
    }

    /// Whether some reply has come.
    #[inline]
    pub fn has_reply(&self) -> bool {
        self.callers.iter().flatten().any(Caller::has_reply)
    }

    /// Calls of this core whose reply has not been taken.
    #[inline]
    pub fn outstanding(&self) -> usize {
        self.outstanding
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

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
        }
        for core in [one, two] {
            assert_eq!((core.serve(|_, call| call), core.outstanding()), (2, 2));
        }
        for core in &mut mesh {
            let mut replies = vec![];
            assert_eq!(core.replies(|_, reply| replies.push(reply)), 2);
            assert_eq!((replies, core.outstanding()), (vec![1, 2], 0));
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
        }
        for core in 0..CORES {
            let served = mesh[usize::from(core)].serve(|by, (from, to)| {
                assert_eq!((by, to), (from, core));
                (from, to)
            });
            assert_eq!(served, usize::from(CORES) - 1);
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
        let mut asked = 1;
        // As if the caller were as quick as the callee.
        let served = two.serve(|_, call| {
            let more = one.replies(|_, _| ()) > 0 || asked < 2;
            if more && one.call(1, call + 1).is_ok() {
                asked += 1;
            }
            call
        });
        assert_eq!(served, 2);
    }

    #[test]
    fn what_one_core_waits_for_is_counted_over_all_others() {
        let mut mesh = mesh::<u8, u8>(3, 2);
        let [one, two, three] = &mut mesh[..] else { unreachable!("three cores") };
        for to in [1, 2, 2] {
            one.call(to, 0).unwrap();
        }
        assert_eq!((one.outstanding(), one.outstanding_to(2), one.call(2, 0)), (3, 2, Err(0)));
        assert_eq!((two.serve(|_, call| call), three.serve(|_, call| call)), (1, 2));
        assert_eq!((one.reply(1), one.reply(2), one.outstanding()), (Some(0), Some(0), 1));
        one.abandon_calls(2);
        assert_eq!((one.outstanding(), one.has_credit(1), one.has_credit(2)), (0, true, false));
    }

    /// What each core writes in turn while calls go to and fro lies on lines of its own.
    #[test]
    fn no_two_ends_of_a_mesh_share_a_cache_line() {
        let mesh = mesh::<u64, u64>(3, 4);
        let ends = mesh.iter().flat_map(|core| {
            let callers = core.callers.iter().flatten().map(|end| &raw const *end as usize);
            callers.chain(core.callees.iter().flatten().map(|end| &raw const *end as usize))
        });
        let mut lines: Vec<usize> = ends.map(|at| at / 128).collect();
        lines.sort_unstable();
        lines.dedup();
        assert_eq!(lines.len(), 12, "six mailboxes of two ends");
    }
}
