//! Whole messages over a socket, by spinning or by blocking.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::Wait;

/// A blocked end checks at this interval whether the slice is over.
const SLEEP_MAX: Duration = Duration::from_millis(20);

/// A connected socket.
#[derive(Debug)]
pub(super) struct Stream {
    socket: TcpStream,
    wait: Wait,
}

/// How a read or write ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum IoProgress {
    /// At least one byte.
    Bytes(usize),
    /// Nothing yet.
    Nothing,
}

impl Stream {
    pub(super) fn new(socket: TcpStream) -> io::Result<Self> {
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
        socket.set_read_timeout(Some(SLEEP_MAX))?;
        socket.set_write_timeout(Some(SLEEP_MAX))?;
        Ok(Stream { socket, wait: Wait::Spin })
    }

    /// Selects spinning or blocking.
    pub(super) fn set_wait(&mut self, wait: Wait) -> io::Result<()> {
        if self.wait != wait {
            self.socket.set_nonblocking(wait == Wait::Spin)?;
            self.wait = wait;
        }
        Ok(())
    }

    pub(super) fn read(&mut self, into: &mut [u8]) -> io::Result<IoProgress> {
        match self.socket.read(into) {
            Ok(0) if !into.is_empty() => Err(ErrorKind::UnexpectedEof.into()),
            outcome => progress(outcome),
        }
    }

    pub(super) fn write(&mut self, from: &[u8]) -> io::Result<IoProgress> {
        progress(self.socket.write(from))
    }

    /// Fills `into`; `false` when `should_stop` ended it first.
    pub(super) fn read_all(&mut self, into: &mut [u8], should_stop: impl Fn() -> bool) -> io::Result<bool> {
        transfer_all(into.len(), should_stop, |done| self.read(&mut into[done..]))
    }

    /// Writes all of `from`; `false` when `should_stop` ended it first.
    pub(super) fn write_all(&mut self, from: &[u8], should_stop: impl Fn() -> bool) -> io::Result<bool> {
        transfer_all(from.len(), should_stop, |done| self.write(&from[done..]))
    }
}

fn transfer_all(
    bytes: usize,
    should_stop: impl Fn() -> bool,
    mut transfer_from: impl FnMut(usize) -> io::Result<IoProgress>,
) -> io::Result<bool> {
    let mut done = 0;
    while done < bytes {
        match transfer_from(done)? {
            IoProgress::Bytes(bytes) => done += bytes,
            IoProgress::Nothing if should_stop() => return Ok(false),
            IoProgress::Nothing => {}
        }
    }
    Ok(true)
}

fn progress(outcome: io::Result<usize>) -> io::Result<IoProgress> {
    match outcome {
        Ok(bytes) => Ok(IoProgress::Bytes(bytes)),
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
            ) =>
        {
            Ok(IoProgress::Nothing)
        }
        Err(error) => Err(error),
    }
}
