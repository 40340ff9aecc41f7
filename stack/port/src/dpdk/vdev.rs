//! Virtual devices in the EAL's syntax.
//!
//! Each constructor takes the values that its driver needs, checks them, and names the device by
//! kind and index, such as `net_tap0`. [`DpdkPort::open`](super::DpdkPort::open) finds it by that
//! name.

use core::fmt;
use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::path::Path;

use super::DpdkError;

/// A virtual device: its name and its arguments.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Vdev {
    name: String,
    arguments: String,
    pub(super) buffers: Buffers,
}

/// What a device's arguments determine about buffers and its driver does not report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Buffers {
    /// The longest frame that fits its own buffers.
    pub frame_bytes_max: u32,
    /// The size of an mbuf that the driver accepts.
    pub room_bytes_min: u32,
    /// Whether it receives super-segments.
    pub super_segments: bool,
}

impl Buffers {
    const UNKNOWN: Buffers = Buffers { frame_bytes_max: u32::MAX, room_bytes_min: 0, super_segments: false };
}

/// The longest path of a Unix socket address, without its closing NUL.
const SOCKET_PATH_BYTES_MAX: usize = 107;
/// The longest name of a kernel interface.
const INTERFACE_BYTES_MAX: usize = 15;
/// The kernel's overhead for each frame in a packet socket's ring: header, address, alignment.
const PACKET_PLACE_OVERHEAD_BYTES: u32 = 80;
/// The part of it that the driver subtracts before it compares a slot with an mbuf.
const PACKET_HEADER_BYTES: u32 = 32;
/// A slot of such a ring, unless `framesz` says another size.
const PACKET_PLACE_BYTES: u32 = 2048;
/// A shared buffer of memif, unless `bsize` says another size.
const MEMIF_BUFFER_BYTES: u32 = 2048;
/// The longest device name, without its closing NUL.
const DEVICE_BYTES_MAX: usize = dpdk_sys::DSYS_ETH_NAME_MAX_LEN as usize - 1;

impl Vdev {
    /// Returns `net_ring<index>`: sent frames come back.
    pub fn ring(index: u16) -> Self {
        Self::named("net_ring", index, String::new())
    }

    /// Returns `net_null<index>`: drops sent frames, and delivers empty frames at once.
    pub fn null(index: u16) -> Self {
        Self::named("net_null", index, String::new())
    }

    /// Returns `net_af_xdp<index>`: an XDP socket on an existing interface. Frames of at most a
    /// page, so no jumbo frames.
    ///
    /// # Errors
    /// [`DpdkError::Setting`] for a name that the kernel would refuse.
    pub fn af_xdp(index: u16, interface: &str) -> Result<Self, DpdkError> {
        interface_name("af_xdp.interface", interface)?;
        Ok(Self::named("net_af_xdp", index, format!("iface={interface}")))
    }

    /// Returns `net_vhost<index>`: the virtio card of a virtual machine, whose monitor connects to
    /// the socket of this device. `super_segments`: the machine may send them.
    ///
    /// # Errors
    /// [`DpdkError::Setting`] for a socket path that the driver would refuse.
    pub fn vhost(index: u16, socket: &Path, super_segments: bool) -> Result<Self, DpdkError> {
        let path = socket.to_str().unwrap_or_default();
        let allowed = "a path of 1 to 107 bytes of UTF-8 without a comma";
        let fits = (1..=SOCKET_PATH_BYTES_MAX).contains(&path.len()) && is_one_argument(path);
        require(fits, "vhost.socket", socket.display(), allowed)?;
        let tso = if super_segments { ",tso=1" } else { "" };
        Self::parse(&format!("net_vhost{index},iface={path},queues=1{tso}"))
    }

