//! What a core does to tags on behalf of a work queue or of the peer: binding windows and fast regions, and
//! invalidating.
//!
//! Nothing here waits. A tag is invalid for every look-up that begins after [`CoreMem::invalidate`] returns; that no
//! other core is still in the middle of a copy is a matter of its epoch, which [`CoreMem::has_passed`] tells. A child
//! that has just been invalidated can be bound again once that holds: before, [`BindError::Soon`].
//!
//! *Source.* RFC 5040 s5.3, s7.2, s8.1.1; the checks of a bind follow the verbs of the RDMA Consortium.

use crate::access::{Access, AccessError, Reach, Sge};
use crate::table::{NO_PD, NotUnbound, Parent, Rights, Slot, State, Taken};
use crate::view::{CoreMem, offset_within};
use crate::{Extent, Scope};
use ironwarp_types::STag;
use thiserror::Error;

/// An end of something: quiescent once every core has passed it ([`CoreMem::has_passed`]).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Epoch(pub(crate) u64);

impl Epoch {
    /// As a number, to be kept in a table of numbers.
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// What [`Epoch::to_bits`] made a number of.
    pub fn from_bits(bits: u64) -> Self {
        Epoch(bits)
    }
}

/// Who asks for an invalidation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Invalidator {
    /// A work request of ours: any tag that the stream may reach.
    Local,
    /// The peer: only a tag that is limited to the stream it speaks on and that it may use at all.
    Remote,
}

/// Why a tag was not invalidated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum InvalidateError {
    /// The tag is not valid, or not this stream's.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// The tag may be used by several streams, so none of their peers may end it (RFC 5040 s8.1.1, 7).
    #[error("a tag of a whole protection domain cannot be invalidated by a peer")]
    Shared,
}

/// A window or fast region and the memory that it is to lead to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Binding {
    /// The tag that becomes valid. It leads to the window or fast region, as it was drawn for that one.
    pub stag: STag,
    /// The piece of a region.
    pub over: Sge,
    /// The rights that the tag gives.
    pub access: Access,
    /// Limited to the stream that binds. A window always is.
    pub stream_scope: bool,
}

/// Why nothing was bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum BindError {
    /// The tag was invalidated a moment ago, and some core may still be using it. Try again.
    #[error("the tag's last use is not over yet")]
    Soon,
    /// The tag is none that can be bound, or is bound.
    #[error("the tag cannot be bound now")]
    NotUnbound,
    /// The region does not allow it.
    #[error(transparent)]
    Region(#[from] AccessError),
}

impl From<NotUnbound> for BindError {
    fn from(why: NotUnbound) -> Self {
        match why {
            NotUnbound::Soon => BindError::Soon,
            NotUnbound::No => BindError::NotUnbound,
        }
    }
}

impl CoreMem {
    /// Whether no core can be touching what ended with `epoch` any more. The calling core holds nothing: it is here.
    pub fn has_passed(&self, epoch: Epoch) -> bool {
        self.attendance().others_reached(epoch.0)
    }

    /// Whether [`CoreMem::invalidate`] would be granted now.
    pub fn may_invalidate(&self, stag: STag, reach: Reach, by: Invalidator) -> Result<(), InvalidateError> {
        self.attendance().attend();
        let (slot, scope) = self.place(stag).ok_or(AccessError::UnknownStag)?;
        let (rights, state) = slot.find(stag).ok_or(AccessError::UnknownStag)?;
        match (state, by) {
            (State::Free, _) => return Err(AccessError::UnknownStag.into()),
            (State::Live, _) | (_, Invalidator::Local) => {}
            (_, Invalidator::Remote) => return Err(AccessError::Revoked.into()),
        }
        let stream_scope = slot.pd() == NO_PD && rights.is(Rights::STREAM);
        let pd = if slot.pd() == NO_PD { scope.pd() } else { slot.pd() };
        if pd != reach.pd() {
            return Err(AccessError::WrongPd.into());
        }
        if stream_scope && scope.qp() != reach.qp() {
            return Err(AccessError::WrongStream.into());
        }
        if by == Invalidator::Local {
            return Ok(());
        }
        // RFC 5040 s8.1.1 (7): a peer ends no tag that other streams may share.
        if !stream_scope {
            return Err(InvalidateError::Shared);
        }
        let remote = rights.access().intersects(Access::REMOTE);
        if remote { Ok(()) } else { Err(AccessError::NoRight.into()) }
    }

