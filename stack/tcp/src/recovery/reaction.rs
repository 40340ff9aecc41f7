//! What follows from an acknowledgement when something is amiss, and from the timers.
//!
//! Each acknowledgement goes through the same steps: what it delivers is taken from the units, what must be lost now is
//! marked, the phase follows, the window follows the phase, the timer is set, and what may be sent is sent.

use ironwarp_port::Port;
use ironwarp_stats::Counter;
use ironwarp_types::{Nanos, Seq};

use super::Phase;
use super::rack::DUP_ACK_THRESHOLD;
use super::tlp::Verdict;
use crate::congestion::{Acked, Prr, Sign};
use crate::conn::{Conn, Timer};
use crate::events::TcpEvents;
use crate::header::{Flags, SackBlock, Segment};
use crate::output::Io;
use crate::queue::Mark;

/// What one acknowledgement told.
#[derive(Clone, Copy, Debug)]
struct News {
    una_before: Seq,
    /// Numbers newly acknowledged.
    advanced: u32,
    /// Numbers newly known to be with the peer, one way or the other (DeliveredData of RFC 6937).
    delivered: u32,
    /// What the peer says it got twice.
    dsack: Option<SackBlock>,
    /// Whether it echoes a congestion mark.
    echo: bool,
}

impl Conn {
    /// An acknowledgement of SND.UNA or beyond, while something is amiss or that says so.
    #[cold]
    pub(crate) fn on_eventful_ack<P: Port>(
        &mut self,
        io: &mut Io<'_, P>,
        segment: &Segment,
        events: &mut TcpEvents,
    ) {
        self.snd.recovery.eventful = true;
        let (una_before, sacked_before) = (self.snd.snd_una, self.snd.board.sacked);
        let advanced = self.take_ack(io, segment.ack, events);
        let dsack = if self.opts.sack { self.take_sacks(io, segment, una_before) } else { None };
        let duplicate = advanced == 0 && segment.options.sack.is_empty() && self.repeats(segment);
        if duplicate {
            io.count(Counter::TcpRxDuplicateAcks);
        }
        if !self.opts.sack {
            self.count_duplicate_ack(advanced, duplicate);
        }
        let delivered = (advanced + self.snd.board.sacked).saturating_sub(sacked_before);
        let echo = self.opts.ecn && segment.has(Flags::ECE);
        self.judge_probe(una_before, segment.ack, dsack, duplicate);
        self.react(io, News { una_before, advanced, delivered, dsack, echo }, events);
        if duplicate || delivered > 0 {
            self.tell_writable(events);
        }
    }

    /// Takes the SACK blocks that make sense (RFC 2018 s4) and answers the one that tells of something that came twice
    /// (RFC 2883 s4): the first, when it lies below the acknowledgement or within the second.
    fn take_sacks<P: Port>(
        &mut self,
        io: &mut Io<'_, P>,
        segment: &Segment,
        una_before: Seq,
    ) -> Option<SackBlock> {
        let snd = &mut self.snd;
        let (una, snd_nxt) = (snd.snd_una, snd.snd_nxt);
        let mut blocks = segment.options.sack.clone();
        let within =
            |inner: &SackBlock, outer: &SackBlock| outer.start.leq(inner.start) && inner.end.leq(outer.end);
        let twice = match blocks.as_slice() {
            [first, ..] if first.end.leq(segment.ack) => Some(*first),
            [first, second, ..] if within(first, second) => Some(*first),
            _ => None,
        };
        // A block that was never sent was made up; one below a newer SND.UNA is old.
        blocks.retain(|block| block.end.leq(snd_nxt) && una.lt(block.end) && una_before.leq(block.start));
        for block in &mut blocks {
            block.start = block.start.max(una);
        }
        let (rack, now) = (&mut snd.recovery.rack, io.now);
        let delivered = &mut |unit| rack.on_delivered(now, unit);
        snd.board.sack(&mut io.shared.tx, &mut snd.retained, una, &mut blocks, delivered);
        twice.filter(|block| block.end.leq(snd_nxt))
    }

