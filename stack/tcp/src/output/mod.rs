//! Transmission: segments of payload, acknowledgements, SYNs, FINs and resets.
//!
//! The payload of a frame is written after room for the headers. Then the path writes all headers,
//! and the frame is sealed. This module never ends a connection. If no frame is available or the
//! device is full, the segment stays pending, and a timer or the next iteration tries again.

mod acks;
mod control;
mod fast;
mod retransmit;
mod timeout;
mod transmit;

use ironwarp_net::{Path, TxSegment};
use ironwarp_port::{Frame, Port, Wire, Wires};
use ironwarp_stats::{CoreStats, Counter};
use ironwarp_timers::Wheel;
use ironwarp_types::{Nanos, Seq};

pub(crate) use acks::AckQueue;

use crate::TcpConfig;
use crate::conn::Conn;
use crate::header::{Flags, TxHeader};
use crate::queue::{Arena, Piece, RxPressure, Shortage, Unit};

/// A port's sealed frame.
pub(crate) type SealedOf<P> = <<P as Port>::Frame as Frame>::Sealed;

/// The state that all connections of a core share.
pub(crate) struct EngineShared<P: Port> {
    pub(crate) config: TcpConfig,
    pub(crate) stats: CoreStats,
    pub(crate) rx: Arena<Piece<P::Frame>>,
    /// The connection that keeps others from `rx`, and since when.
    rx_pressure: RxPressure,
    pub(crate) tx: Arena<Unit<SealedOf<P>>>,
    /// The shortage of units in `tx`.
    pub(crate) tx_shortage: Shortage,
    /// The shortage of frames for out-of-order bytes in `rx`.
    pub(crate) out_of_order_shortage: Shortage,
    pub(crate) wheel: Wheel,
    pub(crate) acks: AckQueue,
    /// An unused frame that a source left empty, kept for the next unit.
    pub(crate) spare: Option<P::Frame>,
    /// Frames for the last units of sources, used while the pool is empty.
    terminate_reserve: Vec<P::Frame>,
    /// The next IP identification. Any value is valid, since no packet of ours may be fragmented
    /// (RFC 6864 s4.1).
    ident: u16,
    /// Two separate limits, so that counting resets reveals nothing about challenge ACKs to others.
    reset_limiter: ReplyLimiter,
    challenge_limiter: ReplyLimiter,
}

impl<P: Port> EngineShared<P> {
    pub(crate) fn new(config: TcpConfig, seed: u64, stats: CoreStats) -> Self {
        let connections = config.connections_max;
        let reserved = |each: u16| connections.saturating_mul(u32::from(each));
        EngineShared {
            rx: Arena::with_emergency_reserve(
                reserved(config.rx_frames_reserve),
                config.rx_frames_shared,
                config.rx_frames_emergency_reserve,
            )
            .with_fast_path(config.fast_path),
            rx_pressure: RxPressure::default(),
            tx: Arena::new(reserved(config.retained_units_reserve), config.retained_units_shared)
                .with_fast_path(config.fast_path),
            tx_shortage: Shortage::default(),
            out_of_order_shortage: Shortage::default(),
            wheel: Wheel::new(connections, Nanos::ZERO),
            acks: AckQueue::new(connections),
            spare: None,
            terminate_reserve: Vec::with_capacity(config.terminate_reserve_frames.into()),
            ident: 0,
            reset_limiter: ReplyLimiter::new(seed),
            challenge_limiter: ReplyLimiter::new(!seed),
            config,
            stats,
        }
    }

    /// The connection at `slot` was refused frames for a partial FPDU. If another connection has
    /// held the emergency reserve for too long, its timer fires now.
    #[cold]
    pub(crate) fn on_rx_pressure(&mut self, now: Nanos, slot: u32) {
        if let Some(grant) = self.rx.emergency_reserve()
            && grant.owner != slot
            && self.rx_pressure.on_rx_full(now, grant)
        {
            self.wheel.arm_by(grant.owner, now);
        }
    }

    /// The connection at `slot` was refused a unit, since all shared ones are retained. If the
    /// holders are to be examined, a timer fires now.
    #[cold]
    pub(crate) fn on_tx_refused(&mut self, now: Nanos, slot: u32) {
        if self.tx_shortage.on_refused(now) {
            self.wheel.arm_by(slot, now);
        }
    }

    /// The same for out-of-order bytes that were refused because half of the shared frames are in
    /// use.
    pub(crate) fn on_out_of_order_refused(&mut self, now: Nanos, slot: u32) {
        if self.rx.is_half_used() && self.out_of_order_shortage.on_refused(now) {
            self.wheel.arm_by(slot, now);
        }
    }

