//! Transmission of payload: retained data first, then units pulled from the source.
//!
//! A unit is pulled only if a full EMSS fits both windows, so every segment starts with an FPDU. If
//! nothing is in flight, one is pulled anyway: a closed window is probed with it. A unit is written
//! directly to a new frame, after room for the headers. One clone of the sealed frame is retained,
//! the other is sent.
//!
//! Source: RFC 9293 s3.8.6, RFC 5681, RFC 5044 s5.1. Cost: one frame, one header and one list node
//! per unit; no copy.

use ironwarp_llp::UnitSource;
use ironwarp_port::{Frame, Port};
use ironwarp_stats::Counter;
use ironwarp_types::{Ecn, Nanos, Seq};

use super::{SealedOf, TcpIo};
use crate::conn::Conn;
use crate::header::{Flags, TxHeader};
use crate::queue::Unit;
use crate::{Blocked, Transmitted};

impl Conn {
    /// Sends up to `segments_max` segments. Pulls from `source` once no retained data is left to
    /// send.
    #[inline(always)]
    pub(crate) fn transmit<P: Port>(
        &mut self,
        io: &mut TcpIo<'_, P>,
        source: &mut impl UnitSource,
        segments_max: usize,
    ) -> Transmitted {
        match io.shared.config.fast_path {
            true if self.path.is_offloaded() => self.transmit_fast::<_, true>(io, source, segments_max),
            true => self.transmit_fast::<_, false>(io, source, segments_max),
            false => self.transmit_general(io, source, segments_max),
        }
    }

    /// [`Conn::transmit`] on the general path.
    #[inline(never)]
    pub(super) fn transmit_general<P: Port>(
        &mut self,
        io: &mut TcpIo<'_, P>,
        source: &mut impl UnitSource,
        segments_max: usize,
    ) -> Transmitted {
        if !self.state.may_send() {
            return Transmitted::default();
        }
        let snd_nxt = self.snd.snd_nxt;
        // A small message is one unit. Tuning: the loop for more is not inlined, since its state
        // would take registers.
        let done = match self.send_next(io, source) {
            Ok(bytes) if source.is_empty() && !self.snd.has_data_to_send() => {
                Transmitted { units: 1, bytes, blocked: Blocked::Source }
            }
            Ok(bytes) => self.transmit_more(io, source, segments_max, bytes),
            Err(blocked) => Transmitted { units: 0, bytes: 0, blocked },
        };
        self.after_transmit(io, done.blocked, snd_nxt);
        done
    }

    /// Continues after [`Conn::transmit_fast`], which has sent `bytes`.
    #[inline(never)]
    pub(super) fn transmit_after<P: Port>(
        &mut self,
        io: &mut TcpIo<'_, P>,
        source: &mut impl UnitSource,
        segments_max: usize,
        bytes: u32,
    ) -> Transmitted {
        let snd_nxt = self.snd.snd_nxt.minus(bytes);
        let done = self.transmit_more(io, source, segments_max, bytes as usize);
        self.after_transmit(io, done.blocked, snd_nxt);
        done
    }

    /// Ends a transmission that sent nothing.
    #[cold]
    #[inline(never)]
    pub(super) fn transmit_nothing<P: Port>(
        &mut self,
        io: &mut TcpIo<'_, P>,
        blocked: Blocked,
    ) -> Transmitted {
        self.after_transmit(io, blocked, self.snd.snd_nxt);
        Transmitted { units: 0, bytes: 0, blocked }
    }

