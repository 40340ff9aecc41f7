//! Whole stacks of two cores over devices with two queues: memif between processes, raw and XDP
//! sockets on a veth pair, and a tap whose kernel end a raw socket answers.
//!
//! Every connection writes, reads back, sends and adds to a word, on both cores of both ends. The
//! data is compared.
#![cfg(feature = "dpdk")]

#[path = "../../port/tests/vdev_lab/mod.rs"]
mod vdev_lab;

use std::path::Path;
use std::time::{Duration, Instant};

use ironwarp::{
    Access, AlignedBuf, AtomicOp, Completion, CompletionQueue, CompletionStatus, Config, Context, Event,
    ProtectionDomain, QpAttr, QueuePair, RecvWr, Region, RemoteMemory, STag, SendWr, SetupError, Stack,
    Worker,
};
use vdev_lab::{Lab, Needs, alone, system};

/// The number of connections: every second one on each core of the client.
const CONNECTIONS: usize = 6;
/// Octets that each writes and reads back.
const BYTES: usize = 20_000;
/// The server's address.
const FAR: &str = "10.78.0.2:4791";
/// The server's address on the second port, if there is one.
const FAR_BY_THE_SECOND: &str = "10.79.0.2:4791";
/// The time limit of a test; the lab's own limit is longer.
const PATIENCE: Duration = Duration::from_secs(60);

/// One stack whose workers this thread polls in turn.
struct End {
    stack: Stack,
    ports: usize,
    workers: Vec<Worker>,
    ctx: Context,
    pd: ProtectionDomain,
    cq: CompletionQueue,
    qps: Vec<QueuePair>,
    up: usize,
    gone: usize,
    completions: Vec<Completion>,
    /// The peer's memory, once it was advertised.
    there: Option<RemoteMemory>,
    /// The server's memory: a buffer for each connection, and words.
    offered: Region,
}

/// Creates a stack of two cores over `device`, a TOML value, with host number `host`.
fn open(host: u8, device: &str) -> Result<End, SetupError> {
    open_all(host, device, "")
}

/// The same with further ports in `fabrics`.
fn open_all(host: u8, device: &str, fabrics: &str) -> Result<End, SetupError> {
    let text = format!(
        "[eal]\nhugepages = \"never\"\nmemory_mib = 256\n[port]\ndevice.{device}\nring_size = 256\nrx_frames = 4096\n\
         tx_frames = 2048\n[net]\naddress = \"10.78.0.{host}/24\"\n[core]\ncount = 2\nidle = \"yield\"\n\
         [rdmap]\nextensions = \"rfc7306\"\n{fabrics}"
    );
    let config = Config::from_toml(&text).unwrap_or_else(|error| panic!("{error}"));
    let ports = config.ports();
    let (stack, workers) = Stack::builder(config).build()?;
    assert_eq!(workers.len(), 2);
    let mut ctx = stack.context().unwrap();
    let (pd, cq) = (ctx.alloc_pd(), ctx.create_cq(1024).unwrap());
    let rights = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
    let offered = AlignedBuf::pages((CONNECTIONS + 1) * BYTES.next_multiple_of(4096)).unwrap();
    let offered = ctx.register(pd, offered, rights).unwrap();
    let (qps, completions, there) = (Vec::new(), Vec::new(), None);
    Ok(End { stack, ports, workers, ctx, pd, cq, qps, up: 0, gone: 0, completions, there, offered })
}

impl End {
    fn qp(&mut self, attr: &QpAttr) -> QueuePair {
        let qp = self.ctx.create_qp(self.pd, attr).unwrap();
        self.qps.push(qp);
        qp
    }

    fn turn(&mut self) {
        self.workers.iter_mut().for_each(|worker| {
            worker.poll(4);
        });
        while let Some(event) = self.ctx.poll_event() {
            match event {
                Event::ConnectRequest { request, .. } => {
                    let qp = self.qp(&QpAttr::new(self.cq));
                    let inbox = [self.offered.slice(self.offered.len() - 8, 8).unwrap()];
                    self.ctx.post_recv(qp, &RecvWr::new(99, &inbox)).unwrap();
                    let stag = self.offered.stag().0.to_be_bytes();
                    let offer = [&stag[..], &self.offered.base_to().to_be_bytes()].concat();
                    self.ctx.accept(request, qp, &offer).unwrap();
                }
                Event::Established { private_data, .. } => {
                    self.up += 1;
                    if let Some((stag, to)) = private_data.split_first_chunk() {
                        let tagged_offset = u64::from_be_bytes(to.try_into().unwrap());
                        let stag = STag(u32::from_be_bytes(*stag));
                        self.there = Some(RemoteMemory { stag, tagged_offset });
                    }
                }
                Event::Disconnected { .. } => self.gone += 1,
                Event::ListenFailed { .. } | Event::Terminated { .. } => panic!("{event:?}"),
                _ => {}
            }
        }
        let mut reaped = [Completion::default(); 32];
        let count = self.ctx.poll_cq(self.cq, &mut reaped).unwrap();
        self.completions.extend_from_slice(&reaped[..count]);
        std::thread::yield_now();
    }

