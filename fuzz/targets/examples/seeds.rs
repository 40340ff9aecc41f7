//! Writes `seeds/`: inputs that reach the usual paths of each target. Run it after a change of a
//! target's steps: `cargo run -p ironwarp-fuzz --example seeds`.

use std::fs;
use std::path::Path;

use ironwarp_testkit::{ACK, FIN, ICMP, Route, SYN, Segment};

fn main() -> std::io::Result<()> {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../seeds");
    for (target, name, bytes) in all() {
        let folder = seeds.join(target);
        fs::create_dir_all(&folder)?;
        fs::write(folder.join(name), bytes)?;
    }
    for (name, bytes) in golden() {
        fs::write(seeds.join("startup").join(name), bytes)?;
    }
    Ok(())
}

/// The golden vectors of the verbs' tests as a peer sends them: start-up frames in either role,
/// other messages after one.
fn golden() -> Vec<(String, Vec<u8>)> {
    const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../stack/verbs/tests/golden/vectors");
    // The role, and a request of revision 1 that is right.
    let frame = [&[1, 1, 0, 0x40, 1][..], &short(&[]), &[0]].concat();
    let mut all = Vec::new();
    for (file, before) in [
        ("requests", vec![1]),
        ("replies", vec![2]),
        ("framing", frame.clone()),
        ("sends", frame.clone()),
        ("tagged", frame.clone()),
        ("terminates", frame.clone()),
        ("extended", frame),
    ] {
        let text = fs::read_to_string(format!("{FOLDER}/{file}.hex")).expect("a file of vectors");
        for vector in text.split("\n[").skip(1) {
            let (name, lines) = vector.split_once(']').expect("a name");
            let octets: Vec<u8> = lines.lines().skip(1).flat_map(octets).collect();
            if octets.len() < 256 {
                let name = format!("golden-{file}-{}", name.replace(',', "").replace(' ', "-"));
                all.push((name, [&before[..], &[0], &short(&octets), &[5, 20]].concat()));
            }
        }
    }
    all
}

/// The octets at the front of a line: `5a`, or `5a*24` for 24 of them.
fn octets(line: &str) -> Vec<u8> {
    let one = |word: &str| {
        let (octet, times) = word.split_once('*').unwrap_or((word, "1"));
        let octet = (octet.len() == 2).then(|| u8::from_str_radix(octet, 16).ok()).flatten()?;
        Some(vec![octet; times.parse().ok()?])
    };
    line.split_whitespace().map_while(one).flatten().collect()
}

/// A session with messages, losses and SACKs; cookies that are changed, replayed and late; an
/// association that the node opens; the end of one.
fn sctp() -> [(&'static str, &'static str, Vec<u8>); 4] {
    let begin = [0, 0, 0, 0, 0, 0, 14];
    let send = [0, 0, 0, 1, 0, 1, 14];
    let lossy = [&[0, 0, 2, 1, 0, 3][..], &[0, 0, 0, 1, 0, 1], &[3, 0, 1, 2, 1, 2, 2, 15, 14]].concat();
    let posts = [10, 1, 10, 1, 13, 0, 10, 1, 3, 0, 0, 2, 1, 2, 3, 15, 12, 14];
    let cookies = [9, 1, 0, 9, 0, 0, 0, 9, 0, 201, 0, 0, 15, 27, 15, 28, 9, 0, 0, 0, 0, 0, 0];
    let ends = [5, 0, 1, 7, 0, 4, 0, 0, 0, 0, 7, 0, 3, 0, 0, 14, 7, 0, 2, 0, 0, 8, 1, 1];
    [
        ("sctp", "session", [&begin[..], &send, &lossy, &posts].concat()),
        ("sctp", "cookies", [&begin[..], &cookies, &send].concat()),
        ("sctp", "opens", [&[10, 0, 14, 15, 10, 14][..], &[0x10, 0, 0, 0, 0, 0, 14], &posts].concat()),
        ("sctp", "ends", [&begin[..], &send, &ends].concat()),
    ]
}

