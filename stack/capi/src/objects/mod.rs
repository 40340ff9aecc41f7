//! The objects of one application thread: its context, and the queues that it posts work to.
//!
//! Queue pairs, completion queues, shared receive queues and protection domains are numbers in a
//! struct, valid in the context that created them. One that was destroyed, or of another context,
//! is an error and never another object.

mod address;
mod connect;
mod context;
mod event;
mod memory;
mod port;
mod post;
mod queues;
mod send_wr;

pub use address::*;
pub use connect::*;
pub use context::*;
pub use event::*;
pub use memory::*;
pub use port::*;
pub use post::*;
pub use queues::*;
