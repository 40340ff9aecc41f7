//! What goes wrong, and how often.

use ironwarp_types::{Entropy, SeededEntropy};

/// Faults for both directions of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Faults {
    /// Where chance starts: equal seeds, rates and frames give equal faults.
    pub seed: u64,
    /// Faults of frames on their way to the stack.
    pub rx: FaultRates,
    /// Faults of frames on their way to the device.
    pub tx: FaultRates,
}

impl Faults {
    /// Losing `ppm` frames in a million, both ways.
    pub fn loss(seed: u64, ppm: u32) -> Self {
        let rates = FaultRates { drop_ppm: ppm, ..FaultRates::default() };
        Faults { seed, rx: rates, tx: rates }
    }

    /// Starting points for the two directions, so that what one does leaves the other as it is.
    pub(super) fn seeds(&self) -> [u64; 2] {
        let mut parent = SeededEntropy::new(self.seed);
        [parent.next_u64(), parent.next_u64()]
    }
}

/// Faults of one direction. Each rate counts frames in a million; a million or more is always. The faults are rolled
/// one by one, so one frame may suffer several.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FaultRates {
    /// Frames that vanish.
    pub drop_ppm: u32,
    /// Frames that come twice.
    pub duplicate_ppm: u32,
    /// Frames that one to three later ones overtake.
    pub reorder_ppm: u32,
    /// TCP segments in which one byte of the packet changes: the checksum over it then fails. Other frames pass.
    pub corrupt_ppm: u32,
    /// Frames that lose their end; the Ethernet header stays.
    pub truncate_ppm: u32,
    /// Frames held back for `delay_polls` receive bursts.
    pub delay_ppm: u32,
    /// How long a delayed frame is held, in receive bursts of the port.
    pub delay_polls: u32,
}

impl FaultRates {
    /// Whether nothing goes wrong.
    pub fn is_none(&self) -> bool {
        let FaultRates { drop_ppm, duplicate_ppm, reorder_ppm, corrupt_ppm, truncate_ppm, delay_ppm, .. } =
            *self;
        [drop_ppm, duplicate_ppm, reorder_ppm, corrupt_ppm, truncate_ppm, delay_ppm] == [0; 6]
    }
}
