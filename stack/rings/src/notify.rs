//! The armed flag of a completion queue; the event descriptor behind it is somebody else's.
//!
//! An application arms, looks at the queue once more, and sleeps if it is empty. A core adds completions, then looks
//! whether the queue is armed. Both are a store and then a load of different words, so both put a sequentially
//! consistent fence between the two: one of them sees the other. Any number of cores may fire; one of them wins.
//! Cost: firing a queue that is not armed is one fence and one load, 5 ns; done once an iteration.

use crate::sync::{AtomicU8, Ordering, fence};

/// Nobody waits.
const DISARMED: u8 = 0;
/// Somebody waits for a completion that is solicited or failed.
const SOLICITED: u8 = 1;
/// Somebody waits for any completion. Above [`SOLICITED`]: who asks for both is asking for this.
const ANY: u8 = 2;

/// Whether somebody wants to be woken, and by what. On a cache line of its own: others belong to other cores.
#[derive(Debug)]
#[repr(align(64))]
pub struct NotifyState {
    state: AtomicU8,
}

impl Default for NotifyState {
    fn default() -> Self {
        NotifyState { state: AtomicU8::new(DISARMED) }
    }
}

impl NotifyState {
    /// Asks to be woken once, by any completion or by a solicited one only. The queue is looked at after this, and
    /// sleep is safe only if it is empty then. Asking twice is asking once, for the more that was asked for.
    pub fn arm(&self, solicited_only: bool) {
        let requested = if solicited_only { SOLICITED } else { ANY };
        self.state.fetch_max(requested, Ordering::AcqRel);
        fence(Ordering::SeqCst);
    }

    /// Takes back what was asked for. A wake-up may be under way already.
    pub fn disarm(&self) {
        self.state.store(DISARMED, Ordering::Relaxed);
    }

    /// Whether to wake somebody for completions published before this call, one of them solicited or not. Answers
    /// `true` once for each arming.
    #[inline]
    pub fn fire(&self, solicited: bool) -> bool {
        fence(Ordering::SeqCst);
        match self.state.load(Ordering::Relaxed) {
            DISARMED => false,
            SOLICITED if !solicited => false,
            requested => self.claim(requested),
        }
    }

    /// Another core may have fired meanwhile: then it wakes. Or more was asked for meanwhile: then whoever asked will
    /// look at the queue after that, and sees what this call is about.
    #[cold]
    fn claim(&self, requested: u8) -> bool {
        self.state.compare_exchange(requested, DISARMED, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn one_arming_wakes_once() {
        let armed = NotifyState::default();
        assert!(!armed.fire(true), "nobody waits");
        armed.arm(false);
        armed.arm(false);
        assert!(armed.fire(false));
        assert!(!armed.fire(false) && !armed.fire(true));
        armed.arm(false);
        assert!(armed.fire(true));
    }

    #[test]
    fn solicited_only_lets_others_pass_and_stays_armed() {
        let armed = NotifyState::default();
        armed.arm(true);
        assert!(!armed.fire(false));
        assert!(armed.fire(true));
        assert!(!armed.fire(true));
    }

    #[test]
    fn asking_for_less_takes_nothing_back() {
        let armed = NotifyState::default();
        armed.arm(false);
        armed.arm(true);
        assert!(armed.fire(false));
        armed.arm(true);
        armed.arm(false);
        assert!(armed.fire(false));
    }

    #[test]
    fn disarmed_is_silent() {
        let armed = NotifyState::default();
        armed.arm(false);
        armed.disarm();
        assert!(!armed.fire(true));
    }
}
