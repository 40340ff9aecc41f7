//! The invariants of a core between two iterations, and a count of its objects. Compiled in every
//! build; the simulator calls it after every step.

use ironwarp_iwarp::stream::StreamState;
use ironwarp_llp::Transport;
use ironwarp_stats::Counter;
use ironwarp_types::{Clock, Nanos};

use super::CoreLoop;
use super::data_path::{ConnOwner, TxSource};
use super::lifecycle::StateName;
use super::lower::Lower;
use crate::objects::QpState;
use crate::worker::ResourceUsage;

impl<L: Lower, C: Clock> CoreLoop<L, C> {
    /// Checks that every layer's state is sound and that the layers agree with each other.
    pub(super) fn check_invariants(&mut self) -> Result<(), String> {
        for net in self.dp.nets.iter() {
            net.check().map_err(|fault| format!("net: {fault}"))?;
        }
        self.dp.llp.check().map_err(|fault| format!("tcp: {fault}"))?;
        self.check_conn_owners()?;
        self.check_tx_ready()?;
        self.check_remote_atomics()?;
        for slot in 0..self.dp.qps.capacity() {
            self.check_qp(slot).map_err(|fault| format!("queue pair at {slot}: {fault}"))?;
        }
        ensure(
            "a burst or a timer event is not handled",
            self.dp.rx_burst.as_ref().is_some_and(|burst| burst.is_empty())
                && self.dp.timer_events.is_empty(),
        )?;
        let overruns = self.dp.stats.read(Counter::VerbsCqOverruns);
        ensure("a completion queue was full", overruns == 0)
    }

    /// Counts the core's objects.
    pub(super) fn count_holdings(&self) -> ResourceUsage {
        let tcp = self.dp.llp.resource_usage();
        ResourceUsage {
            queue_pairs: self.dp.qps.count(),
            completion_queues: self.dp.queues.count(),
            incoming: self.cm.passives.count(),
            listeners: self.cm.passives.listeners(),
            connections: tcp.connections,
            time_wait: tcp.time_wait,
            half_open: tcp.half_open,
            flows: tcp.flows,
            rx_frames: tcp.rx_frames,
            tx_units: tcp.tx_units,
            waiting_frames: self.dp.wires.waiting_frames(),
            ready_senders: self.dp.tx_ready.len(),
            resolving: self.cm.resolving.len(),
            timers: self.cm.armed_timers(),
            regions: self.shared.mem.regions_in_use(),
            remote_atomics_outstanding: self
                .dp
                .queues
                .remote_atomics
                .as_ref()
                .map_or(0, |remote_atomics| remote_atomics.outstanding()),
            remote_atomics_waiting: self
                .dp
                .queues
                .remote_atomics
                .as_ref()
                .map_or(0, |remote_atomics| remote_atomics.waiting_for_credit()),
        }
    }

    /// A connection and its owner refer to each other.
    fn check_conn_owners(&mut self) -> Result<(), String> {
        for (index, owner) in self.dp.conn_owners.iter().enumerate() {
            let conn = match *owner {
                ConnOwner::Unowned => continue,
                ConnOwner::Qp(slot) => self.dp.qps.at(slot).and_then(|qp| qp.conn),
                ConnOwner::Passive(slot) => self.cm.passives.at(slot).map(|passive| passive.conn),
            };
            ensure("an owner and its connection disagree", conn.is_some_and(|conn| conn.index() == index))?;
        }
        Ok(())
    }

