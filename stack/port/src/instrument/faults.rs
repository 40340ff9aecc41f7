//! The kinds and rates of faults.

use ironwarp_types::{Entropy, SeededEntropy};

/// Faults for both directions of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Faults {
    /// The seed: equal seeds, rates and frames give equal faults.
    pub seed: u64,
    /// Faults of received frames.
    pub rx: FaultRates,
    /// Faults of sent frames.
    pub tx: FaultRates,
}

impl Faults {
    /// Drops `ppm` frames in a million, in both directions.
    pub fn loss(seed: u64, ppm: u32) -> Self {
        let rates = FaultRates { drop_ppm: ppm, ..FaultRates::default() };
        Faults { seed, rx: rates, tx: rates }
    }

    /// Returns seeds for the two directions, so that they are independent.
    pub(super) fn seeds(&self) -> [u64; 2] {
        let mut parent = SeededEntropy::new(self.seed);
        [parent.next_u64(), parent.next_u64()]
    }
}

/// The faults of one direction. Rates are frames in a million; a million or more means always.
/// Faults are drawn one by one, so a frame may have several.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FaultRates {
    /// Frames that are dropped.
    pub drop_ppm: u32,
    /// Frames that are duplicated.
    pub duplicate_ppm: u32,
    /// Frames that one to three later ones overtake.
    pub reorder_ppm: u32,
    /// TCP segments in which one byte of the packet changes: the checksum over it then fails. Other
    /// frames pass.
    pub corrupt_ppm: u32,
    /// Frames that are truncated; the Ethernet header stays.
    pub truncate_ppm: u32,
    /// Frames delayed for `delay_polls` receive bursts.
    pub delay_ppm: u32,
    /// The delay in receive bursts of the port.
    pub delay_polls: u32,
}

impl FaultRates {
    /// Returns whether no fault is injected.
    pub fn is_none(&self) -> bool {
        let FaultRates { drop_ppm, duplicate_ppm, reorder_ppm, corrupt_ppm, truncate_ppm, delay_ppm, .. } =
            *self;
        [drop_ppm, duplicate_ppm, reorder_ppm, corrupt_ppm, truncate_ppm, delay_ppm] == [0; 6]
    }
}
