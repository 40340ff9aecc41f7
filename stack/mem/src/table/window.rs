//! Tags without memory of their own: memory windows and fast regions, the application's side.
//!
//! Both are created once, occupy a slot of the table, and are bound by a work request to a part of
//! a region that has [`Access::BIND`](crate::Access::BIND). Each binding has a new tag. A
//! **window** (type 2) gives the peer of one stream remote rights and nothing else. A **fast
//! region** is a full region whose memory is set in the order of the send queue, also for local
//! use, for one stream or for its whole protection domain.
//!
//! Deregistering the region never fails: everything bound to it ends with it, at once.

use crate::region::Quiescence;
use crate::table::{RegisteredRange, TableInner, TagRng};
use ironwarp_types::{PdId, STag};
use std::fmt;
use std::sync::Arc;

/// A tag that is bound and unbound, and the generator of its next one.
struct Child {
    shared: Arc<TableInner>,
    slot: u32,
    pd: PdId,
    stag: STag,
    rng: TagRng,
}

/// A memory window of type 2. Dropping it ends its tag at once.
pub struct Window(Child);

/// A region whose memory is set by work requests. Dropping it ends its tag at once.
pub struct FastRegion(Child);

impl Child {
    fn new(shared: Arc<TableInner>, registered: RegisteredRange, rng: TagRng) -> Self {
        Self { shared, slot: registered.slot, pd: registered.pd, stag: registered.stag, rng }
    }

    fn next_stag(&mut self) -> STag {
        self.stag = self.shared.tags.new_stag(self.slot, self.stag, &mut self.rng);
        self.stag
    }

    fn bound_stag(&self) -> Option<STag> {
        self.shared.slots.get(self.slot as usize)?.live_stag()
    }

    fn invalidate(&self) -> Quiescence {
        Quiescence::new(&self.shared, self.shared.invalidate_child(self.slot))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.shared.deregister_child(self.slot, self.stag);
        self.shared.reclaim();
    }
}

macro_rules! child {
    ($name:ident, $what:literal) => {
        impl $name {
            pub(crate) fn new(shared: Arc<TableInner>, registered: RegisteredRange, rng: TagRng) -> Self {
                Self(Child::new(shared, registered, rng))
            }

            #[doc = concat!("The tag of the ", $what, "'s last binding, or of the one that was asked for last.")]
            pub fn stag(&self) -> STag {
                self.0.stag
            }

            /// Returns its protection domain.
            pub fn pd(&self) -> PdId {
                self.0.pd
            }

            /// Returns the tag of the next binding, which no earlier one had.
            pub fn next_stag(&mut self) -> STag {
                self.0.next_stag()
            }

            /// Returns the tag of the binding that is in effect. `None`: it is not bound now.
            pub fn bound_stag(&self) -> Option<STag> {
                self.0.bound_stag()
            }

            /// Ends the current binding at once, for any stream. Safe at any time. The token
            /// reports when no core is in the middle of a copy.
            pub fn invalidate(&self) -> Quiescence {
                self.0.invalidate()
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name))
                    .field("stag", &self.stag())
                    .field("pd", &self.pd())
                    .finish_non_exhaustive()
            }
        }
    };
}

child!(Window, "window");
child!(FastRegion, "fast region");
