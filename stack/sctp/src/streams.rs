//! The sequence numbers of all streams of all associations, in one table (RFC 9260 s6.5).

use crate::SctpConfig;
use crate::inbound::Held;
use crate::message::MessageHeader;

/// The streams of one core. Each slot has as many as the settings allow.
pub(crate) struct Streams {
    inbound_max: usize,
    /// The next SSN to deliver.
    next_ssn: Box<[u16]>,
    outbound_max: usize,
    outbound: Box<[TxStream]>,
}

/// A stream to send on.
#[derive(Clone, Copy, Default)]
struct TxStream {
    next_ssn: u16,
    /// Messages that are not acknowledged.
    outstanding: u16,
}

impl Streams {
    pub(crate) fn new(config: &SctpConfig) -> Self {
        let [inbound_max, outbound_max] = [config.inbound_streams, config.outbound_streams].map(usize::from);
        let associations = config.associations_max as usize;
        Streams {
            inbound_max,
            next_ssn: vec![0; associations * inbound_max].into(),
            outbound_max,
            outbound: vec![TxStream::default(); associations * outbound_max].into(),
        }
    }

    /// A new association uses a slot.
    pub(crate) fn reset(&mut self, slot: u32) {
        let from = slot as usize * self.inbound_max;
        self.next_ssn.get_mut(from..from + self.inbound_max).unwrap_or_default().fill(0);
        let from = slot as usize * self.outbound_max;
        self.outbound.get_mut(from..from + self.outbound_max).unwrap_or_default().fill(TxStream::default());
    }

    /// Returns the SSN of the next ordered message.
    pub(crate) fn tx_ssn(&self, slot: u32, stream: u16) -> u16 {
        self.outbound.get(self.outbound_at(slot, stream)).map_or(0, |stream| stream.next_ssn)
    }

    /// Returns whether all messages of a stream are acknowledged.
    pub(crate) fn is_all_acked(&self, slot: u32, stream: u16) -> bool {
        self.outbound.get(self.outbound_at(slot, stream)).is_none_or(|stream| stream.outstanding == 0)
    }

    pub(crate) fn on_sent(&mut self, slot: u32, header: MessageHeader) {
        let at = self.outbound_at(slot, header.stream);
        let Some(stream) = self.outbound.get_mut(at) else { return };
        // An association retains fewer than 2^16 chunks.
        stream.outstanding = stream.outstanding.saturating_add(1);
        if !header.is_unordered {
            stream.next_ssn = stream.next_ssn.wrapping_add(1);
        }
    }

    pub(crate) fn on_acked(&mut self, slot: u32, stream: u16) {
        let at = self.outbound_at(slot, stream);
        if let Some(stream) = self.outbound.get_mut(at) {
            stream.outstanding = stream.outstanding.saturating_sub(1);
        }
    }

    fn outbound_at(&self, slot: u32, stream: u16) -> usize {
        slot as usize * self.outbound_max + usize::from(stream)
    }

    pub(crate) fn next_ssn(&self, slot: u32, stream: u16) -> Option<u16> {
        self.next_ssn.get(slot as usize * self.inbound_max + usize::from(stream)).copied()
    }

    /// An ordered message is delivered.
    pub(crate) fn advance_ssn(&mut self, slot: u32, stream: u16) {
        if let Some(ssn) = self.next_ssn.get_mut(slot as usize * self.inbound_max + usize::from(stream)) {
            *ssn = ssn.wrapping_add(1);
        }
    }

    /// RFC 9260 s6.6: returns whether a held message may be delivered.
    pub(crate) fn is_readable(&self, slot: u32, held: &Held) -> bool {
        held.header.is_unordered || self.next_ssn(slot, held.header.stream) == Some(held.ssn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9260 s6.5: after 65535 the next SSN is 0. Unordered messages take none.
    #[test]
    fn sequence_numbers_to_send_wrap() {
        let mut streams = Streams::new(&SctpConfig { associations_max: 2, ..SctpConfig::default() });
        for n in 0..=u16::MAX {
            assert_eq!(streams.tx_ssn(1, 3), n);
            streams.on_sent(1, MessageHeader { stream: 3, ppid: 0, is_unordered: true });
            streams.on_sent(1, MessageHeader { stream: 3, ppid: 0, is_unordered: false });
        }
        assert_eq!((streams.tx_ssn(1, 3), streams.tx_ssn(1, 2), streams.tx_ssn(0, 3)), (0, 0, 0));
        streams.reset(1);
        assert!(streams.is_all_acked(1, 3));
    }
}
