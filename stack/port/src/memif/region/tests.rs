//! What is taken of a peer, what is refused, and where a ring has its words.

use rustix::fs::{FallocateFlags, fallocate};

use super::*;
use crate::frame::Frame;

fn open(file: &OwnedFd, bytes: u64) -> Result<Region, RegionFault> {
    Region::open(file, bytes, Holes::Refuse)
}

/// A memfd that cannot shrink, of pages that do not exist.
fn sparse(bytes: u64) -> OwnedFd {
    let file = memfd_create("t", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("a memfd");
    ftruncate(&file, bytes).expect("a length");
    fcntl_add_seals(&file, SealFlags::SHRINK).expect("a seal");
    file
}

fn punch(file: &OwnedFd) -> rustix::io::Result<()> {
    fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 4096, 4096)
}

#[test]
fn a_region_of_missing_pages_is_refused_however_many_blocks_its_file_has() {
    let pages = 16 * 4096;
    assert_eq!(open(&sparse(pages), pages).err(), Some(RegionFault::Holes));
    // The second page is missing.
    let punched = || {
        let file = sparse(pages);
        fill(&file, pages as usize).expect("pages");
        punch(&file).expect("no seal yet");
        file
    };
    assert_eq!(open(&punched(), pages).err(), Some(RegionFault::Holes));
    assert_eq!(open(&punched(), 4097).err(), Some(RegionFault::Holes));
    assert!(open(&punched(), 4096).is_ok(), "the first page is there");
    // As many blocks as the file has pages, but behind its end: these are pages of nobody's
    // mapping.
    let file = sparse(pages);
    fallocate(&file, FallocateFlags::KEEP_SIZE, pages, pages).expect("blocks");
    assert_eq!(fstat(&file).expect("its state").st_blocks as u64 * 512, pages);
    assert_eq!(open(&file, pages).err(), Some(RegionFault::Holes));
    // The owner has reserved the pages and never touched one.
    let file = sparse(pages);
    fallocate(&file, FallocateFlags::empty(), 0, pages).expect("blocks");
    assert_eq!(open(&file, pages).err(), Some(RegionFault::Holes));
}

#[test]
fn nobody_can_punch_a_hole_into_a_region_that_was_taken() {
    let file = sparse(4 * 4096);
    fill(&file, 4 * 4096).expect("pages");
    let peer = Region::view(&file, 4 * 4096).expect("a mapping");
    let region = open(&file, 4 * 4096).expect("a region");
    assert_eq!(punch(&file), Err(rustix::io::Errno::PERM));
    assert!(!has_holes(&file, 4 * 4096));
    // The mapping of the peer, which it made before, is as it was.
    let mut copy = [0];
    assert!(peer.write(5000, &[7]) && region.read(5000, &mut copy));
    assert_eq!(copy, [7]);
}

#[test]
fn a_file_sealed_against_further_seals_is_taken_only_if_it_cannot_get_holes() {
    let made = |seals| {
        let file = sparse(4096);
        fill(&file, 4096).expect("a page");
        let view = Region::view(&file, 4096).expect("a mapping");
        fcntl_add_seals(&file, seals).expect("seals");
        (file, view)
    };
    let (file, _view) = made(SealFlags::SEAL);
    assert_eq!(open(&file, 4096).err(), Some(RegionFault::Unsealed));
    // Sealed before this end has its mapping, so that it gets none.
    let (file, _view) = made(SealFlags::FUTURE_WRITE);
    assert_eq!(open(&file, 4096).err(), Some(RegionFault::Map));
}

#[test]
fn holes_of_a_trusted_peer_are_filled_at_once() {
    let file = sparse(16 * 4096);
    let region = Region::open(&file, 16 * 4096, Holes::Fill).expect("a region");
    assert!(!has_holes(&file, 16 * 4096));
    assert_eq!(fstat(&file).expect("its state").st_blocks, 16 * 8);
    assert!(region.write(0, &[1]));
}

#[test]
fn pages_of_a_new_region_exist_before_it_is_passed_on() {
    for bytes in [4096, FILL_BYTES + 4096, 3 * FILL_BYTES] {
        let (_region, file) = Region::create(bytes).expect("a memfd");
        assert!(!has_holes(&file, bytes as u64));
        assert!(open(&file, bytes as u64).is_ok());
    }
}

