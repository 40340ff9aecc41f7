//! MPA: start-up frames, FPDUs, markers, CRCs.
//!
//! Sources: RFC 5044 s4 and s7.1.1, RFC 3720 s12.1 (CRC-32C).

/// Octets of a start-up frame before its private data.
pub const STARTUP_BYTES: usize = 20;

/// The flags of a start-up frame: markers, CRC, rejection.
pub const MARKERS: u8 = 0x80;
/// See above.
pub const CRC: u8 = 0x40;
/// See above.
pub const REJECTED: u8 = 0x20;

/// A request, figure 8.
pub fn request(flags: u8, revision: u8, private: &[u8]) -> Vec<u8> {
    startup(b"MPA ID Req Frame", flags, revision, private)
}

/// A reply.
pub fn reply(flags: u8, revision: u8, private: &[u8]) -> Vec<u8> {
    startup(b"MPA ID Rep Frame", flags, revision, private)
}

fn startup(key: &[u8; 16], flags: u8, revision: u8, private: &[u8]) -> Vec<u8> {
    [key, &[flags, revision][..], &(private.len() as u16).to_be_bytes(), private].concat()
}

/// The flags of the reply at the front of `octets` and its length, once all of it is there. Other
/// octets are an error.
pub fn read_reply(octets: &[u8]) -> Option<Result<(u8, usize), String>> {
    let head = octets.first_chunk::<STARTUP_BYTES>()?;
    if !head.starts_with(b"MPA ID Rep Frame") {
        return Some(Err(format!("the reply to a start-up frame is {head:02x?}")));
    }
    let bytes = STARTUP_BYTES + usize::from(u16::from_be_bytes([head[18], head[19]]));
    (octets.len() >= bytes).then_some(Ok((head[16], bytes)))
}

/// CRC-32C in the order of the wire: the least significant octet first.
pub fn crc(octets: &[u8]) -> [u8; 4] {
    let step = |crc: u32, octet: &u8| CRC_TABLE[usize::from(crc as u8 ^ octet)] ^ crc >> 8;
    (!octets.iter().fold(!0, step)).to_le_bytes()
}

/// The CRC of each octet, bit by bit from the polynomial (RFC 3385 s4).
const CRC_TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut octet = 0;
    while octet < 256 {
        let (mut crc, mut bit) = (octet as u32, 0);
        while bit < 8 {
            crc = crc >> 1 ^ 0x82f6_3b78 & (crc & 1).wrapping_neg();
            bit += 1;
        }
        table[octet] = crc;
        octet += 1;
    }
    table
};

/// An FPDU without markers.
pub fn fpdu(ulpdu: &[u8]) -> Vec<u8> {
    Framer::new(false).fpdu(ulpdu, Damage::None)
}

/// The ULPDU at the front of `octets` and the length of its FPDU without markers, once it is
/// complete. Panics if the CRC is wrong.
#[track_caller]
pub fn ulpdu(octets: &[u8]) -> Option<(Vec<u8>, usize)> {
    let length = usize::from(u16::from_be_bytes(*octets.first_chunk()?));
    let whole = (2 + length).next_multiple_of(4) + 4;
    let (covered, field) = octets.get(..whole)?.split_at(whole - 4);
    assert_eq!(crc(covered), *field, "a wrong CRC behind {covered:02x?}");
    Some((covered[2..2 + length].to_vec(), whole))
}

/// The defect of an FPDU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Damage {
    /// Nothing.
    None,
    /// Its CRC.
    Crc,
    /// Its markers, with a valid CRC.
    Markers,
}

/// Builds the FPDUs of one direction of a stream.
#[derive(Clone, Debug)]
pub struct Framer {
    /// Whether the peer requested markers.
    pub markers: bool,
    /// Octets of the stream so far, start-up frame excluded.
    pub position: usize,
}

impl Framer {
    /// The state before the first FPDU.
    pub fn new(markers: bool) -> Self {
        Framer { markers, position: 0 }
    }

    /// The next FPDU.
    pub fn fpdu(&mut self, ulpdu: &[u8], damage: Damage) -> Vec<u8> {
        let mut words = [&(ulpdu.len() as u16).to_be_bytes()[..], ulpdu].concat();
        words.resize(words.len().next_multiple_of(4), 0);
        let (mut out, mut head) = (Vec::new(), None);
        for word in words.chunks(4) {
            self.mark(&mut out, head, damage);
            head.get_or_insert(out.len());
            out.extend(word);
        }
        self.mark(&mut out, head, damage);
        let mut crc = crc(&out);
        crc[0] ^= u8::from(damage == Damage::Crc);
        out.extend(crc);
        self.position += out.len();
        out
    }

    /// RFC 5044 s4.3: every 512 octets a marker, with the distance from the length field, or 0
    /// before it.
    fn mark(&self, out: &mut Vec<u8>, head: Option<usize>, damage: Damage) {
        if self.markers && (self.position + out.len()).is_multiple_of(512) {
            let back = head.map_or(0, |head| out.len() - head) as u16;
            let back = if damage == Damage::Markers { back ^ 4 } else { back };
            out.extend([&[0, 0], &back.to_be_bytes()[..]].concat());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 3720 B.4: 32 octets of zeros.
    #[test]
    fn the_crc_is_castagnolis() {
        assert_eq!(crc(&[0; 32]), 0x8a91_36aa_u32.to_le_bytes());
        assert_eq!(crc(b"123456789"), 0xe306_9283_u32.to_le_bytes());
    }

    /// RFC 5044 s4.3: a marker every 512 bytes, the first right before the first FPDU.
    #[test]
    fn markers_point_back_to_their_fpdu() {
        let first = Framer::new(true).fpdu(&[7; 600], Damage::None);
        assert_eq!(first[..6], [0, 0, 0, 0, 0x02, 0x58]);
        assert_eq!(first[512..516], [0, 0, 0x01, 0xfc]);
        assert_eq!(first.len(), 4 + 604 + 4 + 4);
    }
}
