//! A writer on its own thread: recording a frame never waits for a disk.
//!
//! Takes bytes and writes them to the file in order, in pieces of [`CHUNK_BYTES`]. Unwritten data
//! is limited to [`BACKLOG_BYTES`]; beyond that [`Backlog::is_full`] returns true and the recorder
//! omits frames. An error of the file is reported at a later write or flush. Dropping waits until
//! all is written.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;

/// One system call for about forty full frames.
const CHUNK_BYTES: usize = 64 * 1024;

/// A short pause of the disk loses nothing: this is a tenth of a second at 5 Gbit/s.
pub(super) const BACKLOG_BYTES: usize = 64 << 20;

/// Represents an error without a number.
const INPUT_OUTPUT: i32 = 5;

/// The amount of unwritten data, and the error of writing.
#[derive(Default)]
pub(super) struct Backlog {
    bytes: AtomicUsize,
    /// The system's error number; 0 for none.
    failed: AtomicI32,
}

impl Backlog {
    /// Returns whether the limit of unwritten data is reached.
    pub(super) fn is_full(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) >= BACKLOG_BYTES
    }

    fn outcome(&self) -> io::Result<()> {
        match self.failed.load(Ordering::Acquire) {
            0 => Ok(()),
            number => Err(io::Error::from_raw_os_error(number)),
        }
    }
}

/// The recorder's side.
pub(super) struct BackgroundWriter {
    chunk: Vec<u8>,
    orders: Option<Sender<Order>>,
    /// Written chunks, for reuse.
    spare: Receiver<Vec<u8>>,
    backlog: Arc<Backlog>,
    thread: Option<JoinHandle<()>>,
}

enum Order {
    Write(Vec<u8>),
    /// Reports when everything before it is in the file.
    Flush(Sender<()>),
}

impl BackgroundWriter {
    /// Starts the thread that writes to `out`. Fails if it cannot be started.
    pub(super) fn over(out: impl Write + Send + 'static) -> io::Result<(Self, Arc<Backlog>)> {
        let backlog = Arc::<Backlog>::default();
        let ((orders, taken), (back, spare)) = (mpsc::channel(), mpsc::channel());
        let state = backlog.clone();
        let name = std::thread::Builder::new().name("capture".into());
        let thread = name.spawn(move || write_all(out, &taken, &back, &state))?;
        let background = BackgroundWriter {
            chunk: Vec::with_capacity(CHUNK_BYTES),
            orders: Some(orders),
            spare,
            backlog: backlog.clone(),
            thread: Some(thread),
        };
        Ok((background, backlog))
    }

    fn send(&mut self) -> io::Result<()> {
        if self.chunk.is_empty() {
            return Ok(());
        }
        let next = self.spare.try_recv().unwrap_or_else(|_| Vec::with_capacity(CHUNK_BYTES));
        let full = core::mem::replace(&mut self.chunk, next);
        self.backlog.bytes.fetch_add(full.len(), Ordering::Relaxed);
        self.order(Order::Write(full))
    }

    fn order(&self, order: Order) -> io::Result<()> {
        let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
        self.orders.as_ref().ok_or_else(gone)?.send(order).map_err(|_| gone())
    }
}

impl Write for BackgroundWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.backlog.outcome()?;
        self.chunk.extend_from_slice(bytes);
        if self.chunk.len() >= CHUNK_BYTES {
            self.send()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.send()?;
        let (told, wait) = mpsc::channel();
        self.order(Order::Flush(told))?;
        wait.recv().map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        self.backlog.outcome()
    }
}

impl Drop for BackgroundWriter {
    fn drop(&mut self) {
        // A failure cannot be reported any more.
        let _ = self.send();
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The thread: writes until the recorder is gone. After a failure the rest is dropped.
fn write_all(mut out: impl Write, orders: &Receiver<Order>, back: &Sender<Vec<u8>>, backlog: &Backlog) {
    for order in orders {
        let outcome = match order {
            Order::Write(mut chunk) => {
                let outcome = if backlog.outcome().is_ok() { out.write_all(&chunk) } else { Ok(()) };
                backlog.bytes.fetch_sub(chunk.len(), Ordering::Relaxed);
                chunk.clear();
                let _ = back.send(chunk);
                outcome
            }
            Order::Flush(told) => {
                let outcome = out.flush();
                note(backlog, &outcome);
                let _ = told.send(());
                outcome
            }
        };
        note(backlog, &outcome);
    }
}

fn note(backlog: &Backlog, outcome: &io::Result<()>) {
    if let Err(error) = outcome {
        backlog.failed.store(error.raw_os_error().unwrap_or(INPUT_OUTPUT), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use ironwarp_types::Nanos;

    use super::*;
    use crate::instrument::{Capture, CaptureLimits, Direction};

    /// A disk that writes nothing until it is released, and then fails if asked to.
    struct Disk {
        gate: Receiver<()>,
        written: Sender<Vec<u8>>,
        fails: bool,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            // A dropped gate is open.
            let _ = self.gate.recv();
            if self.fails {
                return Err(io::Error::from_raw_os_error(28));
            }
            let _ = self.written.send(bytes.to_vec());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn disk(fails: bool) -> (Disk, Sender<()>, Receiver<Vec<u8>>) {
        let ((gate, wait), (written, read)) = (mpsc::channel(), mpsc::channel());
        (Disk { gate: wait, written, fails }, gate, read)
    }

    /// While the disk does not write, frames are recorded up to the limit, then omitted, and no
    /// thread waits. The recorded frames are complete in the end.
    #[test]
    fn a_disk_that_stands_still_costs_frames_and_no_time() {
        let (disk, gate, read) = disk(false);
        let capture = Capture::aside(disk, CaptureLimits::default()).expect("a thread");
        let interface = capture.interface("port0").expect("room");
        let frame = [7; 9000];
        let (mut written, mut lost) = (0_u64, 0_u64);
        while lost < 10 {
            let one = interface.record_all(Nanos(1), Direction::Inbound, core::iter::once(&frame[..]));
            one.outcome.expect("no failure");
            (written, lost) = (written + one.written, lost + one.lost);
        }
        assert!(written * 9000 <= (BACKLOG_BYTES + 2 * CHUNK_BYTES) as u64, "{written} frames wait");
        drop(gate);
        capture.flush().expect("written");
        let bytes: Vec<u8> = read.try_iter().flatten().collect();
        let whole = bytes.windows(4).filter(|four| *four == 6_u32.to_le_bytes()).count() as u64;
        assert!(whole >= written && bytes.len() as u64 >= written * 9044, "{whole} of {written}");
        let again = interface.record_all(Nanos(2), Direction::Outbound, core::iter::once(&frame[..]));
        assert_eq!((again.written, again.lost), (1, 0), "there is room again");
    }

    #[test]
    fn a_disk_that_fails_ends_the_capture_at_a_later_frame() {
        let (disk, gate, _read) = disk(true);
        let capture = Capture::aside(disk, CaptureLimits::default()).expect("a thread");
        drop(gate);
        let interface = capture.interface("port0").expect("not written yet");
        assert_eq!(capture.flush().expect_err("no room on the disk").raw_os_error(), Some(28));
        let one = interface.record_all(Nanos(1), Direction::Inbound, core::iter::once(&[0; 60][..]));
        assert!(one.outcome.is_err() && one.written == 0);
    }
}
