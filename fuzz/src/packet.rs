//! Frames, built and read byte by byte. Nothing here uses an encoder of the stack.

/// The link address of the node: that of the memory port.
pub const NODE_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub const PEER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
pub const NODE_V4: [u8; 4] = [10, 0, 0, 1];
pub const PEER_V4: [u8; 4] = [10, 0, 0, 2];
pub const NODE_V6: [u8; 16] = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
pub const PEER_V6: [u8; 16] = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];

pub const FIN: u8 = 1;
pub const SYN: u8 = 2;
pub const RST: u8 = 4;
pub const ACK: u8 = 16;

const TCP: u8 = 6;
const ICMP: u8 = 1;
const ICMP6: u8 = 58;

/// The ones' complement sum of 16-bit words (RFC 1071).
fn sum(pieces: &[&[u8]]) -> u16 {
    let bytes: Vec<u8> = pieces.concat();
    let words = bytes.chunks(2).map(|two| u32::from(two[0]) << 8 | u32::from(*two.get(1).unwrap_or(&0)));
    let mut total: u32 = words.sum();
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    !(total as u16)
}

pub fn ethernet(ethertype: u16, payload: &[u8]) -> Vec<u8> {
    [&NODE_MAC[..], &PEER_MAC, &ethertype.to_be_bytes(), payload].concat()
}

/// An Ethernet frame with an IP packet from the peer to the node, with correct checksums.
pub fn ip(v6: bool, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = if v6 {
        let len = (payload.len() as u16).to_be_bytes();
        let head = [&[0x60, 0, 0, 0, len[0], len[1], protocol, 255][..], &PEER_V6, &NODE_V6].concat();
        ethernet(0x86dd, &[&head, payload].concat())
    } else {
        let len = (payload.len() as u16 + 20).to_be_bytes();
        let head = [0x45, 0, len[0], len[1], 0, 0, 0x40, 0, 64, protocol, 0, 0];
        ethernet(0x0800, &[&head[..], &PEER_V4, &NODE_V4, payload].concat())
    };
    repair(&mut frame);
    frame
}

/// A TCP segment.
#[derive(Clone, Default)]
pub struct Segment {
    pub src: u16,
    pub dst: u16,
    pub seq: u32,
    pub ack: u32,
    pub flags: u8,
    pub window: u16,
    pub options: Vec<u8>,
    pub payload: Vec<u8>,
}

impl Segment {
    /// The frame of the segment from the peer to the node.
    pub fn frame(&self, v6: bool) -> Vec<u8> {
        let mut options = self.options.clone();
        options.truncate(40);
        options.resize(options.len().next_multiple_of(4), 0);
        let mut tcp = [self.src.to_be_bytes(), self.dst.to_be_bytes()].concat();
        tcp.extend([self.seq.to_be_bytes(), self.ack.to_be_bytes()].concat());
        tcp.extend([((5 + options.len() / 4) << 4) as u8, self.flags]);
        tcp.extend([self.window.to_be_bytes(), [0; 2], [0; 2]].concat());
        tcp.extend(options);
        tcp.extend(&self.payload);
        ip(v6, TCP, &tcp)
    }

    /// Reads a segment that the node sent.
    pub fn read(frame: &[u8]) -> Option<(bool, Segment)> {
        let v6 = match frame.get(12..14)? {
            [0x08, 0x00] => false,
            [0x86, 0xdd] => true,
            _ => return None,
        };
        let head = if v6 { 40 } else { 20 };
        let protocol = if v6 { frame.get(20)? } else { frame.get(23)? };
        let total = usize::from(u16::from_be_bytes(*frame.get(if v6 { 18.. } else { 16.. })?.first_chunk()?));
        let end = 14 + if v6 { total + 40 } else { total };
        let tcp = frame.get(14 + head..end).filter(|_| *protocol == TCP)?;
        let u16_at = |at: usize| Some(u16::from_be_bytes(*tcp.get(at..)?.first_chunk()?));
        let u32_at = |at: usize| Some(u32::from_be_bytes(*tcp.get(at..)?.first_chunk()?));
        let data = usize::from(tcp.get(12)? >> 4) * 4;
        Some((
            v6,
            Segment {
                src: u16_at(0)?,
                dst: u16_at(2)?,
                seq: u32_at(4)?,
                ack: u32_at(8)?,
                flags: *tcp.get(13)?,
                window: u16_at(14)?,
                options: tcp.get(20..data)?.to_vec(),
                payload: tcp.get(data..)?.to_vec(),
            },
        ))
    }
}

/// Makes the lengths and checksums of a frame right where there are any, so that what is behind them is reached.
pub fn repair(frame: &mut [u8]) {
    let Some((link, packet)) = frame.split_at_mut_checked(14) else { return };
    match link[12..] {
        [0x08, 0x00] => repair_v4(packet),
        [0x86, 0xdd] => repair_v6(packet),
        _ => {}
    }
}

fn repair_v4(packet: &mut [u8]) {
    let Some(head) = packet.first().map(|first| usize::from(first & 0xf) * 4) else { return };
    if head < 20 || packet.len() < head {
        return;
    }
    let total = (packet.len() as u16).to_be_bytes();
    packet[2..4].copy_from_slice(&total);
    packet[10..12].fill(0);
    let check = sum(&[&packet[..head]]).to_be_bytes();
    packet[10..12].copy_from_slice(&check);
    let (protocol, addresses) = (packet[9], packet[12..20].to_vec());
    repair_upper(protocol, &addresses, &mut packet[head..]);
}

fn repair_v6(packet: &mut [u8]) {
    if packet.len() < 40 {
        return;
    }
    let payload = (packet.len() as u16 - 40).to_be_bytes();
    packet[4..6].copy_from_slice(&payload);
    let (next, addresses) = (packet[6], packet[8..40].to_vec());
    repair_upper(next, &addresses, &mut packet[40..]);
}

fn repair_upper(protocol: u8, addresses: &[u8], upper: &mut [u8]) {
    let (at, with_pseudo) = match protocol {
        TCP => (16, true),
        ICMP => (2, false),
        ICMP6 => (2, true),
        _ => return,
    };
    if upper.len() < at + 2 {
        return;
    }
    upper[at..at + 2].fill(0);
    let pseudo = [addresses, &(upper.len() as u32).to_be_bytes(), &[0, 0, 0, protocol]].concat();
    let check = if with_pseudo { sum(&[&pseudo, upper]) } else { sum(&[upper]) };
    upper[at..at + 2].copy_from_slice(&check.to_be_bytes());
}

/// CRC-32C, bit by bit.
pub fn crc(octets: &[u8]) -> [u8; 4] {
    let sum = !octets.iter().fold(!0u32, |crc, &octet| {
        (0..8).fold(crc ^ u32::from(octet), |crc, _| (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg()))
    });
    sum.to_le_bytes()
}

/// RFC 5044 s4.1, figure 2.
pub fn fpdu(ulpdu: &[u8]) -> Vec<u8> {
    let mut octets = [&(ulpdu.len() as u16).to_be_bytes()[..], ulpdu].concat();
    octets.resize(octets.len().next_multiple_of(4), 0);
    [&octets[..], &crc(&octets)].concat()
}

/// RFC 5044 s7.1.1, figure 8: a start-up frame of the requester or the responder.
pub fn startup(request: bool, flags: u8, revision: u8, private: &[u8]) -> Vec<u8> {
    let key = if request { b"MPA ID Req Frame" } else { b"MPA ID Rep Frame" };
    [key, &[flags, revision][..], &(private.len() as u16).to_be_bytes(), private].concat()
}
