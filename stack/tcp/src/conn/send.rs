//! The send side of a connection.
//!
//! ```text
//!             retained: unit | unit | unit | unit | unit | FIN
//!            1                           2                     3
//!  ----------|===========================|---------------------|..........
//!         SND.UNA                     snd_nxt               snd_end
//!
//!  before 1   acknowledged, forgotten
//!  1 to 2     sent; what is known of each unit, the scoreboard says
//!  2 to 3     pulled, and not sent because the peer's window is smaller than the unit: empty nearly always
//!  from 3     not pulled
//!
//!  SND.NXT of RFC 9293 is snd_max: snd_nxt, or behind it what was sent as a probe of a closed window.
//!  The peer's window reaches from SND.UNA to SND.UNA + SND.WND. The congestion window holds `pipe` bytes: what was sent
//!  and is neither acknowledged, nor SACKed, nor lost.
//! ```
//!
//! Source: RFC 9293 s3.3.1, s3.8.6, RFC 6675 s4. Plain numbers; the units themselves lie in an arena.

use ironwarp_types::{Nanos, Seq};

use super::rtt::{GRANULARITY, Rtt};
use crate::TcpConfig;
use crate::congestion::CongestionWindow;
use crate::queue::List;
use crate::recovery::{Recovery, Scoreboard, tlp_timeout};

/// What the timer is set for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Timer {
    /// The retransmission timeout, or the next probe of a closed window.
    Rto,
    /// A tail loss probe (RFC 8985 s7).
    Pto,
    /// The end of the reordering window (RFC 8985 s6.2).
    Reordering,
}

/// The numbers of the send side.
#[derive(Clone, Debug)]
#[repr(C)]
pub(crate) struct SendSide {
    pub(crate) snd_una: Seq,
    pub(crate) snd_nxt: Seq,
    pub(crate) snd_max: Seq,
    pub(crate) snd_end: Seq,
    pub(crate) snd_wnd: u32,
    /// The largest window the peer ever announced (MAX.SND.WND of RFC 5961 s5).
    pub(crate) snd_wnd_max: u32,
    /// SEG.SEQ and SEG.ACK of the last window update.
    pub(crate) snd_wl1: Seq,
    pub(crate) snd_wl2: Seq,
    pub(crate) retained: List,
    pub(crate) retained_bytes: u32,
    pub(crate) board: Scoreboard,
    /// The largest payload of a segment, in bytes.
    pub(crate) emss: u16,
    /// The shift that the peer applies to the windows it announces.
    pub(crate) wscale: u8,
    /// The layer above has closed.
    pub(crate) fin_queued: bool,
    /// Our FIN is the last unit.
    pub(crate) fin_retained: bool,
    /// A window or the limit of retained bytes ended the last transmission: tell when that changes.
    pub(crate) tx_blocked: bool,
    pub(crate) timer: Timer,
    /// When the timer runs out; [`Nanos::MAX`] while it does not run.
    pub(crate) timer_at: Nanos,
    /// When the retransmission timeout runs out, whatever the timer is set for first.
    pub(crate) rto_at: Nanos,
    /// When the peer last acknowledged something, or when what is outstanding was first sent.
    pub(crate) progress_at: Nanos,
    /// When anything was last sent for the first time.
    pub(crate) sent_at: Nanos,
    /// Payload bytes acknowledged since the connection began.
    pub(crate) acked_bytes: u64,
    pub(crate) rtt: Rtt,
    pub(crate) cc: CongestionWindow,
    pub(crate) recovery: Recovery,
}