    /// Returns the same device with a number of queues, if its arguments contain it: XDP sockets
    /// take one of their interface's queues each, from the first on. Other devices get the number
    /// when they are opened.
    #[must_use]
    pub fn with_queues(mut self, queues: u16) -> Self {
        if self.name.starts_with("net_vhost") {
            self.arguments = self.arguments.replace("queues=1", &format!("queues={queues}"));
        } else if self.name.starts_with("net_af_xdp") && queues > 1 {
            self.arguments.push_str(&format!(",start_queue=0,queue_count={queues}"));
        }
        self
    }

    /// Returns any other device, as on a DPDK command line:
    /// `net_memif0,role=client,socket=/run/a.sock`.
    ///
    /// # Errors
    /// [`DpdkError::Setting`] if it does not begin with a name of letters, digits and underscores.
    pub fn parse(text: &str) -> Result<Self, DpdkError> {
        let (name, arguments) = text.split_once(',').unwrap_or((text, ""));
        let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        let ok = plain && (1..=DEVICE_BYTES_MAX).contains(&name.len()) && !text.contains('\0');
        require(
            ok,
            "vdev",
            text,
            "a device name of letters, digits and underscores, then `,key=value` pairs",
        )?;
        let mut vdev = Vdev { name: name.into(), arguments: arguments.into(), buffers: Buffers::UNKNOWN };
        let number = |key| vdev.argument(key).and_then(|bytes| bytes.parse::<u32>().ok());
        if name.starts_with("net_memif") {
            vdev.buffers.frame_bytes_max = number("bsize=").unwrap_or(MEMIF_BUFFER_BYTES);
        } else if name.starts_with("net_af_packet") {
            let place_bytes = number("framesz=").unwrap_or(PACKET_PLACE_BYTES);
            vdev.buffers = Buffers {
                frame_bytes_max: place_bytes.saturating_sub(PACKET_PLACE_OVERHEAD_BYTES),
                room_bytes_min: place_bytes.saturating_sub(PACKET_HEADER_BYTES),
                super_segments: false,
            };
        } else if name.starts_with("net_vhost") {
            vdev.buffers.super_segments = vdev.argument("tso=") == Some("1");
        }
        Ok(vdev)
    }

    /// Removes the socket of a dead server, which would stop the next one from starting. A socket
    /// with a listener stays, and the driver reports the error.
    pub(super) fn clear_stale_socket(&self) {
        let serves = self.argument("role=").is_some_and(|role| role == "server" || role == "master");
        let socket = match self.name.as_str() {
            name if name.starts_with("net_memif") && serves => self.argument("socket="),
            name if name.starts_with("net_vhost") => self.argument("iface="),
            _ => None,
        };
        let Some(socket) = socket else { return };
        // A listener, even one of another socket type, gives a different error.
        if UnixStream::connect(socket).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused) {
            let _ = std::fs::remove_file(socket);
        }
    }

    /// Returns the value of an argument.
    fn argument(&self, key: &str) -> Option<&str> {
        self.arguments.split(',').find_map(|argument| argument.strip_prefix(key))
    }

    /// Returns the name of the device.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the arguments after the name and its comma.
    pub fn arguments(&self) -> &str {
        &self.arguments
    }

    fn named(kind: &str, index: u16, arguments: String) -> Self {
        Vdev { name: format!("{kind}{index}"), arguments, buffers: Buffers::UNKNOWN }
    }
}

impl fmt::Display for Vdev {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        if self.arguments.is_empty() { Ok(()) } else { write!(f, ",{}", self.arguments) }
    }
}

/// Returns whether DPDK's `key=value,key=value` parser takes the text as one value.
fn is_one_argument(text: &str) -> bool {
    !text.contains([',', '\0', '[', ']'])
}

fn interface_name(key: &'static str, name: &str) -> Result<(), DpdkError> {
    let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    let fits = (1..=INTERFACE_BYTES_MAX).contains(&name.len());
    require(plain && fits, key, name, "an interface name of 1 to 15 letters, digits, '-', '_' or '.'")
}

