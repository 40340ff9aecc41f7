//! A unit that was pulled and is not acknowledged.

use ironwarp_port::Sealed;
use ironwarp_types::Seq;

/// Immutable payload and its sequence range. The frame is the one that it was pulled into; what is sent again is a
/// fresh frame with a copy of a range of it, since the driver may still hold this one.
pub(crate) struct Unit<S> {
    pub(crate) sealed: S,
    pub(crate) seq: Seq,
    pub(crate) len: u16,
    /// Where the payload begins in the frame.
    pub(crate) payload_at: u16,
}

impl<S: Sealed> Unit<S> {
    #[inline]
    pub(crate) fn seq_end(&self) -> Seq {
        self.seq.plus(u32::from(self.len))
    }

    /// Whether the byte numbered `seq` lies in this unit.
    pub(crate) fn holds(&self, seq: Seq) -> bool {
        self.seq.leq(seq) && seq.lt(self.seq_end())
    }

    /// The bytes from `seq`, at most `len` of them.
    pub(crate) fn range(&self, seq: Seq, len: usize) -> &[u8] {
        let skip = seq.since(self.seq).min(u32::from(self.len)) as usize;
        let from = usize::from(self.payload_at) + skip;
        let to = usize::from(self.payload_at) + (skip + len).min(usize::from(self.len));
        self.sealed.bytes().get(from..to).unwrap_or_default()
    }
}
