//! The path of packets allocates nothing, shown by an allocator that counts. The library of ciphers
//! is in C, whose allocations it does not see.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use common::{Form, NOW, pair, segment};
use ironwarp_ipsec::{Inbound, Outbound};

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
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

/// docs/design-decisions.md, decision 12.
#[test]
fn packets_of_every_form_allocate_nothing() {
    for form in Form::all() {
        let (mut left, mut right) = pair(form);
        let sent = segment(form.ends, 1000);
        let (mut out, mut altered) = ([0; 1200], [0; 1200]);
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        for _ in 0..3 {
            let Outbound::Sealed(bytes) = left.ipsec.outbound(NOW, &sent, &mut out) else {
                panic!("not sealed: {form:?}");
            };
            altered[..bytes].copy_from_slice(&out[..bytes]);
            altered[bytes - 1] ^= 1;
            let dropped = right.ipsec.inbound(NOW, &mut altered[..bytes]);
            assert!(matches!(dropped, Inbound::Dropped(_)));
            assert!(matches!(right.ipsec.inbound(NOW, &mut out[..bytes]), Inbound::Opened(_)));
        }
        assert_eq!(ALLOCATIONS.load(Ordering::Relaxed), before, "{form:?}");
    }
}
