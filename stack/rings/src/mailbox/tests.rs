//! Tests of one mailbox on one thread.

use super::*;

fn full<Q: Copy, R: Copy>(credits: usize, call: Q) -> (Caller<Q, R>, Callee<Q, R>) {
    let (mut caller, callee) = pair(credits);
    (0..credits).for_each(|_| assert!(caller.call(call).is_ok()));
    (caller, callee)
}

#[test]
fn has_reply_is_true_until_the_reply_is_taken() {
    let (mut caller, mut callee) = pair::<u8, u8>(2);
    assert!(!caller.has_reply(), "no call was made");
    caller.call(1).unwrap();
    assert!(!caller.has_reply());
    callee.serve(1, |call| call);
    assert!(caller.has_reply() && caller.has_reply());
    assert_eq!((caller.reply(), caller.has_reply()), (Some(1), false));
}

#[test]
fn credits_are_not_rounded_up_to_the_number_of_slots() {
    let (mut caller, mut callee) = full::<u8, u8>(3, 1);
    assert_eq!((caller.call(2), caller.credits(), caller.outstanding()), (Err(2), 0, 3));
    assert_eq!(callee.serve(2, |call| call), 2);
    assert_eq!(caller.call(2), Err(2), "the reply was sent but not taken");
    assert_eq!((caller.reply(), caller.credits()), (Some(1), 1));
    assert_eq!(caller.call(2), Ok(()));
}

#[test]
fn zero_credits_count_as_one() {
    let (mut caller, _callee) = pair::<u8, u8>(0);
    assert_eq!((caller.call(1), caller.call(2)), (Ok(()), Err(2)));
}

#[test]
fn each_call_and_each_reply_is_published_at_once_and_in_order() {
    let (mut caller, mut callee) = pair(4);
    (0..4).for_each(|call| caller.call(call).unwrap());
    let served = callee.serve(3, |call: u32| {
        let previous_reply = call.checked_sub(1).map(|last| last * 10);
        assert_eq!(caller.reply(), previous_reply, "the previous reply is published");
        call * 10
    });
    assert_eq!((served, caller.reply(), caller.reply()), (3, Some(20), None));
    assert_eq!(callee.serve(3, |call| call * 10), 1);
    assert_eq!((caller.reply(), caller.reply()), (Some(30), None));
}

/// A slot that was filled in an earlier round does not look filled in this round.
#[test]
fn slots_are_reused_round_after_round() {
    for credits in 1..=5 {
        let (mut caller, mut callee) = pair::<u32, u32>(credits);
        for first in (0..100).step_by(credits) {
            let calls = first..first + credits as u32;
            calls.clone().for_each(|call| assert_eq!(caller.call(call), Ok(())));
            assert_eq!(caller.reply(), None);
            assert_eq!(callee.serve(usize::MAX, |call| call), credits);
            assert_eq!(callee.serve(usize::MAX, |call| call), 0);
            let replies: Vec<u32> = core::iter::from_fn(|| caller.reply()).collect();
            assert_eq!(replies, calls.collect::<Vec<_>>());
        }
    }
}

#[test]
fn call_numbers_wrap() {
    let (mut caller, mut callee) = pair::<u32, u32>(2);
    let before_wrap = u32::MAX - 3;
    (caller.calls_sent, caller.replies_taken, callee.next) = (before_wrap, before_wrap, before_wrap);
    for call in 0..20 {
        assert_eq!([caller.call(call), caller.call(call), caller.call(call)], [Ok(()), Ok(()), Err(call)]);
        assert_eq!((callee.serve(9, |call| call), callee.serve(9, |call| call)), (2, 0));
        assert_eq!([caller.reply(), caller.reply(), caller.reply()], [Some(call), Some(call), None]);
    }
}

#[test]
fn each_end_detects_that_the_other_was_dropped() {
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

/// A value of up to 62 octets fits in one cache line with its mark.
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
