//! A timer wheel: one deadline per id, hashed over three levels.
//!
//! Takes ids below a limit fixed at construction and deadlines in [`Nanos`]; gives the ids whose
//! deadline has passed. Nothing is allocated after construction. An id never fires before its
//! deadline. If polled in time, it fires at most one tick after it.
//!
//! Re-arming is lazy, since nearly every acknowledgement moves a deadline back. A later deadline is
//! only stored, and the id is linked again when its old slot is due. An earlier deadline is linked
//! at once. Both are O(1), and a linked id moves down a level at most twice.
//!
//! ```text
//! level 0   256 slots of 1 tick          16 us each      4.2 ms in all
//! level 1   256 slots of 256 ticks      4.2 ms each     1.07 s in all
//! level 2   256 slots of 65 536 ticks  1.07 s each       275 s in all; later deadlines are linked in its last slot
//! ```
//!
//! Cost: arming a later deadline is one store. Finding the next occupied slot reads four words per
//! level.

mod level;
#[cfg(test)]
mod tests;

use ironwarp_types::Nanos;

use level::{Level, SLOTS};

use crate::TICK_SHIFT;

/// The range of the wheel in ticks. Later deadlines are linked at its end and linked again when
/// that slot is due.
const TICKS_MAX: u64 = 255 << 16;

const NIL: u32 = u32::MAX;

/// Aligned to its size, so that none lies in two cache lines.
#[derive(Clone, Copy)]
#[repr(align(32))]
struct Node {
    deadline: Nanos,
    /// The tick under which the node is linked; meaningless while it is not.
    tick: u64,
    next: u32,
    prev: u32,
    /// The level and the slot in which the node is linked.
    slot: Option<(u8, u8)>,
}

const UNARMED: Node = Node { deadline: Nanos::MAX, tick: 0, next: NIL, prev: NIL, slot: None };

/// The timers of one core.
pub struct Wheel {
    nodes: Box<[Node]>,
    levels: [Level; 3],
    /// The last tick whose slot was emptied.
    tick: u64,
    /// No slot before this tick is occupied. A poll with nothing due is therefore two compares.
    next: u64,
}

impl Wheel {
    /// Creates a wheel for the ids `0..ids` that starts at `now`, with no id armed.
    pub fn new(ids: u32, now: Nanos) -> Self {
        Wheel {
            nodes: vec![UNARMED; ids as usize].into_boxed_slice(),
            levels: [Level::new(0), Level::new(8), Level::new(16)],
            tick: now.0 >> TICK_SHIFT,
            next: u64::MAX,
        }
    }

    /// Sets the deadline of an id and replaces the previous one. [`Nanos::MAX`] disarms it. An id
    /// beyond the limit is ignored.
    #[inline]
    pub fn arm(&mut self, id: u32, deadline: Nanos) {
        let Some(node) = self.nodes.get_mut(id as usize) else { return };
        node.deadline = deadline;
        let linked_in_time = node.slot.is_some() && node.tick <= tick_after(deadline);
        if !linked_in_time && deadline != Nanos::MAX {
            self.relink(id);
        }
    }

    /// Makes an id fire at `deadline` or before. An earlier deadline stays: the owner of the id
    /// sets the next one when it fires.
    #[inline]
    pub fn arm_by(&mut self, id: u32, deadline: Nanos) {
        if self.nodes.get(id as usize).is_some_and(|node| deadline < node.deadline) {
            self.arm(id, deadline);
        }
    }

    /// Rare: a later deadline stays in its slot until that slot is due.
    #[inline(never)]
    fn relink(&mut self, id: u32) {
        self.unlink(id);
        self.link(id);
    }

    /// Prefetches the node of an id.
    #[inline]
    pub fn prefetch(&self, id: u32) {
        if let Some(node) = self.nodes.get(id as usize) {
            ironwarp_arch::prefetch_read(node);
        }
    }

    /// Returns the id that [`Wheel::pop_expired`] examines next, if it is in the slot of the last
    /// one, and prefetches the node after it.
    pub fn next_in_slot(&self) -> Option<u32> {
        let next = self.levels[0].head(slot_of(self.tick, 0))?;
        self.prefetch(self.nodes.get(next as usize)?.next);
        Some(next)
    }

    /// Removes the deadline of an id.
    pub fn disarm(&mut self, id: u32) {
        self.arm(id, Nanos::MAX);
    }

    /// Returns the deadline of an id; [`Nanos::MAX`] if it has none.
    pub fn deadline(&self, id: u32) -> Nanos {
        self.nodes.get(id as usize).map_or(Nanos::MAX, |node| node.deadline)
    }

