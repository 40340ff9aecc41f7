//! What a core does to tags on behalf of a work queue or of the peer: binding windows and fast regions, and
//! invalidating.
//!
//! Nothing here waits. A tag is invalid for every look-up that begins after [`CoreMem::invalidate`] returns; that no
//! other core is still in the middle of a copy is a matter of its epoch, which [`CoreMem::is_quiescent`] tells. A child
//! that has just been invalidated can be bound again once that holds: before, [`BindError::NotQuiescent`].
//!
//! *Source.* RFC 5040 s5.3, s7.2, s8.1.1; the checks of a bind follow the verbs of the RDMA Consortium.
//!
//! Bindings, fast registrations and local invalidations execute in the order of the send queue and send nothing, so a responder
//! executes them before the peer's first FPDU. A tagged offset of a piece equals that of its region under every tag.
//! A tag that is to be bound again waits until every other core has passed; the core asks once in an iteration.

use crate::access::{Access, AccessError, AccessScope, Sge};
use crate::table::{BindClaim, BindClaimError, NO_PD, Parent, Rights, Slot, SlotState};
use crate::view::{CoreMem, offset_within};
use crate::{ColdSlot, Extent};
use ironwarp_types::STag;
use thiserror::Error;

/// An end of something: quiescent once every core has passed it ([`CoreMem::is_quiescent`]).
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
    NotStreamScoped,
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
    NotQuiescent,
    /// The tag is none that can be bound, or is bound.
    #[error("the tag cannot be bound now")]
    NotBindable,
    /// The region does not allow it.
    #[error(transparent)]
    Region(#[from] AccessError),
}

impl From<BindClaimError> for BindError {
    fn from(why: BindClaimError) -> Self {
        match why {
            BindClaimError::NotQuiescent => BindError::NotQuiescent,
            BindClaimError::NotBindable => BindError::NotBindable,
        }
    }
}

impl CoreMem {
    /// Whether no core can be touching what ended with `epoch` any more. The calling core holds nothing: it is here.
    pub fn is_quiescent(&self, epoch: Epoch) -> bool {
        self.epoch_slot().others_reached(epoch.0)
    }

    /// Whether [`CoreMem::invalidate`] would be granted now.
    pub fn may_invalidate(
        &self,
        stag: STag,
        scope: AccessScope,
        by: Invalidator,
    ) -> Result<(), InvalidateError> {
        self.epoch_slot().ensure_online();
        let (slot, cold) = self.lookup_slot(stag).ok_or(AccessError::UnknownStag)?;
        let (rights, state) = slot.find(stag).ok_or(AccessError::UnknownStag)?;
        match (state, by) {
            (SlotState::Free, _) => return Err(AccessError::UnknownStag.into()),
            (SlotState::Live, _) | (_, Invalidator::Local) => {}
            (_, Invalidator::Remote) => return Err(AccessError::Revoked.into()),
        }
        let stream_scope = slot.pd() == NO_PD && rights.is(Rights::STREAM);
        let pd = if slot.pd() == NO_PD { cold.pd() } else { slot.pd() };
        if pd != scope.pd() {
            return Err(AccessError::WrongPd.into());
        }
        if stream_scope && cold.qp() != scope.qp() {
            return Err(AccessError::WrongStream.into());
        }
        if by == Invalidator::Local {
            return Ok(());
        }
        // RFC 5040 s8.1.1 (7): a peer ends no tag that other streams may share.
        if !stream_scope {
            return Err(InvalidateError::NotStreamScoped);
        }
        let remote = rights.access().intersects(Access::REMOTE);
        if remote { Ok(()) } else { Err(AccessError::NoRight.into()) }
    }

    /// Makes a tag invalid at once. What was granted before is over when [`CoreMem::is_quiescent`] says so of the answer.
    ///
    /// A region's tag is gone for good; a window or fast region can be bound again. Our own request for a tag that
    /// has ended already succeeds.
    pub fn invalidate(
        &self,
        stag: STag,
        scope: AccessScope,
        by: Invalidator,
    ) -> Result<Epoch, InvalidateError> {
        self.may_invalidate(stag, scope, by)?;
        let (slot, cold) = self.lookup_slot(stag).ok_or(AccessError::UnknownStag)?;
        Ok(Epoch(self.table().invalidate_stag(slot, cold, stag)))
    }

