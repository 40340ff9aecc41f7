//! A program's request for the send queue, as one of the stack's.

use verbs::{AtomicOp, RemoteMemory, STag, SendWr, Sge};

use super::memory::parse_access;
use super::post::*;
use super::queues::SendTarget;
use crate::boundary::{ApiError, read_slice, with, *};

/// More than any request may have. The limit of the queue pair is checked later.
const SGES_MAX: u32 = 16;
/// As above.
const INLINE_BYTES_MAX: u32 = 256;

/// # Safety
/// The pointer is null or points to as many elements.
pub(super) unsafe fn elements<'a>(sges: *const iw_sge, count: u32) -> Result<&'a [Sge], ApiError> {
    if count > SGES_MAX {
        return Err(fault!(IW_E_TOO_LONG, "sge_count = {count}: at most {SGES_MAX}"));
    }
    // SAFETY: guaranteed by the caller; an element has the layout of `Sge`, and any numbers are
    // valid.
    unsafe { read_slice(sges.cast(), count as usize, "sges") }
}

impl iw_send_wr {
    pub(super) const EMPTY: Self = iw_send_wr {
        wr_id: 0,
        opcode: 0,
        flags: 0,
        sges: core::ptr::null(),
        sge_count: 0,
        remote_stag: 0,
        remote_offset: 0,
        inline_data: core::ptr::null(),
        inline_bytes: 0,
        invalidate_stag: 0,
        immediate: [0; 8],
        compare_add: 0,
        compare_add_mask: 0,
        swap: 0,
        swap_mask: 0,
        window: core::ptr::null_mut(),
        fast_mr: core::ptr::null_mut(),
        access: 0,
        reserved: 0,
    };

    /// Returns whether it is posted alone, since it is two requests or takes a tag.
    pub(super) fn is_alone(&self) -> bool {
        matches!(self.opcode, IW_WR_WRITE_IMMEDIATE | IW_WR_BIND | IW_WR_FAST_REGISTER)
    }

    /// # Safety
    /// As for [`iw_send_wr::request`]; the handles are null or handles of this library.
    pub(super) unsafe fn post_alone(&self, target: &mut impl SendTarget) -> Result<(), ApiError> {
        if self.opcode == IW_WR_WRITE_IMMEDIATE {
            // SAFETY: guaranteed by the caller.
            return Ok(target.post_all(&unsafe { self.write_and_immediate() }?)?);
        }
        // SAFETY: as above.
        let over = unsafe { self.sink() }?;
        let access = parse_access(self.access)?;
        let bind =
            |window: &_| self.flagged(SendWr::bind_with_current_stag(self.wr_id, window, over, access));
        let register = |region: &_| {
            self.flagged(SendWr::fast_register_with_current_stag(self.wr_id, region, over, access))
        };
        // SAFETY: as above.
        unsafe {
            match self.opcode {
                IW_WR_BIND => with(self.window, |window| window.post(target, bind)),
                _ => with(self.fast_mr, |region| region.post(target, register)),
            }
        }
    }

    pub(super) fn operation(&self) -> AtomicOp {
        match self.opcode {
            IW_WR_CMP_SWAP => AtomicOp::CmpSwap {
                compare: self.compare_add,
                compare_mask: self.compare_add_mask,
                swap: self.swap,
                swap_mask: self.swap_mask,
            },
            IW_WR_SWAP => AtomicOp::Swap { swap: self.swap },
            _ => AtomicOp::FetchAdd { add: self.compare_add, mask: self.compare_add_mask },
        }
    }

    fn remote(&self) -> RemoteMemory {
        RemoteMemory { stag: STag(self.remote_stag), tagged_offset: self.remote_offset }
    }

