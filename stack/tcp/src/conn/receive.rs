//! The receive side of a connection.
//!
//! ```text
//!            unread                 window
//!        |============|=============================|
//!  ------1------------2-----------------------------3--------
//!      taken       RCV.NXT                       rcv_adv
//!
//!  before 1   read by the layer above
//!  1 to 2     in order and waiting: at most a partial FPDU when that layer keeps up
//!  2 to 3     what the peer may send; rcv_adv = RCV.NXT + RCV.WND as last announced, and never moves left
//! ```
//!
//! The window is constant: up to a whole FPDU may wait unread without shrinking it, since MPA takes FPDUs whole and
//! would otherwise wait for bytes that the window keeps out. Beyond that, unread bytes do shrink it.
//!
//! Source: RFC 9293 s3.3.1 and s3.8.6.2.2, RFC 7323 s2.

use ironwarp_types::Seq;
use ironwarp_types::limits::FPDU_BYTES_MAX;

use super::SackRanges;
use crate::TcpConfig;
use crate::config::RCV_WINDOW_BYTES_MAX;
use crate::header::{SackBlock, Segment};
use crate::queue::RxQueues;

/// Unread bytes that do not shrink the window.
const UNREAD_ALLOWANCE_BYTES: u32 = FPDU_BYTES_MAX as u32;

/// The numbers of the receive side.
#[derive(Clone, Debug)]
#[repr(C)]
pub(crate) struct ReceiveSide {
    pub(crate) rcv_nxt: Seq,
    pub(crate) rcv_adv: Seq,
    /// Bytes before RCV.NXT that have not been read.
    pub(crate) unread: u32,
    /// The window that is announced while the layer above keeps up.
    window: u32,
    pub(crate) queues: RxQueues,
    /// The number of the peer's FIN, once it is known.
    pub(crate) fin: Option<Seq>,
    wscale: u8,
    /// The layer above wants to hear of bytes beyond a gap.
    pub(crate) reports_out_of_order: bool,
    /// The latest of them.
    pub(crate) latest_out_of_order: SackBlock,
    /// What selective acknowledgements tell.
    pub(crate) sack_ranges: SackRanges,
}

impl ReceiveSide {
    /// A receive side before the peer's SYN is known, of the connection at `slot`.
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
            reports_out_of_order: false,
            latest_out_of_order: SackBlock { start: Seq(0), end: Seq(0) },
            sack_ranges: SackRanges::default(),
        }
    }

    /// The peer's SYN, numbered `irs`, has arrived. Windows are scaled only when both SYNs say so (RFC 7323 s2.2).
    pub(crate) fn on_syn(&mut self, irs: Seq, scaled: bool) {
        if !scaled {
            self.wscale = 0;
            self.window = self.window.min(u32::from(u16::MAX));
        }
        self.rcv_nxt = irs.plus(1);
        self.rcv_adv = self.rcv_nxt;
    }

    /// The shift that our SYN offers.
    pub(crate) fn wscale(&self) -> u8 {
        self.wscale
    }

    /// The window field of a SYN, which is never scaled (RFC 7323 s2.2). Records what it promises.
    pub(crate) fn advertise_window_in_syn(&mut self) -> u16 {
        let field = self.window.min(u32::from(u16::MAX));
        self.rcv_adv = self.rcv_nxt.plus(field);
        field as u16
    }

    /// The window field of any other segment. Records what it promises.
    ///
    /// An announcement in units of 2^wscale can miss the edge that was promised before. It is then rounded up, but not
    /// beyond what we are ready to buffer: RFC 7323 s2.4 prefers a window that seems to shrink by a fraction of a unit
    /// to one that a reader who never reads lets creep forward.
    #[inline]
    pub(crate) fn advertise_window(&mut self) -> u16 {
        let window = self.rcv_adv.max(self.right_edge()).since(self.rcv_nxt);
        let mut field = window >> self.wscale;
        if field << self.wscale != window && self.unread <= UNREAD_ALLOWANCE_BYTES {
            field += 1;
        }
        let field = field.min(u32::from(u16::MAX));
        self.rcv_adv = self.rcv_adv.max(self.rcv_nxt.plus(field << self.wscale));
        field as u16
    }

    /// The right edge of what we are ready to take.
    #[inline]
    fn right_edge(&self) -> Seq {
        let beyond = self.unread.saturating_sub(UNREAD_ALLOWANCE_BYTES);
        self.rcv_nxt.plus(self.window.saturating_sub(beyond))
    }

    /// RFC 9293 s3.8.6.2.2: reading has moved the edge far enough to be worth telling, and the peer may be waiting.
    pub(crate) fn needs_window_update(&self, emss: u32) -> bool {
        let announced = self.rcv_adv.since(self.rcv_nxt);
        let gain = self.right_edge().delta(self.rcv_adv);
        announced < self.window >> 1 && gain >= emss.min(self.window >> 1).max(1) as i32
    }

    /// RFC 9293 s3.10.7.4, first step: whether any part of a segment lies in the window.
    pub(crate) fn acceptable(&self, segment: &Segment) -> bool {
        let window = self.rcv_adv.since(self.rcv_nxt);
        let within = |seq: Seq| self.rcv_nxt.leq(seq) && seq.lt(self.rcv_adv);
        match (segment.seq_len(), window) {
            (0, 0) => segment.seq == self.rcv_nxt,
            // The right edge itself is where a peer that filled the window stands when it sends a bare ACK.
            (0, _) => within(segment.seq) || segment.seq == self.rcv_adv,
            (_, 0) => false,
            (len, _) => within(segment.seq) || within(segment.seq.plus(len - 1)),
        }
    }
}

/// The smallest shift with which the field holds the window.
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
