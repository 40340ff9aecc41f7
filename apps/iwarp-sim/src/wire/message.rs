//! Checks RDMAP messages on the wire without any of the stack's code.
//!
//! Takes the ULPDUs of one direction in order. Checks that numbers, offsets and versions are valid,
//! that no forbidden message interrupts another one, and that a Terminate is the last. A response
//! or a Terminate can only be checked against the other direction. It is returned as a
//! [`ReplyClaim`].
//!
//! Sources: RFC 5041 s4 and s5.2, RFC 5040 s4, s5.2, s5.4, RFC 7306 s5 and s6.

use std::collections::BTreeSet;

/// A message that must match an earlier one of the peer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReplyClaim {
    /// A segment of the Read Response to the oldest Read Request.
    Response {
        /// The target tag.
        stag: u32,
        /// The target offset.
        to: u64,
        bytes: u32,
        /// Whether it is the last segment of the response.
        last: bool,
    },
    /// The Atomic Response with this identifier, to the oldest Read or atomic request.
    Atomic(u32),
    Terminate(Vec<u8>),
}

/// The sender's state of one direction.
#[derive(Default)]
pub struct RdmapSender {
    /// Messages started and completed on queue 0 and on queue 1.
    sends: u32,
    reads: u32,
    /// Atomic Responses.
    atomics: u32,
    /// The tagged message with more segments to come.
    send_under_way: Option<u32>,
    tagged_under_way: Option<TaggedMessage>,
    /// Header and length of every segment.
    segments: BTreeSet<(u16, Vec<u8>)>,
    /// Every Read Request, and how many of them the peer has answered.
    pub(super) requests: Vec<Request>,
    responses_seen: usize,
    response_bytes_seen: u32,
    has_terminated: bool,
}

/// A tagged message with more segments to come.
#[derive(Clone, Copy, PartialEq, Eq)]
struct TaggedMessage {
    opcode: u8,
    stag: u32,
    next_to: u64,
}

/// An untagged segment (RFC 5041 s4.3).
#[derive(Debug)]
struct Untagged<'a> {
    last: bool,
    /// What the layer above uses: the tag that a Send invalidates.
    ulp: u32,
    msn: u32,
    mo: u32,
    payload: &'a [u8],
}

impl Untagged<'_> {
    /// Checks that it is the whole message after `msn`, of this many bytes.
    fn expect_single(&self, name: &str, msn: &mut u32, bytes: usize) -> Result<(), String> {
        let next = msn.wrapping_add(1);
        if !self.last || self.mo != 0 || self.msn != next || self.payload.len() != bytes {
            return Err(format!(
                "{name} {} at {} of {} bytes after {msn}",
                self.msn,
                self.mo,
                self.payload.len()
            ));
        }
        *msn = next;
        Ok(())
    }
}

/// A Read Request (RFC 5040 s4.4), or an atomic request, which uses the same queue (RFC 7306 s5.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Request {
    pub sink_stag: u32,
    pub sink_to: u64,
    pub bytes: u32,
    pub source_stag: u32,
    pub source_to: u64,
    /// The identifier of an atomic request, which has no other fields.
    pub identifier: Option<u32>,
}

const WRITE: u8 = 0;
const READ_REQUEST: u8 = 1;
const READ_RESPONSE: u8 = 2;
const SENDS: core::ops::RangeInclusive<u8> = 3..=6;
const SEND_INVALIDATE: u8 = 4;
const SEND_SOLICITED_INVALIDATE: u8 = 6;
const TERMINATE: u8 = 7;
const IMMEDIATES: core::ops::RangeInclusive<u8> = 8..=9;
const ATOMIC_REQUEST: u8 = 10;
const ATOMIC_RESPONSE: u8 = 11;

/// Bytes of the DDP headers (RFC 5041 s4.2, s4.3) and of a Read Request.
pub(super) const TAGGED_BYTES: usize = 14;
pub(super) const UNTAGGED_BYTES: usize = 18;
pub(super) const REQUEST_BYTES: usize = 28;

