//! Atomic operations on registered memory (RFC 7306), each run by the one core that owns the word.
//!
//! Every cache line has one owner: the core it is pinned to, or the one that the hash of its address names
//! ([`CoreId::owner_of`](ironwarp_types::CoreId::owner_of)). The address is looked at after the access check and the
//! tag never is, so two regions, a window and a fast region that name one word lead to one owner. The owner loads,
//! computes and stores; since nobody else does, no lock is taken and no locked instruction issued. Atomicity holds
//! among the cores of one table, so within one process, and not against plain writes of the application or of peers.
//!
//! [`operation`] is the arithmetic, [`word`] the look-up and the change, [`call`] what two cores mail to each other.

mod call;
mod operation;
mod word;

pub use call::{AtomicCall, AtomicReply};
pub use operation::{AtomicOp, Compare, cmp_swap, fetch_add};
pub use word::{AtomicTarget, OwnedWord, Word, WordError};
