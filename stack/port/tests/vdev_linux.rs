//! Ports whose peer is Linux: a tap interface, a raw socket and an XDP socket on a veth pair. Each
//! asks the kernel for its link address by ARP and then for an echo, with headers that smoltcp
//! wrote.
#![cfg(feature = "dpdk")]

mod vdev_lab;

use std::net::Ipv4Addr;

use ironwarp_port::dpdk::{DpdkError, DpdkPort, Eal, MbufFrame, PortSettings, Vdev};
use ironwarp_port::{Burst, Checksum, Frame, Port, TxMeta, TxOffloads};
use ironwarp_stats::CoreStats;
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, EthernetAddress, EthernetFrame, EthernetProtocol, Icmpv4Packet,
    Icmpv4Repr, IpProtocol, Ipv4Packet, Ipv4Repr,
};
use vdev_lab::{Lab, Needs, alone, packet_socket, pattern, send, system, tap};

const OURS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
const LINUX: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// Not the device's own: a tap's kernel end has that one.
const OUR_MAC: EthernetAddress = EthernetAddress([2, 0, 0, 0, 0, 2]);

/// A veth pair: `veth0` is Linux's end, `veth1` ours.
fn veth(mtu_bytes: u16) {
    system(&format!("ip link add veth0 mtu {mtu_bytes} type veth peer name veth1 mtu {mtu_bytes}"));
    // Otherwise the kernel hands over checksums that nobody has filled in.
    for end in ["veth0", "veth1"] {
        system(&format!("ethtool -K {end} tx off gso off tso off"));
        system(&format!("ip link set {end} up"));
    }
    system("ip addr add 10.77.0.1/24 dev veth0");
}

fn open(eal: &Eal, vdev: &Vdev, settings: &PortSettings) -> DpdkPort {
    DpdkPort::open(eal, vdev.name(), settings, CoreStats::detached())
        .unwrap_or_else(|error| panic!("{error}"))
}

fn start(lab: &Lab, vdev: &Vdev, settings: &PortSettings) -> (Eal, DpdkPort) {
    let eal = lab.eal(&lab.config().vdev(vdev.clone()));
    let port = open(&eal, vdev, settings);
    (eal, port)
}

fn ask<T>(port: &mut DpdkPort, question: &[u8], answer: impl Fn(&MbufFrame) -> Option<T>) -> T {
    ask_with(port, question, send, answer)
}

/// Asks until it is answered: an interface that has just come up may lose the first frames.
fn ask_with<T>(
    port: &mut DpdkPort,
    question: &[u8],
    send: impl Fn(&mut DpdkPort, &[u8]),
    answer: impl Fn(&MbufFrame) -> Option<T>,
) -> T {
    loop {
        send(port, question);
        for _ in 0..20_000 {
            let mut burst = Burst::new();
            port.rx_burst(&mut burst);
            if let Some(answer) = burst.iter().find_map(&answer) {
                return answer;
            }
            std::thread::yield_now();
        }
    }
}

/// Sends a packet whose header checksum the device shall fill in.
fn offloaded(port: &mut DpdkPort, bytes: &[u8]) {
    let tx = TxMeta { l2_bytes: 14, l3_bytes: 20, l4_bytes: 0, offloads: TxOffloads::IPV4_CHECKSUM };
    let mut frame = port.alloc().expect("a frame in the pool");
    frame.resize(bytes.len());
    frame.bytes_mut().copy_from_slice(bytes);
    port.tx_burst(&mut Burst::from_iter([frame.seal(tx)]));
}

fn linux_mac(port: &mut DpdkPort) -> EthernetAddress {
    let request = ArpRepr::EthernetIpv4 {
        operation: ArpOperation::Request,
        source_hardware_addr: OUR_MAC,
        source_protocol_addr: OURS,
        target_hardware_addr: EthernetAddress([0; 6]),
        target_protocol_addr: LINUX,
    };
    let mut bytes = vec![0; 14 + request.buffer_len()];
    let mut frame = EthernetFrame::new_unchecked(&mut bytes);
    frame.set_dst_addr(EthernetAddress::BROADCAST);
    frame.set_src_addr(OUR_MAC);
    frame.set_ethertype(EthernetProtocol::Arp);
    request.emit(&mut ArpPacket::new_unchecked(frame.payload_mut()));
    ask(port, &bytes, |frame| {
        let frame = EthernetFrame::new_checked(frame.bytes()).ok()?;
        let packet = ArpPacket::new_checked(frame.payload()).ok()?;
        match ArpRepr::parse(&packet).ok()? {
            ArpRepr::EthernetIpv4 { operation: ArpOperation::Reply, source_hardware_addr, .. } => {
                Some(source_hardware_addr)
            }
            _ => None,
        }
    })
}

