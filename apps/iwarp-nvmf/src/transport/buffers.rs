//! The data buffers of a core: which are free, and who holds the others.
//!
//! Each connection of an I/O queue has a buffer reserved for it, while there are enough. The rest
//! is shared: a host may take another one while it holds less than [`SHARE`] times what is left
//! after the reserves. So a host alone gets two thirds of the rest, and one that stops leaves a
//! third to the others, however many it asks for.

use super::wait::Who;

/// The number of a data buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BufferId(pub u32);

/// What a host may hold of the shared buffers, in parts of what is left of them.
const SHARE: usize = 2;
/// Buffers that are never reserved: a Compare holds two.
const NEVER_RESERVED: usize = 2;

/// What a connection holds.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    held: usize,
    /// Whether a buffer is reserved for it.
    has_reserve: bool,
}

impl Account {
    fn shared(&self) -> usize {
        self.held.saturating_sub(self.has_reserve.into())
    }

    /// Returns the buffers that are kept free for it.
    fn unused(&self) -> usize {
        usize::from(self.has_reserve && self.held == 0)
    }
}

/// Who has a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Owner {
    Nobody,
    Connection(Who),
    /// The send queue of a connection that has ended, or a disk that has not answered in time.
    Past,
}

/// The buffers.
#[derive(Debug)]
pub(super) struct BufferPool {
    /// The last one freed is the first one used: its cache lines are warm.
    free: Vec<BufferId>,
    owners: Vec<Owner>,
    by_connection: Vec<Account>,
    /// Shared buffers of each party.
    by_party: Vec<usize>,
    /// Reserves, and those of them that nothing uses.
    reserves: usize,
    unused_reserves: usize,
}

impl BufferPool {
    pub(super) fn new(count: u32) -> Self {
        BufferPool {
            free: (0..count).rev().map(BufferId).collect(),
            owners: vec![Owner::Nobody; count as usize],
            by_connection: Vec::new(),
            by_party: Vec::new(),
            reserves: 0,
            unused_reserves: 0,
        }
    }

    pub(super) fn free_count(&self) -> usize {
        self.free.len()
    }

    /// Reserves a buffer for a connection, if there are enough.
    pub(super) fn reserve(&mut self, who: Who) {
        let may = self.reserves + NEVER_RESERVED < self.owners.len()
            && self.unused_reserves + NEVER_RESERVED < self.free.len();
        let account = self.account(who);
        debug_assert!(account.held == 0 && !account.has_reserve, "a new connection holds nothing");
        if may {
            account.has_reserve = true;
            self.reserves += 1;
            self.unused_reserves += 1;
        }
    }

    /// Ends a connection: its reserve is free. The stack may have buffers of its last responses
    /// still; they count for nobody until they come back.
    pub(super) fn leave(&mut self, who: Who) {
        let account = core::mem::take(self.account(who));
        *self.shared(who) -= account.shared();
        self.unused_reserves -= account.unused();
        self.reserves -= usize::from(account.has_reserve);
        if account.held > 0 {
            let of_it = |owner: &&mut Owner| **owner == Owner::Connection(who);
            self.owners.iter_mut().filter(of_it).for_each(|owner| *owner = Owner::Past);
        }
    }

    /// Takes a buffer for a connection. `None`: its host holds its share, or none is left.
    #[inline]
    pub(super) fn take(&mut self, who: Who) -> Option<BufferId> {
        let account = *self.account(who);
        if account.unused() == 0 {
            let rest = self.free.len().saturating_sub(self.unused_reserves);
            if rest == 0 || *self.shared(who) >= SHARE * rest {
                return None;
            }
            *self.shared(who) += 1;
        }
        let buffer = self.free.pop()?;
        self.unused_reserves -= account.unused();
        self.account(who).held += 1;
        if let Some(owner) = self.owners.get_mut(buffer.0 as usize) {
            *owner = Owner::Connection(who);
        }
        Some(buffer)
    }

    /// Lets nobody hold a buffer that a disk still uses: its connection may take another one.
    pub(super) fn orphan(&mut self, buffer: BufferId) {
        let Some(owner) = self.owners.get_mut(buffer.0 as usize) else { return };
        if let Owner::Connection(who) = core::mem::replace(owner, Owner::Past) {
            self.release_of(who);
        }
    }

