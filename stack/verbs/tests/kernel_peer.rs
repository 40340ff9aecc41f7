//! Linux's TCP as the peer, over a tap and over a packet socket: of this library's own driver,
//! which exchanges super-segments with the kernel, and of DPDK's.
//!
//! The peer is a socket of the kernel with a small reader and writer of FPDUs (RFC 5044), which
//! share no code with the stack but the CRC. Every byte is compared, in both directions. Each test
//! prints the rate; `IRONWARP_KERNEL_PEER_MIB` is the amount, and above 64 MiB the peer compares
//! nothing, so that the rate is the stack's.
#![cfg(feature = "dpdk")]

#[path = "../../port/tests/vdev_lab/mod.rs"]
mod vdev_lab;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ironwarp::{
    Access, Completion, CompletionQueue, CompletionStatus, Config, Context, Event, ProtectionDomain, QpAttr,
    QueuePair, Region, RemoteMemory, STag, SendWr, Stack, Worker,
};
use ironwarp_arch::crc32c;
use vdev_lab::{Needs, alone, system};

/// The addresses of a test: ours, and that of Linux.
#[derive(Clone, Copy)]
struct Net {
    ours: &'static str,
    linux: &'static str,
    prefix: &'static str,
}

const IPV4: Net = Net { ours: "10.79.0.2", linux: "10.79.0.1", prefix: "24" };
const IPV6: Net = Net { ours: "fd79::2", linux: "fd79::1", prefix: "64" };

impl Net {
    fn ours(&self) -> SocketAddr {
        SocketAddr::new(self.ours.parse().expect("an address"), 4791)
    }

    fn linux(&self) -> SocketAddr {
        SocketAddr::new(self.linux.parse().expect("an address"), 4792)
    }

    /// Gives Linux its address on an interface.
    fn assign(&self, interface: &str) {
        let nodad = if self.ours().is_ipv6() { " nodad" } else { "" };
        system(&format!("ip addr replace {}/{} dev {interface}{nodad}", self.linux, self.prefix));
        system(&format!("ip link set {interface} up"));
    }
}

/// The length of a Write, and of the memory that the peer writes.
const WRITE_BYTES: usize = 1 << 20;
/// Writes outstanding.
const DEPTH: usize = 4;
/// The time limit of a test; the lab's own limit is longer.
const PATIENCE: Duration = Duration::from_secs(80);

/// RFC 5044 s7.1.1: the keys of request and reply, the flag for CRCs, and revision 1.
const REQUEST: &[u8; 16] = b"MPA ID Req Frame";
const REPLY: &[u8; 16] = b"MPA ID Rep Frame";
const CRC_AND_REVISION_1: [u8; 2] = [0x40, 1];
/// RFC 5041 s4.2, RFC 5040 s4.1: a tagged segment of version 1, with the last flag, of a Write.
const TAGGED_LAST_WRITE: [u8; 2] = [0xc1, 0x40];
/// ULPDU length, control, STag and tagged offset.
const FPDU_HEADER_BYTES: usize = 2 + 2 + 4 + 8;

fn mib() -> usize {
    std::env::var("IRONWARP_KERNEL_PEER_MIB").map_or(24, |text| text.parse().expect("a number of MiB"))
}

fn byte_at(offset: u64) -> u8 {
    (offset.wrapping_mul(7) ^ (offset >> 9)) as u8
}

/// Our end, which this thread polls.
struct End {
    stack: Stack,
    worker: Worker,
    ctx: Context,
    pd: ProtectionDomain,
    cq: CompletionQueue,
    qp: QueuePair,
    memory: Region,
    net: Net,
    is_up: bool,
    begun: Instant,
}

fn open(device: &str, net: Net, mtu: u16, more: &str) -> End {
    let Net { ours, prefix, .. } = net;
    let text = format!(
        "[eal]\nhugepages = \"never\"\nmemory_mib = 256\n[port]\ndevice.{device}\nmtu = {mtu}\nring_size = 256\n\
         rx_frames = 4096\ntx_frames = 4096\n[net]\naddress = \"{ours}/{prefix}\"\ndad_probes_ipv6 = 0\n{more}\n\
         [core]\nidle = \"yield\"\n[mpa]\nrevision = 1\n"
    );
    let config = Config::from_toml(&text).unwrap_or_else(|error| panic!("{error}"));
    let (stack, worker) = Stack::builder(config).build_one().unwrap_or_else(|error| panic!("{error}"));
    let mut ctx = stack.context().expect("a context");
    let (pd, cq) = (ctx.alloc_pd(), ctx.create_cq(64).expect("a queue"));
    let qp = ctx.create_qp(pd, &QpAttr::new(cq)).expect("a queue pair");
    let bytes: Vec<u8> = (0..WRITE_BYTES as u64).map(byte_at).collect();
    let memory = ctx.register(pd, bytes, Access::LOCAL_WRITE | Access::REMOTE_WRITE).expect("a region");
    End { stack, worker, ctx, pd, cq, qp, memory, net, is_up: false, begun: Instant::now() }
}