/// An echo request for Linux, from its link header on.
fn echo_request(linux: EthernetAddress, data: &[u8], ip_checksum: bool) -> Vec<u8> {
    let mut sums = ChecksumCapabilities::default();
    let icmp = Icmpv4Repr::EchoRequest { ident: 7, seq_no: 1, data };
    let payload_len = icmp.buffer_len();
    let ip = Ipv4Repr {
        src_addr: OURS,
        dst_addr: LINUX,
        next_header: IpProtocol::Icmp,
        payload_len,
        hop_limit: 64,
    };
    let mut bytes = vec![0; 14 + ip.buffer_len() + payload_len];
    let mut frame = EthernetFrame::new_unchecked(&mut bytes);
    frame.set_dst_addr(linux);
    frame.set_src_addr(OUR_MAC);
    frame.set_ethertype(EthernetProtocol::Ipv4);
    let mut packet = Ipv4Packet::new_unchecked(frame.payload_mut());
    if !ip_checksum {
        sums.ipv4 = smoltcp::phy::Checksum::None;
    }
    ip.emit(&mut packet, &sums);
    icmp.emit(&mut Icmpv4Packet::new_unchecked(packet.payload_mut()), &sums);
    bytes
}

fn echoed(frame: &MbufFrame) -> Option<(Vec<u8>, Checksum)> {
    let sums = ChecksumCapabilities::default();
    let link = EthernetFrame::new_checked(frame.bytes()).ok()?;
    let packet = Ipv4Packet::new_checked(link.payload()).ok()?;
    Ipv4Repr::parse(&packet, &sums).ok()?;
    match Icmpv4Repr::parse(&Icmpv4Packet::new_checked(packet.payload()).ok()?, &sums).ok()? {
        Icmpv4Repr::EchoReply { ident: 7, data, .. } => Some((data.to_vec(), frame.rx().ip_checksum)),
        _ => None,
    }
}

/// Linux knows us by name, and echoes packets up to the MTU byte for byte.
fn linux_echoes(port: &mut DpdkPort, mtu_bytes: usize) {
    let linux = linux_mac(port);
    for len in [0, 56, mtu_bytes - 28] {
        let data = pattern(len, len);
        let (answer, verdict) = ask(port, &echo_request(linux, &data, true), echoed);
        assert_eq!(answer, data, "{len} bytes");
        let expected = if port.caps().rx_checksum { Checksum::Good } else { Checksum::Unknown };
        assert_eq!(verdict, expected);
    }
}

#[test]
fn linux_answers_through_a_tap() {
    alone("linux_answers_through_a_tap", Needs::Namespace, |lab| {
        let vdev = tap();
        let (_eal, mut port) = start(lab, &vdev, &PortSettings::default());
        system("ip addr add 10.77.0.1/24 dev dtap0");
        system("ip link set dtap0 up");
        linux_echoes(&mut port, 1500);
    });
}

#[test]
fn a_tap_fills_in_the_checksum_that_it_claims_to() {
    alone("a_tap_fills_in_the_checksum_that_it_claims_to", Needs::Namespace, |lab| {
        let vdev = tap();
        let (_eal, mut port) = start(lab, &vdev, &PortSettings::default());
        system("ip addr add 10.77.0.1/24 dev dtap0");
        system("ip link set dtap0 up");
        assert!(port.caps().tx_offloads.contains(TxOffloads::IPV4_CHECKSUM));
        let question = echo_request(linux_mac(&mut port), &pattern(5, 200), false);
        let (answer, _) = ask_with(&mut port, &question, offloaded, echoed);
        assert_eq!(answer, pattern(5, 200), "Linux drops a packet whose header checksum is wrong");
    });
}

#[test]
fn a_tap_refuses_a_jumbo_mtu_and_keeps_its_interface() {
    alone("a_tap_refuses_a_jumbo_mtu_and_keeps_its_interface", Needs::Namespace, |lab| {
        let vdev = tap();
        let eal = lab.eal(&lab.config().vdev(vdev.clone()));
        let jumbo = PortSettings { mtu_bytes: 9000, ..PortSettings::default() };
        match DpdkPort::open(&eal, vdev.name(), &jumbo, CoreStats::detached()) {
            Err(DpdkError::Mtu { what: "the device", limit_bytes, .. }) => assert_eq!(limit_bytes, 1522),
            other => panic!("{:?}", other.map(|_| ())),
        }
        drop(open(&eal, &vdev, &PortSettings::default()));
    });
}