/// Sessions that are accepted and ended: of the passive side, with a segment ahead of its
/// predecessor, and of the active side, with enhanced data.
fn sctp_sessions() -> [(&'static str, &'static str, Vec<u8>); 2] {
    let deliver = [1, 3];
    let initiate = [1, 1, 0, 0, 0];
    let segments = [1, 2, 2, 1, 9, 1, 2, 1, 1, 9];
    let ends = [1, 5, 0, 1, 1, 1, 1, 3, 3, 0];
    let accept = [1, 4, 1, 1];
    let passive = [&[0][..], &initiate, &deliver, &accept, &segments, &deliver, &ends, &deliver].concat();
    let initiate = [1, 4, 4, 1];
    let accept = [1, 1, 5, 0x80, 16, 0x80, 16, 0, 2, 7, 7];
    let ends = [1, 2, 1, 1, 9, 1, 1, 3, 2, 0, 1, 3, 1, 5, 0, 1, 0];
    let active = [&[1][..], &initiate, &accept, &deliver, &ends].concat();
    [("sctp_sessions", "passive", passive), ("sctp_sessions", "active", active)]
}

/// Packets in and out of order, replayed, altered and forged, and a hostile peer's: by GCM in a
/// tunnel, and by CBC in transport mode over IPv6.
fn esp() -> [(&'static str, &'static str, Vec<u8>); 2] {
    let send = [&[0][..], &short(&[7; 20])].concat();
    let deliver = [1, 2, 1, 0, 1, 1, 1, 1];
    let attack = [&[2, 0, 6, 1, 2, 1, 30, 0x80, 3][..], &short(&[0, 0, 0x10, 0, 0, 0, 0, 9])].concat();
    let hostile = [&[4][..], &short(&[0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 10, 17])].concat();
    let rest = [&send.repeat(3)[..], &attack, &deliver, &hostile, &[5], &short(&[0x45; 40])].concat();
    [
        ("esp", "tunnel", [&[0, 1, 1, 0][..], &rest].concat()),
        ("esp", "transport-ipv6", [&[4, 0, 0, 1][..], &rest].concat()),
    ]
}

/// A length of 16 bits and the bytes.
fn long(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u16).to_be_bytes()[..], bytes].concat()
}

/// A length of 8 bits and the bytes.
fn short(bytes: &[u8]) -> Vec<u8> {
    [&[bytes.len() as u8][..], bytes].concat()
}

fn all() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let mut all = Vec::new();
    all.extend(frames().map(|(name, frame)| ("frames", name, [&[1][..], &long(&frame)].concat())));
    // ARP, discovery, errors, echoes, and time, with the usual values of all fields.
    all.push(("neighbours", "ipv4", [&[0][..], &step(0, 24), &step(3, 2), &step(2, 12), &[4, 20]].concat()));
    all.push(("neighbours", "ipv6", [&[1][..], &step(1, 24), &step(3, 2), &step(2, 12), &[4, 20]].concat()));
    all.push(("tcp", "requests", tcp()));
    all.push((
        "tcp",
        "sack",
        [&tcp()[..], &[10, 1, 0, 0, 255, 4, 1, 0, 10, 0, 20, 0, 30, 0, 40, 15, 25]].concat(),
    ));
    for (name, role, revision) in [("responder-1", 1u8, 1u8), ("responder-2", 1, 2), ("initiator", 0, 1)] {
        let frame = [&[1, 0, 0x40, revision][..], &short(&[])].concat();
        all.push((
            "startup",
            name,
            [&[role][..], &frame, &[0], &[4], &short(&[0x41, 0x43]), &[5, 24]].concat(),
        ));
    }
    all.push(("startup", "enhanced", [&[1, 2, 0x80, 16, 0x80, 16, 0][..], &[5, 20]].concat()));
    for (name, kind) in [("plain", 0u8), ("markers", 1), ("markers-out-of-order", 3), ("markers-both", 7)] {
        let write = [&[3, 0, 8][..], &short(&[9; 100]), &[0]].concat();
        let split = [&[2][..], &long(&[0x41; 300]), &[0, 90]].concat();
        all.push(("fpdu", name, [&[kind][..], &write.repeat(8), &split, &write].concat()));
    }
    for (name, operation) in [("send", 0u8), ("read", 4), ("atomic", 5), ("terminate", 6), ("immediate", 8)] {
        all.push(("rdmap", name, [&[1, 0, operation][..], &[0; 60], &[0, operation], &[0; 60]].concat()));
    }
    let write = [&[4, 0, 0, 0, 0, 0, 0][..], &long(&[5; 64])].concat();
    all.push(("rdmap", "write", [&[1][..], &write, &[6, 0, 0, 0, 64, 1], &write].concat()));
    all.extend(sctp());
    all.extend(sctp_sessions());
    all.extend(esp());
    // Every frame is delivered; a message is posted in each round.
    all.push(("network", "no-faults", [0, 0, 0, 3, 10].repeat(40)));
    all.push(("network", "losses", [0, 185, 0, 220, 3, 18].repeat(40)));
    all.push((
        "verbs",
        "calls",
        (0..=255).flat_map(|call: u8| [call, 1, 64, 64, 2, 0, 0, 0, 0, 0, 0, 0]).collect(),
    ));
    all.extend(capi().map(|(name, steps)| ("capi", name, [&[0][..], &steps].concat())));
    all.extend(memif().map(|(name, script)| ("memif", name, script)));
    all.extend(memif_rings().map(|(name, script)| ("memif_rings", name, script)));
    // A plain frame, super-segments, and headers that cannot be true; then without a free buffer.
    let virtio_net = [
        [0, 0, 0, 0, 0, 0, 0, 234, 5],
        [1, 168, 5, 0, 0, 0, 0, 0, 64],
        [2, 168, 5, 255, 255, 34, 0, 0, 64],
        [3, 1, 4, 168, 5, 16, 0, 255, 255],
    ];
    all.push(("virtio_net", "headers", virtio_net.concat()));
    all.push(("virtio_net", "held", virtio_net[1].repeat(70)));
    all.extend(nvmf().map(|(name, steps)| ("nvmf", name, steps)));
    all
}

