//! The fast transmission: one unit while nothing else is outstanding or waits, and units in a run.
//!
//! A small message on a connection at rest takes one path here, from the comparisons that decide it
//! to the timer: the source writes behind room for the headers, whose offsets are fixed, and
//! nothing is asked twice. In the middle of a long message, what all units have in common is
//! decided once. The frames and the state are those of the general path (`transmit`), which sends
//! whatever fails a comparison.
//!
//! Tuning: not inlined, and the general code behind a branch is a call at the end: the connection
//! stays in a register. Cost: a call.

use ironwarp_llp::UnitSource;
use ironwarp_net::FAST_HEADER_BYTES;
use ironwarp_port::{Frame, Port};
use ironwarp_stats::Counter;
use ironwarp_types::Nanos;

use super::TcpIo;
use crate::TcpConfig;
use crate::conn::{Conn, State};
use crate::header::TxHeader;
use crate::queue::{Unit, UnitState};
use crate::{Blocked, Transmitted};

impl Conn {
    /// Pulls one unit and sends it, if the connection is at rest and its path is fast. Continues on
    /// the general path if there is more to send, or if nothing was sent. `OFFLOADED`: whether the
    /// path is.
    #[inline(never)]
    pub(super) fn transmit_fast<P: Port, const OFFLOADED: bool>(
        &mut self,
        io: &mut TcpIo<'_, P>,
        source: &mut impl UnitSource,
        segments_max: usize,
    ) -> Transmitted {
        if !self.is_at_rest(io.now) {
            return self.transmit_general(io, source, segments_max);
        }
        // Asked once for each segment, since a full device is offered its frames again.
        if !io.wire.has_room() {
            return self.transmit_nothing(io, Blocked::Wire);
        }
        // The source is asked before a frame is taken: a frame that is taken and released again may
        // be the last one.
        if !io.shared.tx.has_room_for_single(&self.snd.retained) || source.is_empty() {
            return self.transmit_general(io, source, segments_max);
        }
        let Some(frame) = io.alloc_fast::<false>(FAST_HEADER_BYTES + usize::from(self.snd.emss)) else {
            return self.transmit_general(io, source, segments_max);
        };
        let bytes = match self.send_unit::<_, true, OFFLOADED>(io, source, frame) {
            Ok(bytes) => bytes,
            Err(blocked) => return self.transmit_nothing(io, blocked),
        };
        if !source.is_empty() {
            return self.transmit_after(io, source, segments_max, bytes);
        }
        if self.opts.sack {
            self.snd.schedule_tlp(io.now, io.shared.config.ack_delay_max);
        }
        io.arm_for_transmission(self);
        Transmitted { units: 1, bytes: bytes as usize, blocked: Blocked::Source }
    }

    /// Returns how many units may follow those in flight in one run, as in the middle of a long
    /// message: none of them needs another look at the windows, at the path or at what is retained.
    pub(super) fn units_of_run(&self, config: &TcpConfig) -> u32 {
        let snd = &self.snd;
        let is_in_order = snd.snd_nxt == snd.snd_end && snd.snd_nxt == snd.snd_max;
        let has_others = snd.has_data_to_send() | snd.recovery.active | snd.retained.is_empty();
        let takes_data = self.state == State::Established && self.opts.timestamps && self.path.is_fast();
        if !(config.fast_path && is_in_order && takes_data) || has_others {
            return 0;
        }
        let retainable = config.retransmit_queue_bytes_max.saturating_sub(snd.retained_bytes);
        let bytes = snd.peer_room().min(snd.cwnd_room()).min(retainable);
        let segments = bytes.checked_div(snd.emss.into()).unwrap_or(0);
        u32::from(config.retained_units_max.saturating_sub(snd.retained.len())).min(segments)
    }

    /// Pulls the next unit of a run and sends it. Returns its bytes.
    #[inline(always)]
    pub(super) fn send_next_of_run<P: Port, const OFFLOADED: bool>(
        &mut self,
        io: &mut TcpIo<'_, P>,
        source: &mut impl UnitSource,
    ) -> Result<usize, Blocked> {
        if !io.wire.has_room() {
            return Err(Blocked::Wire);
        }
        if io.shared.tx.has_room(&self.snd.retained)
            && let Some(frame) = io.alloc_fast::<true>(FAST_HEADER_BYTES + usize::from(self.snd.emss))
        {
            return self.send_unit::<_, false, OFFLOADED>(io, source, frame).map(|bytes| bytes as usize);
        }
        self.send_next(io, source)
    }

