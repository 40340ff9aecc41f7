//! The header of a TCP segment to send (RFC 9293 s3.1), without the ports.

use bitflags::bitflags;
use ironwarp_types::{Ecn, Seq};

/// The size of a header's fixed part, in bytes.
pub const TCP_HEADER_BYTES: usize = 20;

/// The size of NOP NOP TS, which every segment with timestamps carries, in bytes.
pub const TIMESTAMPS_BYTES: usize = 12;

/// NOP, NOP, kind 8, length 10 (RFC 7323 appendix A).
pub const TIMESTAMPS_HEAD: [u8; 4] = [1, 1, 8, 10];

bitflags! {
    /// The control bits.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct TcpFlags: u8 {
        /// No more data from the sender.
        const FIN = 1;
        /// Sequence numbers are synchronised.
        const SYN = 2;
        /// The connection is reset.
        const RST = 4;
        /// The receiver should deliver at once.
        const PSH = 8;
        /// The acknowledgement number is valid.
        const ACK = 16;
        /// The urgent pointer is valid.
        const URG = 32;
        /// RFC 3168 s6.1: the sender received a congestion mark.
        const ECE = 64;
        /// RFC 3168 s6.1: the sender reduced its window.
        const CWR = 128;
    }
}

/// The timestamps option (RFC 7323 s3.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Timestamps {
    /// TSval: the sender's clock.
    pub tsval: u32,
    /// TSecr: the receiver's clock as last received by the sender; meaningless without the ACK bit.
    pub tsecr: u32,
}

/// The header of a segment to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TxHeader {
    /// The sequence number.
    pub seq: Seq,
    /// The acknowledgement number.
    pub ack: Seq,
    /// The window field, already scaled.
    pub window: u16,
    /// The control bits.
    pub flags: TcpFlags,
    /// Placed before all other options.
    pub timestamps: Option<Timestamps>,
    /// The ECN bits of the packet: ECT for payload that is sent for the first time
    /// (RFC 3168 s6.1.5).
    pub ecn: Ecn,
}

impl TxHeader {
    /// Returns the header of a segment without options and with a window of zero.
    pub const fn bare(seq: Seq, ack: Seq, flags: TcpFlags) -> Self {
        TxHeader { seq, ack, window: 0, flags, timestamps: None, ecn: Ecn::NotEct }
    }

    /// Returns the length of the header with timestamps, in bytes: the offset of further options or
    /// of the payload.
    #[inline]
    pub const fn header_bytes(&self) -> usize {
        TCP_HEADER_BYTES + if self.timestamps.is_some() { TIMESTAMPS_BYTES } else { 0 }
    }

    /// Returns the words of a header of `bytes` except that of the checksum: ports, numbers and
    /// control, and three of the timestamps or zeroes.
    #[inline(always)]
    pub(crate) fn words(&self, [local, remote]: [u16; 2], bytes: usize) -> [u32; 7] {
        let ports = u32::from(local) << 16 | u32::from(remote);
        let offset = (bytes as u32 / 4) << 28;
        let control = offset | u32::from(self.flags.bits()) << 16 | u32::from(self.window);
        let [head, tsval, tsecr] = self
            .timestamps
            .map_or([0; 3], |stamps| [u32::from_be_bytes(TIMESTAMPS_HEAD), stamps.tsval, stamps.tsecr]);
        [ports, self.seq.0, self.ack.0, control, head, tsval, tsecr]
    }
}
