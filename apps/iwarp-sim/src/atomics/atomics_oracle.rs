//! State that server and clients share: the history, and the messages and events that each connection expects.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use ironwarp::{RemoteMemory, STag};
use ironwarp_types::Nanos;

use super::checker;
use super::history::History;
use crate::app::SharedOracle;
use crate::plan::{AtomicsConnEnding, AtomicsConnPlan, AtomicsPlan};

/// The oracle as every host holds it.
pub type SharedAtomicsOracle = Rc<RefCell<AtomicsOracle>>;

/// The shared state.
pub struct AtomicsOracle {
    /// The plan.
    pub plan: AtomicsPlan,
    /// All operations on the words.
    pub history: History,
    /// The last known value of each word.
    pub latest: Vec<u64>,
    /// The connections.
    pub conns: Vec<AtomicsConn>,
}

/// One connection, or successive attempts of it.
pub struct AtomicsConn {
    /// Its plan.
    pub plan: AtomicsConnPlan,
    /// The history stream of this attempt.
    pub stream: usize,
    /// The address of the first word, once it is established.
    pub names: Vec<RemoteMemory>,
    /// The target of its Writes; no atomic operation uses it.
    pub area: RemoteMemory,
    /// The end of its memory.
    pub beyond: RemoteMemory,
    /// The client and the server.
    pub endpoints: [Endpoint; 2],
    /// When the first endpoint ended.
    pub ended_at: Option<Nanos>,
    /// The planned ending has begun.
    pub is_ending: bool,
    /// Which tags of the words were invalidated.
    pub revoked_names: [bool; NAMES],
    /// The bad request was posted.
    pub bad_atomic_posted: bool,
    /// The client's context was dropped.
    pub context_dropped: bool,
    /// Damaged frames have ended it: any error may be reported, or none.
    pub is_damaged: bool,
    /// Connection attempts so far.
    pub attempts: u32,
    /// Time of the next attempt.
    pub not_before: Nanos,
    /// Both endpoints have ended for good.
    pub is_over: bool,
}

/// One endpoint of a connection.
#[derive(Default)]
pub struct Endpoint {
    /// Its stage.
    pub stage: EndpointStage,
    /// Receives that it has posted.
    pub receives: u64,
    /// Messages that it has sent.
    pub sent: u64,
    /// Messages of the peer that it has not received.
    pub incoming: VecDeque<Message>,
    /// Its own signaled requests without a completion, and the requests it has posted.
    pub open: usize,
    /// See above.
    pub posted_count: u32,
    /// Terminate events, and whether a Terminate was sent after the links healed.
    pub terminates: u32,
    /// See above.
    pub terminated_on_clean_link: bool,
    /// Its connection was reset or timed out.
    pub was_aborted: bool,
}

/// The stage of an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum EndpointStage {
    /// It has not begun.
    #[default]
    Waiting,
    /// It is being connected.
    Connecting,
    /// It is connected.
    Up,
    /// It has called disconnect.
    Closing,
    /// Its queue pair is destroyed, and it will have no other.
    Gone,
}

/// A message in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message {
    /// Its eight octets.
    pub octets: [u8; 8],
    /// Immediate Data, or a Send.
    pub immediate: bool,
    /// Whether it asks for an event.
    pub solicited: bool,
    /// The slot of the area that was written before it, and the bytes.
    pub written: Option<(usize, [u8; WRITE_BYTES])>,
}

/// Tags of the words that a connection has: the region itself, a window and a fast region.
pub const NAMES: usize = 3;

/// Bytes of a Write.
pub const WRITE_BYTES: usize = 16;

impl AtomicsOracle {
    /// The oracle of connections that have not begun. The run waits for them and for the server's last check.
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

    /// Returns whether every connection is over.
    pub fn is_over(&self) -> bool {
        self.conns.iter().all(|conn| conn.is_over)
    }

    /// Checks that the history is linearizable with these final words. Returns how many states were visited.
    pub fn check(&self, end: &[u64]) -> Result<usize, String> {
        checker::check(&self.history, end)
    }

    /// Describes the connections that are not over.
    pub fn describe_open(&self) -> String {
        let open = self.conns.iter().enumerate().filter(|(_, conn)| !conn.is_over);
        let words = open.map(|(number, conn)| {
            let end = |end: &Endpoint| format!("{:?} {} open {} in", end.stage, end.open, end.incoming.len());
            format!(
                "connection {number}: {:?} [{} | {}]; ",
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
            is_damaged: false,
            attempts: 0,
            is_over: false,
        }
    }

    /// Returns an endpoint and its peer.
    pub fn split(&mut self, role: usize) -> (&mut Endpoint, &mut Endpoint) {
        let [client, server] = &mut self.endpoints;
        if role == 0 { (client, server) } else { (server, client) }
    }

    /// An endpoint has ended for good.
    pub fn mark_gone(&mut self, now: Nanos, role: usize) {
        self.endpoints[role].stage = EndpointStage::Gone;
        self.ended_at.get_or_insert(now);
    }

    /// Returns whether the connection is over. A client that has ended never connects again.
    pub fn has_ended(&self) -> bool {
        let [client, server] = &self.endpoints;
        client.stage == EndpointStage::Gone
            && matches!(server.stage, EndpointStage::Gone | EndpointStage::Waiting)
    }

    /// Returns whether a request may fail because its tag was invalidated.
    pub fn may_be_refused(&self) -> bool {
        self.revoked_names.iter().any(|ended| *ended)
    }

    /// RFC 7306 s8: a bad request is answered by the Terminate that names its error, and both endpoints get the event.
    pub fn check_result(&self) -> Result<(), String> {
        let [client, server] = &self.endpoints;
        let is_planned =
            matches!(self.plan.ending, AtomicsConnEnding::Graceful | AtomicsConnEnding::Revoked { .. });
        let is_reported = is_planned && client.terminates + server.terminates > 0;
        if !(self.bad_atomic_posted || is_reported) || self.context_dropped || self.is_damaged {
            return Ok(());
        }
        let missed = client.was_aborted && !server.terminated_on_clean_link;
        if server.terminates == 1 && (client.terminates == 1 || missed) {
            return Ok(());
        }
        Err(format!(
            "{:?} raised {} events at the client and {} at the server",
            self.plan.ending, client.terminates, server.terminates
        ))
    }
}
