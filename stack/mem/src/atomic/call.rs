//! An atomic operation on its way to the word's owner core, and the reply.
//!
//! The core that receives a request looks up the target. If another core owns the word, it sends
//! that core an [`AtomicCall`]. The owner repeats the look-up before it executes the call: a tag
//! that was revoked or lost its right in between is refused there, and nothing is accessed. Each
//! message is plain data and fits one cache line together with the mailbox's phase.

use crate::access::{Access, AccessError, AccessScope};
use crate::atomic::{AtomicOp, AtomicTarget, WordError};
use crate::view::CoreMem;
use ironwarp_types::{PdId, QpNum, STag};
use std::fmt;

/// An operation for the owner of a word: one cache line together with the phase of its mailbox
/// slot.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C, packed)]
pub struct AtomicCall {
    token: u64,
    to: u64,
    operands: [u64; 4],
    stag: STag,
    pd: PdId,
    qp: QpNum,
    need: Access,
    kind: Kind,
}

// Every field has the offset that it would have unpacked; only the padding after the last one is
// saved.
const _: () = assert!(size_of::<AtomicCall>() < 64);

#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    FetchAdd,
    CmpSwap,
    Swap,
}

/// The result of an [`AtomicCall`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AtomicReply {
    /// The caller's token.
    pub token: u64,
    /// The stream of the call.
    pub qp: QpNum,
    /// The word's value before the operation, in the machine's order.
    pub outcome: Result<u64, WordError>,
}

const _: () = assert!(size_of::<AtomicReply>() < 64);

impl AtomicCall {
    /// Creates a call whose reply carries `token`.
    pub fn new(token: u64, target: &AtomicTarget, operation: AtomicOp) -> Self {
        let (kind, operands) = match operation {
            AtomicOp::FetchAdd { add, mask } => (Kind::FetchAdd, [add, mask, 0, 0]),
            AtomicOp::CmpSwap { compare, compare_mask, swap, swap_mask } => {
                (Kind::CmpSwap, [compare, compare_mask, swap, swap_mask])
            }
            AtomicOp::Swap { swap } => (Kind::Swap, [swap, 0, 0, 0]),
        };
        let AtomicTarget { stag, to, scope, need } = *target;
        AtomicCall { token, to, operands, stag, pd: scope.pd(), qp: scope.qp(), need, kind }
    }

    /// Returns the token of the reply.
    pub fn token(&self) -> u64 {
        self.token
    }

    /// Returns the word's location.
    pub fn target(&self) -> AtomicTarget {
        AtomicTarget {
            stag: self.stag,
            to: self.to,
            scope: AccessScope::new(self.pd, self.qp),
            need: self.need,
        }
    }

    /// Returns the operation.
    pub fn operation(&self) -> AtomicOp {
        let [first, second, swap, swap_mask] = self.operands;
        match self.kind {
            Kind::FetchAdd => AtomicOp::FetchAdd { add: first, mask: second },
            Kind::CmpSwap => AtomicOp::CmpSwap { compare: first, compare_mask: second, swap, swap_mask },
            Kind::Swap => AtomicOp::Swap { swap: first },
        }
    }

    /// Returns the reply to a call that follows a refused call of its stream: it must have no
    /// effect either.
    pub fn refuse(&self) -> AtomicReply {
        AtomicReply { token: self.token, qp: self.qp, outcome: Err(AccessError::Revoked.into()) }
    }

    /// Returns the stream.
    pub fn qp(&self) -> QpNum {
        self.qp
    }

    /// Executes the call on the owner core. A tag that now names another owner's word was revoked
    /// and reused in between, so it is refused like a revoked one.
    pub fn run(&self, owner: &CoreMem) -> AtomicReply {
        let word = owner.word(&self.target());
        let owned = word.and_then(|word| word.claim_for_call().map_err(|_| AccessError::Revoked.into()));
        AtomicReply {
            token: self.token,
            qp: self.qp,
            outcome: owned.and_then(|word| Ok(word.apply(&self.operation())?)),
        }
    }
}

impl fmt::Debug for AtomicCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AtomicCall")
            .field("token", &self.token())
            .field("target", &self.target())
            .field("operation", &self.operation())
            .finish()
    }
}
