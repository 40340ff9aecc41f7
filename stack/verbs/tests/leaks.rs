//! No bytes of earlier messages or of other memory appear in pads, in reserved fields, in the
//! unused part of a Terminate, or behind private data (RFC 5042 s6.6). A tap on each side captures
//! every transmitted frame, and the tests search the capture.

use crate::common;

use common::Pair;
use common::tap::Tap;
use ironwarp::memory::MemoryConfig;
use ironwarp::{Event, QpAttr, QueuePair, RecvWr, Region, RemoteMemory, STag, SendWr};

/// The byte that must not appear on the wire. No header and no test message contains four of it in
/// a row.
const SECRET: u8 = 0x5e;
const RUN: [u8; 4] = [SECRET; 4];

/// A pair in which every frame buffer, work request and receive buffer has held the secret.
struct Scene {
    pair: Pair,
    near: QueuePair,
    far: QueuePair,
    secret: Region,
    taps: [Tap; 2],
}

fn soaked() -> Scene {
    let port = MemoryConfig {
        tx_frames: 128,
        rx_frames: 128,
        rx_ring_frames: 32,
        tx_ring_frames: 32,
        ..MemoryConfig::default()
    };
    let mut pair = Pair::over(&port, |address| {
        let mut config = common::config(address);
        (config.port.ring_size, config.port.rx_frames, config.port.tx_frames) = (Some(64), 256, 256);
        config
    });
    let (near, far) = pair.connect();
    let secret = pair.near.memory(&[SECRET; 1400]);
    let sink = pair.far.memory(&[0; 1400]);
    let back = pair.far.memory(&[SECRET; 1400]);
    let at = |region: &Region| RemoteMemory { stag: region.stag(), tagged_offset: region.base_to() };
    for turn in 0..200u64 {
        let (long, into) = ([secret.slice(0, 1400).unwrap()], [secret.slice(0, 1400).unwrap()]);
        let inbox = [sink.slice(0, 1400).unwrap()];
        pair.far.ctx.post_recv(far, &RecvWr::new(turn, &inbox)).unwrap();
        let inline = SendWr::write_inline(1, &[SECRET; 256], at(&sink));
        let wrs = [SendWr::send(0, &long), inline, SendWr::read(2, &into, at(&back))];
        pair.near.ctx.post_sends(near, &wrs).unwrap();
        let done = (turn as usize + 1) * 3;
        pair.until("the secrets", |pair| pair.near.completions.len() == done);
    }
    // Everything is acknowledged then, so that no secret is sent again.
    (0..50).for_each(|_| pair.turn());
    let taps = [Tap::on(&pair.near), Tap::on(&pair.far)];
    Scene { pair, near, far, secret, taps }
}

impl Scene {
    #[track_caller]
    fn says_nothing(&self) {
        Tap::end(&self.pair.near);
        Tap::end(&self.pair.far);
        for tap in &self.taps {
            assert!(!tap.holds(&RUN), "a frame contains four octets of the secret in a row");
        }
    }
}

/// RFC 5042 s6.6: pads of short messages of every length, sent from buffers and slots that held
/// long messages.
#[test]
fn nothing_of_an_earlier_message_leaks_into_padding() {
    let mut scene = soaked();
    let small = scene.pair.far.memory(&[0; 64]);
    let remote = RemoteMemory { stag: small.stag(), tagged_offset: small.base_to() };
    let sink = scene.pair.near.memory(&[0; 64]);
    let before = scene.pair.near.completions.len();
    for len in 0..=9usize {
        let inbox = [small.slice(0, 64).unwrap()];
        let into = [sink.slice(0, len as u32).unwrap()];
        scene.pair.far.ctx.post_recv(scene.far, &RecvWr::new(1, &inbox)).unwrap();
        let said = &b"plain-txt"[..len];
        let wrs = [
            SendWr::send_inline(1, said),
            SendWr::write_inline(2, said, remote),
            SendWr::read(3, &into, remote),
        ];
        scene.pair.near.ctx.post_sends(scene.near, &wrs).unwrap();
        let done = before + (len + 1) * 3;
        scene.pair.until("all three", |pair| pair.near.completions.len() == done);
    }
    assert!(scene.taps[0].holds(b"plain-txt"), "the tap captures the payload");
    scene.says_nothing();
}