pub(super) fn require(
    ok: bool,
    key: &'static str,
    value: impl fmt::Display,
    allowed: &'static str,
) -> Result<(), DpdkError> {
    if ok { Ok(()) } else { Err(DpdkError::Setting { key, value: value.to_string(), allowed }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_spelled_as_its_driver_reads_it() {
        assert_eq!(Vdev::ring(0).to_string(), "net_ring0");
        assert_eq!(
            Vdev::vhost(2, Path::new("/run/v.sock"), false).unwrap().to_string(),
            "net_vhost2,iface=/run/v.sock,queues=1"
        );
        let merges = |on| Vdev::vhost(2, Path::new("/v"), on).unwrap();
        assert_eq!(merges(true).to_string(), "net_vhost2,iface=/v,queues=1,tso=1");
        assert!(merges(true).buffers.super_segments && !merges(false).buffers.super_segments);
        let vhost = Vdev::parse("net_vhost0,iface=/run/v.sock").unwrap();
        assert_eq!((vhost.name(), vhost.arguments()), ("net_vhost0", "iface=/run/v.sock"));
    }

    #[test]
    fn a_frame_that_exceeds_a_buffer_of_the_driver_is_known_before_it_is_sent() {
        let most = |text| Vdev::parse(text).unwrap().buffers.frame_bytes_max;
        assert_eq!(most("net_memif0,role=client,bsize=10240,rsize=10"), 10_240);
        assert_eq!(most("net_memif0,role=client"), 2048);
        assert_eq!(most("net_af_packet0,iface=veth1,framesz=12288,blocksz=12288"), 12_208);
        assert_eq!(most("net_af_packet0,iface=veth1"), 1968);
        assert_eq!(most("net_null0"), u32::MAX);
    }

    #[test]
    fn sockets_are_told_how_many_queues_there_shall_be() {
        let many = |made: Result<Vdev, DpdkError>| made.unwrap().with_queues(4).to_string();
        assert_eq!(many(Vdev::af_xdp(0, "veth1")), "net_af_xdp0,iface=veth1,start_queue=0,queue_count=4");
        assert_eq!(many(Vdev::parse("net_tap0,iface=dtap0")), "net_tap0,iface=dtap0");
        assert!(many(Vdev::vhost(0, Path::new("/v"), true)).ends_with(",queues=4,tso=1"));
    }

    #[test]
    fn a_value_that_would_change_the_meaning_of_the_line_is_refused_by_name() {
        let refused = |made: Result<Vdev, DpdkError>| match made {
            Err(DpdkError::Setting { key, .. }) => key,
            other => panic!("{other:?}"),
        };
        assert_eq!(refused(Vdev::af_xdp(0, "a,start_queue=1")), "af_xdp.interface");
        assert_eq!(refused(Vdev::af_xdp(0, "")), "af_xdp.interface");
        assert_eq!(refused(Vdev::af_xdp(0, "sixteen-byte-nam")), "af_xdp.interface");
        assert_eq!(refused(Vdev::af_xdp(0, "veth 0")), "af_xdp.interface");
        assert_eq!(refused(Vdev::vhost(0, Path::new("/run/a,client=1"), false)), "vhost.socket");
        assert_eq!(refused(Vdev::parse("net null0")), "vdev");
    }

    #[test]
    fn only_a_socket_that_nobody_listens_on_is_cleared() {
        let folder = std::env::temp_dir().join(format!("ironwarp-memif-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("memif.sock");
        let memif =
            |role| Vdev::parse(&format!("net_memif0,role={role},socket={},id=0", path.display())).unwrap();
        memif("server").clear_stale_socket();
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        memif("server").clear_stale_socket();
        assert!(path.exists(), "somebody listens");
        drop(listener);
        memif("client").clear_stale_socket();
        assert!(path.exists(), "it is the server's");
        memif("server").clear_stale_socket();
        assert!(!path.exists(), "its server is gone");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        Vdev::vhost(0, &path, false).unwrap().clear_stale_socket();
        assert!(!path.exists());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
