//! Processing of acknowledgements and timers during loss recovery.
//!
//! Each acknowledgement passes the same steps: apply the delivered data to the units, mark lost
//! units, change the phase, set the window, set the timer, and send what the windows permit.

use ironwarp_port::Port;
use ironwarp_stats::Counter;
use ironwarp_types::{Nanos, Seq};

use super::RecoveryPhase;
use super::rack::DUP_ACK_THRESHOLD;
use super::scoreboard::nodes_max;
use super::tlp::TlpOutcome;
use crate::TcpEvents;
use crate::congestion::{Acked, CongestionSignal, Prr};
use crate::conn::{Conn, Timer};
use crate::header::{Flags, SackBlock, Segment};
use crate::output::TcpIo;
use crate::queue::UnitState;

/// The relevant contents of one acknowledgement.
#[derive(Clone, Copy, Debug)]
struct AckInfo {
    una_before: Seq,
    /// Newly acknowledged sequence numbers.
    advanced: u32,
    /// Newly delivered sequence numbers, acknowledged or SACKed (DeliveredData of RFC 6937).
    delivered: u32,
    /// The range that the peer received twice.
    dsack: Option<SackBlock>,
    /// The ACK echoes a congestion mark.
    echo: bool,
}

impl Conn {
    /// Processes an acknowledgement of SND.UNA or beyond in recovery.
    #[cold]
    pub(crate) fn on_ack_in_recovery<P: Port>(
        &mut self,
        io: &mut TcpIo<'_, P>,
        segment: &Segment,
        events: &mut TcpEvents,
    ) {
        self.snd.recovery.active = true;
        let (una_before, sacked_before) = (self.snd.snd_una, self.snd.board.sacked);
        let advanced = self.advance_una(io, segment.ack, events);
        let dsack = if self.opts.sack { self.take_sacks(io, segment, una_before) } else { None };
        let duplicate = advanced == 0 && !segment.options.has_sack() && self.is_duplicate_ack(segment);
        if duplicate {
            io.count(Counter::TcpRxDuplicateAcks);
        }
        if !self.opts.sack {
            self.count_duplicate_ack(advanced, duplicate);
        }
        let delivered = (advanced + self.snd.board.sacked).saturating_sub(sacked_before);
        let echo = self.opts.ecn && segment.has(Flags::ECE);
        self.process_tlp_ack(una_before, segment.ack, dsack, duplicate);
        self.update_recovery(io, AckInfo { una_before, advanced, delivered, dsack, echo }, events);
        if duplicate || delivered > 0 {
            self.notify_writable(events);
        }
    }

    /// Applies the valid SACK blocks (RFC 2018 s4) and returns the duplicate SACK (RFC 2883 s4):
    /// the first block, if it lies below the acknowledgement or within the second block.
    fn take_sacks<P: Port>(
        &mut self,
        io: &mut TcpIo<'_, P>,
        segment: &Segment,
        una_before: Seq,
    ) -> Option<SackBlock> {
        let snd = &mut self.snd;
        let (una, snd_nxt) = (snd.snd_una, snd.snd_nxt);
        let mut blocks = segment.options.sack();
        let within =
            |inner: &SackBlock, outer: &SackBlock| outer.start.leq(inner.start) && inner.end.leq(outer.end);
        let twice = match blocks.as_slice() {
            [first, ..] if first.end.leq(segment.ack) => Some(*first),
            [first, second, ..] if within(first, second) => Some(*first),
            _ => None,
        };
        // A block of unsent data is invalid; one below the new SND.UNA is old.
        blocks.retain(|block| block.end.leq(snd_nxt) && una.lt(block.end) && una_before.leq(block.start));
        for block in &mut blocks {
            block.start = block.start.max(una);
        }
        let (rack, now) = (&mut snd.recovery.rack, io.now);
        let delivered = &mut |unit| rack.on_delivered(now, unit);
        let nodes_max = nodes_max(snd_nxt.since(una), snd.emss);
        snd.board.sack(&mut io.shared.tx, &mut snd.retained, una, (&mut blocks, nodes_max), delivered);
        twice.filter(|block| block.end.leq(snd_nxt))
    }