/// Steps of two hosts of the NVMe target: commands of every kind, data of the honest host, a disk
/// that hangs, Connects, a host that sends no data, lost frames, an authentication.
fn nvmf() -> [(&'static str, Vec<u8>); 7] {
    let command = |number: u8| [0, 5, 1 + number % 2, number, 1, 7, 3, 0, 2 + number % 2, 14, 8];
    let extent = |number: u8| [7, number, 1, number % 2, 14, 8, 7, number, 0, 0, 14, 8];
    let pauses = |count: usize| [12, 28, 14, 4].repeat(count);
    let write = [0, 5, 1, 1, 1, 7, 3, 0, 2];
    let connect = [0, 0, 0, 0, 14, 15, 0, 3, 3, 0, 1, 0, 0, 0, 0, 0, 0, 14, 15, 0, 1, 3, 200, 14, 8];
    // Negotiate, Challenge, a Reply without the secret, Failure1.
    let fetch = [0, 11, 0, 1, 0, 14, 8];
    let negotiate = [0, 11, 0, 0, 9, 9, 0, 0, 0, 5, 0, 0, 0, 14, 8];
    let reply = [0, 11, 0, 0, 9, 9, 4, 0, 7, 0, 5, 0, 0, 0, 14, 8];
    let authentication = [&negotiate[..], &fetch, &reply, &fetch, &connect].concat();
    let hung = [&[10, 1, 7, 7, 1, 0, 7, 8, 1, 1][..], &write, &[14, 4], &pauses(4)].concat();
    [
        ("commands", (0..14).flat_map(command).collect()),
        ("honest", (0..12).flat_map(extent).collect()),
        ("losses", [&[11, 3][..], &(0..12).flat_map(extent).collect::<Vec<u8>>()].concat()),
        ("hung-disk", [&hung[..], &[7, 7, 1, 0, 7, 8, 1, 0, 14, 8, 10, 2, 14, 15]].concat()),
        ("connects", connect.repeat(4)),
        ("authentication", authentication),
        ("faults", [&write.repeat(6)[..], &[11, 1, 14, 8], &pauses(10), &[11, 5, 14, 15]].concat()),
    ]
}

/// Steps of a peer at the rings of a memif: frames in both directions with buffers of either end,
/// indices that go back.
fn memif_rings() -> [(&'static str, Vec<u8>); 4] {
    [
        ("theirs", vec![3, 6, 0, 2, 1, 0, 6, 1, 4, 0, 2, 3, 63, 0]),
        ("ours", vec![2, 6, 2, 2, 0, 0, 2, 5, 63, 0, 6, 3, 2, 0, 2, 4, 200, 0]),
        ("rewind", vec![5, 6, 1, 4, 0, 2, 2, 63, 0, 4, 1, 6, 0, 2, 1, 255, 1]),
        (
            "descriptors",
            vec![
                5, 5, 0, 0, 0, 1, 0, 0, 0, 5, 0, 1, 0, 0, 0, 0, 0, 6, 0, 2, 1, 0, 7, 16, 0, 1, 2, 3, 4, 5, 6,
                7, 8,
            ],
        ),
    ]
}

/// Steps of a peer of a memif: a start, frames in both directions, the start message by message,
/// another peer.
fn memif() -> [(&'static str, Vec<u8>); 4] {
    let send = [2, 10, 63, 0];
    let offer = |ring| vec![6, ring, 4, 0, 64, 0];
    let client = [vec![0, 0], offer(0), vec![1], offer(1), send.to_vec(), vec![11, 0], offer(0), vec![1]];
    let chains = [vec![2, 0], vec![6, 0, 4, 1, 200, 0, 1], vec![6, 1, 8, 0, 100, 0, 2, 3, 220, 5]];
    let server = [vec![1, 0], send.to_vec(), vec![5, 3, 2, 0, 1], send.to_vec(), vec![10, 0, 9, 11, 0]];
    // Init, a region of sealed memory, two rings, Connect.
    let ring = |direction| vec![7, 4, direction, 0, 0, 0, 0, 0, 9];
    let messages = [vec![0, 9, 7, 2, 0, 0, 0, 0, 9, 7, 3, 0, 0, 7, 9], ring(1), ring(0), vec![7, 5, 0, 9, 1]];
    [
        ("client", client.concat()),
        ("chains", chains.concat()),
        ("server", server.concat()),
        ("messages", messages.concat()),
    ]
}

/// Calls of the C API over an established connection.
fn capi() -> [(&'static str, Vec<u8>); 6] {
    const POLL: u8 = 12;
    // A piece of 64 bytes of the first memory.
    let piece = [0, 1, 0, 64, 0];
    let receives = |end, kind| {
        let pieces = [&[1][..], &piece].concat().repeat(3);
        [&[40, end, kind, 0, 0, 0, 0, 0, 0, 0, 0, 2][..], &pieces, &[0, POLL]].concat()
    };
    let reap = |end, by_end: bool| vec![56, end, u8::from(!by_end) * 64, 0, 0, 0, 0, 0, 16, 0, POLL];
    let send_by = |by_end: bool, opcode: u8, flags: u8| {
        let single = matches!(opcode, 2 | 5..=7 | 9..);
        let handles = [0, 0, u8::from(!by_end) * 64, 0, 0, 0, 0, 0, 0, 0];
        // A word is eight bytes.
        let piece = if matches!(opcode, 5..=7) { [0, 1, 8, 0, 128] } else { piece };
        let request = [&[opcode, 0, flags, u8::from(!single)][..], &piece, &[0, 8, 0, 5, 0, 9, 7, 0, 0, 3]];
        [&handles[..], &request.concat(), &[0, 0, POLL]].concat()
    };
    let send = |opcode, flags| send_by(false, opcode, flags);
    let listed = |name, arguments: &[u8]| [&[listed_kind(name), 0][..], arguments, &[POLL]].concat();
    // Written, read, sent, with Immediate Data; atomic operations; tags.
    let messages: Vec<u8> = [0, 1, 2, 3, 4, 0].iter().flat_map(|&opcode| send(opcode, 1)).collect();
    let end = listed("iw_disconnect", &[0, 0, 0]);
    let words: Vec<u8> = [5, 6, 7, 11].iter().flat_map(|&opcode| send(opcode, 5)).collect();
    let local = [&[90, 0, 0, 0, 0, 0, 0, 1, 1][..], &[1; 8], &[0; 8], &[0, 9, 0, POLL]].concat();
    let tags = [
        listed("iw_mw_create", &[0, 0, 0, 0]),
        listed("iw_fast_mr_create", &[0, 0, 0, 0]),
        send(9, 1),
        send(10, 1),
        send(8, 9),
    ];
    // Queues with attributes, split from their context: a request of each end, and the ends' own
    // calls.
    let split = [
        listed("iw_cq_create_with", &[0, 0, 16, 1, 0, 0, 0]),
        listed("iw_srq_create_with", &[0, 0, 0, 16, 2, 1, 0, 0, 0]),
        listed("iw_qp_split", &[0, 0, 0, 0, 0]),
        listed("iw_cq_split", &[0, 0, 0, 0]),
        listed("iw_srq_split", &[0, 0, 0, 0]),
        send_by(true, 1, 1),
        receives(0, 5),
        receives(0, 7),
        reap(0, true),
        listed("iw_cq_poller_arm", &[0, 0, 1]),
        listed("iw_cq_poller_fd", &[0, 0, 0]),
        listed("iw_send_poster_close", &[0, 0]),
        listed("iw_recv_poster_close", &[0, 0]),
        listed("iw_srq_poster_close", &[0, 0]),
        listed("iw_cq_poller_close", &[0, 0]),
    ];
    // A capture, the log, counters of a core and of a port, a worker that waits.
    let host = [
        listed("iw_capture_create", &[0, 0]),
        listed("iw_worker_start_capture", &[&[0, 0, 0, 0][..], &short(b"cap")].concat()),
        listed("iw_capture_flush", &[0, 0]),
        listed("iw_worker_stop_capture", &[0, 0]),
        listed("iw_capture_close", &[0, 0]),
        vec![100, 0, 1, 3, POLL],
        listed("iw_stack_core_counter", &[0, 0, 0, 0, 0]),
        listed("iw_stack_port_counter", &[0, 0, 0, 0, 0]),
        listed("iw_worker_wake_fd", &[0, 0, 0]),
        listed("iw_worker_arm", &[0, 0]),
    ];
    let registered = vec![72, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 2];
    [
        ("split", split.concat()),
        ("host", host.concat()),
        ("messages", [receives(1, 0), messages, reap(0, false), reap(1, false), end].concat()),
        ("words", [words, local, reap(0, false)].concat()),
        ("tags", [tags.concat(), reap(0, false)].concat()),
        ("memory", [registered, vec![84, 0, 1, 2], vec![84, 0, 0, 2]].concat()),
    ]
}

/// The kind of the call of a function that the target lists.
fn listed_kind(name: &str) -> u8 {
    let target = include_str!("../src/capi/mod.rs");
    let (_, list) = target.split_once("listed! { call, kind;").expect("the list");
    let mut names = list.lines().filter_map(|line| line.trim().split_once('(')).map(|(name, _)| name);
    106 + names.position(|listed| listed == name).expect("a listed function") as u8
}

/// A step and the zeros that its fields read.
fn step(kind: u8, zeros: usize) -> Vec<u8> {
    [&[kind][..], &vec![0; zeros]].concat()
}

fn frames() -> impl Iterator<Item = (&'static str, Vec<u8>)> {
    let (route, route6) = (Route::v4(2, 1), Route::v6(2, 1));
    let syn = Segment {
        src_port: 2000,
        dst_port: 4791,
        flags: SYN,
        window: 1000,
        options: vec![2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7],
        ..Segment::default()
    };
    let data = Segment { flags: ACK | FIN, payload: vec![1; 40], options: Vec::new(), ..syn.clone() };
    let echo = [8, 0, 0, 0, 0, 1, 0, 1, 1, 2, 3, 4];
    [
        ("arp", route.arp(1, route.macs[0])),
        ("echo", route.packet(ICMP, &echo)),
        ("syn", syn.frame(route)),
        ("syn-ipv6", syn.frame(route6)),
        ("data", data.frame(route)),
    ]
    .into_iter()
}

/// Start-up, then messages of the peer and of the application.
fn tcp() -> Vec<u8> {
    let send =
        [&[6][..], &short(&[0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 2, 3])].concat();
    [&[7, 0x40, 0][..], &send, &[10, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 200, 14], &[15, 20]]
        .concat()
}
