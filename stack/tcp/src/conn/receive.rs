//! The receive side of a connection.
//!
//! ```text
//!             unread                 window
//!         |============|=============================|
//!   ------1------------2-----------------------------3--------
//!      consumed     RCV.NXT                       rcv_adv
//!
//!   before 1   consumed by the layer above
//!   1 to 2     in order, not consumed: at most a partial FPDU while that layer keeps up
//!   2 to 3     what the peer may send; rcv_adv = RCV.NXT + RCV.WND as last announced, and never moves left
//! ```
//!
//! The window is constant: up to one whole FPDU may wait unread without shrinking it. MPA consumes
//! whole FPDUs, so a smaller window could keep out the bytes that MPA waits for. Unread bytes
//! beyond that do shrink the window.
//!
//! Source: RFC 9293 s3.3.1 and s3.8.6.2.2, RFC 7323 s2.

use ironwarp_types::Seq;
use ironwarp_types::limits::FPDU_BYTES_MAX;
use serde::{Deserialize, Serialize};

use crate::TcpConfig;
use crate::config::RCV_WINDOW_BYTES_MAX;
use crate::header::Segment;
use crate::queue::RxQueues;

/// The largest window scale (RFC 7323 s2.3).
pub(crate) const WSCALE_MAX: u8 = 14;

/// Unread bytes that do not shrink the window.
const UNREAD_ALLOWANCE_BYTES: u32 = FPDU_BYTES_MAX as u32;

/// The sequence numbers of the receive side.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[repr(C)]
pub(crate) struct ReceiveSide {
    /// The sequence number of the peer's FIN, once known. First, so that the compiler marks a free
    /// slot here, in a line that each segment reads.
    pub(crate) fin: Option<Seq>,
    pub(crate) rcv_nxt: Seq,
    pub(crate) rcv_adv: Seq,
    /// Bytes before RCV.NXT that the layer above has not consumed.
    #[serde(skip)]
    pub(crate) unread: u32,
    /// The announced window while the layer above keeps up.
    window: u32,
    wscale: u8,
    /// [`ReceiveSide::advertise_window`] tries its fast path.
    #[serde(skip)]
    fast_path: bool,
    /// The layer above requested OUT_OF_ORDER events.
    pub(crate) reports_out_of_order: bool,
    /// [`Cold::sack_ranges`](super::Cold::sack_ranges) may have something to report.
    #[serde(skip)]
    pub(crate) may_report_ranges: bool,
    #[serde(skip)]
    pub(crate) queues: RxQueues,
}

impl ReceiveSide {
    /// Creates the receive side of the connection at `slot`, before the peer's SYN is known.
    pub(crate) fn new(config: &TcpConfig, slot: u32) -> Self {
        let bytes = config.rcv_window_bytes.clamp(1, RCV_WINDOW_BYTES_MAX);
        let wscale = window_scale(bytes);
        ReceiveSide {
            rcv_nxt: Seq(0),
            rcv_adv: Seq(0),
            unread: 0,
            window: (bytes >> wscale) << wscale,
            queues: RxQueues::new(config.rx_frames_reserve, slot),
            fin: None,
            wscale,
            fast_path: config.fast_path,
            reports_out_of_order: false,
            may_report_ranges: false,
        }
    }

    /// Returns the saved receive side `saved` with `unread` bytes, in place of this new one.
    pub(crate) fn restored(self, saved: ReceiveSide, unread: u32) -> Self {
        ReceiveSide {
            queues: self.queues,
            unread,
            fast_path: self.fast_path,
            may_report_ranges: true,
            ..saved
        }
    }

    /// Returns whether a saved receive side of an established connection holds no number that it
    /// could not have.
    pub(crate) fn is_valid(&self) -> bool {
        let is_ahead = |seq: Seq| self.rcv_nxt.leq(seq) && seq.leq(self.rcv_adv);
        self.wscale <= WSCALE_MAX
            && self.window > 0
            && self.window >> self.wscale <= u32::from(u16::MAX)
            && is_ahead(self.rcv_adv)
            && self.rcv_adv.since(self.rcv_nxt) <= RCV_WINDOW_BYTES_MAX
            && self.fin.is_none_or(is_ahead)
    }