    /// Continues after the first segment, of `bytes`.
    #[inline(never)]
    fn transmit_more<P: Port>(
        &mut self,
        io: &mut TcpIo<'_, P>,
        source: &mut impl UnitSource,
        segments_max: usize,
        bytes: usize,
    ) -> Transmitted {
        let mut done = Transmitted { units: 1, bytes, ..Transmitted::default() };
        let mut run = self.units_of_run(&io.shared.config);
        let mut last = bytes;
        while done.units < segments_max {
            let sent = match run {
                0 => self.send_next(io, source),
                _ if self.path.is_offloaded() => self.send_next_of_offloaded_run(io, source),
                _ => self.send_next_of_run::<_, false>(io, source),
            };
            run = run.saturating_sub(1);
            match sent {
                Ok(bytes) => {
                    done.units += 1;
                    done.bytes += bytes;
                    last = bytes;
                    if source.is_empty() && !self.snd.has_data_to_send() {
                        done.blocked = Blocked::Source;
                        break;
                    }
                }
                Err(blocked) => {
                    done.blocked = blocked;
                    break;
                }
            }
        }
        // Units have whole words.
        let is_full = last + size_of::<u32>() > usize::from(self.snd.emss);
        self.snd.in_long_message = is_full && io.shared.config.fast_path;
        done
    }

    /// Returns whether data other than the source's could be sent now: a retransmission, the rest
    /// of a unit, or a FIN.
    #[inline]
    pub(crate) fn wants_transmit(&self) -> bool {
        self.snd.has_data_to_send() && self.may_transmit()
    }

    /// Returns whether some of the waiting data could be sent now.
    #[cold]
    #[inline(never)]
    fn may_transmit(&self) -> bool {
        let emss = u32::from(self.snd.emss);
        let rest = self.snd.snd_end.since(self.snd.snd_nxt).min(emss);
        let lost = self.snd.board.lost.min(emss);
        let retransmit = lost > 0 && self.snd.retransmittable(self.snd.snd_una, lost) > 0;
        let unsent = self.snd.board.lost == 0 && self.snd.unsent() && self.snd.sendable(rest) > 0;
        self.state.may_send() && (retransmit || unsent || self.snd.fin_due())
    }

    /// Sends the next segment and returns its payload bytes.
    #[inline]
    pub(super) fn send_next<P: Port>(
        &mut self,
        io: &mut TcpIo<'_, P>,
        source: &mut impl UnitSource,
    ) -> Result<usize, Blocked> {
        if !io.wire.has_room() {
            return Err(Blocked::Wire);
        }
        if self.snd.board.lost > 0 {
            return self.send_lost(io);
        }
        if self.snd.unsent() {
            return self.send_unsent(io);
        }
        if self.snd.fin_due() {
            return self.send_fin(io);
        }
        if !self.state.may_pull() {
            return Err(Blocked::None);
        }
        if source.is_empty() {
            return Err(Blocked::Source);
        }
        self.may_pull(io)?;
        self.pull(io, source)
    }

    /// Returns whether a unit may be pulled. Its size is unknown until then.
    #[inline]
    fn may_pull<P: Port>(&mut self, io: &TcpIo<'_, P>) -> Result<(), Blocked> {
        let limits = &io.shared.config;
        if self.snd.retained.is_empty() {
            if self.snd.recovery.held {
                return Err(Blocked::Congestion);
            }
            if io.now.since(self.snd.sent_at) > self.snd.rtt.rto() {
                self.restart_after_idle(io);
            }
            return Ok(());
        }
        if self.snd.retained_bytes >= limits.retransmit_queue_bytes_max
            || self.snd.retained.len() >= limits.retained_units_max
        {
            return Err(Blocked::Retained);
        }
        let emss = u32::from(self.snd.emss);
        if self.snd.peer_room() < emss {
            return Err(Blocked::Window);
        }
        if self.snd.cwnd_room() < emss { Err(Blocked::Congestion) } else { Ok(()) }
    }

