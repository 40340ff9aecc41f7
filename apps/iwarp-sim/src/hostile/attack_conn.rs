//! One connection of a hostile host: it connects, sends valid messages for a while, attacks, and checks the reply.
//!
//! The oracle records the valid messages like any peer's, so the victim's memory and completions are checked as usual.
//! The reply is compared octet by octet.

use std::collections::VecDeque;

use ironwarp::Nanos;
use ironwarp_tcp::{ConnId, TcpEvents, UnitSource};
use ironwarp_types::SeededEntropy;

use super::craft::{self, VictimInfo};
use super::frames::{Damage, PeerSender, WRITE, tagged};
use crate::app::lifecycle::session_private_data;
use crate::app::memory::Pattern;
use crate::app::{AttackOutcome, Message, Session, Stage, UnverifiedWrite};
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
    /// The victim's reaction to the attack.
    Attacked,
}

/// What TCP must do with the connection after a poll.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConnAction {
    /// Nothing.
    Keep,
    /// Sends a FIN after the data.
    Close,
    /// A reset.
    Abort,
}

/// The attacker's side of one connection.
pub struct AttackConn {
    /// The session.
    pub number: usize,
    /// Its connection.
    pub conn: ConnId,
    attack: Attack,
    after_attack: AfterAttack,
    step: Step,
    sender: PeerSender,
    send_queue: VecDeque<Vec<u8>>,
    received: Vec<u8>,
    victim: RdmapSender,
    expected_terminates: Vec<Vec<u8>>,
    got_terminate: bool,
    peer_closed: bool,
    closed: bool,
    /// When its timeout expires.
    deadline: Nanos,
    rng: SeededEntropy,
}

/// Longest time of a connection.
const CONN_TIMEOUT: Nanos = Nanos::from_secs(35);

/// How long an attacker that never closes waits for a reset.
const STAY_OPEN_TIME: Nanos = Nanos::from_secs(25);

/// Bytes of a start-up frame.
const STARTUP_BYTES: usize = 20;

/// Most bytes of a valid message.
const MESSAGE_BYTES_MAX: u64 = 300;

impl AttackConn {
    /// The attacker's side of a connection that is being opened.
    pub fn new(session: &Session, conn: ConnId, now: Nanos, mut rng: SeededEntropy) -> Self {
        let Ending::Attack { attack, .. } = session.plan.ending else {
            unreachable!("hostile hosts have no other sessions")
        };
        let after_attack =
            [AfterAttack::Close, AfterAttack::KeepSending, AfterAttack::StayOpen][rng.below(3) as usize];
        AttackConn {
            number: session.number,
            conn,
            attack,
            after_attack,
            step: Step::Opening,
            sender: PeerSender::new(false),
            send_queue: VecDeque::new(),
            received: Vec::new(),
            victim: RdmapSender::default(),
            expected_terminates: Vec::new(),
            got_terminate: false,
            peer_closed: false,
            closed: false,
            deadline: now + CONN_TIMEOUT,
            rng,
        }
    }

    /// When it must be polled, even without an event.
    pub fn next_poll(&self, now: Nanos) -> Nanos {
        if matches!(self.step, Step::Sending(_)) { now + MESSAGE_INTERVAL } else { self.deadline }
    }

    /// Handles TCP's events of the connection.
    pub fn on_events(&mut self, session: &mut Session, events: TcpEvents) {
        if events.contains(TcpEvents::ESTABLISHED) && self.step == Step::Opening {
            session.sides[0].stage = Stage::Up;
            self.begin(session);
        }
        self.peer_closed |= events.contains(TcpEvents::PEER_CLOSED);
    }

    fn begin(&mut self, session: &mut Session) {
        let name = session_private_data(self.number);
        if self.attack == Attack::StartupNoise {
            self.send_queue.push_back((0..64).map(|_| self.rng.below(256) as u8).collect());
            session.attack_outcome = Some(AttackOutcome::NoTerminate);
            self.step = Step::Attacked;
            return;
        }
        // RFC 5044 s7.1.1: CRCs wanted, markers not, revision 1.
        let head = [&b"MPA ID Req Frame"[..], &[0x40, 1, 0, name.len() as u8]].concat();
        self.send_queue.push_back([&head[..], &name].concat());
        self.step = Step::AwaitingReply;
    }

    /// The victim has sent bytes.
    pub fn on_bytes(&mut self, bytes: &[u8]) {
        self.received.extend_from_slice(bytes);
    }

    /// Does what is due now. Returns an error if the victim's reply is wrong.
    pub fn poll_conn(&mut self, now: Nanos, session: &mut Session) -> Result<ConnAction, String> {
        if self.step == Step::AwaitingReply && !self.take_reply(session)? {
            return Ok(self.next_action(now));
        }
        if let Step::Sending(left) = self.step {
            self.send_next(now, left, session);
        }
        if !matches!(self.step, Step::Opening | Step::AwaitingReply) {
            self.check_received()?;
        }
        Ok(self.next_action(now))
    }

    /// Parses the victim's start-up frame. Returns whether it has arrived.
    fn take_reply(&mut self, session: &Session) -> Result<bool, String> {
        let Some(head) = self.received.first_chunk::<STARTUP_BYTES>() else { return Ok(false) };
        if !head.starts_with(b"MPA ID Rep Frame") {
            return Err(format!("the reply to a start-up frame is {head:02x?}"));
        }
        let (flags, private) = (head[16], usize::from(u16::from_be_bytes([head[18], head[19]])));
        if self.received.len() < STARTUP_BYTES + private {
            return Ok(false);
        }
        self.received.drain(..STARTUP_BYTES + private);
        self.sender.markers = flags & 0x80 != 0;
        let Ending::Attack { after, .. } = session.plan.ending else { return Ok(false) };
        // A rejected connection sends nothing more.
        self.step = if flags & 0x20 != 0 { Step::Attacked } else { Step::Sending(after) };
        Ok(true)
    }

