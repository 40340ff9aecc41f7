//! Whether memory that a program names is mapped with the rights that a registration needs.
//!
//! The kernel pins the pages of a registration, which fails with EFAULT for pages that are not
//! there. Here nothing is pinned: the mappings of the process are looked up instead, which neither
//! allocates pages nor touches them, so a mapping of many gigabytes without memory behind it costs
//! as much as a page.
//!
//! *Cost.* One system call for each mapping of the range where the kernel has a query (Linux 6.11),
//! else the list of all mappings, about a microsecond each. *Limits.* A page behind the end of a
//! file is in its mapping, and a mapping may change later: then an access faults. Without `/proc`
//! nothing is checked.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::ops::Range;
use std::os::fd::AsRawFd;

use thiserror::Error;

/// Why memory cannot be registered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum MemoryAbsent {
    /// The addresses of its bytes are more than there are.
    #[error("the range wraps")]
    Wraps,
    /// A byte is in no mapping.
    #[error("nothing is mapped at {0:#x}")]
    NotMapped(usize),
    /// A byte is in a mapping that may not be read.
    #[error("the memory at {0:#x} may not be read")]
    NotReadable(usize),
    /// A byte is in a mapping that may not be written.
    #[error("the memory at {0:#x} may not be written")]
    NotWritable(usize),
}

/// A mapping of this process.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Mapping {
    addresses: Range<usize>,
    readable: bool,
    writable: bool,
}

/// Checks that every byte of `addresses` is mapped, and may be written (`writes`) or read.
pub(super) fn check(addresses: Range<usize>, writes: bool) -> Result<(), MemoryAbsent> {
    let Ok(maps) = File::open("/proc/self/maps") else { return Ok(()) };
    if let Ok(checked) = check_by(addresses.clone(), writes, |at| query(&maps, at)) {
        return checked;
    }
    let Ok(mappings) = read_all(&maps) else { return Ok(()) };
    check_by(addresses, writes, |at| Ok(covering(&mappings, at))).unwrap_or(Ok(()))
}

/// Returns the mapping of an address from a list in the order of addresses.
fn covering(mappings: &[Mapping], at: usize) -> Option<Mapping> {
    let after = mappings.partition_point(|mapping| mapping.addresses.end <= at);
    mappings.get(after).filter(|mapping| mapping.addresses.contains(&at)).cloned()
}

/// Walks the mappings of a range in order. `covering` returns the one of an address.
fn check_by(
    addresses: Range<usize>,
    writes: bool,
    covering: impl Fn(usize) -> io::Result<Option<Mapping>>,
) -> io::Result<Result<(), MemoryAbsent>> {
    let mut at = addresses.start;
    while at < addresses.end {
        let Some(mapping) = covering(at)? else { return Ok(Err(MemoryAbsent::NotMapped(at))) };
        // A program that may write may read, on every supported processor.
        if writes && !mapping.writable {
            return Ok(Err(MemoryAbsent::NotWritable(at)));
        }
        if !writes && !mapping.readable {
            return Ok(Err(MemoryAbsent::NotReadable(at)));
        }
        // A mapping that does not reach further than its own address would be searched for ever.
        at = mapping.addresses.end.max(at + 1);
    }
    Ok(Ok(()))
}

/// The structure of the kernel's query (`struct procmap_query` of linux/fs.h).
#[repr(C)]
#[derive(Default)]
struct ProcmapQuery {
    size: u64,
    flags: u64,
    address: u64,
    start: u64,
    end: u64,
    vma_flags: u64,
    page_bytes: u64,
    offset: u64,
    inode: u64,
    device: [u32; 2],
    name_bytes: u32,
    build_id_bytes: u32,
    name: u64,
    build_id: u64,
}

const _: () = assert!(size_of::<ProcmapQuery>() == 104);

/// `_IOWR('f', 17, struct procmap_query)`.
const PROCMAP_QUERY: libc::c_ulong = (3 << 30) | (size_of::<ProcmapQuery>() as libc::c_ulong) << 16 | 0x6611;
const READABLE: u64 = 1;
const WRITABLE: u64 = 2;

/// Asks the kernel for the mapping of an address. Fails where it has no such query.
fn query(maps: &File, address: usize) -> io::Result<Option<Mapping>> {
    let size = size_of::<ProcmapQuery>() as u64;
    let mut query = ProcmapQuery { size, address: address as u64, ..ProcmapQuery::default() };
    // SAFETY: the structure is as long as the number of the request states, and lives through the
    // call.
    if unsafe { libc::ioctl(maps.as_raw_fd(), PROCMAP_QUERY as _, &raw mut query) } == 0 {
        return Ok(Some(Mapping {
            addresses: query.start as usize..query.end as usize,
            readable: query.vma_flags & READABLE != 0,
            writable: query.vma_flags & WRITABLE != 0,
        }));
    }
    let error = io::Error::last_os_error();
    if error.raw_os_error() == Some(libc::ENOENT) { Ok(None) } else { Err(error) }
}

