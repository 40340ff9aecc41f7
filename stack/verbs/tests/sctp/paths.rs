//! Associations of hosts with two ports each (RFC 9260 s5.4, s6.4 and s8.2; RFC 5043 s7.2).

use core::net::IpAddr;
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use ironwarp::config::TransportKind;
use ironwarp::memory::{MemoryConfig, MemoryControl, pair};
use ironwarp::{
    CompletionStatus, Config, Event, MacAddr, Nanos, QueuePair, Region, RemoteMemory, SendWr, Stack,
};

use super::common::{self, Node, Pair, contents, pattern};

/// From one reading of the clock to the next.
const STEP_NS: u64 = 20_000;
const WRITE_BYTES: usize = 1 << 20;
const MIB: u32 = WRITE_BYTES as u32;

/// Two hosts on two networks.
struct Scene {
    pair: Pair,
    time: Arc<AtomicU64>,
    /// The links, both ends of each.
    links: [[MemoryControl; 2]; 2],
    source: Region,
    target: Region,
    writes: u8,
}

fn config(number: u8, multihoming: bool) -> Config {
    let text = format!(
        "[port]\ndevice.memory = {{}}\n[net]\naddress = \"10.0.0.{number}/24\"\n\
         [[fabrics]]\nport = {{ device.memory = {{}} }}\nnet = {{ address = \"10.1.0.{number}/24\" }}\n\
         [sctp]\nmultihoming = {multihoming}\nheartbeat_interval_ms = 50\n"
    );
    let mut config = Config::from_toml(&text).expect("a valid configuration");
    config.mpa = common::config("10.0.0.1/24").mpa;
    config.stack.transport = TransportKind::Sctp.into();
    config
}

impl Scene {
    fn new(multihoming: [bool; 2]) -> Self {
        let device = |number, network| MemoryConfig {
            mac: MacAddr([2, 0, 0, 0, network, number]),
            ..MemoryConfig::default()
        };
        let time = Arc::new(AtomicU64::new(0));
        let node = |number: u8, first, second| {
            let time = time.clone();
            let clock = move || Nanos(time.fetch_add(STEP_NS, Ordering::Relaxed));
            let builder = Stack::builder(config(number, multihoming[usize::from(number) - 1]));
            let built =
                builder.add_memory_ports(vec![second]).build_replayable(first, clock, [number.into(); 2]);
            Node::of(built.expect("a stack"))
        };
        let [first, second] = [0, 1].map(|network| pair(&device(1, network), &device(2, network)));
        let links = [&first, &second].map(|(near, far)| [near.control(), far.control()]);
        let (near, far) = (node(1, first.0, second.0), node(2, first.1, second.1));
        let (source, target) = (near.memory(&pattern(WRITE_BYTES, 0)), far.memory(&vec![0; WRITE_BYTES]));
        let pair = Pair { near, far, at: common::FAR.parse().expect("an address") };
        Scene { pair, time, links, source, target, writes: 0 }
    }

    fn now(&self) -> Nanos {
        Nanos(self.time.load(Ordering::Relaxed))
    }

    fn turn_for(&mut self, time: Nanos) {
        let end = self.now() + time;
        while self.now() < end {
            self.pair.turn();
        }
    }

    /// Writes 1 MiB, checks every byte, and returns how long it took.
    #[track_caller]
    fn write(&mut self, qp: QueuePair) -> Nanos {
        self.writes = self.writes.wrapping_add(1);
        let data = pattern(WRITE_BYTES, self.writes);
        self.source.write_at(0, &data).expect("inside");
        let remote = RemoteMemory { stag: self.target.stag(), tagged_offset: self.target.base_to() };
        let all = [self.source.slice(0, MIB).expect("inside")];
        let began = self.now();
        self.pair.near.completions.clear();
        self.pair.near.ctx.post_send(qp, &SendWr::write(1, &all, remote)).expect("room");
        self.pair.until("the Write", |pair| !pair.near.completions.is_empty());
        assert_eq!(self.pair.near.completions[0].status, CompletionStatus::Success);
        assert!(contents(&self.target) == data, "a wrong byte");
        self.now().since(began)
    }

