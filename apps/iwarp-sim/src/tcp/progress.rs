//! The task of one end of a connection: how much it sends and expects, how fast it reads, how it
//! ends.

use ironwarp_tcp::UnitSource;
use ironwarp_types::Nanos;

use super::pattern;

/// How an end closes the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum EndAction {
    /// Closes when it has sent and received everything.
    #[default]
    Close,
    /// Closes its direction as soon as everything is sent, and continues to read.
    HalfClose,
    /// Resets the connection after it has read this many bytes.
    AbortAfter(u64),
    /// Closes after the peer has closed.
    Stay,
}

/// How fast an end reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadRate {
    pub bytes: usize,
    /// Interval between two reads.
    pub every: Nanos,
}

/// The task of one end of a connection.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Task {
    pub sends: u64,
    /// Bytes that the peer sends.
    pub expects: u64,
    pub end: EndAction,
    /// How fast it reads; `None` is at once.
    pub read_rate: Option<ReadRate>,
    /// Where the bytes to send begin in the pattern.
    pub sends_from: u64,
    /// Where the bytes expected begin in the pattern.
    pub expects_from: u64,
    /// Warm-up: the first expected bytes, which are not measured.
    pub warm_up: u64,
    /// Whether to note when bytes arrived.
    pub notes_arrivals: bool,
}

impl Task {
    /// The peer sends what this end expects, and closes at the end.
    #[must_use]
    pub fn mirrored(&self) -> Task {
        Task {
            sends: self.expects,
            expects: self.sends,
            sends_from: self.expects_from,
            expects_from: self.sends_from,
            ..Task::default()
        }
    }
}

/// A task in progress. Serves as the byte source that the engine pulls from.
#[derive(Clone, Debug, Default)]
pub struct TaskProgress {
    pub task: Task,
    /// Bytes passed to TCP.
    pub sent: u64,
    /// Bytes read from TCP, all of them correct.
    pub taken: u64,
    /// The offset of the first read with a wrong byte.
    pub wrong_at: Option<u64>,
    /// When the first byte was passed to TCP.
    pub began_at: Option<Nanos>,
    pub warm_at: Option<Nanos>,
    /// When the last expected byte was read.
    pub done_at: Option<Nanos>,
    pub peer_closed_at: Option<Nanos>,
    /// Arrivals, where the task records them: the time, and the bytes read by then.
    pub arrivals: Vec<(Nanos, u64)>,
    pub closed: bool,
    next_read: Nanos,
    /// The current time, for the bytes that the engine pulls.
    now: Nanos,
}

impl TaskProgress {
    pub fn new(task: Task) -> Self {
        TaskProgress { task, ..TaskProgress::default() }
    }

    /// Bytes not yet passed to TCP.
    pub fn left(&self) -> u64 {
        self.task.sends - self.sent
    }

    /// Returns whether everything is sent and received.
    pub fn is_done(&self) -> bool {
        self.left() == 0 && self.taken >= self.task.expects
    }

    /// Goodput in bits per second after the warm-up. Without a warm-up it is measured from the
    /// first byte of the peer, `sender`.
    pub fn goodput_bits_per_s(&self, sender: &TaskProgress) -> u64 {
        let from = if self.task.warm_up == 0 { sender.began_at } else { self.warm_at };
        let (Some(from), Some(to)) = (from, self.done_at) else { return 0 };
        let bits = u128::from(self.task.expects.saturating_sub(self.task.warm_up)) * 8;
        let took_ns = u128::from(to.since(from).0.max(1));
        u64::try_from(bits * 1_000_000_000 / took_ns).unwrap_or(u64::MAX)
    }

    pub(super) fn set_now(&mut self, now: Nanos) {
        self.now = now;
    }

    /// How many bytes may be read now.
    pub(super) fn may_read(&mut self) -> usize {
        match self.task.read_rate {
            None => usize::MAX,
            Some(_) if self.now < self.next_read => 0,
            Some(read_rate) => {
                self.next_read = self.now + read_rate.every;
                read_rate.bytes
            }
        }
    }

    /// When a rate-limited reader may read again. A reader that waits for bytes is woken by them
    /// instead.
    pub(super) fn next_read(&self) -> Option<Nanos> {
        let waits = self.task.read_rate.is_some() && self.taken < self.task.expects;
        waits.then_some(self.next_read).filter(|at| *at > self.now)
    }

    /// Checks and counts bytes that were read.
    pub(super) fn take(&mut self, bytes: &[u8]) {
        if !pattern::matches(self.task.expects_from + self.taken, bytes) {
            self.wrong_at.get_or_insert(self.taken);
        }
        self.taken += bytes.len() as u64;
        if self.taken >= self.task.warm_up {
            self.warm_at.get_or_insert(self.now);
        }
        if self.taken >= self.task.expects {
            self.done_at.get_or_insert(self.now);
        }
    }

    /// Records how much was read, where the task asks for it.
    pub(super) fn record_arrivals(&mut self) {
        let has_new_bytes = self.arrivals.last().is_none_or(|(_, taken)| *taken != self.taken);
        if self.task.notes_arrivals && has_new_bytes && self.taken > 0 {
            self.arrivals.push((self.now, self.taken));
        }
    }

    /// Returns whether to close this direction now.
    pub(super) fn wants_close(&self) -> bool {
        let enough = match self.task.end {
            EndAction::Close => self.is_done(),
            EndAction::HalfClose => self.left() == 0,
            EndAction::AbortAfter(_) => false,
            EndAction::Stay => self.peer_closed_at.is_some() && self.left() == 0,
        };
        enough && !self.closed
    }

    /// Returns whether to reset the connection now.
    pub(super) fn wants_abort(&self) -> bool {
        matches!(self.task.end, EndAction::AbortAfter(bytes) if self.taken >= bytes) && !self.closed
    }

    /// Checks that every byte was correct and that there were no extra bytes.
    pub(super) fn check(&self) -> Result<(), String> {
        if let Some(at) = self.wrong_at {
            return Err(format!("wrong byte in the read at offset {at}"));
        }
        if self.taken > self.task.expects {
            return Err(format!("{} bytes were read, but {} were sent", self.taken, self.task.expects));
        }
        Ok(())
    }
}

impl UnitSource for TaskProgress {
    fn fill(&mut self, room: &mut [u8]) -> usize {
        let len = room.len().min(usize::try_from(self.left()).unwrap_or(usize::MAX));
        let Some(room) = room.get_mut(..len).filter(|room| !room.is_empty()) else { return 0 };
        pattern::write(self.task.sends_from + self.sent, room);
        self.began_at.get_or_insert(self.now);
        self.sent += len as u64;
        len
    }
}
