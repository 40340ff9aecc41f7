//! Random registrations, copies and releases against plain vectors: nothing outside a region is
//! ever admitted or touched, and everything inside reads back as the model says.
#![cfg(not(loom))]

use ironwarp_mem::{Access, AccessError, CoreMem, MemLimits, MemTable, RawMemory, Region};
use ironwarp_types::{CoreId, PdId, STag};
use proptest::prelude::*;
use std::ptr::NonNull;

const GUARD: usize = 64;
const GUARD_BYTE: u8 = 0xa5;
const REGIONS_MAX: usize = 6;

#[derive(Clone, Debug)]
enum Step {
    Register {
        len: usize,
        pd: u32,
        access: u16,
    },
    Deregister {
        index: usize,
    },
    Quiesce,
    GoOffline,
    /// An access whose offset may lie before the region and whose end may lie behind it.
    Write {
        index: usize,
        offset: i64,
        len: u32,
        pd: u32,
        byte: u8,
    },
    Read {
        index: usize,
        offset: i64,
        len: u32,
        pd: u32,
    },
    Local {
        index: usize,
        offset: usize,
        len: usize,
        byte: u8,
    },
    Stale {
        index: usize,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let (index, pd) = (0..REGIONS_MAX, 0u32..2);
    let (offset, len) = (-70i64..330, 0u32..300);
    prop_oneof![
        2 => (1usize..256, pd.clone(), 0u16..16)
            .prop_map(|(len, pd, access)| Step::Register { len, pd, access }),
        1 => index.clone().prop_map(|index| Step::Deregister { index }),
        1 => Just(Step::Quiesce),
        1 => Just(Step::GoOffline),
        4 => (index.clone(), offset.clone(), len.clone(), pd.clone(), any::<u8>())
            .prop_map(|(index, offset, len, pd, byte)| Step::Write { index, offset, len, pd, byte }),
        4 => (index.clone(), offset, len, pd)
            .prop_map(|(index, offset, len, pd)| Step::Read { index, offset, len, pd }),
        2 => (index.clone(), 0usize..300, 0usize..300, any::<u8>())
            .prop_map(|(index, offset, len, byte)| Step::Local { index, offset, len, byte }),
        1 => index.prop_map(|index| Step::Stale { index }),
    ]
}

/// A live region between two guards in an allocation of its own, and the bytes that it must hold.
struct Live {
    region: Region,
    whole: NonNull<[u8]>,
    model: Vec<u8>,
}

struct World {
    table: MemTable,
    core: CoreMem,
    live: Vec<Live>,
    stale: Vec<(STag, u64, PdId)>,
    allocations: Vec<NonNull<[u8]>>,
}

impl World {
    fn new(secret: [u64; 2]) -> Self {
        let limits = MemLimits { regions_max: 64, cores_max: 1 };
        let table = MemTable::with_secret(limits, secret).expect("a table");
        let core = table.core(CoreId(0)).expect("a free core");
        Self { table, core, live: vec![], stale: vec![], allocations: vec![] }
    }

    fn run(&mut self, step: &Step) -> Result<(), TestCaseError> {
        match *step {
            Step::Register { len, pd, access } => self.register(len, PdId(pd), access),
            Step::Deregister { index } => self.deregister(index),
            Step::Quiesce => self.core.quiesce(),
            Step::GoOffline => self.core.go_offline(),
            Step::Write { index, offset, len, pd, byte } => {
                return self.write(index, offset, len, PdId(pd), byte);
            }
            Step::Read { index, offset, len, pd } => return self.read(index, offset, len, PdId(pd)),
            Step::Local { index, offset, len, byte } => return self.local(index, offset, len, byte),
            Step::Stale { index } => return self.stale(index),
        }
        Ok(())
    }

    fn register(&mut self, len: usize, pd: PdId, access: u16) {
        if self.live.len() == REGIONS_MAX {
            return;
        }
        let whole = NonNull::from(Box::leak(vec![GUARD_BYTE; len + 2 * GUARD].into_boxed_slice()));
        // SAFETY: the guard lies within the allocation.
        let base = unsafe { whole.cast::<u8>().add(GUARD) };
        // SAFETY: the allocation is freed by `finish`, after every handle of the table.
        let raw = unsafe { RawMemory::new(base, len) };
        let region = self.table.register(pd, raw, Access::from_bits_truncate(access));
        self.allocations.push(whole);
        if let Ok(region) = region {
            self.live.push(Live { region, whole, model: vec![GUARD_BYTE; len] });
        }
    }

    fn deregister(&mut self, index: usize) {
        if index < self.live.len() {
            let gone = self.live.swap_remove(index).region;
            self.stale.push((gone.stag(), gone.base_to(), gone.pd()));
            drop(gone);
        }
    }

