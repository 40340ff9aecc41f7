//! Memory that goes away while it is registered: accesses fail, every other fault goes where it
//! went before.
//!
//! What a fault does to a process is tested in a child process: this program, started again for one
//! case.
#![cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]

use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicUsize, Ordering};

use ironwarp_mem::{
    Access, AccessError, AtomicOp, AtomicTarget, CoreMem, MemLimits, MemTable, RangeError, RawMemory, Region,
    WordError, guard,
};
use ironwarp_types::{CoreId, PdId};
use libc::{
    MAP_ANONYMOUS, MAP_FAILED, MAP_PRIVATE, MAP_SHARED, PROT_NONE, PROT_READ, PROT_WRITE, c_int, c_void,
};

const PAGE: usize = 4096;
const DOMAIN: PdId = PdId(1);
const EVERYTHING: Access =
    Access::LOCAL_WRITE.union(Access::REMOTE_READ).union(Access::REMOTE_WRITE).union(Access::REMOTE_ATOMIC);

/// Two mapped pages.
#[derive(Clone, Copy)]
struct Pages(NonNull<u8>);

impl Pages {
    fn map(flags: c_int, fd: c_int) -> Self {
        // SAFETY: a new mapping at an address that the kernel chooses.
        let first = unsafe { libc::mmap(null_mut(), 2 * PAGE, PROT_READ | PROT_WRITE, flags, fd, 0) };
        assert_ne!(first, MAP_FAILED);
        Pages(NonNull::new(first.cast()).unwrap())
    }

    fn anonymous() -> Self {
        Pages::map(MAP_PRIVATE | MAP_ANONYMOUS, -1)
    }

    fn second(self) -> *mut c_void {
        // SAFETY: there are two pages.
        unsafe { self.0.as_ptr().add(PAGE).cast() }
    }

    fn unmap_second(self) {
        // SAFETY: nothing but registered memory refers to the page.
        assert_eq!(unsafe { libc::munmap(self.second(), PAGE) }, 0);
    }

    fn protect_second(self, rights: c_int) {
        // SAFETY: as above.
        assert_eq!(unsafe { libc::mprotect(self.second(), PAGE, rights) }, 0);
    }
}

/// A region over two pages, and a core.
struct Fixture {
    core: CoreMem,
    region: Region,
    _table: MemTable,
}

fn fixture(pages: Pages) -> Fixture {
    guard::install().unwrap();
    let table = MemTable::new(MemLimits { cores_max: 1, ..MemLimits::default() }).unwrap();
    // SAFETY: the pages are accessed through the region alone. That they go away is what is tested:
    // with the guard their accesses fail.
    let raw = unsafe { RawMemory::new(pages.0, 2 * PAGE) };
    let region = table.register(DOMAIN, raw, EVERYTHING).unwrap();
    Fixture { core: table.core(CoreId(0)).unwrap(), region, _table: table }
}

impl Fixture {
    fn place(&self, offset: usize, bytes: &[u8]) -> Result<(), RangeError> {
        let span = self.core.resolve(
            self.region.stag(),
            DOMAIN,
            self.region.base_to(),
            2 * PAGE as u32,
            Access::REMOTE_WRITE,
        );
        span.unwrap().copy_in(offset, bytes)
    }

    fn fetch(&self, offset: usize, bytes: &mut [u8]) -> Result<(), RangeError> {
        let span = self.core.resolve(
            self.region.stag(),
            DOMAIN,
            self.region.base_to(),
            2 * PAGE as u32,
            Access::REMOTE_READ,
        );
        span.unwrap().copy_out(offset, bytes)
    }

    fn add(&self, offset: usize, locked: bool) -> Result<u64, WordError> {
        let target = AtomicTarget {
            stag: self.region.stag(),
            to: self.region.base_to() + offset as u64,
            scope: DOMAIN.into(),
            need: Access::REMOTE_ATOMIC,
        };
        let word = self.core.word(&target)?;
        if locked {
            return Ok(word.apply_locked(&AtomicOp::add(1))?);
        }
        Ok(word.claim().unwrap().apply(&AtomicOp::add(1))?)
    }
}

