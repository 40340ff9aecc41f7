//! The descriptors that the kernel makes readable when a device has received frames: of tap
//! interfaces, raw sockets and XDP sockets.
//!
//! DPDK 22.11 offers a descriptor of a receive queue for cards ([`super::rx_interrupt`]) and vhost
//! only. Its drivers for kernel interfaces open sockets and files and keep them to themselves, so
//! they are found among the process's own descriptors: those that were opened together with the
//! device and are of its kind. Each is duplicated; the driver keeps its own. What cannot be found
//! is no error: the device is polled by a timer.

use std::collections::BTreeSet;
use std::fs::DirEntry;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::AddressFamily;
use rustix::net::sockopt::socket_domain;
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

use super::tap;

/// This process's descriptors.
const DESCRIPTORS: &str = "/proc/self/fd";
/// The file of every tap interface.
const TUN: &str = "/dev/net/tun";

/// What a driver opens for a receive queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Tap,
    Socket(AddressFamily),
}

/// The descriptors before a device is opened.
pub(super) struct OpenFiles {
    kind: Kind,
    open: Descriptors,
}

/// Descriptors and what they are, as the kernel names it. The number alone may have been given
/// again.
type Descriptors = BTreeSet<(i32, PathBuf)>;

impl OpenFiles {
    /// Returns the descriptors that are open now, if the driver of a device will open some for its
    /// queues.
    pub(super) fn before(device: &str) -> Option<Self> {
        let kinds = [
            ("net_tap", Kind::Tap),
            ("net_af_packet", Kind::Socket(AddressFamily::PACKET)),
            ("net_af_xdp", Kind::Socket(AddressFamily::XDP)),
        ];
        let (_, kind) = kinds.into_iter().find(|(driver, _)| device.starts_with(driver))?;
        Some(OpenFiles { kind, open: open_descriptors() })
    }

    /// Returns a descriptor for each of the device's queues, in their order. All of them, or none.
    pub(super) fn find_new(&self, queues: usize) -> Option<Vec<OwnedFd>> {
        let now = open_descriptors();
        // Collected before any is duplicated: a duplicate has the number of a descriptor that was
        // listed and is closed.
        let new: Vec<i32> =
            now.difference(&self.open).filter_map(|file| self.number_if_of_kind(file)).collect();
        let process = pidfd_open(getpid(), PidfdFlags::empty()).ok()?;
        let duplicates =
            new.iter().filter_map(|number| pidfd_getfd(&process, *number, PidfdGetfdFlags::empty()).ok());
        let mut found: Vec<OwnedFd> =
            duplicates.filter(|found| self.is_of_queue(found) && is_usable(found)).collect();
        if self.kind == Kind::Tap {
            // The driver duplicates the file of a queue for sending, and a tap device has one
            // queue.
            found.truncate(1);
        }
        (found.len() == queues).then_some(found)
    }

    fn number_if_of_kind(&self, (number, target): &(i32, PathBuf)) -> Option<i32> {
        let is_of_kind = match self.kind {
            Kind::Tap => target == Path::new(TUN),
            Kind::Socket(_) => target.to_string_lossy().starts_with("socket:"),
        };
        is_of_kind.then_some(*number)
    }

    /// The tap driver keeps a descriptor that is attached to no queue: no frame makes it readable.
    fn is_of_queue(&self, found: &OwnedFd) -> bool {
        match self.kind {
            Kind::Tap => tap::is_attached(found) == Ok(true),
            Kind::Socket(family) => socket_domain(found).is_ok_and(|domain| domain == family),
        }
    }
}

/// Returns whether a descriptor can be waited for.
fn is_usable(found: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(found, PollFlags::IN)];
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    let polled = poll(&mut fds, Some(&now));
    polled.is_ok() && !fds[0].revents().intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL)
}

fn open_descriptors() -> Descriptors {
    let Ok(entries) = std::fs::read_dir(DESCRIPTORS) else { return Descriptors::new() };
    let descriptor = |entry: DirEntry| {
        let number = entry.file_name().to_str()?.parse().ok()?;
        Some((number, std::fs::read_link(entry.path()).ok()?))
    };
    entries.flatten().filter_map(descriptor).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn before(kind: Kind) -> OpenFiles {
        OpenFiles { kind, open: open_descriptors() }
    }

    /// UDP sockets stand for those of a device: no privilege is needed to open one.
    #[test]
    fn sockets_that_were_opened_meanwhile_are_found_by_their_family() {
        let old = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let (inet, packet) =
            (before(Kind::Socket(AddressFamily::INET)), before(Kind::Socket(AddressFamily::PACKET)));
        let new = [0, 1].map(|_| std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket"));
        let found = inet.find_new(2).expect("not the one that was open before");
        let ports = |all: &[std::net::UdpSocket]| {
            all.iter().map(|one| one.local_addr().expect("bound").port()).collect::<Vec<_>>()
        };
        let found: Vec<_> = found.into_iter().map(std::net::UdpSocket::from).collect();
        assert_eq!(ports(&found), ports(&new));
        assert!(inet.find_new(1).is_none(), "another number than the device has queues");
        assert!(packet.find_new(2).is_none());
        drop(old);
    }

    #[test]
    fn a_descriptor_whose_other_end_is_closed_cannot_be_waited_for() {
        let (ours, peer) = std::os::unix::net::UnixStream::pair().expect("sockets");
        let ours = OwnedFd::from(ours);
        assert!(is_usable(&ours));
        drop(peer);
        assert!(!is_usable(&ours));
    }
}
