//! The application on one host: the server of the words, or a client.
//!
//! Both connect, post, reap and disconnect at random, and check every event and completion. A fault is recorded in the
//! oracle and ends the run.

mod conn_qp;
mod events;
mod lifecycle;
mod post;
mod server;

use core::net::SocketAddr;
use std::collections::{BTreeMap, BTreeSet};

use ironwarp::{
    Access, AlignedBuf, Completion, CompletionFlags, CompletionQueue, Context, ProtectionDomain, Region,
    Stack, VerbsError,
};
use ironwarp_types::{Nanos, SeededEntropy};

use super::atomics_oracle::{AtomicsOracle, SharedAtomicsOracle};
use super::word_memory::WordMemory;
use crate::app::SharedOracle;
use crate::app::requests::Requests;
use crate::plan::{CommonConfig, HostPlan, addresses_of};
use crate::world::HostApp;
use conn_qp::ConnQp;
use server::ServerState;

/// Role index of the client in a connection.
const CLIENT: usize = 0;

/// Role index of the server.
const SERVER: usize = 1;

/// The server's port.
const PORT: u16 = 4_791;

/// Scratch bytes of one request: room for words that are read and for bytes that are written.
const SCRATCH_BYTES: usize = 64;

/// Requests of a connection that have scratch at one time: more than any send queue has entries.
const SCRATCHES: usize = 128;

/// Bytes of a receive.
const RECEIVE_BYTES: usize = 8;

/// Most posted receives of a connection.
const RECEIVES: usize = 8;

/// Fill byte of memory that was not written.
const UNTOUCHED: u8 = 0xee;

/// The longest sleep.
const POLL_DELAY_MAX: Nanos = Nanos::from_millis(20);

/// Time between the end of the last connection and the server's last check.
const QUIET_TIME: Nanos = Nanos::from_millis(20);

/// The memory of an application's requests and receives.
struct Memory {
    /// Targets of Reads and sources of Writes.
    scratch: Region,
    /// The memory of receives.
    landing: Region,
}

/// An application.
pub struct AtomicsApp {
    host: usize,
    role: usize,
    /// The server's memory.
    word_memory: Option<WordMemory>,
    /// The history stream of the server's own observations.
    stream: usize,
    ctx: Context,
    pd: ProtectionDomain,
    cq: CompletionQueue,
    /// Its memory, until it closes.
    memory: Option<Memory>,
    conn_qps: BTreeMap<usize, ConnQp>,
    by_qp: BTreeMap<u32, usize>,
    requests: Requests,
    /// Queue pairs that were destroyed.
    retired: BTreeSet<u32>,
    atomics_oracle: SharedAtomicsOracle,
    oracle: SharedOracle,
    plan: HostPlan,
    common: CommonConfig,
    rng: SeededEntropy,
    listens: bool,
    closed: bool,
    /// When all connections were over.
    over_at: Option<Nanos>,
    /// State of the server's own operations.
    server_state: ServerState,
    next_poll_at: Nanos,
    poll_delay: Nanos,
    work: usize,
}

impl AtomicsApp {
    /// Creates the application on `stack`: the server on host 0, a client elsewhere.
    pub fn new(
        host: usize,
        stack: &Stack,
        (plan, common): (&HostPlan, &CommonConfig),
        atomics_oracle: &SharedAtomicsOracle,
        oracle: &SharedOracle,
    ) -> Result<Self, VerbsError> {
        let mut ctx = stack.context()?;
        let (pd, role) = (ctx.alloc_pd(), if host == 0 { SERVER } else { CLIENT });
        let word_memory = if role == SERVER {
            Some(WordMemory::new(&ctx, pd, &atomics_oracle.borrow().plan)?)
        } else {
            None
        };
        let (cq, memory) = create_resources(&mut ctx, pd, &atomics_oracle.borrow())?;
        let stream = atomics_oracle.borrow_mut().history.new_stream();
        Ok(AtomicsApp {
            host,
            role,
            word_memory,
            stream,
            ctx,
            pd,
            cq,
            memory: Some(memory),
            conn_qps: BTreeMap::new(),
            by_qp: BTreeMap::new(),
            requests: Requests::default(),
            retired: BTreeSet::new(),
            atomics_oracle: atomics_oracle.clone(),
            oracle: oracle.clone(),
            plan: plan.clone(),
            common: common.clone(),
            rng: SeededEntropy::new(plan.seed),
            listens: false,
            closed: false,
            over_at: None,
            server_state: ServerState::default(),
            next_poll_at: Nanos::ZERO,
            poll_delay: plan.poll_interval,
            work: 0,
        })
    }

    /// Records a fault of a connection.
    fn report_failure(&self, conn: usize, what: &str) {
        self.oracle.borrow_mut().report_failure(conn, self.role, what);
    }

    /// The server's addresses.
    fn listeners(&self) -> Vec<SocketAddr> {
        let [v4, v6] = addresses_of(self.host);
        let local = [(self.common.v4, v4), (self.common.v6, v6)].into_iter().filter(|(has, _)| *has);
        local.map(|(_, address)| SocketAddr::new(address.ip(), PORT)).collect()
    }

    fn listen(&mut self) {
        let local = self.listeners();
        let outcome = local.into_iter().try_for_each(|local| self.ctx.listen(local).map(drop));
        self.listens = true;
        if let Err(error) = outcome {
            self.report_failure(usize::MAX, &format!("listening failed: {error}"));
        }
    }