    /// Returns whether frames of the terminate reserve are missing.
    #[inline]
    pub(crate) fn needs_terminate_reserve(&self) -> bool {
        self.terminate_reserve.len() < usize::from(self.config.terminate_reserve_frames)
    }

    /// Returns whether the connection at `slot` has kept others from frames for too long.
    pub(crate) fn rx_pressure_expired(&self, now: Nanos, slot: u32) -> bool {
        self.rx
            .emergency_reserve()
            .is_some_and(|grant| grant.owner == slot && self.rx_pressure.has_expired(now, grant))
    }
}

/// The I/O context of one call: the time, the wire and the shared state.
pub(crate) struct TcpIo<'a, P: Port> {
    pub(crate) now: Nanos,
    pub(crate) wire: &'a mut Wire<P>,
    pub(crate) shared: &'a mut EngineShared<P>,
}

impl<'a, P: Port> TcpIo<'a, P> {
    /// Creates the context with the port of `path`.
    #[inline(always)]
    pub(crate) fn for_path(
        path: &Path,
        now: Nanos,
        wires: &'a mut Wires<P>,
        shared: &'a mut EngineShared<P>,
    ) -> Self {
        TcpIo { now, wire: wires.at_mut(path.port()), shared }
    }
}

impl<P: Port> TcpIo<'_, P> {
    pub(crate) fn count(&self, counter: Counter) {
        self.shared.stats.count(counter);
    }

    /// Sets the connection's timer to its earliest deadline.
    #[inline]
    pub(crate) fn arm(&mut self, conn: &Conn) {
        self.shared.wheel.arm(conn.slot, conn.deadline());
    }

    /// Sets the connection's timer after a transmission, which may only have brought the deadline
    /// forward.
    #[inline(always)]
    pub(crate) fn arm_for_transmission(&mut self, conn: &Conn) {
        if conn.snd.timer_at != Nanos::MAX {
            self.shared.wheel.arm_by(conn.slot, conn.transmission_deadline());
        }
    }

    /// Returns whether a reset, or an ACK in TIME-WAIT, may be sent now. The rate is limited, since
    /// anyone can trigger them.
    pub(crate) fn may_reply(&mut self) -> bool {
        let allowed = self.shared.reset_limiter.take(self.now, self.shared.config.replies_per_ms);
        self.count_if_limited(allowed)
    }

    /// Returns whether a challenge ACK may be sent now (RFC 5961 s7).
    pub(crate) fn may_challenge(&mut self) -> bool {
        let allowed = self.shared.challenge_limiter.take(self.now, self.shared.config.replies_per_ms);
        self.count_if_limited(allowed)
    }

    fn count_if_limited(&self, allowed: bool) -> bool {
        if !allowed {
            self.count(Counter::TcpTxRepliesRateLimited);
        }
        allowed
    }

    /// Returns a new frame of `len` bytes to fill, unless a spare one is there or the device has
    /// none: the fast path of [`TcpIo::frame`]. `LONG`: it will be filled nearly to `len`.
    #[inline(always)]
    pub(super) fn alloc_fast<const LONG: bool>(&mut self, len: usize) -> Option<P::Frame> {
        if self.shared.spare.is_some() {
            return None;
        }
        let mut frame = if LONG { self.wire.alloc_long() } else { self.wire.alloc() }?;
        if frame.capacity() < len {
            return None;
        }
        frame.resize(len);
        Some(frame)
    }

    /// Keeps a frame that nothing was written to, for the next connection that sends: of any port,
    /// so a shared frame goes back.
    #[cold]
    fn keep(&mut self, frame: P::Frame) {
        if !frame.is_shared() {
            self.shared.spare = Some(frame);
        }
    }

    /// Returns a frame of `len` bytes to fill: the spare one, or another if it was allocated for
    /// another port and is too small.
    fn frame(&mut self, len: usize) -> Option<P::Frame> {
        let has_room = |frame: &P::Frame| frame.capacity() >= len;
        let frame = self.shared.spare.take().filter(has_room).or_else(|| self.wire.alloc().filter(has_room));
        if let Some(mut frame) = frame {
            frame.resize(len);
            return Some(frame);
        }
        self.count(Counter::TcpTxNoBuffer);
        None
    }

    /// Returns a frame of up to `len` bytes from the terminate reserve. It may be shorter, since it
    /// may come from another port; the units that use it are short.
    #[cold]
    #[inline(never)]
    fn take_terminate_reserve(&mut self, len: usize) -> Option<P::Frame> {
        let mut frame = self.shared.terminate_reserve.pop()?;
        frame.resize(len);
        Some(frame)
    }

    /// Refills the terminate reserve.
    #[cold]
    #[inline(never)]
    fn refill_terminate_reserve(&mut self) {
        while self.shared.terminate_reserve.len() < usize::from(self.shared.config.terminate_reserve_frames)
            && let Some(frame) = self.wire.alloc()
        {
            self.shared.terminate_reserve.push(frame);
        }
    }

    /// Refills the terminate reserve if frames are missing.
    #[inline]
    pub(crate) fn ensure_terminate_reserve(&mut self) {
        if self.shared.needs_terminate_reserve() {
            self.refill_terminate_reserve();
        }
    }

    /// Writes all headers of a frame whose payload is in place, and seals it. `more_options_bytes`
    /// counts the options that are already in place after the timestamps.
    #[inline]
    fn finish(
        &mut self,
        mut frame: P::Frame,
        path: &Path,
        ports: [u16; 2],
        header: &TxHeader,
        more_options_bytes: usize,
    ) -> SealedOf<P> {
        let meta = path.write(frame.bytes_mut(), self.segment(ports, header), more_options_bytes, None);
        frame.seal(meta)
    }

    /// Returns what the headers of a segment contain apart from the path's addresses.
    #[inline(always)]
    fn segment<'h>(&mut self, ports: [u16; 2], header: &'h TxHeader) -> TxSegment<'h> {
        self.shared.ident = self.shared.ident.wrapping_add(1);
        TxSegment { ports, ident: self.shared.ident, header }
    }

    #[inline(always)]
    fn push(&mut self, sealed: SealedOf<P>) -> bool {
        let pushed = self.wire.push(sealed);
        self.count(if pushed { Counter::TcpTxSegments } else { Counter::TcpTxRingFull });
        pushed
    }

    /// [`TcpIo::push`] where [`Wire::has_room`] has just returned true.
    #[inline(always)]
    fn push_fast(&mut self, sealed: SealedOf<P>) {
        if !self.wire.push_fast(sealed) {
            return self.count_refused();
        }
        self.count(Counter::TcpTxSegments);
    }

    #[cold]
    #[inline(never)]
    fn count_refused(&self) {
        self.count(Counter::TcpTxRingFull);
    }

    /// Sends a segment without payload. `options` are the options except timestamps.
    pub(crate) fn send_control(
        &mut self,
        path: &Path,
        ports: [u16; 2],
        header: TxHeader,
        options: &[u8],
    ) -> bool {
        let options_at = path.header_bytes() + header.header_bytes();
        let Some(mut frame) = self.frame(options_at + options.len()) else { return false };
        if let Some(room) = frame.bytes_mut().get_mut(options_at..) {
            room.copy_from_slice(options);
        }
        let sealed = self.finish(frame, path, ports, &header, options.len());
        self.push(sealed)
    }

    /// RFC 9293 s3.10.7.1: sends a reset that the sender of a segment accepts. `answering` holds
    /// the segment's acknowledgement number, if it has one, and its end.
    #[cold]
    pub(crate) fn send_reset(&mut self, path: &Path, ports: [u16; 2], answering: (Option<Seq>, Seq)) {
        let header = match answering {
            (Some(ack), _) => TxHeader::bare(ack, Seq(0), Flags::RST),
            (None, end) => TxHeader::bare(Seq(0), end, Flags::RST | Flags::ACK),
        };
        self.count(Counter::TcpTxResets);
        self.send_control(path, ports, header, &[]);
    }
}

/// The rate limit of replies that anyone can trigger.
///
/// The limit differs from millisecond to millisecond, between half of the setting and all of it. A
/// fixed limit is a side channel: an attacker who uses up the rest learns how much others used.
/// From that follows whether a guess at another connection triggered a reply (CVE-2016-5696).
struct ReplyLimiter {
    millisecond: u64,
    left: u16,
    random: u64,
}

impl ReplyLimiter {
    fn new(seed: u64) -> Self {
        ReplyLimiter { millisecond: u64::MAX, left: 0, random: seed }
    }

    fn take(&mut self, now: Nanos, per_ms: u16) -> bool {
        // 2^20 ns is close enough to a millisecond and needs no division.
        let millisecond = now.0 >> 20;
        if millisecond != self.millisecond {
            self.millisecond = millisecond;
            self.left = per_ms - self.below(per_ms / 2 + 1);
        }
        let allowed = self.left > 0;
        self.left -= u16::from(allowed);
        allowed
    }

    /// Returns a number below `n` from a linear congruential generator. Its high bits suffice for a
    /// limit that is not observable.
    fn below(&mut self, n: u16) -> u16 {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (((self.random >> 48) * u64::from(n)) >> 16) as u16
    }
}
