//! Tags without memory of their own: memory windows and fast regions.
//!
//! Each is made once and bound by a request to a piece of a region that has IW_ACCESS_BIND; each binding has a fresh tag,
//! which is drawn ahead, so that a program can tell it in the same list of requests. A request that is refused uses none up.

use verbs::{Context, FastRegion, ProtectionDomain, QueuePair, Quiescence, STag, SendWr, Window};

use crate::boundary::{ApiError, Slot, alloc_handle, call, close_handle, with, write_out, *};
use crate::objects::context::{iw_ctx, iw_pd};

/// A memory window: a tag that IW_WR_BIND lends to the peer of one queue pair. Any thread may use the handle, one at a time;
/// it outlives the context that made it.
pub struct iw_mw(Slot<Bindable<Window>>);

/// A fast region: registered memory whose place and tag are given by IW_WR_FAST_REGISTER, in the order of the send queue.
/// Any thread may use the handle, one at a time; it outlives the context that made it.
pub struct iw_fast_mr(Slot<Bindable<FastRegion>>);

handle_kind!(iw_mw, Bindable<Window>, 5, "the window");
handle_kind!(iw_fast_mr, Bindable<FastRegion>, 6, "the fast region");

/// The steering tags of a memory window or fast region.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct iw_stag_info {
    /// The tag of the binding that was posted last, whatever has become of it; 0: none was.
    pub stag: u32,
    /// The tag that the next binding will have.
    pub next_stag: u32,
}

/// What is behind the handles.
pub(crate) struct Bindable<T> {
    /// Its own tag is that of the next binding.
    tag: T,
    pd: ProtectionDomain,
    posted: STag,
    /// Of the binding that `invalidate` has ended, until no core uses it.
    invalidation: Option<Quiescence>,
}

/// What a window and a fast region have in common.
pub(crate) trait HasStag {
    /// The tag that was drawn last.
    fn stag(&self) -> STag;
    /// Draws another one.
    fn next_stag(&mut self) -> STag;
    /// Ends the present binding.
    fn invalidate(&self) -> Quiescence;
}

macro_rules! tag {
    ($kind:ident) => {
        impl HasStag for $kind {
            fn stag(&self) -> STag {
                self.stag()
            }
            fn next_stag(&mut self) -> STag {
                self.next_stag()
            }
            fn invalidate(&self) -> Quiescence {
                self.invalidate()
            }
        }
    };
}

tag!(Window);
tag!(FastRegion);

/// Makes a memory window, which takes the place of a region (`iw_limits.regions`).
///
/// # Safety
/// `ctx` is null or a handle that this library gave out; `out` is null or good for one pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_mw_create(ctx: *mut iw_ctx, pd: iw_pd, out: *mut *mut iw_mw) -> i32 {
    // SAFETY: the caller's promise, handed on.
    call(|| unsafe {
        write_out(out, "out", core::ptr::null_mut())?;
        let window = with(ctx, |context| Ok(context.create_window(pd.to_rust())?))?;
        write_out(out, "out", alloc_handle(Bindable::new(window, pd)))?;
        Ok(IW_OK)
    })
}

/// The window's tags.
///
/// # Safety
/// `mw` is null or a handle that this library gave out; `out` is null or good for one value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_mw_query(mw: *const iw_mw, out: *mut iw_stag_info) -> i32 {
    // SAFETY: the caller's promise, handed on.
    call(|| unsafe { write_out(out, "out", with(mw, |window| Ok(window.info()))?).map(|()| IW_OK) })
}

/// Ends the window's present binding at once, without a request and whatever queue pair it is for: one that has ended may
/// have left it bound. A binding that waits in a send queue is not ended. Answers 1 when no core is in the middle of a copy
/// by it any more, or 0: call again when the workers have been polled once more. The window can be bound again at any time.
///
/// # Safety
/// `mw` is null or a handle that this library gave out.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_mw_invalidate(mw: *mut iw_mw) -> i32 {
    // SAFETY: the caller's promise, handed on.
    call(|| unsafe { with(mw, |window| Ok(window.invalidate().into())) })
}

