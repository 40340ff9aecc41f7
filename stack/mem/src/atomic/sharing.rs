//! Which cache lines of words are shared: any core changes their words with locked instructions.
//!
//! A line starts as its owner's alone. Its owner counts the calls of other cores, and after as many
//! as the table's setting it shares the line permanently. Lines are grouped by a hash: a group has
//! one owner and is shared as a whole.
//!
//! ```text
//!  owner          plain changes ──▸ state = SHARED (release) ──▸ locked changes
//!  another core   calls the owner ·········· state is SHARED (acquire) ──▸ locked changes
//! ```
//! Only the owner writes the state, between two of its changes. A core that sees SHARED therefore
//! sees all plain changes, and no plain change follows. A line that is shared never has one owner
//! again: that would need all cores to pass a quiescent point first, and would save a few
//! nanoseconds an operation.
//!
//! Pinned words are never shared. *Cost.* A byte for each group and core; a load for each
//! operation.

use ironwarp_types::CoreId;

use crate::sync::{AtomicU8, Ordering};

/// Groups of each owner: enough that the lines in use rarely meet. Each costs one byte. Miri takes
/// seconds to create so many.
const GROUPS: usize = if cfg!(miri) { 64 } else { 4096 };

/// The state of a shared group. Smaller values count the calls of other cores.
const SHARED: u8 = u8::MAX;

/// Calls after which a group is shared, at most: the counter and `SHARED` fit one byte.
pub const SHARE_AFTER_MAX: u8 = SHARED - 1;

/// The state of all groups of lines.
pub(crate) struct LineSharing {
    /// [`GROUPS`] for each owner, one owner after the other. Empty if there is one core.
    groups: Box<[LineGroup]>,
    /// Calls of other cores after which the owner shares a group. 0: never.
    share_after: AtomicU8,
}

/// The state of one group.
pub(crate) struct LineGroup(AtomicU8);

impl LineSharing {
    /// Creates the groups of `cores` owners, none shared and none to be shared.
    pub(crate) fn new(cores: usize) -> Self {
        let groups = if cores > 1 { cores * GROUPS } else { 0 };
        LineSharing { groups: (0..groups).map(|_| LineGroup::new()).collect(), share_after: AtomicU8::new(0) }
    }

    /// Sets the number of calls after which a group is shared. Shared groups remain shared.
    pub(crate) fn set_share_after(&self, calls: u8) {
        self.share_after.store(calls.min(SHARE_AFTER_MAX), Ordering::Relaxed);
    }

    /// Returns the group of a line of `owner`; `None` if there is one core.
    #[inline]
    pub(crate) fn group(&self, owner: CoreId, owner_key: u64) -> Option<&LineGroup> {
        let of_owner = CoreId::line_hash(owner_key) as usize % GROUPS;
        self.groups.get(usize::from(owner.0) * GROUPS + of_owner)
    }

    /// The owner counts a call of another core for a line of this group.
    #[inline]
    pub(crate) fn count_call(&self, group: &LineGroup) {
        group.count_call(self.share_after.load(Ordering::Relaxed));
    }
}

impl LineGroup {
    fn new() -> Self {
        LineGroup(AtomicU8::new(0))
    }

    /// Returns whether every core changes the words of these lines with locked instructions.
    #[inline]
    pub(crate) fn is_shared(&self) -> bool {
        self.0.load(Ordering::Acquire) == SHARED
    }

    #[inline]
    fn count_call(&self, share_after: u8) {
        let calls = self.0.load(Ordering::Relaxed);
        if share_after == 0 || calls == SHARED {
            return;
        }
        let calls = calls + 1;
        self.0.store(if calls >= share_after { SHARED } else { calls }, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_shared_after_as_many_calls_as_set_and_stays_shared() {
        for share_after in [1, 2, SHARE_AFTER_MAX] {
            let sharing = LineSharing::new(2);
            sharing.set_share_after(share_after);
            let group = sharing.group(CoreId(1), 64).expect("two cores");
            for _ in 0..share_after {
                assert!(!group.is_shared());
                sharing.count_call(group);
            }
            assert!(group.is_shared());
            sharing.set_share_after(0);
            sharing.count_call(group);
            assert!(group.is_shared());
        }
    }

    #[test]
    fn without_the_setting_or_with_one_core_nothing_is_shared() {
        let sharing = LineSharing::new(2);
        let group = sharing.group(CoreId(0), 0).expect("two cores");
        (0..1000).for_each(|_| sharing.count_call(group));
        assert!(!group.is_shared());
        assert!(LineSharing::new(1).group(CoreId(0), 0).is_none());
    }

    #[test]
    fn words_of_a_line_are_in_one_group_and_owners_have_separate_groups() {
        let sharing = LineSharing::new(2);
        let group = |owner, key| core::ptr::from_ref(sharing.group(CoreId(owner), key).expect("two cores"));
        let end = if cfg!(miri) { 1 << 12 } else { 1 << 16 };
        for line in (0..end).step_by(64) {
            assert_eq!(group(0, line), group(0, line + 63));
            assert_ne!(group(0, line), group(1, line));
        }
    }
}

/// Run with `RUSTFLAGS="--cfg loom" cargo test -p ironwarp-mem --lib --release`.
#[cfg(all(test, loom))]
mod model {
    use super::*;
    use crate::sync::AtomicU64;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;

    /// A word, its group, and calls of another core to its owner.
    struct Line {
        group: LineGroup,
        word: AtomicU64,
        calls: AtomicU64,
        /// Written by each plain change and read by each locked one: loom reports a plain change
        /// that is not ordered before or after another change.
        plain: UnsafeCell<()>,
    }

    // SAFETY: loom checks the accesses to the cell.
    unsafe impl Sync for Line {}

    impl Line {
        /// The owner adds one: plainly or with a locked instruction.
        fn add_as_owner(&self) {
            if self.group.is_shared() {
                self.add_locked();
            } else {
                self.plain.with_mut(|_| ());
                self.word.store(self.word.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            }
        }

        fn add_locked(&self) {
            self.plain.with(|_| ());
            self.word.fetch_add(1, Ordering::AcqRel);
        }

        fn serve(&self, served: &mut u64) {
            while *served < self.calls.load(Ordering::Acquire) {
                *served += 1;
                self.group.count_call(1);
                self.add_as_owner();
            }
        }

        /// Another core adds one itself if the line is shared, or calls the owner.
        fn add_from_elsewhere(&self) {
            if self.group.is_shared() {
                self.add_locked();
            } else {
                self.calls.fetch_add(1, Ordering::Release);
            }
        }
    }

    fn line() -> Arc<Line> {
        let (word, calls) = (AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Line { group: LineGroup::new(), word, calls, plain: UnsafeCell::new(()) })
    }

    /// Two other cores add while the owner adds, serves their calls and shares the line.
    #[test]
    fn no_addition_is_lost_while_the_owner_shares_the_line() {
        loom::model(|| {
            let line = line();
            let others = [1, 2].map(|additions| {
                let line = line.clone();
                thread::spawn(move || (0..additions).for_each(|_| line.add_from_elsewhere()))
            });
            let mut served = 0;
            line.add_as_owner();
            line.serve(&mut served);
            line.add_as_owner();
            others.into_iter().for_each(|other| other.join().unwrap());
            line.serve(&mut served);
            assert_eq!(line.word.load(Ordering::Relaxed), 5);
        });
    }
}
