//! What always holds of a core between two iterations, and what it holds: always compiled, called by the simulator after
//! every step.

use super::connection::setup::Setup;
use super::qp::Phase;
use super::*;
use crate::context::QpState;
use crate::worker::Holdings;

impl<P: Port, C: Clock> CoreLoop<P, C> {
    /// Whether every layer's state is sound and the layers agree with each other.
    pub(super) fn examine(&mut self) -> Result<(), String> {
        for net in self.nets.iter() {
            net.check().map_err(|fault| format!("net: {fault}"))?;
        }
        self.tcp.check().map_err(|fault| format!("tcp: {fault}"))?;
        self.check_owners()?;
        self.check_senders()?;
        self.check_mail()?;
        for slot in 0..self.qps.places() {
            self.check_qp(slot).map_err(|fault| format!("queue pair at {slot}: {fault}"))?;
        }
        holds(
            "a burst or a timer's news was left behind",
            self.received.as_ref().is_some_and(|burst| burst.is_empty()) && self.fired.is_empty(),
        )?;
        let overruns = self.stats.read(Counter::VerbsCompletionOverruns);
        holds("a completion found no place", overruns == 0)
    }

    /// What the core holds now.
    pub(super) fn count_holdings(&self) -> Holdings {
        let tcp = self.tcp.holdings();
        Holdings {
            queue_pairs: self.qps.count(),
            completion_queues: self.cqs.count(),
            incoming: self.passives.count(),
            listeners: self.passives.listeners(),
            connections: tcp.connections,
            time_wait: tcp.time_wait,
            half_open: tcp.half_open,
            flows: tcp.flows,
            rx_frames: tcp.rx_frames,
            tx_units: tcp.tx_units,
            waiting_frames: self.wire.waiting_frames(),
            senders: self.ready.len(),
            resolving: self.resolving.len(),
            timers: self.armed_timers(),
            regions: self.shared.mem.regions_in_use(),
            asked: self.cqs.owners.as_ref().map_or(0, |owners| owners.unanswered()),
            in_line: self.cqs.owners.as_ref().map_or(0, |owners| owners.in_line()),
        }
    }

    fn armed_timers(&self) -> usize {
        let ids = self.qps.places() + self.passives.places();
        (0..ids).filter(|id| self.wheel.deadline(*id) != Nanos::MAX).count()
    }

    /// A connection and whoever has it name each other.
    fn check_owners(&mut self) -> Result<(), String> {
        for (place, owner) in self.owners.iter().enumerate() {
            let conn = match *owner {
                Owner::Nobody => continue,
                Owner::Qp(slot) => self.qps.at(slot).and_then(|qp| qp.conn),
                Owner::Passive(slot) => self.passives.at(slot).map(|passive| passive.conn),
            };
            holds("an owner does not know its connection", conn.is_some_and(|conn| conn.index() == place))?;
        }
        Ok(())
    }

    /// Whoever is marked as waiting for a turn waits once, and nobody else does.
    fn check_senders(&mut self) -> Result<(), String> {
        let mut marked = 0;
        for slot in 0..self.qps.places() {
            marked += usize::from(self.qps.at(slot).is_some_and(|qp| qp.queued));
        }
        for slot in 0..self.passives.places() {
            marked += usize::from(self.passives.at(slot).is_some_and(|passive| passive.queued));
        }
        holds("the list of senders and their marks disagree", marked == self.ready.len())?;
        for sender in &self.ready {
            let queued = match *sender {
                Sender::Qp(slot) => self.qps.at(slot).is_some_and(|qp| qp.queued),
                Sender::Passive(slot) => self.passives.at(slot).is_some_and(|passive| passive.queued),
            };
            holds("somebody waits for a turn without a mark", queued)?;
        }
        Ok(())
    }

    /// Whoever waits for another core is waited for by none but it.
    fn check_mail(&mut self) -> Result<(), String> {
        let Some(owners) = self.cqs.owners.as_deref() else { return Ok(()) };
        let mut mailed = 0;
        for slot in 0..self.qps.places() {
            let qp = self.qps.at(slot);
            mailed += qp.as_ref().map_or(0, |qp| qp.stream.mailed());
            let waits = usize::from(qp.is_some_and(|qp| qp.stream.awaits_credit()));
            holds("a queue pair waits for a credit, or should", owners.times_in_line(slot) == waits)?;
        }
        holds("more is waited for than was asked", mailed <= owners.unanswered())
    }

    fn check_qp(&mut self, slot: u32) -> Result<(), String> {
        let waits = self.resolving.iter().filter(|waiting| **waiting == slot).count();
        let deadline = self.wheel.deadline(slot);
        let owners = &self.owners;
        let Some(qp) = self.qps.at(slot) else {
            return holds(
                "nobody has a timer or waits for a link address",
                deadline == Nanos::MAX && waits == 0,
            );
        };
        let resolving = matches!(qp.phase, Phase::Setup(Setup::Resolving { .. }));
        holds("it waits for a link address, or should", waits == usize::from(resolving))?;
        let known = qp.conn.is_none_or(|conn| owners.get(conn.index()) == Some(&Owner::Qp(slot)));
        holds("its connection does not know it", known)?;
        // One that has just arrived is told to connect by the next message.
        let told = match qp.phase {
            Phase::Idle => matches!(qp.shared.state(), QpState::Idle | QpState::Connecting),
            _ => qp.shared.state() == qp.state_in(&qp.phase),
        };
        holds("its state is told wrongly", told)?;
        let ends =
            matches!(qp.phase, Phase::Draining | Phase::HalfClosed | Phase::Terminating | Phase::Closing);
        let must_end = ends || qp.is_coming_up();
        holds("its patience has no end", !must_end || deadline != Nanos::MAX)?;
        let (stream, io) = qp.stream_io(&mut self.cqs, &self.mem, &self.stats);
        stream.check(&io).map_err(String::from)
    }
}

fn holds(what: &str, holds: bool) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what.to_owned()) }
}
