//! Queues whose ends are on threads of their own: shared doorbells, reservations, unsignaled
//! requests.

use ironwarp_rings::doorbell::{self, DoorbellFlag, DoorbellReceiver, SharedDoorbell};
use ironwarp_rings::notify::NotifyState;
use ironwarp_rings::reservations::Reservations;
use ironwarp_rings::slots::{self, SlotConsumer};
use ironwarp_rings::spsc;
use loom::sync::Arc;
use loom::thread;

/// A queue: the poster's end, the core's end and the flag.
struct Queue {
    consumer: SlotConsumer<usize>,
    bell: Arc<DoorbellFlag>,
}

/// Spawns a thread that posts one request to a new queue and rings.
fn poster(id: u32, doorbell: SharedDoorbell) -> (thread::JoinHandle<()>, Queue) {
    let (mut producer, consumer) = slots::ring::<usize>(1);
    let bell = Arc::new(DoorbellFlag::default());
    let posting = thread::spawn({
        let bell = bell.clone();
        move || {
            producer.post(|_| ()).unwrap();
            doorbell.ring(id, &bell);
        }
    });
    (posting, Queue { consumer, bell })
}

fn serve(receiver: &mut DoorbellReceiver, queues: &mut [Queue], seen: &mut [u32]) {
    while let Some(id) = receiver.next() {
        queues[id as usize].bell.clear();
        seen[id as usize] = queues[id as usize].consumer.refresh();
    }
}

#[test]
fn doorbells_of_two_threads_in_one_word_are_not_lost() {
    loom::model(|| {
        let (sender, mut receiver) = doorbell::channel(2);
        let (posting, mut queues): (Vec<_>, Vec<_>) = (0..2).map(|id| poster(id, sender.shared())).unzip();
        let mut seen = [0; 2];
        serve(&mut receiver, &mut queues, &mut seen);
        posting.into_iter().for_each(|thread| thread.join().unwrap());
        serve(&mut receiver, &mut queues, &mut seen);
        assert_eq!(seen, [1, 1], "a wake-up was lost");
    });
}

#[test]
fn a_doorbell_that_rings_again_while_it_is_served_is_not_lost() {
    loom::model(|| {
        let (sender, mut receiver) = doorbell::channel(1);
        let doorbell = sender.shared();
        let (mut producer, consumer) = slots::ring::<usize>(2);
        let bell = Arc::new(DoorbellFlag::default());
        let posting = thread::spawn({
            let bell = bell.clone();
            move || {
                for _ in 0..2 {
                    producer.post(|_| ()).unwrap();
                    doorbell.ring(0, &bell);
                }
            }
        });
        let (mut queues, mut seen) = ([Queue { consumer, bell }], [0]);
        serve(&mut receiver, &mut queues, &mut seen);
        posting.join().unwrap();
        serve(&mut receiver, &mut queues, &mut seen);
        assert_eq!(seen, [2], "a wake-up was lost");
    });
}

/// The context's own sender and another thread ring the two queues of one queue pair, which have
/// one flag.
#[test]
fn two_threads_that_ring_one_flag_list_it_for_both() {
    loom::model(|| {
        let (mut sender, mut receiver) = doorbell::channel(1);
        let (posting, queue) = poster(0, sender.shared());
        let (mut producer, mut own) = slots::ring::<usize>(1);
        let posting_own = thread::spawn({
            let bell = queue.bell.clone();
            move || {
                producer.post(|_| ()).unwrap();
                sender.ring(0, &bell);
            }
        });
        let (mut queue, mut seen) = (queue, [0, 0]);
        let mut serve = || {
            while receiver.next().is_some() {
                queue.bell.clear();
                seen = [queue.consumer.refresh(), own.refresh()];
            }
            seen
        };
        serve();
        posting.join().unwrap();
        posting_own.join().unwrap();
        assert_eq!(serve(), [1, 1], "a wake-up was lost");
    });
}

#[test]
fn a_core_that_sleeps_while_another_thread_rings_is_woken() {
    loom::model(|| {
        let (sender, mut receiver) = doorbell::channel(1);
        let doorbell = sender.shared();
        let (bell, armed) = (DoorbellFlag::default(), Arc::new(NotifyState::default()));
        let posting = thread::spawn({
            let armed = armed.clone();
            move || doorbell.ring(0, &bell) && armed.fire(true)
        });
        armed.arm(false);
        let sleeps = receiver.next().is_none();
        assert!(posting.join().unwrap() || !sleeps, "a wake-up was lost");
    });
}

/// Two threads claim while the core counts: every request is claimed, and none twice.
#[test]
fn unsignaled_requests_are_claimed_once() {
    loom::model(|| {
        let (producer, mut consumer) = slots::ring::<usize>(2);
        let claiming: Vec<_> = (0..2)
            .map(|_| {
                let observer = producer.observer();
                thread::spawn(move || observer.claim_unsignaled())
            })
            .collect();
        consumer.add_unsignaled(1);
        consumer.add_unsignaled(1);
        let claimed: u32 = claiming.into_iter().map(|thread| thread.join().unwrap()).sum();
        assert_eq!(claimed + producer.claim_unsignaled(), 2);
    });
}

/// A thread that claims a request releases the entry that another thread reserved for it. A debug
/// build checks that there is one; loom is run in release mode, so the model checks it.
#[test]
fn a_thread_that_claims_sees_what_was_reserved() {
    loom::model(|| {
        let entries = Arc::new(Reservations::new(2));
        let (mut sq, mut core_sq) = slots::ring::<usize>(1);
        let claimer = sq.observer();
        let posting = thread::spawn({
            let entries = entries.clone();
            move || {
                assert!(entries.try_reserve());
                sq.post(|_| ()).unwrap();
            }
        });
        let claiming = thread::spawn(move || {
            let claimed = claimer.claim_unsignaled();
            assert!(entries.reserved() >= claimed);
            entries.release(claimed);
        });
        let posted = core_sq.refresh();
        core_sq.add_unsignaled(posted);
        posting.join().unwrap();
        claiming.join().unwrap();
    });
}

/// One thread polls, another posts, the core completes: the entry that the poll freed is there for
/// the completion.
#[test]
fn a_reserved_completion_finds_room() {
    loom::model(|| {
        let entries = Arc::new(Reservations::new(1));
        let (mut core, mut poller) = spsc::channel(1);
        let (mut sq, mut core_sq) = slots::ring::<usize>(1);
        assert!(entries.try_reserve());
        core.push(0).unwrap();
        let posting = thread::spawn({
            let entries = entries.clone();
            move || entries.try_reserve() && sq.post(|_| ()).is_ok()
        });
        let polling = thread::spawn(move || {
            assert_eq!(poller.pop(), Some(0));
            entries.release(1);
        });
        if core_sq.refresh() == 1 {
            assert_eq!(core.push(1), Ok(()), "no room for a completion that was reserved");
        }
        posting.join().unwrap();
        polling.join().unwrap();
    });
}

#[test]
fn threads_reserve_no_more_than_the_depth() {
    loom::model(|| {
        let entries = Arc::new(Reservations::new(1));
        let other = thread::spawn({
            let entries = entries.clone();
            move || entries.try_reserve()
        });
        let own = entries.try_reserve();
        let both = u32::from(own) + u32::from(other.join().unwrap());
        assert_eq!((both, entries.reserved()), (1, 1));
    });
}
