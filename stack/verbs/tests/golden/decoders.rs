//! The same octets, as the stack's own decoders read them.

use ironwarp::{AtomicOp, Extensions};
use ironwarp_iwarp::Terminate;
use ironwarp_iwarp::ddp::Header;
use ironwarp_iwarp::mpa::fpdu;
use ironwarp_iwarp::mpa::marker::MarkerState;
use ironwarp_iwarp::mpa::startup::frame::{Frame, Kind};
use ironwarp_iwarp::rdmap::{AtomicRequest, AtomicResponse, Immediate, Opcode, ReadRequest, Rfc7306Profile};
use ironwarp_iwarp::setup::{Enhanced, RtrKinds};
use ironwarp_tcp::ByteStream;

use super::vector::{Reading, Vector};

/// In-order bytes in one piece.
struct Bytes(Vec<u8>);

impl ByteStream for Bytes {
    fn available(&self) -> usize {
        self.0.len()
    }

    fn front(&self) -> &[u8] {
        &self.0
    }

    fn peek(&self, out: &mut [u8]) -> bool {
        let Some(bytes) = self.0.get(..out.len()) else { return false };
        out.copy_from_slice(bytes);
        true
    }

    fn consume(&mut self, n: usize) {
        self.0.drain(..n);
    }
}

/// Fields that the decoders do not return: reserved fields, which are not checked; versions, which
/// are compared and not kept; framing octets; and what a peer's Terminate shows.
const UNREAD: [&str; 21] = [
    "key",
    "res",
    "s",
    "pd_length",
    "ddp_res",
    "dv",
    "rv",
    "rdmap_res",
    "rsvd_ulp",
    "aop_res",
    "pad",
    "crc",
    "hdrct_m",
    "hdrct_d",
    "hdrct_r",
    "term_res",
    "term_length",
    "term_ddp",
    "term_rdma",
    "marker",
    "ulpdu_length",
];

/// Whether the decoders do not return a field of `vector`. Which operands they read depends on the
/// operation.
pub fn is_unread(vector: &Vector, field: &str) -> bool {
    let is_for = |operations: &[u64]| vector.first("aop").is_none_or(|aop| operations.contains(&aop));
    match field {
        "compare" | "compare_mask" => !is_for(&[2]),
        "aop_mask" => !is_for(&[0, 2]),
        _ => UNREAD.contains(&field),
    }
}

/// Returns the fields that the stack's decoders read from a vector.
pub fn reading(vector: &Vector) -> Reading {
    let mut reading = Reading::default();
    if vector.is_startup() {
        startup(&vector.octets, &mut reading);
    } else if vector.markers {
        marked(vector, &mut reading);
    } else {
        unmarked(vector, &mut reading);
    }
    reading
}

fn startup(octets: &[u8], reading: &mut Reading) {
    let kind = if octets.starts_with(b"MPA ID Req") { Kind::Request } else { Kind::Reply };
    let mut bytes = Bytes(octets.to_vec());
    let frame = Frame::decode(kind, &mut bytes).expect("a frame").expect("a whole one");
    assert_eq!(bytes.available(), 0);
    reading.number("m", frame.markers);
    reading.number("c", frame.crc);
    reading.number("r", frame.reject);
    reading.number("rev", frame.revision);
    if let Some(Enhanced { peer_to_peer, rtr, reads }) = frame.enhanced {
        reading.number("flag_a", peer_to_peer);
        reading.number("flag_b", rtr.contains(RtrKinds::SEND));
        reading.number("ird", reads.ird);
        reading.number("flag_c", rtr.contains(RtrKinds::WRITE));
        reading.number("flag_d", rtr.contains(RtrKinds::READ));
        reading.number("ord", reads.ord);
    }
    reading.octets("private_data", &frame.private_data);
}

fn unmarked(vector: &Vector, reading: &mut Reading) {
    let mut bytes = Bytes(vector.octets.clone());
    while bytes.available() > 0 {
        let whole = fpdu::whole_fpdu_bytes(&bytes).expect("a whole FPDU");
        let ulpdu = fpdu::decode(&bytes.front()[..whole], vector.crc).expect("a right one");
        segment(vector, ulpdu, reading);
        bytes.consume(whole);
    }
}

