//! The DPDK backend: the environment, devices, pools, and frames that are mbufs.
//!
//! What it is: [`Eal`] starts DPDK once per process, or adopts the one an application owns; [`Vdev`] spells virtual
//! devices; [`DpdkPort`] is one queue pair of one device with a receive and a transmit pool of its own;
//! [`MbufFrame`] and [`SealedMbuf`] own mbufs, so none is freed twice, edited while shared, or lost.
//!
//! Threads: ports are built on a control thread and moved to the thread that polls them. That thread is an EAL lcore,
//! or becomes a registered one with its first burst, since a thread without an lcore id misses every mempool cache;
//! [`Eal::enter_thread`] does the same beforehand and says why when it cannot be done.
//!
//! Order of release: frames first, then the port, which stops and closes the device behind the last of its queues, then
//! the pools, then the EAL. A pool with frames still out when its port goes is kept for ever rather than pulled
//! away from under them, and the EAL is then not cleaned up either: the process's end does it.
//!
//! Trap, in 22.11's memif driver: its control thread unmaps the shared rings when the peer goes away, also under
//! a poller that is inside a burst, and the process dies of SIGSEGV. So a program says goodbye in its own protocol
//! first, calls [`DpdkPort::quiesce`], and only then lets its peer leave. Nothing is promised to a memif port whose
//! peer is killed. Before its first connection a memif port is not burst at all, only its link is asked for.
//!
//! Errors: [`DpdkError`], at set-up only; each names device, step or key, and what the system said. The data path
//! has none: full rings and empty pools are answers, and a frame that cannot be used is counted and dropped.
//!
//! Cost a frame in bursts of 32, drivers included, on a 2-core virtual machine with ordinary pages: 5 ns to receive and
//! free on net_null, 7 to allocate, seal and send, 7 from allocation through a pair of rings and back to the pool, 27
//! when the sender keeps the frame and the receiver copies it. `examples/dpdk_cost.rs` measures them.
#![allow(unsafe_code)]

mod device;
mod eal;
mod error;
mod frame;
mod pool;
mod port;
mod ring;
mod vdev;

pub use device::{DeviceCounts, PortSettings};
pub use eal::{Eal, EalConfig, LogLevel, Memory};
pub use error::{DpdkError, Errno};
pub use frame::{MbufFrame, SealedMbuf};
pub use port::{DpdkPort, PoolLevels};
pub use ring::{ring_pair, ring_pair_of_queues};
pub use vdev::{Memif, MemifRole, Vdev};
