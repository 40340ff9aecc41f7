//! Errors of calls: an `errno` value, and the three ways in which the calls of rdma-core return it.

use core::ffi::c_int;
use core::ptr;

use verbs::{PostError, RegisterError, VerbsError};

/// An `errno` value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Errno(pub(crate) c_int);

impl Errno {
    /// Returns the error that the status of an event reports, positive or negative. A program may
    /// write into its event, so every value is possible.
    pub(crate) fn of_status(status: c_int) -> Errno {
        status.checked_abs().map_or(EINVAL, Errno)
    }
}

pub(crate) type Outcome<T = ()> = Result<T, Errno>;

pub(crate) const EINVAL: Errno = Errno(libc::EINVAL);
pub(crate) const EBADF: Errno = Errno(libc::EBADF);
pub(crate) const ENODEV: Errno = Errno(libc::ENODEV);
pub(crate) const EBUSY: Errno = Errno(libc::EBUSY);
pub(crate) const EPERM: Errno = Errno(libc::EPERM);
pub(crate) const EAGAIN: Errno = Errno(libc::EAGAIN);
pub(crate) const EFAULT: Errno = Errno(libc::EFAULT);
pub(crate) const EOPNOTSUPP: Errno = Errno(libc::EOPNOTSUPP);

pub(crate) fn set_errno(errno: c_int) {
    // SAFETY: the pointer is to this thread's `errno`.
    unsafe { *libc::__errno_location() = errno };
}

/// For calls that return 0 or the error.
pub(crate) fn as_number(outcome: Outcome) -> c_int {
    outcome.err().map_or(0, |Errno(errno)| errno)
}

/// For calls that return 0, or -1 and set `errno`.
pub(crate) fn as_minus_one(outcome: Outcome) -> c_int {
    match outcome {
        Ok(()) => 0,
        Err(Errno(errno)) => {
            set_errno(errno);
            -1
        }
    }
}

/// For calls that return a pointer, or null and set `errno`.
pub(crate) fn as_pointer<T>(outcome: Outcome<*mut T>) -> *mut T {
    outcome.unwrap_or_else(|Errno(errno)| {
        set_errno(errno);
        ptr::null_mut()
    })
}

/// Returns the error of the system call that has just failed.
pub(crate) fn last_errno() -> Errno {
    Errno(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
}

impl From<VerbsError> for Errno {
    fn from(error: VerbsError) -> Self {
        tracing::debug!("{error}");
        Errno(match error {
            VerbsError::Post(error) => return error.into(),
            VerbsError::LimitReached(_) | VerbsError::CqFull => libc::ENOMEM,
            VerbsError::CompletionQueueInUse | VerbsError::SharedReceiveQueueInUse | VerbsError::Busy => {
                libc::EBUSY
            }
            VerbsError::WorkerDropped => libc::EIO,
            VerbsError::Register(RegisterError::TableFull { .. } | RegisterError::QuotaExceeded { .. }) => {
                libc::ENOMEM
            }
            VerbsError::System { source, .. } => source.raw_os_error().unwrap_or(libc::EIO),
            _ => libc::EINVAL,
        })
    }
}

impl From<PostError> for Errno {
    fn from(error: PostError) -> Self {
        Errno(match error {
            PostError::QueueFull | PostError::CqFull => libc::ENOMEM,
            PostError::NoSuchOperation => libc::EOPNOTSUPP,
            PostError::WorkerDropped => libc::EIO,
            _ => libc::EINVAL,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_of_an_event_is_an_error() {
        let errors = [libc::ECONNREFUSED, -libc::ETIMEDOUT, c_int::MAX, c_int::MIN]
            .map(|status| Errno::of_status(status).0);
        assert_eq!(errors, [libc::ECONNREFUSED, libc::ETIMEDOUT, c_int::MAX, libc::EINVAL]);
    }
}