    /// RFC 5681 s2: outstanding data, no payload, no SYN or FIN, no new acknowledgement, the same
    /// window. The answer to a spurious probe also counts when nothing is outstanding
    /// (RFC 8985 s7.4.2).
    pub(crate) fn is_duplicate_ack(&self, segment: &Segment) -> bool {
        let window = u32::from(segment.window) << self.snd.wscale;
        segment.ack == self.snd.snd_una
            && segment.len() == 0
            && !segment.has(Flags::SYN | Flags::FIN)
            && (self.snd.outstanding() || self.snd.recovery.tlp.is_pending())
            && window == self.snd.snd_wnd
            && window > 0
    }

    /// Without SACK, every duplicate ACK stands for one delivered segment (RFC 6582 s3.2,
    /// RFC 6937 s3). An ACK that advances subtracts the segments that were counted before.
    fn count_duplicate_ack(&mut self, advanced: u32, duplicate: bool) {
        let snd = &mut self.snd;
        let emss = u32::from(snd.emss);
        if advanced > 0 {
            let (kept, recovery) =
                (snd.board.sacked.saturating_sub(advanced.saturating_sub(emss)), &mut snd.recovery);
            let fast = recovery.phase == RecoveryPhase::FastRecovery && snd.snd_una.lt(recovery.recover);
            snd.board.sacked = if fast { kept } else { 0 };
            recovery.dup_acks = 0;
        } else if duplicate && snd.recovery.phase != RecoveryPhase::Loss {
            snd.recovery.dup_acks = snd.recovery.dup_acks.saturating_add(1);
            snd.board.sacked += emss;
        }
        // The first segment is missing, so it is not counted.
        let most = snd.flight().saturating_sub(snd.board.lost).saturating_sub(emss);
        snd.board.sacked = snd.board.sacked.min(most);
    }

    /// RFC 8985 s7.4.2: a loss that the probe repaired reduces the window like any loss.
    fn process_tlp_ack(&mut self, una_before: Seq, ack: Seq, dsack: Option<SackBlock>, duplicate: bool) {
        let recovery = &mut self.snd.recovery;
        let outcome = recovery.tlp.on_ack(ack, dsack.map(|block| block.end), duplicate);
        if outcome == TlpOutcome::Repaired && recovery.phase == RecoveryPhase::Open {
            self.reduce(CongestionSignal::Loss, RecoveryPhase::Cwr, una_before);
        }
    }

    fn update_recovery<P: Port>(&mut self, io: &mut TcpIo<'_, P>, ack_info: AckInfo, events: &mut TcpEvents) {
        if self.try_undo(&ack_info) {
            io.count(Counter::TcpDsackUndos);
        }
        let recovery = &self.snd.recovery;
        let was_reducing = recovery.is_reducing();
        if recovery.phase != RecoveryPhase::Open && recovery.recover.leq(self.snd.snd_una) {
            self.leave_recovery();
        }
        self.expire_stale_state();
        if ack_info.echo
            && self.snd.recovery.phase == RecoveryPhase::Open
            && !self.snd.recovery.before_recover
        {
            // RFC 3168 s6.1.2: at most one reduction per round trip. The peer echoes until it
            // receives CWR, which is sent beyond `recover`.
            io.count(Counter::TcpEcnReductions);
            if self.snd.cc.is_one_segment() {
                self.hold(io.now, ack_info.una_before);
            } else {
                self.reduce(CongestionSignal::Ecn, RecoveryPhase::Cwr, ack_info.una_before);
            }
        }
        let recheck_at = self.find_losses(io, &ack_info);
        self.update_cwnd(io.now, &ack_info, was_reducing);
        self.set_timer(io, ack_info.delivered > 0, recheck_at);
        self.update_active();
        if ack_info.advanced > 0 {
            self.notify_writable(events);
        }
        self.transmit_retained(io, events);
        io.arm(self);
    }

