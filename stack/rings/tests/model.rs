//! The rings compared with `VecDeque` for random sequences of operations on one thread, and across
//! two threads.
#![cfg(not(loom))]

use std::collections::VecDeque;
use std::thread;

use ironwarp_rings::slots::{self, Full};
use ironwarp_rings::spsc;
use proptest::prelude::*;

/// The number of values in the two-thread tests: enough to wrap every ring many times.
const STREAM: u32 = if cfg!(miri) { 200 } else { 100_000 };

#[derive(Clone, Copy, Debug)]
enum Step {
    Stage,
    Push,
    Publish,
    Pop,
    /// For the work queue: refresh, then release this many requests, modulo the number that is
    /// there plus one.
    Release(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => Just(Step::Stage),
        3 => Just(Step::Push),
        1 => Just(Step::Publish),
        4 => Just(Step::Pop),
        3 => any::<u8>().prop_map(Step::Release),
    ];
    proptest::collection::vec(step, 0..if cfg!(miri) { 40 } else { 400 })
}

fn config() -> ProptestConfig {
    ProptestConfig { cases: if cfg!(miri) { 4 } else { 256 }, ..Default::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_ring_behaves_as_a_bounded_queue_with_staging(capacity in 1..9usize, steps in steps()) {
        let (mut producer, mut consumer) = spsc::channel(capacity);
        let capacity = capacity.next_power_of_two();
        let (mut staged, mut full, mut next) = (VecDeque::new(), VecDeque::new(), 0u32);
        for step in steps {
            match step {
                Step::Stage | Step::Push => {
                    // Boxes, so that Miri detects a value that is leaked or dropped twice.
                    let push = matches!(step, Step::Push);
                    let value = Box::new(next);
                    let outcome = if push { producer.push(value) } else { producer.stage(value) };
                    if staged.len() + full.len() < capacity {
                        prop_assert_eq!(outcome, Ok(()));
                        staged.push_back(next);
                    } else {
                        prop_assert_eq!(outcome, Err(Box::new(next)));
                    }
                    if push && staged.back() == Some(&next) {
                        full.append(&mut staged);
                    }
                    next += 1;
                }
                Step::Publish => {
                    producer.publish();
                    full.append(&mut staged);
                }
                Step::Pop => {
                    prop_assert_eq!(consumer.peek().map(|value| **value), full.front().copied());
                    prop_assert_eq!(consumer.pop().map(|value| *value), full.pop_front());
                }
                Step::Release(_) => {
                    prop_assert!(consumer.available() <= full.len());
                    prop_assert_eq!(consumer.available() == 0, full.is_empty());
                    let room = capacity - staged.len() - full.len();
                    prop_assert!(producer.has_room(room) && !producer.has_room(room + 1));
                }
            }
        }
    }

    #[test]
    fn a_work_queue_keeps_each_request_until_its_release(depth in 1..9usize, steps in steps()) {
        let (mut producer, mut consumer) = slots::ring::<[u32; 3]>(depth);
        let depth = depth.next_power_of_two();
        let (mut staged, mut full, mut head, mut next) = (VecDeque::new(), VecDeque::new(), 0u32, 0u32);
        for step in steps {
            match step {
                Step::Stage | Step::Push => {
                    let write = |slot: &mut [u32; 3]| *slot = [next, !next, 7];
                    let push = matches!(step, Step::Push);
                    let outcome = if push { producer.post(write) } else { producer.stage(write) };
                    if staged.len() + full.len() < depth {
                        prop_assert_eq!(outcome, Ok(next));
                        staged.push_back(next);
                        next += 1;
                        if push {
                            full.append(&mut staged);
                        }
                    } else {
                        prop_assert_eq!(outcome, Err(Full));
                    }
                }
                Step::Publish => {
                    producer.publish();
                    full.append(&mut staged);
                }
                Step::Pop => {
                    let seen = consumer.tail();
                    prop_assert!(seen.wrapping_sub(head) as usize <= full.len());
                }
                Step::Release(how_many) => {
                    let tail = consumer.refresh();
                    prop_assert_eq!(tail, head + full.len() as u32);
                    for (at, value) in full.iter().enumerate() {
                        prop_assert_eq!(consumer.at(head + at as u32), Some(&[*value, !value, 7]));
                    }
                    prop_assert_eq!((consumer.at(tail), consumer.at(head.wrapping_sub(1))), (None, None));
                    let released = usize::from(how_many) % (full.len() + 1);
                    full.drain(..released);
                    head += released as u32;
                    consumer.release_to(head);
                    prop_assert_eq!(consumer.head(), head);
                }
            }
        }
    }
}

#[test]
fn values_pass_between_two_threads_once_and_in_order() {
    let (mut producer, mut consumer) = spsc::channel(8);
    let sender = thread::spawn(move || {
        for value in 0..STREAM {
            let mut value = Box::new(value);
            while let Err(back) = producer.push(value) {
                value = back;
                thread::yield_now();
            }
        }
    });
    let mut expected = 0;
    while expected < STREAM {
        match consumer.pop() {
            Some(value) => {
                assert_eq!(*value, expected);
                expected += 1;
            }
            None => thread::yield_now(),
        }
    }
    sender.join().unwrap();
    assert!(consumer.is_abandoned() && consumer.pop().is_none());
}

#[test]
fn requests_pass_between_two_threads_with_delayed_releases() {
    let (mut producer, mut consumer) = slots::ring::<[u32; 32]>(8);
    let poster = thread::spawn(move || {
        for value in 0..STREAM {
            while producer.post(|slot| *slot = [value; 32]) == Err(Full) {
                thread::yield_now();
            }
        }
        let mut claimed = 0;
        while claimed < STREAM {
            claimed += producer.claim_unsignaled();
            thread::yield_now();
        }
    });
    while consumer.head() < STREAM {
        let tail = consumer.refresh();
        for seq in consumer.head()..tail {
            assert_eq!(consumer.at(seq), Some(&[seq; 32]));
        }
        // Keep the newest three, as if their work were not acknowledged yet.
        let release = if tail == STREAM { tail } else { tail.saturating_sub(3).max(consumer.head()) };
        consumer.add_unsignaled(release - consumer.head());
        consumer.release_to(release);
        thread::yield_now();
    }
    poster.join().unwrap();
}
