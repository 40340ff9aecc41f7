//! A capture that several ports may write to.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ironwarp_types::Nanos;
use rustix::fs::OFlags;

use super::background::{BackgroundWriter, Backlog};
use super::pcapng::{Packet, PcapngWriter};

/// A pcapng file that is being written; clones write to the same one. Buffered data reaches the file when the last
/// clone is dropped, or with [`Capture::flush`].
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
    /// Returns the defaults: whole frames, and a gigabyte, which is seconds of traffic at full speed.
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

impl Capture {
    /// Creates or truncates a file, which only its owner may read: it holds the peers' data. A thread writes it, so
    /// recording never waits; while the disk is too slow, frames are omitted and counted. Fails if the file cannot be
    /// created, or is a symbolic link.
    pub fn create(path: &Path, limits: CaptureLimits) -> io::Result<Capture> {
        let mut options = File::options();
        options
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .custom_flags(OFlags::NOFOLLOW.bits() as i32);
        Capture::aside(options.open(path)?, limits)
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

    /// Adds an interface, one for each port. Fails if the capture cannot be written, or has stopped.
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
    /// Writes one frame, from its link header on. Fails if it cannot be written or would exceed the limit; the
    /// capture has then stopped for good.
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
