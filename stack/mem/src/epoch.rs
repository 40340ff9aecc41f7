//! Quiescence by epochs: when revoked memory can be released.
//!
//! The scheme is quiescent-state based reclamation. One word holds the current epoch. Each core has
//! a padded word with the epoch that it last announced, or [`OFFLINE`]. A revocation advances the
//! epoch. No core uses the revoked memory once each core is offline or has announced that epoch.
//!
//! Why this is correct:
//!
//! - An online core announces epoch `e` only after it has loaded `e`, and that load synchronises
//!   with the advance to `e`. From then on it sees every revocation before `e`, so the loop needs
//!   no fence.
//! - A core that comes online could miss a revocation if its word was read too early. Both sides
//!   use a `SeqCst` fence: the core between its announcement and its first look-up, the other side
//!   between the revocation and reading the words. One of the two sees the other.
//! - Announcements and going offline are release stores read with acquire, so the core's last
//!   access happens before anything that the other side does with the memory.
//!
//! Cost to a core: in each iteration one load of a line that changes only when something is
//! revoked; for the first look-up after being offline one store and one fence.

use crate::sync::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use core::cell::Cell;
use crossbeam_utils::CachePadded;
use std::sync::Arc;

/// The word of a core that holds no span.
const OFFLINE: u64 = 0;
/// The first epoch: any number except [`OFFLINE`]. 64 bits do not wrap.
const FIRST: u64 = 1;
/// The thread of a core that has not run yet; no thread has its descriptor at address 0.
const NO_THREAD: usize = 0;

/// The epoch of a table and the words of its cores.
pub(crate) struct Epochs {
    now: CachePadded<AtomicU64>,
    cores: Box<[CachePadded<CoreEpoch>]>,
}

struct CoreEpoch {
    announced: AtomicU64,
    thread: AtomicUsize,
    claimed: AtomicBool,
}

impl Epochs {
    pub(crate) fn new(cores: usize) -> Self {
        Self {
            now: CachePadded::new(AtomicU64::new(FIRST)),
            cores: (0..cores).map(|_| CachePadded::new(CoreEpoch::new())).collect(),
        }
    }

    /// Ends the current epoch. What was revoked before is quiescent once [`Epochs::oldest`] reaches
    /// the result.
    pub(crate) fn advance(&self) -> u64 {
        self.now.fetch_add(1, Ordering::AcqRel).wrapping_add(1)
    }

    /// Returns the current epoch.
    pub(crate) fn now(&self) -> u64 {
        self.now.load(Ordering::Acquire)
    }

    /// Returns the oldest epoch that a core is still in; `u64::MAX` if all are offline.
    pub(crate) fn oldest(&self) -> u64 {
        // Pairs with the fence in `EpochSlot::go_online`; see the module.
        fence(Ordering::SeqCst);
        let online = |core: &CachePadded<CoreEpoch>| {
            let announced = core.announced.load(Ordering::Acquire);
            (announced != OFFLINE).then_some(announced)
        };
        self.cores.iter().filter_map(online).min().unwrap_or(u64::MAX)
    }

    /// Returns whether every core except `core` is offline or past `target`.
    fn others_reached(&self, core: usize, target: u64) -> bool {
        // Pairs with the fence in `EpochSlot::go_online`; see the module.
        fence(Ordering::SeqCst);
        let reached = |(index, core_epoch): (usize, &CachePadded<CoreEpoch>)| {
            let announced = core_epoch.announced.load(Ordering::Acquire);
            index == core || announced == OFFLINE || announced >= target
        };
        self.cores.iter().enumerate().all(reached)
    }

    /// Returns the number of cores.
    pub(crate) fn cores(&self) -> usize {
        self.cores.len()
    }

    /// Returns whether the calling thread runs a core, as far as is known.
    pub(crate) fn is_core_thread(&self) -> bool {
        let here = this_thread();
        self.cores.iter().any(|core| core.thread.load(Ordering::Relaxed) == here)
    }
}

impl CoreEpoch {
    fn new() -> Self {
        Self {
            announced: AtomicU64::new(OFFLINE),
            thread: AtomicUsize::new(NO_THREAD),
            claimed: AtomicBool::new(false),
        }
    }
}

/// One core's part in the scheme. Dropping it takes the core offline permanently.
pub(crate) struct EpochSlot {
    epochs: Arc<Epochs>,
    core: usize,
    /// A copy of the core's own word, so that the loop reads no line that others read.
    announced: Cell<u64>,
}

/// Why a core could not be claimed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ClaimError {
    NoSuchCore,
    InUse,
}

impl EpochSlot {
    /// Claims the word of `core`, offline.
    pub(crate) fn claim(epochs: &Arc<Epochs>, core: usize) -> Result<Self, ClaimError> {
        let core_epoch = epochs.cores.get(core).ok_or(ClaimError::NoSuchCore)?;
        if core_epoch.claimed.swap(true, Ordering::AcqRel) {
            return Err(ClaimError::InUse);
        }
        Ok(Self { epochs: Arc::clone(epochs), core, announced: Cell::new(OFFLINE) })
    }

    /// Returns the core's number.
    pub(crate) fn core(&self) -> usize {
        self.core
    }

    /// Brings the core online if necessary. Call before every look-up.
    #[inline(always)]
    pub(crate) fn ensure_online(&self) {
        if self.announced.get() == OFFLINE {
            self.go_online();
        }
    }

    /// Declares that the core holds no span from before this call.
    #[inline]
    pub(crate) fn quiesce(&mut self) {
        let now = self.epochs.now.load(Ordering::Acquire);
        let announced = self.announced.get();
        if announced != now && announced != OFFLINE {
            self.announce(now);
        }
    }

