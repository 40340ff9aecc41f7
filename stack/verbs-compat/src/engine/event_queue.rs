//! A queue of events with a descriptor that is readable while it holds one. The program may wait
//! for the descriptor by `poll`, `select` or `epoll`, edge-triggered too, and may make it
//! non-blocking.

use core::ffi::c_int;
use std::collections::VecDeque;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::{Outcome, last_errno};

pub(crate) struct EventQueue<T> {
    fd: OwnedFd,
    events: VecDeque<T>,
}

impl<T> EventQueue<T> {
    /// Fails as `eventfd` does.
    pub(crate) fn new() -> Outcome<Self> {
        // SAFETY: the call has no preconditions.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(last_errno());
        }
        // SAFETY: the descriptor is new.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(EventQueue { fd, events: VecDeque::new() })
    }

    pub(crate) fn fd(&self) -> c_int {
        self.fd.as_raw_fd()
    }

    /// Adds an event. Every event is written, so that an edge-triggered wait sees it.
    pub(crate) fn push(&mut self, event: T) {
        self.events.push_back(event);
        let one = 1u64.to_ne_bytes();
        // SAFETY: the buffer has eight bytes. The counter is far from its end.
        unsafe { libc::write(self.fd(), one.as_ptr().cast(), one.len()) };
    }

    pub(crate) fn len(&self) -> usize {
        self.events.len()
    }

    /// Returns the event that was added last.
    pub(crate) fn last(&self) -> Option<T>
    where
        T: Copy,
    {
        self.events.back().copied()
    }

    /// Calls `look` with each event, the oldest first.
    pub(crate) fn for_each(&self, look: impl FnMut(T))
    where
        T: Copy,
    {
        self.events.iter().copied().for_each(look);
    }

    pub(crate) fn pop(&mut self) -> Option<T> {
        let event = self.events.pop_front();
        self.reset_if_empty();
        event
    }

    /// Removes the events that `keep` refuses, and returns them.
    pub(crate) fn remove_unless(&mut self, keep: impl Fn(&T) -> bool) -> Vec<T> {
        let (kept, removed): (VecDeque<T>, VecDeque<T>) = self.events.drain(..).partition(keep);
        self.events = kept;
        self.reset_if_empty();
        removed.into()
    }

    fn reset_if_empty(&mut self) {
        if !self.events.is_empty() {
            return;
        }
        let mut ready = libc::pollfd { fd: self.fd(), events: libc::POLLIN, revents: 0 };
        let mut count = [0u8; 8];
        // SAFETY: the structures live through the calls. The read does not block, since only this
        // code reads, under the lock of the engine.
        unsafe {
            if libc::poll(&raw mut ready, 1, 0) == 1 {
                libc::read(self.fd(), count.as_mut_ptr().cast(), count.len());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_readable(queue: &EventQueue<u32>) -> bool {
        let mut ready = libc::pollfd { fd: queue.fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: the structure lives through the call.
        unsafe { libc::poll(&raw mut ready, 1, 0) == 1 }
    }

    #[test]
    fn the_descriptor_is_readable_while_there_are_events() {
        let mut queue = EventQueue::new().unwrap();
        assert!(!is_readable(&queue) && queue.pop().is_none());
        (1..=3).for_each(|number| queue.push(number));
        assert_eq!(queue.pop(), Some(1));
        assert!(is_readable(&queue));
        assert_eq!(queue.remove_unless(|number| *number != 2), [2]);
        assert!(is_readable(&queue));
        assert_eq!(queue.pop(), Some(3));
        assert!(!is_readable(&queue));
        queue.push(4);
        assert_eq!(queue.remove_unless(|_| false), [4]);
        assert!(!is_readable(&queue));
    }
}
