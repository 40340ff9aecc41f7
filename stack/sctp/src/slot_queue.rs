//! A queue of associations, each at most once.

/// Slots that wait for something, in this round or for the next one. It never exceeds its capacity.
pub(crate) struct SlotQueue {
    queued: Box<[bool]>,
    waiting: Vec<u32>,
    later: Vec<u32>,
}

impl SlotQueue {
    pub(crate) fn new(slots: u32) -> Self {
        let slots = slots as usize;
        let [waiting, later] = [Vec::with_capacity(slots), Vec::with_capacity(slots)];
        SlotQueue { queued: vec![false; slots].into(), waiting, later }
    }

    pub(crate) fn push(&mut self, slot: u32) {
        if let Some(queued) = self.queued.get_mut(slot as usize).filter(|queued| !**queued) {
            *queued = true;
            self.waiting.push(slot);
        }
    }

    /// Has a slot wait for the next round, unless it waits in this one.
    pub(crate) fn push_later(&mut self, slot: u32) {
        if let Some(queued) = self.queued.get_mut(slot as usize).filter(|queued| !**queued) {
            *queued = true;
            self.later.push(slot);
        }
    }

    /// Begins a round after the last one is empty.
    pub(crate) fn begin_round(&mut self) {
        debug_assert!(self.waiting.is_empty());
        core::mem::swap(&mut self.waiting, &mut self.later);
    }

    pub(crate) fn pop(&mut self) -> Option<u32> {
        let slot = self.waiting.pop()?;
        self.queued.get_mut(slot as usize).into_iter().for_each(|queued| *queued = false);
        Some(slot)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.later.is_empty()
    }
}