    /// A sender is listed once if it is marked as listed, else not at all.
    fn check_tx_ready(&mut self) -> Result<(), String> {
        let mut marked = 0;
        for slot in 0..self.dp.qps.capacity() {
            marked += usize::from(self.dp.qps.at(slot).is_some_and(|qp| qp.tx_queued));
        }
        for slot in 0..self.cm.passives.capacity() {
            marked += usize::from(self.cm.passives.at(slot).is_some_and(|passive| passive.tx_queued));
        }
        ensure("the list of senders and their marks disagree", marked == self.dp.tx_ready.len())?;
        for source in &self.dp.tx_ready {
            let tx_queued = match *source {
                TxSource::Qp(slot) => self.dp.qps.at(slot).is_some_and(|qp| qp.tx_queued),
                TxSource::Passive(slot) => self.cm.passives.at(slot).is_some_and(|passive| passive.tx_queued),
            };
            ensure("a listed sender is not marked", tx_queued)?;
        }
        Ok(())
    }

    /// A queue pair that waits for a credit is in one list; requests of streams are counted as
    /// outstanding.
    fn check_remote_atomics(&mut self) -> Result<(), String> {
        let Some(remote_atomics) = self.dp.queues.remote_atomics.as_deref() else { return Ok(()) };
        let mut mailed = 0;
        for slot in 0..self.dp.qps.capacity() {
            let qp = self.dp.qps.at(slot);
            mailed += qp.as_ref().map_or(0, |qp| qp.stream.forwarded());
            let waits = usize::from(qp.is_some_and(|qp| qp.stream.awaits_forward_credit()));
            ensure(
                "the list for credits and a queue pair disagree",
                remote_atomics.credit_wait_count(slot) == waits,
            )?;
        }
        ensure("streams wait for more replies than are outstanding", mailed <= remote_atomics.outstanding())
    }

    fn check_qp(&mut self, slot: u32) -> Result<(), String> {
        let waits = self.cm.resolving.iter().filter(|waiting| **waiting == slot).count();
        let deadline = self.cm.deadline_of(slot);
        let conn_owners = &self.dp.conn_owners;
        let Some(qp) = self.dp.qps.at(slot) else {
            return ensure(
                "a free slot has a timer or waits for a route",
                deadline == Nanos::MAX && waits == 0,
            );
        };
        let state = qp.lifecycle.name();
        ensure(
            "the list for routes and the state disagree",
            waits == usize::from(state == StateName::Resolving),
        )?;
        let known = qp.conn.is_none_or(|conn| conn_owners.get(conn.index()) == Some(&ConnOwner::Qp(slot)));
        ensure("its connection has another owner", known)?;
        // The application's half publishes `Connecting` before the next message connects the queue
        // pair.
        let told = match state {
            StateName::Idle => matches!(qp.shared.state(), QpState::Idle | QpState::Connecting),
            _ => qp.shared.state() == qp.lifecycle.qp_state(),
        };
        ensure("the published state is another", told)?;
        ensure(
            "its stream is in another state than its connection",
            stream_agrees(state, qp.stream.state()),
        )?;
        let ends = matches!(
            state,
            StateName::Draining | StateName::HalfClosed | StateName::Terminating | StateName::Closing
        );
        let must_end = ends || qp.lifecycle.is_connecting();
        ensure("it has no deadline", !must_end || deadline != Nanos::MAX)?;
        let (stream, io) = qp.stream_io(&mut self.dp.queues, &self.dp.mem, &self.dp.stats);
        stream.check(&io).map_err(String::from)
    }
}

/// Returns whether the stream's state is one that the connection's state allows between two
/// iterations.
fn stream_agrees(state: StateName, stream: StreamState) -> bool {
    match state {
        StateName::Idle
        | StateName::Resolving
        | StateName::Opening
        | StateName::Requesting
        | StateName::Replying => stream == StreamState::Idle,
        StateName::AwaitingRtr | StateName::Running | StateName::Draining | StateName::HalfClosed => {
            stream == StreamState::Open
        }
        StateName::Terminating => matches!(stream, StreamState::Terminating | StreamState::Ended),
        StateName::Closing | StateName::Ended => stream == StreamState::Ended,
    }
}

fn ensure(what: &str, condition: bool) -> Result<(), String> {
    if condition { Ok(()) } else { Err(what.to_owned()) }
}
