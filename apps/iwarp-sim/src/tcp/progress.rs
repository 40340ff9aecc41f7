//! The task of one end of a connection: how much it sends and expects, how it ends.

use ironwarp_tcp::UnitSource;
use ironwarp_types::Nanos;

use super::pattern;

/// How an end closes the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum EndAction {
    /// Closes when it has sent and received everything.
    #[default]
    Close,
    /// Closes after the peer has closed.
    Stay,
}

/// The task of one end of a connection.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Task {
    pub sends: u64,
    /// Bytes that the peer sends.
    pub expects: u64,
    pub end: EndAction,
    /// Whether to note when bytes arrived.
    pub notes_arrivals: bool,
}

impl Task {
    /// The peer sends what this end expects, and closes at the end.
    #[must_use]
    pub fn mirrored(&self) -> Task {
        Task { sends: self.expects, expects: self.sends, ..Task::default() }
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
    /// When the last expected byte was read.
    pub done_at: Option<Nanos>,
    pub has_peer_closed: bool,
    /// Arrivals, where the task records them: the time, and the bytes read by then.
    pub arrivals: Vec<(Nanos, u64)>,
    pub closed: bool,
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

    /// Goodput in bits per second, from the first byte of the peer, `sender`.
    pub fn goodput_bits_per_s(&self, sender: &TaskProgress) -> u64 {
        let (Some(from), Some(to)) = (sender.began_at, self.done_at) else { return 0 };
        let bits = u128::from(self.task.expects) * 8;
        let took_ns = u128::from(to.since(from).0.max(1));
        u64::try_from(bits * 1_000_000_000 / took_ns).unwrap_or(u64::MAX)
    }

    pub(super) fn set_now(&mut self, now: Nanos) {
        self.now = now;
    }

    /// Checks and counts bytes that were read.
    pub(super) fn take(&mut self, bytes: &[u8]) {
        if !pattern::matches(self.taken, bytes) {
            self.wrong_at.get_or_insert(self.taken);
        }
        self.taken += bytes.len() as u64;
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
            EndAction::Stay => self.has_peer_closed && self.left() == 0,
        };
        enough && !self.closed
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
        pattern::write(self.sent, room);
        self.began_at.get_or_insert(self.now);
        self.sent += len as u64;
        len
    }
}