    /// Frames that each core has received for its own connections; never zero.
    #[track_caller]
    fn both_cores_worked(&self) {
        for core in 0..2 {
            let counters = self.stack.core_counters(core);
            let of = |name| counters.iter().find(|(one, _)| *one == name).unwrap().1;
            assert!(of("tcp_rx_segments") > 0, "core {core}: {counters:?}");
            assert_eq!(of("cores_steered_dropped"), 0, "core {core}");
        }
    }
}

/// Polls until `done`; a peer in this process polls itself.
#[track_caller]
fn until(
    what: &str,
    near: &mut End,
    mut far: Option<&mut End>,
    mut done: impl FnMut(&End, Option<&End>) -> bool,
) {
    let begun = Instant::now();
    while !done(near, far.as_deref()) {
        near.turn();
        if let Some(far) = &mut far {
            far.turn();
        }
        assert!(begun.elapsed() < PATIENCE, "never happened: {what}; {:?}", near.stack.counters());
    }
}

/// The client: connects, transfers octets in every way, and disconnects.
fn calls(near: &mut End, mut far: Option<&mut End>) {
    for core in 0..CONNECTIONS as u16 {
        let attr = QpAttr { core: Some(core % 2), ..QpAttr::new(near.cq) };
        let qp = near.qp(&attr);
        // With several ports, each has connections of both cores.
        let at = if near.ports > 1 && core / 2 % 2 == 1 { FAR_BY_THE_SECOND } else { FAR };
        near.ctx.connect(qp, at.parse().unwrap(), b"").unwrap();
    }
    until("connections", near, far.as_deref_mut(), |near, _| near.up == CONNECTIONS);
    let RemoteMemory { stag, tagged_offset: to } = near.there.expect("an offer");
    let span = BYTES.next_multiple_of(4096);
    let words = RemoteMemory { stag, tagged_offset: to + (CONNECTIONS * span) as u64 };
    let add = AtomicOp::add(1);
    let mut moved = Vec::new();
    for (at, qp) in near.qps.clone().into_iter().enumerate() {
        let what: Vec<u8> = (0..BYTES).map(|octet| (octet * 7 + at) as u8).collect();
        let region = |bytes: Vec<u8>| near.ctx.register(near.pd, bytes, Access::LOCAL_WRITE).unwrap();
        let (source, sink, before) = (region(what.clone()), region(vec![0; BYTES]), region(vec![0; 8]));
        let all = |region: &Region| [region.slice(0, region.len() as u32).unwrap()];
        let remote = RemoteMemory { stag, tagged_offset: to + (at * span) as u64 };
        near.ctx.post_send(qp, &SendWr::write(1, &all(&source), remote)).unwrap();
        near.ctx.post_send(qp, &SendWr::read(2, &all(&sink), remote)).unwrap();
        near.ctx.post_send(qp, &SendWr::atomic(3, &all(&before), words, &add)).unwrap();
        near.ctx.post_send(qp, &SendWr::send_inline(4, b"done")).unwrap();
        moved.push((what, source, sink, before));
    }
    until("the exchange", near, far.as_deref_mut(), |near, _| near.completions.len() == 4 * CONNECTIONS);
    assert!(near.completions.iter().all(|done| done.status == CompletionStatus::Success));
    let octets = |region: &Region| {
        let mut octets = vec![0; region.len()];
        region.read_at(0, &mut octets).unwrap();
        octets
    };
    let mut sums = Vec::new();
    for (what, _source, sink, before) in &moved {
        assert!(octets(sink) == *what, "what is read is what was written");
        sums.push(u64::from_ne_bytes(octets(before).try_into().unwrap()));
    }
    sums.sort_unstable();
    assert!(sums.into_iter().eq(0..CONNECTIONS as u64), "each addition saw another sum");
    near.both_cores_worked();
    for qp in near.qps.clone() {
        near.ctx.disconnect(qp).unwrap();
    }
    until("the end", near, far, |near, far| {
        near.gone == CONNECTIONS && far.is_none_or(|far| far.gone == CONNECTIONS)
    });
}

/// Both ends in this process, over two devices.
fn both(near: &str, far: &str) -> Result<(), SetupError> {
    let (mut near, mut far) = (open(1, near)?, open(2, far)?);
    far.ctx.listen(FAR.parse().unwrap()).unwrap();
    far.turn();
    calls(&mut near, Some(&mut far));
    Ok(())
}