    /// Pulls a unit and sends it, whole if it fits.
    #[inline]
    fn pull<P: Port>(
        &mut self,
        io: &mut TcpIo<'_, P>,
        source: &mut impl UnitSource,
    ) -> Result<usize, Blocked> {
        if !io.shared.tx.has_room(&self.snd.retained) {
            io.shared.on_tx_refused(io.now, self.slot);
            return Err(Blocked::Pool);
        }
        let payload_at = self.payload_at();
        let frame_bytes = payload_at + usize::from(self.snd.emss);
        // Where a round ends, the next one goes on with the message.
        let frame = match self.snd.in_long_message {
            true => io.alloc_fast::<true>(frame_bytes),
            false => io.alloc_fast::<false>(frame_bytes),
        };
        match frame {
            Some(frame) => self.pull_into(io, source, frame, payload_at),
            None => self.pull_into_general(io, source, frame_bytes, payload_at),
        }
    }

    /// [`Conn::pull`] with the spare frame, or one of the terminate reserve.
    #[cold]
    #[inline(never)]
    fn pull_into_general<P: Port>(
        &mut self,
        io: &mut TcpIo<'_, P>,
        source: &mut impl UnitSource,
        frame_bytes: usize,
        payload_at: usize,
    ) -> Result<usize, Blocked> {
        let frame = match io.frame(frame_bytes) {
            Some(frame) => frame,
            None if source.is_last() => io.take_terminate_reserve(frame_bytes).ok_or(Blocked::Pool)?,
            None => return Err(Blocked::Pool),
        };
        self.pull_into(io, source, frame, payload_at)
    }

    /// Pulls one unit into `frame` and sends it.
    #[inline(always)]
    fn pull_into<P: Port>(
        &mut self,
        io: &mut TcpIo<'_, P>,
        source: &mut impl UnitSource,
        mut frame: P::Frame,
        payload_at: usize,
    ) -> Result<usize, Blocked> {
        let emss = usize::from(self.snd.emss);
        let bytes = frame.bytes_mut();
        let len = source.fill(bytes.get_mut(payload_at..).unwrap_or_default()).min(emss);
        if len == 0 {
            io.keep(frame);
            return Err(Blocked::Source);
        }
        let header = self.data_header(io.now);
        let segment = bytes.get_mut(..payload_at + len).unwrap_or_default();
        let meta = self.path.write(segment, io.segment(self.ports, &header), 0, source.sum());
        frame.resize(payload_at + len);
        self.retain_and_send(io, frame.seal(meta), payload_at as u16, len as u16)
    }

    /// Retains a unit that starts at snd_nxt, and sends it.
    #[inline(always)]
    fn retain_and_send<P: Port>(
        &mut self,
        io: &mut TcpIo<'_, P>,
        sealed: SealedOf<P>,
        payload_at: u16,
        len: u16,
    ) -> Result<usize, Blocked> {
        let whole = self.snd.peer_room() >= u32::from(len);
        let mut unit = Unit::new(sealed.clone(), self.snd.snd_end, len, payload_at, false);
        if whole {
            self.snd.board.on_sent(&mut unit, io.now);
        }
        if io.shared.tx.push_back(&mut self.snd.retained, unit).is_err() {
            self.snd.recovery.renew_cwr(self.snd.snd_nxt);
            return Err(Blocked::Pool);
        }
        self.snd.retained_bytes += u32::from(len);
        self.snd.snd_end = self.snd.snd_end.plus(u32::from(len));
        if !whole {
            return self.send_unsent(io);
        }
        // A frame that the device refuses is retained like a sent one, and loss detection
        // retransmits it.
        io.push(sealed);
        self.on_data_sent(io, u32::from(len));
        Ok(usize::from(len))
    }

    /// Returns the header of new payload at snd_nxt. PSH is always set, since a unit is whole.
    #[inline(always)]
    pub(super) fn data_header(&mut self, now: Nanos) -> TxHeader {
        let header = self.header(now, self.snd.snd_nxt, Flags::ACK | Flags::PSH);
        if self.opts.ecn { self.set_ect(header) } else { header }
    }