/// Destroys a window and ends its tag at once; a binding of it that waits in a send queue fails. Cores may be finishing a
/// copy: `iw_mw_invalidate` before, or `iw_mr_poll_deregistered` of the memory beneath, tells when they have.
///
/// # Safety
/// `mw` is null or a handle that this library gave out.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_mw_destroy(mw: *mut iw_mw) -> i32 {
    // SAFETY: the caller's promise, handed on.
    call(|| unsafe { close_handle(mw).map(|_| IW_OK) })
}

/// Makes a fast region, which takes the place of a region (`iw_limits.regions`).
///
/// # Safety
/// As for `iw_mw_create`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_fast_mr_create(ctx: *mut iw_ctx, pd: iw_pd, out: *mut *mut iw_fast_mr) -> i32 {
    // SAFETY: the caller's promise, handed on.
    call(|| unsafe {
        write_out(out, "out", core::ptr::null_mut())?;
        let region = with(ctx, |context| Ok(context.create_fast_region(pd.to_rust())?))?;
        write_out(out, "out", alloc_handle(Bindable::new(region, pd)))?;
        Ok(IW_OK)
    })
}

/// The fast region's tags.
///
/// # Safety
/// As for `iw_mw_query`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_fast_mr_query(fast_mr: *const iw_fast_mr, out: *mut iw_stag_info) -> i32 {
    // SAFETY: the caller's promise, handed on.
    call(|| unsafe { write_out(out, "out", with(fast_mr, |region| Ok(region.info()))?).map(|()| IW_OK) })
}

/// Ends the fast region's present registration, as `iw_mw_invalidate` does a window's binding.
///
/// # Safety
/// As for `iw_mw_invalidate`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_fast_mr_invalidate(fast_mr: *mut iw_fast_mr) -> i32 {
    // SAFETY: the caller's promise, handed on.
    call(|| unsafe { with(fast_mr, |region| Ok(region.invalidate().into())) })
}

/// Destroys a fast region, as `iw_mw_destroy` does a window.
///
/// # Safety
/// As for `iw_mw_destroy`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_fast_mr_destroy(fast_mr: *mut iw_fast_mr) -> i32 {
    // SAFETY: the caller's promise, handed on.
    call(|| unsafe { close_handle(fast_mr).map(|_| IW_OK) })
}

impl<T: HasStag> Bindable<T> {
    fn new(mut tag: T, pd: iw_pd) -> Self {
        tag.next_stag();
        Bindable { tag, pd: pd.to_rust(), posted: STag(0), invalidation: None }
    }

    fn info(&self) -> iw_stag_info {
        iw_stag_info { stag: self.posted.0, next_stag: self.tag.stag().0 }
    }

    fn invalidate(&mut self) -> bool {
        let token = self.invalidation.take().unwrap_or_else(|| self.tag.invalidate());
        let over = token.poll();
        if !over {
            self.invalidation = Some(token);
        }
        over
    }

    /// Posts the binding that `request` makes with the tag drawn ahead, and draws the next one.
    pub(crate) fn post<'a>(
        &mut self,
        context: &mut Context,
        qp: QueuePair,
        request: impl FnOnce(&T) -> Result<SendWr<'a>, ApiError>,
    ) -> Result<(), ApiError> {
        // Found out here, since the core could only end the connection; tags of another stack mean nothing to it.
        if context.query_qp(qp)?.pd != self.pd {
            return Err(ApiError::with_detail(
                IW_E_VALUE,
                "what is bound and the queue pair are of different protection domains",
            ));
        }
        context.post_send(qp, &request(&self.tag)?)?;
        self.posted = self.tag.stag();
        self.invalidation = None;
        self.tag.next_stag();
        Ok(())
    }
}
