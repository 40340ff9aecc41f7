//! A decoder that shares no code with the stack: it reads the figures of the RFCs octet by octet.
//!
//! The input is a start-up frame, or the octets of one direction in full operation. The output is
//! every field. Anything that a figure forbids is an error: lengths that do not fit, padding that
//! is not zero, wrong CRCs, wrong marker pointers.

use super::vector::Reading;

type Read<T> = Result<T, String>;

/// The framing that start-up negotiated for one direction.
#[derive(Clone, Copy, Debug)]
pub struct Framing {
    pub crc: bool,
    pub markers: bool,
}

/// The octets that remain; reads remove them from the front.
struct Octets<'a>(&'a [u8]);

impl<'a> Octets<'a> {
    fn take(&mut self, count: usize) -> Read<&'a [u8]> {
        let (taken, rest) =
            self.0.split_at_checked(count).ok_or(format!("{} octets are short", self.0.len()))?;
        self.0 = rest;
        Ok(taken)
    }

    /// Reads a number, most significant octet first, as in RFC 5040 s4, RFC 5041 s4 and
    /// RFC 5044 s4.
    fn number(&mut self, octets: usize) -> Read<u64> {
        Ok(self.take(octets)?.iter().fold(0, |number, octet| number << 8 | u64::from(*octet)))
    }
}

/// RFC 5044 s7.1.1 figure 8; RFC 6581 s6 and s9 if S is set in revision 2.
pub fn startup(frame: &[u8]) -> Read<Reading> {
    let (mut octets, mut reading) = (Octets(frame), Reading::default());
    reading.octets("key", octets.take(16)?);
    let (flags, revision) = (octets.number(1)?, octets.number(1)?);
    for (name, shift) in [("m", 7), ("c", 6), ("r", 5)] {
        reading.number(name, flags >> shift & 1);
    }
    let enhanced = revision == 2 && flags >> 4 & 1 == 1;
    if revision == 2 {
        reading.number("s", flags >> 4 & 1);
        reading.number("res", flags & 0xf);
    } else {
        reading.number("res", flags & 0x1f);
    }
    reading.number("rev", revision);
    let length = octets.number(2)?;
    reading.number("pd_length", length);
    if length != octets.0.len() as u64 || length > 512 {
        return Err(format!("{length} octets of private data and not {}", octets.0.len()));
    }
    if enhanced {
        for names in [["flag_a", "flag_b", "ird"], ["flag_c", "flag_d", "ord"]] {
            let word = octets.number(2)?;
            let parts = [word >> 15, word >> 14 & 1, word & 0x3fff];
            names.iter().zip(parts).for_each(|(name, part)| reading.number(name, part));
        }
    }
    reading.octets("private_data", octets.0);
    Ok(reading)
}

/// RFC 5044 s4: the FPDUs of a stream from its first octet in full operation.
pub fn fpdus(stream: &[u8], framing: Framing) -> Read<Reading> {
    let (mut at, mut reading) = (0, Reading::default());
    while at < stream.len() {
        at = fpdu(stream, at, framing, &mut reading)?;
    }
    Ok(reading)
}

/// RFC 5044 s4.1 figure 2, s4.2 figure 3, s4.3, s4.4. Returns the position of the next FPDU.
fn fpdu(stream: &[u8], begin: usize, framing: Framing, reading: &mut Reading) -> Read<usize> {
    let is_marker = |at: usize| framing.markers && at.is_multiple_of(512);
    let head = if is_marker(begin) { begin + 4 } else { begin };
    let length = Octets(stream.get(head..).unwrap_or_default()).number(2)?;
    let whole = (2 + length as usize).div_ceil(4) * 4 + 4;
    let (mut content, mut at) = (Vec::new(), begin);
    while content.len() < whole {
        let word = Octets(stream.get(at..).unwrap_or_default()).take(4)?;
        if is_marker(at) {
            // Two reserved octets, then the distance back to the length field; 0 if the length
            // field follows.
            let back = Octets(word).number(4)?;
            if back != at.saturating_sub(head) as u64 {
                return Err(format!("the marker at {at} says {back}, and the FPDU begins at {head}"));
            }
            reading.markers.push(back);
        } else {
            content.extend(word);
        }
        at += 4;
    }
    let (covered, crc) = stream[begin..at].split_at(at - begin - 4);
    if framing.crc && crc32c(covered).to_le_bytes() != *crc {
        return Err(format!("the CRC {crc:02x?} of the FPDU at {begin} is wrong"));
    }
    let mut octets = Octets(&content[..whole - 4]);
    reading.number("ulpdu_length", octets.number(2)?);
    segment(octets.take(length as usize)?, reading)?;
    if octets.0.iter().any(|pad| *pad != 0) {
        return Err(format!("the padding is {:02x?}", octets.0));
    }
    reading.octets("pad", octets.0);
    reading.octets("crc", crc);
    Ok(at)
}

