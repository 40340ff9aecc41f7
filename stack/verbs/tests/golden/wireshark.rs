//! Every vector as Wireshark's dissectors read it.
//!
//! One capture holds a connection for each vector and direction: a handshake, both start-up frames,
//! then the vector's FPDUs, one to a segment. tshark must find no malformed frame and no wrong CRC,
//! and must print the fields that the vector's file names.
//!
//! The tests leave out what Wireshark 4.0 does not know. It reads start-up frames as revision 1. So
//! in revision 2 the S bit is among the reserved bits and the enhanced data is the beginning of the
//! private data. It looks for markers in both directions when one side asks for them, so here both
//! do. [`UNKNOWN`] and [`MISREAD`] list the vectors and fields that are left out, each with its
//! reason.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::common::messages::{EMPTY_WRITE, fpdu, reply, request};
use crate::common::tshark;
use crate::golden::vector::{self, Value, Vector, named};

/// Vectors that Wireshark cannot read, and why.
const UNKNOWN: [(&str, &str); 2] = [
    (
        "marker behind the crc",
        "it assigns a marker right behind a CRC to the FPDU before it, against RFC 5044 s4.3",
    ),
    ("terminate tagged operation", HEADER_BY_ERROR),
];

/// Fields of other vectors that Wireshark reads differently, and why.
const MISREAD: [(&str, &[&str], &str); 5] = [
    ("terminate read request", &["term_ddp", "term_rdma"], HEADER_BY_ERROR),
    ("terminate send invalidate", &["term_ddp"], HEADER_BY_ERROR),
    ("terminate atomic tag", &["term_ddp"], HEADER_BY_ERROR),
    ("swap", &["aop_data", "aop_mask", "compare"], NO_SWAP),
    ("swap by draft 01", &["aop_data", "aop_mask", "compare"], NO_SWAP),
];

const HEADER_BY_ERROR: &str =
    "it reads the shown header as tagged for errors of type 1 and as untagged for type 2, and ignores T";

const NO_SWAP: &str = "RFC 7306 has no Swap; Wireshark shows the data as compare data";

/// The first operation for which Wireshark does not show the invalidate STag word or the Immediate
/// Data.
const FIRST_EXTENDED: u64 = 8;