    /// # Safety
    /// The pointers are null or point to as much as they say.
    pub(super) unsafe fn request<'a>(&'a self, operation: &'a AtomicOp) -> Result<SendWr<'a>, ApiError> {
        // SAFETY: guaranteed by the caller.
        let request = unsafe {
            match self.opcode {
                IW_WR_SEND => self.send()?,
                IW_WR_WRITE => self.write()?,
                IW_WR_READ if self.has(IW_SEND_INVALIDATE) => {
                    SendWr::read_with_invalidate(self.wr_id, self.sink()?, self.remote())
                }
                IW_WR_READ => SendWr::read(self.wr_id, self.sink()?, self.remote()),
                IW_WR_IMMEDIATE => SendWr::immediate(self.wr_id, &self.immediate),
                IW_WR_FETCH_ADD | IW_WR_CMP_SWAP | IW_WR_SWAP => {
                    SendWr::atomic(self.wr_id, self.sink()?, self.remote(), operation)
                }
                IW_WR_PROBE_ATOMICS => SendWr::probe_atomics(self.wr_id, self.sink()?, self.remote()),
                IW_WR_INVALIDATE => SendWr::invalidate(self.wr_id, STag(self.invalidate_stag)),
                other => {
                    return Err(fault!(IW_E_VALUE, "opcode = {other}: IW_WR_*"));
                }
            }
        };
        self.flagged(request)
    }

    /// # Safety
    /// As for [`iw_send_wr::request`].
    unsafe fn send(&self) -> Result<SendWr<'_>, ApiError> {
        // SAFETY: guaranteed by the caller.
        let request = unsafe {
            if self.has(IW_SEND_INLINE) {
                SendWr::send_inline(self.wr_id, self.inlined()?)
            } else {
                SendWr::send(self.wr_id, elements(self.sges, self.sge_count)?)
            }
        };
        let ends = self.has(IW_SEND_INVALIDATE);
        Ok(if ends { request.with_invalidate(STag(self.invalidate_stag)) } else { request })
    }

    /// # Safety
    /// As for [`iw_send_wr::request`].
    unsafe fn write(&self) -> Result<SendWr<'_>, ApiError> {
        // SAFETY: guaranteed by the caller.
        Ok(unsafe {
            if self.has(IW_SEND_INLINE) {
                SendWr::write_inline(self.wr_id, self.inlined()?, self.remote())
            } else {
                SendWr::write(self.wr_id, elements(self.sges, self.sge_count)?, self.remote())
            }
        })
    }

    /// # Safety
    /// As for [`iw_send_wr::request`].
    unsafe fn write_and_immediate(&self) -> Result<[SendWr<'_>; 2], ApiError> {
        // SAFETY: guaranteed by the caller.
        let mut first = unsafe { self.write() }?.reported_by_next();
        let immediate = self.flagged(SendWr::immediate(self.wr_id, &self.immediate))?;
        if self.has(IW_SEND_FENCE) {
            first = first.fenced();
        }
        Ok([first, immediate])
    }

    fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    fn flagged<'a>(&self, mut request: SendWr<'a>) -> Result<SendWr<'a>, ApiError> {
        if self.flags & !FLAGS != 0 {
            return Err(fault!(IW_E_VALUE, "flags = {}: IW_SEND_*", self.flags));
        }
        if !self.has(IW_SEND_SIGNALED) {
            request = request.unsignaled();
        }
        if self.has(IW_SEND_SOLICITED) {
            request = request.solicited();
        }
        if self.has(IW_SEND_FENCE) {
            request = request.fenced();
        }
        if self.has(IW_SEND_LOCAL_FENCE) {
            request = request.locally_fenced();
        }
        if self.has(IW_SEND_STREAM_SCOPED) {
            request = request.stream_scoped();
        }
        Ok(request)
    }

    /// # Safety
    /// As for [`iw_send_wr::request`].
    unsafe fn sink(&self) -> Result<&[Sge; 1], ApiError> {
        // SAFETY: guaranteed by the caller.
        let sges = unsafe { elements(self.sges, self.sge_count) }?;
        let one = "a Read, an atomic operation and a binding have exactly one element";
        sges.try_into().map_err(|_| ApiError::with_detail(IW_E_VALUE, one))
    }

    /// # Safety
    /// As for [`iw_send_wr::request`].
    unsafe fn inlined(&self) -> Result<&[u8], ApiError> {
        let bytes = self.inline_bytes;
        if bytes > INLINE_BYTES_MAX {
            return Err(fault!(IW_E_TOO_LONG, "inline_bytes = {bytes}: at most {INLINE_BYTES_MAX}"));
        }
        // SAFETY: guaranteed by the caller.
        unsafe { read_slice(self.inline_data, bytes as usize, "inline_data") }
    }
}
