//! What one application thread has: its context, and the objects that it posts work to.
//!
//! Queue pairs, completion queues, shared receive queues and protection domains are numbers in a struct, good in the
//! context that made them: one that was destroyed, or another context's, is an error and never another object.

mod address;
mod connect;
mod context;
mod event;
mod memory;
mod post;
mod queues;
