//! Atomic operations on registered memory (RFC 7306), each executed by the core that owns the word.
//!
//! Every cache line has one owner: the core it is pinned to, or the one that the hash of its
//! address selects ([`CoreId::owner_of`](ironwarp_types::CoreId::owner_of)). The owner depends on
//! the address and not on the tag, so all regions, windows and fast regions that contain a word
//! have the same owner for it. The owner loads, computes and stores without locks or locked
//! instructions, since no other core does. Atomicity holds among the cores of one table, that is,
//! within one process. It does not hold against plain writes of the application or of peers.
//!
//! The owner shares a line that other cores want often: from then on every core changes its words
//! itself, with locked instructions. This costs less than a message to another core, and a stream
//! need not wait at each change of owner.
//!
//! [`operation`] is the arithmetic, [`word`] the look-up and the change, [`call`] the messages
//! between two cores, [`sharing`] the lines that are shared.

mod call;
mod operation;
mod sharing;
mod word;

pub use call::{AtomicCall, AtomicReply};
pub use operation::{AtomicOp, Compare, cmp_swap, fetch_add};
pub(crate) use sharing::LineSharing;
pub use sharing::SHARE_AFTER_MAX;
pub use word::{AtomicTarget, ClaimedWord, Word, WordError};
