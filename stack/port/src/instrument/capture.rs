//! A capture that several ports may write to.

use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ironwarp_types::Nanos;
use rustix::fs::OFlags;

use super::background::{BackgroundWriter, Backlog};
use super::pcapng::{Packet, PcapngWriter};

/// A pcapng file that is being written; clones write to the same one. Buffered data reaches the
/// file when the last clone is dropped, or with [`Capture::flush`].
#[derive(Clone)]
pub struct Capture {
    file: Arc<Mutex<Open>>,
}

/// The limits of a capture.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CaptureLimits {
    /// Bytes recorded of each frame.
    pub snap_bytes: u32,
    /// Bytes of the whole capture; a frame that would exceed them stops it.
    pub capture_bytes: u64,
}

impl Default for CaptureLimits {
    /// Returns the defaults: whole frames, and a gigabyte, which is seconds of traffic at full
    /// speed.
    fn default() -> Self {
        CaptureLimits { snap_bytes: 262_144, capture_bytes: 1 << 30 }
    }
}

/// The direction of a frame, seen from the stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// To the stack.
    Inbound,
    /// From the stack.
    Outbound,
}

const OWNER_ONLY: u32 = 0o600;

/// Creates a file that only its owner may read, or empties one that is this user's, or root's.
fn create_own(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    // A FIFO without a reader is an error, not a wait.
    options.write(true).mode(OWNER_ONLY).custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32);
    match options.clone().create_new(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        outcome => return outcome,
    }
    let file = options.open(path)?;
    let found = file.metadata()?;
    check_owner(found.uid(), rustix::process::geteuid().as_raw())?;
    if found.is_file() {
        file.set_len(0)?;
        file.set_permissions(Permissions::from_mode(OWNER_ONLY))?;
    }
    Ok(file)
}

/// Checks the owner of a file that exists already.
fn check_owner(owner: u32, this_user: u32) -> io::Result<()> {
    if owner == this_user || owner == 0 {
        return Ok(());
    }
    let text = format!("the file exists and belongs to user {owner}: remove it, or name another");
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}

impl Capture {
    /// Creates or truncates a file, which only its owner may read: it holds the peers' data. A
    /// thread writes it, so recording never waits; while the disk is too slow, frames are omitted
    /// and counted. Fails if the file cannot be created, is a symbolic link, or belongs to another
    /// user: in a folder that users share, one of them may have made it to read what is recorded,
    /// or to have it overwritten.
    pub fn create(path: &Path, limits: CaptureLimits) -> io::Result<Capture> {
        Capture::aside(create_own(path)?, limits)
    }

    /// Writes to `out` on its own thread.
    pub(super) fn aside(out: impl Write + Send + 'static, limits: CaptureLimits) -> io::Result<Capture> {
        let (background, backlog) = BackgroundWriter::over(out)?;
        Capture::opened(Box::new(background), Some(backlog), limits)
    }

    /// Writes to `out` directly. Fails if the header cannot be written.
    pub fn to(out: impl Write + Send + 'static, limits: CaptureLimits) -> io::Result<Capture> {
        Capture::opened(Box::new(out), None, limits)
    }

    fn opened(
        out: Box<dyn Write + Send>,
        backlog: Option<Arc<Backlog>>,
        limits: CaptureLimits,
    ) -> io::Result<Capture> {
        let open = Open { writer: Some(PcapngWriter::new(out)?), backlog, limits };
        Ok(Capture { file: Arc::new(Mutex::new(open)) })
    }

    /// Adds an interface, one for each port. Fails if the capture cannot be written, or has
    /// stopped.
    pub fn interface(&self, name: &str) -> io::Result<CaptureInterface> {
        let mut open = self.lock();
        let snap_bytes = open.limits.snap_bytes;
        let id = open.write(|writer| writer.add_interface(name, snap_bytes))?;
        Ok(CaptureInterface { capture: self.clone(), id })
    }

