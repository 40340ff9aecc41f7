//! Segments of established connections, read at fixed offsets.
//!
//! Most segments of an established connection differ from the previous one in sequence numbers,
//! window, timestamps and length only. [`Net::fast_frame`] recognises their layout in one pass over
//! 66 bytes. TCP then looks up the connection by the flow's key, compares the fields that it
//! predicts and asks for the checksums. A frame that fails any of these takes [`Net::on_frame`].
//!
//! ```text
//! 0      14         34        54                         66
//! | link | IPv4, 20 | TCP, 20 | NOP NOP TS, 12 (or none) | payload
//! ```

use core::net::Ipv4Addr;

use ironwarp_port::{Checksum, Frame, RxMeta};
use ironwarp_types::{Ecn, FlowKeyV4, Seq};

use crate::checksum::{self, fold};
use crate::config::TransportProtocol;
use crate::family::Address;
use crate::ip::IPV4_BYTES;
use crate::link::ETHERNET_BYTES;
use crate::net::Net;
use crate::path::Path;
use crate::tcp_header::{TCP_HEADER_BYTES, TIMESTAMPS_BYTES, TIMESTAMPS_HEAD, Timestamps};

/// The timestamps option after two NOPs (RFC 7323 appendix A).
const STAMPS: u32 = u32::from_le_bytes(TIMESTAMPS_HEAD);

/// The lengths of the link header and of an IPv4 header without options.
const HEADERS_V4_BYTES: usize = ETHERNET_BYTES + IPV4_BYTES;

/// Where payload starts without options, and with timestamps.
const BARE_BYTES: usize = HEADERS_V4_BYTES + TCP_HEADER_BYTES;
const HEADERS_BYTES: usize = BARE_BYTES + TIMESTAMPS_BYTES;

/// Data offset and flags, little-endian: all flags but PSH, and the offsets of a header without
/// options and with timestamps. Reserved bits are not compared.
const CONTROL_MASK: u32 = u32::from_le_bytes([0xf0, 0xf7, 0, 0]);
const CONTROL_BARE: u32 = u32::from_le_bytes([0x50, 0x10, 0, 0]);
const CONTROL_TIMESTAMPS: u32 = u32::from_le_bytes([0x80, 0x10, 0, 0]);

/// EtherType IPv4, version 4 and a header without options; the type of service is not compared.
/// This word and those below are little-endian.
const FAST_V4: u32 = u32::from_le_bytes([8, 0, 0x45, 0]);
const FAST_V4_MASK: u32 = u32::from_le_bytes([0xff, 0xff, 0xff, 0]);

/// No fragment, and protocol TCP. "Do not fragment", the reserved bit and the time to live are not
/// compared.
const WHOLE_TCP: u32 = u32::from_le_bytes([0, 0, 0, 6]);
const WHOLE_TCP_MASK: u32 = u32::from_le_bytes([0x3f, 0xff, 0, 0xff]);

/// The destination address, and the multicast bit of the source address.
const MAC_MASK: u64 = u64::from_le_bytes([0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0]);

/// Returns the little-endian word at offset `AT`. Words are read whole: the compiler does not join
/// loads of single bytes under a mask.
#[inline(always)]
fn word32<const AT: usize>(bytes: &[u8]) -> u32 {
    bytes.get(AT..).and_then(<[u8]>::first_chunk).map_or(0, |word| u32::from_le_bytes(*word))
}

/// [`word32`] of eight bytes.
#[inline(always)]
fn word64<const AT: usize>(bytes: &[u8]) -> u64 {
    bytes.get(AT..).and_then(<[u8]>::first_chunk).map_or(0, |word| u64::from_le_bytes(*word))
}

/// A frame to us with a TCP segment over IPv4, without a VLAN tag: ACK and perhaps PSH are set, and
/// there is no option but timestamps. Its checksums are not verified.
pub struct FastFrame<'a> {
    header: &'a [u8; HEADERS_BYTES],
    /// The segment from the TCP header on, without link padding.
    l4: &'a [u8],
    has_timestamps: bool,
}