    /// RFC 3168 s6.1.2 and s6.1.5: marks new payload as ECN-capable, and reports a window reduction
    /// in the first new segment after it.
    #[inline]
    fn set_ect(&mut self, mut header: TxHeader) -> TxHeader {
        header.ecn = Ecn::Ect0;
        if self.snd.recovery.take_cwr(self.snd.snd_nxt) {
            header.flags |= Flags::CWR;
        }
        header
    }

    /// Records that `len` payload bytes from snd_nxt on were sent, with an ACK.
    #[inline(always)]
    pub(super) fn on_data_sent<P: Port>(&mut self, io: &mut TcpIo<'_, P>, len: u32) {
        self.snd.on_sent(io.now, len);
        self.on_ack_carried(io);
        if self.snd.recovery.active {
            self.snd.recovery.on_sent(len);
        }
        io.shared.stats.add(Counter::TcpTxBytes, u64::from(len));
    }

    /// Retains our FIN as the last unit and sends it. RFC 9293 s3.10.4.
    #[cold]
    fn send_fin<P: Port>(&mut self, io: &mut TcpIo<'_, P>) -> Result<usize, Blocked> {
        if !io.shared.tx.has_room(&self.snd.retained) {
            return Err(Blocked::Pool);
        }
        let payload_at = self.payload_at();
        let frame = io.frame(payload_at).ok_or(Blocked::Pool)?;
        let header = self.header(io.now, self.snd.snd_end, Flags::FIN | Flags::ACK);
        let sealed = io.finish(frame, &self.path, self.ports, &header, 0);
        let mut unit = Unit::new(sealed.clone(), self.snd.snd_end, 0, payload_at as u16, true);
        self.snd.board.on_sent(&mut unit, io.now);
        if io.shared.tx.push_back(&mut self.snd.retained, unit).is_err() {
            return Err(Blocked::Pool);
        }
        self.snd.snd_end = self.snd.snd_end.plus(1);
        self.snd.fin_retained = true;
        io.push(sealed);
        self.on_data_sent(io, 1);
        Ok(0)
    }

    /// RFC 5681 s4.1: the window is as old as the last transmission.
    #[cold]
    fn restart_after_idle<P: Port>(&mut self, io: &TcpIo<'_, P>) {
        let config = &io.shared.config;
        let initial = u32::from(self.snd.emss) * u32::from(config.initial_window_segments);
        if config.slow_start_after_idle && self.snd.cc.cwnd() > initial {
            self.snd.cc.on_idle(io.now, initial);
        }
        self.snd.sent_at = io.now;
    }

    /// Records why the transmission stopped, and arms the timer while data is left to send.
    /// `before` is snd_nxt at its start.
    #[inline(always)]
    fn after_transmit<P: Port>(&mut self, io: &mut TcpIo<'_, P>, blocked: Blocked, before: Seq) {
        if matches!(blocked, Blocked::Window | Blocked::Congestion | Blocked::Retained) {
            self.snd.tx_blocked = true;
        }
        if blocked == Blocked::Congestion {
            self.snd.cc.on_cwnd_limited(self.snd.snd_nxt);
        }
        if self.snd.snd_nxt != before
            && self.opts.sack
            && (!self.snd.recovery.active || self.may_schedule_tlp())
        {
            self.snd.schedule_tlp(io.now, io.shared.config.ack_delay_max);
        }
        self.ensure_timer(io);
        io.arm_for_transmission(self);
    }

    /// Arms the timer while data is left to send.
    #[inline]
    pub(crate) fn ensure_timer<P: Port>(&mut self, io: &mut TcpIo<'_, P>) {
        if self.snd.timer_at == Nanos::MAX && self.snd.has_data_to_send() && self.state.may_send() {
            self.start_persist_timer(io);
        }
    }

    /// RFC 9293 s3.8.6.1: a window update may be lost, so a closed window must be probed. The same
    /// timer retries what found no frame.
    #[cold]
    fn start_persist_timer<P: Port>(&mut self, io: &mut TcpIo<'_, P>) {
        self.snd.progress_at = io.now;
        self.snd.restart_rto(io.now);
    }
}