    /// The peer's SYN, numbered `irs`, has arrived. Windows are scaled only when both SYNs offer it
    /// (RFC 7323 s2.2).
    pub(crate) fn on_syn(&mut self, irs: Seq, scaled: bool) {
        if !scaled {
            self.wscale = 0;
            self.window = self.window.min(u32::from(u16::MAX));
        }
        self.rcv_nxt = irs.plus(1);
        self.rcv_adv = self.rcv_nxt;
    }

    /// Returns the window scale that our SYN offers.
    pub(crate) fn wscale(&self) -> u8 {
        self.wscale
    }

    /// Returns the window field of a SYN, which is never scaled (RFC 7323 s2.2). Records the
    /// announced edge.
    pub(crate) fn advertise_window_in_syn(&mut self) -> u16 {
        let field = self.window.min(u32::from(u16::MAX));
        self.rcv_adv = self.rcv_nxt.plus(field);
        field as u16
    }

    /// Returns the window field of any other segment. Records the announced edge.
    ///
    /// In units of 2^wscale the field may miss the edge that was announced before. It is then
    /// rounded up, but not beyond the bytes that may be buffered. RFC 7323 s2.4 permits a window
    /// that seems to shrink by less than one unit. Rounding up always would let the window grow
    /// while the reader does not read.
    #[inline(always)]
    pub(crate) fn advertise_window(&mut self) -> u16 {
        // Fast: all of the window, which is a number of whole units.
        let edge = self.rcv_nxt.plus(self.window);
        if self.fast_path
            && self.unread <= UNREAD_ALLOWANCE_BYTES
            && self.rcv_adv.leq(edge)
            && let Ok(field) = u16::try_from(self.window.wrapping_shr(self.wscale.into()))
        {
            self.rcv_adv = edge;
            return field;
        }
        self.advertise_window_general()
    }

    #[inline(never)]
    fn advertise_window_general(&mut self) -> u16 {
        let window = self.rcv_adv.max(self.right_edge()).since(self.rcv_nxt);
        let mut field = window >> self.wscale;
        if field << self.wscale != window && self.unread <= UNREAD_ALLOWANCE_BYTES {
            field += 1;
        }
        let field = field.min(u32::from(u16::MAX));
        self.rcv_adv = self.rcv_adv.max(self.rcv_nxt.plus(field << self.wscale));
        field as u16
    }

    /// Returns the right edge of the bytes that may be buffered.
    #[inline]
    fn right_edge(&self) -> Seq {
        let beyond = self.unread.saturating_sub(UNREAD_ALLOWANCE_BYTES);
        self.rcv_nxt.plus(self.window.saturating_sub(beyond))
    }

    /// RFC 9293 s3.8.6.2.2: returns whether reading moved the edge far enough for a window update
    /// that the peer may be waiting for.
    pub(crate) fn needs_window_update(&self, emss: u32) -> bool {
        let announced = self.rcv_adv.since(self.rcv_nxt);
        let gain = self.right_edge().delta(self.rcv_adv);
        announced < self.window >> 1 && gain >= emss.min(self.window >> 1).max(1) as i32
    }

    /// RFC 9293 s3.10.7.4, first step: returns whether any part of a segment lies in the window.
    pub(crate) fn acceptable(&self, segment: &Segment) -> bool {
        let window = self.rcv_adv.since(self.rcv_nxt);
        let within = |seq: Seq| self.rcv_nxt.leq(seq) && seq.lt(self.rcv_adv);
        match (segment.seq_len(), window) {
            (0, 0) => segment.seq == self.rcv_nxt,
            // A peer that filled the window sends bare ACKs at the right edge.
            (0, _) => within(segment.seq) || segment.seq == self.rcv_adv,
            (_, 0) => false,
            (len, _) => within(segment.seq) || within(segment.seq.plus(len - 1)),
        }
    }
}

/// Returns the smallest shift with which the field holds the window.
fn window_scale(bytes: u32) -> u8 {
    let mut shift = 0;
    while bytes >> shift > u32::from(u16::MAX) {
        shift += 1;
    }
    shift
}

#[cfg(test)]
#[path = "receive_tests.rs"]
mod tests;
