//! Descriptors of the kernel's interfaces: a queue of a tap, a raw packet socket, and a socket for
//! requests about an interface.
//!
//! Every `unsafe` of this driver is here: calls of libc whose arguments are plain structures of the
//! kernel's interface. Source: netdevice(7), packet(7) and the kernel's tuntap.rst.
#![allow(unsafe_code)]

use core::mem::{MaybeUninit, size_of};
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use ironwarp_types::MacAddr;
use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, Result};
use rustix::net::{AddressFamily, Protocol, SocketFlags, SocketType, socket_with, sockopt};

use super::vnet::HEADER_BYTES;

/// Frames of every protocol, in network byte order.
const EVERY_PROTOCOL: u32 = (libc::ETH_P_ALL as u16).to_be() as u32;
/// What a socket may hold of sent and of received frames: a TCP window of super-segments. A process
/// without CAP_NET_ADMIN gets what `net.core.rmem_max` and `wmem_max` allow.
const SOCKET_BYTES: usize = 8 << 20;

/// One queue of a device: each read and write is a header of virtio-net and a frame.
pub(super) enum Queue {
    /// A queue of a tap.
    Tap(OwnedFd),
    /// A packet socket.
    Packet(OwnedFd),
}

impl Queue {
    /// Opens a queue of a tap, which is created if there is none of this name.
    pub(super) fn tap(interface: &str) -> Result<Self> {
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let queue = rustix::fs::open("/dev/net/tun", flags, Mode::empty())?;
        let kind = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR | libc::IFF_MULTI_QUEUE;
        request(&queue, libc::TUNSETIFF, Request::new(interface).with_flags(kind as u16))?;
        let header_bytes = HEADER_BYTES as libc::c_int;
        // SAFETY: reads one `int`.
        check(unsafe { libc::ioctl(queue.as_raw_fd(), libc::TUNSETVNETHDRSZ, &header_bytes) })?;
        let offloads = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6;
        // SAFETY: takes a number.
        check(unsafe { libc::ioctl(queue.as_raw_fd(), libc::TUNSETOFFLOAD, libc::c_ulong::from(offloads)) })?;
        Ok(Queue::Tap(queue))
    }

    /// Opens a packet socket of an interface. `group` is the fan-out group that several sockets of
    /// one interface share; the first one creates it.
    pub(super) fn packet(index: i32, group: &mut Option<u16>, several: bool) -> Result<Self> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        // Nothing is received until the socket is bound.
        let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?;
        if sockopt::set_socket_recv_buffer_size_force(&socket, SOCKET_BYTES).is_err() {
            sockopt::set_socket_recv_buffer_size(&socket, SOCKET_BYTES)?;
        }
        if sockopt::set_socket_send_buffer_size_force(&socket, SOCKET_BYTES).is_err() {
            sockopt::set_socket_send_buffer_size(&socket, SOCKET_BYTES)?;
        }
        for option in [libc::PACKET_VNET_HDR, libc::PACKET_AUXDATA, libc::PACKET_IGNORE_OUTGOING] {
            set_option(&socket, option, 1_i32)?;
        }
        let groups = libc::packet_mreq {
            mr_ifindex: index,
            mr_type: libc::PACKET_MR_ALLMULTI as u16,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        set_option(&socket, libc::PACKET_ADD_MEMBERSHIP, groups)?;
        bind(&socket, index)?;
        if several {
            join(&socket, group)?;
        }
        Ok(Queue::Packet(socket))
    }

