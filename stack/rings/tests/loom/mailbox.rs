//! Mailboxes between cores: nothing is lost, doubled or overtaken, with a single credit, for both directions of waiting.

use ironwarp_rings::mailbox::{self, Caller};
use ironwarp_rings::notify::NotifyState;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

/// A call to a word's owner: the calling core, and the index of the call.
type Call = (usize, usize);
/// The word's value before, and the call.
type Reply = (usize, Call);

/// What a core asked for and heard back, call by call.
struct TestCaller {
    mailbox: Caller<Call, Reply>,
    name: usize,
    asked: usize,
    originals: Vec<usize>,
}

impl TestCaller {
    fn new(mailbox: Caller<Call, Reply>, name: usize) -> Self {
        TestCaller { mailbox, name, asked: 0, originals: vec![] }
    }

    /// One turn of the loop: hears, then asks once if it may.
    fn poll(&mut self) {
        self.take_replies();
        if self.mailbox.call((self.name, self.asked)).is_ok() {
            self.asked += 1;
        }
    }

    fn take_replies(&mut self) {
        while let Some((original, call)) = self.mailbox.reply() {
            assert_eq!(call, (self.name, self.originals.len()), "a reply lost, doubled or overtaken");
            self.originals.push(original);
        }
    }

    /// Every call was answered, and each saw the ones before it.
    fn check(mut self) -> Vec<usize> {
        self.take_replies();
        assert_eq!((self.originals.len(), self.mailbox.outstanding()), (self.asked, 0));
        assert!(self.originals.is_sorted_by(|a, b| a < b), "program order");
        self.originals
    }
}

/// The owner's part: adds one to the word, with plain accesses.
fn add_one(word: &mut usize) -> impl FnMut(Call) -> Reply {
    |call| {
        *word += 1;
        (*word - 1, call)
    }
}

#[test]
fn with_one_credit_every_call_is_answered_once_and_in_order() {
    loom::model(|| {
        let (caller, mut owner) = mailbox::pair(1);
        let core = thread::spawn(move || {
            let mut asking = TestCaller::new(caller, 0);
            (0..3).for_each(|_| asking.poll());
            asking
        });
        let mut word = 0;
        for _ in 0..2 {
            owner.serve(1, add_one(&mut word));
        }
        let mut asking = core.join().unwrap();
        // Both sides rest now: what was not answered must still be in the mailbox.
        owner.serve(1, add_one(&mut word));
        asking.take_replies();
        assert!((1..=3).contains(&asking.asked));
        assert_eq!(asking.check(), (0..word).collect::<Vec<_>>());
    });
}

/// The owner protocol: one word, two cores that add to it, a core that owns it. No addition is lost, and each core
/// sees its own in order.
#[test]
fn two_cores_that_add_to_one_word_through_its_owner_lose_nothing() {
    loom::model(|| {
        let (mut owners, cores): (Vec<_>, Vec<_>) = (0..2)
            .map(|name| {
                let (caller, owner) = mailbox::pair(1);
                let core = thread::spawn(move || {
                    let mut asking = TestCaller::new(caller, name);
                    (0..2).for_each(|_| asking.poll());
                    asking
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
        assert_eq!(originals, (0..word).collect::<Vec<_>>(), "every addition saw a value of its own");
    });
}

/// Either core owns what the other asks for, and both are at their limit: neither waits for the other.
#[test]
fn two_cores_that_call_each_other_with_one_credit_both_get_on() {
    loom::model(|| {
        let (there, mut here_owner) = mailbox::pair(1);
        let (here, mut there_owner) = mailbox::pair(1);
        let other = thread::spawn(move || {
            let (mut asking, mut word) = (TestCaller::new(there, 0), 0);
            for _ in 0..2 {
                there_owner.serve(1, add_one(&mut word));
                asking.poll();
            }
            (asking, there_owner, word)
        });
        let (mut asking, mut word) = (TestCaller::new(here, 1), 0);
        for _ in 0..2 {
            here_owner.serve(1, add_one(&mut word));
            asking.poll();
        }
        let (theirs, mut there_owner, mut their_word) = other.join().unwrap();
        here_owner.serve(1, add_one(&mut word));
        there_owner.serve(1, add_one(&mut their_word));
        assert_eq!(theirs.check().len(), word);
        assert_eq!(asking.check().len(), their_word);
    });
}

/// What the owner did to memory before it replied is visible to the caller that has the reply, though nothing but the mailbox
/// orders the two.
#[test]
fn a_caller_with_the_reply_sees_the_word_changed() {
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

/// What the caller did before it called is seen by the owner that has the call.
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

/// A core that means to sleep arms and looks once more; who mails fires then.
#[test]
fn a_core_that_goes_to_sleep_over_its_mail_is_woken() {
    loom::model(|| {
        let armed = Arc::new(NotifyState::default());
        let (mut caller, mut owner) = mailbox::pair::<(), ()>(1);
        let core = thread::spawn({
            let armed = armed.clone();
            move || {
                caller.call(()).unwrap();
                armed.fire(true)
            }
        });
        armed.arm(false);
        let sleeps = owner.serve(1, |()| ()) == 0;
        let woken = core.join().unwrap();
        assert!(woken || !sleeps, "a wake-up was lost");
    });
}

/// And so for the core that waits for a reply.
#[test]
fn a_core_that_goes_to_sleep_over_its_reply_is_woken() {
    loom::model(|| {
        let armed = Arc::new(NotifyState::default());
        let (mut caller, mut owner) = mailbox::pair::<(), ()>(1);
        caller.call(()).unwrap();
        let core = thread::spawn({
            let armed = armed.clone();
            move || {
                owner.serve(1, |()| ());
                armed.fire(true)
            }
        });
        armed.arm(false);
        let sleeps = caller.reply().is_none();
        let woken = core.join().unwrap();
        assert!(woken || !sleeps, "a wake-up was lost");
    });
}

/// Two calls to an owner that answers some and goes. A caller that finds it dropped, takes its replies and then gives up has
/// heard of everything that it did; the other calls were never begun.
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
        let mut heard = Vec::new();
        let mut poll = |caller: &mut Caller<(), usize>| {
            let is_gone = caller.is_abandoned();
            heard.extend(std::iter::from_fn(|| caller.reply()));
            if is_gone {
                caller.abandon_calls();
                let done = word.load(Ordering::Relaxed);
                assert_eq!(heard, (0..done).collect::<Vec<_>>(), "something was done that nobody heard of");
                assert_eq!((done, caller.outstanding(), caller.credits()), (served, 0, 0));
                assert_eq!(caller.call(()), Err(()), "nothing more is asked of it");
            }
            is_gone
        };
        let was_gone = poll(&mut caller);
        core.join().unwrap();
        assert!(was_gone || poll(&mut caller), "a dropped end is detected");
    });
}

#[test]
fn a_caller_that_abandons_an_owner_has_all_its_replies() {
    abandon_after(1);
}

#[test]
fn a_caller_that_abandons_an_idle_owner_gets_no_reply() {
    abandon_after(0);
}