/// Linux forwards frames from one end of a veth pair to the other; each end has this many queues.
fn veth() {
    system(
        "ip link add veth0 numrxqueues 2 numtxqueues 2 type veth peer name veth1 numrxqueues 2 numtxqueues 2",
    );
    for end in ["veth0", "veth1"] {
        system(&format!("ethtool -K {end} tx off gso off tso off"));
        system(&format!("ip link set {end} up"));
    }
}

/// A stack that is dropped while its peer is silent releases the frames that wait for an
/// acknowledgement. DPDK is not cleaned up while a frame is in use, so this shows that none is.
#[test]
fn dropping_a_stack_with_work_outstanding_lets_dpdk_clean_up() {
    alone("dropping_a_stack_with_work_outstanding_lets_dpdk_clean_up", Needs::Namespace, |lab| {
        veth();
        let end = |host, interface: &str| {
            let args = format!("iface={interface},framesz=2048,blocksz=4096,framecnt=512,qpairs=2");
            open(host, &format!("dpdk = {{ name = \"net_af_packet{host}\", args = \"{args}\" }}"))
                .unwrap_or_else(|error| panic!("{error}"))
        };
        let (mut near, mut far) = (end(1, "veth0"), end(2, "veth1"));
        far.ctx.listen(FAR.parse().unwrap()).unwrap();
        far.turn();
        let qp = near.qp(&QpAttr::new(near.cq));
        near.ctx.connect(qp, FAR.parse().unwrap(), b"").unwrap();
        until("a connection", &mut near, Some(&mut far), |near, far| near.up + far.unwrap().up == 2);
        let source = near.ctx.register(near.pd, vec![7; BYTES], Access::LOCAL_WRITE).unwrap();
        let all = [source.slice(0, BYTES as u32).unwrap()];
        near.ctx.post_send(qp, &SendWr::write(1, &all, near.there.unwrap())).unwrap();
        let sent = |near: &End| {
            let counters = near.stack.counters();
            counters.iter().find(|(name, _)| *name == "tcp_tx_segments").unwrap().1
        };
        let before = sent(&near);
        until("segments without an answer", &mut near, None, |near, _| sent(near) > before + 2);
        let left = || std::fs::read_dir(lab.path("dpdk")).expect("a folder of DPDK's").count();
        assert_eq!(left(), 1);
        drop((near, far, source));
        ironwarp::cleanup_dpdk();
        assert_eq!(left(), 0, "DPDK was not cleaned up");
    });
}

#[test]
fn two_cores_over_raw_sockets_with_two_queues() {
    alone("two_cores_over_raw_sockets_with_two_queues", Needs::Namespace, |_| {
        veth();
        both("af_packet = { interface = \"veth0\" }", "af_packet = { interface = \"veth1\" }")
            .unwrap_or_else(|error| panic!("{error}"));
    });
}

