//! The log, passed to a function of the application.
//!
//! A subscriber of `tracing` is installed at the first call. If the process has one already, that
//! one stays and the call fails. Lines are written on the thread that logs, never on the data path.

use core::ffi::{c_char, c_void};
use core::fmt::Write;
use std::ffi::CString;
use std::sync::{Mutex, OnceLock, PoisonError, RwLock};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use super::codes::*;
use super::error::{ApiError, call};

/// Errors.
pub const IW_LOG_ERROR: u32 = 1;
/// Also warnings.
pub const IW_LOG_WARN: u32 = 2;
/// Also information.
pub const IW_LOG_INFO: u32 = 3;
/// Also details for debugging. A release build has none.
pub const IW_LOG_DEBUG: u32 = 4;

/// Receives a line of the log: the `user` pointer of the registration, an `IW_LOG_*`, and a text
/// that is valid during the call. May be called on any thread that calls the library, several at
/// once. It must return. It must not call the library with the handle of the current call, which
/// fails with IW_E_CONCURRENT_CALL.
pub type iw_log_fn = Option<unsafe extern "C" fn(user: *mut c_void, level: u32, text: *const c_char)>;

#[derive(Clone, Copy)]
struct Sink {
    function: unsafe extern "C" fn(*mut c_void, u32, *const c_char),
    user: *mut c_void,
    most: u32,
}

// SAFETY: the application guarantees that function and pointer are valid on any thread.
unsafe impl Send for Sink {}
// SAFETY: as above.
unsafe impl Sync for Sink {}

static SINK: RwLock<Option<Sink>> = RwLock::new(None);

/// Passes the library's log to `function`, lines of `level` and more severe; null ends that.
/// Replaces the function of an earlier call, which may still run on another thread. DPDK's log is
/// separate, see `rte_log`. Any thread. Fails with IW_E_STATE if another Rust library of the
/// process has a log.
///
/// # Safety
/// `function` may be called with `user` from any thread until it is replaced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iw_set_log(function: iw_log_fn, user: *mut c_void, level: u32) -> i32 {
    call(|| {
        if !(IW_LOG_ERROR..=IW_LOG_DEBUG).contains(&level) {
            return Err(fault!(IW_E_VALUE, "level = {level}: IW_LOG_ERROR to IW_LOG_DEBUG"));
        }
        install()?;
        let sink = function.map(|function| Sink { function, user, most: level });
        *SINK.write().unwrap_or_else(PoisonError::into_inner) = sink;
        Ok(())
    })
}

fn install() -> Result<(), ApiError> {
    static INSTALLED: OnceLock<Mutex<bool>> = OnceLock::new();
    let installed = INSTALLED.get_or_init(Mutex::default);
    let mut installed = installed.lock().unwrap_or_else(PoisonError::into_inner);
    if !*installed {
        let taken = "the process has a log of another Rust library";
        tracing::subscriber::set_global_default(Lines)
            .map_err(|_| ApiError::with_detail(IW_E_STATE, taken))?;
        *installed = true;
    }
    Ok(())
}

fn sink() -> Option<Sink> {
    *SINK.read().unwrap_or_else(PoisonError::into_inner)
}

fn number(level: &Level) -> u32 {
    match *level {
        Level::ERROR => IW_LOG_ERROR,
        Level::WARN => IW_LOG_WARN,
        Level::INFO => IW_LOG_INFO,
        _ => IW_LOG_DEBUG,
    }
}

/// Each event is one line.
struct Lines;

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        sink().is_some_and(|sink| number(metadata.level()) <= sink.most)
    }

    fn register_callsite(&self, _: &'static Metadata<'static>) -> tracing::subscriber::Interest {
        // The application may change the level at any time.
        tracing::subscriber::Interest::sometimes()
    }

    fn event(&self, event: &Event<'_>) {
        let Some(sink) = sink() else { return };
        let mut line = Line(String::new());
        event.record(&mut line);
        let text = CString::new(line.0.replace(['\0', '\n'], " ")).unwrap_or_default();
        // SAFETY: the application guarantees that the function may be called with its pointer from
        // any thread. The lock is not held, so the function may set another.
        unsafe { (sink.function)(sink.user, number(event.metadata().level()), text.as_ptr()) }
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// The message, and other fields after it as `name=value`.
struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn core::fmt::Debug) {
        // Writing into a string cannot fail.
        let _ = match field.name() {
            "message" if self.0.is_empty() => write!(self.0, "{value:?}"),
            "message" => {
                let fields = core::mem::take(&mut self.0);
                write!(self.0, "{value:?} {fields}")
            }
            name if self.0.is_empty() => write!(self.0, "{name}={value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::ffi::CStr;

    static HEARD: Mutex<Vec<(usize, u32, String)>> = Mutex::new(Vec::new());

    unsafe extern "C" fn hear(user: *mut c_void, level: u32, text: *const c_char) {
        // SAFETY: the library passes a NUL-terminated text.
        let text = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
        HEARD.lock().unwrap_or_else(PoisonError::into_inner).push((user as usize, level, text));
    }

    #[test]
    fn lines_reach_the_application_at_the_level_it_asked_for() {
        // SAFETY: the function is valid for ever and does not dereference its pointer.
        let set = |level, user: usize| unsafe { iw_set_log(Some(hear), user as *mut c_void, level) };
        assert_eq!(set(0, 0), IW_E_VALUE);
        assert_eq!(set(IW_LOG_WARN, 7), IW_OK);
        tracing::info!("not asked for");
        tracing::warn!(core = 3, "a line\nand more");
        assert_eq!(set(IW_LOG_INFO, 8), IW_OK);
        tracing::info!("asked for now");
        // SAFETY: null ends it.
        assert_eq!(unsafe { iw_set_log(None, core::ptr::null_mut(), IW_LOG_INFO) }, IW_OK);
        tracing::error!("nobody listens");
        let heard = HEARD.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mine: Vec<_> =
            heard.iter().filter(|(_, _, text)| text.contains("line") || text.contains("now")).collect();
        assert_eq!(
            mine,
            [
                &(7, IW_LOG_WARN, "a line and more core=3".to_owned()),
                &(8, IW_LOG_INFO, "asked for now".to_owned())
            ]
        );
        assert!(!heard.iter().any(|(_, _, text)| text.contains("not asked") || text.contains("nobody")));
    }
}
