//! Calls that the library has and always refuses, and calls that have nothing to do.
//!
//! Programs link with all names of the libraries, whether they use them or not. A refusal returns
//! as the manual page says, with an `errno` that names the reason: EOPNOTSUPP for operations that
//! the device lacks, ENOSYS for interfaces of the kernel or of other libraries that this one does
//! not offer.

use core::ffi::{c_int, c_uint, c_ulong, c_void};

use crate::engine::set_errno;

/// Defines calls of any arguments that set `errno` and return a value: the program's arguments are
/// left alone.
macro_rules! refuse {
    ($kind:ty = $value:expr, $errno:ident: $($name:ident)*) => { $(
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> $kind {
            set_errno(libc::$errno);
            $value
        }
    )* };
}

// Calls that return null or -1 and set `errno`.
refuse!(*mut c_void = core::ptr::null_mut(), EOPNOTSUPP:
    ibv_create_ah ibv_create_ah_from_wc ibv_import_device ibv_import_mr ibv_import_pd ibv_import_dm
    ibv_reg_dmabuf_mr riomap);
refuse!(c_int = -1, EOPNOTSUPP:
    ibv_init_ah_from_wc ibv_resolve_eth_l2_from_gid rdma_join_multicast rdma_join_multicast_ex rdma_leave_multicast
    rdma_get_remote_ece rdma_set_local_ece rdma_reject_ece);
// Calls that return the error.
refuse!(c_int = libc::EOPNOTSUPP, EOPNOTSUPP:
    ibv_attach_mcast ibv_detach_mcast ibv_destroy_ah ibv_query_ece ibv_set_ece);
// Sockets over RDMA (rsockets).
refuse!(c_int = -1, ENOSYS:
    rsocket rbind rlisten raccept rconnect rshutdown rclose rgetpeername rgetsockname rsetsockopt rgetsockopt rfcntl
    riounmap);
refuse!(isize = -1, ENOSYS: rrecv rrecvfrom rrecvmsg rsend rsendto rsendmsg rread rreadv rwrite rwritev riowrite);

/// Defines calls that have nothing to do.
macro_rules! nothing_to_do {
    ($($name:ident)*) => { $(
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> c_int {
            0
        }
    )* };
}

// Memory is not pinned, so a child process may be made; the device belongs to the process that
// opened it.
nothing_to_do!(ibv_fork_init ibv_dontfork_range ibv_dofork_range);
nothing_to_do!(ibv_unimport_mr ibv_unimport_pd ibv_unimport_dm);
nothing_to_do!(ibv_copy_ah_attr_from_kern ibv_copy_path_rec_from_kern ibv_copy_path_rec_to_kern ibv_copy_qp_attr_from_kern);

/// IBV_FORK_UNNEEDED.
#[unsafe(no_mangle)]
extern "C" fn ibv_is_fork_initialized() -> c_uint {
    2
}

/// Providers register themselves when they are loaded. There is no other device than `ironwarp0`.
#[unsafe(no_mangle)]
extern "C" fn ibv_register_driver() {}

/// As `poll`: no descriptor is one of rsockets.
#[unsafe(no_mangle)]
extern "C" fn rpoll(fds: *mut libc::pollfd, count: c_ulong, timeout_ms: c_int) -> c_int {
    // SAFETY: the program passes as many structures.
    unsafe { libc::poll(fds, count, timeout_ms) }
}

/// As `select`.
#[unsafe(no_mangle)]
extern "C" fn rselect(
    count: c_int,
    read: *mut libc::fd_set,
    write: *mut libc::fd_set,
    except: *mut libc::fd_set,
    timeout: *mut libc::timeval,
) -> c_int {
    // SAFETY: the program passes null, sets and a time.
    unsafe { libc::select(count, read, write, except, timeout) }
}