    fn poll_events(&mut self, now: Nanos) {
        while let Some(event) = self.ctx.poll_event() {
            self.work += 1;
            // All earlier completions are handled before the event is checked.
            self.reap(now, usize::MAX);
            self.on_event(now, event);
        }
    }

    /// Takes up to `most` completions.
    fn reap(&mut self, now: Nanos, most: usize) {
        let mut left = most;
        while left > 0 {
            let mut some = [Completion::default(); 16];
            let room = left.min(some.len());
            let count = match self.ctx.poll_cq(self.cq, &mut some[..room]) {
                Ok(count) => count,
                Err(error) => return self.report_failure(usize::MAX, &error.to_string()),
            };
            some[..count].iter().for_each(|completion| self.on_completion(now, completion));
            (self.work, left) = (self.work + count, left - count);
            if count < room {
                return;
            }
        }
    }

    fn on_completion(&mut self, now: Nanos, completion: &Completion) {
        if completion.flags.contains(CompletionFlags::LOCAL_ATOMIC) {
            return self.on_local_completion(now, completion);
        }
        if self.retired.contains(&completion.qp.0) {
            return;
        }
        let Some(&conn) = self.by_qp.get(&completion.qp.0) else {
            return self.report_failure(
                usize::MAX,
                &format!("a completion of an unknown queue pair: {completion:?}"),
            );
        };
        let what = [completion.opcode as u8, completion.status as u8, completion.wr_id as u8];
        self.oracle.borrow_mut().hash_event(now, conn, self.role, &what);
        if let Err(fault) = self.check_completion(conn, completion) {
            self.report_failure(conn, &fault);
        }
    }
}

impl HostApp for AtomicsApp {
    fn on_core_work(&mut self, now: Nanos) {
        self.poll_delay = self.plan.poll_interval;
        let soon = now + Nanos(self.rng.below(self.plan.poll_interval.0 + 1));
        self.next_poll_at = self.next_poll_at.min(soon);
    }

    fn on_core_polled(&mut self) {
        self.record_words();
    }

    fn is_due(&self, now: Nanos) -> bool {
        now >= self.next_poll_at
    }

    fn poll(&mut self, now: Nanos) -> bool {
        self.work = 0;
        if self.closed {
            return false;
        }
        if self.role == SERVER && !self.listens {
            self.listen();
        }
        self.observe();
        self.poll_events(now);
        let most = 1 + self.rng.below(16) as usize;
        self.reap(now, most);
        self.drive_connections(now);
        self.run_local_ops();
        self.check_history_at_end(now);
        self.poll_delay = if self.work > 0 {
            self.plan.poll_interval
        } else {
            (self.poll_delay + self.poll_delay).min(POLL_DELAY_MAX)
        };
        self.next_poll_at = now + Nanos(1 + self.rng.below(self.poll_delay.0));
        self.work > 0
    }

    fn next_poll(&self) -> Option<Nanos> {
        (!self.closed).then_some(self.next_poll_at)
    }

    fn restart(&mut self, stack: &Stack, now: Nanos) -> Result<(), VerbsError> {
        let mut ctx = match stack.context() {
            // The previous context has not been cleaned up yet.
            Err(VerbsError::LimitReached(_)) => return Ok(()),
            outcome => outcome?,
        };
        let pd = ctx.alloc_pd();
        let (cq, memory) = match create_resources(&mut ctx, pd, &self.atomics_oracle.borrow()) {
            Err(VerbsError::LimitReached(_)) => return Ok(()),
            outcome => outcome?,
        };
        (self.cq, self.memory) = (cq, Some(memory));
        (self.ctx, self.pd) = (ctx, pd);
        self.by_qp.clear();
        self.retired.clear();
        let conns: Vec<usize> = std::mem::take(&mut self.conn_qps).into_keys().collect();
        for conn in conns {
            self.on_context_dropped(now, conn);
        }
        self.next_poll_at = now;
        Ok(())
    }

    fn close(&mut self) -> Result<(), String> {
        self.closed = true;
        let listeners = if self.role == SERVER { self.listeners() } else { Vec::new() };
        let outcome = listeners.into_iter().try_for_each(|local| self.ctx.unlisten(local));
        let outcome = outcome.and_then(|()| self.ctx.destroy_cq(self.cq));
        self.conn_qps.clear();
        self.memory = None;
        outcome.map_err(|error| error.to_string())
    }
}

/// Creates the objects that an application needs before its first connection.
fn create_resources(
    ctx: &mut Context,
    pd: ProtectionDomain,
    atomics_oracle: &AtomicsOracle,
) -> Result<(CompletionQueue, Memory), VerbsError> {
    let conns = atomics_oracle.conns.len();
    let cq = ctx.create_cq(4_096)?;
    let memory = |bytes| match AlignedBuf::pages(bytes) {
        Ok(pages) => pages,
        Err(error) => unreachable!("registering a few pages failed: {error}"),
    };
    let scratch = ctx.register(pd, memory(conns * SCRATCHES * SCRATCH_BYTES), Access::LOCAL_WRITE)?;
    let landing = ctx.register(pd, memory(conns * RECEIVES * RECEIVE_BYTES), Access::LOCAL_WRITE)?;
    Ok((cq, Memory { scratch, landing }))
}
