//! Numbers of objects: of queue pairs, of protection domains, of handles.
//!
//! A number is 32 bits wide, and a process that runs for months may create more objects than that.
//! What grants access to memory never repeats while it matters: a queue pair's number is given
//! again only after the queue pair is gone and no tag has its scope, and a stack whose protection
//! domains are used up gives a domain without access.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use ironwarp_mem::{AccessScope, MemTable};
use ironwarp_types::{PdId, QpNum};

/// Numbers of the queue pairs of the process.
static QP_NUMBERS: QpNumbers = QpNumbers::from(1);

/// Numbers of stacks and queues, so that a handle never names an object of another stack.
static NEXT_HANDLE_ID: AtomicU32 = AtomicU32::new(1);

/// Returns a number for a stack, a completion queue or a shared receive queue. It repeats after
/// 2^32 of them: it only tells a handle from that of another object in the same slot of a table.
pub(crate) fn next_handle_id() -> u32 {
    NEXT_HANDLE_ID.fetch_add(1, Ordering::Relaxed)
}

/// A queue pair's number, unique in the process until it is dropped.
pub(crate) struct QpNumber {
    num: QpNum,
    numbers: &'static QpNumbers,
}

impl QpNumber {
    /// Returns a number that no queue pair of the process has and no tag of `mem` is limited to.
    pub(crate) fn next(mem: &MemTable) -> Self {
        QpNumber { num: QP_NUMBERS.alloc(mem), numbers: &QP_NUMBERS }
    }

    pub(crate) fn get(&self) -> QpNum {
        self.num
    }
}

impl Drop for QpNumber {
    fn drop(&mut self) {
        self.numbers.release(self.num);
    }
}

/// Queue pair numbers in ascending order, then again from 1 without those in use.
struct QpNumbers {
    state: Mutex<QpNumberState>,
}

struct QpNumberState {
    next: u32,
    /// All numbers were given once.
    repeats: bool,
    in_use: Option<HashSet<u32>>,
}

impl QpNumbers {
    const fn from(first: u32) -> Self {
        QpNumbers { state: Mutex::new(QpNumberState { next: first, repeats: false, in_use: None }) }
    }

    fn alloc(&self, mem: &MemTable) -> QpNum {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let candidate = state.next;
            state.next = candidate.wrapping_add(1);
            if candidate == 0 {
                // Number 0 is no queue pair's.
                state.repeats = true;
                continue;
            }
            let repeats = state.repeats;
            if repeats && mem.may_have_tags_of(QpNum(candidate)) {
                continue;
            }
            if state.in_use.get_or_insert_default().insert(candidate) {
                return QpNum(candidate);
            }
        }
    }

    fn release(&self, num: QpNum) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.in_use.get_or_insert_default().remove(&num.0);
    }
}

/// Numbers of the protection domains of a stack.
pub(crate) struct PdNumbers {
    next: AtomicU32,
}

impl PdNumbers {
    pub(crate) const fn from(first: u32) -> Self {
        PdNumbers { next: AtomicU32::new(first) }
    }

    /// Returns a number that the stack did not give before, or [`AccessScope::PD_WITHOUT_MEMORY`]
    /// after all are used up.
    pub(crate) fn alloc(&self) -> PdId {
        let step = |next: u32| (next < AccessScope::PD_WITHOUT_MEMORY.0).then_some(next + 1);
        self.next
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, step)
            .map_or(AccessScope::PD_WITHOUT_MEMORY, PdId)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ironwarp_mem::{Access, MemLimits, RegisterError};

    fn table() -> MemTable {
        MemTable::new(MemLimits { regions_max: 16, cores_max: 1 }).expect("memory for 16 slots")
    }

    /// A number repeats only when its queue pair is gone and no tag is limited to it: a region for
    /// one queue pair is never another's (RFC 5040 s5.3, RFC 5042 s5.1).
    #[test]
    fn numbers_repeat_without_those_in_use() {
        let (numbers, mem) = (QpNumbers::from(1), table());
        assert_eq!([numbers.alloc(&mem), numbers.alloc(&mem), numbers.alloc(&mem)], [1, 2, 3].map(QpNum));
        numbers.release(QpNum(1));
        numbers.release(QpNum(3));
        let scope = AccessScope::new(PdId(1), QpNum(3));
        let region = mem.register_in_scope(scope, vec![0u8; 8], Access::REMOTE_READ).expect("room");
        numbers.state.lock().expect("no panic").next = u32::MAX;
        // 0 is no number, 2 is in use, and a region is limited to 3.
        assert_eq!(
            [numbers.alloc(&mem), numbers.alloc(&mem), numbers.alloc(&mem)],
            [u32::MAX, 1, 4].map(QpNum)
        );
        drop(region);
    }

    #[test]
    fn a_number_is_free_when_it_is_dropped() {
        let mem = table();
        let number = QpNumber::next(&mem);
        let is_used = |num: QpNum| {
            let state = QP_NUMBERS.state.lock().expect("no panic");
            state.in_use.as_ref().is_some_and(|used| used.contains(&num.0))
        };
        let num = number.get();
        assert!(is_used(num));
        drop(number);
        assert!(!is_used(num));
    }

    #[test]
    fn domains_that_are_used_up_grant_nothing() {
        let (numbers, mem) = (PdNumbers::from(AccessScope::PD_WITHOUT_MEMORY.0 - 1), table());
        let last = numbers.alloc();
        let region = mem.register(last, vec![0u8; 8], Access::REMOTE_READ);
        assert!(region.is_ok(), "the last domain is like the others");
        for _ in 0..3 {
            assert_eq!(numbers.alloc(), AccessScope::PD_WITHOUT_MEMORY);
        }
        let refused = mem.register(AccessScope::PD_WITHOUT_MEMORY, vec![0u8; 8], Access::REMOTE_READ);
        assert_eq!(refused.err(), Some(RegisterError::ReservedPd));
    }
}
