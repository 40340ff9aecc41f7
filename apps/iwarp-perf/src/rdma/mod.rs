//! The tests that run over our stack, and the raw frames that run over its device.
//!
//! Both ends open the same case: a completion queue, and for each queue pair a [`open_case::QpContext`] with the memory that
//! the test reads and writes. The near end connects; where each end's memory lies travels as private data. A slice is
//! then a loop of ours around the worker's: post, poll the worker, reap.

mod case;
mod control_channel;
mod device;
mod endpoint;
mod frames;
mod loopback;
mod open_case;
mod slices;

pub use case::{RdmaCase, accept};
pub use device::{open_loopback_workers, open_pair};
pub use endpoint::{Endpoint, Incoming, RdmaError, SleepCounts};
pub use frames::{frames_client, frames_server};
pub use loopback::LoopbackWorker;
pub use open_case::{AtomicWords, wait_for_disconnects};
pub use slices::sum_of;
