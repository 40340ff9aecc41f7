//! One connection of a hostile host: it connects, sends valid messages for a while, attacks, and
//! checks the reply.
//!
//! The oracle records the valid messages like any peer's, so the victim's memory and completions
//! are checked as usual. The reply is compared octet by octet. An attack by a habit of TCP begins
//! with Reads and lasts until a reset, which comes after all faults: the victim's application must
//! notice nothing but the end of this connection.

use ironwarp::Nanos;
use ironwarp_testkit::mpa::REJECTED;
use ironwarp_testkit::rdmap::{WRITE, tagged};
use ironwarp_testkit::{ConnState, Frames, Route, Segment};
use ironwarp_types::SeededEntropy;

use super::craft::{self, VictimInfo};
use crate::adversary::{Habit, Peer};
use crate::app::lifecycle::session_private_data;
use crate::app::memory::Pattern;
use crate::app::{AttackOutcome, Message, Oracle, Session, Stage, UnverifiedWrite};
use crate::plan::{AfterAttack, Attack, BAD_TERMINATE, Ending};
use crate::wire::message::{RdmapSender, ReplyClaim};
use crate::wire::stream::{fpdu, ulpdu};

/// What the attacker waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// The connection is being established.
    Opening,
    /// The reply to its start-up frame.
    AwaitingReply,
    /// Nothing: it has this many valid messages left to send.
    Sending(u64),
    /// The victim's reaction to the attack, or to the stream that it has rejected.
    Attacked,
    /// Nothing: it is over, and its session has not heard of it.
    Ended,
    Gone,
}

/// The attacker's side of one connection.
pub struct HostileConn {
    pub number: usize,
    peer: Peer,
    attack: Attack,
    after_attack: AfterAttack,
    step: Step,
    victim: RdmapSender,
    expected_terminates: Vec<Vec<u8>>,
    got_terminate: bool,
    /// When it sends its next message or continues its habit.
    next_step: Nanos,
    /// When it repeats what has no acknowledgement.
    next_resend: Nanos,
    deadline: Nanos,
    rng: SeededEntropy,
}

/// Longest time of a connection, and of one with a habit: longer than all faults together.
const CONN_TIMEOUT: Nanos = Nanos::from_secs(35);
const HABIT_TIME: Nanos = Nanos::from_secs(5);

/// How long an attacker that never closes waits for a reset.
const STAY_OPEN_TIME: Nanos = Nanos::from_secs(25);

/// Most bytes of a valid message, and the most that a segment carries: it passes every path.
const MESSAGE_BYTES_MAX: u64 = 300;
const SEGMENT_BYTES: usize = 500;

/// The time between two valid messages, which makes them differ.
const MESSAGE_INTERVAL: Nanos = Nanos::from_micros(20);

/// The longest interval between two packets of a habit.
const HABIT_INTERVAL_MAX: Nanos = Nanos::from_millis(16);

const RESEND_INTERVAL: Nanos = Nanos::from_millis(40);

/// Largest Read of a habit: more than a window.
const READ_BYTES_MAX: u64 = 200_000;

/// Resets at the end, in case the victim's device has no room for one.
const RESETS: usize = 3;

/// Local ports from here on.
const FIRST_PORT: u16 = 20_000;

impl HostileConn {
    /// The attacker's side of a connection that begins, and its SYN.
    pub fn open(session: &Session, route: Route, now: Nanos, mut rng: SeededEntropy) -> (Self, Vec<u8>) {
        let Ending::Attack { attack, .. } = session.plan.ending else {
            unreachable!("hostile hosts have no other sessions")
        };
        let after_attack =
            [AfterAttack::Close, AfterAttack::KeepSending, AfterAttack::StayOpen][rng.below(3) as usize];
        let ports = [FIRST_PORT + session.number as u16, session.plan.port];
        let (mut peer, syn) = Peer::open(route, ports, rng.below(1 << 32) as u32);
        peer.conn.segment_bytes = SEGMENT_BYTES;
        let time = if matches!(attack, Attack::Habit(_)) { HABIT_TIME } else { CONN_TIMEOUT };
        let conn = HostileConn {
            number: session.number,
            peer,
            attack,
            after_attack,
            step: Step::Opening,
            victim: RdmapSender::default(),
            expected_terminates: Vec::new(),
            got_terminate: false,
            next_step: now,
            next_resend: now + RESEND_INTERVAL,
            deadline: now + time,
            rng,
        };
        (conn, syn)
    }

    pub fn owns(&self, arrived: &(Route, Segment)) -> bool {
        self.peer.conn.owns(arrived)
    }

    /// Returns whether it is over, once.
    pub fn has_just_ended(&mut self) -> bool {
        let has_ended = self.step == Step::Ended;
        if has_ended {
            self.step = Step::Gone;
        }
        has_ended
    }

