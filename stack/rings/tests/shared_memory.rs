//! Rings in memory that is mapped twice at different addresses, as two processes map it: one end
//! uses each mapping.
// Miri cannot map files.
#![cfg(not(any(loom, miri)))]

use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::thread;

use ironwarp_rings::block::{BlockMemory, PlainData, Shared};
use ironwarp_rings::doorbell::{self, DoorbellFlag, DoorbellReceiver, DoorbellSender};
use ironwarp_rings::notify::NotifyState;
use ironwarp_rings::slots::{self, Full, SlotConsumer, SlotProducer};
use ironwarp_rings::spsc::{self, Consumer, Producer};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// A file without a name.
struct Memory {
    file: OwnedFd,
    bytes: usize,
}

struct Mapping(NonNull<u8>, usize);

// SAFETY: it is an address, and is used only to unmap.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Memory {
    fn new(bytes: usize) -> Memory {
        let file = memfd_create("rings", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, bytes as u64).unwrap();
        Memory { file, bytes }
    }

    /// Maps the file at an address of its own.
    fn map(&self) -> BlockMemory {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let start =
            unsafe { mmap(std::ptr::null_mut(), self.bytes, access, MapFlags::SHARED, &self.file, 0) };
        let start = NonNull::new(start.unwrap().cast()).unwrap();
        // SAFETY: the mapping lives as long, and the file was zero. The tests attach the ends of
        // one ring.
        unsafe { BlockMemory::new(start, self.bytes, Arc::new(Mapping(start, self.bytes))) }
    }

    /// Overwrites the file, as another process may.
    fn fill(&self, octet: u8) {
        let written = rustix::io::pwrite(&self.file, &vec![octet; self.bytes], 0);
        assert_eq!(written, Ok(self.bytes));
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `map` made the mapping, and no end uses it any more.
        unsafe { munmap(self.0.as_ptr().cast(), self.1) }.unwrap();
    }
}

fn ring<T: PlainData>(capacity: usize) -> (Memory, Producer<T>, Consumer<T>) {
    let memory = Memory::new(spsc::memory_bytes::<T>(capacity));
    let ends = (Producer::attach(memory.map(), capacity), Consumer::attach(memory.map(), capacity));
    (memory, ends.0.unwrap(), ends.1.unwrap())
}

#[test]
fn values_cross_two_mappings_in_both_directions_and_wrap() {
    const VALUES: u64 = 10_000;
    let ((_there, mut ask, mut asked), (_back, mut reply, mut replied)) = (ring::<[u64; 3]>(4), ring(4));
    let echo = thread::spawn(move || {
        let mut echoed = 0;
        while echoed < VALUES {
            if reply.has_room(1)
                && let Some([number, ..]) = asked.pop()
            {
                reply.push(number).unwrap();
                echoed += 1;
            }
            thread::yield_now();
        }
    });
    let (mut sent, mut received) = (0, 0);
    while received < VALUES {
        if sent < VALUES && ask.push([sent, 7, 8]).is_ok() {
            sent += 1;
        }
        if let Some(number) = replied.pop() {
            assert_eq!(number, received);
            received += 1;
        }
        thread::yield_now();
    }
    echo.join().unwrap();
    assert!(ask.is_abandoned() && replied.is_abandoned());
}

#[test]
fn an_end_that_attaches_later_goes_on_where_the_one_before_stopped() {
    let (memory, mut producer, mut consumer) = ring::<u32>(4);
    (0..6).for_each(|value| {
        producer.push(value).unwrap();
        assert_eq!(consumer.pop(), Some(value));
    });
    (6..9).for_each(|value| producer.push(value).unwrap());
    drop(producer);
    assert!(consumer.is_abandoned());
    let mut producer = Producer::attach(memory.map(), 4).unwrap();
    assert!(!consumer.is_abandoned());
    drop(consumer);
    let mut consumer = Consumer::attach(memory.map(), 4).unwrap();
    assert_eq!([producer.push(9), producer.push(10)], [Ok(()), Err(10)]);
    assert_eq!([(); 5].map(|()| consumer.pop()), [Some(6), Some(7), Some(8), Some(9), None]);
}

