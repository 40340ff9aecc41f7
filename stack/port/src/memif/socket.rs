//! The Unix socket of a memif: messages of one datagram each, with passed descriptors. No call
//! blocks.
//!
//! A path that begins with `@` is an abstract name. Otherwise the server creates the socket's file
//! with mode 0600, replaces the file of a server that is gone, and removes its own file at the end.
#![forbid(unsafe_code)]

use core::mem::MaybeUninit;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, fchmod};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect,
    listen, recvmsg, sendmsg, socket_with,
};

use super::MemifError;
use super::wire::{MESSAGE_BYTES, Message};

/// Peers that may wait to be accepted.
const BACKLOG: i32 = 4;

/// The socket of a server.
pub(super) struct Listener {
    socket: OwnedFd,
    /// The file and its number, to remove no other server's.
    file: Option<(PathBuf, u64)>,
}

impl Listener {
    /// Creates the socket at `path`.
    ///
    /// # Errors
    /// [`MemifError::InUse`] if another process listens there, [`MemifError::Socket`] for what the
    /// system reports.
    pub(super) fn bind(path: &Path) -> Result<Self, MemifError> {
        let failed = |source: Errno| MemifError::Socket { path: path.into(), source: source.into() };
        let (addr, is_file) = address(path).map_err(failed)?;
        let socket = new_socket().map_err(failed)?;
        if is_file {
            clear_stale(path, &addr)?;
            // The file gets the mode of the socket, so it is never open to others.
            fchmod(&socket, Mode::RUSR | Mode::WUSR).map_err(failed)?;
        }
        bind(&socket, &addr).map_err(|error| match error {
            Errno::ADDRINUSE => MemifError::InUse(path.into()),
            error => failed(error),
        })?;
        let number = std::fs::symlink_metadata(path).map(|file| file.ino()).ok().filter(|_| is_file);
        let listener = Listener { socket, file: number.map(|number| (path.into(), number)) };
        listen(&listener.socket, BACKLOG).map_err(failed)?;
        Ok(listener)
    }