impl Net {
    /// Returns the headers of a fast frame, or `None` for any other frame: all of them in a VLAN. A
    /// frame shorter than the headers with timestamps is never fast.
    #[inline(always)]
    pub fn fast_frame<'a, F: Frame>(&self, frame: &'a F) -> Option<FastFrame<'a>> {
        let bytes = frame.bytes();
        let header = bytes.first_chunk::<HEADERS_BYTES>()?;
        let control = word32::<46>(header) & CONTROL_MASK;
        let has_timestamps = control == CONTROL_TIMESTAMPS && word32::<54>(header) == STAMPS;
        let is_fast = (has_timestamps || control == CONTROL_BARE)
            && word64::<0>(header) & MAC_MASK == self.fast_mac_word
            && word32::<12>(header) & FAST_V4_MASK == FAST_V4
            && word32::<20>(header) & WHOLE_TCP_MASK == WHOLE_TCP;
        if !is_fast {
            return None;
        }
        let end = usize::from((word32::<16>(header) as u16).swap_bytes()) + ETHERNET_BYTES;
        let fast = FastFrame { header, l4: bytes.get(HEADERS_V4_BYTES..end)?, has_timestamps };
        if usize::from(fast.start()) <= end { Some(fast) } else { None }
    }

    /// Returns the hash of a fast frame's flow, as [`FlowHasher::hash`](crate::FlowHasher::hash).
    #[inline(always)]
    pub fn hash_of(&self, key: FlowKeyV4) -> u32 {
        self.hasher.hash_key_v4(key)
    }

    /// Returns whether a fast frame of a connection is acceptable: its addresses still are, and its
    /// checksums are correct. [`Checksum::Unknown`] leaves TCP's checksum to
    /// [`FastFrame::is_sum_correct`].
    #[inline(always)]
    pub fn accepts_fast(&self, frame: &FastFrame<'_>, rx: RxMeta) -> Checksum {
        let (remote, local) = frame.addresses();
        let is_header_correct = || {
            let header =
                frame.header.first_chunk::<HEADERS_V4_BYTES>().and_then(|header| header.last_chunk());
            header.is_some_and(|header| fold(checksum::sum_header(header)) == 0xffff)
        };
        let is_acceptable = self.local.accepts_connected_v4(remote, local)
            && match rx.ip_checksum {
                Checksum::Unknown => is_header_correct(),
                known => known == Checksum::Good,
            };
        if is_acceptable { rx.l4_checksum } else { Checksum::Bad }
    }
}

impl FastFrame<'_> {
    /// Returns addresses and ports.
    #[inline(always)]
    pub fn key(&self) -> FlowKeyV4 {
        FlowKeyV4 { addresses: word64::<26>(self.header), ports: word32::<34>(self.header) }
    }

    /// Returns the remote and the local address.
    #[inline(always)]
    pub(super) fn addresses(&self) -> (Ipv4Addr, Ipv4Addr) {
        let address = |word: u32| Ipv4Addr::from_bits(word.swap_bytes());
        (address(word32::<26>(self.header)), address(word32::<30>(self.header)))
    }

    /// Returns the segment from the TCP header on, without link padding, and the length of that
    /// header in bytes.
    #[inline(always)]
    pub fn segment(&self) -> (&[u8], usize) {
        (self.l4, usize::from(self.start()) - HEADERS_V4_BYTES)
    }

    /// Returns whether TCP's checksum is correct. `sum` is that of [`FastFrame::segment`], as
    /// [`checksum::sum`](ironwarp_arch::checksum::sum) returns it, and `path` the connection's.
    #[inline(always)]
    pub fn is_sum_correct(&self, path: &Path, sum: u32) -> bool {
        let (remote, local) = self.addresses();
        debug_assert_eq!(
            fold(path.pseudo_sum()),
            fold(local.sum() + remote.sum() + u32::from(TransportProtocol::TCP.number))
        );
        // Three sums of 16-bit words: 32 bits hold them.
        fold(path.pseudo_sum().wrapping_add(self.l4.len() as u32).wrapping_add(sum)) == 0xffff
    }

    /// Returns the sequence number.
    #[inline(always)]
    pub fn seq(&self) -> Seq {
        Seq(word32::<38>(self.header).swap_bytes())
    }

    /// Returns the acknowledgement number.
    #[inline(always)]
    pub fn ack(&self) -> Seq {
        Seq(word32::<42>(self.header).swap_bytes())
    }

    /// Returns the window field, not scaled.
    #[inline(always)]
    pub fn window(&self) -> u16 {
        ((word32::<46>(self.header) >> 16) as u16).swap_bytes()
    }

    /// Returns the timestamps.
    #[inline(always)]
    pub fn timestamps(&self) -> Option<Timestamps> {
        self.has_timestamps.then(|| Timestamps {
            tsval: word32::<58>(self.header).swap_bytes(),
            tsecr: word32::<62>(self.header).swap_bytes(),
        })
    }

    /// Returns the ECN bits of the IP header.
    #[inline(always)]
    pub fn ecn(&self) -> Ecn {
        let [_, tos, ..] = word32::<14>(self.header).to_le_bytes();
        Ecn::from_bits(tos)
    }

    /// Returns the offset of the payload in the frame, in bytes.
    #[inline(always)]
    pub fn start(&self) -> u16 {
        if self.has_timestamps { HEADERS_BYTES as u16 } else { BARE_BYTES as u16 }
    }

    /// Returns the offset of the end of the payload in the frame, in bytes. Link padding may
    /// follow.
    #[inline(always)]
    pub fn end(&self) -> u16 {
        (HEADERS_V4_BYTES + self.l4.len()) as u16
    }
}