/// RFC 5040 s4.8: a Terminate carries the headers of the segment that it reports, and nothing
/// behind them. The cases cover both senders, and segments with and without headers to carry.
#[test]
fn nothing_of_an_earlier_message_leaks_into_a_terminate() {
    let sink = [0u8; 8];
    for case in 0..4 {
        let mut scene = soaked();
        let unknown = RemoteMemory { stag: STag(0x0101_0101), tagged_offset: 0 };
        let own = scene.pair.near.memory(&sink);
        let into = [own.slice(0, 8).unwrap()];
        let wr = match case {
            0 => SendWr::write_inline(1, b"nowhere", unknown),
            1 => SendWr::read(1, &into, unknown),
            2 => SendWr::send_inline(1, b"no receive"),
            _ => SendWr::invalidate(1, STag(0x0202_0202)),
        };
        let near = scene.near;
        scene.pair.near.ctx.post_send(near, &wr).unwrap();
        scene.pair.until("the end", |pair| pair.near.is_disconnected(near));
        let ended = |event: &Event| matches!(event, Event::Terminated { .. });
        assert!(scene.pair.near.events.iter().any(ended), "case {case} ends with a Terminate");
        scene.says_nothing();
    }
}

/// RFC 5044 s7.1.1: reserved bits of start-up frames are 0 and nothing follows the private data, in
/// accepts and rejects.
#[test]
fn nothing_of_an_earlier_message_leaks_into_start_up() {
    let mut scene = soaked();
    for accepts in [true, false] {
        for said in [&b""[..], b"p", b"private"] {
            scene.pair.near.events.clear();
            scene.pair.far.events.clear();
            let attr = QpAttr::new(scene.pair.near.cq);
            let near = scene.pair.near.ctx.create_qp(scene.pair.near.pd, &attr).unwrap();
            let at = scene.pair.at;
            scene.pair.near.ctx.connect(near, at, said).unwrap();
            scene.pair.until("the request", |pair| !pair.far.events.is_empty());
            let Event::ConnectRequest { request, .. } = scene.pair.far.events.remove(0) else { panic!() };
            if accepts {
                let attr = QpAttr::new(scene.pair.far.cq);
                let far = scene.pair.far.ctx.create_qp(scene.pair.far.pd, &attr).unwrap();
                scene.pair.far.ctx.accept(request, far, said).unwrap();
                scene.pair.until("establishment", |pair| pair.near.is_established(near));
            } else {
                scene.pair.far.ctx.reject(request, said).unwrap();
                scene.pair.until("the refusal", |pair| !pair.near.events.is_empty());
            }
            (0..50).for_each(|_| scene.pair.turn());
        }
    }
    assert!(scene.taps.iter().all(|tap| tap.holds(b"private")), "the taps capture the private data");
    scene.says_nothing();
}

/// The check works: the taps find the secret when a Write sends it.
#[test]
fn connection_events_are_logged() {
    let mut scene = soaked();
    let sink = scene.pair.far.memory(&[0; 64]);
    let remote = RemoteMemory { stag: sink.stag(), tagged_offset: sink.base_to() };
    let four = [scene.secret.slice(0, 4).unwrap()];
    let before = scene.pair.near.completions.len();
    scene.pair.near.ctx.post_send(scene.near, &SendWr::write(1, &four, remote)).unwrap();
    scene.pair.until("the Write", |pair| pair.near.completions.len() > before);
    assert!(scene.taps[0].holds(&RUN) && scene.taps[1].holds(&RUN));
}
