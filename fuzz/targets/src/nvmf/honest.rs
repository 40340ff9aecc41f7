//! The honest host: writes and reads extents of its own, one command for each at a time, and knows
//! what must be there.

use std::collections::BTreeMap;

use crate::Input;
use iwarp_nvmf::host::{BlockRange, Transfer};
use iwarp_nvmf::wire::Status;
use iwarp_nvmf::wire::opcode::io;

use super::steps::{HONEST, until};
use super::world::World;

const BLOCKS: u32 = 8;
const BYTES: usize = 4096;
const EXTENTS: usize = 6;
/// What a failed command may have: the disk did not answer, does not take it now, or fails.
const FAILURES: [Status; 4] = [
    Status::INTERNAL_ERROR,
    Status::NAMESPACE_NOT_READY,
    Status::WRITE_FAULT,
    Status::UNRECOVERED_READ_ERROR,
];

/// A command without a response.
struct Outstanding {
    extent: usize,
    write: Option<u8>,
}

pub struct Honest {
    /// The bytes that an extent may have, all of them the same.
    may_be: Vec<Vec<u8>>,
    is_busy: Vec<bool>,
    outstanding: BTreeMap<u16, Outstanding>,
    next: u8,
}

impl Honest {
    pub fn new() -> Self {
        let first = |number| if number < EXTENTS { vec![0] } else { vec![7] };
        Honest {
            may_be: (0..2 * EXTENTS).map(first).collect(),
            is_busy: vec![false; 2 * EXTENTS],
            outstanding: BTreeMap::new(),
            next: 8,
        }
    }

    pub fn is_idle(&self) -> bool {
        self.outstanding.is_empty()
    }

    pub fn step(&mut self, input: &mut Input<'_>, world: &mut World) {
        let extent = input.below(2 * EXTENTS);
        let is_write = input.flag();
        let in_capsule = input.flag();
        if !self.is_busy[extent] {
            self.next = if self.next == u8::MAX { 8 } else { self.next + 1 };
            self.send(world, extent, is_write.then_some(self.next), in_capsule);
        }
    }

    fn send(&mut self, world: &mut World, extent: usize, write: Option<u8>, in_capsule: bool) {
        let host = &mut world.hosts[HONEST].host;
        let cid = host.reserve(1).expect("fewer commands than identifiers");
        let (nsid, slba) = (1 + (extent / EXTENTS) as u32, (extent % EXTENTS) as u64 * 8);
        let range = BlockRange { nsid, slba, blocks: BLOCKS };
        host.write_buffer(1, cid, &[write.unwrap_or(0); BYTES]).expect("room");
        let (opcode, transfer) = match write {
            Some(_) if in_capsule => (io::WRITE, Transfer::InCapsule(BYTES as u32)),
            Some(_) => (io::WRITE, Transfer::ToTarget(BYTES as u32)),
            None => (io::READ, Transfer::FromTarget(BYTES as u32)),
        };
        host.send(1, cid, range.entry(opcode), transfer).expect("sent");
        self.is_busy[extent] = true;
        self.outstanding.insert(cid, Outstanding { extent, write });
    }

    /// Takes its responses: one for each command, and the right data.
    pub fn take(&mut self, world: &mut World) {
        let host = &mut world.hosts[HONEST].host;
        while let Some(done) = host.next_completion(1) {
            let one = self.outstanding.remove(&done.cid).expect("one response for each command");
            self.is_busy[one.extent] = false;
            let (status, may_be) = (done.entry.status(), &mut self.may_be[one.extent]);
            match one.write {
                Some(byte) if status.is_success() => *may_be = vec![byte],
                // It took effect, did not, or will.
                Some(byte) => may_be.push(byte),
                None if status.is_success() => {
                    let mut found = vec![0; BYTES];
                    host.read_buffer(1, done.cid, &mut found).expect("inside");
                    let is_right = may_be.contains(&found[0]) && found.iter().all(|byte| *byte == found[0]);
                    assert!(is_right, "extent {}: {} and not {may_be:?}", one.extent, found[0]);
                }
                None => {}
            }
            assert!(status.is_success() || FAILURES.contains(&status), "{status:?}");
            host.release(1, done.cid);
        }
    }

    pub fn verify(&mut self, world: &mut World) {
        (0..2 * EXTENTS).for_each(|extent| self.send(world, extent, None, false));
        until(world, "what it reads in the end", |world| {
            self.take(world);
            self.is_idle()
        });
    }
}