    /// Marks lost units and starts their repair. Returns when to check again.
    fn find_losses<P: Port>(&mut self, io: &mut TcpIo<'_, P>, ack_info: &AckInfo) -> Option<Nanos> {
        let lost_before = self.snd.board.lost;
        let recheck_at = if self.opts.sack {
            self.find_losses_by_rack(io)
        } else {
            self.find_loss_by_count(io, ack_info.advanced > 0)
        };
        if self.snd.board.lost > lost_before && !self.snd.recovery.in_loss_recovery() {
            io.count(Counter::TcpFastRetransmits);
            self.reduce(CongestionSignal::Loss, RecoveryPhase::FastRecovery, ack_info.una_before);
        }
        recheck_at
    }

    fn find_losses_by_rack<P: Port>(&mut self, io: &mut TcpIo<'_, P>) -> Option<Nanos> {
        let (pipe, srtt) = (self.snd.pipe(), self.snd.rtt.srtt());
        let snd = &mut self.snd;
        let window = snd.recovery.rack.reo_wnd(snd.recovery.in_loss_recovery(), snd.board.sacked_units, srtt);
        let rack = &snd.recovery.rack;
        snd.board.detect_loss(&mut io.shared.tx, &snd.retained, pipe, rack, io.now, window).recheck_at
    }

    /// RFC 6582 s3.2: the third duplicate ACK indicates one loss, and every partial acknowledgement
    /// the next. Retransmissions can cause duplicate ACKs too, so these count only after something
    /// beyond `recover` is acknowledged.
    fn find_loss_by_count<P: Port>(&mut self, io: &mut TcpIo<'_, P>, advanced: bool) -> Option<Nanos> {
        let snd = &mut self.snd;
        let recovery = &snd.recovery;
        let partial = advanced && recovery.phase == RecoveryPhase::FastRecovery;
        let third = u16::from(recovery.dup_acks) == DUP_ACK_THRESHOLD
            && !recovery.in_loss_recovery()
            && (!recovery.before_recover || recovery.phase == RecoveryPhase::Cwr);
        let first = io.shared.tx.front(&snd.retained);
        if (partial || third)
            && first.is_some_and(|unit| unit.state == UnitState::InFlight && !(partial && unit.retransmitted))
        {
            snd.board.mark_lost(&mut io.shared.tx, snd.retained.head());
        }
        None
    }

    /// Reduces the window and enters a phase. One reduction covers all data in flight when it
    /// began, which is the data before the ACK of `una_before` or later.
    fn reduce(&mut self, signal: CongestionSignal, phase: RecoveryPhase, una_before: Seq) {
        let snd = &mut self.snd;
        let flight = snd.snd_nxt.since(una_before);
        if snd.recovery.phase == RecoveryPhase::Open {
            // RFC 5681 s3.2: what limited transmit sent beyond the window does not count.
            snd.cc.on_congestion(signal, flight.min(snd.cc.cwnd()));
            snd.recovery.undo_retransmits = (signal == CongestionSignal::Loss).then_some(0);
        }
        snd.recovery.phase = phase;
        snd.recovery.enter(snd.snd_nxt);
        snd.recovery.prr = Prr::new(flight);
    }

    /// RFC 3168 s6.1.2: the rate of a window of one segment falls further only with the time
    /// between segments. Holds new payload back until the retransmission timer expires, which
    /// starts again here. A FIN, which no window delays, and retransmissions are not held.
    fn hold(&mut self, now: Nanos, una_before: Seq) {
        let snd = &mut self.snd;
        snd.cc.on_congestion(CongestionSignal::Ecn, snd.snd_nxt.since(una_before));
        snd.cc.set_cwnd(u32::from(snd.emss));
        snd.recovery.enter(snd.snd_nxt);
        snd.recovery.held = true;
        snd.restart_rto(now);
        if !snd.outstanding() {
            // The peer owes nothing, so the user timeout does not run.
            snd.progress_at = snd.rto_at;
        }
    }