fn marked(vector: &Vector, reading: &mut Reading) {
    let (mut bytes, mut marker_state, mut scratch) =
        (Bytes(vector.octets.clone()), MarkerState::new(), vec![0; 2048]);
    while bytes.available() > 0 {
        let whole = marker_state.whole_fpdu_bytes(&bytes).expect("a whole FPDU");
        let ulpdu =
            marker_state.decode(&bytes.front()[..whole], &mut scratch, vector.crc).expect("a right one");
        segment(vector, ulpdu, reading);
        bytes.consume(whole);
    }
}

fn segment(vector: &Vector, ulpdu: &[u8], reading: &mut Reading) {
    let (header, payload) = Header::decode(ulpdu).expect("a segment");
    let (ulp, last, is_tagged) = match &header {
        Header::Tagged(header) => (header.ulp, header.last, true),
        Header::Untagged(header) => (header.ulp, header.last, false),
    };
    let opcode = Opcode::decode_extended(ulp);
    reading.number("t", is_tagged);
    reading.number("l", last);
    // Only Terminates show operation 15, or operation 3 in a tagged segment.
    let opcode = opcode.expect("an operation");
    reading.number("opcode", opcode as u8);
    match header {
        Header::Tagged(header) => {
            reading.number("stag", header.stag.0);
            reading.number("to", header.tagged_offset);
        }
        Header::Untagged(header) => {
            if vector.extensions != Extensions::Off {
                assert_eq!(profile(vector).expected(&header), Some(opcode), "{}: its queue", vector.name);
            }
            if opcode.invalidates() {
                reading.number("inv_stag", header.ulp_word);
            }
            reading.number("qn", header.qn);
            reading.number("msn", header.msn);
            reading.number("mo", header.mo);
        }
    }
    body(vector, opcode, payload, reading);
}

fn body(vector: &Vector, opcode: Opcode, payload: &[u8], reading: &mut Reading) {
    match opcode {
        Opcode::ReadRequest => {
            let request = ReadRequest::decode(payload).expect("a request");
            reading.number("sink_stag", request.sink_stag.0);
            reading.number("sink_to", request.sink_to);
            reading.number("read_size", request.bytes);
            reading.number("source_stag", request.source_stag.0);
            reading.number("source_to", request.source_to);
        }
        Opcode::Terminate => {
            let Terminate { layer, etype, code } = Terminate::decode(payload, true).expect("a Terminate");
            reading.number("layer", layer);
            reading.number("etype", etype);
            reading.number("code", code);
        }
        Opcode::AtomicRequest => atomic_request(vector, payload, reading),
        Opcode::AtomicResponse => {
            let AtomicResponse { identifier, original } =
                AtomicResponse::decode(payload).expect("a response");
            reading.number("original_id", identifier);
            reading.number("original", original);
        }
        _ if opcode.is_immediate() => {
            let Immediate(octets) = Immediate::decode(payload).expect("8 octets");
            reading.octets("immediate", &octets);
        }
        _ => reading.octets("payload", payload),
    }
}

fn profile(vector: &Vector) -> Rfc7306Profile {
    match vector.extensions {
        Extensions::Draft03 => Rfc7306Profile::DRAFT_03,
        Extensions::Draft01 => Rfc7306Profile::DRAFT_01_FIGURE_2,
        Extensions::Rfc7306 | Extensions::Off => Rfc7306Profile::RFC_7306,
    }
}

fn atomic_request(vector: &Vector, payload: &[u8], reading: &mut Reading) {
    let request = AtomicRequest::decode(payload, profile(vector)).expect("a request");
    let (aop, words): (u64, &[(&str, u64)]) = match request.operation {
        AtomicOp::FetchAdd { add, mask } => (0, &[("aop_data", add), ("aop_mask", mask)]),
        AtomicOp::Swap { swap } => (1, &[("aop_data", swap)]),
        AtomicOp::CmpSwap { compare, compare_mask, swap, swap_mask } => (
            2,
            &[
                ("aop_data", swap),
                ("aop_mask", swap_mask),
                ("compare", compare),
                ("compare_mask", compare_mask),
            ],
        ),
    };
    reading.number("aop", aop);
    reading.number("request_id", request.identifier);
    reading.number("remote_stag", request.stag.0);
    reading.number("remote_to", request.tagged_offset);
    words.iter().for_each(|(name, word)| reading.number(name, *word));
}
