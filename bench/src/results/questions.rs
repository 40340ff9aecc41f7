//! The questions of `bench/RESULTS.md`, with their goals. A new row needs a file that `scripts/results.sh` writes.

use super::Goal::{AtLeast, AtMost, AtMostOrAdded, None as NoGoal, TwoHopsAnd};
use super::{Figure, Goal, Question, Row, row};

const SUITE: &str = "suite.json";
const NATIVE: &str = "suite-native.json";
const NATIVE_LIST: &str = "rate-native-list.json";
const NATIVE_ALONE: &str = "rate-native-alone.json";
const SCALING: &str = "scaling.json";
const ATOMICS: &str = "atomics.json";
const SEGMENT: &str = "segment-cost.json";
const SIW: &str = "siw.json";
const SIW_LIBRARIES: &str = "siw-libraries.json";

/// For each kind of segment: our instructions, and those divided by stock smoltcp's.
macro_rules! segments {
    ($($name:literal: $segment:literal, checksums in $checksums:literal;)*) => {
        &[$(
            row($name, SEGMENT, segment!($segment, $checksums, "ironwarp"), INSTRUCTIONS, NoGoal),
            row(
                "… to smoltcp",
                SEGMENT,
                segment!($segment, $checksums, "ironwarp"),
                instructions_to(segment!($segment, $checksums, "smoltcp")),
                NoGoal,
            ),
        )*]
    };
}

macro_rules! segment {
    ($segment:literal, $checksums:literal, $transport:literal) => {
        concat!("segment=", $segment, " checksums=", $checksums, " transport=", $transport)
    };
}