    /// Makes a tag invalid at once. What was granted before is over when [`CoreMem::has_passed`] says so of the answer.
    ///
    /// A region's tag is gone for good; a window or fast region can be bound again. Our own request for a tag that
    /// has ended already succeeds.
    pub fn invalidate(&self, stag: STag, reach: Reach, by: Invalidator) -> Result<Epoch, InvalidateError> {
        self.may_invalidate(stag, reach, by)?;
        let (slot, scope) = self.place(stag).ok_or(AccessError::UnknownStag)?;
        Ok(Epoch(self.table().end(slot, scope, stag)))
    }

    /// Makes the tag of a window or fast region lead to a piece of a region.
    pub fn bind(&self, binding: &Binding, reach: Reach) -> Result<(), BindError> {
        self.attendance().attend();
        let (slot, scope) = self.place(binding.stag).ok_or(BindError::NotUnbound)?;
        let taken = slot.begin()?;
        match self.checked_binding(binding, reach, taken, scope) {
            Ok((extent, parent, rights)) => {
                scope.set_parent(parent);
                // Offsets go on from the region's, and so does what decides owners: a word has one whatever names it.
                if let Some((_, region)) = self.place(parent.stag) {
                    scope.set_owner(region.pin(), region.owner_shift());
                }
                // Offsets go on from the region's: a piece is named alike by either tag.
                scope.set_first_to(binding.over.addr);
                scope.set_home(reach.pd(), reach.qp());
                let bound = slot.bind(taken, binding.stag, extent, rights);
                if bound { Ok(()) } else { Err(BindError::NotUnbound) }
            }
            Err(refused) => {
                slot.forgo(taken);
                Err(refused)
            }
        }
    }

    fn checked_binding(
        &self,
        binding: &Binding,
        reach: Reach,
        taken: Taken,
        scope: &Scope,
    ) -> Result<(Extent, Parent, Rights), BindError> {
        if !self.has_passed(Epoch(scope.mark())) {
            return Err(BindError::Soon);
        }
        if scope.pd() != reach.pd() {
            return Err(AccessError::WrongPd.into());
        }
        let window = taken.rights().is(Rights::WINDOW);
        // Neither a tag that was bound, nor one of a window that had the place before: its request may come late.
        let is_fresh = self.table().tags.follows(binding.stag, taken.stag());
        if !is_fresh || !may_grant(binding.access, window) {
            return Err(BindError::NotUnbound);
        }
        let (extent, parent) = self.parent(binding, reach)?;
        let kind = Rights::CHILD
            | if window { Rights::WINDOW } else { 0 }
            | if window || binding.stream_scope { Rights::STREAM } else { 0 };
        Ok((extent, parent, Rights::new(binding.access, kind)))
    }

    /// The piece of the region that a binding is made over.
    fn parent(&self, binding: &Binding, reach: Reach) -> Result<(Extent, Parent), AccessError> {
        let Sge { addr, len, lkey } = binding.over;
        let (slot, scope) = self.place(lkey).ok_or(AccessError::UnknownStag)?;
        let (rights, extent) = slot.read(lkey)?;
        if extent.pd != reach.pd() {
            // A region of one stream may be bound by that stream; a child is no region.
            if extent.pd != NO_PD || rights.is(Rights::CHILD) || scope.pd() != reach.pd() {
                return Err(AccessError::WrongPd);
            }
            if scope.qp() != reach.qp() {
                return Err(AccessError::WrongStream);
            }
        }
        let writes = binding.access.intersects(Access::WRITING);
        let need = if writes { Access::BIND | Access::LOCAL_WRITE } else { Access::BIND };
        if !rights.access().contains(need) {
            return Err(AccessError::NoRight);
        }
        let offset = offset_within(&extent, self.first_to(lkey, extent.base), addr, len)?;
        // SAFETY: `offset` lies within the extent, which is one allocation.
        let base = unsafe { extent.base.add(offset) };
        let piece = Extent { base, len: len.into(), pd: NO_PD };
        Ok((piece, Parent { stag: lkey, mark: scope.mark() }))
    }

    fn place(&self, stag: STag) -> Option<(&Slot, &Scope)> {
        let index = self.table().tags.slot_of(stag);
        Some((self.table().slots.get(index)?, self.table().scopes.get(index)?))
    }
}

/// Whether a window, or a fast region, may give such rights.
fn may_grant(access: Access, window: bool) -> bool {
    if access.contains(Access::BIND) {
        return false;
    }
    if window {
        // RDMAC verbs s7.10: at least one right, and remote ones only.
        return !access.is_empty() && Access::REMOTE.contains(access);
    }
    !access.intersects(Access::NEEDS_LOCAL_WRITE) || access.contains(Access::LOCAL_WRITE)
}
