//! One connection of a hostile host: it is opened, speaks well for a while, attacks, and hears the answer.
//!
//! What is said well is in the ledger like any peer's messages, so the victim's memory and completions are checked as
//! ever. The answer is compared octet by octet.

use std::collections::VecDeque;

use ironwarp::Nanos;
use ironwarp_tcp::{ConnId, TcpEvents, UnitSource};
use ironwarp_types::SeededEntropy;

use super::craft::{self, Target};
use super::frames::{Damage, Mouth, WRITE, tagged};
use crate::app::life::introduction;
use crate::app::memory::Pattern;
use crate::app::{Attacked, Message, Session, Stage, Unsure};
use crate::plan::{Attack, Ending, Manner, REPROACH};
use crate::wire::message::{Claim, Speaker};
use crate::wire::stream::{fpdu, ulpdu};

/// What the attacker waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// The connection.
    Opening,
    /// The answer to its start-up frame.
    Asking,
    /// Nothing: it has so many more messages to say.
    Talking(u64),
    /// What the victim does about it.
    Struck,
}

/// What a visit wants of its connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wish {
    /// Nothing.
    Stay,
    /// A FIN behind what was said.
    Close,
    /// A reset.
    Abort,
}

/// One connection.
pub struct Visit {
    /// The session.
    pub number: usize,
    /// Its connection.
    pub conn: ConnId,
    attack: Attack,
    manner: Manner,
    step: Step,
    mouth: Mouth,
    said: VecDeque<Vec<u8>>,
    heard: Vec<u8>,
    victim: Speaker,
    answers: Vec<Vec<u8>>,
    answered: bool,
    peer_closed: bool,
    closed: bool,
    /// When patience is over.
    deadline: Nanos,
    dice: SeededEntropy,
}

/// How long a visit lasts at most.
const VISIT: Nanos = Nanos::from_secs(35);

/// How long somebody who never closes waits for a reset.
const LINGERING: Nanos = Nanos::from_secs(25);

/// Bytes of a start-up frame.
const STARTUP_BYTES: usize = 20;

/// Bytes of a message that is well said.
const MESSAGE_BYTES_MAX: u64 = 300;

impl Visit {
    /// A visit over a connection that is being opened.
    pub fn new(session: &Session, conn: ConnId, now: Nanos, mut dice: SeededEntropy) -> Self {
        let Ending::Attack { attack, .. } = session.plan.ending else {
            unreachable!("hostile hosts have no other sessions")
        };
        let manner = [Manner::Closes, Manner::Chatters, Manner::Lingers][dice.below(3) as usize];
        Visit {
            number: session.number,
            conn,
            attack,
            manner,
            step: Step::Opening,
            mouth: Mouth::new(false),
            said: VecDeque::new(),
            heard: Vec::new(),
            victim: Speaker::default(),
            answers: Vec::new(),
            answered: false,
            peer_closed: false,
            closed: false,
            deadline: now + VISIT,
            dice,
        }
    }

    /// When it wants to be looked at without news.
    pub fn next_look(&self, now: Nanos) -> Nanos {
        if matches!(self.step, Step::Talking(_)) { now + PACE } else { self.deadline }
    }

    /// What TCP says about the connection.
    pub fn on_events(&mut self, session: &mut Session, events: TcpEvents) {
        if events.contains(TcpEvents::ESTABLISHED) && self.step == Step::Opening {
            session.sides[0].stage = Stage::Up;
            self.begin(session);
        }
        self.peer_closed |= events.contains(TcpEvents::PEER_CLOSED);
    }

    fn begin(&mut self, session: &mut Session) {
        let name = introduction(self.number);
        if self.attack == Attack::StartupNoise {
            self.said.push_back((0..64).map(|_| self.dice.below(256) as u8).collect());
            session.attacked = Some(Attacked::Silent);
            self.step = Step::Struck;
            return;
        }
        // RFC 5044 s7.1.1: CRCs wanted, markers not, revision 1.
        let head = [&b"MPA ID Req Frame"[..], &[0x40, 1, 0, name.len() as u8]].concat();
        self.said.push_back([&head[..], &name].concat());
        self.step = Step::Asking;
    }

    /// The victim says something.
    pub fn hear(&mut self, bytes: &[u8]) {
        self.heard.extend_from_slice(bytes);
    }

    /// Does what there is to do now. Says what is wrong with what was heard.
    pub fn turn(&mut self, now: Nanos, session: &mut Session) -> Result<Wish, String> {
        if self.step == Step::Asking && !self.take_reply(session)? {
            return Ok(self.wish(now));
        }
        if let Step::Talking(left) = self.step {
            self.talk(now, left, session);
        }
        if !matches!(self.step, Step::Opening | Step::Asking) {
            self.understand()?;
        }
        Ok(self.wish(now))
    }

    /// Takes the victim's start-up frame. Answers whether it is there.
    fn take_reply(&mut self, session: &Session) -> Result<bool, String> {
        let Some(head) = self.heard.first_chunk::<STARTUP_BYTES>() else { return Ok(false) };
        if !head.starts_with(b"MPA ID Rep Frame") {
            return Err(format!("the answer to a start-up frame is {head:02x?}"));
        }
        let (flags, private) = (head[16], usize::from(u16::from_be_bytes([head[18], head[19]])));
        if self.heard.len() < STARTUP_BYTES + private {
            return Ok(false);
        }
        self.heard.drain(..STARTUP_BYTES + private);
        self.mouth.markers = flags & 0x80 != 0;
        let Ending::Attack { after, .. } = session.plan.ending else { return Ok(false) };
        // Whoever is refused has nothing to say.
        self.step = if flags & 0x20 != 0 { Step::Struck } else { Step::Talking(after) };
        Ok(true)
    }