impl End {
    /// Runs the worker once and returns how many Writes are complete.
    fn turn(&mut self) -> usize {
        self.worker.poll(1);
        while let Some(event) = self.ctx.poll_event() {
            match event {
                Event::ConnectRequest { request, .. } => {
                    let stag = self.memory.stag().0.to_be_bytes();
                    let offer = [&stag[..], &self.memory.base_to().to_be_bytes()].concat();
                    self.ctx.accept(request, self.qp, &offer).expect("accept");
                }
                Event::Established { .. } => self.is_up = true,
                Event::ConnectFailed { .. } | Event::Terminated { .. } => panic!("{event:?}"),
                _ => {}
            }
        }
        let mut reaped = [Completion::default(); 16];
        let count = self.ctx.poll_cq(self.cq, &mut reaped).expect("the queue exists");
        assert!(reaped.iter().take(count).all(|done| done.status == CompletionStatus::Success));
        assert!(self.begun.elapsed() < PATIENCE, "{:?}", self.stack.counters());
        count
    }

    fn counter(&self, name: &str) -> u64 {
        let counters = self.stack.counters();
        counters.iter().find(|(one, _)| *one == name).expect("a counter").1
    }

    /// Writes to the kernel's socket.
    fn sends(&mut self) {
        let reader = read_writes(self.net.linux());
        self.ctx.connect(self.qp, self.net.linux(), b"").expect("room");
        while !self.is_up {
            self.turn();
        }
        let begun = Instant::now();
        let all = [self.memory.slice(0, WRITE_BYTES as u32).expect("inside")];
        let there = RemoteMemory { stag: STag(0x100), tagged_offset: 0 };
        let (mut posted, mut done) = (0, 0);
        while done < mib() {
            while posted < mib().min(done + DEPTH) {
                self.ctx.post_send(self.qp, &SendWr::write(0, &all, there)).expect("room");
                posted += 1;
            }
            done += self.turn();
        }
        report("sent", begun);
        self.ctx.disconnect(self.qp).expect("connected");
        while !reader.is_finished() {
            self.turn();
        }
        assert_eq!(reader.join().expect("the peer"), mib() * WRITE_BYTES);
    }

    /// Is written to by the kernel's socket, in FPDUs with this much payload.
    fn receives(&mut self, payload: usize) {
        self.memory.write_at(0, &vec![0; WRITE_BYTES]).expect("inside");
        self.ctx.listen(self.net.ours()).expect("room");
        self.turn();
        let writer = write_writes(self.net.ours(), payload);
        while !self.is_up {
            self.turn();
        }
        let begun = Instant::now();
        while !writer.is_finished() {
            self.turn();
        }
        report("received", begun);
        writer.join().expect("the peer");
        self.assert_pattern();
    }

    /// Asserts that our memory is what the peer has written.
    fn assert_pattern(&self) {
        let mut bytes = vec![0; WRITE_BYTES];
        self.memory.read_at(0, &mut bytes).expect("inside");
        let wrong = bytes.iter().zip(0..).position(|(byte, at)| *byte != byte_at(at));
        assert_eq!(wrong, None, "the first wrong byte");
    }
}

fn report(what: &str, begun: Instant) {
    let rate = mib() as f64 * WRITE_BYTES as f64 / begun.elapsed().as_secs_f64() / 1e6;
    println!("RATE {what} {rate:.0} MB/s");
}

