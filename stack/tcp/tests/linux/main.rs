//! Linux's TCP as the peer, over a tap device and over raw and XDP sockets on a veth pair, with
//! IPv4 and IPv6: an independent implementation, with each of its options on and off.
//!
//! Each test runs in a child process with its own network namespace (see `vdev_lab`). The test's
//! thread polls our engine; other threads of the process use the kernel's sockets. Faults are
//! injected on our side of the device. Time only limits how long a test waits.
//! `IRONWARP_LINUX_PCAP=file` captures a single test.
#![cfg(feature = "dpdk")]
#![allow(dead_code, reason = "the modules that are shared with other tests are used in part")]

mod bulk;
mod endings;
mod kernel;
#[path = "../common/pattern.rs"]
mod pattern;
mod user_stack;
#[path = "../../../port/tests/vdev_lab/mod.rs"]
mod vdev_lab;
mod windows;

use ironwarp_port::dpdk::{DpdkPort, PortSettings, Vdev};
use ironwarp_stats::CoreStats;
use ironwarp_tcp::TcpConfig;
use user_stack::UserStack;
use vdev_lab::{Lab, Needs, alone};

/// Frames per pool: the maximum that the tests' configuration lets TCP hold, and the rings.
const POOL_FRAMES: u32 = 4_096;

fn open(lab: &Lab, vdev: &Vdev, mtu_bytes: u16, config: TcpConfig) -> UserStack {
    let eal = lab.eal(&lab.config().vdev(vdev.clone()));
    let settings = PortSettings {
        mtu_bytes,
        rx_frames: POOL_FRAMES,
        tx_frames: POOL_FRAMES,
        rx_ring_frames: 512,
        tx_ring_frames: 512,
        multicast: kernel::is_ipv6(),
        ..PortSettings::default()
    };
    let port = DpdkPort::open(&eal, vdev.name(), &settings, CoreStats::detached())
        .unwrap_or_else(|error| panic!("{error}"));
    UserStack::new(eal, port, mtu_bytes, config)
}

/// Linux at the other end of a tap.
fn tap(lab: &Lab, config: TcpConfig) -> UserStack {
    let stack = open(lab, &vdev_lab::tap(), 1_500, config);
    kernel::address("dtap0");
    stack
}

/// Linux at the other end of a veth pair. Our side uses a raw socket.
fn veth(lab: &Lab, mtu_bytes: u16, config: TcpConfig) -> UserStack {
    kernel::veth(mtu_bytes);
    open(lab, &vdev_lab::packet_socket("veth1", mtu_bytes), mtu_bytes, config)
}

/// The same with an XDP socket.
fn xdp(lab: &Lab, config: TcpConfig) -> UserStack {
    kernel::veth(1_500);
    open(lab, &Vdev::af_xdp(0, "veth1").expect("a name"), 1_500, config)
}

/// The device that carries the frames.
#[derive(Clone, Copy)]
enum Device {
    Tap,
    Veth,
    Xdp,
}

/// Runs the test of this name over IPv6 in its own namespace.
fn over_ipv6(test: &str, device: Device, mtu_bytes: u16, body: impl FnOnce(UserStack)) {
    if !std::path::Path::new("/proc/sys/net/ipv6").exists() {
        vdev_lab::skipped(test, "the kernel has no IPv6");
        return;
    }
    alone(test, Needs::Namespace, |lab| {
        kernel::use_ipv6();
        body(match device {
            Device::Tap => tap(lab, user_stack::config()),
            Device::Veth => veth(lab, mtu_bytes, user_stack::config()),
            Device::Xdp => xdp(lab, user_stack::config()),
        });
    });
}

/// Runs the test of this name over an XDP socket in its own namespace.
fn over_xdp(test: &str, body: impl FnOnce(UserStack)) {
    alone(test, Needs::Namespace, |lab| body(xdp(lab, user_stack::config())));
}

/// Runs the test of this name over a tap in its own namespace.
fn over_a_tap(test: &str, body: impl FnOnce(UserStack)) {
    alone(test, Needs::Namespace, |lab| body(tap(lab, user_stack::config())));
}

/// Runs the test of this name over a veth pair in its own namespace.
fn over_a_veth(test: &str, mtu_bytes: u16, body: impl FnOnce(UserStack)) {
    alone(test, Needs::Namespace, |lab| body(veth(lab, mtu_bytes, user_stack::config())));
}