    /// Disarms and returns one id whose deadline has passed. Call until it returns `None`.
    #[inline]
    pub fn pop_expired(&mut self, now: Nanos) -> Option<u32> {
        let target = now.0 >> TICK_SHIFT;
        if target < self.next {
            self.tick = self.tick.max(target);
            return None;
        }
        self.pop_from_slots(now, target)
    }

    #[cold]
    fn pop_from_slots(&mut self, now: Nanos, target: u64) -> Option<u32> {
        loop {
            if let Some(id) = self.pop_due(now) {
                return Some(id);
            }
            match self.next_tick().filter(|&tick| tick <= target) {
                Some(tick) => self.advance(tick),
                None => {
                    self.tick = self.tick.max(target);
                    self.next = self.next_tick().unwrap_or(u64::MAX);
                    return None;
                }
            }
        }
    }

    /// Returns when to poll next: no deadline passes before then. May be early, since re-arming is
    /// lazy.
    #[inline]
    pub fn next_deadline(&self) -> Option<Nanos> {
        (self.next != u64::MAX).then_some(Nanos(self.next << TICK_SHIFT))
    }

    /// Removes ids from the slot of the current tick until one is due. Ids that are not due are
    /// linked again.
    fn pop_due(&mut self, now: Nanos) -> Option<u32> {
        loop {
            let id = self.levels[0].head(slot_of(self.tick, 0))?;
            self.unlink(id);
            let deadline = self.deadline(id);
            if deadline <= now {
                self.disarm(id);
                return Some(id);
            }
            if deadline != Nanos::MAX {
                self.link(id);
            }
        }
    }

    /// Advances to `tick` and moves the ids of due outer slots to inner ones.
    fn advance(&mut self, tick: u64) {
        self.tick = tick;
        for level in [2u8, 1] {
            let shift = u32::from(level) * 8;
            if tick & ((1 << shift) - 1) == 0 {
                self.cascade(level, slot_of(tick, shift));
            }
        }
    }

    fn cascade(&mut self, level: u8, slot: u8) {
        // A node that is linked again lands in this slot only if it is due a full rotation later.
        // It then becomes the head, which the walk has passed.
        let mut left = self.levels.get(usize::from(level)).map_or(NIL, |l| l.head(slot).unwrap_or(NIL));
        while left != NIL {
            let id = left;
            left = self.nodes.get(id as usize).map_or(NIL, |node| node.next);
            self.unlink(id);
            if self.deadline(id) != Nanos::MAX {
                self.link_from(id, self.tick);
            }
        }
    }

    /// Links an id after the current tick, whose slot is being emptied or has been.
    fn link(&mut self, id: u32) {
        self.link_from(id, self.tick + 1);
    }

    fn link_from(&mut self, id: u32, earliest: u64) {
        let Some(node) = self.nodes.get_mut(id as usize) else { return };
        let tick = tick_after(node.deadline).clamp(earliest, self.tick + TICKS_MAX);
        let level = match tick - self.tick {
            0..=0xff => 0u8,
            0x100..=0xffff => 1,
            _ => 2,
        };
        let slot = slot_of(tick, u32::from(level) * 8);
        node.tick = tick;
        // An outer slot is due at the first of its ticks.
        self.next = self.next.min(tick >> (level * 8) << (level * 8));
        node.slot = Some((level, slot));
        node.prev = NIL;
        let Some(into) = self.levels.get_mut(usize::from(level)) else { return };
        node.next = into.push(slot, id);
        let next = node.next;
        if let Some(after) = self.nodes.get_mut(next as usize) {
            after.prev = id;
        }
    }

    fn unlink(&mut self, id: u32) {
        let Some(node) = self.nodes.get_mut(id as usize) else { return };
        let Some((level, slot)) = node.slot.take() else { return };
        let (prev, next) = (node.prev, node.next);
        if let Some(after) = self.nodes.get_mut(next as usize) {
            after.prev = prev;
        }
        match self.nodes.get_mut(prev as usize) {
            Some(before) => before.next = next,
            None => {
                if let Some(from) = self.levels.get_mut(usize::from(level)) {
                    from.set_head(slot, next);
                }
            }
        }
    }

    /// Returns the next tick at which a slot must be emptied or moved inward.
    fn next_tick(&self) -> Option<u64> {
        self.levels.iter().filter_map(|level| level.next_tick(self.tick)).min()
    }
}

/// Returns the first tick that begins at or after `deadline`, so that no id fires early.
#[inline]
fn tick_after(deadline: Nanos) -> u64 {
    deadline.0.saturating_add((1 << TICK_SHIFT) - 1) >> TICK_SHIFT
}

#[inline]
fn slot_of(tick: u64, shift: u32) -> u8 {
    ((tick >> shift) % SLOTS as u64) as u8
}