    /// Frames that the near host sends over each link meanwhile.
    fn frames_of(&mut self, act: impl FnOnce(&mut Self)) -> [u64; 2] {
        let sent = |scene: &Self| [0, 1].map(|link| scene.links[link][0].counts().tx_frames);
        let before = sent(self);
        act(self);
        let after = sent(self);
        [0, 1].map(|link| after[link] - before[link])
    }

    fn path_events(&self) -> Vec<(IpAddr, bool)> {
        let path = |event: &Event| match event {
            Event::Path { remote, up, .. } => Some((*remote, *up)),
            _ => None,
        };
        self.pair.near.events.iter().filter_map(path).collect()
    }
}

/// RFC5043-7.2-02, 7.2-03: the link of the set-up fails during Writes of 1 MiB, by itself or behind
/// a switch, so that no host notices. No connection is lost, the other link takes over within a
/// second, and every byte arrives. The first link is in use again when it works again.
#[test]
fn a_connection_survives_the_loss_of_a_link() {
    for is_noticed in [true, false] {
        let mut scene = Scene::new([true; 2]);
        let (qp, far) = scene.pair.connect();
        // The routes are found, and the second address is confirmed.
        scene.turn_for(Nanos::from_secs(2));
        let first = scene.frames_of(|scene| assert!(scene.write(qp) < Nanos::from_millis(100)));
        assert!(first[0] > 700 && first[1] < 20, "{first:?}");
        let cut = |scene: &Scene, is_cut: bool| match is_noticed {
            true => scene.links[0][0].set_link(!is_cut),
            false => scene.links[0].iter().for_each(|end| end.lose_every(is_cut.into())),
        };
        let remote = |path: &str| path.parse::<IpAddr>().expect("an address");
        // In the middle of a Write.
        let moved = scene.frames_of(|scene| {
            let data = scene.source.slice(0, MIB).expect("inside");
            let to = RemoteMemory { stag: scene.target.stag(), tagged_offset: scene.target.base_to() };
            scene.pair.near.completions.clear();
            scene.pair.near.ctx.post_send(qp, &SendWr::write(1, &[data], to)).expect("room");
            let sent = scene.links[0][0].counts().tx_frames;
            let link = scene.links[0][0].clone();
            scene.pair.until("a part of it", |_| link.counts().tx_frames > sent + 100);
            assert!(scene.pair.near.completions.is_empty(), "the Write is under way");
            cut(scene, true);
            let cut_at = scene.now();
            scene.pair.until("the Write", |pair| !pair.near.completions.is_empty());
            assert!(scene.now().since(cut_at) < Nanos::from_secs(1), "{:?}", scene.now().since(cut_at));
        });
        assert!(moved[1] > 300, "{moved:?}");
        for _ in 0..3 {
            assert!(scene.write(qp) < Nanos::from_secs(1));
        }
        assert_eq!(scene.path_events().last(), Some(&(remote("10.0.0.2"), false)));
        cut(&scene, false);
        scene.turn_for(Nanos::from_secs(2));
        assert_eq!(scene.path_events().last(), Some(&(remote("10.0.0.2"), true)));
        let again = scene.frames_of(|scene| assert!(scene.write(qp) < Nanos::from_secs(1)));
        assert!(again[0] > 700 && again[1] < 20, "{again:?}");
        assert!(!scene.pair.near.is_disconnected(qp) && !scene.pair.far.is_disconnected(far));
        scene.pair.near.worker.check().expect("all holds");
        scene.pair.far.worker.check().expect("all holds");
    }
}

/// RFC 5043 s7.2: one address unless both sides are configured for several.
#[test]
fn without_multihoming_on_both_sides_an_association_has_one_path() {
    for multihoming in [[false, false], [true, false], [false, true]] {
        let mut scene = Scene::new(multihoming);
        let (qp, _) = scene.pair.connect();
        scene.turn_for(Nanos::from_secs(2));
        let frames = scene.frames_of(|scene| {
            scene.write(qp);
        });
        assert!(frames[0] > 700 && frames[1] == 0, "{multihoming:?}: {frames:?}");
        let up = scene.pair.near.counter("sctp_paths_up") + scene.pair.far.counter("sctp_paths_up");
        assert_eq!((up, scene.path_events()), (0, vec![]), "{multihoming:?}");
    }
}