#[test]
fn the_kernels_end_of_a_tap_follows_a_smaller_mtu() {
    alone("the_kernels_end_of_a_tap_follows_a_smaller_mtu", Needs::Namespace, |lab| {
        let small = PortSettings { mtu_bytes: 1280, ..PortSettings::default() };
        let (_eal, _port) = start(lab, &tap(), &small);
        let shown = std::process::Command::new("ip").args(["link", "show", "dtap0"]).output().expect("ip");
        assert!(String::from_utf8_lossy(&shown.stdout).contains("mtu 1280"));
    });
}

#[test]
fn linux_answers_through_a_raw_socket_on_a_veth() {
    alone("linux_answers_through_a_raw_socket_on_a_veth", Needs::Namespace, |lab| {
        veth(1500);
        let vdev = packet_socket("veth1", 1500);
        let (_eal, mut port) = start(lab, &vdev, &PortSettings::default());
        linux_echoes(&mut port, 1500);
    });
}

#[test]
fn jumbo_packets_cross_a_raw_socket_whose_rings_have_room() {
    alone("jumbo_packets_cross_a_raw_socket_whose_rings_have_room", Needs::Namespace, |lab| {
        veth(9000);
        let vdev = packet_socket("veth1", 9000);
        let jumbo = PortSettings { mtu_bytes: 9000, ..PortSettings::default() };
        let (eal, mut port) = start(lab, &vdev, &jumbo);
        linux_echoes(&mut port, 9000);
        let giant = PortSettings { mtu_bytes: 12_200, ..PortSettings::default() };
        let refused = DpdkPort::open(&eal, vdev.name(), &giant, CoreStats::detached());
        assert!(matches!(
            refused,
            Err(DpdkError::Mtu { what: "the device's buffer", limit_bytes: 12_208, .. })
        ));
    });
}

#[test]
fn linux_answers_through_an_xdp_socket_on_a_veth() {
    alone("linux_answers_through_an_xdp_socket_on_a_veth", Needs::Namespace, |lab| {
        veth(1500);
        let vdev = Vdev::af_xdp(0, "veth1").unwrap();
        let eal = lab.eal(&lab.config().vdev(vdev.clone()));
        match DpdkPort::open(&eal, vdev.name(), &PortSettings::default(), CoreStats::detached()) {
            Ok(mut port) => {
                linux_echoes(&mut port, 1500);
                sustained_echo(&mut port, 20_000);
            }
            Err(error) => lab.skip(&error.to_string()),
        }
    });
}

#[test]
fn an_xdp_socket_refuses_what_does_not_fit_a_page() {
    alone("an_xdp_socket_refuses_what_does_not_fit_a_page", Needs::Namespace, |lab| {
        veth(1500);
        let vdev = Vdev::af_xdp(0, "veth1").unwrap();
        let eal = lab.eal(&lab.config().vdev(vdev.clone()));
        let jumbo = PortSettings { mtu_bytes: 9000, ..PortSettings::default() };
        let refused = DpdkPort::open(&eal, vdev.name(), &jumbo, CoreStats::detached());
        assert!(matches!(refused, Err(DpdkError::Mtu { what: "the device", .. })));
    });
}

/// Keeps a burst of echo requests on the way until so many have been answered: every buffer of the
/// port is used many times.
fn sustained_echo(port: &mut DpdkPort, answers: usize) {
    let question = echo_request(linux_mac(port), &pattern(3, 1200), true);
    let (mut answered, mut waiting, mut idle_polls) = (0, 0_usize, 0);
    while answered < answers {
        // What was lost on the way is given up after a while, and asked again.
        if waiting == 0 || idle_polls > 20_000 {
            (waiting, idle_polls) = (16, 0);
            (0..16).for_each(|_| send(port, &question));
        }
        let mut burst = Burst::new();
        port.rx_burst(&mut burst);
        let echoes =
            burst.iter().filter_map(echoed).inspect(|(data, _)| assert_eq!(*data, pattern(3, 1200))).count();
        answered += echoes;
        waiting = waiting.saturating_sub(echoes);
        idle_polls = if burst.is_empty() { idle_polls + 1 } else { 0 };
        std::thread::yield_now();
    }
}
