//! What keeper and callers know together: the history, and what each connection has said and must still hear.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use ironwarp::{RemoteMemory, STag};
use ironwarp_types::Nanos;

use super::checker;
use super::history::History;
use crate::app::SharedOracle;
use crate::plan::{AtomicsConnEnding, AtomicsConnPlan, AtomicsPlan};

/// The desk as every host holds it.
pub type SharedAtomicsOracle = Rc<RefCell<AtomicsOracle>>;

/// What all of them know.
pub struct AtomicsOracle {
    /// What was planned.
    pub plan: AtomicsPlan,
    /// What was asked of the words.
    pub history: History,
    /// What each word was when somebody last heard of it.
    pub latest: Vec<u64>,
    /// The connections.
    pub conns: Vec<AtomicsConn>,
}

/// One connection, or one after the other where attempts fail.
pub struct AtomicsConn {
    /// What was planned.
    pub plan: AtomicsConnPlan,
    /// Which stream of the history this attempt is.
    pub stream: usize,
    /// Where the keeper lets it reach the first word, once it is up.
    pub names: Vec<RemoteMemory>,
    /// Where its Writes go, and nothing atomic.
    pub area: RemoteMemory,
    /// Where its memory ends.
    pub beyond: RemoteMemory,
    /// The caller and the keeper.
    pub endpoints: [Endpoint; 2],
    /// When the first of them was gone.
    pub ended_at: Option<Nanos>,
    /// The end that was planned has begun.
    pub is_ending: bool,
    /// Which names of the words have ended.
    pub revoked_names: [bool; NAMES],
    /// The wrong request was posted.
    pub bad_atomic_posted: bool,
    /// The caller's context was dropped.
    pub context_dropped: bool,
    /// Attempts to connect.
    pub attempts: u32,
    /// When the next one is made.
    pub not_before: Nanos,
    /// Both are gone for good.
    pub is_over: bool,
}

/// One end of a connection.
#[derive(Default)]
pub struct Endpoint {
    /// Where it is.
    pub stage: EndpointStage,
    /// Receives that it has posted.
    pub receives: u64,
    /// Messages that it has sent.
    pub sent: u64,
    /// Messages of the other's that it has not received.
    pub incoming: VecDeque<Message>,
    /// Requests of its own that it is to be told of, and those that it has posted.
    pub open: usize,
    /// See above.
    pub posted_count: u32,
    /// Terminates that it was told of, and whether one was sent when links did no harm.
    pub terminates: u32,
    /// See above.
    pub terminated_on_clean_link: bool,
    /// Reset, or silent.
    pub was_aborted: bool,
}

/// Where an end is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum EndpointStage {
    /// It has not begun.
    #[default]
    Waiting,
    /// It is being connected.
    Connecting,
    /// It is connected.
    Up,
    /// It has asked for the end.
    Closing,
    /// It has no queue pair any more, and will have none.
    Gone,
}

/// A message on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message {
    /// Its eight octets.
    pub octets: [u8; 8],
    /// Immediate Data, or a Send.
    pub immediate: bool,
    /// Whether it asks for an event.
    pub solicited: bool,
    /// The place in the area that was written before it, and the bytes.
    pub written: Option<(usize, [u8; WRITE_BYTES])>,
}

/// Names that a connection has for the words: the region itself, a window and a fast region.
pub const NAMES: usize = 3;

/// Bytes of a Write.
pub const WRITE_BYTES: usize = 16;

impl AtomicsOracle {
    /// A desk of connections that have not begun. They, and the keeper's last look, are what a run waits for.
    pub fn new(plan: &AtomicsPlan, oracle: &SharedOracle) -> SharedAtomicsOracle {
        let conns: Vec<AtomicsConn> = plan.conns.iter().map(AtomicsConn::new).collect();
        oracle.borrow_mut().open = conns.len() + 1;
        Rc::new(RefCell::new(AtomicsOracle {
            plan: plan.clone(),
            history: History::default(),
            latest: vec![0; plan.words],
            conns,
        }))
    }

    /// Whether every connection has come and gone.
    pub fn is_over(&self) -> bool {
        self.conns.iter().all(|conn| conn.is_over)
    }

    /// Whether the history can be, where the words end like this. Answers how many states were looked at to know.
    pub fn check(&self, end: &[u64]) -> Result<usize, String> {
        checker::check(&self.history, end)
    }

    /// Connections that are not over, in words.
    pub fn describe_open(&self) -> String {
        let open = self.conns.iter().enumerate().filter(|(_, conn)| !conn.is_over);
        let words = open.map(|(number, conn)| {
            let end = |end: &Endpoint| format!("{:?} {} open {} in", end.stage, end.open, end.incoming.len());
            format!(
                "call {number}: {:?} [{} | {}]; ",
                conn.plan.ending,
                end(&conn.endpoints[0]),
                end(&conn.endpoints[1])
            )
        });
        words.collect()
    }
}

impl AtomicsConn {
    fn new(plan: &AtomicsConnPlan) -> Self {
        AtomicsConn {
            not_before: plan.start,
            plan: plan.clone(),
            stream: 0,
            names: Vec::new(),
            area: RemoteMemory { stag: STag(0), tagged_offset: 0 },
            beyond: RemoteMemory { stag: STag(0), tagged_offset: 0 },
            endpoints: <[Endpoint; 2]>::default(),
            ended_at: None,
            is_ending: false,
            revoked_names: [false; NAMES],
            bad_atomic_posted: false,
            context_dropped: false,
            attempts: 0,
            is_over: false,
        }
    }

    /// An end and the other one.
    pub fn split(&mut self, role: usize) -> (&mut Endpoint, &mut Endpoint) {
        let [client, server] = &mut self.endpoints;
        if role == 0 { (client, server) } else { (server, client) }
    }

    /// An end has gone for good.
    pub fn mark_gone(&mut self, now: Nanos, role: usize) {
        self.endpoints[role].stage = EndpointStage::Gone;
        self.ended_at.get_or_insert(now);
    }

    /// Whether nothing more can come of it. A caller that has gone has nobody to connect to the keeper.
    pub fn has_ended(&self) -> bool {
        let [client, server] = &self.endpoints;
        client.stage == EndpointStage::Gone
            && matches!(server.stage, EndpointStage::Gone | EndpointStage::Waiting)
    }

    /// A request that must not be: one by a name that has ended.
    pub fn may_be_refused(&self) -> bool {
        self.revoked_names.iter().any(|ended| *ended)
    }

    /// RFC 7306 s8: a request that must not be is answered by the Terminate that names it, and both are told.
    pub fn check_result(&self) -> Result<(), String> {
        let [client, server] = &self.endpoints;
        let is_planned =
            matches!(self.plan.ending, AtomicsConnEnding::Graceful | AtomicsConnEnding::Revoked { .. });
        let is_told = is_planned && client.terminates + server.terminates > 0;
        if !(self.bad_atomic_posted || is_told) || self.context_dropped {
            return Ok(());
        }
        let missed = client.was_aborted && !server.terminated_on_clean_link;
        if server.terminates == 1 && (client.terminates == 1 || missed) {
            return Ok(());
        }
        Err(format!(
            "{:?} was told of to the caller {} and to the keeper {} times",
            self.plan.ending, client.terminates, server.terminates
        ))
    }
}