/// Bytes after the header in messages of RFC 7306 (s5.2, s6).
const IMMEDIATE_BYTES: usize = 8;
const ATOMIC_REQUEST_BYTES: usize = 52;
const ATOMIC_RESPONSE_BYTES: usize = 12;

impl RdmapSender {
    /// Checks the next ULPDU of this direction.
    pub fn on_ulpdu(&mut self, ulpdu: &[u8]) -> Result<Option<ReplyClaim>, String> {
        let control = *ulpdu.first().ok_or("an empty ULPDU")?;
        if self.has_terminated {
            return Err("a message follows a Terminate".into());
        }
        // RFC 5041 s4.1: T, L, four reserved bits of zeros, version 1.
        if control & 0x3f != 1 {
            return Err(format!("the DDP control octet is {control:#04x}"));
        }
        let tagged = control & 0x80 != 0;
        let header = ulpdu.get(..if tagged { TAGGED_BYTES } else { UNTAGGED_BYTES });
        let header = header.ok_or("a segment shorter than its header")?;
        // RFC 5040 s4.1: version 1, two reserved bits of zeros.
        if header[1] & 0xf0 != 0x40 {
            return Err(format!("the RDMAP control octet is {:#04x}", header[1]));
        }
        self.segments.insert((ulpdu.len() as u16, header.to_vec()));
        let (last, opcode) = (control & 0x40 != 0, header[1] & 0x0f);
        let payload = &ulpdu[header.len()..];
        if tagged {
            self.tagged(opcode, last, header, payload)
        } else {
            let [ulp, queue, msn, mo] = [2, 6, 10, 14].map(|at| word(header, at));
            self.untagged(opcode, queue, &Untagged { last, ulp, msn, mo, payload })
        }
    }

    fn tagged(
        &mut self,
        opcode: u8,
        last: bool,
        header: &[u8],
        payload: &[u8],
    ) -> Result<Option<ReplyClaim>, String> {
        if opcode != WRITE && opcode != READ_RESPONSE {
            return Err(format!("a tagged segment of operation {opcode}"));
        }
        if self.send_under_way.is_some() {
            return Err("a tagged segment within a Send".into());
        }
        let (stag, to) = (word(header, 2), long(header, 6));
        let here = TaggedMessage { opcode, stag, next_to: to };
        // A strict peer accepts no tagged message within another one.
        if self.tagged_under_way.is_some_and(|before| before != here) {
            return Err(format!(
                "operation {opcode} for {stag:#010x} at {to:#x} within another tagged message"
            ));
        }
        let next_to = to.wrapping_add(payload.len() as u64);
        self.tagged_under_way = (!last).then_some(TaggedMessage { next_to, ..here });
        let bytes = payload.len() as u32;
        Ok((opcode == READ_RESPONSE).then_some(ReplyClaim::Response { stag, to, bytes, last }))
    }