#[test]
fn accesses_outside_a_region_do_nothing() {
    let (region, _file) = Region::create(4096).expect("a memfd");
    let mut copy = [7; 16];
    assert!(region.write(4080, &[1; 16]) && region.read(4080, &mut copy));
    assert_eq!(copy, [1; 16]);
    for offset in [4081, 4096, usize::MAX, usize::MAX - 15] {
        assert!(!region.write(offset, &[2; 16]) && !region.read(offset, &mut copy));
    }
    assert_eq!(copy, [1; 16]);
    assert!(region.contains(0, 4096) && region.contains(4096, 0) && !region.contains(0, 4097));
}

#[test]
fn a_file_that_can_shrink_is_refused() {
    let plain = memfd_create("t", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("a memfd");
    ftruncate(&plain, 8192).expect("a length");
    assert_eq!(open(&plain, 4096).err(), Some(RegionFault::Unsealed));
    fcntl_add_seals(&plain, SealFlags::GROW).expect("a seal");
    assert_eq!(open(&plain, 4096).err(), Some(RegionFault::Unsealed));
    fcntl_add_seals(&plain, SealFlags::SHRINK).expect("a seal");
    for bytes in [0, 8193, REGION_BYTES_MAX + 1, u64::MAX] {
        assert_eq!(open(&plain, bytes).err(), Some(RegionFault::Size));
    }
    fill(&plain, 8192).expect("pages");
    assert!(open(&plain, 8192).is_ok());
    let file = OwnedFd::from(std::fs::File::open("/dev/null").expect("a file"));
    assert_eq!(open(&file, 4096).err(), Some(RegionFault::Unsealed));
    assert!(ftruncate(&plain, 0).is_err(), "the seal holds");
}

#[test]
fn a_region_sealed_against_writing_cannot_be_mapped() {
    let file = memfd_create("t", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("a memfd");
    ftruncate(&file, 4096).expect("a length");
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::WRITE).expect("seals");
    assert_eq!(open(&file, 4096).err(), Some(RegionFault::Map));
}

#[test]
fn a_ring_is_inside_its_region_and_aligned() {
    let region = Arc::new(Region::create(4096).expect("a memfd").0);
    assert!(RingWords::new(&region, 0, 7).is_some() && RingWords::new(&region, 0, 8).is_none());
    assert!(RingWords::new(&region, 4, 1).is_none() && RingWords::new(&region, 8, 1).is_some());
    assert!(RingWords::new(&region, usize::MAX, 1).is_none());
    for log2 in [16, 31, 63, 64, 255] {
        assert!(RingWords::new(&region, 0, log2).is_none());
    }
    let ring = RingWords::new(&region, 0, 2).expect("a ring");
    ring.initialise();
    let written = Descriptor { flags: NEXT, region: 2, len: 3, offset: 4 };
    ring.set_descriptor(5, written);
    assert_eq!((ring.descriptor(1), ring.flags_and_len(1)), (written, (NEXT, 3)));
    let mut bytes = [0; 16];
    assert!(region.read(128 + 16, &mut bytes));
    assert_eq!(bytes, [1, 0, 2, 0, 3, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0]);
    ring.head().store(0x1234, Ordering::Relaxed);
    ring.tail().store(0x5678, Ordering::Relaxed);
    assert!(region.read(0, &mut bytes) && ring.has_cookie());
    assert_eq!(bytes[..8], [0x20, 0x1f, 0xe3, 0x03, 1, 0, 0x34, 0x12]);
    assert!(region.read(64, &mut bytes[..2]));
    assert_eq!(bytes[..2], [0x78, 0x56]);
}

/// A peer that names the place of the frame that is copied there has its link ended.
#[test]
fn bytes_of_a_region_are_not_copied_over_themselves() {
    let (region, _file) = Region::create(8192).expect("a memfd");
    let region = Arc::new(region);
    let mut pool = region.pool(0, 2, 2048).expect("a pool");
    let mut frame = pool.take().expect("a frame");
    frame.resize(1_000);
    let at = region.offset_of(frame.bytes()).expect("in the region") as usize;
    for (offset, is_written) in [(at, false), (at + 999, false), (at + 1_000, true), (4_096, true)] {
        assert_eq!(region.write(offset, frame.bytes()), is_written, "{offset}");
    }
    assert!(at < 1_000 || !region.write(at - 999, frame.bytes()));
}