    /// Flushes buffered data to the file. Fails if it cannot be written.
    pub fn flush(&self) -> io::Result<()> {
        let mut open = self.lock();
        match open.writer {
            Some(_) => open.write(PcapngWriter::flush),
            None => Ok(()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One port's interface in a capture; clones are the same interface.
#[derive(Clone)]
pub struct CaptureInterface {
    capture: Capture,
    id: u32,
}

impl CaptureInterface {
    /// Writes one frame, from its link header on. Fails if it cannot be written or would exceed the
    /// limit; the capture has then ended.
    pub fn record(&self, at: Nanos, direction: Direction, frame: &[u8]) -> io::Result<()> {
        self.record_all(at, direction, core::iter::once(frame)).outcome
    }

    /// Writes frames of one burst.
    pub(super) fn record_all<'a>(
        &self,
        at: Nanos,
        direction: Direction,
        frames: impl Iterator<Item = &'a [u8]>,
    ) -> Recorded {
        let flags = match direction {
            Direction::Inbound => 1,
            Direction::Outbound => 2,
        };
        let mut open = self.capture.lock();
        let snap_bytes = open.limits.snap_bytes;
        let mut recorded = Recorded { written: 0, lost: 0, outcome: Ok(()) };
        for frame in frames {
            let packet = Packet { interface: self.id, at_ns: at.0, flags, frame, snap_bytes };
            match open.packet(&packet) {
                Ok(true) => recorded.written += 1,
                Ok(false) => recorded.lost += 1,
                Err(error) => return Recorded { outcome: Err(error), ..recorded },
            }
        }
        recorded
    }

    /// Flushes buffered data to the file.
    pub(super) fn flush(&self) -> io::Result<()> {
        self.capture.flush()
    }

    pub(super) fn is_same(&self, other: &CaptureInterface) -> bool {
        self.id == other.id && Arc::ptr_eq(&self.capture.file, &other.capture.file)
    }
}

/// The results of recording a burst.
pub(super) struct Recorded {
    /// Frames written.
    pub(super) written: u64,
    /// Frames omitted because the disk is too slow.
    pub(super) lost: u64,
    /// The error that stopped the rest.
    pub(super) outcome: io::Result<()>,
}

/// The file, until it is full or fails.
struct Open {
    writer: Option<PcapngWriter<Box<dyn Write + Send>>>,
    /// The backlog of the writing thread.
    backlog: Option<Arc<Backlog>>,
    limits: CaptureLimits,
}

impl Open {
    /// Writes a frame. Returns whether there was room for it.
    fn packet(&mut self, packet: &Packet<'_>) -> io::Result<bool> {
        let written = self.writer.as_ref().map_or(0, PcapngWriter::written_bytes);
        let kept = packet.frame.len().min(packet.snap_bytes as usize) as u64;
        if written + kept > self.limits.capture_bytes {
            // Complete data stays readable; a writing thread flushes by itself.
            let flushed = if self.backlog.is_some() { Ok(()) } else { self.write(PcapngWriter::flush) };
            self.writer = None;
            return flushed.and(Err(io::ErrorKind::FileTooLarge.into()));
        }
        if self.backlog.as_ref().is_some_and(|backlog| backlog.is_full()) {
            return Ok(false);
        }
        self.write(|writer| writer.packet(packet)).map(|()| true)
    }

    /// After a failure nothing more is written: the file may end within a block.
    fn write<T>(
        &mut self,
        write: impl FnOnce(&mut PcapngWriter<Box<dyn Write + Send>>) -> io::Result<T>,
    ) -> io::Result<T> {
        let Some(writer) = &mut self.writer else { return Err(io::ErrorKind::BrokenPipe.into()) };
        let outcome = write(writer);
        if outcome.is_err() {
            self.writer = None;
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_another_user_is_neither_emptied_nor_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("capture.pcapng");
        std::fs::write(&path, b"theirs").expect("written");
        std::fs::set_permissions(&path, Permissions::from_mode(0o666)).expect("set");
        assert!(check_owner(1000, 1000).is_ok() && check_owner(0, 1000).is_ok());
        for (owner, this_user) in [(1000, 0), (1000, 1001)] {
            assert_eq!(
                check_owner(owner, this_user).expect_err("theirs").kind(),
                io::ErrorKind::PermissionDenied
            );
        }
        let theirs = rustix::fs::Uid::from_raw(1);
        if rustix::fs::chown(&path, Some(theirs), None).is_ok() {
            assert!(create_own(&path).is_err());
            assert_eq!(std::fs::read(&path).expect("read"), b"theirs");
            rustix::fs::chown(&path, Some(rustix::process::geteuid()), None).expect("changed");
        }
        // One of this user is emptied, and is for its owner alone from now on.
        drop(create_own(&path).expect("ours"));
        let found = std::fs::metadata(&path).expect("a file");
        assert_eq!((found.len(), found.permissions().mode() & 0o777), (0, OWNER_ONLY));
        assert!(create_own(Path::new("/dev/null")).is_ok());
    }
}
