//! The armed flag of a completion queue. The owner of the queue holds the event descriptor.
//!
//! An application arms the flag, polls the queue once more, and sleeps if it is empty. A core adds
//! completions, then reads the flag. Each side stores one word and then loads the other, with a
//! sequentially consistent fence between the two, so at least one side sees the other's store.
//! Several cores may fire; exactly one of them wakes the application. Cost: firing a queue that is
//! not armed costs one fence and one load, 5 ns, once per loop iteration.

use crate::sync::{AtomicU8, Ordering, fence};

/// No wake-up is requested.
const DISARMED: u8 = 0;
/// A wake-up is requested for a completion that is solicited or failed.
const SOLICITED: u8 = 1;
/// A wake-up is requested for any completion. Greater than [`SOLICITED`], because a request for
/// both is a request for this.
const ANY: u8 = 2;

/// The requested wake-up. It has a cache line of its own, because its neighbours belong to other
/// cores.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct NotifyState {
    state: AtomicU8,
}

impl Default for NotifyState {
    fn default() -> Self {
        NotifyState { state: AtomicU8::new(DISARMED) }
    }
}

impl NotifyState {
    /// Requests one wake-up, by any completion or by a solicited one only. The caller must poll the
    /// queue after this call and may sleep only if it is empty. A second request widens the first
    /// and does not add a wake-up.
    pub fn arm(&self, solicited_only: bool) {
        let requested = if solicited_only { SOLICITED } else { ANY };
        self.state.fetch_max(requested, Ordering::AcqRel);
        fence(Ordering::SeqCst);
    }

    /// Cancels the request. A wake-up may already be on its way.
    pub fn disarm(&self) {
        self.state.store(DISARMED, Ordering::Relaxed);
    }

    /// Returns whether to wake the application for completions published before this call;
    /// `solicited` states whether one of them is solicited or failed. Returns `true` once for each
    /// request.
    #[inline]
    pub fn fire(&self, solicited: bool) -> bool {
        fence(Ordering::SeqCst);
        match self.state.load(Ordering::Relaxed) {
            DISARMED => false,
            SOLICITED if !solicited => false,
            requested => self.claim(requested),
        }
    }

    /// Fails if another core fired first, which then wakes the application. It also fails if the
    /// application armed again meanwhile: it polls the queue after that and finds the completions
    /// of this call.
    #[cold]
    fn claim(&self, requested: u8) -> bool {
        self.state.compare_exchange(requested, DISARMED, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn one_request_causes_one_wake_up() {
        let armed = NotifyState::default();
        assert!(!armed.fire(true), "not armed");
        armed.arm(false);
        armed.arm(false);
        assert!(armed.fire(false));
        assert!(!armed.fire(false) && !armed.fire(true));
        armed.arm(false);
        assert!(armed.fire(true));
    }

    #[test]
    fn an_unsolicited_completion_does_not_fire_a_solicited_request() {
        let armed = NotifyState::default();
        armed.arm(true);
        assert!(!armed.fire(false));
        assert!(armed.fire(true));
        assert!(!armed.fire(true));
    }

    #[test]
    fn a_narrower_request_does_not_replace_a_wider_one() {
        let armed = NotifyState::default();
        armed.arm(false);
        armed.arm(true);
        assert!(armed.fire(false));
        armed.arm(true);
        armed.arm(false);
        assert!(armed.fire(false));
    }

    #[test]
    fn a_disarmed_queue_does_not_fire() {
        let armed = NotifyState::default();
        armed.arm(false);
        armed.disarm();
        assert!(!armed.fire(true));
    }
}