    /// When it must be polled, even without an event; `None` once it is over.
    pub fn next_poll(&self) -> Option<Nanos> {
        let due = self.deadline.min(self.next_resend);
        let steps = matches!(self.step, Step::Sending(_)) || (self.step == Step::Attacked && self.is_abuse());
        (self.step != Step::Gone).then(|| if steps { due.min(self.next_step) } else { due })
    }

    fn is_abuse(&self) -> bool {
        matches!(self.attack, Attack::Habit(_))
    }

    pub fn on_segment(&mut self, now: Nanos, segment: &Segment, oracle: &mut Oracle, out: &mut Frames) {
        self.peer.on_segment(segment, out);
        if self.peer.conn.state == ConnState::Open && self.step == Step::Opening {
            let session = &mut oracle.sessions[self.number];
            session.sides[0].stage = Stage::Up;
            self.begin(session, out);
        }
        self.poll(now, oracle, out);
    }

    fn begin(&mut self, session: &mut Session, out: &mut Frames) {
        self.step = Step::AwaitingReply;
        if self.attack == Attack::StartupNoise {
            let noise: Vec<u8> = (0..64).map(|_| self.rng.below(256) as u8).collect();
            self.peer.conn.send(&noise, out);
            session.attack_outcome = Some(AttackOutcome::NoTerminate);
            self.step = Step::Attacked;
        } else {
            self.peer.request(&session_private_data(self.number), out);
        }
    }

    pub fn poll(&mut self, now: Nanos, oracle: &mut Oracle, out: &mut Frames) {
        if matches!(self.step, Step::Ended | Step::Gone) {
            return;
        }
        let session = &mut oracle.sessions[self.number];
        let outcome = self.go_on(now, session, out);
        if let Err(fault) = &outcome {
            oracle.report_failure(self.number, 0, fault);
        }
        let is_reset = self.attack == Attack::Reset && self.step == Step::Attacked;
        if self.peer.conn.state == ConnState::Over {
            self.step = Step::Ended;
        } else if now >= self.deadline || is_reset || outcome.is_err() {
            out.extend(core::iter::repeat_n(self.peer.conn.reset(), RESETS));
            self.step = Step::Ended;
        } else {
            self.close_if_due(out);
            if now >= self.next_resend {
                self.peer.conn.resend(out);
                self.next_resend = now + RESEND_INTERVAL;
            }
        }
    }

    fn close_if_due(&mut self, out: &mut Frames) {
        let ends = self.attack == Attack::HalfFpdu && self.step == Step::Attacked;
        let stays = self.after_attack == AfterAttack::StayOpen || self.is_abuse();
        if ends || (self.peer.conn.peer_closed && !stays) {
            self.peer.conn.close(out);
        }
    }

    /// Reads what has arrived, and sends what is due. Returns an error if the victim's reply is
    /// wrong.
    fn go_on(&mut self, now: Nanos, session: &mut Session, out: &mut Frames) -> Result<(), String> {
        if self.step == Step::AwaitingReply
            && let Some(flags) = self.peer.take_reply()?
            && let Ending::Attack { after, .. } = session.plan.ending
        {
            // A rejected connection sends nothing more.
            self.step = if flags & REJECTED != 0 { Step::Attacked } else { Step::Sending(after) };
        }
        if now >= self.next_step {
            if let Step::Sending(left) = self.step {
                self.send_next(now, left, session, out);
            }
            self.peer.step(out);
            self.next_step = now
                + match self.attack {
                    Attack::Habit(_) => Nanos(1 + self.rng.below(HABIT_INTERVAL_MAX.0)),
                    _ => MESSAGE_INTERVAL,
                };
        }
        if matches!(self.step, Step::Sending(_) | Step::Attacked) && !self.is_abuse() {
            self.check_received()?;
        }
        Ok(())
    }

    /// Sends one valid message, or attacks.
    fn send_next(&mut self, now: Nanos, left: u64, session: &mut Session, out: &mut Frames) {
        let Some(target) = VictimInfo::of(session) else { return };
        if left > 0 {
            self.send_valid_message(session, out);
            self.step = Step::Sending(left - 1);
        } else if let Attack::Habit(habit) = self.attack {
            self.adopt_habit(habit, &target, session, out);
        } else if self.may_attack(session) {
            self.start_attack(now, &target, session, out);
        }
    }

