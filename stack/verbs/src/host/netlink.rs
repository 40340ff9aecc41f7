//! The interfaces and addresses of this process's network namespace.
//!
//! Source: rtnetlink(7), RFC 3549 s2.3: one dump of links, one of addresses. Takes nothing; gives
//! [`Links`]. A kernel that does not reply within a second is an error, and so is a truncated
//! message.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with,
};

/// The interfaces of a network namespace.
#[derive(Clone, Debug, Default)]
pub struct Links {
    all: Vec<Link>,
    addresses: Vec<(IpAddr, u32)>,
}

/// One interface.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Link {
    /// The number.
    pub index: u32,
    /// The name.
    pub name: String,
    /// The MTU in bytes.
    pub mtu: u32,
    /// Whether it is up.
    pub up: bool,
    /// Whether it has a carrier.
    pub carrier: bool,
    /// Its kind: `tun`, `veth`; absent for a card.
    pub kind: Option<String>,
    /// Whether it is a tap that exists without a process.
    pub persistent: bool,
    /// Whether an XDP program is attached.
    pub xdp: bool,
}

const GET_LINK: u16 = 18;
const GET_ADDR: u16 = 22;
const DONE: u16 = 3;
const ERROR: u16 = 2;
/// A dump request.
const DUMP: u16 = 0x301;
const HEADER_BYTES: usize = 16;
const LINK_BYTES: usize = 16;
const ADDR_BYTES: usize = 8;
const IS_UP: u32 = 1;
const BUFFER_BYTES: usize = 64 * 1024;
const RECV_TIMEOUT: Duration = Duration::from_secs(1);

impl Links {
    /// Creates the value from interfaces and their addresses, by number.
    pub fn new(all: Vec<Link>, addresses: Vec<(IpAddr, u32)>) -> Self {
        Links { all, addresses }
    }

    /// Asks the kernel.
    ///
    /// # Errors
    /// If there is no netlink, as in some sandboxes.
    pub fn read() -> io::Result<Self> {
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
        // Protocol 0 is routes and links.
        bind(&socket, &SocketAddrNetlink::new(0, 0))?;
        set_socket_timeout(&socket, Timeout::Recv, Some(RECV_TIMEOUT))?;
        let mut links = Links::default();
        dump(&socket, GET_LINK, LINK_BYTES, |body| links.all.extend(link(body)))?;
        dump(&socket, GET_ADDR, ADDR_BYTES, |body| links.addresses.extend(address(body)))?;
        Ok(links)
    }

    /// Returns the interface of a name.
    pub fn by_name(&self, name: &str) -> Option<&Link> {
        self.all.iter().find(|link| link.name == name)
    }

    /// Returns all names.
    pub fn names(&self) -> Vec<&str> {
        self.all.iter().map(|link| link.name.as_str()).collect()
    }

    /// Returns the kernel's addresses and their interfaces.
    pub fn addresses(&self) -> impl Iterator<Item = (IpAddr, &str)> {
        self.addresses.iter().map(|(addr, index)| {
            let name = self.all.iter().find(|link| link.index == *index).map_or("?", |link| &link.name);
            (*addr, name)
        })
    }
}

/// Requests a dump of one kind, and passes on the body of each message.
fn dump(socket: &OwnedFd, kind: u16, body_bytes: usize, mut each: impl FnMut(&[u8])) -> io::Result<()> {
    let total = HEADER_BYTES + body_bytes;
    let mut request = Vec::with_capacity(total);
    request.extend((total as u32).to_ne_bytes());
    request.extend(kind.to_ne_bytes());
    request.extend(DUMP.to_ne_bytes());
    request.resize(total, 0);
    send(socket, &request, SendFlags::empty())?;
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let (len, _) = recv(socket, &mut buffer[..], RecvFlags::empty())?;
        let mut rest = buffer.get(..len).unwrap_or_default();
        if rest.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        while let Some((kind, body, remaining)) = message(rest) {
            match kind {
                DONE => return Ok(()),
                ERROR => return Err(io::Error::other("netlink refused")),
                _ => each(body),
            }
            rest = remaining;
        }
    }
}

/// Returns kind and body of the first message, and the rest.
fn message(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let len = word(bytes, 0)? as usize;
    let kind = half(bytes, 4)?;
    let body = bytes.get(HEADER_BYTES..len)?;
    Some((kind, body, bytes.get(len.next_multiple_of(4)..).unwrap_or_default()))
}

/// Returns kind and value of each attribute.
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    core::iter::from_fn(move || {
        let len = usize::from(half(bytes, 0)?);
        // The top bits are flags.
        let kind = half(bytes, 2)? & 0x3fff;
        let value = bytes.get(4..len)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

fn link(body: &[u8]) -> Option<Link> {
    let mut link = Link { index: word(body, 4)?, up: word(body, 8)? & IS_UP != 0, ..Link::default() };
    for (kind, value) in attributes(body.get(LINK_BYTES..)?) {
        match kind {
            3 => link.name = text(value),
            4 => link.mtu = word(value, 0)?,
            18 => info(value, &mut link),
            33 => link.carrier = value.first() == Some(&1),
            // The first nested attribute is the attach mode; 0 means not attached.
            43 => link.xdp = attributes(value).any(|(kind, how)| kind == 2 && how.first() != Some(&0)),
            _ => {}
        }
    }
    Some(link)
}

/// Returns the interface's kind, and whether a tap is persistent.
fn info(value: &[u8], link: &mut Link) {
    for (kind, value) in attributes(value) {
        match kind {
            1 => link.kind = Some(text(value)),
            2 if link.kind.as_deref() == Some("tun") => {
                link.persistent = attributes(value).any(|(kind, on)| kind == 6 && on.first() == Some(&1));
            }
            _ => {}
        }
    }
}

/// The local address: on a point-to-point link the other attribute is the peer's.
fn address(body: &[u8]) -> Option<(IpAddr, u32)> {
    let index = word(body, 4)?;
    let all: Vec<(u16, &[u8])> = attributes(body.get(ADDR_BYTES..)?).collect();
    let find = |wanted| all.iter().find(|(kind, _)| *kind == wanted).map(|(_, value)| *value);
    let octets = find(2).or_else(|| find(1))?;
    let addr = match octets.len() {
        4 => IpAddr::V4(Ipv4Addr::from(<[u8; 4]>::try_from(octets).ok()?)),
        _ => IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(octets).ok()?)),
    };
    Some((addr, index))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes)
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2)?.try_into().ok().map(u16::from_ne_bytes)
}

/// Returns a NUL-terminated text.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(bytes.get(..end).unwrap_or_default()).into_owned()
}
