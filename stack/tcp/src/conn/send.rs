//! The send side of a connection.
//!
//! ```text
//!              retained: unit | unit | unit | unit | unit | FIN
//!             1                           2                     3
//!   ----------|===========================|---------------------|..........
//!          SND.UNA                     snd_nxt               snd_end
//!
//!   before 1   acknowledged and released
//!   1 to 2     sent; the scoreboard holds the state of each unit
//!   2 to 3     pulled and not sent, because the unit exceeds the peer's window: nearly always empty
//!   from 3     not pulled
//!
//!   SND.NXT of RFC 9293 is snd_max: snd_nxt, or a higher number that a probe of a closed window reached.
//!   The peer's window is SND.UNA to SND.UNA + SND.WND. `pipe` counts the bytes in flight: sent and neither acknowledged,
//!   nor SACKed, nor lost. The congestion window limits it.
//! ```
//!
//! Source: RFC 9293 s3.3.1, s3.8.6, RFC 6675 s4. This struct holds numbers; an arena holds the
//! units.

use ironwarp_timers::{GRANULARITY, Rtt};
use ironwarp_types::{Nanos, Seq};
use serde::{Deserialize, Serialize};

use super::receive::WSCALE_MAX;
use crate::TcpConfig;
use crate::config::RCV_WINDOW_BYTES_MAX;
use crate::congestion::CongestionWindow;
use crate::queue::List;
use crate::recovery::{Recovery, Scoreboard, tlp_timeout};
use crate::saved::Rebase;

/// The event that the timer waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Timer {
    /// The retransmission timeout, or the next probe of a closed window.
    Rto,
    /// A tail loss probe (RFC 8985 s7).
    Pto,
    /// The end of the reordering window (RFC 8985 s6.2).
    Reordering,
}

/// The sequence numbers and timers of the send side.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[repr(C)]
pub(crate) struct SendSide {
    pub(crate) snd_una: Seq,
    pub(crate) snd_max: Seq,
    pub(crate) snd_wnd: u32,
    /// The largest window that the peer ever announced (MAX.SND.WND of RFC 5961 s5).
    pub(crate) snd_wnd_max: u32,
    /// SEG.SEQ and SEG.ACK of the last window update.
    pub(crate) snd_wl1: Seq,
    pub(crate) snd_wl2: Seq,
    /// The largest payload of a segment, in bytes.
    pub(crate) emss: u16,
    /// The window scale of the peer's announcements.
    pub(crate) wscale: u8,
    /// The layer above has closed.
    pub(crate) fin_queued: bool,
    /// Our FIN is the last unit.
    pub(crate) fin_retained: bool,
    /// A window or the limit of retained bytes stopped the last transmission. WRITABLE is due when
    /// that changes.
    pub(crate) tx_blocked: bool,
    /// The last transmission ended with a full segment, so the next one probably begins with one.
    pub(crate) in_long_message: bool,
    pub(crate) timer: Timer,
    pub(crate) recovery: Recovery,
    pub(crate) snd_nxt: Seq,
    pub(crate) snd_end: Seq,
    #[serde(skip)]
    pub(crate) retained: List,
    pub(crate) retained_bytes: u32,
    pub(crate) board: Scoreboard,
    /// Segments sent again.
    pub(crate) retransmits: u32,
    /// When the timer expires; [`Nanos::MAX`] while it is stopped.
    pub(crate) timer_at: Nanos,
    /// When the peer last acknowledged new data, or when the outstanding data was first sent.
    pub(crate) progress_at: Nanos,
    /// How long payload may stay unacknowledged.
    pub(crate) user_timeout: Nanos,
    /// When the retransmission timeout expires, even if the timer is set for an earlier event.
    pub(crate) rto_at: Nanos,
    /// When data was last sent for the first time.
    pub(crate) sent_at: Nanos,
    /// Payload bytes acknowledged since the connection opened.
    pub(crate) acked_bytes: u64,
    pub(crate) rtt: Rtt,
    pub(crate) cc: CongestionWindow,
}

impl SendSide {
    /// Creates a send side. The caller sends the SYN, numbered `iss`.
    pub(crate) fn new(config: &TcpConfig, iss: Seq, emss: u16, now: Nanos) -> Self {
        SendSide {
            snd_una: iss,
            snd_nxt: iss,
            snd_max: iss,
            snd_end: iss.plus(1),
            snd_wnd: 0,
            snd_wnd_max: 0,
            snd_wl1: Seq(0),
            snd_wl2: Seq(0),
            retained: List::with_reserve(config.retained_units_reserve),
            retained_bytes: 0,
            board: Scoreboard::new(),
            retransmits: 0,
            emss,
            wscale: 0,
            fin_queued: false,
            fin_retained: false,
            tx_blocked: false,
            in_long_message: false,
            timer: Timer::Rto,
            timer_at: Nanos::MAX,
            rto_at: Nanos::MAX,
            progress_at: now,
            user_timeout: config.user_timeout,
            sent_at: now,
            acked_bytes: 0,
            rtt: Rtt::new(config.rto_initial, config.rto_max),
            cc: CongestionWindow::new(config.congestion, u32::from(emss), u32::from(emss), iss),
            recovery: Recovery::new(iss),
        }
    }