impl SendSide {
    /// A send side whose SYN, numbered `iss`, is about to be sent.
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
            emss,
            wscale: 0,
            fin_queued: false,
            fin_retained: false,
            tx_blocked: false,
            timer: Timer::Rto,
            timer_at: Nanos::MAX,
            rto_at: Nanos::MAX,
            progress_at: now,
            sent_at: now,
            acked_bytes: 0,
            rtt: Rtt::new(config),
            cc: CongestionWindow::new(config.congestion, u32::from(emss), u32::from(emss), iss),
            recovery: Recovery::new(iss),
        }
    }

    /// Sequence numbers sent and not acknowledged.
    #[inline]
    pub(crate) fn flight(&self) -> u32 {
        self.snd_nxt.since(self.snd_una)
    }

    /// Sequence numbers on their way, by what is known now (RFC 6675 s4).
    #[inline]
    pub(crate) fn pipe(&self) -> u32 {
        self.flight().saturating_sub(self.board.sacked + self.board.lost)
    }

    /// Whether anything sent is unacknowledged.
    #[inline]
    pub(crate) fn outstanding(&self) -> bool {
        self.snd_una != self.snd_max
    }

    /// What the peer's window still takes behind snd_nxt.
    #[inline]
    pub(crate) fn peer_room(&self) -> u32 {
        self.snd_wnd.saturating_sub(self.flight())
    }

    /// What the congestion window still takes.
    #[inline]
    pub(crate) fn cwnd_room(&self) -> u32 {
        self.cc.cwnd().saturating_sub(self.pipe())
    }

    /// Whether something that was pulled waits to be sent for the first time.
    #[inline]
    pub(crate) fn unsent(&self) -> bool {
        self.snd_nxt.lt(self.snd_end)
    }

    /// Whether anything that is here waits to be sent.
    #[inline]
    pub(crate) fn has_data_to_send(&self) -> bool {
        self.unsent() || self.fin_due() || self.board.lost > 0
    }

    /// Whether our FIN is the next thing to send.
    #[inline]
    pub(crate) fn fin_due(&self) -> bool {
        self.fin_queued && !self.fin_retained && !self.unsent()
    }

    /// Whether our FIN has been sent and acknowledged.
    #[inline]
    pub(crate) fn fin_acked(&self) -> bool {
        self.fin_retained && self.snd_una == self.snd_end
    }

    /// The end of all payload that was pulled.
    #[inline]
    pub(crate) fn payload_end(&self) -> Seq {
        self.snd_end.minus(u32::from(self.fin_retained))
    }

    /// Whether all payload that was pulled is acknowledged.
    pub(crate) fn payload_acked(&self) -> bool {
        self.payload_end().leq(self.snd_una)
    }

    /// How much of `want` numbers at snd_nxt may be sent now. 0 when they must wait.
    pub(crate) fn sendable(&self, want: u32) -> u32 {
        if self.cwnd_room() < want { 0 } else { self.apply_sws(want, self.peer_room()) }
    }

    /// How much of `want` numbers goes into `room` of the peer's window: all of it, or a part where nothing else would
    /// ever move.
    ///
    /// RFC 9293 s3.8.6.2.1, the sender's side of silly window avoidance: a part goes when nothing is in flight or the
    /// part is half of the largest window this peer ever offered.
    pub(crate) fn apply_sws(&self, want: u32, room: u32) -> u32 {
        let worth_it = room >= want || self.pipe() == 0 || room >= (self.snd_wnd_max >> 1).max(1);
        if worth_it { room.min(want) } else { 0 }
    }

    /// How much of `want` numbers from `seq` on, which were sent before, may be sent again now.
    pub(crate) fn retransmittable(&self, seq: Seq, want: u32) -> u32 {
        let right = self.snd_una.plus(self.snd_wnd);
        let room = if seq.lt(right) { right.since(seq) } else { 0 };
        if self.cwnd_room() < want && self.pipe() > 0 { 0 } else { self.apply_sws(want, room) }
    }

    /// Records that `len` sequence numbers from snd_nxt on have left.
    #[inline]
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

    /// RFC 6298 s5.1 and s5.3: the retransmission timeout counts from now, and the timer is set for it.
    #[inline]
    pub(crate) fn restart_rto(&mut self, now: Nanos) {
        self.rto_at = now + self.rtt.rto();
        (self.timer, self.timer_at) = (Timer::Rto, self.rto_at);
    }

    /// RFC 8985 s7.2: sets the timer for a tail loss probe, when that comes before the timeout. For peers with SACK, while
    /// nothing is amiss.
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

    /// RFC 9293 s3.10.7.4, fifth step: takes the window of a segment unless an older one would replace a newer.
    /// Answers whether the window grew.
    #[inline]
    pub(crate) fn update_window(&mut self, seq: Seq, ack: Seq, window: u16) -> bool {
        let newer = self.snd_wl1.lt(seq) || (self.snd_wl1 == seq && self.snd_wl2.leq(ack));
        if !newer {
            return false;
        }
        let before = self.snd_wnd;
        (self.snd_wl1, self.snd_wl2) = (seq, ack);
        self.snd_wnd = u32::from(window) << self.wscale;
        self.snd_wnd_max = self.snd_wnd_max.max(self.snd_wnd);
        self.snd_wnd > before
    }

    /// The sequence number of a segment without payload: the end of what was sent, unless the peer has since drawn its
    /// window back and would not accept that. Before any window is known it stands behind our SYN.
    #[inline]
    pub(crate) fn ack_seq(&self) -> Seq {
        let window = if self.snd_wnd_max == 0 { 1 } else { self.snd_wnd };
        self.snd_max.min(self.snd_una.plus(window)).max(self.snd_una)
    }

    /// The numbers are in order, payload between them is retained, and a timer runs while anything is outstanding.
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
            return Err("data is outstanding or waits and no timer runs".into());
        }
        if self.timer_at != Nanos::MAX && self.timer_at > self.rto_at {
            return Err(format!("the timer waits until {:?}, beyond the timeout", self.timer_at));
        }
        if self.board.sacked + self.board.lost > self.flight() {
            return Err(format!("{:?} is more than the {} in flight", self.board, self.flight()));
        }
        if self.retained.is_empty() && self.retained_bytes != 0 {
            return Err(format!("{} bytes retained in no unit", self.retained_bytes));
        }
        Ok(())
    }
}