    /// Reads a header and a frame. Returns the bytes of both, and the VLAN tag that the kernel has
    /// taken out of the frame. What exceeds the buffers is lost.
    #[inline]
    pub(super) fn receive(&self, into: &mut [IoSliceMut<'_>]) -> Result<(usize, Option<[u8; 4]>)> {
        match self {
            Queue::Tap(queue) => Ok((rustix::io::readv(queue, into)?, None)),
            Queue::Packet(socket) => receive_packet(socket.as_fd(), into),
        }
    }

    /// Writes a header and a frame.
    #[inline]
    pub(super) fn send(&self, from: &[IoSlice<'_>]) -> Result<()> {
        rustix::io::writev(self, from).map(drop)
    }
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        let (Queue::Tap(queue) | Queue::Packet(queue)) = self;
        queue.as_fd()
    }
}

/// An interface by its name: requests about it.
pub(super) struct Interface {
    name: String,
    socket: OwnedFd,
}

impl Interface {
    pub(super) fn new(name: &str) -> Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None::<Protocol>)?;
        Ok(Interface { name: name.into(), socket })
    }

    pub(super) fn index(&self) -> Result<i32> {
        let index = rustix::net::netdevice::name_to_index(&self.socket, &self.name)?;
        i32::try_from(index).map_err(|_| Errno::NODEV)
    }

    pub(super) fn mac(&self) -> Result<MacAddr> {
        let [_, _, m0, m1, m2, m3, m4, m5, ..] =
            self.request(libc::SIOCGIFHWADDR, Request::new(&self.name))?.value;
        // A family of two bytes comes first.
        Ok(MacAddr([m0, m1, m2, m3, m4, m5]))
    }

    pub(super) fn set_mtu(&self, mtu_bytes: u16) -> Result<()> {
        let mtu = i32::from(mtu_bytes).to_ne_bytes();
        self.request(libc::SIOCSIFMTU, Request::new(&self.name).with(&mtu)).map(drop)
    }

    pub(super) fn set_up(&self) -> Result<()> {
        let flags = self.flags()? | libc::IFF_UP as u16;
        self.request(libc::SIOCSIFFLAGS, Request::new(&self.name).with_flags(flags)).map(drop)
    }

    /// Returns whether the interface is up and has a link.
    pub(super) fn is_running(&self) -> bool {
        let both = (libc::IFF_UP | libc::IFF_RUNNING) as u16;
        self.flags().is_ok_and(|flags| flags & both == both)
    }

    fn flags(&self) -> Result<u16> {
        let [low, high, ..] = self.request(libc::SIOCGIFFLAGS, Request::new(&self.name))?.value;
        Ok(u16::from_ne_bytes([low, high]))
    }

    fn request(&self, what: libc::Ioctl, request: Request) -> Result<Request> {
        self::request(&self.socket, what, request)
    }
}

/// `struct ifreq`: the name of an interface, and a value that depends on the request.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Request {
    name: [u8; libc::IFNAMSIZ],
    value: [u8; 24],
}

const _: () = assert!(size_of::<Request>() == size_of::<libc::ifreq>());

impl Request {
    /// A longer name is cut; the configuration allows none.
    fn new(interface: &str) -> Self {
        let mut name = [0; libc::IFNAMSIZ];
        name.iter_mut().zip(interface.bytes().take(libc::IFNAMSIZ - 1)).for_each(|(to, byte)| *to = byte);
        Request { name, value: [0; 24] }
    }

    fn with(mut self, value: &[u8]) -> Self {
        self.value.iter_mut().zip(value).for_each(|(to, byte)| *to = *byte);
        self
    }

    fn with_flags(self, flags: u16) -> Self {
        self.with(&flags.to_ne_bytes())
    }
}

fn request(fd: &OwnedFd, what: libc::Ioctl, mut request: Request) -> Result<Request> {
    // SAFETY: these requests read and write a `struct ifreq`, whose size is asserted above, and no
    // memory beyond it.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), what, &raw mut request) })?;
    Ok(request)
}

fn check(answer: libc::c_int) -> Result<()> {
    if answer < 0 { Err(last_error()) } else { Ok(()) }
}

#[cold]
fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