/// What is measured and reported.
pub const QUESTIONS: &[Question] = &[
    Question {
        title: "How far is a 64 B round trip from a raw frame's?",
        text: "Over memif, MTU 1500, with CRC. Ratios are ours to the raw frame's in the same round.",
        rows: &[
            row("raw frame", SUITE, FRAME_64, Figure::RoundTrip, NoGoal),
            row("Send", SUITE, SEND_64, Figure::RoundTrip, NoGoal),
            row("Write", SUITE, WRITE_64, Figure::RoundTrip, NoGoal),
            row("Read", SUITE, READ_64, Figure::RoundTrip, NoGoal),
            row("Send to raw frame, p50", SUITE, SEND_64, FRAME_P50, NEAR_FLOOR),
            row("Write to raw frame, p50", SUITE, WRITE_64, FRAME_P50, NEAR_FLOOR),
            row("Read to raw frame, p50", SUITE, READ_64, FRAME_P50, NoGoal),
            row("Send to raw frame, p99.9", SUITE, SEND_64, FRAME_P999, AtMost(3.0)),
            row("Write to raw frame, p99.9", SUITE, WRITE_64, FRAME_P999, AtMost(3.0)),
        ],
    },
    Question {
        title: "How much shorter is a 64 B round trip than kernel TCP's?",
        text: "Ours over memif to TCP over veth with both ends spinning, in the same round. An eighth is 0.125.",
        rows: &[
            row("TCP", SUITE, TCP_64, Figure::RoundTrip, NoGoal),
            row("Send to TCP, p50", SUITE, SEND_64, TCP_P50, AtMost(0.125)),
            row("Write to TCP, p50", SUITE, WRITE_64, TCP_P50, AtMost(0.125)),
        ],
    },
    Question {
        title: "How does a 64 B round trip compare with stock smoltcp's?",
        text: "Both over memif, MTU 1500; ratios are ours to smoltcp's in the same round. smoltcp carries a byte stream, without \
               the layers of iWARP and its CRC.",
        rows: &[
            row("smoltcp", SUITE, SMOLTCP_64, Figure::RoundTrip, NoGoal),
            row("Send to smoltcp, p50", SUITE, SEND_64, SMOLTCP_P50, NoGoal),
            row("Write to smoltcp, p50", SUITE, WRITE_64, SMOLTCP_P50, NoGoal),
            row("Read to smoltcp, p50", SUITE, READ_64, SMOLTCP_P50, NoGoal),
        ],
    },
    Question {
        title: "How much bandwidth have 1 MiB Writes?",
        text: "Over memif, with CRC, one core at each end, one queue pair; goodput to that of raw frames and of stock smoltcp \
               over memif, and of kernel TCP over veth, in the same round.",
        rows: &[
            row("MTU 9000", SUITE, WRITE_9000, GBIT, NoGoal),
            row("MTU 9000, to raw frames", SUITE, WRITE_9000, FRAME_GBIT, AtLeast(0.35)),
            row("MTU 9000, to TCP", SUITE, WRITE_9000, TCP_GBIT, AtLeast(4.0)),
            row("MTU 9000, to smoltcp", SUITE, WRITE_9000, SMOLTCP_GBIT, NoGoal),
            row("MTU 1500", SUITE, WRITE_1500, GBIT, NoGoal),
            row("MTU 1500, to raw frames", SUITE, WRITE_1500, FRAME_GBIT, AtLeast(0.3)),
            row("MTU 1500, to TCP", SUITE, WRITE_1500, TCP_GBIT, AtLeast(2.5)),
            row("MTU 1500, to smoltcp", SUITE, WRITE_1500, SMOLTCP_GBIT, NoGoal),
        ],
    },
    Question {
        title: "What becomes of these figures with the library's own memif driver?",
        text: "As above with `driver = \"native\"` at both ends, which starts without DPDK; raw frames over the same driver.",
        rows: &[
            row("raw frame", NATIVE, FRAME_64, Figure::RoundTrip, NoGoal),
            row("Send", NATIVE, SEND_64, Figure::RoundTrip, NoGoal),
            row("Write", NATIVE, WRITE_64, Figure::RoundTrip, NoGoal),
            row("Read", NATIVE, READ_64, Figure::RoundTrip, NoGoal),
            row("Send to raw frame, p50", NATIVE, SEND_64, FRAME_P50, NEAR_FLOOR),
            row("Write to raw frame, p50", NATIVE, WRITE_64, FRAME_P50, NEAR_FLOOR),
            row("Send to TCP, p50", NATIVE, SEND_64, TCP_P50, AtMost(0.125)),
            row("Write to TCP, p50", NATIVE, WRITE_64, TCP_P50, AtMost(0.125)),
            row("Send to smoltcp, p50", NATIVE, SEND_64, SMOLTCP_P50, NoGoal),
            row("64 B Writes, lists of 16", NATIVE_LIST, "test=write-bw", Figure::Rate, AtLeast(20.0)),
            row("64 B Writes, one to a segment", NATIVE_ALONE, "test=write-bw", Figure::Rate, AtLeast(8.0)),
            row("1 MiB Write, MTU 9000", NATIVE, WRITE_9000, GBIT, NoGoal),
            row("1 MiB Write, MTU 9000, to raw frames", NATIVE, WRITE_9000, FRAME_GBIT, AtLeast(0.35)),
            row("1 MiB Write, MTU 9000, to TCP", NATIVE, WRITE_9000, TCP_GBIT, AtLeast(4.0)),
            row("1 MiB Write, MTU 1500", NATIVE, WRITE_1500, GBIT, NoGoal),
            row("1 MiB Write, MTU 1500, to raw frames", NATIVE, WRITE_1500, FRAME_GBIT, AtLeast(0.3)),
            row("1 MiB Write, MTU 1500, to TCP", NATIVE, WRITE_1500, TCP_GBIT, AtLeast(2.5)),
        ],
    },
    Question {
        title: "How many connections a second are set up and closed?",
        text: "Over memif, one core at each end: queue pairs are created, connected, closed and destroyed, 64 at a time.",
        rows: &[row("connections", "conn-rate.json", "test=conn-rate", SETUPS, AtLeast(50.0))],
    },
    Question {
        title: "How many 64 B messages a second has one core?",
        text: "Over memif, one core at each end, with CRC. Queued messages share a segment. In lists of 16, a completion is \
               requested for each list. One to a segment: 64 queue pairs with one message outstanding each.",
        rows: &[
            row("raw frames", "rate-frame.json", "test=frame-bw", Figure::Rate, NoGoal),
            row("Send", "rate-send.json", "test=send-bw", Figure::Rate, NoGoal),
            row("Write", "rate-write.json", "test=write-bw", Figure::Rate, NoGoal),
            row("Read", "rate-read.json", "test=read-bw", Figure::Rate, NoGoal),
            row("Write with Immediate", "rate-write-imm.json", "test=write-imm-bw", Figure::Rate, NoGoal),
            row("Send, lists of 16", "rate-send-list.json", "test=send-bw", Figure::Rate, AtLeast(20.0)),
            row("Write, lists of 16", "rate-write-list.json", "test=write-bw", Figure::Rate, AtLeast(20.0)),
            row(
                "Write, one to a segment",
                "rate-write-alone.json",
                "test=write-bw",
                Figure::Rate,
                AtLeast(8.0),
            ),
        ],
    },
    Question {
        title: "How do two cores scale?",
        text: "Over ring ports. Each core runs both ends over its own queue. Goodput of two cores to that of one, 64 B \
               messages; 8 B atomic operations on words of the same core.",
        rows: &[
            row("raw frames", SCALING, "test=frame-bw cores=2", FRAME_GBIT, NoGoal),
            row("Send", SCALING, "test=send-bw cores=2", against("send-bw", "ratio_gbit"), NoGoal),
            row("Write", SCALING, "test=write-bw cores=2", against("write-bw", "ratio_gbit"), NoGoal),
            row("Read", SCALING, "test=read-bw cores=2", against("read-bw", "ratio_gbit"), NoGoal),
            row("FetchAdd", SCALING, "test=atomic-bw cores=2", against("atomic-bw", "ratio_gbit"), NoGoal),
        ],
    },
    Question {
        title: "How much longer does a FetchAdd on another core's word take?",
        text: "Over ring ports, two cores. A hop is the time of a cache line from one core to the other.",
        rows: &[
            row("word of the same core", ATOMICS, FETCH_ADD_LOCAL, Figure::RoundTrip, NoGoal),
            row("word of another core", ATOMICS, FETCH_ADD_REMOTE, Figure::RoundTrip, NoGoal),
            row(
                "difference",
                ATOMICS,
                FETCH_ADD_REMOTE,
                against("atomic-lat", "added_ns_p50"),
                TwoHopsAnd(100.0),
            ),
        ],
    },
    Question {
        title: "Owner cores or locked instructions?",
        text: "Over ring ports, two cores that run both ends, four queue pairs a core, 16 operations outstanding each. The \
               rate with owner cores, which share the lines that both cores want, to the rate with locked instructions \
               alone.",
        rows: &[
            owner(
                "FetchAdd, 1024 words, each core its own",
                "operation=fetch-add words=1024 owner=local atomics=owner",
                NoGoal,
            ),
            owner(
                "FetchAdd, one shared word",
                "operation=fetch-add words=1 owner=spread atomics=owner",
                AtLeast(1.0),
            ),
            owner(
                "FetchAdd, 16 shared words",
                "operation=fetch-add words=16 owner=spread atomics=owner",
                AtLeast(0.9),
            ),
            owner(
                "FetchAdd, 1024 shared words",
                "operation=fetch-add words=1024 owner=spread atomics=owner",
                AtLeast(0.9),
            ),
            owner(
                "CmpSwap, one shared word",
                "operation=cmp-swap words=1 owner=spread atomics=owner",
                AtLeast(1.0),
            ),
            owner(
                "CmpSwap, 1024 shared words",
                "operation=cmp-swap words=1024 owner=spread atomics=owner",
                AtLeast(0.9),
            ),
        ],
    },
    Question {
        title: "How many instructions has a 64 B round trip?",
        text: "A Send there and a Send back, both ends and the port, one thread over memory ports, counted by callgrind.",
        rows: &[
            row("Send", "instruction-counts.json", "case=round-trip", INSTRUCTIONS, AtMost(6000.0)),
            row(
                "a poll without work",
                "instruction-counts.json",
                "case=idle-poll",
                INSTRUCTIONS,
                AtMost(150.0),
            ),
        ],
    },
    Question {
        title: "How many instructions has a TCP segment?",
        text: "An established connection, MTU 1500, sixteen segments a poll, counted by callgrind; ratios are ours to stock \
               smoltcp's over the same port. Checksums by the device or in software. Received: from the frame to the \
               bytes, with one acknowledgement a poll. Sent: from the bytes to the frame. The cost of received \
               acknowledgements is for sixteen segments.",
        rows: segments! {
            "received, checksums by the device": "receive", checksums in "device";
            "received, checksums in software": "receive", checksums in "software";
            "sent, checksums by the device": "send", checksums in "device";
            "sent, checksums in software": "send", checksums in "software";
            "16 acknowledged, checksums by the device": "acked", checksums in "device";
            "16 acknowledged, checksums in software": "acked", checksums in "software";
        },
    },
    Question {
        title: "How much shorter is a 64 B round trip than Linux siw's?",
        text: "perftest over siw and veth beside `iwarp-perf`, in turns in one emulated guest, so only ratios are \
               comparable. Both poll. Without CRC, as siw has it.",
        rows: &[
            row("Send, siw", SIW, "test=send-lat transport=siw", P50, NoGoal),
            row("Send, memif", SIW, SEND_MEMIF, P50, NoGoal),
            row("Send, siw to memif", SIW, SEND_MEMIF, SEND_SIW, AtLeast(5.0)),
            row("Send, siw to memif with CRC", SIW, SEND_MEMIF_CRC, SEND_SIW, NoGoal),
            row("Send, siw to af_packet", SIW, SEND_AF_PACKET, SEND_SIW, NoGoal),
            row("Write, siw to memif", SIW, WRITE_MEMIF, WRITE_SIW, NoGoal),
            row("Write, siw to af_packet", SIW, WRITE_AF_PACKET, WRITE_SIW, NoGoal),
            row("Read, siw to memif", SIW, READ_MEMIF, READ_SIW, NoGoal),
            row("Read, siw to af_packet", SIW, READ_AF_PACKET, READ_SIW, NoGoal),
        ],
    },
    Question {
        title: "How much shorter is a round trip of an unmodified program than over Linux siw?",
        text: "perftest over siw and veth, the same program over the replacement libraries and the library's own memif driver, \
               and `iwarp-perf` over that driver, in turns in the same guest, without CRC. Not guided by a profile.",
        rows: &[
            row("Send, siw", SIW_LIBRARIES, "test=send-lat transport=siw", P50, NoGoal),
            row("Send, perftest over the libraries", SIW_LIBRARIES, SEND_LIBRARIES, P50, NoGoal),
            row("Send, siw to memif, own driver", SIW_LIBRARIES, SEND_NATIVE, SEND_SIW, AtLeast(8.0)),
            row(
                "Send, siw to perftest over the libraries",
                SIW_LIBRARIES,
                SEND_LIBRARIES,
                SEND_SIW,
                AtLeast(5.0),
            ),
            row("Write, siw to memif, own driver", SIW_LIBRARIES, WRITE_NATIVE, WRITE_SIW, NoGoal),
            row(
                "Write, siw to perftest over the libraries",
                SIW_LIBRARIES,
                WRITE_LIBRARIES,
                WRITE_SIW,
                NoGoal,
            ),
            row("Read, siw to memif, own driver", SIW_LIBRARIES, READ_NATIVE, READ_SIW, NoGoal),
            row("Read, siw to perftest over the libraries", SIW_LIBRARIES, READ_LIBRARIES, READ_SIW, NoGoal),
        ],
    },
    Question {
        title: "How much more bandwidth have 1 MiB messages than over Linux siw?",
        text: "The same guest, messages of 1 MiB.",
        rows: &[
            row("Write, siw", SIW, "test=write-bw transport=siw", GBIT, NoGoal),
            row("Write, memif", SIW, WRITE_BW_MEMIF, GBIT, NoGoal),
            row("Write, memif to siw", SIW, WRITE_BW_MEMIF, WRITE_BW_SIW, NoGoal),
            row("Write, memif with CRC to siw", SIW, WRITE_BW_MEMIF_CRC, WRITE_BW_SIW, NoGoal),
            row("Write, af_packet to siw", SIW, WRITE_BW_AF_PACKET, WRITE_BW_SIW, NoGoal),
            row("Send, memif to siw", SIW, SEND_BW_MEMIF, SEND_BW_SIW, NoGoal),
            row("Read, memif to siw", SIW, READ_BW_MEMIF, READ_BW_SIW, NoGoal),
        ],
    },
];