/// Returns the combined channels of an interface, which DPDK's driver counts as its queues.
fn combined_channels(interface: &str) -> u32 {
    let output = std::process::Command::new("ethtool").args(["-l", interface]).output().expect("ethtool");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let current = said.lines().rev().find_map(|line| line.strip_prefix("Combined:"));
    current.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

/// An interface with fewer channels, such as veth, is refused by name and never partly opened.
#[test]
fn two_cores_over_xdp_sockets_with_two_queues() {
    alone("two_cores_over_xdp_sockets_with_two_queues", Needs::Namespace, |lab| {
        veth();
        let opened = both("af_xdp = { interface = \"veth0\" }", "af_packet = { interface = \"veth1\" }");
        let Err(error) = opened else { return };
        if combined_channels("veth0") >= 2 {
            return lab.skip(&error.to_string());
        }
        assert!(error.to_string().contains("iface=veth0,start_queue=0,queue_count=2"), "{error}");
    });
}

/// The kernel's end of the tap is an ordinary interface, from which a raw socket receives the tap's
/// frames.
#[test]
fn two_cores_over_a_tap_with_two_queues() {
    alone("two_cores_over_a_tap_with_two_queues", Needs::Namespace, |_| {
        let mut near = open(1, "tap = { interface = \"dtap0\" }").unwrap_or_else(|error| panic!("{error}"));
        system("ip link set dtap0 up");
        let mut far =
            open(2, "af_packet = { interface = \"dtap0\" }").unwrap_or_else(|error| panic!("{error}"));
        far.ctx.listen(FAR.parse().unwrap()).unwrap();
        far.turn();
        calls(&mut near, Some(&mut far));
    });
}

#[test]
fn two_cores_over_memif_with_two_queues() {
    alone("two_cores_over_memif_with_two_queues", Needs::Nothing, |lab| {
        over_memif(lab, dpdk_memif, |_, _| String::new());
    });
}

/// The same with the library's own driver, and with a second link.
#[test]
fn two_cores_over_the_native_memif_with_two_queues_and_two_fabrics() {
    alone("two_cores_over_the_native_memif_with_two_queues_and_two_fabrics", Needs::Nothing, |lab| {
        let second =
            |host, role: &str| second_memif(native_memif("second", role, &lab.path("second.sock")), host);
        if let Some(far) = over_memif(lab, native_memif, second) {
            both_ports_worked(&far);
        }
    });
}

/// A second memif with its own socket and network: the same cores poll both.
#[test]
fn two_cores_over_two_fabrics_of_memif() {
    alone("two_cores_over_two_fabrics_of_memif", Needs::Nothing, |lab| {
        let second =
            |host, role: &str| second_memif(dpdk_memif("net_memif1", role, &lab.path("second.sock")), host);
        if let Some(far) = over_memif(lab, dpdk_memif, second) {
            both_ports_worked(&far);
        }
    });
}

/// One end of a link with the library's own driver.
fn native_memif(_: &str, role: &str, socket: &Path) -> String {
    format!("memif = {{ role = \"{role}\", socket = {socket:?} }}")
}

/// One end of a link with DPDK's driver.
fn dpdk_memif(name: &str, role: &str, socket: &Path) -> String {
    let socket = socket.display();
    let args = format!("role={role},socket={socket},socket-abstract=no,bsize=10240,rsize=8");
    format!("dpdk = {{ name = \"{name}\", args = \"{args}\" }}")
}

fn second_memif(device: String, host: u8) -> String {
    format!(
        "[[fabrics]]\nport = {{ device.{device}, \
         ring_size = 256, rx_frames = 4096, tx_frames = 2048 }}\nnet = {{ address = \"10.79.0.{host}/24\" }}\n"
    )
}

/// Runs the client in its own process and returns what it left behind. The client itself returns
/// `None`. `memif` writes the device of an end.
fn over_memif(
    lab: &Lab,
    memif: impl Fn(&str, &str, &Path) -> String,
    fabrics: impl Fn(u8, &str) -> String,
) -> Option<End> {
    let socket = lab.path("m.sock");
    let device = |role| memif("net_memif0", role, &socket);
    let end = |host, role| {
        open_all(host, &device(role), &fabrics(host, role)).unwrap_or_else(|error| panic!("{error}"))
    };
    if lab.role() != "first" {
        calls(&mut end(1, "client"), None);
        return None;
    }
    let mut far = end(2, "server");
    far.ctx.listen("0.0.0.0:4791".parse().unwrap()).unwrap();
    let mut peer = lab.peer("client");
    until("the peer's leave", &mut far, None, |far, _| far.gone == CONNECTIONS);
    // The acknowledgement of its last frames.
    while peer.try_wait().expect("its status").is_none() {
        far.turn();
    }
    let output = peer.wait_with_output().expect("its end");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    far.both_cores_worked();
    Some(far)
}

/// Each port carried frames in both directions.
#[track_caller]
fn both_ports_worked(end: &End) {
    for port in 0..2 {
        let counters = end.stack.port_counters(port);
        let of = |name| counters.iter().find(|(one, _)| *one == name).unwrap().1;
        assert!(of("port_rx_frames") > 20 && of("port_tx_frames") > 20, "port {port}: {counters:?}");
    }
}

/// Two pairs of interfaces, each with its own network, under one stack on each side.
#[test]
fn two_cores_over_two_fabrics_of_raw_sockets() {
    alone("two_cores_over_two_fabrics_of_raw_sockets", Needs::Namespace, |_| {
        veth();
        system(
            "ip link add veth2 numrxqueues 2 numtxqueues 2 type veth peer name veth3 numrxqueues 2 numtxqueues 2",
        );
        for end in ["veth2", "veth3"] {
            system(&format!("ethtool -K {end} tx off gso off tso off"));
            system(&format!("ip link set {end} up"));
        }
        let end = |host: u8, first: &str, second: &str| {
            let fabrics = format!(
                "[[fabrics]]\nport = {{ device.af_packet = {{ interface = \"{second}\" }}, ring_size = 256, rx_frames = 4096, \
                 tx_frames = 2048 }}\nnet = {{ address = \"10.79.0.{host}/24\" }}\n"
            );
            open_all(host, &format!("af_packet = {{ interface = \"{first}\" }}"), &fabrics)
                .unwrap_or_else(|error| panic!("{error}"))
        };
        let (mut near, mut far) = (end(1, "veth0", "veth2"), end(2, "veth1", "veth3"));
        far.ctx.listen("0.0.0.0:4791".parse().unwrap()).unwrap();
        far.turn();
        calls(&mut near, Some(&mut far));
        both_ports_worked(&near);
    });
}