/// Reads the list of all mappings.
fn read_all(maps: &File) -> io::Result<Vec<Mapping>> {
    let mut mappings = Vec::new();
    for line in BufReader::new(maps).lines() {
        let parsed = parse(&line?);
        mappings.push(parsed.ok_or(io::ErrorKind::InvalidData)?);
    }
    Ok(mappings)
}

/// Parses a line such as `7f00a000-7f00b000 rw-p 00000000 00:00 0`.
fn parse(line: &str) -> Option<Mapping> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let rights = words.next()?;
    let address = |text| usize::from_str_radix(text, 16).ok();
    Some(Mapping {
        addresses: address(start)?..address(end)?,
        readable: rights.starts_with('r'),
        writable: rights.get(1..2) == Some("w"),
    })
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use super::*;

    const PAGE: usize = 4096;

    /// Pages with different rights side by side. The last one is unmapped again.
    struct Pages(usize);

    impl Pages {
        fn new(rights: &[libc::c_int]) -> Self {
            // SAFETY: a new mapping at an address that the kernel chooses; rights are changed and
            // pages unmapped within it.
            unsafe {
                let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
                let bytes = (rights.len() + 1) * PAGE;
                let first = libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_NONE, flags, -1, 0);
                assert_ne!(first, libc::MAP_FAILED);
                for (page, rights) in rights.iter().enumerate() {
                    assert_eq!(libc::mprotect(first.byte_add(page * PAGE), PAGE, *rights), 0);
                }
                assert_eq!(libc::munmap(first.byte_add(rights.len() * PAGE), PAGE), 0);
                Pages(first.addr())
            }
        }

        /// The addresses of bytes from the first page on.
        fn bytes(&self, bytes: Range<usize>) -> Range<usize> {
            self.0 + bytes.start..self.0 + bytes.end
        }
    }

    /// The two ways of looking mappings up.
    fn check_both(addresses: Range<usize>, writes: bool) -> Result<(), MemoryAbsent> {
        let maps = File::open("/proc/self/maps").unwrap();
        let mappings = read_all(&maps).unwrap();
        let listed = check_by(addresses.clone(), writes, |at| Ok(covering(&mappings, at))).unwrap();
        assert_eq!(check(addresses, writes), listed);
        listed
    }

    /// RFC 5040 s8.1.2; RFC 5042 s7.3.
    #[test]
    fn each_page_of_a_range_needs_the_rights() {
        let (read, write) = (libc::PROT_READ, libc::PROT_READ | libc::PROT_WRITE);
        let pages = Pages::new(&[write, write, read, libc::PROT_NONE, read]);
        let at = |page: usize| pages.0 + page * PAGE;
        assert_eq!(check_both(pages.bytes(1..2 * PAGE), true), Ok(()));
        assert_eq!(check_both(pages.bytes(1..3 * PAGE), false), Ok(()));
        assert_eq!(check_both(pages.bytes(1..2 * PAGE + 1), true), Err(MemoryAbsent::NotWritable(at(2))));
        assert_eq!(check_both(pages.bytes(1..3 * PAGE + 1), false), Err(MemoryAbsent::NotReadable(at(3))));
        assert_eq!(check_both(pages.bytes(4 * PAGE..5 * PAGE), false), Ok(()));
        assert_eq!(
            check_both(pages.bytes(4 * PAGE..5 * PAGE + 1), false),
            Err(MemoryAbsent::NotMapped(at(5)))
        );
    }

    #[test]
    fn memory_that_cannot_be_is_not_mapped() {
        assert_eq!(check_both(0x10..0x1000, false), Err(MemoryAbsent::NotMapped(0x10)));
        assert_eq!(check_both(0x1000..1 << 46, true), Err(MemoryAbsent::NotMapped(0x1000)));
        let kernel = usize::MAX - (1 << 20)..usize::MAX;
        assert!(check(kernel, true).is_err());
    }

    #[test]
    fn a_large_mapping_without_memory_behind_it_is_there_and_stays_without() {
        let bytes = 6usize << 30;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let first = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
        };
        assert_ne!(first, libc::MAP_FAILED);
        assert_eq!(check(first.addr()..first.addr() + bytes, true), Ok(()));
        let mut resident = vec![0u8; bytes / PAGE];
        // SAFETY: the vector has a byte for each page of the mapping, which is removed after its
        // last use.
        unsafe {
            assert_eq!(libc::mincore(first, bytes, resident.as_mut_ptr().cast()), 0);
            libc::munmap(first, bytes);
        }
        assert!(resident.iter().all(|page| page & 1 == 0), "pages were allocated");
    }

    #[test]
    fn a_line_that_is_no_mapping_is_not_parsed() {
        let mapping = parse("7f00a000-7f00b000 -w-p 00000000 00:00 0").unwrap();
        assert_eq!(mapping, Mapping { addresses: 0x7f00_a000..0x7f00_b000, readable: false, writable: true });
        for line in ["", "7f00a000", "7f00a000-7f00b000", "x-y rw-p", "-"] {
            assert_eq!(parse(line), None, "{line}");
        }
    }
}