    /// RFC 5681 s2: outstanding data, no payload, no SYN or FIN, nothing new acknowledged, the same window. A probe that
    /// came in vain is answered so when nothing is outstanding any more (RFC 8985 s7.4.2).
    pub(crate) fn repeats(&self, segment: &Segment) -> bool {
        let window = u32::from(segment.window) << self.snd.wscale;
        segment.ack == self.snd.snd_una
            && segment.len() == 0
            && !segment.has(Flags::SYN | Flags::FIN)
            && (self.snd.outstanding() || self.snd.recovery.tlp.is_open())
            && window == self.snd.snd_wnd
            && window > 0
    }

    /// Without SACK, every duplicate ACK stands for a segment that has arrived (RFC 6582 s3.2, RFC 6937 s3), and an ACK
    /// that advances for those that had come before.
    fn count_duplicate_ack(&mut self, advanced: u32, duplicate: bool) {
        let snd = &mut self.snd;
        let emss = u32::from(snd.emss);
        if advanced > 0 {
            let (kept, recovery) =
                (snd.board.sacked.saturating_sub(advanced.saturating_sub(emss)), &mut snd.recovery);
            let fast = recovery.phase == Phase::Fast && snd.snd_una.lt(recovery.recover);
            snd.board.sacked = if fast { kept } else { 0 };
            recovery.dup_acks = 0;
        } else if duplicate && snd.recovery.phase != Phase::Loss {
            snd.recovery.dup_acks = snd.recovery.dup_acks.saturating_add(1);
            snd.board.sacked += emss;
        }
        // The first segment is missing, whatever else has arrived.
        let most = snd.flight().saturating_sub(snd.board.lost).saturating_sub(emss);
        snd.board.sacked = snd.board.sacked.min(most);
    }

    /// RFC 8985 s7.4.2: a loss that the probe repaired costs what any loss costs.
    fn judge_probe(&mut self, una_before: Seq, ack: Seq, dsack: Option<SackBlock>, duplicate: bool) {
        let recovery = &mut self.snd.recovery;
        let verdict = recovery.tlp.on_ack(ack, dsack.map(|block| block.end), duplicate);
        if verdict == Verdict::Repaired && recovery.phase == Phase::Open {
            self.reduce(Sign::Loss, Phase::Reduced, una_before);
        }
    }

    fn react<P: Port>(&mut self, io: &mut Io<'_, P>, news: News, events: &mut TcpEvents) {
        if self.undoes(&news) {
            io.count(Counter::TcpUndone);
        }
        let recovery = &self.snd.recovery;
        if recovery.phase != Phase::Open && recovery.recover.leq(self.snd.snd_una) {
            self.leave_recovery();
        }
        self.lower_guard();
        if news.echo && self.snd.recovery.phase == Phase::Open && !self.snd.recovery.guarded {
            // RFC 3168 s6.1.2: once a round trip. The peer echoes until it has CWR, which is beyond `recover`.
            io.count(Counter::TcpEcnReductions);
            self.reduce(Sign::Mark, Phase::Reduced, news.una_before);
        }
        let look_at = self.find_losses(io, &news);
        self.steer(io.now, &news);
        self.set_timer(io, news.delivered > 0, look_at);
        self.settle_down();
        if news.advanced > 0 {
            self.tell_writable(events);
        }
        self.recover(io, events);
        io.arm(self);
    }

    /// Marks what must be lost by now and begins to repair it. Answers when to look again.
    fn find_losses<P: Port>(&mut self, io: &mut Io<'_, P>, news: &News) -> Option<Nanos> {
        let lost_before = self.snd.board.lost;
        let look_at = if self.opts.sack {
            self.find_losses_by_rack(io)
        } else {
            self.find_loss_by_count(io, news.advanced > 0)
        };
        if self.snd.board.lost > lost_before && !self.snd.recovery.repairs() {
            io.count(Counter::TcpFastRetransmits);
            self.reduce(Sign::Loss, Phase::Fast, news.una_before);
        }
        look_at
    }

