//! When received DATA is acknowledged, and the SACK.
//!
//! ```text
//!   a packet with DATA -> waits for a second one, or SACK.Delay
//!                     \-> asked for: it has the I bit
//!                     \-> due: it is the second
//!                     \-> immediate: with a gap, a duplicate, a dropped chunk
//! ```
//! A due SACK leaves at the end of the iteration of the core loop, so that a burst of packets needs
//! one. One that is asked for leaves at the end of the next iteration, unless DATA has carried it:
//! a message often is a request. An immediate one does not wait, since its peer counts reports of
//! what is missing.
//!
//! Source: RFC 9260 s3.3.4, s6.2 and s6.7; RFC 5681 s4.2.

use ironwarp_port::{Frame, Port};
use ironwarp_stats::Counter;
use ironwarp_types::{Nanos, Seq};

use super::Inbound;
use crate::association::{Association, State};
use crate::output::Io;
use crate::packet::{ChunkType, PacketWriter};
use crate::paths::PathId;
use crate::slot_queue::SlotQueue;

/// Duplicates that a SACK reports. Others are counted only.
const DUPLICATES_MAX: usize = 16;

/// RFC 9260 s6.2: a SACK for at least every second packet.
const PACKETS_MAX: u8 = 2;

pub(super) struct AckState {
    /// A SACK is due.
    is_due: bool,
    /// A SACK answers the packet that is processed.
    pub(super) is_immediate: bool,
    /// The packet that is processed has DATA.
    has_data: bool,
    /// Packets with DATA since the last SACK.
    packets: u8,
    /// The window of the last SACK.
    pub(super) advertised: u32,
    duplicates: [Seq; DUPLICATES_MAX],
    duplicates_len: usize,
}

impl AckState {
    pub(super) fn new(advertised: u32) -> Self {
        let duplicates = [Seq(0); DUPLICATES_MAX];
        AckState {
            is_due: false,
            is_immediate: false,
            has_data: false,
            packets: 0,
            advertised,
            duplicates,
            duplicates_len: 0,
        }
    }

    pub(super) fn on_data(&mut self, is_immediate: bool) {
        self.has_data = true;
        self.is_due |= is_immediate;
    }

    pub(super) fn on_duplicate(&mut self, tsn: Seq) {
        self.is_immediate = true;
        if let Some(place) = self.duplicates.get_mut(self.duplicates_len) {
            *place = tsn;
            self.duplicates_len += 1;
        }
    }

    fn duplicates(&self) -> &[Seq] {
        self.duplicates.get(..self.duplicates_len).unwrap_or_default()
    }
}

impl Inbound {
    /// Appends a SACK. It always fits behind the header of a packet.
    pub(crate) fn write_sack(&self, packet: &mut PacketWriter<'_>, a_rwnd: u32) {
        let (blocks, duplicates) = (self.tsns.gap_blocks(), self.ack.duplicates());
        let [[b0, b1], [d0, d1]] = [blocks.len() as u16, duplicates.len() as u16].map(u16::to_be_bytes);
        let fixed = [self.tsns.cum().0.to_be_bytes(), a_rwnd.to_be_bytes(), [b0, b1, d0, d1]];
        packet.chunk(ChunkType::SACK, 0, |chunk| {
            chunk.put(fixed.as_flattened());
            blocks.for_each(|block| chunk.put(block.map(u16::to_be_bytes).as_flattened()));
            duplicates.iter().for_each(|tsn| chunk.put(&tsn.0.to_be_bytes()));
        });
    }

    /// Returns whether DATA has arrived since the last SACK, or one is due for another reason.
    pub(crate) fn has_unacknowledged(&self) -> bool {
        self.ack.is_due || self.ack.packets > 0
    }

    /// Returns whether a cumulative TSN does not report all that has arrived.
    pub(crate) fn needs_sack(&self) -> bool {
        self.tsns.has_gap() || self.ack.duplicates_len > 0
    }
}

impl<F: Frame> Association<F> {
    /// A packet that arrived on a path is processed: schedules the SACK of its DATA. Returns
    /// whether it had DATA.
    pub(crate) fn after_packet<P: Port<Frame = F>>(&mut self, io: &mut Io<'_, P>, from: PathId) -> bool {
        let ack = &mut self.inbound.ack;
        if !core::mem::take(&mut ack.has_data) {
            return false;
        }
        self.data_from = from;
        ack.packets = ack.packets.saturating_add(1);
        let is_second = ack.packets >= PACKETS_MAX;
        ack.is_due |= ack.is_immediate | is_second;
        if ack.is_immediate && self.state != State::ShutdownSent {
            self.send_due_ack(io);
        } else if is_second {
            self.schedule_ack(&mut io.shared.acks);
        } else if ack.is_due {
            io.shared.acks.push_later(self.id.slot);
        } else {
            let at = io.now + io.shared.config.sack_delay;
            self.timers.ack = self.timers.ack.min(at);
            self.arm(io);
        }
        true
    }

    /// Has a SACK sent at the end of this iteration.
    pub(crate) fn schedule_ack(&mut self, acks: &mut SlotQueue) {
        self.inbound.ack.is_due = true;
        acks.push(self.id.slot);
    }

    /// Sends a SACK, if one is due.
    pub(crate) fn send_due_ack<P: Port<Frame = F>>(&mut self, io: &mut Io<'_, P>) {
        if self.inbound.ack.is_due && !self.state.is_set_up() && self.state != State::Closed {
            let a_rwnd = self.a_rwnd(io.shared.config.a_rwnd_bytes);
            io.send(self.route_of_sack(), |packet| self.inbound.write_sack(packet, a_rwnd));
            self.on_ack_sent(io, a_rwnd);
        }
    }

    /// A SACK with this window is sent.
    pub(crate) fn on_ack_sent<P: Port<Frame = F>>(&mut self, io: &mut Io<'_, P>, a_rwnd: u32) {
        self.inbound.ack = AckState::new(a_rwnd);
        io.shared.count(Counter::SctpTxSacks);
        self.timers.ack = Nanos::MAX;
        self.arm(io);
    }
}