/// RFC 5041 s8.3.2: also when memory is changed under a registration, a placement affects its own
/// stream only.
#[test]
fn every_length_that_reaches_a_page_that_is_gone_fails() {
    let pages = Pages::anonymous();
    let fixture = fixture(pages);
    fixture.region.fill(0, 2 * PAGE, 1).unwrap();
    pages.unmap_second();
    let (bytes, mut fetched) = (vec![7; 2 * PAGE], vec![0; 2 * PAGE]);
    for len in (1..300).chain([1000, 1460, PAGE]) {
        let (inside, across) = (PAGE - len, PAGE - len + 1);
        assert_eq!(fixture.place(inside, &bytes[..len]), Ok(()), "{len}");
        assert_eq!(fixture.fetch(inside, &mut fetched[..len]), Ok(()));
        assert!(fetched[..len].iter().all(|byte| *byte == 7));
        assert_eq!(fixture.place(across, &bytes[..len]), Err(RangeError::Faulted), "{len}");
        assert_eq!(fixture.fetch(across, &mut fetched[..len]), Err(RangeError::Faulted));
    }
    assert!(guard::take_faults() > 0);
}

#[test]
fn words_and_the_applications_own_accesses_fail_too() {
    let pages = Pages::anonymous();
    let fixture = fixture(pages);
    assert_eq!((fixture.add(PAGE, false), fixture.add(PAGE, true)), (Ok(0), Ok(1)));
    pages.unmap_second();
    let gone = Err(WordError::Access(AccessError::Faulted));
    assert_eq!((fixture.add(PAGE, false), fixture.add(PAGE, true)), (gone, gone));
    let masked = AtomicOp::FetchAdd { add: 1, mask: 1 << 63 };
    let word = fixture.core.word(&AtomicTarget {
        stag: fixture.region.stag(),
        to: fixture.region.base_to() + PAGE as u64,
        scope: DOMAIN.into(),
        need: Access::REMOTE_ATOMIC,
    });
    assert_eq!(word.unwrap().apply_locked(&masked), Err(AccessError::Faulted));
    let region = &fixture.region;
    assert_eq!(region.write_at(PAGE, b"x"), Err(RangeError::Faulted));
    assert_eq!(region.read_at(PAGE - 1, &mut [0; 2]), Err(RangeError::Faulted));
    assert_eq!(region.fill(PAGE - 500, 1000, 0), Err(RangeError::Faulted));
    assert_eq!(region.load_u8_acquire(PAGE), Err(RangeError::Faulted));
    assert_eq!(region.load_u64_acquire(PAGE), Err(RangeError::Faulted));
    assert_eq!(region.store_u64_release(PAGE, 1), Err(RangeError::Faulted));
}

#[test]
fn protected_memory_can_be_read_and_not_written() {
    let pages = Pages::anonymous();
    let fixture = fixture(pages);
    pages.protect_second(PROT_READ);
    assert_eq!(fixture.place(PAGE, b"x"), Err(RangeError::Faulted));
    assert_eq!(fixture.fetch(PAGE - 300, &mut [0; 600]), Ok(()));
    pages.protect_second(PROT_NONE);
    assert_eq!(fixture.fetch(PAGE, &mut [0; 600]), Err(RangeError::Faulted));
    pages.protect_second(PROT_READ | PROT_WRITE);
    assert_eq!(fixture.place(PAGE, b"back"), Ok(()));
}

/// The system reports a page behind the end of a file by SIGBUS.
#[test]
fn a_file_that_is_cut_short_faults_like_memory_that_is_gone() {
    // SAFETY: the name is a string; the descriptor is owned below.
    let file = unsafe {
        use std::os::fd::FromRawFd;
        std::fs::File::from_raw_fd(libc::memfd_create(c"short".as_ptr(), 0))
    };
    file.set_len(2 * PAGE as u64).unwrap();
    let fixture = fixture(Pages::map(MAP_SHARED, file.as_raw_fd()));
    assert_eq!(fixture.place(PAGE, b"there"), Ok(()));
    file.set_len(PAGE as u64).unwrap();
    assert_eq!(fixture.place(PAGE, b"gone"), Err(RangeError::Faulted));
    assert_eq!(fixture.fetch(PAGE - 200, &mut [0; 400]), Err(RangeError::Faulted));
}

/// Names the case of a child process.
const CASE: &str = "IRONWARP_MEM_FAULT_CASE";

fn run(case: &str) -> ExitStatus {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "in_a_child_process", "--nocapture"]).env(CASE, case);
    child.stdout(std::process::Stdio::null()).status().unwrap()
}

/// Exit codes of handlers of the program.
const FIRST: c_int = 41;
const SECOND: c_int = 42;