    pub(crate) fn rebase(&mut self, clock: Rebase) {
        for at in [&mut self.timer_at, &mut self.rto_at, &mut self.progress_at, &mut self.sent_at] {
            clock.time(at);
        }
        self.rtt.rebase(|at| clock.time(at));
        self.cc.rebase(clock);
        self.recovery.rack.rebase(clock);
    }

    /// Returns whether a saved send side of an established connection holds no number that it could
    /// not have. [`SendSide::check`] compares them with each other.
    pub(crate) fn is_valid(&self) -> bool {
        self.wscale <= WSCALE_MAX
            && self.snd_wnd.max(self.snd_wnd_max) <= RCV_WINDOW_BYTES_MAX
            && !self.fin_queued
            && !self.fin_retained
            && self.acked_bytes < 1 << 62
            && self.rtt.is_valid()
            && self.cc.is_valid()
            && self.recovery.is_valid()
    }

    /// Returns the count of sequence numbers sent and not acknowledged.
    #[inline]
    pub(crate) fn flight(&self) -> u32 {
        self.snd_nxt.since(self.snd_una)
    }

    /// Returns the count of sequence numbers in flight (RFC 6675 s4).
    #[inline]
    pub(crate) fn pipe(&self) -> u32 {
        self.flight().saturating_sub(self.board.sacked + self.board.lost)
    }

    /// Returns whether sent data is unacknowledged.
    #[inline]
    pub(crate) fn outstanding(&self) -> bool {
        self.snd_una != self.snd_max
    }

    /// Returns the room in the peer's window after snd_nxt.
    #[inline]
    pub(crate) fn peer_room(&self) -> u32 {
        self.snd_wnd.saturating_sub(self.flight())
    }

    /// Returns the room in the congestion window: none while a mark holds new payload back.
    #[inline]
    pub(crate) fn cwnd_room(&self) -> u32 {
        if self.recovery.held { 0 } else { self.cc.cwnd().saturating_sub(self.pipe()) }
    }

    /// Returns whether pulled data waits for its first transmission.
    #[inline]
    pub(crate) fn unsent(&self) -> bool {
        self.snd_nxt.lt(self.snd_end)
    }

    /// Returns whether retained data or a FIN waits to be sent.
    #[inline]
    pub(crate) fn has_data_to_send(&self) -> bool {
        self.unsent() || self.fin_due() || self.board.lost > 0
    }

    /// Returns whether our FIN is the next to send.
    #[inline]
    pub(crate) fn fin_due(&self) -> bool {
        self.fin_queued && !self.fin_retained && !self.unsent()
    }

    /// Returns whether our FIN was sent and acknowledged.
    #[inline]
    pub(crate) fn fin_acked(&self) -> bool {
        self.fin_retained && self.snd_una == self.snd_end
    }

    /// Returns the end of all pulled payload.
    #[inline]
    pub(crate) fn payload_end(&self) -> Seq {
        self.snd_end.minus(u32::from(self.fin_retained))
    }

    /// Returns whether all pulled payload is acknowledged.
    pub(crate) fn payload_acked(&self) -> bool {
        self.payload_end().leq(self.snd_una)
    }

    /// Returns how many of `want` sequence numbers at snd_nxt may be sent now; 0 when they must
    /// wait.
    pub(crate) fn sendable(&self, want: u32) -> u32 {
        if self.cwnd_room() < want { 0 } else { self.apply_sws(want, self.peer_room()) }
    }

    /// Returns how many of `want` sequence numbers fit into `room` of the peer's window: all, or a
    /// part where waiting could block the connection.
    ///
    /// RFC 9293 s3.8.6.2.1, the sender's silly window syndrome avoidance: a part may leave when
    /// nothing is in flight or the part is at least half of the largest window that the peer ever
    /// offered.
    pub(crate) fn apply_sws(&self, want: u32, room: u32) -> u32 {
        let worth_it = room >= want || self.pipe() == 0 || room >= (self.snd_wnd_max >> 1).max(1);
        if worth_it { room.min(want) } else { 0 }
    }

    /// Returns how many of `want` sequence numbers from `seq` on may be retransmitted now.
    pub(crate) fn retransmittable(&self, seq: Seq, want: u32) -> u32 {
        let right = self.snd_una.plus(self.snd_wnd);
        let room = if seq.lt(right) { right.since(seq) } else { 0 };
        if self.cwnd_room() < want && self.pipe() > 0 { 0 } else { self.apply_sws(want, room) }
    }

