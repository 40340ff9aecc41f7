//! The receive side of one untagged queue (RFC 5041 s4.3, s5.3, s7.1).
//!
//! TCP delivers in order, so a segment must belong to message `msn` and start at the octet after
//! the last placed one. Anything else is refused, because a gap would become a hole in a delivered
//! message. RFC 5041 s5.3 says that senders should not send the segments of a message out of order.

use ironwarp_types::Seq;

use super::{DdpFault, Untagged};

/// The receiving side of one queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct UntaggedQueue {
    msn: Seq,
    /// Octets of the current message that were placed.
    placed: u32,
}

impl UntaggedQueue {
    /// RFC 5041 s4.3: the first message of every queue is number 1.
    pub const fn new() -> Self {
        UntaggedQueue { msn: Seq(1), placed: 0 }
    }

    /// Returns the number of the current or next message.
    pub fn msn(&self) -> u32 {
        self.msn.0
    }

    /// Returns the octets of the current message that were placed.
    pub fn placed(&self) -> u32 {
        self.placed
    }

    /// Returns queue number, message number and offset of the first segment of the next message on
    /// queue 0, as in the header; `None` while a message is incomplete.
    #[inline(always)]
    pub(crate) fn place_of_next(&self) -> Option<[u8; 12]> {
        if self.placed > 0 {
            return None;
        }
        let [a, b, c, d] = self.msn.0.to_be_bytes();
        Some([0, 0, 0, 0, a, b, c, d, 0, 0, 0, 0])
    }

    /// Makes checks 2 to 5 of RFC 5041 s7.1. `buffer` is the size of the buffer posted for message
    /// `msn`, if there is one.
    #[inline]
    pub fn check(
        &self,
        header: &Untagged,
        payload_bytes: usize,
        buffer: Option<u32>,
    ) -> Result<(), DdpFault> {
        // Check 5 comes first: only message `msn` has a buffer that checks 2 to 4 can use.
        if header.msn != self.msn.0 {
            return Err(DdpFault::MsnRange);
        }
        let buffer = buffer.ok_or(DdpFault::NoBuffer)?;
        if header.mo != self.placed {
            return Err(DdpFault::InvalidOffset);
        }
        let end = u64::from(header.mo) + payload_bytes as u64;
        if end > u64::from(buffer) { Err(DdpFault::TooLong) } else { Ok(()) }
    }

    /// Moves past a segment of `payload_bytes` that was checked and placed. Returns the length of
    /// the message if the segment ends it.
    #[inline]
    pub fn advance(&mut self, last: bool, payload_bytes: usize) -> Option<u32> {
        // `check` has compared this sum with a 32-bit buffer size, so it does not wrap.
        let end = self.placed.wrapping_add(payload_bytes as u32);
        if last {
            self.msn = self.msn.plus(1);
            self.placed = 0;
            Some(end)
        } else {
            self.placed = end;
            None
        }
    }
}

impl Default for UntaggedQueue {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(msn: u32, mo: u32) -> Untagged {
        Untagged { last: true, ulp: 0x43, ulp_word: 0, qn: 0, msn, mo }
    }

    /// RFC 5041 s7.1, checks 2 to 5.
    #[test]
    fn each_check_has_its_code() {
        let queue = UntaggedQueue::new();
        assert_eq!(queue.check(&header(1, 0), 8, Some(8)), Ok(()));
        assert_eq!(queue.check(&header(1, 0), 8, None), Err(DdpFault::NoBuffer));
        assert_eq!(queue.check(&header(2, 0), 8, Some(8)), Err(DdpFault::MsnRange));
        assert_eq!(queue.check(&header(0, 0), 8, Some(8)), Err(DdpFault::MsnRange));
        assert_eq!(queue.check(&header(1, 9), 0, Some(8)), Err(DdpFault::InvalidOffset));
        assert_eq!(queue.check(&header(1, 0), 9, Some(8)), Err(DdpFault::TooLong));
    }

    /// RFC 5041 s5.2: offsets continue within a message; s4.3: numbers continue between messages.
    /// RFC 5041 s5.4.
    #[test]
    fn a_segment_must_continue_its_message() {
        let mut queue = UntaggedQueue::new();
        assert_eq!(queue.advance(false, 10), None);
        assert_eq!(queue.check(&header(1, 10), 5, Some(15)), Ok(()));
        assert_eq!(queue.check(&header(1, 11), 4, Some(15)), Err(DdpFault::InvalidOffset));
        assert_eq!(queue.advance(true, 5), Some(15));
        assert_eq!((queue.msn(), queue.placed()), (2, 0));
    }

    /// RFC 5041 s4.3: the number after 0xFFFFFFFF is 0.
    #[test]
    fn message_numbers_wrap() {
        let mut queue = UntaggedQueue { msn: Seq(u32::MAX), placed: 0 };
        assert_eq!(queue.check(&header(u32::MAX, 0), 0, Some(0)), Ok(()));
        queue.advance(true, 0);
        assert_eq!(queue.check(&header(0, 0), 0, Some(0)), Ok(()));
    }

    #[test]
    fn an_offset_near_2_32_does_not_overflow() {
        let queue = UntaggedQueue { msn: Seq(1), placed: u32::MAX };
        assert_eq!(queue.check(&header(1, u32::MAX), 65_535, Some(u32::MAX)), Err(DdpFault::TooLong));
    }
}
