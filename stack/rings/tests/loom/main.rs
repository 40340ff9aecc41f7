//! Every interleaving of two or three threads over each ring and signal, as loom's memory model
//! allows them.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p ironwarp-rings --release --test loom`
//!
//! A model does each operation a bounded number of times and ends. Loom runs it once for each
//! interleaving and each value that a load may return. It checks the assertions of the model, and
//! the slot accesses for data races.
#![cfg(loom)]

mod endings;
mod mailbox;
mod threads;

use ironwarp_rings::doorbell::{self, DoorbellFlag};
use ironwarp_rings::notify::NotifyState;
use ironwarp_rings::slots::{self, SlotConsumer};
use ironwarp_rings::spsc;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

#[test]
fn values_arrive_once_and_in_order_through_a_ring_that_wraps() {
    loom::model(|| {
        let (mut producer, mut consumer) = spsc::channel(2);
        let sender = thread::spawn(move || {
            let mut value = 0;
            producer.stage(Box::new(value)).unwrap();
            value += 1;
            producer.push(Box::new(value)).unwrap();
            value += 1;
            if producer.push(Box::new(value)).is_ok() {
                value += 1;
            }
            value
        });
        let mut taken = 0;
        for _ in 0..2 {
            if let Some(value) = consumer.pop() {
                assert_eq!(*value, taken);
                taken += 1;
            }
        }
        let sent = sender.join().unwrap();
        while let Some(value) = consumer.pop() {
            assert_eq!(*value, taken);
            taken += 1;
        }
        assert_eq!(taken, sent);
    });
}

#[test]
fn values_left_in_the_ring_are_dropped_with_the_last_end() {
    loom::model(|| {
        let live = Arc::new(AtomicUsize::new(2));
        let (mut producer, mut consumer) = spsc::channel(2);
        let counted = [Counted(live.clone()), Counted(live.clone())];
        let sender = thread::spawn(move || counted.into_iter().for_each(|value| drop(producer.push(value))));
        drop(consumer.pop());
        drop(consumer);
        sender.join().unwrap();
        assert_eq!(live.load(Ordering::Relaxed), 0);
    });
}

#[test]
fn a_consumer_that_sees_the_producer_dropped_sees_its_last_value() {
    loom::model(|| {
        let (mut producer, mut consumer) = spsc::channel(2);
        let sender = thread::spawn(move || producer.stage(7).unwrap());
        // An earlier read of the index must not hide later values.
        let first = consumer.pop();
        if consumer.is_abandoned() {
            assert_eq!(first.or_else(|| consumer.pop()), Some(7));
        }
        sender.join().unwrap();
    });
}

#[test]
fn an_end_that_sees_the_other_dropped_sees_its_last_index() {
    loom::model(|| {
        let (mut producer, mut consumer) = slots::ring::<usize>(1);
        producer.post(|slot| *slot = 1).unwrap();
        let worker = thread::spawn(move || {
            consumer.refresh();
            consumer.release_to(1);
        });
        if producer.is_abandoned() {
            assert_eq!(producer.post(|slot| *slot = 2), Ok(1));
        }
        worker.join().unwrap();
    });
}

#[test]
fn a_slot_is_never_written_while_it_is_read() {
    loom::model(|| {
        let (mut producer, mut consumer) = slots::ring::<usize>(2);
        let poster = thread::spawn(move || {
            producer.post(|slot| *slot = 100).unwrap();
            producer.post(|slot| *slot = 101).unwrap();
            u32::from(producer.post(|slot| *slot = 102).is_ok()) + 2
        });
        for _ in 0..2 {
            let tail = consumer.refresh();
            check_all(&consumer);
            // Release all requests but the newest. The producer may write their slots from here on.
            if tail != consumer.head() {
                consumer.release_to(tail.wrapping_sub(1));
            }
            check_all(&consumer);
        }
        let posted = poster.join().unwrap();
        assert_eq!(consumer.refresh(), posted);
        check_all(&consumer);
    });
}

