//! The objects of libibverbs: protection domains, memory regions and windows, completion channels
//! and queues, queue pairs, shared receive queues.
//!
//! Each begins with the structure that the program sees. The rest is used under the lock of the
//! engine.

mod channel;
mod cq;
mod memory;
mod poll;
mod post;
mod qp;
mod srq;
mod window;

pub(crate) use channel::CompChannel;
pub(crate) use cq::{Cq, destroy_cq, req_notify_cq};
pub(crate) use memory::{Mr, Pd};
pub(crate) use poll::poll_cq;
pub(crate) use post::{post_recv, post_send};
pub(crate) use qp::{Qp, SEND_DEPTH_MAX, destroy_qp};
pub(crate) use srq::{Srq, destroy_srq, post_srq_recv};
pub(crate) use window::{Mw, alloc_mw, bind_mw, dealloc_mw};

use core::ffi::c_int;

use crate::device::AsyncSource;
use crate::engine::State;

impl State {
    /// Counts an asynchronous event of an object as delivered (1) or acknowledged (-1).
    pub(crate) fn count_async(&mut self, source: AsyncSource, change: i32) {
        let count = match source {
            AsyncSource::Qp(qp) => self.pools.qps.find(qp).map(|qp| &mut qp.unacked_async),
            AsyncSource::Cq(cq) => self.pools.cqs.find(cq).map(|cq| &mut cq.unacked_async),
            AsyncSource::Srq(srq) => self.pools.srqs.find(srq).map(|srq| &mut srq.unacked_async),
            AsyncSource::Port => None,
        };
        if let Some(count) = count {
            *count += change;
        }
    }
}

/// Converts a limit for the signed fields of the structures.
pub(crate) fn clamp_int(value: impl TryInto<c_int>) -> c_int {
    value.try_into().unwrap_or(c_int::MAX)
}
