//! The tests that run over our stack, and the raw frames that run over its device.
//!
//! Both ends open the same case: a completion queue, and for each queue pair a [`lanes::Lane`] with the memory that
//! the test reads and writes. The near end connects; where each end's memory lies travels as private data. A slice is
//! then a loop of ours around the worker's: post, poll the worker, reap.

mod case;
mod device;
mod endpoint;
mod frames;
mod lanes;
mod line;
mod slices;
mod station;

pub use case::{OpenRdma, accept};
pub use device::{open_pair, open_stations};
pub use endpoint::{Call, Endpoint, RdmaError, Sleeps};
pub use frames::{frames_far, frames_near};
pub use lanes::{Words, wait_for_ends};
pub use slices::sum_of;
pub use station::Station;
