//! A queue of associations, each at most once.

/// Slots that wait for something. It never exceeds its capacity.
pub(crate) struct SlotQueue {
    queued: Box<[bool]>,
    waiting: Vec<u32>,
}

impl SlotQueue {
    pub(crate) fn new(slots: u32) -> Self {
        let slots = slots as usize;
        SlotQueue { queued: vec![false; slots].into(), waiting: Vec::with_capacity(slots) }
    }

    pub(crate) fn push(&mut self, slot: u32) {
        if let Some(queued) = self.queued.get_mut(slot as usize).filter(|queued| !**queued) {
            *queued = true;
            self.waiting.push(slot);
        }
    }

    pub(crate) fn pop(&mut self) -> Option<u32> {
        let slot = self.waiting.pop()?;
        self.queued.get_mut(slot as usize).into_iter().for_each(|queued| *queued = false);
        Some(slot)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}
