//! Identifiers, each a type of its own.

use core::fmt;

/// A polled core: an index into the stack's list of workers, not a processor number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct CoreId(pub u16);

/// A queue pair, unique in its process for as long as it exists.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct QpNum(pub u32);

/// A protection domain: a region and a queue pair must share one for access to be granted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct PdId(pub u32);

/// A steering tag: the name under which memory is reached, locally and from the peer (RFC 5041 s4.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct STag(pub u32);

impl fmt::Debug for STag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x}", self.0)
    }
}

impl fmt::Display for STag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x}", self.0)
    }
}
