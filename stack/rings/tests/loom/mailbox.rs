//! Mailboxes between cores: every call gets one reply, in order, also with a single credit.

use ironwarp_rings::mailbox::{self, Caller};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use crate::assert_wakes;

/// A call to a word's owner: the calling core, and the index of the call.
type Call = (usize, usize);
/// The word's value before, and the call.
type Reply = (usize, Call);

/// A calling core that counts its calls and records the replies.
struct TestCaller {
    mailbox: Caller<Call, Reply>,
    name: usize,
    calls_made: usize,
    originals: Vec<usize>,
}

impl TestCaller {
    fn new(mailbox: Caller<Call, Reply>, name: usize) -> Self {
        TestCaller { mailbox, name, calls_made: 0, originals: vec![] }
    }

    /// One iteration of the loop: takes the replies, then makes a call if a credit is left.
    fn poll(&mut self) {
        self.take_replies();
        if self.mailbox.call((self.name, self.calls_made)).is_ok() {
            self.calls_made += 1;
        }
    }

    fn take_replies(&mut self) {
        while let Some((original, call)) = self.mailbox.reply() {
            assert_eq!(
                call,
                (self.name, self.originals.len()),
                "a reply is missing, repeated or out of order"
            );
            self.originals.push(original);
        }
    }

    /// Asserts that every call got a reply and saw the effects of the calls before it.
    fn check(mut self) -> Vec<usize> {
        self.take_replies();
        assert_eq!((self.originals.len(), self.mailbox.outstanding()), (self.calls_made, 0));
        assert!(self.originals.is_sorted_by(|a, b| a < b), "program order");
        self.originals
    }
}

/// The operation of the owner: adds one to the word with plain accesses.
fn add_one(word: &mut usize) -> impl FnMut(Call) -> Reply {
    |call| {
        *word += 1;
        (*word - 1, call)
    }
}

#[test]
fn with_one_credit_every_call_gets_one_reply_in_order() {
    loom::model(|| {
        let (caller, mut owner) = mailbox::pair(1);
        let core = thread::spawn(move || {
            let mut core = TestCaller::new(caller, 0);
            (0..3).for_each(|_| core.poll());
            core
        });
        let mut word = 0;
        for _ in 0..2 {
            owner.serve(1, add_one(&mut word));
        }
        let mut core = core.join().unwrap();
        // The caller has stopped: a call without a reply must still be in the mailbox.
        owner.serve(1, add_one(&mut word));
        core.take_replies();
        assert!((1..=3).contains(&core.calls_made));
        assert_eq!(core.check(), (0..word).collect::<Vec<_>>());
    });
}

/// The owner protocol: two cores add to a word that a third core owns. No addition is lost, and
/// each core's additions are executed in order.
#[test]
fn additions_of_two_cores_through_the_owner_of_the_word_are_not_lost() {
    loom::model(|| {
        let (mut owners, cores): (Vec<_>, Vec<_>) = (0..2)
            .map(|name| {
                let (caller, owner) = mailbox::pair(1);
                let core = thread::spawn(move || {
                    let mut core = TestCaller::new(caller, name);
                    (0..2).for_each(|_| core.poll());
                    core
                });
                (owner, core)
            })
            .unzip();
        let mut word = 0;
        let mut poll = || owners.iter_mut().map(|owner| owner.serve(1, add_one(&mut word))).sum::<usize>();
        poll();
        let cores: Vec<TestCaller> = cores.into_iter().map(|core| core.join().unwrap()).collect();
        poll();
        let mut originals: Vec<usize> = cores.into_iter().flat_map(TestCaller::check).collect();
        originals.sort_unstable();
        assert_eq!(originals, (0..word).collect::<Vec<_>>(), "each addition saw a different value");
    });
}