/// RFC 5041 s4.1 figure 3 to s4.3 figure 5, RFC 5040 s4.1 figures 3 and 4, RFC 7306 s4.1 figure 2.
fn segment(ulpdu: &[u8], reading: &mut Reading) -> Read<()> {
    let mut octets = Octets(ulpdu);
    let (ddp, rdmap) = (octets.number(1)?, octets.number(1)?);
    let (tagged, opcode) = (ddp >> 7, rdmap & 0xf);
    reading.number("t", tagged);
    reading.number("l", ddp >> 6 & 1);
    reading.number("ddp_res", ddp >> 2 & 0xf);
    reading.number("dv", ddp & 3);
    reading.number("rv", rdmap >> 6);
    reading.number("rdmap_res", rdmap >> 4 & 3);
    reading.number("opcode", opcode);
    if tagged == 1 {
        reading.number("stag", octets.number(4)?);
        reading.number("to", octets.number(8)?);
    } else {
        let word = if opcode == 4 || opcode == 6 { "inv_stag" } else { "rsvd_ulp" };
        for name in [word, "qn", "msn", "mo"] {
            reading.number(name, octets.number(4)?);
        }
    }
    match opcode {
        1 => read_request(&mut octets, reading)?,
        7 => terminate(&mut octets, reading)?,
        8 | 9 => reading.octets("immediate", octets.take(8)?),
        10 => atomic_request(&mut octets, reading)?,
        11 => {
            reading.number("original_id", octets.number(4)?);
            reading.number("original", octets.number(8)?);
        }
        _ => {
            reading.octets("payload", octets.0);
            octets.0 = &[];
        }
    }
    if octets.0.is_empty() { Ok(()) } else { Err(format!("{} octets too many", octets.0.len())) }
}

/// RFC 5040 s4.4 figure 6.
fn read_request(octets: &mut Octets<'_>, reading: &mut Reading) -> Read<()> {
    let fields = [("sink_stag", 4), ("sink_to", 8), ("read_size", 4), ("source_stag", 4), ("source_to", 8)];
    for (name, size) in fields {
        reading.number(name, octets.number(size)?);
    }
    Ok(())
}

/// RFC 7306 s5.2.1 figure 4.
fn atomic_request(octets: &mut Octets<'_>, reading: &mut Reading) -> Read<()> {
    let operation = octets.number(4)?;
    reading.number("aop_res", operation >> 4);
    reading.number("aop", operation & 0xf);
    for (name, size) in [("request_id", 4), ("remote_stag", 4), ("remote_to", 8)] {
        reading.number(name, octets.number(size)?);
    }
    for name in ["aop_data", "aop_mask", "compare", "compare_mask"] {
        reading.number(name, octets.number(8)?);
    }
    Ok(())
}

/// RFC 5040 s4.8 figures 7 and 8.
fn terminate(octets: &mut Octets<'_>, reading: &mut Reading) -> Read<()> {
    let control = octets.number(4)?;
    let [m, d, r] = [15, 14, 13].map(|bit| control >> bit & 1);
    reading.number("layer", control >> 28);
    reading.number("etype", control >> 24 & 0xf);
    reading.number("code", control >> 16 & 0xff);
    reading.number("hdrct_m", m);
    reading.number("hdrct_d", d);
    reading.number("hdrct_r", r);
    reading.number("term_res", control & 0x1fff);
    if m == 1 || d == 1 {
        reading.number("term_length", octets.number(2)?);
    }
    if d == 1 {
        let is_tagged = octets.0.first().ok_or("no header")? >> 7 == 1;
        reading.octets("term_ddp", octets.take(if is_tagged { 14 } else { 18 })?);
    }
    if r == 1 {
        reading.octets("term_rdma", octets.take(28)?);
    }
    Ok(())
}

/// CRC-32C bit by bit (RFC 3720 s12.1): reflected polynomial 0x82F63B78, all ones before and
/// inverted after.
pub fn crc32c(octets: &[u8]) -> u32 {
    !octets.iter().fold(!0u32, |crc, &octet| {
        (0..8).fold(crc ^ u32::from(octet), |crc, _| (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg()))
    })
}