const FRAME_64: &str = "test=frame-lat bytes=64";
const SEND_64: &str = "test=send-lat bytes=64 validated=false";
const WRITE_64: &str = "test=write-lat bytes=64 validated=false";
const READ_64: &str = "test=read-lat bytes=64 validated=false";
const SMOLTCP_64: &str = "test=smoltcp-lat bytes=64";
const TCP_64: &str = "test=tcp-lat bytes=64 path=veth wait=spin";
const SEND_MEMIF: &str = "test=send-lat transport=ironwarp path=memif crc=false";
const SEND_MEMIF_CRC: &str = "test=send-lat transport=ironwarp path=memif crc=true";
const SEND_NATIVE: &str = "test=send-lat transport=ironwarp path=memif-native";
const SEND_LIBRARIES: &str = "test=send-lat transport=libraries path=memif-native";
const SEND_AF_PACKET: &str = "test=send-lat transport=ironwarp path=af_packet";
const WRITE_MEMIF: &str = "test=write-lat transport=ironwarp path=memif crc=false";
const WRITE_NATIVE: &str = "test=write-lat transport=ironwarp path=memif-native";
const WRITE_LIBRARIES: &str = "test=write-lat transport=libraries path=memif-native";
const WRITE_AF_PACKET: &str = "test=write-lat transport=ironwarp path=af_packet";
const READ_MEMIF: &str = "test=read-lat transport=ironwarp path=memif crc=false";
const READ_NATIVE: &str = "test=read-lat transport=ironwarp path=memif-native";
const READ_LIBRARIES: &str = "test=read-lat transport=libraries path=memif-native";
const READ_AF_PACKET: &str = "test=read-lat transport=ironwarp path=af_packet";
const SEND_BW_MEMIF: &str = "test=send-bw transport=ironwarp path=memif crc=false";
const WRITE_BW_MEMIF: &str = "test=write-bw transport=ironwarp path=memif crc=false";
const WRITE_BW_MEMIF_CRC: &str = "test=write-bw transport=ironwarp path=memif crc=true";
const WRITE_BW_AF_PACKET: &str = "test=write-bw transport=ironwarp path=af_packet";
const READ_BW_MEMIF: &str = "test=read-bw transport=ironwarp path=memif crc=false";
const WRITE_9000: &str = "test=write-bw bytes=1048576 mtu=9000 validated=false";
const WRITE_1500: &str = "test=write-bw bytes=1048576 mtu=1500 validated=false";
const FETCH_ADD_LOCAL: &str = "test=atomic-lat owner=local atomics=owner";
const FETCH_ADD_REMOTE: &str = "test=atomic-lat owner=remote atomics=owner";