    /// The timer expired that held new payload back.
    #[cold]
    pub(crate) fn end_hold<P: Port>(&mut self, io: &mut TcpIo<'_, P>, events: &mut TcpEvents) {
        self.snd.recovery.held = false;
        if !self.snd.outstanding() {
            self.snd.stop_timer();
            self.snd.progress_at = io.now;
        }
        self.update_active();
        self.notify_writable(events);
    }

    /// Clears stale sequence numbers before they could be taken for future ones.
    fn expire_stale_state(&mut self) {
        let (una, recovery) = (self.snd.snd_una, &mut self.snd.recovery);
        if recovery.phase == RecoveryPhase::Open {
            recovery.before_recover &= una.leq(recovery.recover);
            recovery.undo_retransmits = recovery.undo_retransmits.filter(|_| una.leq(recovery.undo_until));
        }
    }

    /// All data that was in flight when the phase began is acknowledged.
    fn leave_recovery(&mut self) {
        let snd = &mut self.snd;
        if snd.recovery.is_reducing() {
            // RFC 6937 s3: recovery ends with the window at ssthresh.
            snd.cc.set_cwnd(snd.cc.ssthresh());
        }
        if snd.recovery.in_loss_recovery() {
            snd.recovery.rack.on_recovered();
        }
        if !self.opts.sack {
            snd.board.sacked = 0;
        }
        (snd.recovery.phase, snd.recovery.dup_acks) = (RecoveryPhase::Open, 0);
        snd.recovery.undo_until = snd.snd_nxt;
    }

    /// RFC 2883 s4 and RFC 8985 s6.2: a duplicate SACK shows a spurious retransmission. If all
    /// retransmissions were spurious, no data was lost, and the window is restored. Returns whether
    /// that is so.
    fn try_undo(&mut self, ack_info: &AckInfo) -> bool {
        let snd = &mut self.snd;
        let (una, snd_nxt) = (snd.snd_una, snd.snd_nxt);
        snd.recovery.rack.on_dsack(ack_info.dsack.is_some(), una, snd_nxt);
        let Some(block) = ack_info.dsack else { return false };
        let recovery = &mut snd.recovery;
        // The duplicate is from before this phase, or the network duplicated a segment that was
        // sent once.
        let stale = recovery.phase == RecoveryPhase::Open && recovery.undo_until.lt(una);
        if stale || recovery.recover.lt(block.end) {
            recovery.undo_retransmits = recovery.undo_retransmits.filter(|_| !stale);
            return false;
        }
        let Some(units) = recovery.undo_retransmits.filter(|&units| units > 0) else { return false };
        let all = units == 1 && snd.board.lost == 0;
        snd.recovery.undo_retransmits = if all { None } else { Some(units - 1) };
        if all {
            snd.recovery.phase = RecoveryPhase::Open;
            snd.cc.undo();
        }
        all
    }

