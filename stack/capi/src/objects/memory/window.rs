//! Tags without memory of their own: memory windows and fast regions.
//!
//! A request binds the tag to a part of a region that has IW_ACCESS_BIND. Each binding has a new
//! tag, which is known in advance, so that a program can send it to the peer in the same list of
//! requests. A refused request does not consume a tag.

use verbs::{FastRegion, ProtectionDomain, Quiescence, STag, SendWr, Window};

use crate::boundary::{ApiError, Slot, call, close_handle, create_handle, with, write_sized, *};
use crate::objects::context::{iw_ctx, iw_pd};
use crate::objects::queues::SendTarget;

/// A memory window: a tag that IW_WR_BIND makes valid for the peer of one queue pair. Any thread
/// may use the handle, one at a time. It outlives its context.
pub struct iw_mw(Slot<Bindable<Window>>);

/// A fast region: registered memory whose address and tag are set by IW_WR_FAST_REGISTER, in the
/// order of the send queue. Any thread may use the handle, one at a time. It outlives its context.
pub struct iw_fast_mr(Slot<Bindable<FastRegion>>);

handle_kind!(iw_mw, Bindable<Window>, 5, "the window");
handle_kind!(iw_fast_mr, Bindable<FastRegion>, 6, "the fast region");

/// The steering tags of a memory window or fast region. Set `size` before the call.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct iw_stag_info {
    /// sizeof(struct iw_stag_info).
    pub size: u32,
    /// The tag of the last posted binding, valid or not; 0: none was posted.
    pub stag: u32,
    /// The tag of the next binding.
    pub next_stag: u32,
}

/// The objects behind the handles.
pub(crate) struct Bindable<T> {
    /// Its own tag is that of the next binding.
    tag: T,
    pd: ProtectionDomain,
    posted: STag,
    /// The binding that `invalidate` ended, until no core uses it.
    invalidation: Option<Quiescence>,
}

/// The common operations of a window and a fast region.
pub(crate) trait HasStag {
    /// Returns the last tag.
    fn stag(&self) -> STag;
    /// Takes the next tag.
    fn next_stag(&mut self) -> STag;
    /// Ends the current binding.
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

/// Creates a memory window, which counts as a region (`iw_limits.regions`).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_mw_create(ctx: *mut iw_ctx, pd: iw_pd, out: *mut *mut iw_mw) -> i32 {
    // SAFETY: guaranteed by the caller.
    unsafe {
        create_handle(out, "out", || {
            with(ctx, |context| Ok(Bindable::new(context.create_window(pd.to_rust())?, pd)))
        })
    }
}

/// Returns the window's tags.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_mw_query(mw: *const iw_mw, out: *mut iw_stag_info) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe { write_sized(out, "out", with(mw, |window| Ok(window.info()))?) })
}

/// Ends the window's current binding at once, without a request and for any queue pair. A binding
/// that waits in a send queue is not ended. Returns 1 when no core uses it any more, else 0: poll
/// the workers and call again. The window can be bound again at any time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_mw_invalidate(mw: *mut iw_mw) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe { with(mw, |window| Ok(window.invalidate())) })
}

/// Destroys a window and invalidates its tag at once. A binding of it that waits in a send queue
/// fails. Cores may still finish a copy; `iw_mw_invalidate` before this call, or
/// `iw_mr_poll_deregistered` of the memory, shows when they have.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_mw_destroy(mw: *mut iw_mw) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe { close_handle(mw).map(drop) })
}

/// Creates a fast region, which counts as a region (`iw_limits.regions`).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_fast_mr_create(ctx: *mut iw_ctx, pd: iw_pd, out: *mut *mut iw_fast_mr) -> i32 {
    // SAFETY: guaranteed by the caller.
    unsafe {
        create_handle(out, "out", || {
            with(ctx, |context| Ok(Bindable::new(context.create_fast_region(pd.to_rust())?, pd)))
        })
    }
}

/// Returns the fast region's tags.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_fast_mr_query(fast_mr: *const iw_fast_mr, out: *mut iw_stag_info) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe { write_sized(out, "out", with(fast_mr, |region| Ok(region.info()))?) })
}

/// Ends the fast region's current registration, as `iw_mw_invalidate` does a window's binding.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_fast_mr_invalidate(fast_mr: *mut iw_fast_mr) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe { with(fast_mr, |region| Ok(region.invalidate())) })
}

/// Destroys a fast region, as `iw_mw_destroy` does a window.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_fast_mr_destroy(fast_mr: *mut iw_fast_mr) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| unsafe { close_handle(fast_mr).map(drop) })
}

impl<T: HasStag> Bindable<T> {
    fn new(mut tag: T, pd: iw_pd) -> Self {
        tag.next_stag();
        Bindable { tag, pd: pd.to_rust(), posted: STag(0), invalidation: None }
    }

    fn info(&self) -> iw_stag_info {
        iw_stag_info { size: 0, stag: self.posted.0, next_stag: self.tag.stag().0 }
    }

    fn invalidate(&mut self) -> bool {
        let token = self.invalidation.take().unwrap_or_else(|| self.tag.invalidate());
        let over = token.poll();
        if !over {
            self.invalidation = Some(token);
        }
        over
    }

    /// Posts the binding of `request` with the next tag, and takes another one.
    pub(crate) fn post<'a>(
        &mut self,
        target: &mut impl SendTarget,
        request: impl FnOnce(&T) -> Result<SendWr<'a>, ApiError>,
    ) -> Result<(), ApiError> {
        // Checked here, since the core could only end the connection; tags of another stack are
        // meaningless to it.
        if target.pd()? != self.pd {
            return Err(fault!(
                IW_E_VALUE,
                "what is bound and the queue pair are of different protection domains"
            ));
        }
        target.post_all(&[request(&self.tag)?])?;
        self.posted = self.tag.stag();
        self.invalidation = None;
        self.tag.next_stag();
        Ok(())
    }
}
