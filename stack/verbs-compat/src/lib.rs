//! `libibverbs.so.1` and `librdmacm.so.1` over the crate `ironwarp`: programs that were written for
//! RDMA hardware run unmodified over any DPDK device.
//!
//! Takes the calls of both libraries, with the layouts of rdma-core's headers, and the
//! configuration file that `IRONWARP_CONFIG` names. Gives one RDMA device, `ironwarp0`.
//! `scripts/install-verbs.sh` links both libraries from this crate, as one ELF file, so that their
//! state exists once. `docs/verbs.md` lists every call.
//!
//! The program may use any thread for any call. All state is behind one lock ([`engine`]); the data
//! path takes it once for each call, allocates nothing and makes no system call. Calls report
//! errors as `errno`, as the manual pages of rdma-core say. A panic ends the process, since it may
//! not unwind into the program.
#![cfg_attr(verbs_headers, allow(unsafe_code, reason = "the callers are C programs"))]
#![cfg_attr(not(verbs_headers), forbid(unsafe_code))]

#[cfg(verbs_headers)]
#[macro_use]
mod engine;
#[cfg(verbs_headers)]
mod cm;
#[cfg(verbs_headers)]
mod device;
#[cfg(verbs_headers)]
mod objects;
#[cfg(verbs_headers)]
mod refused;
#[cfg(verbs_headers)]
mod sys;
