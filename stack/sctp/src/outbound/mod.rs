//! Sent DATA: pulled from the layer above, retained until it is acknowledged, sent again.
//!
//! ```text
//!   acknowledged | retained: in flight, acked by a gap block, or lost | not pulled yet
//!            cum_acked                                            next_tsn
//! ```
//!
//! A message is pulled when the windows take a whole packet, and written in place in its frame,
//! behind a SACK if one waits. It is one chunk. Short messages share a packet, and so do chunks
//! that are sent again. With nothing outstanding a message is made to fit a window of at least 516
//! octets (RFC 5043 s9); a smaller window is probed.
//!
//! Source: RFC 9260 s6.1, s6.3 and s7.2. Cost: one frame and one pass of CRC-32C a packet, and one
//! list node a message; no copy.

mod chunk;
mod retransmit;
mod sack;

use ironwarp_llp::{Arena, Blocked, List, Transmitted, UnitSource};
use ironwarp_port::{Frame, Port};
use ironwarp_stats::Counter;
use ironwarp_types::{Nanos, Seq};

pub(crate) use chunk::SentChunk;

use crate::SctpConfig;
use crate::association::{Association, State};
use crate::message::MessageHeader;
use crate::output::Io;
use crate::packet::{DATA_FIXED_BYTES, DATA_HEADER_BYTES, Data, DataFlags, PacketWriter};
use crate::paths::{PATHS_MAX, Paths, PerPath};
use chunk::ChunkState;

/// RFC 5043 s9: a DDP segment of this size is always possible.
const MESSAGE_BYTES_MIN: u32 = 516;

/// The room for the value of a chunk with such a segment.
const LEAST_ROOM: usize = DATA_FIXED_BYTES + MESSAGE_BYTES_MIN as usize;

/// The most messages of a packet.
const BUNDLED_MAX: u16 = 16;

/// A probe of a receive window that takes no message (RFC 9260 s6.1, rule A).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Probe {
    /// There is none.
    Idle,
    /// T3-rtx runs until it.
    Waits,
    /// The next message is one.
    IsDue,
}

/// What one association has sent.
pub(crate) struct Outbound {
    next_tsn: Seq,
    cum_acked: Seq,
    retained: List,
    /// The receive window of the peer, less what is in flight.
    rwnd: u32,
    flight_bytes: u32,
    /// Chunks marked for retransmission.
    lost: u32,
    /// A chunk is in a Gap Ack Block.
    has_gap_acked: bool,
    /// The last TSN of fast recovery.
    fast_recovery: Option<Seq>,
    /// One packet may leave whatever cwnd is.
    fast_retransmit: bool,
    probe: Probe,
    /// The last SACK had a window that takes no whole packet.
    is_window_closed: bool,
    /// A SACK arrived since T3-rtx expired.
    heard: bool,
    /// Consecutive expiries of T3-rtx.
    errors: u8,
    /// A WRITABLE event is due when a window opens.
    is_blocked: bool,
}

impl Outbound {
    /// `initial_tsn` is the first TSN to send, `rwnd` the window that the peer announced.
    pub(crate) fn new(initial_tsn: Seq, rwnd: u32, config: &SctpConfig) -> Self {
        Outbound {
            next_tsn: initial_tsn,
            cum_acked: initial_tsn.minus(1),
            retained: List::with_reserve(config.retained_chunks_reserve),
            rwnd,
            flight_bytes: 0,
            lost: 0,
            has_gap_acked: false,
            fast_recovery: None,
            fast_retransmit: false,
            probe: Probe::Idle,
            is_window_closed: false,
            heard: false,
            errors: 0,
            is_blocked: false,
        }
    }

    /// Returns whether all messages are acknowledged.
    pub(crate) fn is_all_acked(&self) -> bool {
        self.retained.is_empty()
    }

    /// Returns whether a chunk waits for its retransmission.
    pub(crate) fn has_lost(&self) -> bool {
        self.lost > 0
    }

    /// Returns whether a message was sent.
    pub(crate) fn has_sent(&self, initial_tsn: Seq) -> bool {
        self.next_tsn != initial_tsn
    }

    /// Counts a timeout. Returns whether there were too many in a row.
    pub(crate) fn count_error(&mut self, errors_max: u8) -> bool {
        self.errors = self.errors.saturating_add(1);
        self.errors > errors_max
    }

    pub(crate) fn clear_errors(&mut self) {
        self.errors = 0;
    }

    /// Frees all chunks.
    pub(crate) fn clear<S>(&mut self, retained: &mut Arena<SentChunk<S>>) {
        retained.clear(&mut self.retained);
        (self.flight_bytes, self.lost, self.cum_acked) = (0, 0, self.next_tsn.minus(1));
    }

    fn is_probing(&self) -> bool {
        self.probe == Probe::Waits
    }

