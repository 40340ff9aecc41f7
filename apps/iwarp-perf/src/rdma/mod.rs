//! Tests over the stack, and raw frames over its device.
//!
//! Both ends open the same case: a completion queue, and for each queue pair an
//! [`open_case::QpContext`] with its memory. The client connects; the private data of both ends
//! describes their memory. A slice is a loop: post, poll the worker, reap.

mod case;
mod control_channel;
mod device;
mod endpoint;
mod frames;
mod loopback;
mod open_case;
mod slices;

pub use case::{RdmaCase, accept, wait_for_disconnects};
pub use device::{open_loopback_workers, open_pair};
pub use endpoint::{Endpoint, SleepCounts, polls_of, start_meter};
pub use frames::{frames_client, frames_server};
pub use loopback::{DoneGuard, LoopbackWorker};
pub use open_case::{AtomicWords, QueueSizes};
pub use slices::{open_case, sum_of};
