//! An atomic operation on its way to the word's owner, and the answer on its way back.
//!
//! A core that a request arrives at looks the target up, finds another core to be its owner and mails an
//! [`AtomicCall`]. The owner looks everything up again when it runs it: a tag that was revoked in between, or that
//! lost its right, is refused there, and nothing is touched. Either message is plain data and fits one cache line, with room
//! for the mark that says that it is there.

use crate::access::{Access, AccessError, AccessScope};
use crate::atomic::{AtomicOp, AtomicTarget, WordError};
use crate::view::CoreMem;
use ironwarp_types::{PdId, QpNum, STag};
use std::fmt;

/// An operation for the owner of a word: with the mark of its place in a mailbox, one cache line.
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

// Every field lies as it would unpacked; what is saved is the padding behind the last one.
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
    /// The caller's own number, as it was given.
    pub token: u64,
    /// The stream that the call was for.
    pub qp: QpNum,
    /// The word's value before the operation, in the machine's order.
    pub outcome: Result<u64, WordError>,
}

const _: () = assert!(size_of::<AtomicReply>() < 64);

impl AtomicCall {
    /// A call that will be answered with `token`.
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

    /// What it will be answered with.
    pub fn token(&self) -> u64 {
        self.token
    }

    /// The word that it names.
    pub fn target(&self) -> AtomicTarget {
        AtomicTarget {
            stag: self.stag,
            to: self.to,
            scope: AccessScope::new(self.pd, self.qp),
            need: self.need,
        }
    }

    /// What is to be done to it.
    pub fn operation(&self) -> AtomicOp {
        let [first, second, swap, swap_mask] = self.operands;
        match self.kind {
            Kind::FetchAdd => AtomicOp::FetchAdd { add: first, mask: second },
            Kind::CmpSwap => AtomicOp::CmpSwap { compare: first, compare_mask: second, swap, swap_mask },
            Kind::Swap => AtomicOp::Swap { swap: first },
        }
    }

    /// The answer to a call that comes behind one of its stream that was refused: it must have no effect either.
    pub fn refuse(&self) -> AtomicReply {
        AtomicReply { token: self.token, qp: self.qp, outcome: Err(AccessError::Revoked.into()) }
    }

    /// The stream that it is for.
    pub fn qp(&self) -> QpNum {
        self.qp
    }

    /// Runs the call on the core that it was mailed to. A tag that leads to another owner's word by now was revoked
    /// and given out again since, so it is refused like one that was revoked.
    pub fn run(&self, owner: &CoreMem) -> AtomicReply {
        let word = owner.word(&self.target());
        let owned = word.and_then(|word| word.claim().map_err(|_| AccessError::Revoked.into()));
        AtomicReply {
            token: self.token,
            qp: self.qp,
            outcome: owned.map(|word| word.apply(&self.operation())),
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