    /// Declares that the core holds no span, and will hold none until it comes online again.
    #[inline]
    pub(crate) fn go_offline(&mut self) {
        if self.announced.get() != OFFLINE {
            self.announce(OFFLINE);
        }
    }

    /// Returns whether no other core can use what was revoked before `target`. The calling core
    /// holds no span.
    pub(crate) fn others_reached(&self, target: u64) -> bool {
        self.epochs.others_reached(self.core, target)
    }

    /// Records that the calling thread runs this core.
    pub(crate) fn record_thread(&self) {
        self.core_epoch().thread.store(this_thread(), Ordering::Relaxed);
    }

    #[inline(never)]
    fn go_online(&self) {
        self.record_thread();
        self.announce(self.epochs.now.load(Ordering::Acquire));
        // Pairs with the fence in `Epochs::oldest`; see the module.
        fence(Ordering::SeqCst);
    }

    fn announce(&self, epoch: u64) {
        self.core_epoch().announced.store(epoch, Ordering::Release);
        self.announced.set(epoch);
    }

    fn core_epoch(&self) -> &CoreEpoch {
        // `claim` found the word, and the slice never changes.
        &self.epochs.cores[self.core]
    }
}

impl Drop for EpochSlot {
    fn drop(&mut self) {
        self.go_offline();
        self.core_epoch().thread.store(NO_THREAD, Ordering::Relaxed);
        self.core_epoch().claimed.store(false, Ordering::Release);
    }
}

/// Returns a number that identifies the running thread, at the cost of a function call.
///
/// `std::thread::current().id()` would change a reference count, which a core would pay whenever it
/// comes online.
fn this_thread() -> usize {
    // SAFETY: no preconditions.
    unsafe { libc::pthread_self() as usize }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn one_core() -> (Arc<Epochs>, EpochSlot) {
        let epochs = Arc::new(Epochs::new(1));
        let core = EpochSlot::claim(&epochs, 0).expect("a free core");
        (epochs, core)
    }

    #[test]
    fn a_parked_core_holds_nothing_back() {
        let (epochs, mut core) = one_core();
        assert!(epochs.oldest() >= epochs.advance());
        core.ensure_online();
        let target = epochs.advance();
        assert!(epochs.oldest() < target);
        core.go_offline();
        assert!(epochs.oldest() >= target);
    }

    #[test]
    fn an_online_core_holds_back_until_it_quiesces() {
        let (epochs, mut core) = one_core();
        core.ensure_online();
        core.quiesce();
        let target = epochs.advance();
        assert!(epochs.oldest() < target, "what it announced before does not count");
        core.quiesce();
        assert!(epochs.oldest() >= target);
    }

    #[test]
    fn quiescing_does_not_bring_a_parked_core_online() {
        let (epochs, mut core) = one_core();
        core.quiesce();
        assert_eq!(epochs.oldest(), u64::MAX);
    }

    #[test]
    fn a_dropped_core_is_parked_and_can_be_claimed_again() {
        let (epochs, core) = one_core();
        assert_eq!(EpochSlot::claim(&epochs, 0).err(), Some(ClaimError::InUse));
        assert_eq!(EpochSlot::claim(&epochs, 1).err(), Some(ClaimError::NoSuchCore));
        core.ensure_online();
        assert!(epochs.is_core_thread());
        drop(core);
        assert!(!epochs.is_core_thread());
        assert_eq!(epochs.oldest(), u64::MAX);
        assert!(EpochSlot::claim(&epochs, 0).is_ok());
    }
}

/// Run with `RUSTFLAGS="--cfg loom" cargo test -p ironwarp-mem --lib --release`.
#[cfg(all(test, loom))]
mod model {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::thread;

    /// A slot's `valid` flag and the memory behind it: loom reports any access that is not ordered
    /// before the free.
    struct Registered {
        valid: AtomicBool,
        memory: UnsafeCell<u32>,
    }

    impl Registered {
        fn place(&self) {
            if self.valid.load(Ordering::Acquire) {
                // SAFETY: the cell lives as long as `self`; loom reports an access that races with
                // another.
                self.memory.with(|bytes| assert_ne!(unsafe { *bytes }, FREED, "placed into freed memory"));
            }
        }

        fn free(&self) {
            // SAFETY: as in `place`.
            self.memory.with_mut(|bytes| unsafe { *bytes = FREED });
        }
    }

    const FREED: u32 = u32::MAX;

    fn run(core_loop: impl Fn(&mut EpochSlot, &Registered) + Copy + Send + Sync + 'static) {
        loom::model(move || {
            let epochs = Arc::new(Epochs::new(1));
            let region = Arc::new(Registered { valid: AtomicBool::new(true), memory: UnsafeCell::new(0) });
            let mut core = EpochSlot::claim(&epochs, 0).expect("a free core");
            let core_region = Arc::clone(&region);
            let runner = thread::spawn(move || core_loop(&mut core, &core_region));

            region.valid.store(false, Ordering::Release);
            let target = epochs.advance();
            let freed = epochs.oldest() >= target;
            if freed {
                region.free();
            }
            runner.join().expect("the core ran");
            assert!(freed || epochs.oldest() >= target, "a dropped core holds nothing back");
        });
    }

    #[test]
    fn a_core_that_comes_online_during_revocation_never_touches_freed_memory() {
        run(|core, region| {
            core.ensure_online();
            region.place();
            core.go_offline();
            core.ensure_online();
            region.place();
        });
    }

    #[test]
    fn a_core_that_quiesces_during_revocation_never_touches_freed_memory() {
        run(|core, region| {
            core.ensure_online();
            region.place();
            core.quiesce();
            core.ensure_online();
            region.place();
            core.quiesce();
            core.ensure_online();
            region.place();
        });
    }
}
