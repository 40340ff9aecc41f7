//! What an application thread and a core both know of an object: its handle, its attributes, the state that they share.
//!
//! `context` and `core_loop` use this module, and it uses neither. A handle is a small copyable value. A handle of a
//! destroyed object, or of another context, is an error and never another object.

mod attr;
mod params;
mod timeouts;

use ironwarp_types::QpNum;

pub use attr::{Framing, QpAttr, QpState, ReceiveShare};
pub(crate) use attr::{QpShared, WORK_DEPTH_MAX, check_range};
pub use params::{AcceptParams, ConnectParams, MpaRevision, RejectParams};
pub(crate) use params::{CmParams, MpaParams};
pub use timeouts::KeepAlive;
pub(crate) use timeouts::QpTimeouts;

/// Names a queue pair of one context.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct QueuePair {
    pub(crate) index: u32,
    pub(crate) num: QpNum,
}

impl QueuePair {
    /// The number that completions carry.
    pub fn num(self) -> QpNum {
        self.num
    }

    /// The handle as one number, for callers in another language.
    pub fn to_bits(self) -> u64 {
        u64::from(self.num.0) << 32 | u64::from(self.index)
    }

    /// What [`QueuePair::to_bits`] made a number of. Any other number names nothing, which each call says.
    pub fn from_bits(bits: u64) -> Self {
        QueuePair { index: bits as u32, num: QpNum((bits >> 32) as u32) }
    }
}

/// Names a completion queue of one context.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct CompletionQueue {
    pub(crate) index: u32,
    pub(crate) serial: u32,
}

impl CompletionQueue {
    /// The handle as one number, for callers in another language.
    pub fn to_bits(self) -> u64 {
        u64::from(self.serial) << 32 | u64::from(self.index)
    }

    /// What [`CompletionQueue::to_bits`] made a number of. Any other number names nothing, which each call says.
    pub fn from_bits(bits: u64) -> Self {
        CompletionQueue { index: bits as u32, serial: (bits >> 32) as u32 }
    }

    pub(crate) fn slot(self) -> usize {
        self.index as usize
    }
}

/// Names a shared receive queue of one context.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct SharedReceiveQueue {
    pub(crate) index: u32,
    pub(crate) serial: u32,
}

impl SharedReceiveQueue {
    /// The handle as one number, for callers in another language.
    pub fn to_bits(self) -> u64 {
        u64::from(self.serial) << 32 | u64::from(self.index)
    }

    /// What [`SharedReceiveQueue::to_bits`] made a number of. Any other number names nothing, which each call says.
    pub fn from_bits(bits: u64) -> Self {
        SharedReceiveQueue { index: bits as u32, serial: (bits >> 32) as u32 }
    }
}
