//! What one side does for the last time while the other goes on: a connection that ends, a worker
//! that is dropped, a context that attaches, a core that sleeps.

use ironwarp_rings::arrivals::Arrivals;
use ironwarp_rings::doorbell::{self, DoorbellFlag, DoorbellReceiver};
use ironwarp_rings::notify::NotifyState;
use ironwarp_rings::state::SharedState;
use ironwarp_rings::{slots, spsc};
use loom::sync::{Arc, Mutex};
use loom::thread;

const ESTABLISHED: u8 = 2;
const ERROR: u8 = 4;

#[test]
fn a_receive_that_is_posted_while_the_connection_ends_is_flushed() {
    loom::model(|| {
        let (mut producer, mut consumer) = slots::ring::<usize>(2);
        let (mut sender, mut receiver) = doorbell::channel(1);
        let shared = Arc::new((SharedState::new(ESTABLISHED), DoorbellFlag::default()));
        let poster = thread::spawn({
            let shared = shared.clone();
            move || {
                let (state, bell) = &*shared;
                producer.post(|_| ()).unwrap();
                if state.load_after_publish() == ERROR {
                    sender.ring(0, bell);
                }
            }
        });
        let (state, bell) = &*shared;
        state.set(ERROR);
        let mut flushed = consumer.refresh();
        poster.join().unwrap();
        // The core looks at the queue again only for a doorbell.
        if receiver.next().is_some() {
            bell.clear();
            flushed = consumer.refresh();
        }
        assert_eq!(flushed, 1, "a receive stays without a completion");
    });
}

#[test]
fn a_thread_that_sees_the_state_sees_what_the_core_wrote_before() {
    loom::model(|| {
        let state = Arc::new(SharedState::new(ESTABLISHED));
        let (mut core, mut application) = spsc::channel(1);
        let ending = thread::spawn({
            let state = state.clone();
            move || {
                core.push(7).unwrap();
                state.set(ERROR);
            }
        });
        if state.load() == ERROR {
            assert_eq!(application.pop(), Some(7));
        }
        ending.join().unwrap();
    });
}

/// A worker that is dropped puts what does not fit the ring into a list, then drops its end of the
/// ring. A context reads the ring, and the list once the ring is abandoned and empty.
#[test]
fn notifications_of_a_dropped_worker_arrive_once_and_in_order() {
    loom::model(|| {
        let (mut core, mut application) = spsc::channel(1);
        let left = Arc::new(Mutex::new(Vec::new()));
        let worker = thread::spawn({
            let left = left.clone();
            move || {
                core.push(1).unwrap();
                left.lock().unwrap().push(2);
            }
        });
        let mut seen = Vec::new();
        let mut poll = |seen: &mut Vec<i32>| {
            let next = application.pop().or_else(|| {
                let abandoned = application.is_abandoned();
                abandoned.then(|| application.pop().or_else(|| left.lock().unwrap().pop())).flatten()
            });
            seen.extend(next);
        };
        (0..2).for_each(|_| poll(&mut seen));
        worker.join().unwrap();
        (0..2).for_each(|_| poll(&mut seen));
        assert_eq!(seen, [1, 2]);
    });
}

#[test]
fn a_context_that_attaches_is_taken_once_although_the_core_looks_at_that_moment() {
    loom::model(|| {
        let arrivals = Arc::new(Arrivals::default());
        let attaching = [1, 2].map(|number| {
            let arrivals = arrivals.clone();
            thread::spawn(move || arrivals.push(number))
        });
        let mut taken = arrivals.take().unwrap_or_default();
        attaching.into_iter().for_each(|thread| thread.join().unwrap());
        taken.extend(arrivals.take().unwrap_or_default());
        taken.sort_unstable();
        assert_eq!(taken, [1, 2]);
        assert!(!arrivals.is_waiting());
    });
}

/// A post wakes the core only if it puts the queue into the doorbell: a flag that is set is in a
/// doorbell that the core has not served, and then the core does not sleep.
#[test]
fn a_core_that_sleeps_while_work_is_posted_is_woken() {
    loom::model(|| {
        let (mut sender, mut receiver) = doorbell::channel(1);
        let (mut producer, mut consumer) = slots::ring::<usize>(2);
        let shared = Arc::new((DoorbellFlag::default(), NotifyState::default()));
        let poster = thread::spawn({
            let shared = shared.clone();
            move || {
                let (bell, armed) = &*shared;
                let post = |_| {
                    producer.post(|_| ()).unwrap();
                    usize::from(sender.ring(0, bell) && armed.fire(true))
                };
                (0..2).map(post).sum::<usize>()
            }
        });
        let (bell, armed) = &*shared;
        let mut seen = 0;
        let mut serve = |receiver: &mut DoorbellReceiver| {
            while receiver.next().is_some() {
                bell.clear();
                seen = consumer.refresh();
            }
        };
        serve(&mut receiver);
        armed.arm(false);
        let sleeps = !receiver.has_entries();
        if !sleeps {
            armed.disarm();
            serve(&mut receiver);
        }
        let woken = poster.join().unwrap();
        if woken > 0 || !sleeps {
            serve(&mut receiver);
        }
        assert_eq!(seen, 2, "the core sleeps although there is work");
    });
}
