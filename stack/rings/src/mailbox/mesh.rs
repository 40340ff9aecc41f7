//! Mailboxes between all cores of a stack: one for each ordered pair of cores.

use super::{Callee, Caller, pair};

/// One core's ends of the mailboxes to and from all other cores.
pub struct Mailboxes<Q, R> {
    /// Indexed by the called core; `None` for the core itself.
    callers: Box<[Option<Caller<Q, R>>]>,
    /// Indexed by the calling core; `None` for the core itself.
    callees: Box<[Option<Callee<Q, R>>]>,
    /// Calls to all cores whose reply has not been taken.
    outstanding: usize,
    credits: usize,
}

/// Creates mailboxes of `credits` credits between all pairs of `cores` cores. The result is indexed
/// by core.
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
    /// Sends a call to `core`.
    ///
    /// # Errors
    /// Returns the call if no credit is left, if `core` is the calling core, or if there is no such
    /// core.
    #[inline]
    pub fn call(&mut self, core: u16, call: Q) -> Result<(), Q> {
        match self.callers.get_mut(usize::from(core)) {
            Some(Some(caller)) => caller.call(call).inspect(|()| self.outstanding += 1),
            _ => Err(call),
        }
    }

    /// Prefetches the slot of the next call to `core`, as [`Caller::prefetch`].
    #[inline]
    pub fn prefetch(&self, core: u16) {
        if let Some(Some(caller)) = self.callers.get(usize::from(core)) {
            caller.prefetch();
        }
    }

    /// Returns whether [`Self::call`] to `core` would succeed now.
    #[inline]
    pub fn has_credit(&self, core: u16) -> bool {
        matches!(self.callers.get(usize::from(core)), Some(Some(caller)) if caller.credits() > 0)
    }

    /// Replies to the calls of other cores, at most `credits` for each core. `reply` gets the
    /// calling core and the call. Returns the number of calls.
    #[inline]
    pub fn serve(&mut self, mut reply: impl FnMut(u16, Q) -> R) -> usize {
        let mut served = 0;
        for (core, callee) in self.callees.iter_mut().enumerate() {
            let Some(callee) = callee else { continue };
            served += callee.serve(self.credits, |call| reply(core as u16, call));
        }
        served
    }

    /// Passes the replies that have arrived to `take`, with the core that sent each, at most
    /// `credits` for each core. Returns their number.
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

    /// Takes the oldest reply of `core`, as [`Caller::reply`].
    #[inline]
    pub fn reply(&mut self, core: u16) -> Option<R> {
        let reply = self.callers.get_mut(usize::from(core))?.as_mut()?.reply()?;
        self.outstanding = self.outstanding.saturating_sub(1);
        Some(reply)
    }

    /// Returns whether `core` dropped its end, as [`Caller::is_abandoned`].
    #[inline]
    pub fn is_abandoned(&self, core: u16) -> bool {
        matches!(self.callers.get(usize::from(core)), Some(Some(caller)) if caller.is_abandoned())
    }

    /// Returns the number of calls to `core` whose reply has not been taken.
    #[inline]
    pub fn outstanding_to(&self, core: u16) -> u32 {
        self.callers.get(usize::from(core)).and_then(Option::as_ref).map_or(0, Caller::outstanding)
    }

    /// Gives up the outstanding calls to `core`, as [`Caller::abandon_calls`].
    #[cold]
    pub fn abandon_calls(&mut self, core: u16) {
        if let Some(Some(caller)) = self.callers.get_mut(usize::from(core)) {
            self.outstanding = self.outstanding.saturating_sub(caller.outstanding() as usize);
            caller.abandon_calls();
        }
    }

    /// Returns whether a reply of any core can be taken.
    #[inline]
    pub fn has_reply(&self) -> bool {
        self.callers.iter().flatten().any(Caller::has_reply)
    }

    /// Returns the number of this core's calls whose reply has not been taken.
    #[inline]
    pub fn outstanding(&self) -> usize {
        self.outstanding
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn two_cores_without_credits_still_reply_to_each_other() {
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
    fn every_ordered_pair_of_cores_has_its_own_mailbox() {
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
    fn serve_is_bounded_while_a_caller_keeps_calling() {
        let mut mesh = mesh::<u32, u32>(2, 2);
        let [one, two] = &mut mesh[..] else { unreachable!("two cores") };
        one.call(1, 1).unwrap();
        let mut called = 1;
        // The caller calls again before the callee looks for the next call.
        let served = two.serve(|_, call| {
            let more = one.replies(|_, _| ()) > 0 || called < 2;
            if more && one.call(1, call + 1).is_ok() {
                called += 1;
            }
            call
        });
        assert_eq!(served, 2);
    }

    #[test]
    fn outstanding_counts_the_calls_to_all_cores() {
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