    /// Checks that what is retained are all TSNs after the cumulative one, that the sums agree, and
    /// that T3-rtx runs while a chunk or a probe waits, on each path with chunks in flight.
    pub(crate) fn check<S>(&self, retained: &Arena<SentChunk<S>>, paths: &Paths) -> Result<(), String> {
        let (mut tsn, mut flight, mut lost) = (self.cum_acked, 0, 0);
        let mut flights: PerPath<u32> = [0; PATHS_MAX];
        for chunk in retained.iter(&self.retained) {
            tsn = tsn.plus(1);
            if chunk.state == ChunkState::InFlight {
                flight += chunk.size();
                flights.get_mut(usize::from(chunk.path)).into_iter().for_each(|sum| *sum += chunk.size());
            }
            lost += u32::from(chunk.state == ChunkState::Lost);
            if chunk.tsn != tsn {
                return Err(format!("TSN {:?} is at the place of {tsn:?}", chunk.tsn));
            }
        }
        if tsn.plus(1) != self.next_tsn || flight != self.flight_bytes || lost != self.lost {
            return Err(format!("TSNs end at {tsn:?}, {flight} bytes in flight, {lost} chunks lost"));
        }
        for (path, flight) in paths.iter().zip(flights) {
            if path.flight_bytes != flight || flight > 0 && path.rtx_at == Nanos::MAX {
                return Err(format!("{flight} bytes in flight on a path, T3-rtx at {:?}", path.rtx_at));
            }
        }
        let is_timer_running = paths.iter().any(|path| path.rtx_at != Nanos::MAX);
        if is_timer_running != (!self.retained.is_empty() || self.is_probing()) {
            return Err(format!("T3-rtx runs: {is_timer_running}"));
        }
        Ok(())
    }
}

impl<F: Frame> Association<F> {
    /// Sends up to `packets_max` packets: what was lost, and then messages of `source` while the
    /// windows take a whole one.
    pub(crate) fn transmit<P: Port<Frame = F>>(
        &mut self,
        io: &mut Io<'_, P>,
        header: MessageHeader,
        source: &mut impl UnitSource,
        packets_max: usize,
    ) -> Transmitted {
        // Without room in the device nothing changes: a call is as none.
        if !io.wires.at_mut(self.paths.current().route.port()).has_room() {
            return Transmitted { blocked: Blocked::Wire, ..Transmitted::default() };
        }
        let mut done = Transmitted::default();
        self.paths.current_mut().begin_burst(&io.shared.config);
        while done.units < packets_max {
            match self.send_next(io, header, source) {
                Ok(bytes) => {
                    done.units += 1;
                    done.bytes += bytes;
                }
                Err(blocked) => {
                    done.blocked = blocked;
                    break;
                }
            }
        }
        if matches!(done.blocked, Blocked::Window | Blocked::Congestion | Blocked::Retained) {
            self.outbound.is_blocked = true;
        }
        // RFC 9260 s6.1, rule A: the first probe comes after an RTO.
        if done.blocked == Blocked::Window && self.outbound.is_all_acked() {
            self.outbound.probe = Probe::Waits;
            self.paths.current_mut().start_rtx_timer_if_stopped(io.now);
        }
        self.arm(io);
        done
    }

    fn send_next<P: Port<Frame = F>>(
        &mut self,
        io: &mut Io<'_, P>,
        header: MessageHeader,
        source: &mut impl UnitSource,
    ) -> Result<usize, Blocked> {
        if !self.state.may_send_again() {
            return Err(Blocked::None);
        }
        if !io.wires.at_mut(self.paths.current().route.port()).has_room() {
            return Err(Blocked::Wire);
        }
        // RFC 9260 s6.1, rule C.
        if self.outbound.has_lost() {
            return self.send_lost(io);
        }
        if self.state != State::Established || header.stream >= self.outbound_streams() {
            return Err(Blocked::None);
        }
        if source.is_empty() {
            return Err(Blocked::Source);
        }
        let message_bytes_max = self.may_pull(io)?;
        self.pull(io, header, source, message_bytes_max)
    }

    /// Returns the length of a message that fills a packet.
    fn full_message_bytes(&self) -> u32 {
        self.paths.pmdcs().saturating_sub(DATA_HEADER_BYTES.into())
    }

    /// Returns how long the next message may be.
    fn may_pull<P: Port<Frame = F>>(&self, io: &Io<'_, P>) -> Result<u32, Blocked> {
        let (rwnd, path) = (self.outbound.rwnd, self.paths.current());
        let full = self.full_message_bytes();
        if self.outbound.is_all_acked() {
            return match rwnd {
                _ if rwnd >= full || self.outbound.probe == Probe::IsDue => Ok(full),
                MESSAGE_BYTES_MIN.. => Ok(rwnd & !3),
                _ => Err(Blocked::Window),
            };
        }
        if self.outbound.retained.len() >= io.shared.config.retained_chunks_max {
            return Err(Blocked::Retained);
        }
        // RFC 9260 s6.1: rule B, with one packet beyond cwnd, and rule D.
        if path.flight_bytes >= path.congestion.cwnd().min(path.burst_end) {
            return Err(Blocked::Congestion);
        }
        // Rule A, without silly windows: only whole packets.
        if rwnd < full { Err(Blocked::Window) } else { Ok(full) }
    }

