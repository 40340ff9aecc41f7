//! What the kernel says of a descriptor of a tap interface.

use std::os::fd::AsFd;

use rustix::io;
use rustix::ioctl::{Getter, Opcode, ioctl, opcode};

/// `TUNGETIFF` of `<linux/if_tun.h>`; the size in its number is that of an `unsigned int`.
const TUNGETIFF: Opcode = opcode::read::<u32>(b'T', 210);
/// `IFF_DETACH_QUEUE`: no frame is passed to this descriptor.
const DETACHED: u16 = 0x0400;

/// `struct ifreq` with the flags of an interface.
#[repr(C)]
#[derive(Clone, Copy)]
struct Request {
    name: [u8; 16],
    flags: u16,
    rest: [u8; 22],
}

const _: () = assert!(size_of::<Request>() == 40);

/// Returns whether the descriptor is a queue that frames of a tap interface may be passed to.
///
/// # Errors
///
/// What `ioctl` reports: `EBADFD` if the descriptor belongs to no interface, `ENOTTY` if it is of
/// another kind.
pub(super) fn is_attached(queue: impl AsFd) -> io::Result<bool> {
    // SAFETY: `TUNGETIFF` writes a `struct ifreq`, as asserted above, and reads nothing.
    let request = unsafe { ioctl(queue, Getter::<TUNGETIFF, Request>::new()) }?;
    Ok(request.flags & DETACHED == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_of_another_kind_is_an_error() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
        assert_eq!(is_attached(&socket), Err(io::Errno::NOTTY));
    }
}