    fn find_losses_by_rack<P: Port>(&mut self, io: &mut Io<'_, P>) -> Option<Nanos> {
        let (pipe, srtt) = (self.snd.pipe(), self.snd.rtt.srtt());
        let snd = &mut self.snd;
        let window = snd.recovery.rack.window(snd.recovery.repairs(), snd.board.sacked_units, srtt);
        let rack = &snd.recovery.rack;
        snd.board.detect(&mut io.shared.tx, &snd.retained, pipe, rack, io.now, window).look_at
    }

    /// RFC 6582 s3.2: the third duplicate ACK tells of one loss, every partial acknowledgement of the next. Duplicates that
    /// what was sent again may have drawn count only once something beyond `recover` is acknowledged.
    fn find_loss_by_count<P: Port>(&mut self, io: &mut Io<'_, P>, advanced: bool) -> Option<Nanos> {
        let snd = &mut self.snd;
        let recovery = &snd.recovery;
        let partial = advanced && recovery.phase == Phase::Fast;
        let third = u16::from(recovery.dup_acks) == DUP_ACK_THRESHOLD
            && !recovery.repairs()
            && (!recovery.guarded || recovery.phase == Phase::Reduced);
        let first = io.shared.tx.front(&snd.retained);
        if (partial || third)
            && first.is_some_and(|unit| unit.mark == Mark::Flying && !(partial && unit.again))
        {
            snd.board.mark_lost(&mut io.shared.tx, snd.retained.head());
        }
        None
    }

    /// The window comes down and a phase begins. One reduction covers what was in flight when it began, before the
    /// acknowledgement of `una_before` and beyond that tells of it.
    fn reduce(&mut self, sign: Sign, phase: Phase, una_before: Seq) {
        let snd = &mut self.snd;
        let flight = snd.snd_nxt.since(una_before);
        if snd.recovery.phase == Phase::Open {
            snd.cc.on_congestion(sign, flight);
            snd.recovery.in_doubt = (sign == Sign::Loss).then_some(0);
        }
        snd.recovery.phase = phase;
        snd.recovery.begin(snd.snd_nxt);
        snd.recovery.prr = Prr::new(flight);
    }

    /// Numbers of a time that is over are forgotten before they can be taken for ones to come.
    fn lower_guard(&mut self) {
        let (una, recovery) = (self.snd.snd_una, &mut self.snd.recovery);
        if recovery.phase == Phase::Open {
            recovery.guarded &= una.leq(recovery.recover);
            recovery.in_doubt = recovery.in_doubt.filter(|_| una.leq(recovery.doubt_ends));
        }
    }

    /// Everything that was in flight when the phase began is acknowledged.
    fn leave_recovery(&mut self) {
        let snd = &mut self.snd;
        match snd.recovery.phase {
            // RFC 6937 s3: the window is what it was to become.
            Phase::Fast | Phase::Reduced => snd.cc.steer(snd.cc.ssthresh()),
            Phase::Loss | Phase::Open => {}
        }
        if snd.recovery.repairs() {
            snd.recovery.rack.on_recovered();
        }
        if !self.opts.sack {
            snd.board.sacked = 0;
        }
        (snd.recovery.phase, snd.recovery.dup_acks) = (Phase::Open, 0);
        snd.recovery.doubt_ends = snd.snd_nxt;
    }

