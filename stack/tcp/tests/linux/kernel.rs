//! The Linux side: interfaces and settings of the test's network namespace, and sockets in their
//! own threads.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, sockopt};

use crate::pattern::byte_at;
use crate::user_stack::our_ip;
use crate::vdev_lab::system;

/// The address family of the test. Each test runs in its own process.
static IPV6: AtomicBool = AtomicBool::new(false);

/// Selects IPv6 for the test.
pub fn use_ipv6() {
    IPV6.store(true, Ordering::Relaxed);
}

/// Returns whether the test uses IPv6.
pub fn is_ipv6() -> bool {
    IPV6.load(Ordering::Relaxed)
}

/// Returns the kernel's address.
pub fn linux() -> IpAddr {
    if is_ipv6() {
        Ipv6Addr::new(0xfd88, 0, 0, 0, 0, 0, 0, 1).into()
    } else {
        Ipv4Addr::new(10, 88, 0, 1).into()
    }
}

/// The timeout of a blocked socket call. Longer than our side's deadline, whose error message is
/// more informative.
const IO_TIMEOUT: Duration = Duration::from_secs(80);

/// Bytes written and read at once.
const CHUNK: usize = 64 * 1024;

/// Assigns an address to the kernel's end of the device. Only frames of the test cross it.
pub fn address(interface: &str) {
    let quiet = format!("/proc/sys/net/ipv6/conf/{interface}/disable_ipv6");
    // Without IPv6 there is nothing to disable.
    let _ = std::fs::write(quiet, if is_ipv6() { "0" } else { "1" });
    // No other host could have the address.
    let (bits, how) = if is_ipv6() { (64, " nodad") } else { (24, "") };
    system(&format!("ip addr add {}/{bits} dev {interface}{how}", linux()));
    system(&format!("ip link set {interface} up"));
}

/// A veth pair: `veth0` is Linux's end, `veth1` ours.
pub fn veth(mtu_bytes: u16) {
    system(&format!("ip link add veth0 mtu {mtu_bytes} type veth peer name veth1 mtu {mtu_bytes}"));
    // Otherwise the kernel passes frames with incomplete checksums.
    for end in ["veth0", "veth1"] {
        system(&format!("ethtool -K {end} tx off gso off tso off"));
    }
    system("ip link set veth1 up");
    address("veth0");
}

/// Settings of Linux's TCP for connections opened from now on.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    pub sack: bool,
    pub timestamps: bool,
    pub ecn: bool,
    pub window_scaling: bool,
}

impl Settings {
    pub const ALL: Settings = Settings { sack: true, timestamps: true, ecn: true, window_scaling: true };
    pub const NONE: Settings = Settings { sack: false, timestamps: false, ecn: false, window_scaling: false };

    pub fn apply(self) {
        for (name, on) in [
            ("sack", self.sack),
            ("timestamps", self.timestamps),
            ("ecn", self.ecn),
            ("window_scaling", self.window_scaling),
        ] {
            sysctl(&format!("tcp_{name}"), if on { "1" } else { "0" });
        }
    }
}

/// Sets a sysctl of the namespace.
pub fn sysctl(name: &str, value: &str) {
    let path = format!("/proc/sys/net/ipv4/{name}");
    std::fs::write(&path, value).unwrap_or_else(|error| panic!("{path}: {error}"));
}

/// Returns the `ss` output for Linux's connection at a port:
/// `... ts sack ecn cubic wscale:4,7 rto:201 mss:1448 ...`.
pub fn ss_output(local_port: u16) -> String {
    let filter = format!("sport = :{local_port}");
    let output =
        std::process::Command::new("ss").args(["-tinoHO", &filter]).output().expect("ss, of iproute2");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

pub fn listen() -> (TcpListener, u16) {
    let listener = TcpListener::bind((linux(), 0)).expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    (listener, port)
}

/// Runs work of the kernel's side in a thread.
pub fn spawn<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    std::thread::spawn(work)
}

/// Accepts a connection from us.
pub fn accept(listener: &TcpListener) -> TcpStream {
    with_io_timeouts(listener.accept().expect("a connection").0)
}

/// Connects to a port of ours.
pub fn connect(port: u16) -> std::io::Result<TcpStream> {
    TcpStream::connect((our_ip(), port)).map(with_io_timeouts)
}

/// Connects to a port of ours from `local_port`.
pub fn connect_from(local_port: u16, port: u16) -> std::io::Result<TcpStream> {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    rustix::net::bind(&socket, &SocketAddr::from((linux(), local_port)))?;
    // A tap signals arriving frames, which may interrupt this call; it continues by itself.
    match rustix::net::connect(&socket, &SocketAddr::from((our_ip(), port))) {
        Err(Errno::INTR) => await_connection(&socket)?,
        other => other?,
    }
    Ok(with_io_timeouts(TcpStream::from(socket)))
}

fn await_connection(socket: &OwnedFd) -> std::io::Result<()> {
    while let Err(Errno::INTR) = poll(&mut [PollFd::new(socket, PollFlags::OUT)], None) {}
    Ok(sockopt::socket_error(socket)??)
}

fn with_io_timeouts(stream: TcpStream) -> TcpStream {
    stream.set_read_timeout(Some(IO_TIMEOUT)).expect("a read timeout");
    stream.set_write_timeout(Some(IO_TIMEOUT)).expect("a write timeout");
    stream
}

/// Sends and receives at the same time, then closes. Checks the received bytes and returns their
/// number.
pub fn exchange(stream: TcpStream, sends: u64) -> u64 {
    let writer = stream.try_clone().expect("a second handle");
    let writing = spawn(move || {
        send(&writer, 0, sends);
        writer.shutdown(Shutdown::Write).expect("an open direction");
    });
    let received = receive(&stream);
    writing.join().expect("the writing thread");
    received
}

/// Sends the pattern's bytes between two offsets.
pub fn send(mut stream: &TcpStream, from: u64, to: u64) {
    let mut at = from;
    while at < to {
        let end = to.min(at + CHUNK as u64);
        let bytes: Vec<u8> = (at..end).map(byte_at).collect();
        stream.write_all(&bytes).unwrap_or_else(|error| panic!("at {at}: {error}"));
        at = end;
    }
}

/// Receives to the end of the stream, checks every byte, and returns their number.
pub fn receive(stream: &TcpStream) -> u64 {
    let mut taken = 0;
    while let n @ 1.. = receive_some(stream, &mut taken, CHUNK) {
        assert!(n <= CHUNK);
    }
    taken
}

/// Receives up to `max` available bytes and checks them. Returns 0 at the end of the stream.
pub fn receive_some(mut stream: &TcpStream, taken: &mut u64, max: usize) -> usize {
    let mut bytes = vec![0; max];
    let n = loop {
        match stream.read(&mut bytes) {
            Ok(n) => break n,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => panic!("after {taken} bytes: {error}"),
        }
    };
    for (at, &byte) in bytes.iter().take(n).enumerate() {
        assert!(byte == byte_at(*taken + at as u64), "byte {} is wrong", *taken + at as u64);
    }
    *taken += n as u64;
    n
}