/// Our names of fields and Wireshark's.
const FIELDS: [(&str, &str); 59] = [
    ("m", "iwarp_mpa.marker_flag"),
    ("c", "iwarp_mpa.crc_flag"),
    ("r", "iwarp_mpa.rej_flag"),
    ("res", "iwarp_mpa.res"),
    ("rev", "iwarp_mpa.rev"),
    ("pd_length", "iwarp_mpa.pdlength"),
    ("private_data", "iwarp_mpa.privatedata"),
    ("ulpdu_length", "iwarp_mpa.ulpdulength"),
    ("marker", "iwarp_mpa.marker_fpduptr"),
    ("pad", "iwarp_mpa.pad"),
    ("crc", "iwarp_mpa.crc"),
    ("crc", "iwarp_mpa.crc_check"),
    ("t", "iwarp_ddp.tagged_flag"),
    ("l", "iwarp_ddp.last_flag"),
    ("ddp_res", "iwarp_ddp.rsvd"),
    ("dv", "iwarp_ddp.dv"),
    ("stag", "iwarp_ddp.stag"),
    ("to", "iwarp_ddp.tagged_offset"),
    ("qn", "iwarp_ddp.qn"),
    ("msn", "iwarp_ddp.msn"),
    ("mo", "iwarp_ddp.mo"),
    ("rv", "iwarp_rdma.version"),
    ("rdmap_res", "iwarp_rdma.rsv"),
    ("opcode", "iwarp_rdma.opcode"),
    ("rsvd_ulp", "iwarp_rdma.reserved"),
    ("inv_stag", "iwarp_rdma.inval_stag"),
    ("sink_stag", "iwarp_rdma.sinkstag"),
    ("sink_to", "iwarp_rdma.sinkto"),
    ("read_size", "iwarp_rdma.rdmardsz"),
    ("source_stag", "iwarp_rdma.srcstag"),
    ("source_to", "iwarp_rdma.srcto"),
    ("aop_res", "iwarp_rdma.atomic.reserved"),
    ("aop", "iwarp_rdma.atomic.opcode"),
    ("request_id", "iwarp_rdma.atomic.request_identifier"),
    ("remote_stag", "iwarp_rdma.atomic.remote_stag"),
    ("remote_to", "iwarp_rdma.atomic.remote_tagged_offset"),
    ("aop_data", "iwarp_rdma.atomic.add_data"),
    ("aop_data", "iwarp_rdma.atomic.swap_data"),
    ("aop_mask", "iwarp_rdma.atomic.add_mask"),
    ("aop_mask", "iwarp_rdma.atomic.swap_mask"),
    ("compare", "iwarp_rdma.atomic.compare_data"),
    ("compare_mask", "iwarp_rdma.atomic.compare_mask"),
    ("original_id", "iwarp_rdma.atomic.original_request_identifier"),
    ("original", "iwarp_rdma.atomic.original_remote_data_value"),
    ("layer", "iwarp_rdma.term_layer"),
    ("etype", "iwarp_rdma.term_etype_rdma"),
    ("etype", "iwarp_rdma.term_etype_ddp"),
    ("etype", "iwarp_rdma.term_etype_llp"),
    ("code", "iwarp_rdma.term_errcode"),
    ("code", "iwarp_rdma.term_errcode_rdma"),
    ("code", "iwarp_rdma.term_errcode_ddp_tagged"),
    ("code", "iwarp_rdma.term_errcode_ddp_untagged"),
    ("code", "iwarp_rdma.term_errcode_llp"),
    ("hdrct_m", "iwarp_rdma.term_hdrct_m"),
    ("hdrct_d", "iwarp_rdma.hdrct_d"),
    ("hdrct_r", "iwarp_rdma.hdrct_r"),
    ("term_length", "iwarp_rdma.term_ddp_seg_len"),
    ("term_ddp", "iwarp_rdma.term_ddp_h"),
    ("term_rdma", "iwarp_rdma.term_rdma_h"),
];

/// RFC 5044, RFC 5041 and RFC 5040 as an independent decoder reads them, every field that it names.
#[test]
fn wireshark_matches_the_vectors() {
    let (capture, shown) = write_capture();
    let Some(lines) = fields_of(&capture) else { return };
    let _ = std::fs::remove_file(&capture);
    for Shown { frame, vector, octets } in shown {
        let (malformed, seen) = &lines[frame - 1];
        assert!(malformed.is_empty(), "{}, frame {frame}: {malformed}", vector.name);
        let (mut seen, mut want) = (seen.clone(), expected(&vector, &octets));
        for (_, fields, _) in MISREAD.iter().filter(|(name, ..)| *name == vector.name) {
            seen.retain(|name, _| !fields.contains(name));
            want.retain(|name, _| !fields.contains(name));
        }
        assert_eq!(seen, want, "{}, frame {frame}", vector.name);
    }
}

/// Wireshark's output under our field names: values as numbers, or octets read as a number, in the
/// order of the output.
type Fields = BTreeMap<&'static str, Vec<String>>;

/// Each frame's fields, and its errors; `None` if tshark is not installed.
fn fields_of(capture: &Path) -> Option<Vec<(String, Fields)>> {
    let columns = ["-T", "fields", "-E", "aggregator=,", "-e", "_ws.malformed"].into_iter();
    let arguments: Vec<_> = columns.chain(FIELDS.iter().flat_map(|(_, theirs)| ["-e", *theirs])).collect();
    Some(tshark::read(capture, &arguments)?.lines().map(line_of).collect())
}

fn line_of(line: &str) -> (String, Fields) {
    let mut columns = line.split('\t');
    let malformed = columns.next().unwrap_or_default().to_owned();
    let mut fields = Fields::new();
    for ((ours, _), column) in FIELDS.iter().zip(columns).filter(|(_, column)| !column.is_empty()) {
        fields.entry(ours).or_default().extend(column.split(',').map(|value| plain(ours, value)));
    }
    (malformed, fields)
}

