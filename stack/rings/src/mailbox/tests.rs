//! One mailbox, call by call.

use super::*;

fn full<Q: Copy, R: Copy>(credits: usize, call: Q) -> (Caller<Q, R>, Callee<Q, R>) {
    let (mut caller, callee) = pair(credits);
    (0..credits).for_each(|_| assert!(caller.call(call).is_ok()));
    (caller, callee)
}

#[test]
fn a_reply_is_seen_to_have_come_until_it_is_taken() {
    let (mut caller, mut callee) = pair::<u8, u8>(2);
    assert!(!caller.has_reply(), "nothing was asked");
    caller.call(1).unwrap();
    assert!(!caller.has_reply());
    callee.serve(1, |call| call);
    assert!(caller.has_reply() && caller.has_reply());
    assert_eq!((caller.reply(), caller.has_reply()), (Some(1), false));
}

#[test]
fn credits_are_the_number_asked_for_even_where_there_are_more_places() {
    let (mut caller, mut callee) = full::<u8, u8>(3, 1);
    assert_eq!((caller.call(2), caller.credits(), caller.outstanding()), (Err(2), 0, 3));
    assert_eq!(callee.serve(2, |call| call), 2);
    assert_eq!(caller.call(2), Err(2), "answered is not taken");
    assert_eq!((caller.reply(), caller.credits()), (Some(1), 1));
    assert_eq!(caller.call(2), Ok(()));
}

#[test]
fn no_credit_is_one_credit() {
    let (mut caller, _callee) = pair::<u8, u8>(0);
    assert_eq!((caller.call(1), caller.call(2)), (Ok(()), Err(2)));
}

#[test]
fn each_call_and_each_reply_is_handed_over_at_once_and_in_order() {
    let (mut caller, mut callee) = pair(4);
    (0..4).for_each(|call| caller.call(call).unwrap());
    let served = callee.serve(3, |call: u32| {
        let heard = call.checked_sub(1).map(|last| last * 10);
        assert_eq!(caller.reply(), heard, "the one before has been answered");
        call * 10
    });
    assert_eq!((served, caller.reply(), caller.reply()), (3, Some(20), None));
    assert_eq!(callee.serve(3, |call| call * 10), 1);
    assert_eq!((caller.reply(), caller.reply()), (Some(30), None));
}

/// A place that was filled in an earlier round is not taken for one that is filled in this one, whatever the number of rounds.
#[test]
fn places_are_used_again_round_after_round() {
    for credits in 1..=5 {
        let (mut caller, mut callee) = pair::<u32, u32>(credits);
        for first in (0..100).step_by(credits) {
            let calls = first..first + credits as u32;
            calls.clone().for_each(|call| assert_eq!(caller.call(call), Ok(())));
            assert_eq!(caller.reply(), None);
            assert_eq!(callee.serve(usize::MAX, |call| call), credits);
            assert_eq!(callee.serve(usize::MAX, |call| call), 0);
            let heard: Vec<u32> = core::iter::from_fn(|| caller.reply()).collect();
            assert_eq!(heard, calls.collect::<Vec<_>>());
        }
    }
}

#[test]
fn numbers_wrap() {
    let (mut caller, mut callee) = pair::<u32, u32>(2);
    let near_the_end = u32::MAX - 3;
    (caller.calls_sent, caller.replies_taken, callee.next) = (near_the_end, near_the_end, near_the_end);
    for call in 0..20 {
        assert_eq!([caller.call(call), caller.call(call), caller.call(call)], [Ok(()), Ok(()), Err(call)]);
        assert_eq!((callee.serve(9, |call| call), callee.serve(9, |call| call)), (2, 0));
        assert_eq!([caller.reply(), caller.reply(), caller.reply()], [Some(call), Some(call), None]);
    }
}

#[test]
fn each_end_can_tell_that_the_other_is_gone() {
    let (mut caller, mut callee) = full::<u8, u8>(2, 7);
    assert!(!caller.is_abandoned() && !callee.is_abandoned());
    callee.serve(1, |call| call);
    drop(callee);
    assert!(caller.is_abandoned());
    assert_eq!((caller.reply(), caller.reply(), caller.outstanding()), (Some(7), None, 1));
    caller.abandon_calls();
    assert_eq!((caller.call(7), caller.credits(), caller.outstanding()), (Err(7), 0, 0));
    assert_eq!(caller.reply(), None);
    let (caller, mut callee) = full::<u8, u8>(2, 7);
    drop(caller);
    assert!(callee.is_abandoned());
    assert_eq!(callee.serve(9, |call| call), 2);
}

/// Every line that both sides write is one that hands something over, and a value of 62 octets crosses in one.
#[test]
fn no_two_calls_or_ends_share_a_cache_line() {
    type Small = Caller<u8, u8>;
    assert_eq!((align_of::<Small>() % 128, size_of::<Small>() % 128), (0, 0));
    assert_eq!((align_of::<Callee<u8, u8>>() % 128, size_of::<Callee<u8, u8>>() % 128), (0, 0));
    assert_eq!(
        [PhaseRing::<u8>::SLOT_BYTES, PhaseRing::<[u16; 31]>::SLOT_BYTES, PhaseRing::<[u64; 8]>::SLOT_BYTES],
        [64, 64, 128]
    );
}
