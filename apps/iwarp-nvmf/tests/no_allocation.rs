//! The target allocates nothing for a Read or a Write, shown by an allocator that counts.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use common::{NQN, Pair, target_config};
use iwarp_nvmf::host::{Pattern, Workload};

struct Counting;

static WATCHING: AtomicBool = AtomicBool::new(false);
static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if WATCHING.load(Ordering::Relaxed) {
            ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Also where commands wait for a buffer, and where a backend completes later: NSID 3, with fewer
/// buffers than commands.
#[test]
fn reads_and_writes_allocate_nothing_in_the_target() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("disk");
    std::fs::File::create(&path).and_then(|file| file.set_len(4 << 20)).expect("a file");
    let config = target_config(&format!(
        "[limits]\nbuffers = 8\ncapsules = 512\n[[subsystem]]\nnqn = \"{NQN}\"\nallow_any_host = true\n\
         [[subsystem.namespace]]\nnsid = 1\nbackend.null = {{ mib = 4 }}\n\
         [[subsystem.namespace]]\nnsid = 2\nbackend.memory = {{ mib = 4 }}\n\
         [[subsystem.namespace]]\nnsid = 3\nbackend.file = {{ path = \"{}\", direct = false }}\n",
        path.display()
    ));
    let mut pair = Pair::connected(&config, 2);
    let Pair { host, side, .. } = &mut pair;
    let mut turn = || {
        WATCHING.store(true, Ordering::Relaxed);
        side.turn();
        WATCHING.store(false, Ordering::Relaxed);
    };
    let namespaces = host.namespaces(&mut turn).expect("namespaces");
    for round in 0..2 {
        // The first round may size lists.
        ALLOCATIONS.store(0, Ordering::Relaxed);
        for &namespace in &namespaces {
            for (writes, bytes) in [(true, 4096), (true, 8192), (false, 4096)] {
                let pattern = Pattern::Random(7);
                let workload = Workload { writes, bytes, depth: 16, commands: 300, pattern, verify: false };
                let report = host.bench(namespace, workload, &mut turn).expect("it completes");
                assert_eq!(report.commands, 300);
            }
        }
        if round == 1 {
            assert_eq!(ALLOCATIONS.load(Ordering::Relaxed), 0);
        }
    }
}
