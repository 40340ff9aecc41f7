//! Checks a Terminate on the wire: it must name an error of the tables and contain the required
//! headers (RFC 5040 s4.8).
//!
//! Takes the message's payload and all messages of the side that receives it.

use super::message::{REQUEST_BYTES, RdmapSender, Request, TAGGED_BYTES, UNTAGGED_BYTES, word};

/// Header control bits: segment length valid, DDP header included, Read Request header included.
const M: u8 = 0x80;
const D: u8 = 0x40;
const R: u8 = 0x20;

/// Checks a Terminate against the messages of `culprit`, the side that receives it.
pub fn check(payload: &[u8], culprit: &RdmapSender) -> Result<(), String> {
    let named = |fault: &str| format!("a Terminate {fault}: {payload:02x?}");
    let Some(([kinds, code, bits, reserved], rest)) = payload.split_first_chunk::<4>() else {
        return Err(named("that is too short"));
    };
    let (layer, etype) = (kinds >> 4, kinds & 0x0f);
    if bits & 0x1f != 0 || *reserved != 0 {
        return Err(named("with reserved bits"));
    }
    if !is_known(layer, etype, *code) {
        return Err(named("with an error that is not in the tables"));
    }
    // Figure 10: local errors and MPA errors include no headers.
    let shows = layer == 1 || (layer == 0 && etype != 0);
    if !shows && (*bits != 0 || !rest.is_empty()) {
        return Err(named("that includes headers for an error without headers"));
    }
    // Figure 10 requires both in every other Terminate. A segment shorter than a header has none to
    // include.
    if *bits == 0 && shows && (layer, etype) != (1, 0) {
        return Err(named("without the headers of the failed segment"));
    }
    if *bits == 0 {
        return if rest.is_empty() {
            Ok(())
        } else {
            Err(named("with headers but without their control bits"))
        };
    }
    if bits & (M | D) != M | D {
        return Err(named("with a length but no header, or the reverse"));
    }
    let (segment_bytes, header, rest) = shown_header(rest).ok_or_else(|| named("that is truncated"))?;
    if !culprit.has_sent(segment_bytes, header) {
        return Err(named("with the headers of a segment that the peer has not sent"));
    }
    check_request(*bits, (layer, etype), header, rest, culprit).map_err(|fault| named(&fault))
}

/// Returns the segment length, the DDP header, and the rest.
fn shown_header(rest: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let (length, rest) = rest.split_first_chunk::<2>()?;
    let header_bytes = if rest.first()? & 0x80 != 0 { TAGGED_BYTES } else { UNTAGGED_BYTES };
    let (header, rest) = rest.split_at_checked(header_bytes)?;
    Some((u16::from_be_bytes(*length), header, rest))
}

/// A protection error of a Read Request includes the request as far as it was received; no other
/// error does.
fn check_request(
    bits: u8,
    kind: (u8, u8),
    header: &[u8],
    rest: &[u8],
    culprit: &RdmapSender,
) -> Result<(), String> {
    let number = word(header, 10).wrapping_sub(1) as usize;
    let asked = culprit.requests.get(number);
    // RFC 7306 s8.1: an atomic request is not included.
    let is_atomic = asked.is_some_and(|asked| asked.identifier.is_some());
    let is_request = header[0] & 0x80 == 0 && word(header, 6) == 1 && !is_atomic;
    if kind != (0, 1) || !is_request {
        return if bits & R == 0 && rest.is_empty() { Ok(()) } else { Err("that includes a request".into()) };
    }
    if bits & R == 0 || rest.len() != REQUEST_BYTES {
        return Err("about a Read without the request header".into());
    }
    let shown = Request::read(rest);
    let Some(asked) = asked else { return Err("about a Read that was not requested".into()) };
    let done = asked.bytes.wrapping_sub(shown.bytes);
    let expected = Request {
        sink_to: asked.sink_to.wrapping_add(done.into()),
        source_to: asked.source_to.wrapping_add(done.into()),
        bytes: shown.bytes,
        ..*asked
    };
    if done <= asked.bytes && shown == expected { Ok(()) } else { Err(format!("about {asked:?}")) }
}

/// RFC 5040 s4.8 figure 9, RFC 5041 s7.2, RFC 5044 s8, RFC 6581 s8.
fn is_known(layer: u8, etype: u8, code: u8) -> bool {
    match (layer, etype) {
        // No code is defined, so any is valid.
        (0, 0) => true,
        (0, 1) => matches!(code, 0..=4 | 9 | 0xff),
        (0, 2) => matches!(code, 5..=9 | 0xff),
        (1, 0) => code == 0,
        (1, 1) => code <= 4,
        (1, 2) => (1..=6).contains(&code),
        (2, 0) => (1..=7).contains(&code),
        _ => false,
    }
}
