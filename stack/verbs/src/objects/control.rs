//! What a context decides about a queue pair, as one word for the ends that other threads have.

use ironwarp_iwarp::rdmap::Rfc7306Profile;

/// The part of a queue pair that its context writes and posting reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct QpControl {
    /// The core and the slot there, once assigned.
    pub(crate) assigned: Option<(u16, u32)>,
    /// The operations of its connection besides those of RFC 5040.
    pub(crate) extensions: Option<Rfc7306Profile>,
    /// The application requested a disconnect, processed by the core or not.
    pub(crate) closing: bool,
}

const CLOSING: u64 = 1 << 0;
const ASSIGNED: u64 = 1 << 1;
const EXTENDED: u64 = 1 << 2;
const SWAP: u64 = 1 << 3;
const FIGURE_2_QUEUES: u64 = 1 << 4;
const CORE_SHIFT: u32 = 16;
const SLOT_SHIFT: u32 = 32;

impl QpControl {
    pub(crate) fn to_bits(self) -> u64 {
        let flag = |set: bool, bit: u64| if set { bit } else { 0 };
        let extensions = self.extensions.unwrap_or_default();
        let (core, slot) = self.assigned.unwrap_or_default();
        flag(self.closing, CLOSING)
            | flag(self.assigned.is_some(), ASSIGNED)
            | flag(self.extensions.is_some(), EXTENDED)
            | flag(extensions.swap, SWAP)
            | flag(extensions.figure_2_queues, FIGURE_2_QUEUES)
            | u64::from(core) << CORE_SHIFT
            | u64::from(slot) << SLOT_SHIFT
    }

    pub(crate) fn from_bits(bits: u64) -> Self {
        let has = |bit: u64| bits & bit != 0;
        let profile = Rfc7306Profile { swap: has(SWAP), figure_2_queues: has(FIGURE_2_QUEUES) };
        QpControl {
            assigned: has(ASSIGNED).then_some(((bits >> CORE_SHIFT) as u16, (bits >> SLOT_SHIFT) as u32)),
            extensions: has(EXTENDED).then_some(profile),
            closing: has(CLOSING),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_survives_the_word() {
        let profiles = [None, Some(Rfc7306Profile::RFC_7306), Some(Rfc7306Profile::DRAFT_03)];
        let figure_2 = Some(Rfc7306Profile { swap: false, figure_2_queues: true });
        for assigned in [None, Some((0, 0)), Some((u16::MAX, u32::MAX)), Some((1, 7))] {
            for extensions in profiles.into_iter().chain([figure_2]) {
                for closing in [false, true] {
                    let control = QpControl { assigned, extensions, closing };
                    assert_eq!(QpControl::from_bits(control.to_bits()), control);
                }
            }
        }
    }
}