#[test]
fn requests_cross_two_mappings_in_place_and_completions_return() {
    let memory = Memory::new(slots::memory_bytes::<[u64; 9]>(4));
    let mut producer = SlotProducer::<[u64; 9]>::attach(memory.map(), 4).unwrap();
    let mut consumer = SlotConsumer::<[u64; 9]>::attach(memory.map(), 4).unwrap();
    for round in 0..40 {
        for part in 0..4 {
            producer.stage(|request| *request = [round, part, 0, 0, 0, 0, 0, 0, round]).unwrap();
        }
        assert_eq!(producer.stage(|_| ()), Err(Full));
        producer.publish();
        let tail = consumer.refresh();
        for part in (0..4).rev() {
            let request = consumer.at(consumer.head().wrapping_add(part as u32)).unwrap();
            assert_eq!((request[0], request[1], request[8]), (round, part, round));
        }
        consumer.add_unsignaled(2);
        consumer.release_to(tail);
        assert_eq!((producer.claim_unsignaled(), producer.outstanding()), (2, 0));
    }
    producer.post(|request| request[0] = 41).unwrap();
    drop((producer, consumer));
    let mut producer = SlotProducer::<[u64; 9]>::attach(memory.map(), 4).unwrap();
    let mut consumer = SlotConsumer::<[u64; 9]>::attach(memory.map(), 4).unwrap();
    assert_eq!(producer.post(|request| request[0] += 42), Ok(161));
    assert_eq!(consumer.refresh(), 162);
    assert_eq!([160, 161].map(|seq| consumer.at(seq).map(|request| request[0])), [Some(41), Some(42)]);
}

#[test]
fn a_doorbell_and_its_flags_cross_two_mappings() {
    const QUEUES: usize = 200;
    let memory = Memory::new(doorbell::memory_bytes(QUEUES));
    let mut sender = DoorbellSender::attach(memory.map(), QUEUES).unwrap();
    let mut receiver = DoorbellReceiver::attach(memory.map(), QUEUES).unwrap();
    let first: Vec<u32> = std::iter::from_fn(|| receiver.next()).collect();
    assert!(first.into_iter().eq(0..QUEUES as u32), "a receiver before may have taken some");
    let flags = Memory::new(4096);
    let near = Shared::<[DoorbellFlag; QUEUES]>::attach(flags.map()).unwrap();
    let far = Shared::<[DoorbellFlag; QUEUES]>::attach(flags.map()).unwrap();
    let other = sender.shared();
    for _ in 0..300 {
        assert!(sender.ring(7, &near[7]) && !sender.ring(7, &near[7]) && other.ring(199, &near[199]));
        assert_eq!([receiver.next(), receiver.next(), receiver.next()], [Some(199), Some(7), None]);
        far[7].clear();
        far[199].clear();
    }
    let armed = Memory::new(4096);
    let [near, far] = [(); 2].map(|()| Shared::<NotifyState>::attach(armed.map()).unwrap());
    near.arm(false);
    assert_eq!([far.fire(false), near.fire(false)], [true, false]);
}

/// Whatever another process writes, an end stays inside its block and returns.
#[test]
fn no_content_of_the_memory_leads_out_of_it() {
    for octet in [0x01, 0x7f, 0x80, 0xff] {
        let (memory, mut producer, mut consumer) = ring::<u32>(4);
        memory.fill(octet);
        let mut into = [0; 64];
        consumer.pop_into(&mut into);
        assert!(into.iter().all(|value| *value == u32::from_ne_bytes([octet; 4]) || *value == 0));
        let pushed = (0..64).filter(|value| producer.push(*value).is_ok()).count();
        assert!(pushed > 0 && producer.is_abandoned() && consumer.is_abandoned());
        memory.fill(octet);
        let mut again = Consumer::<u32>::attach(memory.map(), 4).unwrap();
        assert_eq!(again.pop(), None, "both indices are the same");

        let memory = Memory::new(slots::memory_bytes::<u64>(4));
        let mut producer = SlotProducer::<u64>::attach(memory.map(), 4).unwrap();
        let mut consumer = SlotConsumer::<u64>::attach(memory.map(), 4).unwrap();
        memory.fill(octet);
        let tail = consumer.refresh();
        assert!(consumer.at(tail.wrapping_sub(1)).is_some());
        let posted = (0..64).filter(|value| producer.post(|slot| *slot = *value).is_ok()).count();
        assert!(posted > 0);
        drop(SlotProducer::<u64>::attach(memory.map(), 4).unwrap());

        let memory = Memory::new(doorbell::memory_bytes(4));
        let mut receiver = DoorbellReceiver::attach(memory.map(), 4).unwrap();
        memory.fill(octet);
        let mut taken = 0;
        receiver.take_up_to(500, |_| taken += 1);
        assert!(taken <= 500);
    }
}

#[test]
fn memory_that_is_too_small_or_not_aligned_is_refused() {
    let memory = Memory::new(spsc::memory_bytes::<u32>(1024) - 1);
    assert!(Producer::<u32>::attach(memory.map(), 1024).is_none());
    assert!(DoorbellSender::attach(memory.map(), 1024).is_none());
    assert!(SlotConsumer::<u32>::attach(memory.map(), 1024).is_none());
    let mapped = Arc::new([0u128; 64]);
    let start = NonNull::from(&mapped[0]).cast::<u8>();
    // SAFETY: no end attaches.
    let unaligned = unsafe { BlockMemory::new(start.add(8 + start.addr().get() % 16), 1000, mapped.clone()) };
    assert!(Consumer::<u32>::attach(unaligned, 1).is_none());
}
