//! Registered memory: regions, the STag table, access checks, placement, and all shared access to
//! it.
//!
//! A [`MemTable`] maps steering tags to registered byte ranges. Application threads register memory
//! and hold a [`Region`]. Each polled core holds a [`CoreMem`], resolves (STag, tagged offset,
//! length) to a [`Span`] and copies through it.
//!
//! *Shared memory.* A remote peer may write a region at any moment, so no `&[u8]` or `&mut [u8]`
//! over registered memory exists. Every access uses the routines of the module `copy`. A placement
//! copies all bytes but the last and stores the last one with release ordering: an application that
//! polls the last byte with [`Region::load_u8_acquire`] sees the bytes before it too.
//!
//! *Tagged offsets.* The tagged offset of a region's first byte is its address
//! ([`Region::base_to`]), so a local scatter or gather element ([`Sge`]) and a reference on the
//! wire are the same three numbers.
//!
//! *Scope.* A tag is valid for a protection domain or for one stream ([`AccessScope`]). [`Window`]s
//! and [`FastRegion`]s are tags without memory of their own. A core binds them to a part of a
//! region (module `bind`), and they end with it.
//!
//! *Revocation is immediate, release is asynchronous.* [`Region::deregister`], or dropping the
//! region, makes the STag invalid for every later look-up. The memory is released after every core
//! has passed a quiescent point (module `epoch`), because a core may be in the middle of a copy.
//!
//! *Memory that goes away.* A program may unmap or protect what it registered. With [`guard`] the
//! fault of an access makes the access fail; without it the system ends the process.
//!
//! *Atomic operations* (RFC 7306) on words of registered memory are executed by the owner core, or
//! by any core on lines that several want often (module `atomic`).
//!
//! *Cost.* A look-up takes one multiplication, one cache line and a few comparisons, and never
//! waits. Registering and deregistering take a lock that no core takes on its data path.
//!
//! *Source.* RFC 5041 s5.2, s7, s8; RFC 5040 s7, s8.1.1; RFC 5042 s6.1.1 and s6.2; RFC 7306 s5.

mod access;
mod atomic;
mod bind;
mod buffer;
mod copy;
mod epoch;
pub mod guard;
mod region;
mod sync;
mod table;
mod view;

pub use access::{Access, AccessError, AccessScope, RangeError, Sge};
pub use atomic::{
    AtomicCall, AtomicOp, AtomicReply, AtomicTarget, ClaimedWord, Compare, SHARE_AFTER_MAX, Word, WordError,
    cmp_swap, fetch_add,
};
pub use bind::{BindError, Binding, Epoch, InvalidateError, Invalidator};
pub use buffer::{
    AlignedBuf, AlignedBufError, GuardZones, GuardedBuf, MemoryAbsent, RawMemory, StableBytes, guarded,
};
pub use region::{Quiescence, Region, WaitError};
pub use table::{CoreError, FastRegion, MemLimits, MemTable, REGIONS_MAX, RegisterError, TableError, Window};
pub use view::{CoreMem, Span};

pub(crate) use table::{ColdSlot, Extent};
