//! The parts of an object that an application thread and a core share: its handle, attributes and
//! state.
//!
//! `context` and `core_loop` use this module, and it uses neither. A handle is a small copyable
//! value. A handle of a destroyed object, or of another context, is an error and never another
//! object.

mod attr;
mod control;
mod params;
mod timeouts;

use ironwarp_types::QpNum;

pub use attr::{CqAttr, Framing, QpAttr, QpState, ReceiveShare, SrqAttr};
pub(crate) use attr::{QpShared, WORK_DEPTH_MAX, check_range};
pub(crate) use control::QpControl;
pub(crate) use params::CmParams;
pub use params::{AcceptParams, ConnectParams, ListenParams, MpaParams, MpaRevision, RejectParams};
pub use timeouts::KeepAlive;
pub(crate) use timeouts::QpTimeouts;

/// A handle of a queue pair of one context.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct QueuePair {
    pub(crate) index: u32,
    pub(crate) num: QpNum,
}

impl QueuePair {
    /// Returns the number in completions. No other queue pair of the process has it while this one
    /// exists.
    pub fn num(self) -> QpNum {
        self.num
    }

    /// Returns the handle as one number, for callers in other languages.
    pub fn to_bits(self) -> u64 {
        u64::from(self.num.0) << 32 | u64::from(self.index)
    }

    /// Returns the handle of a number from [`QueuePair::to_bits`]. Calls with any other number
    /// fail.
    pub fn from_bits(bits: u64) -> Self {
        QueuePair { index: bits as u32, num: QpNum((bits >> 32) as u32) }
    }
}

/// A handle of a completion queue of one context.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct CompletionQueue {
    pub(crate) index: u32,
    pub(crate) serial: u32,
}

impl CompletionQueue {
    /// Returns the handle as one number, for callers in other languages.
    pub fn to_bits(self) -> u64 {
        u64::from(self.serial) << 32 | u64::from(self.index)
    }

    /// Returns the handle of a number from [`CompletionQueue::to_bits`]. Calls with any other
    /// number fail.
    pub fn from_bits(bits: u64) -> Self {
        CompletionQueue { index: bits as u32, serial: (bits >> 32) as u32 }
    }

    pub(crate) fn table_index(self) -> u32 {
        self.index
    }
}

/// A handle of a shared receive queue of one context.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct SharedReceiveQueue {
    pub(crate) index: u32,
    pub(crate) serial: u32,
}

impl SharedReceiveQueue {
    /// Returns the handle as one number, for callers in other languages.
    pub fn to_bits(self) -> u64 {
        u64::from(self.serial) << 32 | u64::from(self.index)
    }

    /// Returns the handle of a number from [`SharedReceiveQueue::to_bits`]. Calls with any other
    /// number fail.
    pub fn from_bits(bits: u64) -> Self {
        SharedReceiveQueue { index: bits as u32, serial: (bits >> 32) as u32 }
    }
}