const INSTRUCTIONS: Figure = Figure::Value { key: "/instructions", scale: 1.0, unit: "instructions" };
const GBIT: Figure = Figure::Value { key: "/gbit_per_s", scale: 1.0, unit: "Gbit/s" };
const P50: Figure = Figure::Value { key: "/p50_ns", scale: 1e3, unit: "µs" };
const FRAME_P50: Figure = against("frame-lat", "ratio_p50");
const FRAME_P999: Figure = against("frame-lat", "ratio_p999");
const TCP_P50: Figure = against("tcp-lat", "ratio_p50");
const FRAME_GBIT: Figure = against("frame-bw", "ratio_gbit");
const TCP_GBIT: Figure = against("tcp-bw", "ratio_gbit");
const SMOLTCP_P50: Figure = against("smoltcp-lat", "ratio_p50");
const SMOLTCP_GBIT: Figure = against("smoltcp-bw", "ratio_gbit");
const SETUPS: Figure = Figure::Value { key: "/setups_per_s", scale: 1e3, unit: "k/s" };
const SEND_BW_SIW: Figure = gbit_to("test=send-bw transport=siw");
const WRITE_BW_SIW: Figure = gbit_to("test=write-bw transport=siw");
const READ_BW_SIW: Figure = gbit_to("test=read-bw transport=siw");
const SEND_SIW: Figure = siw_to_ours("test=send-lat transport=siw");
const WRITE_SIW: Figure = siw_to_ours("test=write-lat transport=siw");
const READ_SIW: Figure = siw_to_ours("test=read-lat transport=siw");

/// Twice the raw frame's round trip, or 350 ns more.
const NEAR_FLOOR: Goal = AtMostOrAdded(2.0, 350.0);

const fn owner(name: &'static str, select: &'static str, goal: Goal) -> Row {
    row(name, ATOMICS, select, against("atomic-bw-locked", "ratio_gbit"), goal)
}

const fn against(baseline: &'static str, key: &'static str) -> Figure {
    Figure::Against { baseline, key }
}

const fn instructions_to(divisor: &'static str) -> Figure {
    Figure::Quotient { key: "/instructions", divisor }
}

const fn gbit_to(divisor: &'static str) -> Figure {
    Figure::Quotient { key: "/gbit_per_s", divisor }
}

const fn siw_to_ours(dividend: &'static str) -> Figure {
    Figure::Inverse { key: "/p50_ns", dividend }
}
