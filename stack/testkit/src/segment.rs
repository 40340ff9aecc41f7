//! A TCP segment (RFC 9293 s3.1).

use core::net::IpAddr;

use crate::frame::{Route, TCP, checksum, pseudo_header};

/// The control bits.
pub const FIN: u8 = 1;
/// See above.
pub const SYN: u8 = 2;
/// See above.
pub const RST: u8 = 4;
/// See above.
pub const PSH: u8 = 8;
/// See above.
pub const ACK: u8 = 16;
/// See above.
pub const URG: u8 = 32;

/// The fields of a segment.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Segment {
    /// The sender's port.
    pub src_port: u16,
    /// The receiver's port.
    pub dst_port: u16,
    /// The sequence number.
    pub seq: u32,
    /// The acknowledgement number.
    pub ack: u32,
    /// The data offset in words of four octets, if not the one that fits the options.
    pub offset: Option<u8>,
    /// The reserved bits.
    pub reserved: u8,
    /// The control bits.
    pub flags: u8,
    /// The window, not scaled.
    pub window: u16,
    /// The checksum, if not the correct one.
    pub checksum: Option<u16>,
    /// The urgent pointer.
    pub urgent: u16,
    /// The options, of at most 40 octets; padded to whole words.
    pub options: Vec<u8>,
    /// The payload.
    pub payload: Vec<u8>,
}

/// The scale of the windows after a SYN of [`Segment::new`].
pub(crate) const WINDOW_SCALE: u8 = 7;

/// Maximum segment size 1460, window scale, selective acknowledgements.
const SYN_OPTIONS: [u8; 12] = [2, 4, 5, 0xb4, 1, 3, 3, WINDOW_SCALE, 4, 2, 1, 1];

impl Segment {
    /// A segment without payload from `ports[0]` to `ports[1]`, with a window of 65535. A SYN
    /// offers what a usual one does, except timestamps.
    pub fn new(ports: [u16; 2], flags: u8, seq: u32, ack: u32) -> Self {
        let [src_port, dst_port] = ports;
        let options = if flags & SYN != 0 { SYN_OPTIONS.to_vec() } else { Vec::new() };
        let ack = if flags & ACK != 0 { ack } else { 0 };
        Segment { src_port, dst_port, seq, ack, flags, window: 0xffff, options, ..Segment::default() }
    }

    /// The frame of the segment.
    pub fn frame(&self, route: Route) -> Vec<u8> {
        let mut options = self.options.clone();
        options.truncate(40);
        options.resize(options.len().next_multiple_of(4), 0);
        let offset = self.offset.unwrap_or(5 + (options.len() / 4) as u8);
        let mut tcp = [self.src_port, self.dst_port].map(u16::to_be_bytes).concat();
        tcp.extend([self.seq, self.ack].map(u32::to_be_bytes).concat());
        tcp.extend([offset << 4 | self.reserved & 15, self.flags]);
        tcp.extend([self.window, 0, self.urgent].map(u16::to_be_bytes).concat());
        tcp.extend(options);
        tcp.extend(&self.payload);
        let mut frame = route.packet(TCP, &tcp);
        if let Some(checksum) = self.checksum {
            let at = frame.len() - tcp.len() + 16;
            frame[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
        }
        frame
    }

    /// Reads a frame. Returns `None` if it holds no segment that is well-formed.
    pub fn read(frame: &[u8]) -> Option<(Route, Segment)> {
        Segment::parse(frame).ok()?
    }

    /// Parses a frame with or without a VLAN tag. Returns `None` if it holds no TCP segment, and an
    /// error if a length or a checksum is wrong.
    pub fn parse(frame: &[u8]) -> Result<Option<(Route, Segment)>, &'static str> {
        let link_bytes = if frame.get(12..14) == Some(&[0x81, 0x00]) { 18 } else { 14 };
        let Some((link, packet)) = frame.split_at_checked(link_bytes) else { return Ok(None) };
        let half = |bytes: &[u8], at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let word =
            |bytes: &[u8], at: usize| u32::from(half(bytes, at)) << 16 | u32::from(half(bytes, at + 2));
        let v6 = match half(link, link_bytes - 2) {
            0x0800 => false,
            0x86dd => true,
            _ => return Ok(None),
        };
        let head = packet.get(..if v6 { 40 } else { 20 }).ok_or("a short header")?;
        let (end, protocol, addresses) = match v6 {
            false => (usize::from(half(head, 2)), head[9], &head[12..20]),
            true => (usize::from(half(head, 4)) + 40, head[6], &head[8..40]),
        };
        if !v6 && checksum(&[head]) != 0 {
            return Err("the IPv4 header's checksum is wrong");
        }
        let tcp = packet.get(head.len()..end).ok_or("the packet is longer than its frame")?;
        if !v6 && half(head, 6) & 0x3fff != 0 {
            return Err("a fragment");
        }
        if protocol != TCP {
            return Ok(None);
        }
        if checksum(&[&pseudo_header(TCP, addresses, tcp.len()), tcp]) != 0 {
            return Err("the TCP checksum is wrong");
        }
        let offset = usize::from(tcp.get(12).ok_or("a short TCP header")? >> 4) * 4;
        let options = tcp.get(20..offset).ok_or("an invalid data offset")?.to_vec();
        let ips = match addresses.as_chunks::<4>().0 {
            [from, to] => [IpAddr::from(*from), IpAddr::from(*to)],
            _ => [0, 16].map(|at| IpAddr::from(*addresses[at..].first_chunk::<16>().unwrap_or(&[0; 16]))),
        };
        let mac = |at: usize| *link[at..].first_chunk().unwrap_or(&[0; 6]);
        let segment = Segment {
            src_port: half(tcp, 0),
            dst_port: half(tcp, 2),
            seq: word(tcp, 4),
            ack: word(tcp, 8),
            flags: tcp[13],
            window: half(tcp, 14),
            urgent: half(tcp, 18),
            options,
            payload: tcp[offset..].to_vec(),
            ..Segment::default()
        };
        Ok(Some((Route { macs: [mac(6), mac(0)], ips }, segment)))
    }

    /// Returns whether all of these control bits are set.
    pub fn has(&self, flags: u8) -> bool {
        self.flags & flags == flags
    }

    /// The number of sequence numbers that it takes.
    pub fn seq_len(&self) -> u32 {
        self.payload.len() as u32 + u32::from(self.has(SYN)) + u32::from(self.has(FIN))
    }
}