    /// Sends a packet with as many messages as may share one, and retains them. Returns their
    /// bytes.
    fn pull<P: Port<Frame = F>>(
        &mut self,
        io: &mut Io<'_, P>,
        header: MessageHeader,
        source: &mut impl UnitSource,
        message_bytes_max: u32,
    ) -> Result<usize, Blocked> {
        let (retained, retained_max) = (&self.outbound.retained, io.shared.config.retained_chunks_max);
        // A probe and a message for a small window travel alone. So does one in a packet that is
        // larger than `may_pull` assumes, since another path has a smaller MTU.
        let is_shared = self.outbound.rwnd >= self.full_message_bytes()
            && self.paths.current().congestion.pmdcs() == self.paths.pmdcs();
        let messages_max = match is_shared {
            true => retained_max.saturating_sub(retained.len()).clamp(1, BUNDLED_MAX),
            false => 1,
        };
        let messages_max = io.shared.retained.room(retained).min(messages_max);
        if messages_max == 0 {
            return Err(Blocked::Pool);
        }
        let a_rwnd = self.a_rwnd(io.shared.config.a_rwnd_bytes);
        let sack = Some(&self.inbound).filter(|inbound| inbound.has_unacknowledged());
        let route = self.route();
        let (port, offset) = (route.path.port(), route.path.transport_offset());
        let built = io.build(route, |packet, shared| {
            if let Some(inbound) = sack {
                inbound.write_sack(packet, a_rwnd);
            }
            let ssn = match header.is_unordered {
                true => 0,
                false => shared.streams.tx_ssn(self.id.slot, header.stream),
            };
            let first = Data::whole(header, self.outbound.next_tsn, ssn);
            write_messages(packet, first, source, (message_bytes_max, messages_max))
        });
        let Some((sealed, written)) = built else { return Err(Blocked::Pool) };
        let Some((start, count)) = written else { return Err(Blocked::Source) };
        let has_sack = sack.is_some();
        let bytes = self.retain(io, header, &sealed, (offset + start, count));
        if has_sack {
            self.on_ack_sent(io, a_rwnd);
        }
        io.push(port, sealed);
        io.shared.stats.add(Counter::SctpTxBytes, bytes.into());
        Ok(bytes as usize)
    }

    /// Retains the `count` messages of a packet, which begin at `start` in its frame. Returns their
    /// bytes.
    fn retain<P: Port<Frame = F>>(
        &mut self,
        io: &mut Io<'_, P>,
        header: MessageHeader,
        sealed: &F::Sealed,
        (mut start, count): (usize, u16),
    ) -> u32 {
        let (outbound, id) = (&mut self.outbound, self.paths.current_id());
        let later = outbound.next_tsn.plus(count.into());
        let (mut bytes, mut size) = (0, 0);
        while outbound.next_tsn != later {
            let chunk = SentChunk::new(sealed, start, outbound.next_tsn, later, header.stream, id);
            (bytes, size) = (bytes + chunk.message_bytes(), size + chunk.size());
            start += chunk.size() as usize;
            // There is room.
            let _ = io.shared.retained.push_back(&mut outbound.retained, chunk);
            io.shared.streams.on_sent(self.id.slot, header);
            outbound.next_tsn = outbound.next_tsn.plus(1);
        }
        let path = self.paths.current_mut();
        if path.flight_bytes == 0 {
            path.on_first_in_flight(io.now, &io.shared.config);
        }
        outbound.flight_bytes += size;
        outbound.rwnd = outbound.rwnd.saturating_sub(size);
        path.on_sent(io.now, size);
        if core::mem::replace(&mut outbound.probe, Probe::Idle) == Probe::Waits {
            self.paths.iter_mut().for_each(|path| path.rtx_at = Nanos::MAX);
        }
        let path = self.paths.current_mut();
        path.rtt.on_sent(io.now, later);
        path.start_rtx_timer_if_stopped(io.now);
        bytes
    }

    /// Returns the number of streams to send on.
    pub(crate) fn outbound_streams(&self) -> u16 {
        self.local.outbound_streams.min(self.peer.inbound_streams)
    }
}

/// Appends DATA chunks to a packet: at most `messages_max` messages of `source`, each of at most
/// `bytes_max`, while there is room for one of any kind (RFC 9260 s6.10). Returns where they begin
/// in the packet, and how many there are.
#[inline(always)]
fn write_messages(
    packet: &mut PacketWriter<'_>,
    mut data: Data<'_>,
    source: &mut impl UnitSource,
    (bytes_max, messages_max): (u32, u16),
) -> Option<(usize, u16)> {
    let (mut start, mut count) = (None, 0);
    loop {
        let mut is_empty = true;
        let written = packet.data(&data, bytes_max as usize, |room| {
            let bytes = source.fill(room);
            is_empty = source.is_empty();
            // RFC 7053 s5.1: without more to send, the layer above waits for the SACK.
            (bytes, if is_empty { DataFlags::IMMEDIATE } else { DataFlags::empty() })
        });
        let Some(range) = written else { break };
        start = start.or(Some(range.start));
        count += 1;
        if is_empty || count == messages_max || !packet.has_room(LEAST_ROOM) {
            break;
        }
        data = data.next();
    }
    Some((start?, count))
}
