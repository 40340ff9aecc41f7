//! The rings of requests that are written and read in their slots.

use super::*;

#[test]
fn requests_stay_readable_in_any_order_until_they_are_released() {
    let (mut producer, mut consumer) = ring::<u64>(4);
    for value in [10, 11, 12] {
        producer.post(|slot| *slot = value).unwrap();
    }
    assert_eq!(consumer.refresh(), 3);
    assert_eq!([2, 0, 1, 3].map(|seq| consumer.at(seq).copied()), [Some(12), Some(10), Some(11), None]);
    consumer.release_to(2);
    assert_eq!([0, 1, 2].map(|seq| consumer.at(seq).copied()), [None, None, Some(12)]);
    assert_eq!((consumer.head(), consumer.tail()), (2, 3));
}

#[test]
fn staged_requests_are_published_together() {
    let (mut producer, mut consumer) = ring::<u64>(4);
    assert_eq!(producer.stage(|slot| *slot = 1), Ok(0));
    assert_eq!(producer.stage(|slot| *slot = 2), Ok(1));
    assert_eq!((consumer.refresh(), consumer.at(0)), (0, None));
    producer.publish();
    assert_eq!(consumer.at(0), None, "seen only after a refresh");
    assert_eq!(consumer.refresh(), 2);
    assert_eq!((consumer.at(0), consumer.at(1)), (Some(&1), Some(&2)));
}

#[test]
fn a_refused_request_is_not_staged() {
    let (mut producer, mut consumer) = ring::<u32>(1);
    assert_eq!(producer.stage_unless("full", |_| Err("refused")), Err("refused"));
    producer.publish();
    assert_eq!(consumer.refresh(), consumer.head());
    let write = |slot: &mut u32| {
        *slot = 7;
        Ok(())
    };
    assert_eq!(
        [producer.stage_unless("full", write), producer.stage_unless("full", write)],
        [Ok(()), Err("full")]
    );
    producer.publish();
    assert_eq!((consumer.refresh(), consumer.at(consumer.head()).copied()), (1, Some(7)));
}

#[test]
fn a_full_queue_takes_no_request_until_a_release() {
    let (mut producer, mut consumer) = ring::<u64>(3);
    assert_eq!((producer.depth(), consumer.depth()), (4, 4));
    for value in 0..4 {
        producer.post(|slot| *slot = value).unwrap();
    }
    assert_eq!(
        (producer.post(|_| unreachable!("the closure is not called")), producer.has_room(1)),
        (Err(Full), false)
    );
    consumer.refresh();
    assert!(!producer.has_room(1), "reading releases nothing");
    consumer.release_to(3);
    assert_eq!([producer.has_room(3), producer.has_room(4)], [true, false]);
    assert_eq!(producer.post(|slot| *slot += 100), Ok(4));
    consumer.refresh();
    assert_eq!((consumer.at(3), consumer.at(4)), (Some(&3), Some(&100)), "the slot kept its old contents");
}

#[test]
fn a_release_outside_head_to_tail_does_nothing() {
    let (mut producer, mut consumer) = ring::<u64>(4);
    producer.post(|slot| *slot = 5).unwrap();
    consumer.refresh();
    for seq in [2, 3, 5, u32::MAX, 1 << 31] {
        consumer.release_to(seq);
        assert_eq!((consumer.head(), consumer.at(0), producer.outstanding()), (0, Some(&5), 1), "{seq}");
    }
}

#[test]
fn sequence_numbers_wrap() {
    let (mut producer, mut consumer) = ring::<u64>(2);
    let before_wrap = u32::MAX - 2;
    (producer.tail, producer.staged, producer.cached_head) = (before_wrap, before_wrap, before_wrap);
    (consumer.head, consumer.cached_tail) = (before_wrap, before_wrap);
    producer.ring.header().producer.end.publish(before_wrap);
    producer.ring.header().consumer.end.publish(before_wrap);
    for value in 0..20 {
        let seq = producer.post(|slot| *slot = value).unwrap();
        producer.post(|slot| *slot = value + 100).unwrap();
        assert_eq!(producer.post(|_| ()), Err(Full));
        assert_eq!(consumer.refresh(), seq.wrapping_add(2));
        assert_eq!(
            (consumer.at(seq), consumer.at(seq.wrapping_add(1))),
            (Some(&value), Some(&(value + 100)))
        );
        consumer.release_to(seq.wrapping_add(2));
    }
}

#[test]
fn unsignaled_requests_are_claimed_once_also_where_their_count_wraps() {
    let (producer, mut consumer) = ring::<u64>(1);
    let observer = producer.observer();
    consumer.unsignaled = u32::MAX - 1;
    producer.ring.header().producer.claimed.store(u32::MAX - 1, Ordering::Relaxed);
    consumer.add_unsignaled(1);
    assert_eq!((producer.claim_unsignaled(), observer.claim_unsignaled()), (1, 0));
    consumer.add_unsignaled(3);
    assert_eq!((observer.claim_unsignaled(), producer.claim_unsignaled()), (3, 0));
    assert_eq!(producer.ring.header().producer.claimed.load(Ordering::Relaxed), 2);
}

#[test]
fn an_observer_sees_what_is_published_and_not_released() {
    let (mut producer, mut consumer) = ring::<u64>(3);
    let observer = producer.observer();
    producer.post(|slot| *slot = 1).unwrap();
    producer.stage(|slot| *slot = 2).unwrap();
    assert_eq!((observer.depth(), observer.outstanding(), producer.outstanding()), (4, 1, 2));
    producer.publish();
    consumer.refresh();
    consumer.release_to(1);
    assert_eq!(observer.outstanding(), 1);
    drop((producer, consumer));
    assert_eq!(observer.outstanding(), 1);
}

#[test]
fn each_end_detects_that_the_other_was_dropped() {
    let (mut producer, mut consumer) = ring::<u64>(2);
    assert!(!producer.is_abandoned() && !consumer.is_abandoned());
    producer.stage(|slot| *slot = 1).unwrap();
    drop(producer);
    assert!(consumer.is_abandoned());
    consumer.refresh();
    assert_eq!(consumer.at(0), Some(&1));

    let (producer, consumer) = ring::<u64>(2);
    drop(consumer);
    assert!(producer.is_abandoned());
}

#[test]
fn slots_begin_on_cache_lines() {
    let (mut producer, _consumer) = ring::<[u64; 9]>(4);
    for _ in 0..4 {
        producer.post(|slot| assert_eq!(slot.as_ptr() as usize % 64, 0)).unwrap();
    }
    assert_eq!((size_of::<Slot<[u64; 8]>>(), size_of::<Slot<[u64; 9]>>()), (64, 128));
}