    /// Sets the window for the current phase.
    fn update_cwnd(&mut self, now: Nanos, ack_info: &AckInfo, was_reducing: bool) {
        let (pipe, srtt) = (self.snd.pipe(), self.snd.rtt.srtt());
        let snd = &mut self.snd;
        let acked = Acked {
            now,
            bytes: ack_info.advanced,
            una_before: ack_info.una_before,
            snd_nxt: snd.snd_nxt,
            srtt,
            echo: ack_info.echo,
        };
        if snd.recovery.is_reducing() {
            let emss = u32::from(snd.emss);
            let more = snd.recovery.prr.on_ack(ack_info.delivered, pipe, snd.cc.ssthresh(), emss);
            // RFC 6582 s3.2: a partial ACK retransmits a segment at once.
            let is_partial =
                !self.opts.sack && snd.recovery.phase == RecoveryPhase::FastRecovery && ack_info.advanced > 0;
            let least = if is_partial { emss } else { 0 };
            snd.cc.set_cwnd(pipe.saturating_add(more.max(least)));
            snd.cc.on_ecn_feedback(&acked);
        } else if snd.recovery.held || was_reducing {
            // RFC 3168 s6.1.2: an ACK with an echo does not open the window. RFC 5681 s3.2, step 6:
            // nor does that which ends the recovery.
            snd.cc.on_ecn_feedback(&acked);
        } else if ack_info.advanced > 0 {
            snd.cc.on_ack(acked);
        }
    }

    /// RFC 8985 s8: one timer, set for the earliest event.
    fn set_timer<P: Port>(&mut self, io: &TcpIo<'_, P>, progress: bool, recheck_at: Option<Nanos>) {
        let (now, delay) = (io.now, io.shared.config.ack_delay_max);
        let snd = &mut self.snd;
        if snd.recovery.held {
            (snd.timer, snd.timer_at) = (Timer::Rto, snd.rto_at);
            return;
        }
        if !snd.outstanding() {
            return snd.stop_timer();
        }
        if progress || snd.rto_at == Nanos::MAX {
            snd.restart_rto(now);
        }
        if let Some(at) = recheck_at.filter(|&at| at < snd.rto_at) {
            (snd.timer, snd.timer_at) = (Timer::Reordering, at);
        } else if snd.timer == Timer::Pto
            && snd.board.sacked == 0
            && snd.recovery.phase == RecoveryPhase::Open
        {
            // A probe that is due stays due.
        } else {
            (snd.timer, snd.timer_at) = (Timer::Rto, snd.rto_at);
            if self.may_schedule_tlp() {
                self.snd.schedule_tlp(now, delay);
            }
        }
    }

    /// RFC 8985 s7.2: returns whether a tail loss probe may be scheduled.
    pub(crate) fn may_schedule_tlp(&self) -> bool {
        let recovery = &self.snd.recovery;
        self.opts.sack
            && recovery.phase == RecoveryPhase::Open
            && self.snd.board.sacked == 0
            && self.snd.board.lost == 0
            && !recovery.held
            && !recovery.tlp.is_pending()
    }

    /// Ends recovery when none of its state is left.
    fn update_active(&mut self) {
        let snd = &mut self.snd;
        snd.recovery.active = snd.recovery.phase != RecoveryPhase::Open
            || snd.recovery.held
            || snd.board.sacked > 0
            || snd.board.lost > 0
            || snd.recovery.dup_acks > 0
            || snd.recovery.tlp.is_pending()
            || snd.recovery.before_recover
            || snd.recovery.undo_retransmits.is_some()
            || snd.recovery.rack.in_dsack_round(snd.snd_una)
            || snd.snd_una.lt(snd.recovery.high_rxt);
    }

    /// The reordering window expired: the remaining candidates are lost (RFC 8985 s6.2).
    #[cold]
    pub(crate) fn on_reordering_timer<P: Port>(&mut self, io: &mut TcpIo<'_, P>, events: &mut TcpEvents) {
        let una_before = self.snd.snd_una;
        self.snd.timer = Timer::Rto;
        self.update_recovery(
            io,
            AckInfo { una_before, advanced: 0, delivered: 0, dsack: None, echo: false },
            events,
        );
    }

