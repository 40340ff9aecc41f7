//! Conversion of Rust errors to a number, and a text that the caller may ask for.
//!
//! Every exported function runs in [`call`], which also stops panics. Expected errors of the data
//! path, such as a full queue or a busy core, cost no allocation.

use core::cell::RefCell;
use core::ffi::c_char;
use std::ffi::CString;
use std::panic::{AssertUnwindSafe, catch_unwind};

use verbs::{ConfigError, PostError, RangeError, RegisterError, SetupError, VerbsError};

use super::codes::{text_of, *};

/// The error of a call.
#[derive(Debug)]
pub(crate) struct ApiError {
    pub(crate) code: i32,
    /// Details beyond the number.
    detail: Option<String>,
}

impl ApiError {
    pub(crate) fn new(code: i32) -> Self {
        ApiError { code, detail: None }
    }

    pub(crate) fn with_detail(code: i32, detail: impl core::fmt::Display) -> Self {
        ApiError { code, detail: Some(detail.to_string()) }
    }
}

/// The error with a number, and a text as of `format!`.
macro_rules! fault {
    ($code:expr, $($detail:tt)+) => {
        $crate::boundary::ApiError::with_detail($code, format_args!($($detail)+))
    };
}

enum LastError {
    None,
    Number(i32),
    Line(CString),
}

thread_local! {
    static LAST: RefCell<LastError> = const { RefCell::new(LastError::None) };
}

/// Returns the text of the last call that failed on this thread, one line. Valid until the thread's
/// next call that fails; never null.
#[unsafe(no_mangle)]
pub extern "C" fn iw_last_error() -> *const c_char {
    LAST.with_borrow(|last| match last {
        LastError::None => c"no error".as_ptr(),
        LastError::Number(code) => text_of(*code).as_ptr(),
        LastError::Line(line) => line.as_ptr(),
    })
}

/// What an exported function returns on success: nothing is `IW_OK`.
pub(crate) trait Answer {
    fn number(self) -> i32;
}

impl Answer for () {
    fn number(self) -> i32 {
        IW_OK
    }
}

impl Answer for bool {
    fn number(self) -> i32 {
        self.into()
    }
}

impl Answer for i32 {
    fn number(self) -> i32 {
        self
    }
}

/// Runs the body of an exported function. Returns its result, or the number of the error.
#[inline]
pub(crate) fn call<A: Answer>(body: impl FnOnce() -> Result<A, ApiError>) -> i32 {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(answer)) => answer.number(),
        Ok(Err(fault)) => set_last_error(fault),
        Err(payload) => {
            let message = payload.downcast_ref::<String>().map(String::as_str);
            let message = message.or(payload.downcast_ref::<&str>().copied()).unwrap_or("a panic");
            let code = set_last_error(fault!(IW_E_INTERNAL, "{}: {message}", IN_LIBRARY));
            tracing::error!("{IN_LIBRARY}: {message}");
            // Dropping the panic's payload may panic again; the payload of that one is not dropped.
            if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
                core::mem::forget(second);
            }
            code
        }
    }
}

const IN_LIBRARY: &str = "a fault in the library";

#[cold]
fn set_last_error(fault: ApiError) -> i32 {
    let ApiError { code, detail } = fault;
    let line = detail.and_then(|detail| CString::new(detail.replace('\n', " ")).ok());
    // A thread that is ending may not have the variable any more.
    let _ = LAST.try_with(|last| {
        if let Ok(mut last) = last.try_borrow_mut() {
            *last = line.map_or(LastError::Number(code), LastError::Line);
        }
    });
    code
}