#[test]
fn a_producer_that_sees_a_slot_free_sees_it_counted_as_unsignaled() {
    loom::model(|| {
        let (mut producer, mut consumer) = slots::ring::<usize>(1);
        producer.post(|_| ()).unwrap();
        let worker = thread::spawn(move || {
            consumer.refresh();
            consumer.add_unsignaled(1);
            consumer.release_to(1);
        });
        if producer.has_room(1) {
            assert_eq!(producer.claim_unsignaled(), 1);
        }
        worker.join().unwrap();
    });
}

#[test]
fn work_published_before_the_doorbell_is_seen_after_it() {
    loom::model(|| {
        let (mut sender, mut receiver) = doorbell::channel(1);
        let (mut producer, mut consumer) = slots::ring::<usize>(2);
        let bell = Arc::new(DoorbellFlag::default());
        let poster = thread::spawn({
            let bell = bell.clone();
            move || {
                (0..2).for_each(|_| {
                    producer.post(|_| ()).unwrap();
                    sender.ring(0, &bell);
                })
            }
        });
        let mut seen = 0;
        let mut serve = |receiver: &mut doorbell::DoorbellReceiver| {
            if let Some(0) = receiver.next() {
                bell.clear();
                seen = consumer.refresh();
            }
        };
        (0..2).for_each(|_| serve(&mut receiver));
        poster.join().unwrap();
        // The sender has stopped: an unseen queue must still be in the doorbell ring.
        serve(&mut receiver);
        assert_eq!(seen, 2, "a wake-up was lost");
    });
}

#[test]
fn a_queue_is_listed_once_until_its_flag_is_cleared() {
    loom::model(|| {
        let (mut sender, mut receiver) = doorbell::channel(1);
        let bell = Arc::new(DoorbellFlag::default());
        let poster = thread::spawn({
            let bell = bell.clone();
            move || (0..3).map(|_| usize::from(sender.ring(0, &bell))).sum::<usize>()
        });
        let mut received = 0;
        let mut drain = |receiver: &mut doorbell::DoorbellReceiver| {
            while receiver.next().is_some() {
                received += 1;
                bell.clear();
            }
        };
        drain(&mut receiver);
        let listed = poster.join().unwrap();
        drain(&mut receiver);
        // An overflow of the ring would list the queue once more.
        assert_eq!(received, listed);
    });
}

#[test]
fn doorbells_that_overflow_the_ring_are_not_lost() {
    loom::model(|| {
        let (mut sender, mut receiver) = doorbell::channel(2);
        let bells = Arc::new([DoorbellFlag::default(), DoorbellFlag::default()]);
        let (mut producers, mut consumers): (Vec<_>, Vec<_>) =
            (0..2).map(|_| slots::ring::<usize>(1)).unzip();
        // Number 0 belonged to two earlier queues whose entries are still in the ring: both slots
        // are taken.
        (0..2).for_each(|_| assert!(sender.ring(0, &DoorbellFlag::default())));
        let poster = thread::spawn({
            let bells = bells.clone();
            move || {
                for id in [1, 0] {
                    producers[id].post(|_| ()).unwrap();
                    sender.ring(id as u32, &bells[id]);
                }
            }
        });
        let mut seen = [0, 0];
        let mut serve = |receiver: &mut doorbell::DoorbellReceiver, at_most| {
            for id in (0..at_most).map_while(|_| receiver.next()) {
                bells[id as usize].clear();
                seen[id as usize] = consumers[id as usize].refresh();
            }
        };
        // Receives the two old entries, or visits every queue.
        serve(&mut receiver, 2);
        poster.join().unwrap();
        serve(&mut receiver, usize::MAX);
        assert_eq!(seen, [1, 1], "a wake-up was lost");
    });
}

#[test]
fn a_thread_that_arms_and_finds_nothing_is_woken() {
    assert_wakes_with(NotifyState::default, false, a_completion);
}

#[test]
fn a_request_that_is_widened_while_a_core_fires_is_not_lost() {
    let armed_for_solicited = || {
        let armed = NotifyState::default();
        armed.arm(true);
        armed
    };
    assert_wakes_with(armed_for_solicited, true, a_completion);
}