/// One format for all values: numbers in decimal, fields of octets unchanged.
fn plain(field: &str, value: &str) -> String {
    let number = match (value.strip_prefix("0x"), value) {
        (Some(hex), _) => u64::from_str_radix(hex, 16).ok(),
        (None, "True") => Some(1),
        (None, "False") => Some(0),
        (None, _) if OCTETS.contains(&field) => None,
        (None, decimal) => decimal.parse().ok(),
    };
    number.map_or_else(|| value.to_owned(), |number| number.to_string())
}

/// Fields that Wireshark prints as octets. Our vectors hold some of them as numbers.
const OCTETS: [&str; 6] = ["private_data", "pad", "rsvd_ulp", "term_length", "term_ddp", "term_rdma"];

/// The fields of the vector's file for the one FPDU or start-up frame in `octets`, as Wireshark
/// would print them.
fn expected(vector: &Vector, octets: &[u8]) -> Fields {
    let reading = if vector.is_startup() { as_revision_1(octets) } else { vector.reading_of(octets) };
    let mut fields = Fields::new();
    let is_extended = reading.fields.iter().any(|(name, value)| {
        name == "opcode" && matches!(value, Value::Number(opcode) if *opcode >= FIRST_EXTENDED)
    });
    for (name, value) in reading.fields.iter().filter(|(name, _)| !is_extended || name != "rsvd_ulp") {
        let Some((ours, _)) = FIELDS.iter().find(|(ours, _)| ours == name) else { continue };
        let value = match value {
            // The CRC's octets are a number with the least significant octet first.
            Value::Octets(octets) if name == "crc" => number(octets).to_string(),
            Value::Octets(octets) => octets.iter().map(|octet| format!("{octet:02x}")).collect(),
            Value::Number(number) if name == "rsvd_ulp" => format!("{number:08x}"),
            Value::Number(number) if name == "term_length" => format!("{number:04x}"),
            Value::Number(number) => number.to_string(),
        };
        fields.entry(ours).or_default().push(value);
    }
    if !reading.markers.is_empty() {
        fields.insert("marker", reading.markers.iter().map(u64::to_string).collect());
    }
    fields
}

fn number(octets: &[u8]) -> u64 {
    octets.iter().fold(0, |number, octet| number << 8 | u64::from(*octet))
}

/// Reads a start-up frame of either revision as RFC 5044 s7.1.1 figure 8 says.
fn as_revision_1(octets: &[u8]) -> vector::Reading {
    let mut frame = octets.to_vec();
    frame[17] = 1;
    let mut reading = crate::golden::figures::startup(&frame).expect("a frame");
    let revision = reading.fields.iter_mut().find(|(name, _)| name == "rev").expect("a revision");
    revision.1 = Value::Number(octets[17].into());
    reading
}

struct Capture {
    file: std::fs::File,
    frames: usize,
}

/// The side that sends a vector.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Side {
    Initiator,
    Responder,
}

/// One FPDU or start-up frame in the capture.
struct Shown {
    frame: usize,
    vector: Vector,
    octets: Vec<u8>,
}

/// Both sides of a connection: the sequence number of each.
struct Connection {
    port: u16,
    said: [u32; 2],
}

fn write_capture() -> (PathBuf, Vec<Shown>) {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("golden-{}.pcap", std::process::id()));
    let mut capture = Capture::create(&path);
    let mut shown = Vec::new();
    let mut port = 20_000;
    for vector in vector::all() {
        if UNKNOWN.iter().any(|(name, _)| *name == vector.name) {
            continue;
        }
        let sides = match (vector.is_startup(), vector.octets.starts_with(b"MPA ID Req")) {
            (true, true) => &[Side::Initiator][..],
            (true, false) => &[Side::Responder],
            (false, _) => &[Side::Initiator, Side::Responder],
        };
        for side in sides {
            port += 1;
            conversation(&mut capture, port, &vector, *side, &mut shown);
        }
    }
    (path, shown)
}