    /// Makes the tag of a window or fast region lead to a piece of a region.
    pub fn bind(&self, binding: &Binding, scope: AccessScope) -> Result<(), BindError> {
        self.epoch_slot().ensure_online();
        let (slot, cold) = self.lookup_slot(binding.stag).ok_or(BindError::NotBindable)?;
        let claim = slot.claim_for_bind()?;
        match self.checked_binding(binding, scope, claim, cold) {
            Ok((extent, parent, rights)) => {
                cold.set_parent(parent);
                // Offsets go on from the region's, and so does what decides owners: a word has one whatever names it.
                if let Some((_, region)) = self.lookup_slot(parent.stag) {
                    cold.set_owner(region.pin(), region.owner_hash_offset());
                }
                // Offsets go on from the region's: a piece is named alike by either tag.
                cold.set_base_to(binding.over.addr);
                cold.set_pd_qp(scope.pd(), scope.qp());
                let bound = slot.bind(claim, binding.stag, extent, rights);
                if bound { Ok(()) } else { Err(BindError::NotBindable) }
            }
            Err(refused) => {
                slot.cancel_bind(claim);
                Err(refused)
            }
        }
    }

    fn checked_binding(
        &self,
        binding: &Binding,
        scope: AccessScope,
        claim: BindClaim,
        cold: &ColdSlot,
    ) -> Result<(Extent, Parent, Rights), BindError> {
        if !self.is_quiescent(Epoch(cold.epoch())) {
            return Err(BindError::NotQuiescent);
        }
        if cold.pd() != scope.pd() {
            return Err(AccessError::WrongPd.into());
        }
        let window = claim.rights().is(Rights::WINDOW);
        // Neither a tag that was bound, nor one of a window that had the place before: its request may come late.
        let is_fresh = self.table().tags.follows(binding.stag, claim.stag());
        if !is_fresh || !may_grant(binding.access, window) {
            return Err(BindError::NotBindable);
        }
        let (extent, parent) = self.parent(binding, scope)?;
        let kind = Rights::CHILD
            | if window { Rights::WINDOW } else { 0 }
            | if window || binding.stream_scope { Rights::STREAM } else { 0 };
        Ok((extent, parent, Rights::new(binding.access, kind)))
    }

    /// The piece of the region that a binding is made over.
    fn parent(&self, binding: &Binding, scope: AccessScope) -> Result<(Extent, Parent), AccessError> {
        let Sge { addr, len, lkey } = binding.over;
        let (slot, cold) = self.lookup_slot(lkey).ok_or(AccessError::UnknownStag)?;
        let (rights, extent) = slot.read(lkey)?;
        if extent.pd != scope.pd() {
            // A region of one stream may be bound by that stream; a child is no region.
            if extent.pd != NO_PD || rights.is(Rights::CHILD) || cold.pd() != scope.pd() {
                return Err(AccessError::WrongPd);
            }
            if cold.qp() != scope.qp() {
                return Err(AccessError::WrongStream);
            }
        }
        let writes = binding.access.intersects(Access::WRITING);
        let need = if writes { Access::BIND | Access::LOCAL_WRITE } else { Access::BIND };
        if !rights.access().contains(need) {
            return Err(AccessError::NoRight);
        }
        let offset = offset_within(&extent, self.base_to(lkey, extent.base), addr, len)?;
        // SAFETY: `offset` lies within the extent, which is one allocation.
        let base = unsafe { extent.base.add(offset) };
        let piece = Extent { base, len: len.into(), pd: NO_PD };
        Ok((piece, Parent { stag: lkey, epoch: cold.epoch() }))
    }

    fn lookup_slot(&self, stag: STag) -> Option<(&Slot, &ColdSlot)> {
        let index = self.table().tags.slot_of(stag);
        Some((self.table().slots.get(index)?, self.table().cold_slots.get(index)?))
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