    /// Says one message well, or attacks.
    fn talk(&mut self, now: Nanos, left: u64, session: &mut Session) {
        let Some(target) = Target::of(session) else { return };
        if left > 0 {
            self.speak(session);
            self.step = Step::Talking(left - 1);
        } else if self.may_strike(session) {
            self.strike(now, &target, session);
        }
    }

    fn speak(&mut self, session: &mut Session) {
        let (plan, ours, theirs) = session.split(0);
        let len = self.dice.below(MESSAGE_BYTES_MAX.min(plan.bytes_max as u64) + 1) as usize;
        let wr_id = ours.posted;
        let pattern = Pattern::new(plan.key, wr_id);
        let mut bytes = vec![0; len];
        pattern.fill(0, &mut bytes);
        let ulpdu = if self.dice.chance(500_000) && theirs.has_credit(ours) {
            theirs.take_credit(ours);
            ours.messages.push_back(Message { wr_id, len, pattern, solicited: false, loan: None });
            self.mouth.send(&bytes, None)
        } else {
            let Some(plots) = &mut theirs.plots else { return };
            let Some(target) = plots.shared.take(len, &mut self.dice) else { return };
            let remote = plots.shared.remote(target);
            ours.unsure.push(Unsure { wr_id, target, pattern, loan: None });
            tagged(WRITE, remote.stag.0, remote.tagged_offset, &bytes)
        };
        ours.posted += 1;
        self.said.push_back(self.mouth.fpdu(&ulpdu, Damage::None));
    }

    /// Some attacks are others where no receive is posted.
    fn may_strike(&self, session: &Session) -> bool {
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

    fn strike(&mut self, now: Nanos, target: &Target, session: &mut Session) {
        let crafted = craft::craft(self.attack, &mut self.mouth, target, &mut self.dice);
        session.attacked = Some(match (self.attack, self.attack.terminate(self.mouth.markers)) {
            (_, Some(terminate)) => Attacked::Answered(terminate),
            (Attack::Terminate, None) => Attacked::Told(REPROACH),
            _ => Attacked::Silent,
        });
        if self.attack == Attack::NoReceive {
            expect_empty_messages(session);
        }
        self.answers = crafted.answers;
        if self.attack != Attack::Reset {
            self.said.extend(crafted.units);
        }
        if self.manner == Manner::Chatters && !self.answers.is_empty() {
            self.said.push_back(craft::chatter(&mut self.mouth, target));
        }
        if self.manner == Manner::Lingers {
            self.deadline = self.deadline.min(now + LINGERING);
        }
        self.step = Step::Struck;
    }

    /// Reads what the victim has said so far.
    fn understand(&mut self) -> Result<(), String> {
        while let Some(whole) = fpdu(&self.heard, None, true)?.filter(|whole| *whole <= self.heard.len()) {
            let unit: Vec<u8> = self.heard.drain(..whole).collect();
            if let Some(Claim::Terminate(payload)) = self.victim.say(&ulpdu(&unit, None))? {
                self.answered = true;
                if !self.answers.contains(&payload) {
                    let (attack, answers) = (self.attack, &self.answers);
                    return Err(format!(
                        "{attack:?} is answered by {payload:02x?} and none of {answers:02x?}"
                    ));
                }
            }
        }
        Ok(())
    }

    fn wish(&mut self, now: Nanos) -> Wish {
        if now >= self.deadline || (self.attack == Attack::Reset && self.step == Step::Struck) {
            return Wish::Abort;
        }
        let ends = self.attack == Attack::HalfFpdu && self.step == Step::Struck;
        let follows = self.peer_closed && self.manner != Manner::Lingers;
        if (ends || follows) && self.said.is_empty() && !core::mem::replace(&mut self.closed, true) {
            return Wish::Close;
        }
        Wish::Stay
    }

    /// The connection is over. Whoever closes in order has said what was wrong before, whatever links did. What a reset
    /// may have destroyed is judged with what the victim says that it has sent.
    pub fn judge(&self, session: &mut Session) -> Result<(), String> {
        session.unanswered = !self.answers.is_empty() && !self.answered;
        if self.peer_closed && session.unanswered {
            return Err(format!("{:?} was answered by no Terminate", self.attack));
        }
        Ok(())
    }
}

/// As many messages of nothing as the victim may have receives for.
fn expect_empty_messages(session: &mut Session) {
    let (plan, ours, _) = session.split(0);
    for _ in 0..plan.receives {
        let (wr_id, pattern) = (ours.posted, Pattern::new(plan.key, ours.posted));
        ours.messages.push_back(Message { wr_id, len: 0, pattern, solicited: false, loan: None });
        ours.posted += 1;
    }
}

impl UnitSource for Visit {
    fn fill(&mut self, room: &mut [u8]) -> usize {
        let Some(unit) = self.said.front_mut() else { return 0 };
        let len = unit.len().min(room.len());
        room[..len].copy_from_slice(&unit[..len]);
        unit.drain(..len);
        if unit.is_empty() {
            self.said.pop_front();
        }
        len
    }
}

/// From one message to the next.
const PACE: Nanos = Nanos::from_micros(20);