fn set_option<T: Copy>(socket: &OwnedFd, option: libc::c_int, value: T) -> Result<()> {
    let bytes = size_of::<T>() as libc::socklen_t;
    // SAFETY: reads the value, in its length.
    check(unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_PACKET, option, (&raw const value).cast(), bytes)
    })
}

fn bind(socket: &OwnedFd, index: i32) -> Result<()> {
    // SAFETY: all its fields are numbers, for which zero is a value.
    let mut to: libc::sockaddr_ll = unsafe { MaybeUninit::zeroed().assume_init() };
    to.sll_family = libc::AF_PACKET as u16;
    to.sll_protocol = EVERY_PROTOCOL as u16;
    to.sll_ifindex = index;
    let bytes = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: reads the address, in its length.
    check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const to).cast(), bytes) })
}

/// Shares the frames of an interface among sockets, by a hash of the flow. The kernel chooses the
/// number of the group.
fn join(socket: &OwnedFd, group: &mut Option<u16>) -> Result<()> {
    let new = libc::PACKET_FANOUT_FLAG_UNIQUEID;
    let (id, flags) = group.map_or((0, new), |id| (id, 0));
    let how = u32::from(id) | (libc::PACKET_FANOUT_HASH | flags) << 16;
    set_option(socket, libc::PACKET_FANOUT, how)?;
    let mut chosen = 0_u32;
    let mut bytes = size_of::<u32>() as libc::socklen_t;
    // SAFETY: writes at most as many bytes as the value has.
    check(unsafe {
        let value = (&raw mut chosen).cast();
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_PACKET, libc::PACKET_FANOUT, value, &mut bytes)
    })?;
    *group = Some(chosen as u16);
    Ok(())
}

/// Room for one control message, aligned as its header.
#[repr(C, align(8))]
struct Control([u8; 64]);

const _: () = assert!(size_of::<libc::cmsghdr>() + size_of::<libc::tpacket_auxdata>() <= 64);

fn receive_packet(socket: BorrowedFd<'_>, into: &mut [IoSliceMut<'_>]) -> Result<(usize, Option<[u8; 4]>)> {
    let mut control = Control([0; 64]);
    // SAFETY: all its fields are numbers or pointers, for which zero is a value.
    let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    // `IoSliceMut` has the layout of `iovec`.
    message.msg_iov = into.as_mut_ptr().cast();
    message.msg_iovlen = into.len();
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control.0.len();
    // SAFETY: the slices are borrowed mutably for the call, and the kernel writes within them and
    // within the control buffer.
    let bytes = unsafe { libc::recvmsg(socket.as_raw_fd(), &mut message, 0) };
    let bytes = usize::try_from(bytes).map_err(|_| last_error())?;
    Ok((bytes, tag_of(&control, message.msg_controllen)))
}

/// Returns the VLAN tag that a `PACKET_AUXDATA` message describes.
fn tag_of(control: &Control, bytes: usize) -> Option<[u8; 4]> {
    // The data of the first message follows its header, which is a multiple of eight bytes long.
    let data = control.0.get(size_of::<libc::cmsghdr>()..bytes)?;
    let word = |at: usize| data.get(at..)?.first_chunk().copied().map(u32::from_ne_bytes);
    let half = |at: usize| data.get(at..)?.first_chunk().copied().map(u16::from_ne_bytes);
    let status = word(core::mem::offset_of!(libc::tpacket_auxdata, tp_status))?;
    if status & libc::TP_STATUS_VLAN_VALID == 0 {
        return None;
    }
    let tci = half(core::mem::offset_of!(libc::tpacket_auxdata, tp_vlan_tci))?;
    let tpid = half(core::mem::offset_of!(libc::tpacket_auxdata, tp_vlan_tpid)).filter(|tpid| *tpid != 0);
    let ([t0, t1], [v0, v1]) = (tpid.unwrap_or(0x8100).to_be_bytes(), tci.to_be_bytes());
    Some([t0, t1, v0, v1])
}
