//! Draws the plan of an NVMe target with two hosts: what the honest host does, what the hostile one
//! does, and what happens to the disks.
//!
//! Host 0 is the target, host 1 the honest host, host 2 the hostile one. Each of the two has a
//! subsystem with a namespace in memory and one on a simulated disk.

use ironwarp_types::{Entropy, Nanos, SeededEntropy};

use super::{Change, Plan, log_uniform};
use crate::kinds::kinds;

/// The plan of all three.
#[derive(Clone, Debug)]
pub struct StoragePlan {
    /// The seeds of the honest and the hostile host.
    pub seeds: [u64; 2],
    pub buffers: u32,
    /// Commands that the honest host has outstanding.
    pub depth: usize,
    /// Its commands: before the links have healed at least, and after that.
    pub commands: u32,
    /// Its Writes, commands in a million.
    pub write_ppm: u32,
    /// Its Writes with the data in the capsule, Writes in a million.
    pub in_capsule_ppm: u32,
    /// What the hostile host does.
    pub habits: Vec<StorageHabit>,
    /// The longest time between two of its actions.
    pub hostile_interval: Nanos,
    pub disk_changes: Vec<(Nanos, usize, DiskChange)>,
    /// When no core of a host is polled: the host, from, until.
    pub pauses: Vec<(usize, Nanos, Nanos)>,
}

kinds! {
    /// What a hostile host does. It does several of these in random order.
    pub enum StorageHabit {
        /// Valid Reads and Writes, as many as fit.
        Commands,
        /// Write Zeroes and Dataset Management of as much as they may name.
        Fills,
        /// Connection requests, valid and not, which it leaves at any stage.
        Connections,
        Connects,
        /// Fields and bytes that make no sense.
        Nonsense,
        /// Resets of connections in the middle of commands.
        Resets,
        /// Data that it asks for or offers, and does not move: it stands still.
        Standstill,
        /// Log pages and Identify.
        Admin,
    }
}

/// What happens to a disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DiskChange {
    /// It completes nothing from now on, or again.
    Hangs(bool),
    /// It completes in the opposite order from now on, or not.
    Reverses(bool),
    Fails,
}

impl Plan {
    pub(super) fn draw_storage(&mut self, rng: &mut SeededEntropy) {
        let mut habits: Vec<_> = StorageHabit::ALL.iter().copied().filter(|_| rng.chance(400_000)).collect();
        if habits.is_empty() {
            habits.push(StorageHabit::ALL[rng.below(StorageHabit::ALL.len() as u64) as usize]);
        }
        let mut storage = StoragePlan {
            seeds: [rng.next_u64(), rng.next_u64()],
            buffers: 8 << rng.below(4),
            depth: 1 << rng.below(5),
            commands: 40 + rng.below(160) as u32,
            write_ppm: [300_000, 500_000, 800_000][rng.below(3) as usize],
            in_capsule_ppm: [0, 500_000, 1_000_000][rng.below(3) as usize],
            habits,
            hostile_interval: Nanos(log_uniform(rng, 10, 18)),
            disk_changes: Vec::new(),
            pauses: Vec::new(),
        };
        for _ in 0..rng.below(6) {
            let end = storage.draw_disk_change(self.heal_at, rng);
            self.heal_at = self.heal_at.max(end);
        }
        if storage.habits.contains(&StorageHabit::Standstill) {
            for _ in 0..1 + rng.below(3) {
                let start = Nanos(rng.below(self.heal_at.0));
                storage.pauses.push((HOSTILE, start, start + Nanos(log_uniform(rng, 20, 33))));
            }
        }
        if rng.chance(250_000) {
            // Longer than the target takes for a pause of its own, at times.
            let start = Nanos(rng.below(self.heal_at.0));
            let host = rng.below(2) as usize;
            storage.pauses.push((host, start, start + Nanos(log_uniform(rng, 16, 28))));
        }
        storage.disk_changes.sort_by_key(|(at, ..)| *at);
        let changes = storage.disk_changes.iter().copied();
        self.timeline.extend(changes.map(|(at, disk, change)| (at, Change::Disk { disk, change })));
        self.storage = Some(storage);
    }
}

impl StoragePlan {
    /// A change before `heal_at`, and its end, which is returned. A disk may hang for longer than
    /// it is given.
    fn draw_disk_change(&mut self, heal_at: Nanos, rng: &mut SeededEntropy) -> Nanos {
        let disk = rng.below(2) as usize;
        let start = Nanos(rng.below(heal_at.0));
        let (change, end) = match rng.below(3) {
            0 => (DiskChange::Fails, start),
            1 => (DiskChange::Reverses(true), (start + Nanos(log_uniform(rng, 18, 30))).min(heal_at)),
            _ => (DiskChange::Hangs(true), start + HANG_MIN + Nanos(log_uniform(rng, 18, 30))),
        };
        self.disk_changes.push((start, disk, change));
        match change {
            DiskChange::Fails => {}
            DiskChange::Reverses(_) => self.disk_changes.push((end, disk, DiskChange::Reverses(false))),
            DiskChange::Hangs(_) => self.disk_changes.push((end, disk, DiskChange::Hangs(false))),
        }
        end
    }

    /// Returns whether the honest host's commands on its disk may fail.
    pub fn honest_may_fail(&self) -> bool {
        let harms = |change: &DiskChange| matches!(change, DiskChange::Hangs(true) | DiskChange::Fails);
        self.disk_changes.iter().any(|(_, disk, change)| *disk == HONEST_DISK && harms(change))
    }
}

/// A third of the time that a disk is given, so that many hangs are longer than it.
const HANG_MIN: Nanos = Nanos::from_millis(30);

/// The number of the hostile host, and of the honest host's disk.
const HOSTILE: usize = 2;
const HONEST_DISK: usize = 0;