    /// [`Conn::send_next_of_run`] where the device completes TCP's checksum. Tuning: not inlined
    /// beside the other one.
    #[inline(never)]
    pub(super) fn send_next_of_offloaded_run<P: Port>(
        &mut self,
        io: &mut TcpIo<'_, P>,
        source: &mut impl UnitSource,
    ) -> Result<usize, Blocked> {
        self.send_next_of_run::<_, true>(io, source)
    }

    /// Pulls a unit into `frame` behind headers of a fixed length, retains it and sends it. Returns
    /// its bytes. `ALONE`: nothing else is outstanding or retained.
    #[inline(always)]
    fn send_unit<P: Port, const ALONE: bool, const OFFLOADED: bool>(
        &mut self,
        io: &mut TcpIo<'_, P>,
        source: &mut impl UnitSource,
        mut frame: P::Frame,
    ) -> Result<u32, Blocked> {
        // The frame was allocated with this length.
        let Some((headers, room)) = frame.bytes_mut().split_first_chunk_mut::<FAST_HEADER_BYTES>() else {
            return Err(Blocked::Pool);
        };
        let len = source.fill(room);
        debug_assert!(len <= room.len());
        if len == 0 {
            io.keep(frame);
            return Err(Blocked::Source);
        }
        // A segment's payload: `room` has at most as many bytes.
        let bytes = len as u16;
        let timestamps = Some(self.ts.option(io.now));
        let header = TxHeader { timestamps, ..self.data_header(io.now) };
        let segment = io.segment(self.ports, &header);
        let sum = if OFFLOADED { 0 } else { source.sum().unwrap_or_else(|| sum_of(room, len)) };
        let meta = self.path.write_fast::<OFFLOADED>(headers, segment, (bytes, sum));
        frame.resize(FAST_HEADER_BYTES + usize::from(bytes));
        let sealed = frame.seal(meta);
        let unit = Unit {
            sent_at: io.now,
            state: UnitState::InFlight,
            ..Unit::new(sealed.clone(), self.snd.snd_end, bytes, FAST_HEADER_BYTES as u16, false)
        };
        let is_retained = match ALONE {
            true => io.shared.tx.push_single(&mut self.snd.retained, unit).is_ok(),
            false => io.shared.tx.push_back(&mut self.snd.retained, unit).is_ok(),
        };
        if !is_retained {
            self.snd.recovery.renew_cwr(self.snd.snd_nxt);
            return Err(Blocked::Pool);
        }
        let bytes = u32::from(bytes);
        // A run is limited to what may be retained.
        self.snd.retained_bytes = if ALONE { bytes } else { self.snd.retained_bytes.wrapping_add(bytes) };
        self.snd.snd_end = self.snd.snd_end.plus(bytes);
        io.push_fast(sealed);
        match ALONE {
            true => self.snd.on_sent_fast(io.now, bytes),
            false => self.snd.on_sent(io.now, bytes),
        }
        self.on_ack_carried(io);
        io.shared.stats.add(Counter::TcpTxBytes, u64::from(bytes));
        Ok(bytes)
    }

    /// Returns whether the connection is in full operation with nothing outstanding, lost or
    /// queued, on a fast path, and the peer's window takes a whole segment.
    #[inline(always)]
    fn is_at_rest(&self, now: Nanos) -> bool {
        let snd = &self.snd;
        self.state == State::Established
            && snd.retained.is_empty()
            && snd.snd_nxt == snd.snd_end
            && snd.snd_nxt == snd.snd_max
            && !snd.outstanding()
            && snd.snd_wnd >= u32::from(snd.emss)
            && !(snd.fin_queued | snd.recovery.active)
            && self.opts.timestamps
            && self.path.is_fast()
            // RFC 5681 s4.1: an idle connection restarts its window on the general path.
            && now.since(snd.sent_at) <= snd.rtt.rto()
    }
}

/// Returns the sum of a payload whose source has not computed it.
#[inline(never)]
fn sum_of(room: &[u8], len: usize) -> u32 {
    ironwarp_arch::checksum::sum(room.get(..len).unwrap_or_default())
}
