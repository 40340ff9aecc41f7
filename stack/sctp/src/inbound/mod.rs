//! Received DATA: which chunks are accepted, to whom their messages go, and when they are
//! acknowledged.
//!
//! A message that may be delivered is offered to the layer above in its frame. Otherwise, or if it
//! is not taken, the frame is held and takes of the receive window. RFC 9260 s6.2: a chunk beyond
//! the window is dropped, and sent again. A chunk that fills a gap while the window is closed takes
//! the place of the last one held.
//!
//! Messages are not reassembled: DDP segments fit a packet (RFC 5043 s9). A fragment aborts its
//! association.
//!
//! Source: RFC 9260 s6.2, s6.5 to s6.7. Cost: no copy and no allocation; a message that is taken at
//! once touches its frame only.

mod ack;
mod held;
mod tsns;

use ironwarp_llp::{Events, List};
use ironwarp_port::{Frame, Port};
use ironwarp_stats::Counter;
use ironwarp_types::Seq;

pub(crate) use held::{Carrier, Held, HeldMessages};

use crate::association::Association;
use crate::message::{Message, MessageHeader, UpperLayer};
use crate::output::{Io, Replies};
use crate::packet::{CauseCode, Data, DataFlags};
use ack::AckState;
use tsns::{Place, Tsns};

/// What one association has received.
pub(crate) struct Inbound {
    tsns: Tsns,
    pub(crate) held: List,
    /// What held frames take of the receive window.
    held_bytes: u32,
    ack: AckState,
}

impl Inbound {
    /// `initial_tsn` is the first TSN to arrive, `a_rwnd` the window that was announced.
    pub(crate) fn new(initial_tsn: Seq, a_rwnd: u32, reserve: u16) -> Self {
        Inbound {
            tsns: Tsns::new(initial_tsn),
            held: List::with_reserve(reserve),
            held_bytes: 0,
            ack: AckState::new(a_rwnd),
        }
    }

    pub(crate) fn cum_tsn(&self) -> Seq {
        self.tsns.cum()
    }

    /// Returns whether DATA has arrived.
    pub(crate) fn has_received(&self, initial_tsn: Seq) -> bool {
        self.tsns.cum().plus(1) != initial_tsn || self.tsns.has_gap()
    }

    /// Frees all messages.
    pub(crate) fn clear<F: Frame>(&mut self, messages: &mut HeldMessages<F>) {
        messages.clear(&mut self.held);
        self.held_bytes = 0;
    }

    pub(crate) fn check<F: Frame>(&self, messages: &HeldMessages<F>) -> Result<(), String> {
        self.tsns.check()?;
        let cost = messages.cost_bytes(&self.held);
        if cost != self.held_bytes {
            return Err(format!("held frames take {cost} bytes, not {}", self.held_bytes));
        }
        Ok(())
    }
}