    fn write(
        &mut self,
        index: usize,
        offset: i64,
        len: u32,
        pd: PdId,
        byte: u8,
    ) -> Result<(), TestCaseError> {
        let Some(live) = self.live.get_mut(index) else { return Ok(()) };
        let to = live.region.base_to().wrapping_add_signed(offset);
        let seen = self.core.resolve(live.region.stag(), pd, to, len, Access::REMOTE_WRITE);
        prop_assert_eq!(seen.as_ref().err().copied(), refusal(live, offset, len, pd, Access::REMOTE_WRITE));
        if let Ok(span) = seen {
            let bytes: Vec<u8> = (0..len).map(|at| byte.wrapping_add(at as u8)).collect();
            prop_assert_eq!(span.copy_in(0, &bytes), Ok(()));
            prop_assert!(span.copy_in(1, &bytes).is_err());
            live.model[offset as usize..][..len as usize].copy_from_slice(&bytes);
        }
        Ok(())
    }

    fn read(&mut self, index: usize, offset: i64, len: u32, pd: PdId) -> Result<(), TestCaseError> {
        let Some(live) = self.live.get(index) else { return Ok(()) };
        let to = live.region.base_to().wrapping_add_signed(offset);
        let seen = self.core.resolve(live.region.stag(), pd, to, len, Access::REMOTE_READ);
        prop_assert_eq!(seen.as_ref().err().copied(), refusal(live, offset, len, pd, Access::REMOTE_READ));
        if let Ok(span) = seen {
            let mut bytes = vec![0; len as usize];
            prop_assert_eq!(span.copy_out(0, &mut bytes), Ok(()));
            prop_assert_eq!(&bytes[..], &live.model[offset as usize..][..len as usize]);
        }
        Ok(())
    }

    fn local(&mut self, index: usize, offset: usize, len: usize, byte: u8) -> Result<(), TestCaseError> {
        let Some(live) = self.live.get_mut(index) else { return Ok(()) };
        let inside = offset + len <= live.model.len();
        prop_assert_eq!(live.region.fill(offset, len, byte).is_ok(), inside);
        prop_assert_eq!(live.region.slice(offset, len as u32).is_ok(), inside);
        if inside {
            live.model[offset..][..len].fill(byte);
        }
        let mut bytes = vec![0; live.model.len()];
        prop_assert_eq!(live.region.read_at(0, &mut bytes), Ok(()));
        prop_assert_eq!(&bytes, &live.model);
        Ok(())
    }

    fn stale(&mut self, index: usize) -> Result<(), TestCaseError> {
        let Some(&(stag, base, pd)) = self.stale.get(index) else { return Ok(()) };
        let seen = self.core.resolve(stag, pd, base, 1, Access::empty()).err();
        prop_assert!(matches!(seen, Some(AccessError::UnknownStag | AccessError::Revoked)));
        Ok(())
    }

    /// Checks guards and contents of what is live, then gives everything up.
    fn finish(self) -> Result<(), TestCaseError> {
        let kept: Vec<_> = self.live.iter().map(|live| (live.whole, live.model.clone())).collect();
        drop((self.live, self.core, self.table));
        // SAFETY: every handle of the table is gone, so the allocations are this test's own again.
        let own = |whole: NonNull<[u8]>| unsafe { &*whole.as_ptr() };
        for (whole, model) in kept {
            prop_assert_eq!(&own(whole)[GUARD..][..model.len()], &model[..]);
        }
        for &whole in &self.allocations {
            let bytes = own(whole);
            let (front, rest) = bytes.split_at(GUARD);
            let back = &rest[rest.len() - GUARD..];
            prop_assert!(front.iter().chain(back).all(|&byte| byte == GUARD_BYTE));
        }
        // SAFETY: made by `Box::leak`, and freed once.
        self.allocations.into_iter().for_each(|whole| drop(unsafe { Box::from_raw(whole.as_ptr()) }));
        Ok(())
    }
}

/// What the look-up must refuse, in other words than its own.
fn refusal(live: &Live, offset: i64, len: u32, pd: PdId, need: Access) -> Option<AccessError> {
    let end = offset + i64::from(len);
    if live.region.pd() != pd {
        Some(AccessError::WrongPd)
    } else if live.region.access() & need != need {
        Some(AccessError::NoRight)
    } else if offset < 0 || end > live.model.len() as i64 {
        Some(AccessError::Bounds)
    } else {
        None
    }
}

const CASES: u32 = if cfg!(miri) { 4 } else { 256 };
const STEPS: usize = if cfg!(miri) { 30 } else { 120 };

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    #[test]
    fn the_table_does_what_plain_vectors_do(
        secret: [u64; 2],
        steps in prop::collection::vec(step(), 1..STEPS),
    ) {
        let mut world = World::new(secret);
        for step in &steps {
            world.run(step)?;
        }
        world.finish()?;
    }
}
