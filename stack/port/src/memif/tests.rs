//! Two ports of this kind with each other, and each port with a peer that breaks the rules: each
//! way has its counter.

mod checksums;
mod peers;

use std::path::Path;
use std::time::{Duration, Instant};

use ironwarp_stats::{CoreStats, Counter};

use self::peers::{Client, EvilServer, Seal};
use super::region::{Descriptor, NEXT};
use super::wire::Message;
use super::*;
use crate::{Burst, Frame, Port, Sealed as _, TxMeta};

/// The time limit of a wait.
const PATIENCE: Duration = Duration::from_secs(20);

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "{what}: not in time");
        std::thread::yield_now();
    }
}

fn small(config: MemifConfig) -> MemifConfig {
    MemifConfig { ring_log2: 4, buffer_bytes: 2048, rx_frames: 256, tx_frames: 256, ..config }
}

fn server(path: &Path) -> (MemifPort, CoreStats) {
    let stats = CoreStats::detached();
    let port = MemifPort::open(&small(MemifConfig::server(path)), stats.clone()).expect("a server");
    (port, stats)
}

fn link_up(one: &MemifPort, other: &MemifPort) {
    until("the link", || {
        let (one, other) = (one.link().up, other.link().up);
        one && other
    });
}

fn send(port: &mut MemifPort, bytes: &[u8]) -> bool {
    let Some(mut frame) = port.alloc() else { return false };
    frame.resize(bytes.len());
    frame.bytes_mut().copy_from_slice(bytes);
    let mut burst = Burst::from_iter([frame.seal(TxMeta::default())]);
    port.tx_burst(&mut burst);
    burst.is_empty()
}

