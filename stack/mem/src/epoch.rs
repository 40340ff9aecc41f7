//! Quiescence by epochs: when may memory be given up that some core could still be copying to?
//!
//! The scheme is quiescent-state based reclamation. One word holds the current epoch; each core has a padded word
//! with the epoch that it last announced, or [`OFFLINE`]. A revocation happens first and then advances
//! the epoch; the thing is out of every core's hands once each core is parked or has announced that epoch.
//!
//! Why that is right:
//! - A core that is online announces epoch `e` only after it has loaded `e`, and that load synchronises with the
//!   advance to `e`. So from then on it sees every revocation before `e`; no fence is needed in the loop.
//! - A parked core that comes online could miss a revocation that its word was read too early for. There both sides
//!   use a `SeqCst` fence: the core between its announcement and its first look-up, the other side between the
//!   revocation and reading the words. One of the two sees the other.
//! - Announcements and parking are release stores read with acquire, so the core's last access happens before
//!   whatever the other side does with the memory.
//!
//! Cost to a core: per iteration one load of a line that changes only when something is revoked; per first look-up
//! after parking one store and one fence.

use crate::sync::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use core::cell::Cell;
use crossbeam_utils::CachePadded;
use std::sync::Arc;

/// The word of a core that can be in the middle of nothing.
const OFFLINE: u64 = 0;
/// The first epoch: any number but [`OFFLINE`]. 64 bits do not wrap.
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

    /// Ends the current epoch. What was revoked before is quiescent once [`Epochs::oldest`] reaches the result.
    pub(crate) fn advance(&self) -> u64 {
        self.now.fetch_add(1, Ordering::AcqRel).wrapping_add(1)
    }

    /// The current epoch.
    pub(crate) fn now(&self) -> u64 {
        self.now.load(Ordering::Acquire)
    }

    /// The oldest epoch that some core is still in; `u64::MAX` when all are parked.
    pub(crate) fn oldest(&self) -> u64 {
        // Pairs with the fence in `EpochSlot::go_online`: see the module's reasons.
        fence(Ordering::SeqCst);
        let online = |core: &CachePadded<CoreEpoch>| {
            let announced = core.announced.load(Ordering::Acquire);
            (announced != OFFLINE).then_some(announced)
        };
        self.cores.iter().filter_map(online).min().unwrap_or(u64::MAX)
    }

    /// Whether every core but `core` is parked or past `target`.
    fn others_reached(&self, core: usize, target: u64) -> bool {
        // Pairs with the fence in `EpochSlot::go_online`: see the module's reasons.
        fence(Ordering::SeqCst);
        let reached = |(index, core_epoch): (usize, &CachePadded<CoreEpoch>)| {
            let announced = core_epoch.announced.load(Ordering::Acquire);
            index == core || announced == OFFLINE || announced >= target
        };
        self.cores.iter().enumerate().all(reached)
    }

    /// How many cores there are.
    pub(crate) fn cores(&self) -> usize {
        self.cores.len()
    }

    /// Whether the calling thread is the one that runs some core, as far as is known.
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

/// One core's part in the scheme. Dropping it parks the core for good.
pub(crate) struct EpochSlot {
    epochs: Arc<Epochs>,
    core: usize,
    /// What the core's own word holds, kept here so that the loop reads no line that others read.
    announced: Cell<u64>,
}

/// Why a core could not be claimed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ClaimError {
    NoSuchCore,
    InUse,
}

impl EpochSlot {
    /// Claims the word of `core`, parked.
    pub(crate) fn claim(epochs: &Arc<Epochs>, core: usize) -> Result<Self, ClaimError> {
        let core_epoch = epochs.cores.get(core).ok_or(ClaimError::NoSuchCore)?;
        if core_epoch.claimed.swap(true, Ordering::AcqRel) {
            return Err(ClaimError::InUse);
        }
        Ok(Self { epochs: Arc::clone(epochs), core, announced: Cell::new(OFFLINE) })
    }

    /// The core's number.
    pub(crate) fn core(&self) -> usize {
        self.core
    }

    /// Must come before every look-up: makes sure that the core is online.
    #[inline(always)]
    pub(crate) fn ensure_online(&self) {
        if self.announced.get() == OFFLINE {
            self.go_online();
        }
    }

    /// States that the core holds nothing from before this call.
    #[inline]
    pub(crate) fn quiesce(&mut self) {
        let now = self.epochs.now.load(Ordering::Acquire);
        let announced = self.announced.get();
        if announced != now && announced != OFFLINE {
            self.announce(now);
        }
    }

    /// States that the core holds nothing, and will hold nothing until it comes online again.
    #[inline]
    pub(crate) fn go_offline(&mut self) {
        if self.announced.get() != OFFLINE {
            self.announce(OFFLINE);
        }
    }

    /// Whether no other core can be in the middle of what was revoked before `target`. This one is not: it is here.
    pub(crate) fn others_reached(&self, target: u64) -> bool {
        self.epochs.others_reached(self.core, target)
    }

    /// Notes that the calling thread runs this core.
    pub(crate) fn record_thread(&self) {
        self.core_epoch().thread.store(this_thread(), Ordering::Relaxed);
    }

    #[inline(never)]
    fn go_online(&self) {
        self.record_thread();
        self.announce(self.epochs.now.load(Ordering::Acquire));
        // Pairs with the fence in `Epochs::oldest`: see the module's reasons.
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

/// A number that tells running threads apart, at the price of a function call.
///
/// `std::thread::current().id()` would count a reference up and down, which a core would pay whenever it comes
/// online.
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

    /// A slot's `valid` flag and the memory behind it: loom reports any access that is not ordered before the free.
    struct Registered {
        valid: AtomicBool,
        memory: UnsafeCell<u32>,
    }

    impl Registered {
        fn place(&self) {
            if self.valid.load(Ordering::Acquire) {
                // SAFETY: the cell lives as long as `self`; loom reports an access that races with another.
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