    /// Sends one valid message, or attacks.
    fn send_next(&mut self, now: Nanos, left: u64, session: &mut Session) {
        let Some(target) = VictimInfo::of(session) else { return };
        if left > 0 {
            self.send_valid_message(session);
            self.step = Step::Sending(left - 1);
        } else if self.may_attack(session) {
            self.start_attack(now, &target, session);
        }
    }

    fn send_valid_message(&mut self, session: &mut Session) {
        let (plan, ours, theirs) = session.split(0);
        let len = self.rng.below(MESSAGE_BYTES_MAX.min(plan.bytes_max as u64) + 1) as usize;
        let wr_id = ours.posted;
        let pattern = Pattern::new(plan.key, wr_id);
        let mut bytes = vec![0; len];
        pattern.fill(0, &mut bytes);
        let ulpdu = if self.rng.chance(500_000) && theirs.has_credit(ours) {
            theirs.take_credit(ours);
            ours.messages.push_back(Message { wr_id, len, pattern, solicited: false, grant: None });
            self.sender.send(&bytes, None)
        } else {
            let Some(memory) = &mut theirs.memory else { return };
            let Some(target) = memory.shared.alloc(len, &mut self.rng) else { return };
            let remote = memory.shared.remote(target);
            ours.unverified.push(UnverifiedWrite { wr_id, target, pattern, grant: None });
            tagged(WRITE, remote.stag.0, remote.tagged_offset, &bytes)
        };
        ours.posted += 1;
        self.send_queue.push_back(self.sender.fpdu(&ulpdu, Damage::None));
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

    fn start_attack(&mut self, now: Nanos, target: &VictimInfo, session: &mut Session) {
        let attack_bytes = craft::build_attack(self.attack, &mut self.sender, target, &mut self.rng);
        session.attack_outcome = Some(match (self.attack, self.attack.terminate(self.sender.markers)) {
            (_, Some(terminate)) => AttackOutcome::VictimTerminates(terminate),
            (Attack::Terminate, None) => AttackOutcome::VictimReports(BAD_TERMINATE),
            _ => AttackOutcome::NoTerminate,
        });
        if self.attack == Attack::NoReceive {
            expect_empty_messages(session);
        }
        self.expected_terminates = attack_bytes.expected_terminates;
        if self.attack != Attack::Reset {
            self.send_queue.extend(attack_bytes.units);
        }
        if self.after_attack == AfterAttack::KeepSending && !self.expected_terminates.is_empty() {
            self.send_queue.push_back(craft::traffic_after_attack(&mut self.sender, target));
        }
        if self.after_attack == AfterAttack::StayOpen {
            self.deadline = self.deadline.min(now + STAY_OPEN_TIME);
        }
        self.step = Step::Attacked;
    }

    /// Parses what the victim has sent so far.
    fn check_received(&mut self) -> Result<(), String> {
        while let Some(whole) =
            fpdu(&self.received, None, true)?.filter(|whole| *whole <= self.received.len())
        {
            let unit: Vec<u8> = self.received.drain(..whole).collect();
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

    fn next_action(&mut self, now: Nanos) -> ConnAction {
        if now >= self.deadline || (self.attack == Attack::Reset && self.step == Step::Attacked) {
            return ConnAction::Abort;
        }
        let ends = self.attack == Attack::HalfFpdu && self.step == Step::Attacked;
        let follows = self.peer_closed && self.after_attack != AfterAttack::StayOpen;
        if (ends || follows) && self.send_queue.is_empty() && !core::mem::replace(&mut self.closed, true) {
            return ConnAction::Close;
        }
        ConnAction::Keep
    }

    /// The connection is over. A victim that closed in order has sent its Terminate before, whatever the links did.
    /// Where a reset may have destroyed the Terminate, the victim's own event decides.
    pub fn check_result(&self, session: &mut Session) -> Result<(), String> {
        session.terminate_missing = !self.expected_terminates.is_empty() && !self.got_terminate;
        if self.peer_closed && session.terminate_missing {
            return Err(format!("{:?} got no Terminate in reply", self.attack));
        }
        Ok(())
    }
}

/// Expects as many empty messages as the victim may have receives for.
fn expect_empty_messages(session: &mut Session) {
    let (plan, ours, _) = session.split(0);
    for _ in 0..plan.receives {
        let (wr_id, pattern) = (ours.posted, Pattern::new(plan.key, ours.posted));
        ours.messages.push_back(Message { wr_id, len: 0, pattern, solicited: false, grant: None });
        ours.posted += 1;
    }
}

impl UnitSource for AttackConn {
    fn fill(&mut self, room: &mut [u8]) -> usize {
        let Some(unit) = self.send_queue.front_mut() else { return 0 };
        let len = unit.len().min(room.len());
        room[..len].copy_from_slice(&unit[..len]);
        unit.drain(..len);
        if unit.is_empty() {
            self.send_queue.pop_front();
        }
        len
    }
}

/// Makes consecutive messages differ.
const MESSAGE_INTERVAL: Nanos = Nanos::from_micros(20);
