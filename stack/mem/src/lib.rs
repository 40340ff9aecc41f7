//! Registered memory: regions, the STag table, access checks, placement, and all shared access to it.
//!
//! A [`MemTable`] maps steering tags to registered byte ranges. Application threads register memory and hold a
//! [`Region`]; each polled core holds a [`CoreMem`], turns (STag, TO, length) into a [`Span`] and copies through it.
//!
//! *Shared memory.* A remote peer may write a region at any moment, so nothing here hands out `&[u8]` or `&mut [u8]`
//! over registered memory. Every access goes through one pair of routines (module `copy`). Within a placement all
//! bytes but the last are copied and the last one is stored with release ordering: an application that polls the
//! last byte with [`Region::load_u8_acquire`] sees the bytes before it too.
//!
//! *Tagged offsets.* The TO of a region's first byte is its address ([`Region::base_to`]), so a local scatter or
//! gather element ([`Sge`]) and a wire reference are the same three numbers.
//!
//! *Scope.* A tag is a whole protection domain's, or one stream's ([`AccessScope`]). [`Window`]s and [`FastRegion`]s are
//! tags without memory of their own, bound to a piece of a region by a core (module `bind`) and ending with it.
//!
//! *Revocation is immediate, release is asynchronous.* [`Region::deregister`], or dropping the region, makes the
//! STag invalid for every later look-up. The memory itself is given up only after every core has passed a quiescent
//! point (module `epoch`), because a core may be in the middle of a copy.
//!
//! *Atomic operations* (RFC 7306) are run on words of registered memory by the one core that owns them (module
//! `atomic`).
//!
//! *Cost.* A look-up is one multiplication, one cache line and a few compares; it never waits. Registering and
//! deregistering take a lock that no core takes on its data path.
//!
//! *Source.* RFC 5041 s5.2, s7, s8; RFC 5040 s7, s8.1.1; RFC 5042 s6.1.1 and s6.2; RFC 7306 s5.

mod access;
mod atomic;
mod bind;
mod buffer;
mod copy;
mod epoch;
mod region;
mod sync;
mod table;
mod view;

pub use access::{Access, AccessError, AccessScope, RangeError, Sge};
pub use atomic::{
    AtomicCall, AtomicOp, AtomicReply, AtomicTarget, Compare, OwnedWord, Word, WordError, cmp_swap, fetch_add,
};
pub use bind::{BindError, Binding, Epoch, InvalidateError, Invalidator};
pub use buffer::{AlignedBuf, AlignedBufError, GuardZones, GuardedBuf, RawMemory, StableBytes, guarded};
pub use region::{Quiescence, Region, WaitError};
pub use table::{CoreError, FastRegion, MemLimits, MemTable, REGIONS_MAX, RegisterError, TableError, Window};
pub use view::{CoreMem, Span};

pub(crate) use table::{ColdSlot, Extent};