static OLD: AtomicUsize = AtomicUsize::new(0);
/// The page that the program accesses by mistake.
static MISTAKE: AtomicUsize = AtomicUsize::new(0);

extern "C" fn exit_first(signal: c_int, info: *mut libc::siginfo_t, _context: *mut c_void) {
    // SAFETY: the system passes the structure; the process ends here.
    unsafe {
        let right = signal == libc::SIGSEGV && (*info).si_addr().addr() == MISTAKE.load(Ordering::Relaxed);
        libc::_exit(if right { FIRST } else { 1 });
    }
}

extern "C" fn exit_second(_signal: c_int) {
    // SAFETY: the process ends here.
    unsafe { libc::_exit(SECOND) };
}

/// Calls the handler that it has replaced, as well-behaved ones do.
extern "C" fn call_old(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let old = OLD.load(Ordering::Relaxed);
    assert!(old != libc::SIG_DFL);
    // SAFETY: the action was read with its flags: it takes these arguments.
    let old: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = unsafe { std::mem::transmute(old) };
    old(signal, info, context);
}

fn set(handler: usize, flags: c_int) {
    // SAFETY: zeros are a valid value; the handler has the type that the flags name.
    unsafe {
        let (mut action, mut old): (libc::sigaction, libc::sigaction) =
            (std::mem::zeroed(), std::mem::zeroed());
        (action.sa_sigaction, action.sa_flags) = (handler, flags);
        assert_eq!(libc::sigaction(libc::SIGSEGV, &raw const action, &raw mut old), 0);
        OLD.store(old.sa_sigaction, Ordering::Relaxed);
    }
}

/// A fault of the program's own.
fn fault() {
    let pages = Pages::anonymous();
    pages.protect_second(PROT_NONE);
    MISTAKE.store(pages.second().addr(), Ordering::Relaxed);
    // SAFETY: it is none: the process is to end.
    unsafe { pages.second().cast::<u8>().read_volatile() };
}

/// Memory that is gone is found out, whatever handlers there are.
fn check_caught() {
    let pages = Pages::anonymous();
    let fixture = fixture(pages);
    pages.unmap_second();
    assert_eq!(fixture.place(PAGE, b"x"), Err(RangeError::Faulted));
    assert_eq!(fixture.place(PAGE - 200, &[1; 400]), Err(RangeError::Faulted));
}

#[test]
fn in_a_child_process() {
    let Ok(case) = std::env::var(CASE) else { return };
    let (first, second) = (exit_first as *const () as usize, exit_second as *const () as usize);
    let calling = call_old as *const () as usize;
    match case.as_str() {
        "default" => check_caught(),
        "before" => {
            set(first, libc::SA_SIGINFO);
            check_caught();
        }
        "after" => {
            check_caught();
            set(second, 0);
            guard::renew();
            check_caught();
        }
        "calls the default" => {
            guard::install().unwrap();
            set(calling, libc::SA_SIGINFO);
            guard::renew();
            check_caught();
        }
        "calls the one before" => {
            set(first, libc::SA_SIGINFO);
            guard::install().unwrap();
            set(calling, libc::SA_SIGINFO);
            guard::renew();
            check_caught();
        }
        "once" => {
            set(second, libc::SA_RESETHAND);
            check_caught();
        }
        "ignored" => {
            set(libc::SIG_IGN, 0);
            check_caught();
            // SAFETY: the call has no preconditions.
            unsafe { libc::raise(libc::SIGSEGV) };
        }
        "sent" => {
            // The standard library has a handler, which loses a signal that is no fault.
            set(libc::SIG_DFL, 0);
            check_caught();
            // SAFETY: the call has no preconditions.
            unsafe { libc::raise(libc::SIGSEGV) };
            unreachable!("it is not ignored");
        }
        _ => unreachable!("{case}"),
    }
    fault();
    unreachable!("the program goes on after a fault");
}

#[test]
fn other_faults_go_to_the_handlers_of_the_program() {
    for (case, code) in
        [("before", FIRST), ("after", SECOND), ("calls the one before", FIRST), ("once", SECOND)]
    {
        assert_eq!(run(case).code(), Some(code), "{case}");
    }
}

#[test]
fn without_a_handler_the_process_ends_by_the_signal() {
    for case in ["default", "calls the default", "ignored", "sent"] {
        assert_eq!(run(case).signal(), Some(libc::SIGSEGV), "{case}");
    }
}