fn receive(port: &mut MemifPort) -> Vec<Vec<u8>> {
    let mut burst = Burst::new();
    port.rx_burst(&mut burst);
    burst.iter().map(|frame| frame.bytes().to_vec()).collect()
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

#[test]
fn frames_of_every_length_cross_in_both_directions() {
    let folder = folder();
    let path = folder.path().join("m");
    // Buffers of 256 bytes: frames take up to seven descriptors.
    let tight = |config| MemifConfig { buffer_bytes: 256, ..small(config) };
    let mut ends = [MemifConfig::client(&path), MemifConfig::server(&path)]
        .map(|config| MemifPort::open(&tight(config), CoreStats::detached()).expect("an end"));
    let [client, server] = &mut ends;
    link_up(client, server);
    assert!(receive(server).is_empty() && receive(client).is_empty());
    for len in (1..=1518).chain([255, 256, 257, 512]) {
        let bytes: Vec<u8> = (0..len).map(|at| (at * 7 + len) as u8).collect();
        for _ in 0..2 {
            assert!(send(client, &bytes));
            assert_eq!(receive(server), core::slice::from_ref(&bytes));
            assert!(send(server, &bytes));
            assert_eq!(receive(client), core::slice::from_ref(&bytes));
        }
    }
    assert_eq!((client.free_frames(), server.free_frames()), ((256, 256), (256, 256)));
}

/// A long frame, of which a clone waits for an acknowledgement.
fn long_frame(port: &mut MemifPort, byte: u8) -> MemifSealed {
    let mut frame = port.alloc_long().expect("a frame");
    frame.resize(1500);
    frame.bytes_mut().fill(byte);
    frame.seal(TxMeta::default())
}

fn send_sealed(port: &mut MemifPort, sealed: &MemifSealed) -> bool {
    let mut burst = Burst::from_iter([sealed.clone()]);
    port.tx_burst(&mut burst);
    burst.is_empty()
}

/// The ends of a link, whose client builds long frames in its memory: 32 for its ring of 16.
fn client_and_server(path: &Path) -> (MemifPort, MemifPort) {
    let (server, _) = server(path);
    let client = MemifPort::open(&small(MemifConfig::client(path)), CoreStats::detached()).expect("a client");
    link_up(&client, &server);
    (client, server)
}

#[test]
fn long_frames_are_built_where_the_server_reads_them_while_there_are_buffers() {
    let folder = folder();
    let (mut client, mut server) = client_and_server(&folder.path().join("m"));
    assert!(send(&mut client, &[0; 60]) && receive(&mut server).len() == 1);
    let mut waiting = Vec::new();
    for number in 0..100 {
        let sealed = long_frame(&mut client, number);
        assert!(send_sealed(&mut client, &sealed));
        assert_eq!(receive(&mut server), [[number; 1500]]);
        waiting.push(sealed);
        // Of the others a copy was sent.
        let private = waiting.len().saturating_sub(32);
        assert_eq!(client.free_frames(), (256, 256 - private));
    }
    assert!((0..).zip(&waiting).all(|(number, sealed)| sealed.bytes() == [number; 1500]));
    waiting.clear();
    for number in 0..1000u32 {
        let sealed = long_frame(&mut client, number as u8);
        assert!(send_sealed(&mut client, &sealed));
        assert_eq!(receive(&mut server), [[number as u8; 1500]]);
        assert_eq!(client.free_frames(), (256, 256), "the server has read the others");
    }
    // A server has no memory of its own.
    let sealed = long_frame(&mut server, 1);
    assert_eq!(server.free_frames(), (256, 255));
    assert!(send_sealed(&mut server, &sealed));
    assert_eq!(receive(&mut client), [[1; 1500]]);
}

#[test]
fn frames_of_an_ended_link_are_copied_to_the_next_and_keep_their_memory() {
    let folder = folder();
    let path = folder.path().join("m");
    let (mut client, server) = client_and_server(&path);
    assert!(receive(&mut client).is_empty());
    let dropped_by = client.memory_dropped_by();
    let kept = long_frame(&mut client, 7);
    assert!(send_sealed(&mut client, &kept));
    drop(server);
    until("the end of the link", || !client.link().up);
    assert!(receive(&mut client).is_empty());
    let (mut server, _) = self::server(&path);
    link_up(&client, &server);
    assert!(send_sealed(&mut client, &kept) && dropped_by.get().is_none());
    assert_eq!(receive(&mut server), [[7; 1500]]);
    drop(kept);
    until("the end of the mapping", || dropped_by.get().is_some());
    assert_ne!(dropped_by.get(), Some(&std::thread::current().id()), "no polled core waits for it");
}

/// A peer that comes and goes while nothing is acknowledged: beyond four links, frames are private.
#[test]
fn memory_of_ended_links_does_not_pile_up() {
    let folder = folder();
    let path = folder.path().join("m");
    let mut client =
        MemifPort::open(&small(MemifConfig::client(&path)), CoreStats::detached()).expect("a client");
    let mut waiting = Vec::new();
    for link in 0..8 {
        let (server, _) = self::server(&path);
        link_up(&client, &server);
        assert!(receive(&mut client).is_empty());
        waiting.push(long_frame(&mut client, link));
        drop(server);
        until("the end of the link", || !client.link().up);
        assert!(receive(&mut client).is_empty());
    }
    assert_eq!(client.free_frames(), (256, 256 - 4));
}

/// What the peer writes to a frame in place is all that it changes.
#[test]
fn a_server_that_changes_frames_in_place_changes_what_it_receives() {
    let folder = folder();
    let path = folder.path().join("m");
    let stats = CoreStats::detached();
    let mut client = MemifPort::open(&small(MemifConfig::client(&path)), stats.clone()).expect("a client");
    let evil = EvilServer::bind(&path);
    let memory = evil.up(&client);
    assert!(receive(&mut client).is_empty());
    let sealed = [1, 2, 3].map(|byte| long_frame(&mut client, byte));
    assert!(sealed.iter().all(|sealed| send_sealed(&mut client, sealed)));
    memory.overwrite_c2s(1, 9);
    assert_eq!(sealed.each_ref().map(|sealed| sealed.bytes() == [9; 1500]), [false, true, false]);
    assert_eq!(sealed.each_ref().map(|sealed| sealed.bytes().len()), [1500; 3]);
    memory.set_c2s_tail(3);
    assert!(send(&mut client, &[4; 60]) && client.link().up);
}

#[test]
fn frames_without_a_peer_are_dropped_and_counted() {
    let folder = folder();
    let (mut port, stats) = server(&folder.path().join("m"));
    assert!(send(&mut port, &[1; 60]) && send(&mut port, &[1; 60]));
    assert_eq!((stats.read(Counter::PortMemifNoPeer), stats.read(Counter::PortTxFrames)), (2, 0));
    assert_eq!(port.free_frames(), (256, 256));
}

#[test]
fn a_full_ring_leaves_frames_and_a_long_run_wraps_the_indices() {
    let folder = folder();
    let path = folder.path().join("m");
    let (mut server, stats) = server(&path);
    let mut client =
        MemifPort::open(&small(MemifConfig::client(&path)), CoreStats::detached()).expect("a client");
    link_up(&client, &server);
    for port in [&mut client, &mut server] {
        assert!((0..16).all(|number| send(port, &[number; 60])));
        assert!(!send(port, &[16; 60]), "the ring has 16 descriptors");
    }
    for port in [&mut client, &mut server] {
        let expected: Vec<_> = (0..16).map(|number| vec![number; 60]).collect();
        assert_eq!(receive(port), expected);
    }
    for number in 0..70_000u32 {
        assert!(send(&mut client, &number.to_be_bytes()) && send(&mut server, &number.to_be_bytes()));
        assert_eq!(receive(&mut server), [number.to_be_bytes()]);
        assert_eq!(receive(&mut client), [number.to_be_bytes()]);
    }
    assert_eq!(stats.read(Counter::PortRxFrames), 70_016);
}

#[test]
fn each_queue_pair_has_its_own_rings() {
    let folder = folder();
    let path = folder.path().join("m");
    let open = |config| {
        let config = MemifConfig { queues: 3, ..small(config) };
        MemifPort::open_queues(&config, (0..3).map(|_| CoreStats::detached()).collect()).expect("an end")
    };
    let (mut client, mut server) = (open(MemifConfig::client(&path)), open(MemifConfig::server(&path)));
    link_up(&client[0], &server[0]);
    for queue in 0..3 {
        assert!(send(&mut client[queue], &[queue as u8; 60]) && send(&mut server[queue], &[queue as u8; 60]));
    }
    for queue in 0..3 {
        assert_eq!(receive(&mut server[queue]), [[queue as u8; 60]]);
        assert_eq!(receive(&mut client[queue]), [[queue as u8; 60]]);
    }
}

#[test]
fn ends_with_another_secret_number_or_number_of_queues_do_not_connect() {
    let folder = folder();
    let secret = |text: &str| Some(MemifSecret(text.into()));
    let path = folder.path().join("m");
    let base = MemifConfig { secret: secret("right"), ..small(MemifConfig::server(&path)) };
    let stats = CoreStats::detached();
    let server = MemifPort::open(&base, stats.clone()).expect("a server");
    let client = MemifConfig { role: MemifRole::Client, ..base.clone() };
    let cases = [
        (MemifConfig { secret: secret("wrong"), ..client.clone() }, Counter::PortMemifBadSecret),
        (MemifConfig { secret: None, ..client.clone() }, Counter::PortMemifBadSecret),
        (MemifConfig { id: 9, ..client.clone() }, Counter::PortMemifRefused),
    ];
    for (wrong, counter) in cases {
        let before = stats.read(counter);
        let port = MemifPort::open(&wrong, CoreStats::detached()).expect("a client");
        until("the refusal", || {
            assert!(!port.link().up && !server.link().up);
            stats.read(counter) > before
        });
    }
    let theirs = CoreStats::detached();
    let two = MemifConfig { queues: 2, ..client.clone() };
    let ports = MemifPort::open_queues(&two, vec![theirs.clone(), CoreStats::detached()]).expect("a client");
    until("the refusal", || {
        assert!(!ports[0].link().up && !server.link().up);
        theirs.read(Counter::PortMemifRefused) > 0
    });
    drop(ports);
    let right = MemifPort::open(&client, CoreStats::detached()).expect("a client");
    link_up(&right, &server);
}

#[test]
fn either_end_may_go_and_come_back() {
    let folder = folder();
    let path = folder.path().join("m");
    let (mut server, stats) = self::server(&path);
    let open_client =
        || MemifPort::open(&small(MemifConfig::client(&path)), CoreStats::detached()).expect("a client");
    for round in 1..=3 {
        let mut client = open_client();
        link_up(&client, &server);
        assert!(send(&mut client, &[round; 60]) && send(&mut server, &[9; 60]));
        assert_eq!(receive(&mut server), [[round; 60]], "nothing of an earlier link");
        drop(client);
        until("the end of the link", || !server.link().up);
        assert!(send(&mut server, &[1; 60]), "without a peer frames are dropped");
        assert!(receive(&mut server).is_empty());
    }
    assert_eq!((stats.read(Counter::PortMemifConnects), stats.read(Counter::PortMemifDisconnects)), (3, 3));
    let mut client = open_client();
    link_up(&client, &server);
    drop(server);
    until("the end of the link", || !client.link().up);
    let (mut server, _) = self::server(&path);
    link_up(&client, &server);
    assert!(send(&mut client, &[5; 60]));
    assert_eq!(receive(&mut server), [[5; 60]]);
}

#[test]
fn a_second_client_is_refused_and_the_first_one_goes_on() {
    let folder = folder();
    let path = folder.path().join("m");
    let (mut server, stats) = self::server(&path);
    let mut client =
        MemifPort::open(&small(MemifConfig::client(&path)), CoreStats::detached()).expect("a client");
    link_up(&client, &server);
    let second = Client::connect(&path);
    until("the refusal", || {
        assert!(server.link().up);
        stats.read(Counter::PortMemifRefused) == 1
    });
    assert!(matches!(second.next(&server), Some(Message::Disconnect(_))));
    assert!(send(&mut client, &[1; 60]));
    assert_eq!(receive(&mut server).len(), 1);
}

#[test]
fn a_client_that_breaks_the_start_is_dropped_with_its_counter() {
    use Counter::*;
    let folder = folder();
    let path = folder.path().join("m");
    let (server, stats) = self::server(&path);
    type Act = fn(&mut Client, &MemifPort);
    let cases: &[(Counter, Act)] = &[
        (PortMemifBadMessage, |peer, _| peer.send_raw(&[1; 40])),
        (PortMemifBadMessage, |peer, _| peer.send_raw(&[0xff; 128])),
        (PortMemifBadMessage, |peer, _| peer.send(&Message::Connected, None)),
        (PortMemifBadMessage, |peer, _| peer.send(&Message::Connect, None)),
        (PortMemifBadMessage, |peer, _| peer.region(0, 4096, Seal::Shrink)),
        (PortMemifBadVersion, |peer, _| peer.init(0x0300, 0, 0)),
        (PortMemifRefused, |peer, _| peer.init(0x0200, 1, 0)),
        (PortMemifRefused, |peer, _| peer.init(0x0200, 0, 1)),
        (PortMemifBadMessage, |peer, port| (0..2).for_each(|_| peer.good_init(port))),
        (PortMemifBadMessage, |peer, port| (peer.good_init(port), peer.region_without_file()).1),
        (PortMemifBadMessage, |peer, port| (peer.good_init(port), peer.region(1, 4096, Seal::Shrink)).1),
        (PortMemifUnsealed, |peer, port| (peer.good_init(port), peer.region(0, 4096, Seal::None)).1),
        (PortMemifHoles, |peer, port| (peer.good_init(port), peer.region(0, 4096, Seal::Sparse)).1),
        (PortMemifBadSize, |peer, port| (peer.good_init(port), peer.region(0, 0, Seal::Shrink)).1),
        (PortMemifBadSize, |peer, port| (peer.good_init(port), peer.region(0, 8192 + 1, Seal::Shrink)).1),
        (PortMemifBadSize, |peer, port| (peer.good_init(port), peer.region(0, u64::MAX, Seal::Shrink)).1),
        (PortMemifBadSize, |peer, port| {
            peer.good_init(port);
            for index in 0..=16 {
                peer.region(index, 4096, Seal::Shrink);
                peer.next(port);
            }
        }),
        (PortMemifBadRing, |peer, port| (peer.good_region(port), peer.ring(1, 0, 1, 0, 4)).1),
        (PortMemifBadRing, |peer, port| (peer.good_region(port), peer.ring(1, 0, 0, 8192, 4)).1),
        (PortMemifBadRing, |peer, port| (peer.good_region(port), peer.ring(1, 0, 0, u32::MAX, 4)).1),
        (PortMemifBadRing, |peer, port| (peer.good_region(port), peer.ring(1, 0, 0, 1, 4)).1),
        (PortMemifBadRing, |peer, port| (peer.good_region(port), peer.ring(1, 0, 0, 4096, 4)).1),
        (PortMemifBadRing, |peer, port| (peer.good_region(port), peer.ring(1, 0, 0, 0, 0)).1),
        (PortMemifBadRing, |peer, port| (peer.good_region(port), peer.ring(1, 0, 0, 0, 255)).1),
        (PortMemifRefused, |peer, port| (peer.good_region(port), peer.ring(1, 1, 0, 0, 4)).1),
        (PortMemifRefused, |peer, port| (peer.good_region(port), peer.send(&Message::Connect, None)).1),
        (PortMemifBadRing, |peer, port| {
            peer.good_region(port);
            peer.ring(1, 0, 0, 0, 4);
            peer.next(port);
            peer.ring(1, 0, 0, 0, 4);
        }),
    ];
    for (number, (counter, act)) in cases.iter().enumerate() {
        let before = stats.read(*counter);
        let mut peer = Client::connect(&path);
        assert!(matches!(peer.next(&server), Some(Message::Hello(_))));
        act(&mut peer, &server);
        until(&format!("case {number}, {counter:?}"), || {
            assert!(!server.link().up);
            stats.read(*counter) > before
        });
        assert_eq!(stats.read(*counter), before + 1, "case {number}");
        until("the end", || matches!(peer.next(&server), None | Some(Message::Disconnect(_))));
    }
    // After all of that an honest client is served.
    let client =
        MemifPort::open(&small(MemifConfig::client(&path)), CoreStats::detached()).expect("a client");
    link_up(&client, &server);
}

/// Its memory stays its own: the server's copies find every page, and nobody can punch a hole.
#[test]
fn memory_of_a_client_exists_before_it_is_passed_and_stays() {
    let folder = folder();
    let path = folder.path().join("m");
    let client =
        MemifPort::open(&small(MemifConfig::client(&path)), CoreStats::detached()).expect("a client");
    let evil = EvilServer::bind(&path);
    // It takes a region only if all pages exist.
    let memory = evil.up(&client);
    assert!(memory.punch().is_err());
    assert!(client.link().up);
}

#[test]
fn a_server_with_that_setting_takes_memory_without_pages() {
    let folder = folder();
    let path = folder.path().join("m");
    let config = MemifConfig { sparse: true, ..small(MemifConfig::server(&path)) };
    let server = MemifPort::open(&config, CoreStats::detached()).expect("a server");
    let peer = Client::connect(&path);
    assert!(matches!(peer.next(&server), Some(Message::Hello(_))));
    peer.good_init(&server);
    peer.region(0, 8192, Seal::Sparse);
    assert!(matches!(peer.next(&server), Some(Message::Ack)));
}

#[test]
fn a_user_that_starts_links_without_end_is_slowed_down() {
    let folder = folder();
    let path = folder.path().join("m");
    let (server, stats) = self::server(&path);
    until("the limit", || {
        let _ = Client::try_connect(&path);
        stats.read(Counter::PortMemifRateLimited) > 0
    });
    assert!(!server.link().up);
    // Its starts come back.
    let client =
        MemifPort::open(&small(MemifConfig::client(&path)), CoreStats::detached()).expect("a client");
    link_up(&client, &server);
}

#[test]
fn a_peer_that_acknowledges_without_end_is_dropped() {
    let folder = folder();
    let path = folder.path().join("m");
    let (server, stats) = self::server(&path);
    let peer = Client::up(&path, &server);
    until("the end", || {
        let _ = peer.try_send(&Message::Ack);
        stats.read(Counter::PortMemifBadMessage) == 1
    });
    until("the end of the link", || !server.link().up);
}

/// The control thread drops what an ended link had, so that no polled core waits for the kernel to
/// remove mappings.
#[test]
fn the_memory_of_an_ended_link_is_given_back_by_the_control_thread() {
    let folder = folder();
    let path = folder.path().join("m");
    let (mut server, _stats) = self::server(&path);
    let (mut seen, mut regions) = (std::collections::HashSet::new(), Vec::new());
    for _ in 0..3 {
        let peer = Client::up(&path, &server);
        until("the link", || server.link().up);
        assert!(receive(&mut server).is_empty());
        regions.push(server.memory_dropped_by());
        drop(peer);
        until("the end", || !server.link().up);
        // The core finds the rings gone; another thread is the last that had them.
        assert!(receive(&mut server).is_empty());
    }
    for dropped_by in regions {
        until("the end of the mapping", || dropped_by.get().is_some());
        seen.extend(dropped_by.get().copied());
    }
    assert_eq!(seen.len(), 1);
    assert!(!seen.contains(&std::thread::current().id()));
}

#[test]
fn a_client_that_never_finishes_is_dropped() {
    let folder = folder();
    let path = folder.path().join("m");
    let (server, stats) = self::server(&path);
    let silent = Client::connect(&path);
    until("the time limit", || {
        assert!(!server.link().up);
        stats.read(Counter::PortMemifTimeouts) == 1
    });
    drop(silent);
}

fn descriptor(flags: u16, region: u16, len: u32, offset: u32) -> Descriptor {
    Descriptor { flags, region, len, offset }
}

#[test]
fn a_bad_descriptor_costs_its_frame_and_the_link_stays() {
    use Counter::*;
    let folder = folder();
    let path = folder.path().join("m");
    let (mut server, stats) = self::server(&path);
    let mut peer = Client::up(&path, &server);
    let end = Client::REGION_BYTES as u32;
    let good = descriptor(0, 0, 60, end - 60);
    let cases: &[(Counter, Vec<Descriptor>)] = &[
        (PortMemifBadRegion, vec![descriptor(0, 1, 60, 0)]),
        (PortMemifBadRegion, vec![descriptor(0, u16::MAX, 60, 0)]),
        (PortMemifBadOffset, vec![descriptor(0, 0, 60, end - 59)]),
        (PortMemifBadOffset, vec![descriptor(0, 0, 60, u32::MAX)]),
        (PortMemifBadOffset, vec![descriptor(0, 0, u32::MAX, 0)]),
        (PortMemifBadOffset, vec![descriptor(0, 0, u32::MAX, u32::MAX)]),
        (PortMemifBadLength, vec![descriptor(0, 0, 0, 0)]),
        (PortRxTooLong, vec![descriptor(0, 0, 1537, 0)]),
        (PortRxTooLong, vec![descriptor(NEXT, 0, 1000, 0), descriptor(0, 0, 1000, 0)]),
        (PortMemifBadRegion, vec![descriptor(NEXT, 0, 60, 0), descriptor(0, 7, 60, 0)]),
        (PortMemifBadChain, vec![descriptor(NEXT, 0, 60, 0)]),
        (PortMemifBadChain, vec![descriptor(NEXT, 0, 60, 0); 16]),
    ];
    for (number, (counter, descriptors)) in cases.iter().enumerate() {
        let before = stats.read(*counter);
        peer.offer(descriptors);
        assert!(receive(&mut server).is_empty(), "case {number}");
        assert_eq!(stats.read(*counter), before + 1, "case {number}");
        peer.offer(&[good]);
        assert_eq!(receive(&mut server).len(), 1, "case {number}");
        assert!(server.link().up);
    }
    assert_eq!(server.free_frames(), (256, 256));
}

#[test]
fn an_index_out_of_range_ends_the_link() {
    let folder = folder();
    let path = folder.path().join("m");
    let (mut server, stats) = self::server(&path);
    for (number, head) in [17u16, 32, 0x8000, 0xffff].into_iter().enumerate() {
        let peer = Client::up(&path, &server);
        peer.set_c2s_head(head);
        assert!(receive(&mut server).is_empty());
        assert_eq!(stats.read(Counter::PortMemifBadIndex), number as u64 + 1);
        until("the end", || !server.link().up);
        let peer = Client::up(&path, &server);
        peer.set_s2c_head(head);
        assert!(!send(&mut server, &[0; 60]));
        assert_eq!(stats.read(Counter::PortMemifBadIndex), number as u64 + 2);
        until("the end", || !server.link().up);
        stats.add(Counter::PortMemifBadIndex, u64::MAX);
    }
}

#[test]
fn a_bad_buffer_for_a_frame_to_send_ends_the_link() {
    use Counter::*;
    let folder = folder();
    let path = folder.path().join("m");
    let (mut server, stats) = self::server(&path);
    let end = Client::REGION_BYTES as u32;
    let cases = [
        (PortMemifBadRegion, descriptor(0, 1, 2048, 0)),
        (PortMemifBadOffset, descriptor(0, 0, 2048, end - 2047)),
        (PortMemifBadOffset, descriptor(0, 0, u32::MAX, 0)),
        (PortMemifBadLength, descriptor(0, 0, 0, 0)),
        // Sixteen buffers of three bytes are too few for the frame.
        (PortMemifBadLength, descriptor(0, 0, 3, 0)),
    ];
    for (counter, offered) in cases {
        let before = stats.read(counter);
        let peer = Client::up(&path, &server);
        peer.offer_buffers(offered);
        assert!(!send(&mut server, &[7; 60]));
        assert_eq!(stats.read(counter), before + 1);
        until("the end", || !server.link().up);
    }
}

#[test]
fn a_server_that_breaks_the_rules_is_dropped_by_the_client() {
    let folder = folder();
    let path = folder.path().join("m");
    let stats = CoreStats::detached();
    let mut client = MemifPort::open(&small(MemifConfig::client(&path)), stats.clone()).expect("a client");
    let evil = EvilServer::bind(&path);
    type Act = fn(&EvilServer, &MemifPort);
    let starts: &[(Counter, Act)] = &[
        (Counter::PortMemifBadVersion, |evil, client| evil.hello(client, 0x0300, 0, 14)),
        (Counter::PortMemifBadRing, |evil, client| evil.hello(client, 0x0200, 0, 0)),
        (Counter::PortMemifBadMessage, |evil, client| evil.say(client, &Message::Ack)),
        (Counter::PortMemifBadMessage, |evil, client| evil.say(client, &Message::Connected)),
        (Counter::PortMemifBadMessage, |evil, client| {
            evil.hello(client, 0x0200, 0, 14);
            evil.say_more(&Message::Connected);
        }),
    ];
    for (number, (counter, act)) in starts.iter().enumerate() {
        let before = stats.read(*counter);
        act(&evil, &client);
        until(&format!("case {number}"), || {
            assert!(!client.link().up);
            stats.read(*counter) == before + 1
        });
    }
    // A server that reports frames longer than a buffer, and more frames than there are buffers.
    let memory = evil.up(&client);
    memory.fill(&[descriptor(0, 0, 2049, 0), descriptor(0, 9, 60, u32::MAX)]);
    assert_eq!(receive(&mut client).len(), 1, "region and offset are the client's own");
    assert_eq!(stats.read(Counter::PortMemifBadLength), 1);
    assert!(client.link().up);
    memory.set_s2c_tail(19);
    assert!(receive(&mut client).is_empty());
    assert_eq!(stats.read(Counter::PortMemifBadIndex), 1);
    until("the end", || !client.link().up);
    // A server that claims to have read more than was sent.
    let memory = evil.up(&client);
    memory.set_c2s_tail(1);
    assert!(!send(&mut client, &[1; 60]));
    assert_eq!(stats.read(Counter::PortMemifBadIndex), 2);
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]

    /// Whatever the shared memory holds, no call panics, no frame is longer than its buffer and no
    /// buffer is lost.
    #[test]
    fn any_contents_of_the_shared_memory_are_survived(
        writes in proptest::collection::vec((0usize..1024, proptest::prelude::any::<u64>()), 1..200),
        steps in proptest::collection::vec(0u16..20, 1..20),
    ) {
        let folder = folder();
        let path = folder.path().join("m");
        let (mut server, _stats) = self::server(&path);
        let peer = Client::up(&path, &server);
        let mut writes = writes.chunks(steps.len());
        for step in steps {
            for (word, value) in writes.next().unwrap_or_default() {
                peer.write_word(*word, *value);
            }
            peer.advance_heads(step);
            for frame in receive(&mut server) {
                assert!(!frame.is_empty() && frame.len() <= 1536);
            }
            send(&mut server, &[3; 200]);
        }
        assert_eq!(server.free_frames(), (256, 256));
    }
}