impl<F: Frame> Association<F> {
    /// Processes a DATA chunk whose payload begins at `start` in its frame. Returns the cause to
    /// abort the association with, and its value.
    pub(crate) fn on_data<P: Port<Frame = F>>(
        &mut self,
        io: &mut Io<'_, P>,
        (data, start): (Data<'_>, u16),
        carrier: &mut Carrier,
        replies: &mut Replies<'_>,
        user: &mut impl UpperLayer,
    ) -> Result<(), (CauseCode, [u8; 4])> {
        let tsn = data.tsn;
        // RFC 9260 s6.2.
        if data.payload.is_empty() {
            return Err((CauseCode::NO_USER_DATA, tsn.0.to_be_bytes()));
        }
        if !data.flags.contains(DataFlags::WHOLE) {
            return Err((CauseCode::PROTOCOL_VIOLATION, *b"B/E\0"));
        }
        let inbound = &mut self.inbound;
        inbound.ack.on_data(data.flags.contains(DataFlags::IMMEDIATE));
        let range = match inbound.tsns.place(tsn) {
            Place::New { range } => range,
            Place::Duplicate => {
                io.shared.count(Counter::SctpRxDuplicates);
                inbound.ack.on_duplicate(tsn);
                return Ok(());
            }
            Place::Refused => {
                inbound.ack.is_immediate = true;
                io.shared.count(Counter::SctpDropNoWindow);
                return Ok(());
            }
        };
        let header = MessageHeader {
            stream: data.stream,
            ppid: data.ppid,
            is_unordered: data.flags.contains(DataFlags::UNORDERED),
        };
        if data.stream >= self.inbound_streams() {
            // RFC 9260 s6.5: acknowledged, reported and discarded.
            io.shared.count(Counter::SctpDropBadStream);
            replies.invalid_stream.get_or_insert(data.stream);
        } else if !self.deliver_or_hold(io, (header, data.ssn, data.payload), (tsn, start), carrier, user) {
            // RFC 9260 s6.2: acknowledged at once, without this one.
            self.inbound.ack.is_immediate = true;
            io.shared.count(Counter::SctpDropNoWindow);
            return Ok(());
        }
        let had_gap = self.inbound.tsns.has_gap();
        self.inbound.tsns.insert(tsn, range);
        // RFC 9260 s6.7 and RFC 5681 s4.2: with a gap, and when one closes.
        self.inbound.ack.is_immediate |= had_gap | self.inbound.tsns.has_gap();
        Ok(())
    }

    /// Delivers or holds a new message. Returns whether it is accepted.
    fn deliver_or_hold<P: Port<Frame = F>>(
        &mut self,
        io: &mut Io<'_, P>,
        (header, ssn, payload): (MessageHeader, u16, &[u8]),
        (tsn, start): (Seq, u16),
        carrier: &mut Carrier,
        user: &mut impl UpperLayer,
    ) -> bool {
        // RFC 9260 s6.2: in a closed window only what fills a gap.
        if self.a_rwnd(io.shared.config.a_rwnd_bytes) == 0 && tsn.gt(self.inbound.tsns.highest()) {
            return false;
        }
        let slot = self.id.slot;
        let is_next = header.is_unordered || io.shared.streams.next_ssn(slot, header.stream) == Some(ssn);
        if is_next && user.message(self.id, Message { header, tsn, payload }) {
            io.shared.count(Counter::SctpRxMessages);
            if !header.is_unordered {
                io.shared.streams.advance_ssn(slot, header.stream);
                let messages = &io.shared.held;
                if messages
                    .find(&self.inbound.held, |held| io.shared.streams.is_readable(slot, held))
                    .is_some()
                {
                    user.event(self.id, Events::READABLE);
                }
            }
            return true;
        }
        let is_held = self.hold(io, (header, tsn, ssn), (start, payload.len() as u16), carrier, user);
        match is_held {
            true if is_next => user.event(self.id, Events::READABLE),
            false if is_next => user.dropped(self.id, header.stream, tsn),
            _ => {}
        }
        is_held
    }

    /// Holds a message. In a closed window, or without room, it takes the place of later ones.
    fn hold<P: Port<Frame = F>>(
        &mut self,
        io: &mut Io<'_, P>,
        message: (MessageHeader, Seq, u16),
        range: (u16, u16),
        carrier: &mut Carrier,
        user: &mut impl UpperLayer,
    ) -> bool {
        loop {
            if self.a_rwnd(io.shared.config.a_rwnd_bytes) > 0
                && let Some(cost) = io.shared.held.push(&mut self.inbound.held, carrier, message, range)
            {
                self.inbound.held_bytes = self.inbound.held_bytes.saturating_add(cost);
                return true;
            }
            if !self.renege(io, message.1, user) {
                return false;
            }
        }
    }

    /// RFC 9260 s6.2: drops the last held message beyond `tsn`, which the peer sends again.
    #[cold]
    fn renege<P: Port<Frame = F>>(
        &mut self,
        io: &mut Io<'_, P>,
        tsn: Seq,
        user: &mut impl UpperLayer,
    ) -> bool {
        let Inbound { tsns, held, held_bytes, .. } = &mut self.inbound;
        let beyond = io.shared.held.iter(held).map(|held| held.tsn).filter(|held| held.gt(tsn));
        let Some(last) = beyond.reduce(Seq::max).filter(|&last| tsns.remove(last)) else { return false };
        if let Some((prev, found)) = io.shared.held.find(held, |held| held.tsn == last) {
            if found.header.is_unordered {
                user.dropped(self.id, found.header.stream, last);
            }
            *held_bytes = held_bytes.saturating_sub(io.shared.held.remove_after(held, prev));
        }
        io.shared.count(Counter::SctpRxReneged);
        true
    }

    /// Returns the receive window, in bytes: 0 when it is shorter than a packet (RFC 1122
    /// s4.2.3.3).
    pub(crate) fn a_rwnd(&self, a_rwnd_bytes: u32) -> u32 {
        let room = a_rwnd_bytes.saturating_sub(self.inbound.held_bytes);
        if room < u32::from(self.paths.current().route.mtu_bytes()).min(a_rwnd_bytes / 2) { 0 } else { room }
    }

    /// Removes a message that was read, behind the node `prev`. Returns whether the peer should
    /// learn of the window: when it has grown by a quarter (RFC 9260 s6.2).
    pub(crate) fn consume(&mut self, messages: &mut HeldMessages<F>, prev: u32, a_rwnd_bytes: u32) -> bool {
        let freed = messages.remove_after(&mut self.inbound.held, prev);
        self.inbound.held_bytes = self.inbound.held_bytes.saturating_sub(freed);
        let grown = self.a_rwnd(a_rwnd_bytes).saturating_sub(self.inbound.ack.advertised);
        freed > 0 && grown >= a_rwnd_bytes / 4
    }

    /// Returns the first message that may be read, of one stream or of any, and the node before it.
    pub(crate) fn readable<'a>(
        &self,
        messages: &'a HeldMessages<F>,
        streams: &crate::streams::Streams,
        stream: Option<u16>,
    ) -> Option<(u32, &'a Held)> {
        messages.find(&self.inbound.held, |held| {
            stream.is_none_or(|stream| stream == held.header.stream)
                && streams.is_readable(self.id.slot, held)
        })
    }
}
