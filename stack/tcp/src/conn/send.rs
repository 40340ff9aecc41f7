//! The send side of a connection.
//!
//! ```text
//!             retained: unit | unit | unit | unit | unit
//!            1             2              3            4
//!  ----------|=============|==============|------------|..........
//!         SND.UNA       snd_nxt        snd_max      snd_end
//!
//!  before 1   acknowledged, forgotten
//!  1 to 2     sent, and not to be sent again by what is known now
//!  2 to 3     sent before, to be sent again: empty but after a timeout or a window probe
//!  3 to 4     pulled, and not sent because the peer's window is smaller than the unit: empty nearly always
//!  from 4     not pulled; our FIN has the number 4 when `fin_queued`
//!
//!  SND.NXT of RFC 9293 is snd_max: acknowledgements up to there are acceptable.
//!  The peer's window reaches from SND.UNA to SND.UNA + SND.WND, the congestion window to SND.UNA + cwnd.
//! ```
//!
//! Source: RFC 9293 s3.3.1, s3.8.6. Plain numbers; the units themselves lie in an arena.

use ironwarp_types::{Nanos, Seq};

use super::congestion::NewReno;
use super::rtt::Rtt;
use crate::TcpConfig;
use crate::queue::{List, NIL};

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
    pub(crate) cc: NewReno,
    pub(crate) retained: List,
    pub(crate) retained_bytes: u32,
    /// The node of `retained` that holds `snd_nxt`, or [`NIL`] when it must be looked for.
    pub(crate) cursor: u32,
    /// The largest payload of a segment, in bytes.
    pub(crate) emss: u16,
    /// The shift that the peer applies to the windows it announces.
    pub(crate) wscale: u8,
    pub(crate) fin_queued: bool,
    /// The first unacknowledged unit must be sent again before anything else.
    pub(crate) resend_first: bool,
    /// A window or the limit of retained bytes ended the last transmission: tell when that changes.
    pub(crate) stopped: bool,
    pub(crate) rtt: Rtt,
    /// When the retransmission or persist timer runs out; [`Nanos::MAX`] while neither runs.
    pub(crate) timer_at: Nanos,
    /// When the peer last acknowledged something, or when what is outstanding was first sent.
    pub(crate) progress_at: Nanos,
    /// Payload bytes acknowledged since the connection began.
    pub(crate) acked_bytes: u64,
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
            cc: NewReno::new(u32::from(emss), u32::from(emss), iss),
            retained: List::with_reserve(config.retained_units_reserve),
            retained_bytes: 0,
            cursor: NIL,
            emss,
            wscale: 0,
            fin_queued: false,
            resend_first: false,
            stopped: false,
            rtt: Rtt::new(config),
            timer_at: Nanos::MAX,
            progress_at: now,
            acked_bytes: 0,
        }
    }

    /// Bytes on their way, by what is known now.
    #[inline]
    pub(crate) fn flight(&self) -> u32 {
        self.snd_nxt.since(self.snd_una)
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

    /// What the congestion window still takes behind snd_nxt.
    #[inline]
    pub(crate) fn cwnd_room(&self) -> u32 {
        self.cc.window().saturating_sub(self.flight())
    }

    /// Whether pulled payload waits to be sent, for the first time or again.
    #[inline]
    pub(crate) fn unsent(&self) -> bool {
        self.snd_nxt.lt(self.snd_end)
    }

    /// Whether our FIN is the next thing to send.
    #[inline]
    pub(crate) fn fin_due(&self) -> bool {
        self.fin_queued && self.snd_nxt == self.snd_end
    }

    /// Whether our FIN has been sent and acknowledged.
    #[inline]
    pub(crate) fn fin_acked(&self) -> bool {
        self.fin_queued && self.snd_una.gt(self.snd_end)
    }

    /// How much of `want` payload bytes at snd_nxt may be sent now: all of it, or a part where nothing else would ever
    /// move. 0 when it must wait.
    ///
    /// RFC 9293 s3.8.6.2.1, the sender's side of silly window avoidance: a part goes when nothing is in flight or the
    /// part is half of the largest window this peer ever offered.
    pub(crate) fn sendable(&self, want: u32) -> u32 {
        let room = self.peer_room();
        if self.cwnd_room() < want {
            return 0;
        }
        let worth_it = room >= want || self.flight() == 0 || room >= (self.snd_wnd_max >> 1).max(1);
        if worth_it { room.min(want) } else { 0 }
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
            self.rtt.on_resent();
        }
        self.snd_nxt = seq_end;
        self.snd_max = self.snd_max.max(seq_end);
        if self.timer_at == Nanos::MAX {
            self.timer_at = now + self.rtt.rto();
        }
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
    /// window back and would not accept that.
    #[inline]
    pub(crate) fn ack_seq(&self) -> Seq {
        self.snd_max.min(self.snd_una.plus(self.snd_wnd)).max(self.snd_una)
    }

    /// The numbers are in order, payload between them is retained, and a timer runs while anything is outstanding.
    pub(crate) fn check(&self, synchronised: bool) -> Result<(), String> {
        let fin = u32::from(self.fin_queued);
        let ordered = self.snd_una.leq(self.snd_nxt)
            && self.snd_nxt.leq(self.snd_max)
            && self.snd_max.leq(self.snd_end.plus(fin));
        if !ordered {
            return Err(format!(
                "send sequence out of order: una {:?} nxt {:?} max {:?} end {:?}",
                self.snd_una, self.snd_nxt, self.snd_max, self.snd_end
            ));
        }
        if synchronised && self.outstanding() && self.timer_at == Nanos::MAX {
            return Err("data is outstanding and no timer runs".into());
        }
        if self.retained.is_empty() && self.retained_bytes != 0 {
            return Err(format!("{} bytes retained in no unit", self.retained_bytes));
        }
        Ok(())
    }
}