    fn untagged(
        &mut self,
        opcode: u8,
        queue: u32,
        segment: &Untagged<'_>,
    ) -> Result<Option<ReplyClaim>, String> {
        let Untagged { last, ulp, msn, mo, payload } = *segment;
        let writes = self.tagged_under_way.is_some_and(|message| message.opcode == WRITE);
        match (queue, opcode) {
            (2, TERMINATE) => {
                self.has_terminated = true;
                let claim = ReplyClaim::Terminate(payload.to_vec());
                let fits = last && msn == 1 && mo == 0 && ulp == 0;
                if fits { Ok(Some(claim)) } else { Err(format!("a Terminate as {segment:02x?}")) }
            }
            (0 | 1, _) if writes => Err(format!("an untagged segment of queue {queue} within a Write")),
            (0, opcode) if SENDS.contains(&opcode) => {
                let invalidates = opcode == SEND_INVALIDATE || opcode == SEND_SOLICITED_INVALIDATE;
                if !invalidates && ulp != 0 {
                    return Err(format!("a Send without invalidation names the tag {ulp:#010x}"));
                }
                let expected = self.send_under_way.unwrap_or(0);
                if msn != self.sends.wrapping_add(1) || mo != expected {
                    return Err(format!(
                        "message {msn} at {mo} of queue 0 after {} at {expected}",
                        self.sends
                    ));
                }
                self.sends = if last { msn } else { self.sends };
                self.send_under_way = (!last).then_some(mo.wrapping_add(payload.len() as u32));
                Ok(None)
            }
            // Both kinds of requests use the same numbers.
            (1, READ_REQUEST | ATOMIC_REQUEST) if self.send_under_way.is_some() => {
                Err("a request within a Send".into())
            }
            (1, READ_REQUEST) => {
                segment.expect_single("request", &mut self.reads, REQUEST_BYTES)?;
                self.requests.push(Request::read(payload));
                Ok(None)
            }
            (1, ATOMIC_REQUEST) => {
                segment.expect_single("request", &mut self.reads, ATOMIC_REQUEST_BYTES)?;
                self.requests.push(Request { identifier: Some(word(payload, 4)), ..Request::default() });
                Ok(None)
            }
            // Immediate Data is numbered with Sends.
            (0, opcode) if IMMEDIATES.contains(&opcode) => {
                if self.send_under_way.is_some() || ulp != 0 {
                    return Err(format!("immediate {msn} with the tag {ulp:#010x}, or within a Send"));
                }
                segment.expect_single("immediate", &mut self.sends, IMMEDIATE_BYTES)?;
                Ok(None)
            }
            (3, ATOMIC_RESPONSE) => {
                segment.expect_single("Atomic Response", &mut self.atomics, ATOMIC_RESPONSE_BYTES)?;
                Ok(Some(ReplyClaim::Atomic(word(payload, 0))))
            }
            _ => Err(format!("operation {opcode} on queue {queue}")),
        }
    }

    /// Checks the peer's Atomic Response (RFC 7306 s5.2.2): it must match the oldest unanswered
    /// request, Reads included.
    pub fn check_atomic_response(&mut self, identifier: u32) -> Result<(), String> {
        let oldest = self.requests.get(self.responses_seen);
        if oldest.is_none_or(|oldest| oldest.identifier != Some(identifier)) {
            return Err(format!("atomic request {identifier} is answered where {oldest:?} is the oldest"));
        }
        self.responses_seen += 1;
        Ok(())
    }

    /// Checks the peer's Read Response against the oldest request (RFC 5040 s5.2.2).
    pub fn check_read_response(&mut self, stag: u32, to: u64, bytes: u32, last: bool) -> Result<(), String> {
        let Some(request) = self.requests.get(self.responses_seen) else {
            return Err("a Read Response without a Read Request".into());
        };
        let end = u64::from(self.response_bytes_seen) + u64::from(bytes);
        let place = request.sink_to.wrapping_add(self.response_bytes_seen.into());
        let fits = request.identifier.is_none()
            && stag == request.sink_stag
            && to == place
            && last == (end == u64::from(request.bytes));
        if !fits || end > u64::from(request.bytes) {
            return Err(format!("{bytes} bytes to {stag:#010x} at {to:#x} do not match {request:?}"));
        }
        self.responses_seen += usize::from(last);
        self.response_bytes_seen = if last { 0 } else { end as u32 };
        Ok(())
    }

    /// Returns whether this side has sent a segment with this header and length.
    pub(super) fn has_sent(&self, bytes: u16, header: &[u8]) -> bool {
        self.segments.contains(&(bytes, header.to_vec()))
    }
}

impl Request {
    /// Parses the 28 bytes of a Read Request.
    pub(super) fn read(bytes: &[u8]) -> Self {
        Request {
            sink_stag: word(bytes, 0),
            sink_to: long(bytes, 4),
            bytes: word(bytes, 12),
            source_stag: word(bytes, 16),
            source_to: long(bytes, 20),
            identifier: None,
        }
    }
}

pub(super) fn word(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4].iter().fold(0, |word, byte| word << 8 | u32::from(*byte))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from(word(bytes, at)) << 32 | u64::from(word(bytes, at + 4))
}