impl From<VerbsError> for ApiError {
    #[cold]
    fn from(error: VerbsError) -> Self {
        let code = match &error {
            VerbsError::Post(PostError::QueueFull) => return ApiError::new(IW_E_QUEUE_FULL),
            VerbsError::CqFull => return ApiError::new(IW_E_CQ_FULL),
            VerbsError::Busy => return ApiError::new(IW_E_BUSY),
            VerbsError::UnknownQueuePair => IW_E_NO_QP,
            VerbsError::UnknownCompletionQueue => IW_E_NO_CQ,
            VerbsError::UnknownSharedReceiveQueue => IW_E_NO_SRQ,
            VerbsError::UnknownProtectionDomain => IW_E_NO_PD,
            VerbsError::CompletionQueueInUse
            | VerbsError::SharedReceiveQueueInUse
            | VerbsError::CqDepthTooSmall { .. } => IW_E_STILL_USED,
            VerbsError::Post(PostError::UsesSharedReceiveQueue) | VerbsError::WrongState(_) => IW_E_STATE,
            VerbsError::Post(
                PostError::TooManySges { .. }
                | PostError::InlineTooLong { .. }
                | PostError::MessageTooLong(_),
            )
            | VerbsError::PrivateDataTooLong(_) => IW_E_TOO_LONG,
            VerbsError::Post(PostError::NoSuchOperation) => IW_E_NO_OPERATION,
            VerbsError::LimitReached(_)
            | VerbsError::Register(RegisterError::TableFull { .. } | RegisterError::QuotaExceeded { .. }) => {
                IW_E_LIMIT
            }
            VerbsError::WorkerDropped | VerbsError::Post(PostError::WorkerDropped) => IW_E_WORKER_CLOSED,
            VerbsError::Register(_) | VerbsError::Word(_) => IW_E_MEMORY,
            VerbsError::System { .. } => IW_E_SYSTEM,
            VerbsError::Split => IW_E_SPLIT,
            _ => IW_E_VALUE,
        };
        ApiError::with_detail(code, error)
    }
}

impl From<PostError> for ApiError {
    #[cold]
    fn from(error: PostError) -> Self {
        VerbsError::from(error).into()
    }
}

impl From<SetupError> for ApiError {
    fn from(error: SetupError) -> Self {
        let code = match &error {
            SetupError::Config(_) => IW_E_CONFIG,
            SetupError::Thread { .. } | SetupError::Entropy(_) | SetupError::StatsPage(_) => IW_E_SYSTEM,
            _ => IW_E_DEVICE,
        };
        ApiError::with_detail(code, error)
    }
}

impl From<ConfigError> for ApiError {
    fn from(error: ConfigError) -> Self {
        ApiError::with_detail(IW_E_CONFIG, error)
    }
}

impl From<RangeError> for ApiError {
    fn from(error: RangeError) -> Self {
        ApiError::with_detail(IW_E_VALUE, error)
    }
}

/// Returns the thread's last error text, for tests in Rust.
#[cfg(test)]
pub(crate) fn last_line() -> String {
    // SAFETY: the function returns a NUL-terminated text that lives until the next failure.
    unsafe { core::ffi::CStr::from_ptr(iw_last_error()) }.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_a_number_with_its_own_words() {
        assert_eq!(call::<()>(|| panic!("index {} of {}", 7, 3)), IW_E_INTERNAL);
        assert_eq!(last_line(), "a fault in the library: index 7 of 3");
        assert_eq!(call::<()>(|| std::panic::panic_any(7u8)), IW_E_INTERNAL);
        assert_eq!(last_line(), "a fault in the library: a panic");
    }

    #[test]
    fn a_fault_leaves_one_line_and_a_success_leaves_it_alone() {
        assert_eq!(call::<()>(|| Err(fault!(IW_E_CONFIG, "one\ntwo"))), IW_E_CONFIG);
        assert_eq!(call(|| Ok(3)), 3);
        assert_eq!(last_line(), "one two");
        assert_eq!(call::<()>(|| Err(PostError::QueueFull.into())), IW_E_QUEUE_FULL);
        assert_eq!(last_line(), "the work queue is full");
    }

    #[test]
    fn each_thread_has_its_own_line() {
        call::<()>(|| Err(fault!(IW_E_VALUE, "here")));
        let there = std::thread::spawn(last_line).join();
        assert_eq!(there.ok().as_deref(), Some("no error"));
    }
}