    /// Returns a buffer.
    #[inline]
    pub(super) fn free(&mut self, buffer: BufferId) {
        let Some(owner) = self.owners.get_mut(buffer.0 as usize) else { return };
        let owner = core::mem::replace(owner, Owner::Nobody);
        debug_assert!(owner != Owner::Nobody, "a buffer is freed once");
        let who = match owner {
            Owner::Nobody => return,
            Owner::Past => return self.free.push(buffer),
            Owner::Connection(who) => who,
        };
        self.release_of(who);
        self.free.push(buffer);
    }

    /// A connection holds one buffer less.
    #[inline]
    fn release_of(&mut self, who: Who) {
        let before = *self.account(who);
        self.account(who).held = before.held.saturating_sub(1);
        let after = *self.account(who);
        *self.shared(who) -= before.shared() - after.shared();
        self.unused_reserves += after.unused();
    }

    /// Returns the buffers that a connection holds above its reserve.
    pub(super) fn shared_of(&self, who: Who) -> usize {
        self.by_connection.get(who.connection as usize).map_or(0, Account::shared)
    }

    /// Returns the buffers that a connection holds.
    pub(super) fn held_by(&self, who: Who) -> usize {
        self.by_connection.get(who.connection as usize).map_or(0, |account| account.held)
    }

    /// Returns the buffers of the past.
    pub(super) fn past_count(&self) -> usize {
        self.owners.iter().filter(|owner| **owner == Owner::Past).count()
    }

    #[inline]
    fn account(&mut self, who: Who) -> &mut Account {
        let at = who.connection as usize;
        if self.by_connection.len() <= at {
            self.by_connection.resize_with(at + 1, Account::default);
        }
        &mut self.by_connection[at]
    }

    #[inline]
    fn shared(&mut self, who: Who) -> &mut usize {
        let at = who.party as usize;
        if self.by_party.len() <= at {
            self.by_party.resize(at + 1, 0);
        }
        &mut self.by_party[at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(party: u32, connection: u32) -> Who {
        Who { party, connection }
    }

    fn take_all(pool: &mut BufferPool, who: Who) -> Vec<BufferId> {
        core::iter::from_fn(|| pool.take(who)).collect()
    }

    /// Each next host still gets some, and a reserved buffer is there whatever the others hold.
    #[test]
    fn a_host_takes_its_share_and_leaves_the_reserves() {
        let mut pool = BufferPool::new(34);
        for connection in 0..4 {
            pool.reserve(who(connection, connection));
        }
        let taken: Vec<_> = (0..3).map(|host| take_all(&mut pool, who(host, host)).len()).collect();
        assert_eq!(taken, [1 + 20, 1 + 7, 1 + 2], "two thirds of what is left, and the reserve");
        assert!(pool.take(who(3, 3)).is_some(), "its reserve");
    }

    #[test]
    fn two_buffers_are_always_in_reach() {
        for count in 2..6 {
            let mut pool = BufferPool::new(count);
            (0..8).for_each(|connection| pool.reserve(who(connection, connection)));
            for connection in 0..8 {
                let one = who(connection, connection);
                let taken = [pool.take(one), pool.take(one)];
                assert!(taken.iter().all(Option::is_some), "{count} buffers, connection {connection}");
                taken.into_iter().flatten().for_each(|buffer| pool.free(buffer));
            }
        }
    }

    #[test]
    fn everything_is_free_again_at_the_end() {
        let mut pool = BufferPool::new(16);
        (0..3).for_each(|connection| pool.reserve(who(0, connection)));
        let taken: Vec<_> = (0..3).flat_map(|connection| take_all(&mut pool, who(0, connection))).collect();
        assert_eq!(pool.shared_of(who(0, 0)) + 1 + 2, taken.len());
        taken.into_iter().for_each(|buffer| pool.free(buffer));
        (0..3).for_each(|connection| pool.leave(who(0, connection)));
        assert_eq!((pool.free_count(), pool.reserves, pool.unused_reserves, pool.by_party[0]), (16, 0, 0, 0));
    }

    /// The next connection with the number of one that has ended starts with nothing.
    #[test]
    fn buffers_that_come_back_late_count_for_nobody() {
        let mut pool = BufferPool::new(16);
        pool.reserve(who(0, 0));
        let late = take_all(&mut pool, who(0, 0));
        pool.leave(who(0, 0));
        pool.reserve(who(0, 0));
        assert_eq!((pool.shared_of(who(0, 0)), pool.by_party[0]), (0, 0));
        let again = take_all(&mut pool, who(0, 0));
        late.into_iter().chain(again).for_each(|buffer| pool.free(buffer));
        pool.leave(who(0, 0));
        assert_eq!((pool.free_count(), pool.reserves, pool.unused_reserves, pool.by_party[0]), (16, 0, 0, 0));
    }
}
