//! A capture that several ports may write to.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ironwarp_types::Nanos;

use super::pcapng::{Packet, PcapngWriter};

/// A pcapng file being written; clones write to the same one. What is buffered reaches the file when the last clone
/// is dropped, or with [`Capture::flush`].
#[derive(Clone)]
pub struct Capture {
    file: Arc<Mutex<Open>>,
}

/// Where a capture ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CaptureLimits {
    /// Bytes kept of each frame.
    pub snap_bytes: u32,
    /// Bytes of the whole capture; a frame that would exceed them stops it.
    pub capture_bytes: u64,
}

impl Default for CaptureLimits {
    /// Whole frames, and a gigabyte: seconds of traffic at full speed, more than Wireshark likes to open.
    fn default() -> Self {
        CaptureLimits { snap_bytes: 262_144, capture_bytes: 1 << 30 }
    }
}

/// Which way a frame went, seen from the stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// To the stack.
    Inbound,
    /// From the stack.
    Outbound,
}

impl Capture {
    /// Creates a file, or empties the one that is there. Fails if it cannot be written.
    pub fn create(path: &Path, limits: CaptureLimits) -> io::Result<Capture> {
        Capture::to(BufWriter::with_capacity(BUFFER_BYTES, File::create(path)?), limits)
    }

    /// Writes to anything. Fails if the header cannot be written.
    pub fn to(out: impl Write + Send + 'static, limits: CaptureLimits) -> io::Result<Capture> {
        let out: Box<dyn Write + Send> = Box::new(out);
        let open = Open { writer: Some(PcapngWriter::new(out)?), limits };
        Ok(Capture { file: Arc::new(Mutex::new(open)) })
    }

    /// Adds an interface, one a port. Fails if the capture cannot be written, or has stopped.
    pub fn interface(&self, name: &str) -> io::Result<CaptureInterface> {
        let mut open = self.lock();
        let snap_bytes = open.limits.snap_bytes;
        let id = open.write(|writer| writer.add_interface(name, snap_bytes))?;
        Ok(CaptureInterface { capture: self.clone(), id })
    }

    /// Hands what is buffered to the file. Fails if it cannot be written.
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

/// One port's name in a capture; clones are the same interface.
#[derive(Clone)]
pub struct CaptureInterface {
    capture: Capture,
    id: u32,
}

impl CaptureInterface {
    /// Writes one frame, from its link header on. Fails if it cannot be written or would exceed the limit; the
    /// capture has then stopped for good.
    pub fn record(&self, at: Nanos, direction: Direction, frame: &[u8]) -> io::Result<()> {
        self.record_all(at, direction, core::iter::once(frame)).1
    }

    /// Writes frames that came together. Answers how many were written, and what stopped the rest.
    pub(super) fn record_all<'a>(
        &self,
        at: Nanos,
        direction: Direction,
        frames: impl Iterator<Item = &'a [u8]>,
    ) -> (u64, io::Result<()>) {
        let flags = match direction {
            Direction::Inbound => 1,
            Direction::Outbound => 2,
        };
        let mut open = self.capture.lock();
        let snap_bytes = open.limits.snap_bytes;
        let mut written = 0;
        for frame in frames {
            let packet = Packet { interface: self.id, at_ns: at.0, flags, frame, snap_bytes };
            if let Err(error) = open.packet(&packet) {
                return (written, Err(error));
            }
            written += 1;
        }
        (written, Ok(()))
    }

    /// Hands what is buffered to the file.
    pub(super) fn flush(&self) -> io::Result<()> {
        self.capture.flush()
    }

    pub(super) fn is_same(&self, other: &CaptureInterface) -> bool {
        self.id == other.id && Arc::ptr_eq(&self.capture.file, &other.capture.file)
    }
}

/// The file, until it is full or fails.
struct Open {
    writer: Option<PcapngWriter<Box<dyn Write + Send>>>,
    limits: CaptureLimits,
}

impl Open {
    fn packet(&mut self, packet: &Packet<'_>) -> io::Result<()> {
        let written = self.writer.as_ref().map_or(0, PcapngWriter::written_bytes);
        let kept = packet.frame.len().min(packet.snap_bytes as usize) as u64;
        if written + kept > self.limits.capture_bytes {
            // What is complete stays readable.
            let flushed = self.write(PcapngWriter::flush);
            self.writer = None;
            return flushed.and(Err(io::ErrorKind::FileTooLarge.into()));
        }
        self.write(|writer| writer.packet(packet))
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

/// One system call for about forty full frames.
const BUFFER_BYTES: usize = 64 * 1024;
