//! One connection of a [`super::Visitor`]: it connects, reads the victim's memory, and then has a habit of TCP.
//!
//! The habit lasts until a reset, which comes after all faults. The victim's application must notice nothing but the
//! end of this connection, and its other connections nothing at all.

use ironwarp::Nanos;
use ironwarp_types::SeededEntropy;

use super::craft::VictimInfo;
use super::frames::{Damage, PeerSender};
use crate::adversary::{Arrived, ConnState, Habit, RawConn, Way};
use crate::app::lifecycle::session_private_data;
use crate::app::{AttackOutcome, Oracle, Session, Stage};
use crate::plan::{Attack, Ending};

/// What a visitor waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// The connection is being established.
    Opening,
    /// The reply to its start-up frame.
    AwaitingReply,
    /// The victim's memory, which its Reads need.
    AwaitingMemory,
    /// The end: the victim has rejected it.
    Rejected,
    /// The end: it has its habit.
    Abusing,
    /// Nothing: it is over.
    Over,
}

/// A connection.
pub struct Visit {
    /// The session.
    pub number: usize,
    /// Its connection.
    pub conn: RawConn,
    habit: Habit,
    step: Step,
    sender: PeerSender,
    /// When it continues its habit, when it resends what has no acknowledgement, and when it resets the connection.
    next_step: Nanos,
    next_resend: Nanos,
    deadline: Nanos,
    rng: SeededEntropy,
}

/// The time of a visit: longer than all faults together.
const VISIT_TIME: Nanos = Nanos::from_secs(5);

/// The interval of resends.
const RESEND_INTERVAL: Nanos = Nanos::from_millis(40);

/// The longest interval between two packets of a habit.
const STEP_INTERVAL_MAX: Nanos = Nanos::from_millis(16);

/// Bytes of a start-up frame.
const STARTUP_BYTES: usize = 20;

/// Largest Read: more than a window.
const READ_BYTES_MAX: u64 = 200_000;

/// Resets at the end, in case the victim's device has no room for one.
const RESETS: usize = 3;

/// Local ports from here on.
const FIRST_PORT: u16 = 20_000;

impl Visit {
    /// A visit that begins, and its SYN.
    pub fn open(session: &Session, way: Way, now: Nanos, mut rng: SeededEntropy) -> (Self, Vec<u8>) {
        let Ending::Attack { attack: Attack::Habit(habit), .. } = session.plan.ending else {
            unreachable!("visitors have no other sessions")
        };
        let ports = [FIRST_PORT + session.number as u16, session.plan.port];
        let (conn, syn) = RawConn::open(way, ports, rng.below(1 << 32) as u32);
        let visit = Visit {
            number: session.number,
            conn,
            habit,
            step: Step::Opening,
            sender: PeerSender::new(false),
            next_step: now,
            next_resend: now + RESEND_INTERVAL,
            deadline: now + VISIT_TIME,
            rng,
        };
        (visit, syn)
    }

    /// Returns whether it is over.
    pub fn is_over(&self) -> bool {
        self.step == Step::Over
    }

    /// When it must be polled, even without an event.
    pub fn next_poll(&self) -> Nanos {
        let due = self.deadline.min(self.next_resend);
        if matches!(self.step, Step::AwaitingMemory | Step::Abusing) { due.min(self.next_step) } else { due }
    }

    /// Handles a segment of the victim.
    pub fn on_segment(&mut self, now: Nanos, arrived: &Arrived, oracle: &mut Oracle, out: &mut Vec<Vec<u8>>) {
        self.conn.on_segment(arrived, out);
        match self.conn.state() {
            ConnState::Over => self.step = Step::Over,
            ConnState::Open if self.step == Step::Opening => {
                oracle.sessions[self.number].sides[0].stage = Stage::Up;
                let name = session_private_data(self.number);
                // RFC 5044 s7.1.1: CRCs wanted, markers not, revision 1.
                let head = [&b"MPA ID Req Frame"[..], &[0x40, 1, 0, name.len() as u8]].concat();
                self.conn.send(&[&head[..], &name].concat(), out);
                self.step = Step::AwaitingReply;
            }
            _ => {}
        }
        self.poll(now, oracle, out);
    }

    /// Does what is due.
    pub fn poll(&mut self, now: Nanos, oracle: &mut Oracle, out: &mut Vec<Vec<u8>>) {
        if self.step == Step::Over {
            return;
        }
        if now >= self.deadline {
            out.extend(core::iter::repeat_n(self.conn.reset(), RESETS));
            self.step = Step::Over;
            return;
        }
        let session = &mut oracle.sessions[self.number];
        if self.step == Step::AwaitingReply
            && let Some(flags) = self.reply_flags()
        {
            self.sender.markers = flags & 0x80 != 0;
            // A rejected connection has no stream; its end comes with a FIN, or with the reset.
            self.step = if flags & 0x20 != 0 { Step::Rejected } else { Step::AwaitingMemory };
        }
        if self.step == Step::AwaitingMemory
            && let Some(victim) = VictimInfo::of(session)
        {
            self.adopt_habit(&victim, session, out);
        }
        if self.step == Step::Abusing && now >= self.next_step {
            self.conn.step(out);
        }
        if now >= self.next_step {
            self.next_step = now + Nanos(1 + self.rng.below(STEP_INTERVAL_MAX.0));
        }
        if now >= self.next_resend {
            self.conn.resend(out);
            self.next_resend = now + RESEND_INTERVAL;
        }
    }

    /// The flags of the victim's start-up frame, once all of it has arrived.
    fn reply_flags(&self) -> Option<u8> {
        let head = self.conn.heard().first_chunk::<STARTUP_BYTES>()?;
        let private = usize::from(u16::from_be_bytes([head[18], head[19]]));
        (self.conn.heard().len() >= STARTUP_BYTES + private).then_some(head[16])
    }

    /// Has the victim send as much as it may, and begins the habit.
    fn adopt_habit(&mut self, victim: &VictimInfo, session: &mut Session, out: &mut Vec<Vec<u8>>) {
        let (memory, len) = victim.readable();
        for _ in 0..session.plan.reads {
            let bytes = self.rng.below(len.min(READ_BYTES_MAX) + 1) as u32;
            let read = self.sender.read(memory.stag.0, memory.tagged_offset, bytes);
            self.conn.send(&self.sender.fpdu(&read, Damage::None), out);
        }
        self.conn.begin(self.habit);
        session.attack_outcome = Some(AttackOutcome::NoTerminate);
        self.step = Step::Abusing;
    }
}