    /// RFC 2883 s4 and RFC 8985 s6.2: what came twice was sent in vain. When all that was sent again was, nothing had been
    /// lost, and the window is what it was. Answers whether that is so.
    fn undoes(&mut self, news: &News) -> bool {
        let snd = &mut self.snd;
        let (una, snd_nxt) = (snd.snd_una, snd.snd_nxt);
        snd.recovery.rack.on_dsack(news.dsack.is_some(), una, snd_nxt);
        let Some(block) = news.dsack else { return false };
        let recovery = &mut snd.recovery;
        // Of another time, or of what was sent once and repeated by the network.
        let stale = recovery.phase == Phase::Open && recovery.doubt_ends.lt(una);
        if stale || recovery.recover.lt(block.end) {
            recovery.in_doubt = recovery.in_doubt.filter(|_| !stale);
            return false;
        }
        let Some(units) = recovery.in_doubt.filter(|&units| units > 0) else { return false };
        let all = units == 1 && snd.board.lost == 0;
        snd.recovery.in_doubt = if all { None } else { Some(units - 1) };
        if all {
            snd.recovery.phase = Phase::Open;
            snd.cc.undo();
        }
        all
    }

    /// What may be in flight now.
    fn steer(&mut self, now: Nanos, news: &News) {
        let (pipe, srtt) = (self.snd.pipe(), self.snd.rtt.srtt());
        let snd = &mut self.snd;
        let acked = Acked {
            now,
            bytes: news.advanced,
            una_before: news.una_before,
            snd_nxt: snd.snd_nxt,
            srtt,
            echo: news.echo,
        };
        if matches!(snd.recovery.phase, Phase::Fast | Phase::Reduced) {
            let emss = u32::from(snd.emss);
            let more = snd.recovery.prr.on_ack(news.delivered, pipe, snd.cc.ssthresh(), emss);
            snd.cc.steer(pipe + more);
            snd.cc.observe(&acked);
        } else if news.advanced > 0 {
            snd.cc.on_ack(acked);
        }
    }

    /// RFC 8985 s8: one timer, set for what comes first.
    fn set_timer<P: Port>(&mut self, io: &Io<'_, P>, progress: bool, look_at: Option<Nanos>) {
        let (now, delay) = (io.now, io.shared.config.ack_delay_max);
        let snd = &mut self.snd;
        if !snd.outstanding() {
            return snd.stop_timer();
        }
        if progress || snd.timeout_at == Nanos::MAX {
            snd.restart_timeout(now);
        }
        if let Some(at) = look_at.filter(|&at| at < snd.timeout_at) {
            (snd.timer, snd.timer_at) = (Timer::Reordering, at);
        } else if snd.timer == Timer::Probe && snd.board.sacked == 0 && snd.recovery.phase == Phase::Open {
            // A probe that was due stays due.
        } else {
            (snd.timer, snd.timer_at) = (Timer::Timeout, snd.timeout_at);
            if self.may_probe() {
                self.snd.set_probe(now, delay);
            }
        }
    }

    /// RFC 8985 s7.2: whether a probe may be scheduled at all.
    pub(crate) fn may_probe(&self) -> bool {
        let recovery = &self.snd.recovery;
        self.opts.sack
            && recovery.phase == Phase::Open
            && self.snd.board.sacked == 0
            && self.snd.board.lost == 0
            && !recovery.tlp.is_open()
    }

    /// Whether acknowledgements are ordinary again.
    fn settle_down(&mut self) {
        let snd = &mut self.snd;
        snd.recovery.eventful = snd.recovery.phase != Phase::Open
            || snd.board.sacked > 0
            || snd.board.lost > 0
            || snd.recovery.dup_acks > 0
            || snd.recovery.tlp.is_open()
            || snd.recovery.guarded
            || snd.recovery.in_doubt.is_some()
            || snd.recovery.rack.in_dsack_round(snd.snd_una)
            || snd.snd_una.lt(snd.recovery.resent_to);
    }

    /// The reordering window is over: what was passed is lost (RFC 8985 s6.2).
    #[cold]
    pub(crate) fn on_reordering_timer<P: Port>(&mut self, io: &mut Io<'_, P>, events: &mut TcpEvents) {
        let una_before = self.snd.snd_una;
        self.snd.timer = Timer::Timeout;
        self.react(io, News { una_before, advanced: 0, delivered: 0, dsack: None, echo: false }, events);
    }