/// Each core owns the word that the other changes, and both have used up their credits. Neither
/// blocks the other.
#[test]
fn two_cores_that_call_each_other_with_one_credit_both_progress() {
    loom::model(|| {
        let (peer_caller, mut local_owner) = mailbox::pair(1);
        let (local_caller, mut peer_owner) = mailbox::pair(1);
        let peer = thread::spawn(move || {
            let (mut caller, mut word) = (TestCaller::new(peer_caller, 0), 0);
            for _ in 0..2 {
                peer_owner.serve(1, add_one(&mut word));
                caller.poll();
            }
            (caller, peer_owner, word)
        });
        let (mut caller, mut word) = (TestCaller::new(local_caller, 1), 0);
        for _ in 0..2 {
            local_owner.serve(1, add_one(&mut word));
            caller.poll();
        }
        let (peer_caller, mut peer_owner, mut peer_word) = peer.join().unwrap();
        local_owner.serve(1, add_one(&mut word));
        peer_owner.serve(1, add_one(&mut peer_word));
        assert_eq!(peer_caller.check().len(), word);
        assert_eq!(caller.check().len(), peer_word);
    });
}

/// Relaxed writes of the owner before its reply are visible to the caller that took the reply: the
/// mailbox orders them.
#[test]
fn a_caller_with_the_reply_sees_the_owners_earlier_writes() {
    loom::model(|| {
        let word = Arc::new(AtomicUsize::new(0));
        let (mut caller, mut owner) = mailbox::pair(1);
        caller.call(()).unwrap();
        let core = thread::spawn({
            let word = word.clone();
            move || {
                owner.serve(1, |()| {
                    let original = word.load(Ordering::Relaxed);
                    word.store(original + 1, Ordering::Relaxed);
                    original
                });
            }
        });
        if let Some(original) = caller.reply() {
            assert_eq!(word.load(Ordering::Relaxed), original + 1);
        }
        core.join().unwrap();
    });
}

#[test]
fn a_callee_with_the_call_sees_earlier_writes() {
    loom::model(|| {
        let data = Arc::new(AtomicUsize::new(0));
        let (mut caller, mut owner) = mailbox::pair::<(), usize>(1);
        let core = thread::spawn({
            let data = data.clone();
            move || {
                data.store(1, Ordering::Relaxed);
                caller.call(()).unwrap();
            }
        });
        owner.serve(1, |()| {
            let seen = data.load(Ordering::Relaxed);
            assert_eq!(seen, 1);
            seen
        });
        core.join().unwrap();
    });
}

#[test]
fn a_core_that_sleeps_while_a_call_arrives_is_woken() {
    assert_wakes(|| {
        let (mut caller, mut owner) = mailbox::pair::<(), ()>(1);
        (move || caller.call(()).unwrap(), move || owner.serve(1, |()| ()) == 0)
    });
}

#[test]
fn a_core_that_sleeps_while_a_reply_arrives_is_woken() {
    assert_wakes(|| {
        let (mut caller, mut owner) = mailbox::pair::<(), ()>(1);
        caller.call(()).unwrap();
        (move || _ = owner.serve(1, |()| ()), move || caller.reply().is_none())
    });
}

/// Makes two calls to an owner that executes `served` of them and is dropped. A caller that sees
/// the drop and then takes the replies has a reply for every executed call.
fn abandon_after(served: usize) {
    loom::model(move || {
        let word = Arc::new(AtomicUsize::new(0));
        let (mut caller, mut owner) = mailbox::pair::<(), usize>(2);
        caller.call(()).unwrap();
        caller.call(()).unwrap();
        let core = thread::spawn({
            let word = word.clone();
            move || {
                for _ in 0..served {
                    owner.serve(1, |()| word.fetch_add(1, Ordering::Relaxed));
                }
            }
        });
        let mut replies = Vec::new();
        let mut poll = |caller: &mut Caller<(), usize>| {
            let is_gone = caller.is_abandoned();
            replies.extend(std::iter::from_fn(|| caller.reply()));
            if is_gone {
                caller.abandon_calls();
                let done = word.load(Ordering::Relaxed);
                assert_eq!(replies, (0..done).collect::<Vec<_>>(), "an executed call has no reply");
                assert_eq!((done, caller.outstanding(), caller.credits()), (served, 0, 0));
                assert_eq!(caller.call(()), Err(()), "no further call is made");
            }
            is_gone
        };
        let was_gone = poll(&mut caller);
        core.join().unwrap();
        assert!(was_gone || poll(&mut caller), "a dropped end is detected");
    });
}

#[test]
fn a_caller_of_a_dropped_owner_gets_all_replies_before_it_gives_up() {
    abandon_after(1);
}

#[test]
fn a_caller_of_an_idle_dropped_owner_gets_no_reply() {
    abandon_after(0);
}