    fn send_valid_message(&mut self, session: &mut Session, out: &mut Frames) {
        let (plan, _, [ours, theirs]) = session.split(0);
        let len = self.rng.below(MESSAGE_BYTES_MAX.min(plan.bytes_max as u64) + 1) as usize;
        let wr_id = ours.posted;
        let pattern = Pattern::new(plan.key, wr_id);
        let mut bytes = vec![0; len];
        pattern.fill(0, &mut bytes);
        let ulpdu = if self.rng.chance(500_000) && theirs.has_credit(ours) {
            theirs.take_credit(ours);
            ours.messages.push_back(Message::new(wr_id, len, pattern));
            self.peer.next_send(&bytes, None)
        } else {
            let Some(memory) = &mut theirs.memory else { return };
            let Some(target) = memory.shared.alloc(len, &mut self.rng) else { return };
            let remote = memory.shared.remote(target);
            ours.unverified.push(UnverifiedWrite { wr_id, target, pattern, grant: None });
            tagged(WRITE, remote.stag.0, remote.tagged_offset, &bytes)
        };
        ours.posted += 1;
        self.peer.say(&ulpdu, out);
    }

    /// Returns whether the attack can be made now: some attacks require a posted receive.
    fn may_attack(&self, session: &Session) -> bool {
        let needs = matches!(
            self.attack,
            Attack::TooLong
                | Attack::OffsetAhead
                | Attack::InvalidateUnknown
                | Attack::InvalidateShared
                | Attack::ReadOnSendQueue
        );
        !needs || session.sides[1].has_credit(&session.sides[0])
    }

    fn start_attack(&mut self, now: Nanos, target: &VictimInfo, session: &mut Session, out: &mut Frames) {
        let attack_bytes = craft::build_attack(self.attack, &mut self.peer, target, &mut self.rng);
        session.attack_outcome = Some(match (self.attack, self.attack.terminate(self.peer.has_markers())) {
            (_, Some(terminate)) => AttackOutcome::VictimTerminates(terminate),
            (Attack::Terminate, None) => AttackOutcome::VictimReports(BAD_TERMINATE),
            _ => AttackOutcome::NoTerminate,
        });
        if self.attack == Attack::NoReceive {
            expect_empty_messages(session);
        }
        self.expected_terminates = attack_bytes.expected_terminates;
        if self.attack != Attack::Reset {
            self.peer.conn.send(&attack_bytes.bytes, out);
        }
        if self.after_attack == AfterAttack::KeepSending && !self.expected_terminates.is_empty() {
            let more = craft::traffic_after_attack(&mut self.peer, target);
            self.peer.conn.send(&more, out);
        }
        if self.after_attack == AfterAttack::StayOpen {
            self.deadline = self.deadline.min(now + STAY_OPEN_TIME);
        }
        self.step = Step::Attacked;
    }

    /// Has the victim send as much as it may, and begins the habit.
    fn adopt_habit(&mut self, habit: Habit, target: &VictimInfo, session: &mut Session, out: &mut Frames) {
        let (memory, len) = target.readable();
        for _ in 0..session.plan.reads {
            let bytes = self.rng.below(len.min(READ_BYTES_MAX) + 1) as u32;
            let read = self.peer.next_read((memory.stag.0, memory.tagged_offset), bytes);
            self.peer.say(&read, out);
        }
        self.peer.begin(habit);
        session.attack_outcome = Some(AttackOutcome::NoTerminate);
        self.step = Step::Attacked;
    }

    /// Parses what the victim has sent so far.
    fn check_received(&mut self) -> Result<(), String> {
        let heard = &mut self.peer.conn.heard;
        while let Some(whole) = fpdu(heard, None, true)?.filter(|whole| *whole <= heard.len()) {
            let unit: Vec<u8> = heard.drain(..whole).collect();
            if let Some(ReplyClaim::Terminate(payload)) = self.victim.on_ulpdu(&ulpdu(&unit, None))? {
                self.got_terminate = true;
                if !self.expected_terminates.contains(&payload) {
                    let (attack, expected_terminates) = (self.attack, &self.expected_terminates);
                    return Err(format!(
                        "{attack:?} got the reply {payload:02x?}, but expected one of {expected_terminates:02x?}"
                    ));
                }
            }
        }
        Ok(())
    }

    /// The connection is over. A victim that closed in order has sent its Terminate before,
    /// whatever the links did. Where a reset may have destroyed the Terminate, the victim's own
    /// event decides.
    pub fn check_result(&self, session: &mut Session) -> Result<(), String> {
        session.terminate_missing = !self.expected_terminates.is_empty() && !self.got_terminate;
        if self.peer.conn.peer_closed && session.terminate_missing {
            return Err(format!("{:?} got no Terminate in reply", self.attack));
        }
        Ok(())
    }
}

/// Expects as many empty messages as the victim may have receives for.
fn expect_empty_messages(session: &mut Session) {
    let (plan, _, [ours, _]) = session.split(0);
    for _ in 0..plan.receives {
        let (wr_id, pattern) = (ours.posted, Pattern::new(plan.key, ours.posted));
        ours.messages.push_back(Message::new(wr_id, 0, pattern));
        ours.posted += 1;
    }
}