    /// RFC 8985 s7.3: an acknowledgement is overdue, and the end of the flight is sent to hear why.
    #[cold]
    pub(crate) fn on_probe_timer<P: Port>(&mut self, io: &mut Io<'_, P>) {
        let measured = self.snd.rtt.samples();
        if self.snd.recovery.tlp.may_probe(measured)
            && let Some(again) = self.send_tail(io)
        {
            io.count(Counter::TcpTailProbes);
            let snd = &mut self.snd;
            snd.recovery.tlp.on_probe(snd.snd_nxt, again, measured);
            snd.recovery.eventful = true;
        }
        self.snd.restart_timeout(io.now);
    }

    /// RFC 6298 s5.4 to s5.6 and RFC 8985 s6.3: the timeout ran out. The first unit is lost, with it what is overdue, and
    /// one segment is sent.
    #[cold]
    pub(crate) fn on_timeout<P: Port>(&mut self, io: &mut Io<'_, P>, events: &mut TcpEvents) {
        io.count(Counter::TcpTimeouts);
        let repeated = self.snd.recovery.phase == Phase::Loss;
        if !repeated || self.snd.recovery.recover.leq(self.snd.snd_una) {
            // RFC 5681 s3.1: only the first timeout says something about the network; later ones say it again.
            let reduced = self.snd.recovery.phase == Phase::Fast;
            if !reduced {
                let flight = self.snd.flight();
                self.snd.cc.on_congestion(Sign::Loss, flight);
            }
            self.snd.recovery.in_doubt = Some(0);
        }
        self.mark_overdue(io);
        let snd = &mut self.snd;
        (snd.recovery.phase, snd.recovery.dup_acks) = (Phase::Loss, 0);
        snd.recovery.begin(snd.snd_nxt);
        let pipe = snd.pipe();
        snd.cc.collapse(pipe);
        snd.cc.on_limited(snd.snd_nxt);
        snd.rtt.on_timeout();
        snd.restart_timeout(io.now);
        self.recover(io, events);
    }

    /// What is lost when the timeout has run out. SACKs stand (RFC 6675 s5.1, RFC 8985 s6.3) unless the peer has
    /// disowned the first unit, which it said to hold and does not acknowledge: then none is believed (RFC 2018 s8).
    pub(crate) fn mark_overdue<P: Port>(&mut self, io: &mut Io<'_, P>) {
        let srtt = self.snd.rtt.srtt();
        let snd = &mut self.snd;
        let tx = &mut io.shared.tx;
        let mut before = io.now;
        if self.opts.sack {
            let window = snd.recovery.rack.window(true, snd.board.sacked_units, srtt);
            let overdue = snd.recovery.rack.lost_at(Nanos::ZERO, window);
            before = Nanos(io.now.0.saturating_sub(overdue.0));
            if tx.front(&snd.retained).is_some_and(|unit| unit.mark == Mark::Sacked) {
                io.shared.stats.count(Counter::TcpRxReneged);
                snd.board.forget_sacks(tx, &snd.retained);
                before = io.now;
            }
        } else {
            snd.board.sacked = 0;
        }
        snd.board.on_timeout(tx, &snd.retained, before);
    }

    /// The segment size has come down, and larger units that are on their way will not arrive. That says nothing about
    /// congestion (RFC 8899 s4.4): they go again in pieces, and the window stays.
    #[cold]
    pub(crate) fn on_narrower_path<P: Port>(&mut self, io: &mut Io<'_, P>, events: &mut TcpEvents) {
        let snd = &mut self.snd;
        let mut at = snd.retained.head();
        while let Some(unit) = io.shared.tx.value(at) {
            if unit.mark == Mark::Flying && unit.len > snd.emss {
                snd.board.mark_lost(&mut io.shared.tx, at);
            }
            at = io.shared.tx.next(at);
        }
        snd.recovery.eventful = true;
        if !self.opts.sack {
            snd.board.sacked = 0;
        }
        self.recover(io, events);
        io.arm(self);
    }
}
