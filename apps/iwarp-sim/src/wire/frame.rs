//! Parses a TCP segment from a frame, without any of the stack's code.
//!
//! Sources: RFC 791 s3.1, RFC 8200 s3, RFC 9293 s3.1, RFC 7323 s2.2, RFC 1071.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// A segment.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    /// Its source.
    pub from: SocketAddr,
    /// Its destination.
    pub to: SocketAddr,
    /// Its sequence number.
    pub seq: u32,
    /// Its acknowledgement number, if the ACK flag is set.
    pub ack: Option<u32>,
    /// Whether SYN is set.
    pub syn: bool,
    /// Whether FIN is set.
    pub fin: bool,
    /// Whether RST is set.
    pub rst: bool,
    /// The window field, not scaled.
    pub window: u16,
    /// The window scale of a SYN.
    pub scale: Option<u8>,
    /// Its payload.
    pub payload: &'a [u8],
}

/// Parses a frame. Returns `None` when it holds no TCP segment, and an error when the segment is invalid.
pub fn read(frame: &[u8]) -> Result<Option<Segment<'_>>, String> {
    let (ethertype, l3) = match frame.get(12..14) {
        Some([0x81, 0x00]) => (frame.get(16..18), 18),
        other => (other, 14),
    };
    match ethertype {
        Some([0x08, 0x00]) => read_v4(frame.get(l3..).unwrap_or_default()),
        Some([0x86, 0xdd]) => read_v6(frame.get(l3..).unwrap_or_default()),
        _ => Ok(None),
    }
}

fn read_v4(packet: &[u8]) -> Result<Option<Segment<'_>>, String> {
    let header_bytes = 4 * usize::from(packet.first().ok_or("an empty packet")? & 0x0f);
    let header = packet.get(..header_bytes).filter(|header| header.len() >= 20).ok_or("a short header")?;
    if fold(sum(header)) != 0xffff {
        return Err("the IPv4 header's checksum is wrong".into());
    }
    let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let segment = packet.get(header_bytes..total).ok_or("the packet is longer than its frame")?;
    if u16::from_be_bytes([header[6], header[7]]) & 0x3fff != 0 {
        return Err("a fragment".into());
    }
    if header[9] != 6 {
        return Ok(None);
    }
    let address =
        |at: usize| IpAddr::V4(Ipv4Addr::new(header[at], header[at + 1], header[at + 2], header[at + 3]));
    read_tcp(segment, sum(&header[12..20]), [address(12), address(16)]).map(Some)
}

fn read_v6(packet: &[u8]) -> Result<Option<Segment<'_>>, String> {
    let header = packet.first_chunk::<40>().ok_or("a short header")?;
    let bytes = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let segment = packet.get(40..40 + bytes).ok_or("the packet is longer than its frame")?;
    if header[6] != 6 {
        return Ok(None);
    }
    let address = |at: usize| {
        let mut octets = [0; 16];
        octets.copy_from_slice(&header[at..at + 16]);
        IpAddr::V6(Ipv6Addr::from(octets))
    };
    read_tcp(segment, sum(&header[8..40]), [address(8), address(24)]).map(Some)
}

fn read_tcp(segment: &[u8], addresses: u64, [from, to]: [IpAddr; 2]) -> Result<Segment<'_>, String> {
    if fold(addresses + 6 + segment.len() as u64 + sum(segment)) != 0xffff {
        return Err("the TCP checksum is wrong".into());
    }
    let header = segment.first_chunk::<20>().ok_or("a short TCP header")?;
    let offset = 4 * usize::from(header[12] >> 4);
    let options = segment.get(20..offset).ok_or("an invalid data offset")?;
    let word = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let long = |at: usize| u32::from(word(at)) << 16 | u32::from(word(at + 2));
    let flags = header[13];
    Ok(Segment {
        from: SocketAddr::new(from, word(0)),
        to: SocketAddr::new(to, word(2)),
        seq: long(4),
        ack: (flags & 0x10 != 0).then_some(long(8)),
        syn: flags & 0x02 != 0,
        fin: flags & 0x01 != 0,
        rst: flags & 0x04 != 0,
        window: word(14),
        scale: scale_of(options)?,
        payload: segment.get(offset..).unwrap_or_default(),
    })
}

fn scale_of(mut options: &[u8]) -> Result<Option<u8>, String> {
    loop {
        match options {
            [] | [0, ..] => return Ok(None),
            [1, rest @ ..] => options = rest,
            [3, 3, scale, ..] => return Ok(Some(*scale)),
            [_, len, ..] if (2..=options.len()).contains(&usize::from(*len)) => {
                options = &options[usize::from(*len)..]
            }
            _ => return Err(format!("invalid TCP options: {options:?}")),
        }
    }
}

fn sum(bytes: &[u8]) -> u64 {
    let (pairs, odd) = bytes.as_chunks::<2>();
    let last = odd.first().map_or(0, |byte| u64::from(*byte) << 8);
    last + pairs.iter().map(|pair| u64::from(u16::from_be_bytes(*pair))).sum::<u64>()
}

fn fold(mut sum: u64) -> u64 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum
}