/// The kernel's listener: answers the start-up, compares every FPDU, and returns their payload.
fn read_writes(at: SocketAddr) -> JoinHandle<usize> {
    let listener = TcpListener::bind(at).expect("a free port");
    std::thread::spawn(move || {
        let mut stream = listener.accept().expect("a connection").0;
        let mut request = [0; 20];
        stream.read_exact(&mut request).expect("a request");
        assert_eq!(&request[..16], REQUEST);
        stream.write_all(&[&REPLY[..], &CRC_AND_REVISION_1, &[0, 0]].concat()).expect("a reply");
        if mib() > 64 {
            return discard(stream);
        }
        let mut stream = std::io::BufReader::with_capacity(1 << 20, stream);
        let (mut fpdu, mut payload) = (Vec::new(), 0);
        let mut length = [0; 2];
        while stream.read_exact(&mut length).is_ok() {
            let ulpdu_bytes = usize::from(u16::from_be_bytes(length));
            let bytes = (2 + ulpdu_bytes).next_multiple_of(4) + 4;
            fpdu.clear();
            fpdu.extend_from_slice(&length);
            fpdu.resize(bytes, 0);
            stream.read_exact(&mut fpdu[2..]).expect("a whole FPDU");
            let (covered, crc) = fpdu.split_at(bytes - 4);
            assert_eq!(crc, crc32c(covered).to_le_bytes(), "a CRC");
            let offset = u64::from_be_bytes(fpdu[8..16].try_into().expect("eight bytes"));
            let data = &fpdu[FPDU_HEADER_BYTES..2 + ulpdu_bytes];
            assert!(data.iter().zip(offset..).all(|(byte, at)| *byte == byte_at(at)), "at {offset}");
            payload += data.len();
        }
        payload
    })
}

/// Returns what the payload should be.
fn discard(mut stream: TcpStream) -> usize {
    let mut bytes = vec![0; 1 << 20];
    while stream.read(&mut bytes).is_ok_and(|count| count > 0) {}
    mib() * WRITE_BYTES
}

/// The kernel's client: connects and writes the memory that the reply names again and again. It
/// ends when the stack has acknowledged all.
fn write_writes(to: SocketAddr, payload: usize) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let mut stream = TcpStream::connect(to).expect("a connection");
        stream.write_all(&[&REQUEST[..], &CRC_AND_REVISION_1, &[0, 0]].concat()).expect("a request");
        let mut reply = [0; 32];
        stream.read_exact(&mut reply).expect("a reply");
        assert_eq!(&reply[..16], REPLY);
        let base = u64::from_be_bytes(reply[24..].try_into().expect("eight bytes"));
        let mut image = Vec::new();
        for at in (0..WRITE_BYTES).step_by(payload) {
            let start = image.len();
            let bytes = payload.min(WRITE_BYTES - at);
            image.extend_from_slice(&((FPDU_HEADER_BYTES - 2 + bytes) as u16).to_be_bytes());
            image.extend_from_slice(&TAGGED_LAST_WRITE);
            image.extend_from_slice(&reply[20..24]);
            image.extend_from_slice(&(base + at as u64).to_be_bytes());
            image.extend((at as u64..).take(bytes).map(byte_at));
            image.resize(start + (image.len() - start).next_multiple_of(4), 0);
            image.extend_from_slice(&crc32c(&image[start..]).to_le_bytes());
        }
        for _ in 0..mib() {
            stream.write_all(&image).expect("a peer that reads");
        }
        stream.shutdown(std::net::Shutdown::Write).expect("an open stream");
        // The stack closes too once it has read everything.
        let _ = stream.read(&mut [0; 64]);
    })
}

/// Both directions on one stack, where Linux has its address on `interface`.
fn exchange(device: &str, interface: &str, net: Net, mtu: u16, more: &str) -> End {
    let mut end = open(device, net, mtu, more);
    net.assign(interface);
    end.sends();
    for payload in [usize::from(mtu) - 72, 60_000] {
        end.qp = end.ctx.create_qp(end.pd, &QpAttr::new(end.cq)).expect("a queue pair");
        end.is_up = false;
        end.receives(payload);
    }
    assert_eq!(end.counter("net_drop_l4_checksum"), 0);
    end
}

/// The library's own driver: super-segments cross in both directions. Without the fast path none is
/// sent, and the bytes are the same.
fn exchange_super_segments(device: &str, interface: &str, net: Net, mtu: u16) {
    for fast in [true, false] {
        let end = exchange(device, interface, net, mtu, &format!("[stack]\nfast_path = {fast}\n"));
        assert_eq!(end.counter("port_tx_super_segments") > 0, fast);
        assert!(end.counter("port_rx_super_segments") > 0);
        assert_eq!((end.counter("port_rx_bad_offload"), end.counter("port_tx_refused")), (0, 0));
    }
}

const TAP: &str = "tap = { interface = \"ptap0\" }";
const PACKET: &str = "af_packet = { interface = \"veth1\" }";

fn veth(mtu: u16) {
    system(&format!("ip link add veth0 mtu {mtu} type veth peer name veth1 mtu {mtu}"));
    system("ip link set veth1 up");
    system("ip link set veth0 up");
}

