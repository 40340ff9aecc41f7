//! A timer wheel: one deadline an id, hashed over three levels.
//!
//! Takes ids below a limit fixed at construction and deadlines in [`Nanos`]; gives the ids whose deadline has passed.
//! Nothing is allocated after construction. An id never fires before its deadline and at most one tick after it, when
//! polled in time.
//!
//! Re-arming is lazy, since an acknowledgement moves a deadline back on nearly every segment: a deadline that moves
//! later is only stored, and the id is filed anew when its old place comes up. A deadline that moves earlier is filed at
//! once. Both are O(1); a filed id moves down a level at most twice.
//!
//! ```text
//! level 0   256 places of 1 tick          16 us each      4.2 ms in all
//! level 1   256 places of 256 ticks      4.2 ms each     1.07 s in all
//! level 2   256 places of 65 536 ticks  1.07 s each       275 s in all; farther deadlines are filed at its end
//! ```
//!
//! Cost: arming a later deadline is one store; the next occupied place is found in four words a level.

mod level;
#[cfg(test)]
mod tests;

use ironwarp_types::Nanos;

use level::{Level, SLOTS};

/// A tick is 2^14 ns, 16.4 microseconds: finer than any timeout here and coarse enough that an idle second is 61
/// thousand of them.
const TICK_SHIFT: u32 = 14;

/// Ticks that the wheel can look ahead. Later deadlines are filed here and filed again when they come up.
const TICKS_MAX: u64 = 255 << 16;

const NIL: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Node {
    deadline: Nanos,
    /// The tick under which the node is filed; meaningless while it is not.
    tick: u64,
    next: u32,
    prev: u32,
    /// Where it is filed: level in the high byte, place in the low one.
    slot: Option<(u8, u8)>,
}

const UNARMED: Node = Node { deadline: Nanos::MAX, tick: 0, next: NIL, prev: NIL, slot: None };

/// The timers of one core.
pub struct Wheel {
    nodes: Box<[Node]>,
    levels: [Level; 3],
    /// The last tick whose place was emptied.
    tick: u64,
    /// No place before this tick is occupied: what makes a poll with nothing due two compares.
    next: u64,
}

impl Wheel {
    /// A wheel for the ids `0..ids`, none armed, that begins at `now`.
    pub fn new(ids: u32, now: Nanos) -> Self {
        Wheel {
            nodes: vec![UNARMED; ids as usize].into_boxed_slice(),
            levels: [Level::new(0), Level::new(8), Level::new(16)],
            tick: now.0 >> TICK_SHIFT,
            next: u64::MAX,
        }
    }

    /// Sets the deadline of an id, in place of the one it had. [`Nanos::MAX`] disarms it. An id beyond the limit is
    /// ignored.
    #[inline]
    pub fn arm(&mut self, id: u32, deadline: Nanos) {
        let Some(node) = self.nodes.get_mut(id as usize) else { return };
        node.deadline = deadline;
        let linked_in_time = node.slot.is_some() && node.tick <= tick_after(deadline);
        if !linked_in_time && deadline != Nanos::MAX {
            self.relink(id);
        }
    }

    /// Rare beside arming: a deadline that moves on stays where it is filed until that place comes up.
    #[inline(never)]
    fn relink(&mut self, id: u32) {
        self.unlink(id);
        self.link(id);
    }

    /// Takes the deadline of an id away.
    pub fn disarm(&mut self, id: u32) {
        self.arm(id, Nanos::MAX);
    }

    /// The deadline of an id, [`Nanos::MAX`] while it has none.
    pub fn deadline(&self, id: u32) -> Nanos {
        self.nodes.get(id as usize).map_or(Nanos::MAX, |node| node.deadline)
    }

    /// Takes one id whose deadline has passed, and disarms it. Called until it answers `None`.
    #[inline]
    pub fn pop_expired(&mut self, now: Nanos) -> Option<u32> {
        let target = now.0 >> TICK_SHIFT;
        if target < self.next {
            self.tick = self.tick.max(target);
            return None;
        }
        self.pop_slow(now, target)
    }

    #[cold]
    fn pop_slow(&mut self, now: Nanos, target: u64) -> Option<u32> {
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

    /// When to poll next: no deadline passes before then. It may be early, since re-arming is lazy.
    #[inline]
    pub fn next_deadline(&self) -> Option<Nanos> {
        (self.next != u64::MAX).then_some(Nanos(self.next << TICK_SHIFT))
    }

    /// Empties the place of the present tick, one id a call; those that are not due are filed anew.
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

    /// Moves on to `tick`, and files what its outer places held under the inner ones.
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
        // A node filed again can land in this place only when it is due a whole turn later, behind the head.
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

    /// Files an id after the present tick, whose place is being emptied or has been.
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
        // An outer place comes up when the first of its ticks does.
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

    /// The next tick at which a place must be emptied or moved inward.
    fn next_tick(&self) -> Option<u64> {
        self.levels.iter().filter_map(|level| level.next_tick(self.tick)).min()
    }
}

/// The first tick that begins at or after `deadline`, so that nothing fires early.
#[inline]
fn tick_after(deadline: Nanos) -> u64 {
    deadline.0.saturating_add((1 << TICK_SHIFT) - 1) >> TICK_SHIFT
}

#[inline]
fn slot_of(tick: u64, shift: u32) -> u8 {
    ((tick >> shift) % SLOTS as u64) as u8
}