fn conversation(capture: &mut Capture, port: u16, vector: &Vector, side: Side, shown: &mut Vec<Shown>) {
    let mut connection = Connection { port, said: [0; 2] };
    capture.handshake(&mut connection);
    let flags = vector.flags();
    let (asks, answers) = match (vector.is_startup(), side) {
        (true, Side::Initiator) => (vector.octets.clone(), reply(0x40, 1, b"")),
        (true, Side::Responder) => (named("request rev1 crc").octets, vector.octets.clone()),
        (false, _) => (request(flags, 1, b""), reply(flags, 1, b"")),
    };
    for (from, octets) in [(Side::Initiator, asks), (Side::Responder, answers)] {
        let frame = capture.say(&mut connection, from, &octets);
        if vector.is_startup() && from == side {
            shown.push(Shown { frame, vector: vector.clone(), octets });
        }
    }
    if vector.is_startup() {
        return;
    }
    if side == Side::Responder {
        // RFC 5044 s7.1.2: the initiator sends first.
        let first = if vector.markers { named("figure 5").octets } else { fpdu(&EMPTY_WRITE) };
        capture.say(&mut connection, Side::Initiator, &first);
    }
    for octets in vector.fpdus() {
        let frame = capture.say(&mut connection, side, &octets);
        shown.push(Shown { frame, vector: vector.clone(), octets });
    }
}

impl Capture {
    /// The classic pcap format: microseconds, Ethernet.
    fn create(path: &Path) -> Self {
        let mut file = std::fs::File::create(path).expect("a file");
        let header = [[0xa1b2_c3d4u32.to_ne_bytes(), [0; 4]].concat(), vec![0; 8]].concat();
        let mut header = header;
        header[4..6].copy_from_slice(&2u16.to_ne_bytes());
        header[6..8].copy_from_slice(&4u16.to_ne_bytes());
        header.extend(65_535u32.to_ne_bytes());
        header.extend(1u32.to_ne_bytes());
        file.write_all(&header).expect("room");
        Capture { file, frames: 0 }
    }

    fn handshake(&mut self, connection: &mut Connection) {
        self.frame(connection, Side::Initiator, 0x02, b"");
        connection.said[0] += 1;
        self.frame(connection, Side::Responder, 0x12, b"");
        connection.said[1] += 1;
        self.frame(connection, Side::Initiator, 0x10, b"");
    }

    /// Writes one segment; returns the number of its frame.
    fn say(&mut self, connection: &mut Connection, from: Side, octets: &[u8]) -> usize {
        self.frame(connection, from, 0x18, octets);
        connection.said[from as usize] += octets.len() as u32;
        self.frames
    }

    fn frame(&mut self, connection: &Connection, from: Side, flags: u8, payload: &[u8]) {
        let packet = packet(connection, from, flags, payload);
        self.frames += 1;
        let head = [0, self.frames as u32, packet.len() as u32, packet.len() as u32].map(u32::to_ne_bytes);
        self.file.write_all(&head.concat()).expect("room");
        self.file.write_all(&packet).expect("room");
    }
}

/// Ethernet, IPv4 (RFC 791 s3.1), TCP (RFC 9293 s3.1).
fn packet(connection: &Connection, from: Side, flags: u8, payload: &[u8]) -> Vec<u8> {
    let ends = [([10, 0, 0, 1], connection.port), ([10, 0, 0, 2], 4791)];
    let (us, them) = (from as usize, 1 - from as usize);
    let ack = if flags & 0x10 == 0 { 0 } else { connection.said[them] };
    let mut tcp = [ends[us].1, ends[them].1].map(u16::to_be_bytes).concat();
    tcp.extend([connection.said[us], ack].map(u32::to_be_bytes).concat());
    tcp.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    tcp.extend(payload);
    let addresses = [ends[us].0, ends[them].0].concat();
    let pseudo = [&addresses[..], &[0, 6], &(tcp.len() as u16).to_be_bytes()].concat();
    let sum = checksum(&[&pseudo[..], &tcp].concat());
    tcp[16..18].copy_from_slice(&sum);
    let mut ip =
        [&[0x45, 0][..], &(20 + tcp.len() as u16).to_be_bytes(), &[0, 0, 0x40, 0, 64, 6, 0, 0]].concat();
    ip.extend(addresses);
    let sum = checksum(&ip);
    ip[10..12].copy_from_slice(&sum);
    [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0][..], &ip, &tcp].concat()
}

/// RFC 1071.
fn checksum(octets: &[u8]) -> [u8; 2] {
    let words = octets.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!(sum as u16)).to_be_bytes()
}
