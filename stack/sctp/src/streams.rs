//! The sequence numbers of all streams of all associations, in one table (RFC 9260 s6.5).

use crate::inbound::Held;

/// The streams of one core. Each slot has as many as the settings allow.
pub(crate) struct Streams {
    inbound_max: usize,
    /// The next SSN to deliver.
    next_ssn: Box<[u16]>,
}

impl Streams {
    pub(crate) fn new(associations: u32, inbound_max: u16) -> Self {
        let inbound_max = usize::from(inbound_max);
        Streams { inbound_max, next_ssn: vec![0; associations as usize * inbound_max].into() }
    }

    /// A new association uses a slot.
    pub(crate) fn reset(&mut self, slot: u32) {
        let from = slot as usize * self.inbound_max;
        self.next_ssn.get_mut(from..from + self.inbound_max).unwrap_or_default().fill(0);
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
