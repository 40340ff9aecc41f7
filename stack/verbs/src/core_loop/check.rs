//! What always holds of a core between two iterations, and what it holds: always compiled, called by the simulator after
//! every step.

use super::connection::setup::Setup;
use super::qp::Phase;
use super::*;
use crate::context::QpState;
use crate::worker::ResourceUsage;

impl<P: Port, C: Clock> CoreLoop<P, C> {
    /// Whether every layer's state is sound and the layers agree with each other.
    pub(super) fn check_invariants(&mut self) -> Result<(), String> {
        for net in self.nets.iter() {
            net.check().map_err(|fault| format!("net: {fault}"))?;
        }
        self.tcp.check().map_err(|fault| format!("tcp: {fault}"))?;
        self.check_conn_owners()?;
        self.check_tx_ready()?;
        self.check_remote_atomics()?;
        for slot in 0..self.qps.capacity() {
            self.check_qp(slot).map_err(|fault| format!("queue pair at {slot}: {fault}"))?;
        }
        ensure(
            "a burst or a timer's news was left behind",
            self.rx_burst.as_ref().is_some_and(|burst| burst.is_empty()) && self.timer_events.is_empty(),
        )?;
        let overruns = self.stats.read(Counter::VerbsCqOverruns);
        ensure("a completion found no place", overruns == 0)
    }

    /// What the core holds now.
    pub(super) fn count_holdings(&self) -> ResourceUsage {
        let tcp = self.tcp.resource_usage();
        ResourceUsage {
            queue_pairs: self.qps.count(),
            completion_queues: self.queues.count(),
            incoming: self.passives.count(),
            listeners: self.passives.listeners(),
            connections: tcp.connections,
            time_wait: tcp.time_wait,
            half_open: tcp.half_open,
            flows: tcp.flows,
            rx_frames: tcp.rx_frames,
            tx_units: tcp.tx_units,
            waiting_frames: self.wire.waiting_frames(),
            ready_senders: self.tx_ready.len(),
            resolving: self.resolving.len(),
            timers: self.armed_timers(),
            regions: self.shared.mem.regions_in_use(),
            remote_atomics_outstanding: self
                .queues
                .remote_atomics
                .as_ref()
                .map_or(0, |remote_atomics| remote_atomics.outstanding()),
            remote_atomics_waiting: self
                .queues
                .remote_atomics
                .as_ref()
                .map_or(0, |remote_atomics| remote_atomics.waiting_for_credit()),
        }
    }

    fn armed_timers(&self) -> usize {
        let ids = self.qps.capacity() + self.passives.capacity();
        (0..ids).filter(|id| self.wheel.deadline(*id) != Nanos::MAX).count()
    }

    /// A connection and whoever has it name each other.
    fn check_conn_owners(&mut self) -> Result<(), String> {
        for (index, owner) in self.conn_owners.iter().enumerate() {
            let conn = match *owner {
                ConnOwner::Unowned => continue,
                ConnOwner::Qp(slot) => self.qps.at(slot).and_then(|qp| qp.conn),
                ConnOwner::Passive(slot) => self.passives.at(slot).map(|passive| passive.conn),
            };
            ensure("an owner does not know its connection", conn.is_some_and(|conn| conn.index() == index))?;
        }
        Ok(())
    }

    /// Whoever is marked as waiting for a turn waits once, and nobody else does.
    fn check_tx_ready(&mut self) -> Result<(), String> {
        let mut marked = 0;
        for slot in 0..self.qps.capacity() {
            marked += usize::from(self.qps.at(slot).is_some_and(|qp| qp.tx_queued));
        }
        for slot in 0..self.passives.capacity() {
            marked += usize::from(self.passives.at(slot).is_some_and(|passive| passive.tx_queued));
        }
        ensure("the list of senders and their marks disagree", marked == self.tx_ready.len())?;
        for source in &self.tx_ready {
            let tx_queued = match *source {
                TxSource::Qp(slot) => self.qps.at(slot).is_some_and(|qp| qp.tx_queued),
                TxSource::Passive(slot) => self.passives.at(slot).is_some_and(|passive| passive.tx_queued),
            };
            ensure("somebody waits for a turn without a mark", tx_queued)?;
        }
        Ok(())
    }

    /// Whoever waits for another core is waited for by none but it.
    fn check_remote_atomics(&mut self) -> Result<(), String> {
        let Some(remote_atomics) = self.queues.remote_atomics.as_deref() else { return Ok(()) };
        let mut mailed = 0;
        for slot in 0..self.qps.capacity() {
            let qp = self.qps.at(slot);
            mailed += qp.as_ref().map_or(0, |qp| qp.stream.forwarded());
            let waits = usize::from(qp.is_some_and(|qp| qp.stream.awaits_forward_credit()));
            ensure(
                "a queue pair waits for a credit, or should",
                remote_atomics.credit_wait_count(slot) == waits,
            )?;
        }
        ensure("more is waited for than was asked", mailed <= remote_atomics.outstanding())
    }

    fn check_qp(&mut self, slot: u32) -> Result<(), String> {
        let waits = self.resolving.iter().filter(|waiting| **waiting == slot).count();
        let deadline = self.wheel.deadline(slot);
        let conn_owners = &self.conn_owners;
        let Some(qp) = self.qps.at(slot) else {
            return ensure(
                "nobody has a timer or waits for a link address",
                deadline == Nanos::MAX && waits == 0,
            );
        };
        let resolving = matches!(qp.phase, Phase::Setup(Setup::Resolving { .. }));
        ensure("it waits for a link address, or should", waits == usize::from(resolving))?;
        let known = qp.conn.is_none_or(|conn| conn_owners.get(conn.index()) == Some(&ConnOwner::Qp(slot)));
        ensure("its connection does not know it", known)?;
        // One that has just arrived is told to connect by the next message.
        let told = match qp.phase {
            Phase::Idle => matches!(qp.shared.state(), QpState::Idle | QpState::Connecting),
            _ => qp.shared.state() == qp.state_for(&qp.phase),
        };
        ensure("its state is told wrongly", told)?;
        let ends =
            matches!(qp.phase, Phase::Draining | Phase::HalfClosed | Phase::Terminating | Phase::Closing);
        let must_end = ends || qp.is_connecting();
        ensure("its patience has no end", !must_end || deadline != Nanos::MAX)?;
        let (stream, io) = qp.stream_io(&mut self.queues, &self.mem, &self.stats);
        stream.check(&io).map_err(String::from)
    }
}

fn ensure(what: &str, condition: bool) -> Result<(), String> {
    if condition { Ok(()) } else { Err(what.to_owned()) }
}