    /// RFC 8985 s7.3: an acknowledgement is overdue. Sends the end of the flight again to trigger
    /// one.
    #[cold]
    pub(crate) fn on_tlp_timer<P: Port>(&mut self, io: &mut TcpIo<'_, P>) {
        let measured = self.snd.rtt.samples();
        if self.snd.recovery.tlp.may_probe(measured)
            && let Some(retransmitted) = self.send_loss_probe(io)
        {
            io.count(Counter::TcpTailLossProbes);
            let snd = &mut self.snd;
            snd.recovery.tlp.on_probe(snd.snd_nxt, retransmitted, measured);
            snd.recovery.active = true;
        }
        self.snd.restart_rto(io.now);
    }

    /// RFC 6298 s5.4 to s5.6 and RFC 8985 s6.3: the timeout expired. The first unit and the overdue
    /// units are lost, and one segment is sent.
    #[cold]
    pub(crate) fn on_timeout<P: Port>(&mut self, io: &mut TcpIo<'_, P>, events: &mut TcpEvents) {
        io.count(Counter::TcpTimeouts);
        let repeated = self.snd.recovery.phase == RecoveryPhase::Loss;
        if !repeated || self.snd.recovery.recover.leq(self.snd.snd_una) {
            // RFC 5681 s3.1: only the first timeout reduces ssthresh.
            let reduced = self.snd.recovery.phase == RecoveryPhase::FastRecovery;
            if !reduced {
                let flight = self.snd.flight();
                self.snd.cc.on_congestion(CongestionSignal::Loss, flight);
            }
            self.snd.recovery.undo_retransmits = Some(0);
        }
        self.mark_overdue(io);
        let snd = &mut self.snd;
        (snd.recovery.phase, snd.recovery.dup_acks) = (RecoveryPhase::Loss, 0);
        snd.recovery.enter(snd.snd_nxt);
        let pipe = snd.pipe();
        snd.cc.set_loss_window(pipe);
        snd.cc.on_cwnd_limited(snd.snd_nxt);
        snd.rtt.on_timeout();
        snd.restart_rto(io.now);
        self.transmit_retained(io, events);
    }

    /// Marks the units that are lost at a timeout. SACKs remain valid (RFC 6675 s5.1,
    /// RFC 8985 s6.3) unless the first unit is SACKed. Then the peer discarded it, and all SACKs
    /// are cleared (RFC 2018 s8).
    pub(crate) fn mark_overdue<P: Port>(&mut self, io: &mut TcpIo<'_, P>) {
        let srtt = self.snd.rtt.srtt();
        let snd = &mut self.snd;
        let tx = &mut io.shared.tx;
        let mut before = io.now;
        if self.opts.sack {
            let window = snd.recovery.rack.reo_wnd(true, snd.board.sacked_units, srtt);
            let overdue = snd.recovery.rack.lost_at(Nanos::ZERO, window);
            before = Nanos(io.now.0.saturating_sub(overdue.0));
            if tx.front(&snd.retained).is_some_and(|unit| unit.state == UnitState::Sacked) {
                io.shared.stats.count(Counter::TcpSackReneging);
                snd.board.clear_sacks(tx, &snd.retained);
                before = io.now;
            }
        } else {
            snd.board.sacked = 0;
        }
        snd.board.on_timeout(tx, &snd.retained, before);
    }

    /// The segment size was reduced, and larger units in flight will not arrive. This is not
    /// congestion (RFC 8899 s4.4): they are retransmitted in pieces, and the window stays.
    #[cold]
    pub(crate) fn on_path_mtu_reduced<P: Port>(&mut self, io: &mut TcpIo<'_, P>, events: &mut TcpEvents) {
        let snd = &mut self.snd;
        let mut at = snd.retained.head();
        while let Some(unit) = io.shared.tx.value(at) {
            if unit.state == UnitState::InFlight && unit.len > snd.emss {
                snd.board.mark_lost(&mut io.shared.tx, at);
            }
            at = io.shared.tx.next(at);
        }
        snd.recovery.active = true;
        if !self.opts.sack {
            snd.board.sacked = 0;
        }
        self.transmit_retained(io, events);
        io.arm(self);
    }
}
