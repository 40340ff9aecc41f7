//! The state of a connection, which a core writes and the threads that post requests read.
//!
//! A post publishes requests, then reads the state; the core sets the state, then reads the queue
//! for the last time. Each side stores one word and then loads the other, with a sequentially
//! consistent fence between the two. So either the core finds the requests, or the posting thread
//! sees the state and rings the doorbell. Cost: a fence for each post, about 5 ns; none to read the
//! state.

use crate::sync::{AtomicU8, Ordering, fence};

/// The state, as a number.
#[derive(Debug)]
#[repr(transparent)]
pub struct SharedState(AtomicU8);

impl SharedState {
    /// A connection in a state.
    pub fn new(state: u8) -> Self {
        SharedState(AtomicU8::new(state))
    }

    /// Enters a state. If the caller reads a queue after this call and does not find a request
    /// there, the thread that posts it gets this state from [`SharedState::load_after_publish`].
    pub fn set(&self, state: u8) {
        self.0.store(state, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    /// Returns the state. What the core wrote before it entered the state is visible.
    #[inline]
    pub fn load(&self) -> u8 {
        self.0.load(Ordering::Acquire)
    }

    /// Returns the state after the caller has published requests.
    #[inline]
    pub fn load_after_publish(&self) -> u8 {
        fence(Ordering::SeqCst);
        self.load()
    }
}
