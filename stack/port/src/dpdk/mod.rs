//! The DPDK backend: the environment, devices, pools, and frames that are mbufs.
//!
//! [`Eal`] starts DPDK once in a process, or adopts the one of an application. [`Vdev`] describes
//! virtual devices. [`DpdkPort`] is one queue of one device with its own receive and transmit pool.
//! [`MbufFrame`] and [`SealedMbuf`] own mbufs, so none is freed twice, edited while shared, or
//! lost.
//!
//! Threads: ports are created on a control thread and moved to the thread that polls them. That
//! thread is an EAL lcore, or becomes a registered one with its first burst, since a thread without
//! an lcore id misses every mempool cache. [`Eal::enter_thread`] does the same beforehand and
//! reports errors.
//!
//! Order of release: frames first, then the port, which stops and closes the device after the last
//! of its queues, then the pools, then the EAL. A pool with frames in use when its port is dropped
//! is never freed, and the EAL is then not cleaned up; both end with the process.
//!
//! Known fault of 22.11's memif driver: its control thread unmaps the shared rings when the peer
//! goes away, also while another thread is inside a burst, and the process gets SIGSEGV. So a memif
//! port looks at its link before each burst and does not call the driver while the link is down. A
//! peer that leaves in the middle of a burst may still end this process; [`crate::memif`] has no
//! such fault.
//!
//! Errors: [`DpdkError`], at set-up only; each names device, step or key, and the system's reason.
//! The data path has none: full rings and empty pools are results, and an unusable frame is counted
//! and dropped.
//!
//! Cost of a frame in bursts of 32, drivers included, on a 2-core virtual machine with ordinary
//! pages: 5 ns to receive and free on net_null, 7 to allocate, seal and send, 7 from allocation
//! through a pair of rings and back to the pool, 27 if the sender holds the frame and the receiver
//! copies it. `examples/dpdk_cost.rs` measures them.
#![allow(unsafe_code)]

mod device;
mod eal;
mod error;
mod frame;
mod open_files;
mod pool;
mod port;
mod ring;
mod rx_interrupt;
mod settings;
mod tap;
mod vdev;

pub use eal::{Eal, EalConfig, LogLevel, Memory};
pub use error::{DpdkError, Errno};
pub use frame::{MbufFrame, SealedMbuf};
pub use port::{DpdkPort, PoolLevels};
pub use ring::{ring_pair, ring_pair_of_queues};
pub use settings::{DeviceCounts, PortSettings, Wakes};
pub use vdev::Vdev;