    /// Records that `len` sequence numbers from snd_nxt on were sent.
    #[inline(always)]
    pub(crate) fn on_sent(&mut self, now: Nanos, len: u32) {
        let seq_end = self.snd_nxt.plus(len);
        if !self.outstanding() {
            self.progress_at = now;
        }
        if self.snd_nxt == self.snd_max {
            self.rtt.on_sent(now, seq_end);
        } else {
            self.rtt.on_retransmit();
        }
        self.snd_nxt = seq_end;
        self.snd_max = self.snd_max.max(seq_end);
        self.sent_at = now;
        if self.timer_at == Nanos::MAX {
            self.restart_rto(now);
        }
    }

    /// [`SendSide::on_sent`] of the first data after all before was acknowledged: snd_una = snd_nxt
    /// = snd_max.
    #[inline(always)]
    pub(crate) fn on_sent_fast(&mut self, now: Nanos, len: u32) {
        debug_assert!(!self.outstanding() && self.snd_nxt == self.snd_max);
        let seq_end = self.snd_nxt.plus(len);
        self.progress_at = now;
        self.rtt.on_sent(now, seq_end);
        (self.snd_nxt, self.snd_max) = (seq_end, seq_end);
        self.sent_at = now;
        if self.timer_at == Nanos::MAX {
            self.restart_rto(now);
        }
    }

    /// RFC 6298 s5.1 and s5.3: restarts the retransmission timeout and sets the timer for it.
    #[inline]
    pub(crate) fn restart_rto(&mut self, now: Nanos) {
        self.rto_at = now + self.rtt.rto();
        (self.timer, self.timer_at) = (Timer::Rto, self.rto_at);
    }

    /// RFC 8985 s7.2: sets the timer for a tail loss probe if that is earlier than the timeout.
    /// Called for peers with SACK, outside recovery.
    #[inline(never)]
    pub(crate) fn schedule_tlp(&mut self, now: Nanos, ack_delay: Nanos) {
        if self.rtt.is_measured() && self.snd_wnd > 0 {
            let single_segment = self.retained.len() <= 1;
            let at = now + tlp_timeout(self.rtt.srtt(), single_segment, ack_delay, GRANULARITY);
            if at < self.rto_at {
                (self.timer, self.timer_at) = (Timer::Pto, at);
            }
        }
    }

    /// Stops the timer.
    pub(crate) fn stop_timer(&mut self) {
        (self.timer, self.timer_at, self.rto_at) = (Timer::Rto, Nanos::MAX, Nanos::MAX);
    }

    /// RFC 9293 s3.10.7.4, fifth step: applies the window of a segment unless an older one would
    /// replace a newer. Returns whether the window grew.
    #[inline(always)]
    pub(crate) fn update_window(&mut self, seq: Seq, ack: Seq, window: u16) -> bool {
        let newer = self.snd_wl1.lt(seq) || (self.snd_wl1 == seq && self.snd_wl2.leq(ack));
        if !newer {
            return false;
        }
        let before = self.snd_wnd;
        (self.snd_wl1, self.snd_wl2) = (seq, ack);
        // RFC 7323 s2.3: a scale is at most 14.
        self.snd_wnd = u32::from(window).wrapping_shl(self.wscale.into());
        self.snd_wnd_max = self.snd_wnd_max.max(self.snd_wnd);
        self.snd_wnd > before
    }

    /// Returns the sequence number of a segment without payload: snd_max, unless the peer shrank
    /// its window and would not accept that. Before any window is known: the number after our SYN.
    #[inline]
    pub(crate) fn ack_seq(&self) -> Seq {
        let window = if self.snd_wnd_max == 0 { 1 } else { self.snd_wnd };
        self.snd_max.min(self.snd_una.plus(window)).max(self.snd_una)
    }

    /// Checks that the numbers are in order, the payload between them is retained, and a timer runs
    /// while data is outstanding.
    pub(crate) fn check(&self, synchronised: bool) -> Result<(), String> {
        let ordered = self.snd_una.leq(self.snd_nxt)
            && self.snd_nxt.leq(self.snd_max)
            && self.snd_max.leq(self.snd_end);
        if !ordered {
            return Err(format!(
                "send sequence out of order: una {:?} nxt {:?} max {:?} end {:?}",
                self.snd_una, self.snd_nxt, self.snd_max, self.snd_end
            ));
        }
        if synchronised && (self.outstanding() || self.unsent()) && self.timer_at == Nanos::MAX {
            return Err("data is outstanding or unsent and no timer runs".into());
        }
        if self.timer_at != Nanos::MAX && self.timer_at > self.rto_at {
            return Err(format!(
                "the timer is set for {:?}, later than the retransmission timeout",
                self.timer_at
            ));
        }
        if self.recovery.held && (self.timer_at == Nanos::MAX || !self.recovery.active) {
            return Err("new payload is held back, but no timer runs or recovery is over".into());
        }
        if self.board.sacked.saturating_add(self.board.lost) > self.flight() {
            return Err(format!("{:?} exceeds the {} sequence numbers in flight", self.board, self.flight()));
        }
        if self.retained.is_empty() && self.retained_bytes != 0 {
            return Err(format!("{} bytes are counted as retained, but no unit is", self.retained_bytes));
        }
        Ok(())
    }
}