    /// Returns the next peer that waits.
    ///
    /// # Errors
    /// What the system reports; one that waits still does so, and the socket stays readable.
    pub(super) fn accept(&self) -> Result<Option<Channel>, Errno> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        match accept_with(&self.socket, flags) {
            Ok(socket) => Ok(Some(Channel { socket })),
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some((path, number)) = &self.file
            && std::fs::symlink_metadata(path).is_ok_and(|file| file.ino() == *number)
        {
            // Nothing is left to do if it fails: the next server replaces the file.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Returns the socket's address, and whether it is a file.
fn address(path: &Path) -> Result<(SocketAddrUnix, bool), Errno> {
    match path.as_os_str().as_bytes().strip_prefix(b"@") {
        Some(name) => Ok((SocketAddrUnix::new_abstract_name(name)?, false)),
        None => Ok((SocketAddrUnix::new(path)?, true)),
    }
}

fn new_socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

/// Removes the socket of a server that is gone. A file of another kind stays, and then `bind`
/// fails.
fn clear_stale(path: &Path, addr: &SocketAddrUnix) -> Result<(), MemifError> {
    let failed = |source: io::Error| MemifError::Socket { path: path.into(), source };
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    if !is_socket {
        return Ok(());
    }
    match new_socket().and_then(|socket| connect(&socket, addr)) {
        Err(Errno::CONNREFUSED) => std::fs::remove_file(path).map_err(failed),
        Err(Errno::NOENT) => Ok(()),
        // A listener, even one of another socket type or with a full queue.
        _ => Err(MemifError::InUse(path.into())),
    }
}

/// A connected socket.
pub(super) struct Channel {
    socket: OwnedFd,
}

/// What a socket has.
pub(super) enum Received {
    /// Nothing at the moment.
    Nothing,
    /// The peer has closed it, or is gone.
    Closed,
    /// What is no message.
    Malformed,
    /// A message, and the first descriptor that came with it.
    Message(Message, Option<OwnedFd>),
}

impl Channel {
    /// Connects to a server. `None`: none listens, or its queue is full.
    pub(super) fn connect(path: &Path) -> Option<Self> {
        let (addr, _) = address(path).ok()?;
        let socket = new_socket().ok()?;
        connect(&socket, &addr).ok().map(|()| Channel { socket })
    }

    /// Returns the number of the user that has connected. `None`: the system does not say.
    pub(super) fn peer_user(&self) -> Option<u32> {
        rustix::net::sockopt::socket_peercred(&self.socket).ok().map(|peer| peer.uid.as_raw())
    }

    /// Sends a message. Returns `false` if the peer is gone, or does not read.
    pub(super) fn send(&self, message: &Message, name: &str, fd: Option<BorrowedFd<'_>>) -> bool {
        let bytes = message.encode(name);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds = fd.map(|fd| [fd]);
        if let Some(fds) = &fds
            && !control.push(SendAncillaryMessage::ScmRights(fds))
        {
            return false;
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        sendmsg(self.socket.as_fd(), &[IoSlice::new(&bytes)], &mut control, flags) == Ok(MESSAGE_BYTES)
    }

    /// Returns two connected sockets.
    #[cfg(any(test, fuzzing))]
    pub(super) fn pair() -> (Self, Self) {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let pair = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let (one, other) = pair.expect("two descriptors");
        (Channel { socket: one }, Channel { socket: other })
    }

    /// Sends what may be no message. Returns `false` if the peer is gone, or does not read.
    #[cfg(any(test, fuzzing))]
    pub(super) fn try_send_raw(&self, bytes: &[u8]) -> bool {
        rustix::net::send(&self.socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) == Ok(bytes.len())
    }

    /// Receives a message. Descriptors beyond the first are closed.
    pub(super) fn receive(&self) -> Received {
        // One byte more than a message, so that a longer datagram is noticed.
        let mut bytes = [0; MESSAGE_BYTES + 1];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let got = match recvmsg(self.socket.as_fd(), &mut [IoSliceMut::new(&mut bytes)], &mut control, flags)
        {
            Ok(got) if got.bytes > 0 => got.bytes,
            Err(Errno::AGAIN | Errno::INTR) => return Received::Nothing,
            Ok(_) | Err(_) => return Received::Closed,
        };
        let fds = control.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => Some(fds),
            _ => None,
        });
        let fd = fds.flatten().next();
        match bytes.get(..got).and_then(Message::decode) {
            Some(message) => Received::Message(message, fd),
            None => Received::Malformed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_servers_file_is_private_and_a_stale_one_is_replaced() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("m.sock");
        let listener = Listener::bind(&path).expect("a free path");
        let mode = std::fs::metadata(&path).expect("the socket").mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(matches!(Listener::bind(&path), Err(MemifError::InUse(_))), "a live server stays");
        // A killed server leaves its file.
        let kept = folder.path().join("kept");
        std::fs::hard_link(&path, &kept).expect("a link");
        drop(listener);
        assert!(!path.exists());
        let listener = Listener::bind(&kept).expect("a stale socket");
        drop(listener);
        std::fs::write(&path, "x").expect("a file");
        assert!(Listener::bind(&path).is_err());
        assert_eq!(std::fs::read(&path).expect("the file"), b"x", "a file of another kind stays");
        assert!(matches!(Listener::bind(&folder.path().join("no/m.sock")), Err(MemifError::Socket { .. })));
    }

    #[test]
    fn messages_and_descriptors_cross_an_abstract_socket() {
        let name = PathBuf::from(format!("@ironwarp-test-{}", std::process::id()));
        let listener = Listener::bind(&name).expect("a free name");
        assert!(matches!(listener.accept(), Ok(None)));
        let client = Channel::connect(&name).expect("a listener");
        let server = listener.accept().expect("descriptors").expect("a peer");
        assert!(matches!(server.receive(), Received::Nothing));
        let file = std::fs::File::open("/dev/null").expect("a file");
        assert!(client.send(&Message::Connect, "x", Some(file.as_fd())));
        assert!(matches!(server.receive(), Received::Message(Message::Connect, Some(_))));
        assert_eq!(rustix::net::send(&client.socket, &[0; 129], SendFlags::empty()), Ok(129));
        assert!(matches!(server.receive(), Received::Malformed));
        drop(client);
        assert!(matches!(server.receive(), Received::Closed));
        assert!(!server.send(&Message::Ack, "", None));
        assert!(Channel::connect(Path::new("/nowhere/m.sock")).is_none());
    }
}