/// A core that sleeps: a context publishes work, rings the doorbell, and fires only if the flag was
/// clear. The core arms and serves its doorbell once more.
#[test]
fn a_core_that_sleeps_while_a_doorbell_rings_is_woken() {
    loom::model(|| {
        let (mut producer, mut consumer) = slots::ring::<usize>(2);
        let (mut sender, mut receiver) = doorbell::channel(1);
        let bell = Arc::new(DoorbellFlag::default());
        let armed = Arc::new(NotifyState::default());
        let context = thread::spawn({
            let (bell, armed) = (bell.clone(), armed.clone());
            move || {
                let mut fired = 0;
                for _ in 0..2 {
                    producer.post(|_| ()).unwrap();
                    if sender.ring(0, &bell) {
                        fired += usize::from(armed.fire(true));
                    }
                }
                fired
            }
        });
        let mut serve = || {
            let rang = receiver.next().is_some();
            if rang {
                bell.clear();
            }
            (rang, consumer.refresh())
        };
        armed.arm(false);
        let (rang, seen) = serve();
        let fired = context.join().unwrap();
        let sleeps = !rang;
        assert!(fired <= 1, "one sleep ends once");
        assert!(fired == 1 || !sleeps, "a wake-up was lost");
        // Awake, or woken: what was posted is found.
        let (rang, seen_again) = serve();
        assert!(seen == 2 || (rang && seen_again == 2), "a request was left lying");
    });
}

#[test]
fn two_cores_that_fire_wake_once() {
    loom::model(|| {
        let armed = Arc::new(NotifyState::default());
        let cores = [0, 1].map(|_| {
            let (mut core, application) = spsc::channel(1);
            let armed = armed.clone();
            let firing = thread::spawn(move || {
                core.push(()).unwrap();
                usize::from(armed.fire(false))
            });
            (firing, application)
        });
        armed.arm(false);
        let (firing, mut rings): (Vec<_>, Vec<_>) = cores.into_iter().unzip();
        let missing = rings.iter_mut().filter_map(|ring| ring.pop().is_none().then_some(())).count();
        let woken: usize = firing.into_iter().map(|core| core.join().unwrap()).sum();
        assert!(woken <= 1, "one request causes at most one wake-up");
        assert!(woken == 1 || missing == 0, "a wake-up was lost");
    });
}

struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A core that pushes a completion, and an application that finds the ring empty.
fn a_completion() -> (impl FnOnce() + 'static, impl FnOnce() -> bool) {
    let (mut core, mut application) = spsc::channel(1);
    (move || core.push(()).unwrap(), move || application.pop().is_none())
}

/// [`assert_wakes_with`] for a flag that is not armed and a solicited event.
fn assert_wakes<P: FnOnce() + 'static, S: FnOnce() -> bool>(
    ends: impl Fn() -> (P, S) + Sync + Send + 'static,
) {
    assert_wakes_with(NotifyState::default, true, ends);
}

/// One thread publishes and fires; the other arms, polls and sleeps if it finds nothing. A sleeping
/// thread is woken. `ends` returns the publishing end, and a poll that returns whether it found
/// nothing.
fn assert_wakes_with<P: FnOnce() + 'static, S: FnOnce() -> bool>(
    state: impl Fn() -> NotifyState + Sync + Send + 'static,
    solicited: bool,
    ends: impl Fn() -> (P, S) + Sync + Send + 'static,
) {
    loom::model(move || {
        let (publish, finds_nothing) = ends();
        let armed = Arc::new(state());
        let firing = thread::spawn({
            let armed = armed.clone();
            move || {
                publish();
                armed.fire(solicited)
            }
        });
        armed.arm(false);
        let sleeps = finds_nothing();
        let woken = firing.join().unwrap();
        assert!(woken || !sleeps, "a wake-up was lost");
    });
}

/// Reads every request from head to tail and compares it with its number. Loom checks the reads for
/// races.
fn check_all(consumer: &SlotConsumer<usize>) {
    for seq in consumer.head()..consumer.tail() {
        assert_eq!(consumer.at(seq).copied(), Some(100 + seq as usize));
    }
}
