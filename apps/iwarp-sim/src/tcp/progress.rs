//! What one end of a connection does: how much it sends and expects, how fast it reads, how it ends.

use ironwarp_tcp::UnitSource;
use ironwarp_types::Nanos;

use super::pattern;

/// How an end leaves the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum EndAction {
    /// Closes when everything is sent and everything expected is here.
    #[default]
    Close,
    /// Closes its direction as soon as everything is sent, and goes on reading.
    HalfClose,
    /// Resets the connection once it has taken so many bytes.
    AbortAfter(u64),
    /// Does not close before the peer has.
    Stay,
}

/// How fast an end reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadRate {
    /// Bytes at a time.
    pub bytes: usize,
    /// From one time to the next.
    pub every: Nanos,
}

/// What one end of a connection is to do.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Task {
    /// Bytes to send.
    pub sends: u64,
    /// Bytes that the peer sends.
    pub expects: u64,
    /// How it ends.
    pub end: EndAction,
    /// How fast it reads; at once when not said.
    pub read_rate: Option<ReadRate>,
    /// Where the bytes to send begin in the pattern.
    pub sends_from: u64,
    /// Where the bytes expected begin in the pattern.
    pub expects_from: u64,
    /// Of the bytes expected, those that come before measuring begins.
    pub warm_up: u64,
    /// Whether to note when bytes arrived.
    pub notes_arrivals: bool,
}

/// The same task seen from the other end.
impl Task {
    /// What the peer of this end does: it sends what is expected here, and ends by closing.
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

/// A task on its way. Serves as the source that the engine pulls from.
#[derive(Clone, Debug)]
pub struct TaskProgress {
    /// What is to be done.
    pub task: Task,
    /// Bytes handed to TCP.
    pub sent: u64,
    /// Bytes taken from TCP, all of them right.
    pub taken: u64,
    /// The offset of the first piece in which a byte was wrong.
    pub wrong_at: Option<u64>,
    /// When the first byte was handed to TCP.
    pub began_at: Option<Nanos>,
    /// When the warm-up was over.
    pub warm_at: Option<Nanos>,
    /// When the last byte expected was taken.
    pub done_at: Option<Nanos>,
    /// When the peer closed its direction.
    pub peer_closed_at: Option<Nanos>,
    /// Arrivals, where the task asks for them: when, and bytes taken by then.
    pub arrivals: Vec<(Nanos, u64)>,
    /// Whether this end has closed or aborted.
    pub closed: bool,
    next_read: Nanos,
    /// The time of the turn, for what the engine pulls in it.
    now: Nanos,
}

impl TaskProgress {
    /// A task of which nothing is done.
    pub fn new(task: Task) -> Self {
        TaskProgress {
            task,
            sent: 0,
            taken: 0,
            wrong_at: None,
            began_at: None,
            warm_at: None,
            done_at: None,
            peer_closed_at: None,
            arrivals: Vec::new(),
            closed: false,
            next_read: Nanos::ZERO,
            now: Nanos::ZERO,
        }
    }

    /// Bytes that wait to be handed to TCP.
    pub fn left(&self) -> u64 {
        self.task.sends - self.sent
    }

    /// Whether everything is sent and everything expected is here.
    pub fn is_done(&self) -> bool {
        self.left() == 0 && self.taken >= self.task.expects
    }

    /// Bits a second taken after the warm-up, from the first byte of the peer's work `sender` if there was none.
    pub fn goodput_bits_per_s(&self, sender: &TaskProgress) -> u64 {
        let from = if self.task.warm_up == 0 { sender.began_at } else { self.warm_at };
        let (Some(from), Some(to)) = (from, self.done_at) else { return 0 };
        let bits = u128::from(self.task.expects.saturating_sub(self.task.warm_up)) * 8;
        let took_ns = u128::from(to.since(from).0.max(1));
        u64::try_from(bits * 1_000_000_000 / took_ns).unwrap_or(u64::MAX)
    }

    /// The time has moved on.
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

    /// When a paced reader may read again, if that is to come: one who waits for bytes is woken by them.
    pub(super) fn next_read(&self) -> Option<Nanos> {
        let waits = self.task.read_rate.is_some() && self.taken < self.task.expects;
        waits.then_some(self.next_read).filter(|at| *at > self.now)
    }

    /// Bytes have been read.
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

    /// Notes how far reading has come, where the task asks for it.
    pub(super) fn record_arrivals(&mut self) {
        let news = self.arrivals.last().is_none_or(|(_, taken)| *taken != self.taken);
        if self.task.notes_arrivals && news && self.taken > 0 {
            self.arrivals.push((self.now, self.taken));
        }
    }

    /// Whether it is time to close this direction.
    pub(super) fn wants_close(&self) -> bool {
        let enough = match self.task.end {
            EndAction::Close => self.is_done(),
            EndAction::HalfClose => self.left() == 0,
            EndAction::AbortAfter(_) => false,
            EndAction::Stay => self.peer_closed_at.is_some() && self.left() == 0,
        };
        enough && !self.closed
    }

    /// Whether it is time to reset the connection.
    pub(super) fn wants_abort(&self) -> bool {
        matches!(self.task.end, EndAction::AbortAfter(bytes) if self.taken >= bytes) && !self.closed
    }

    /// Whether every byte was the one that belongs there, and none was too many.
    pub(super) fn check(&self) -> Result<(), String> {
        if let Some(at) = self.wrong_at {
            return Err(format!("a byte is wrong in what was read from {at} on"));
        }
        if self.taken > self.task.expects {
            return Err(format!("{} bytes were read of {} sent", self.taken, self.task.expects));
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
