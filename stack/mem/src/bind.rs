//! What a core does to tags for a work queue or for the peer: it binds windows and fast regions,
//! and invalidates.
//!
//! No function here waits. A tag is invalid for every look-up that begins after
//! [`CoreMem::invalidate`] returns. Another core may still be in the middle of a copy until
//! [`CoreMem::is_quiescent`] holds for the returned epoch. Until then binding the tag again fails
//! with [`BindError::NotQuiescent`].
//!
//! *Source.* RFC 5040 s5.3, s7.2, s8.1.1; the checks of a bind follow the verbs of the RDMA
//! Consortium.
//!
//! Bindings, fast registrations and local invalidations execute in the order of the send queue and
//! send nothing, so a responder executes them before the peer's first FPDU. A byte has the same
//! tagged offset under every tag. A tag that is to be bound again waits until every other core has
//! passed a quiescent point; the core checks once in an iteration.

use crate::access::{Access, AccessError, AccessScope, Sge};
use crate::table::{BindClaim, BindClaimError, NO_PD, Parent, Rights, Slot, SlotState};
use crate::view::{CoreMem, offset_within};
use crate::{ColdSlot, Extent};
use ironwarp_types::STag;
use thiserror::Error;

/// The end of a tag's validity: quiescent once every core has passed it
/// ([`CoreMem::is_quiescent`]).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Epoch(pub(crate) u64);

impl Epoch {
    /// Returns the epoch as a number.
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// Returns the epoch of a number from [`Epoch::to_bits`].
    pub fn from_bits(bits: u64) -> Self {
        Epoch(bits)
    }
}

/// The origin of an invalidation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Invalidator {
    /// A local work request: any tag in the scope of the stream.
    Local,
    /// The peer: only a tag that is limited to its stream and has a remote right.
    Remote,
}

/// Why a tag was not invalidated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum InvalidateError {
    /// The tag is not valid, or is outside the scope of this stream.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// Several streams may use the tag, so no peer may invalidate it (RFC 5040 s8.1.1, 7).
    #[error("a tag of a whole protection domain cannot be invalidated by a peer")]
    NotStreamScoped,
}

/// A window or fast region, and the memory that it is bound to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Binding {
    /// The tag that becomes valid: the next tag of the window or fast region.
    pub stag: STag,
    /// The bound part of a region.
    pub over: Sge,
    /// The rights of the tag.
    pub access: Access,
    /// Whether the tag is limited to the stream that binds. A window's always is.
    pub stream_scope: bool,
}

/// Why a binding failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum BindError {
    /// The tag was invalidated recently, and a core may still use it. Try again.
    #[error("the tag's last use is not over yet")]
    NotQuiescent,
    /// The tag cannot be bound, or is bound.
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
    /// Returns whether no core uses what ended with `epoch`. The calling core holds no span.
    pub fn is_quiescent(&self, epoch: Epoch) -> bool {
        self.epoch_slot().others_reached(epoch.0)
    }

    /// Returns whether [`CoreMem::invalidate`] would succeed now.
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
        // RFC 5040 s8.1.1 (7): a peer must not invalidate a tag that other streams may share.
        if !stream_scope {
            return Err(InvalidateError::NotStreamScoped);
        }
        let remote = rights.access().intersects(Access::REMOTE);
        if remote { Ok(()) } else { Err(AccessError::NoRight.into()) }
    }

    /// Makes a tag invalid at once. Accesses that began before end when [`CoreMem::is_quiescent`]
    /// holds for the result.
    ///
    /// A region's tag never becomes valid again; a window or fast region can be bound again. A
    /// local request for a tag that has ended already succeeds.
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

    /// Binds a window or fast region to a part of a region.
    pub fn bind(&self, binding: &Binding, scope: AccessScope) -> Result<(), BindError> {
        self.epoch_slot().ensure_online();
        let (slot, cold) = self.lookup_slot(binding.stag).ok_or(BindError::NotBindable)?;
        let claim = slot.claim_for_bind()?;
        match self.checked_binding(binding, scope, claim, cold) {
            Ok((extent, parent, rights)) => {
                cold.set_parent(parent);
                // Offsets continue those of the region, and so does the position that selects
                // owners: a word has one owner under every tag.
                if let Some((_, region)) = self.lookup_slot(parent.stag) {
                    cold.set_owner(region.pin(), region.owner_hash_offset());
                }
                // Offsets continue those of the region: a byte has the same offset under either
                // tag.
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
        // Rejects a tag that was bound before, and the tag of an earlier window in this slot: its
        // request may arrive late.
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

    /// Looks up the part of the region that is bound.
    fn parent(&self, binding: &Binding, scope: AccessScope) -> Result<(Extent, Parent), AccessError> {
        let Sge { addr, len, lkey } = binding.over;
        let (slot, cold) = self.lookup_slot(lkey).ok_or(AccessError::UnknownStag)?;
        let (rights, extent) = slot.read(lkey)?;
        if extent.pd != scope.pd() {
            // A region of one stream may be bound by that stream; a window or fast region is not a
            // region.
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

/// Returns whether a window, or a fast region, may have these rights.
fn may_grant(access: Access, window: bool) -> bool {
    if access.contains(Access::BIND) {
        return false;
    }
    if window {
        // RDMAC verbs s7.10: at least one right, and only remote ones.
        return !access.is_empty() && Access::REMOTE.contains(access);
    }
    !access.intersects(Access::NEEDS_LOCAL_WRITE) || access.contains(Access::LOCAL_WRITE)
}