#[test]
fn super_segments_cross_a_tap() {
    alone("super_segments_cross_a_tap", Needs::Namespace, |_| {
        exchange_super_segments(TAP, "ptap0", IPV4, 1500);
    });
}

#[test]
fn super_segments_of_jumbo_frames_cross_a_tap() {
    alone("super_segments_of_jumbo_frames_cross_a_tap", Needs::Namespace, |_| {
        exchange_super_segments(TAP, "ptap0", IPV4, 9000);
    });
}

#[test]
fn super_segments_without_timestamps_and_sack_cross_a_tap() {
    alone("super_segments_without_timestamps_and_sack_cross_a_tap", Needs::Namespace, |_| {
        for option in ["timestamps", "sack"] {
            std::fs::write(format!("/proc/sys/net/ipv4/tcp_{option}"), "0").expect("a namespace of its own");
        }
        exchange_super_segments(TAP, "ptap0", IPV4, 1500);
    });
}

#[test]
fn super_segments_of_ipv6_cross_a_tap_and_a_packet_socket() {
    const NAME: &str = "super_segments_of_ipv6_cross_a_tap_and_a_packet_socket";
    if !std::path::Path::new("/proc/sys/net/ipv6").exists() {
        return vdev_lab::skipped(NAME, "the kernel has no IPv6");
    }
    alone(NAME, Needs::Namespace, |_| {
        exchange_super_segments(TAP, "ptap0", IPV6, 1500);
        veth(1500);
        exchange_super_segments(PACKET, "veth0", IPV6, 1500);
    });
}

#[test]
fn super_segments_cross_a_packet_socket() {
    alone("super_segments_cross_a_packet_socket", Needs::Namespace, |_| {
        veth(1500);
        exchange_super_segments(PACKET, "veth0", IPV4, 1500);
    });
}

/// The kernel takes the tag of a received frame out of it, and reports it beside the frame. Both
/// ends are stacks, since few kernels here have VLANs.
#[test]
fn tagged_frames_cross_packet_sockets() {
    alone("tagged_frames_cross_packet_sockets", Needs::Namespace, |_| {
        veth(1500);
        let vlan = "vlan = 5\n";
        let mut near = open(PACKET, IPV4, 1500, vlan);
        let swapped = Net { ours: IPV4.linux, linux: IPV4.ours, ..IPV4 };
        let mut far = open("af_packet = { interface = \"veth0\" }", swapped, 1500, vlan);
        far.memory.write_at(0, &vec![0; WRITE_BYTES]).expect("inside");
        far.ctx.listen(swapped.ours()).expect("room");
        far.turn();
        near.ctx.connect(near.qp, swapped.ours(), b"").expect("room");
        while !(near.is_up && far.is_up) {
            near.turn();
            far.turn();
        }
        let all = [near.memory.slice(0, WRITE_BYTES as u32).expect("inside")];
        let there = RemoteMemory { stag: far.memory.stag(), tagged_offset: far.memory.base_to() };
        near.ctx.post_send(near.qp, &SendWr::write(0, &all, there)).expect("room");
        while near.turn() == 0 {
            far.turn();
        }
        far.assert_pattern();
        assert_eq!((near.counter("net_drop_untagged"), far.counter("net_drop_untagged")), (0, 0));
    });
}

/// DPDK's drivers, which have no virtio-net header.
#[test]
fn dpdks_tap_is_reachable_by_its_name() {
    alone("dpdks_tap_is_reachable_by_its_name", Needs::Namespace, |_| {
        let device = "dpdk = { name = \"net_tap0\", args = \"iface=ptap0\" }";
        let end = exchange(device, "ptap0", IPV4, 1500, "");
        assert_eq!(end.counter("port_rx_super_segments"), 0);
    });
}

#[test]
fn dpdks_packet_socket_is_reachable_by_its_name() {
    alone("dpdks_packet_socket_is_reachable_by_its_name", Needs::Namespace, |_| {
        veth(1500);
        for end in ["veth0", "veth1"] {
            system(&format!("ethtool -K {end} tx off gso off tso off"));
        }
        let args = "iface=veth1,framesz=2048,blocksz=4096,framecnt=512";
        let device = format!("dpdk = {{ name = \"net_af_packet0\", args = \"{args}\" }}");
        let end = exchange(&device, "veth0", IPV4, 1500, "");
        assert_eq!(end.counter("port_rx_super_segments"), 0);
    });
}
