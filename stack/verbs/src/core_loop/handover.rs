//! What a core needs of a context's object and is not plain data, on its way between the two.
//!
//! The rings between a context and a core carry numbers. What a number stands for lies in a table
//! that both have, in the place of the object's slot. The sender of a message puts it there first,
//! and the receiver takes it. A place without contents is an ordinary result: the message that
//! names it has no effect.

use std::sync::{Mutex, PoisonError};

use super::{CqCore, CqRing, QpHalf, SrqCore};
use crate::config::LimitsConfig;
use crate::objects::CmParams;

/// The tables of one context and one core.
pub(crate) struct Handover {
    pub(crate) qps: Places<Box<dyn QpHalf>>,
    /// The set-up parameters of queue pairs. The core puts them back when the set-up has ended.
    pub(crate) cm_params: Places<Box<CmParams>>,
    /// The parameters of rejects, by the slot of the request; put back as those of set-up.
    pub(crate) reject_params: Places<Box<CmParams>>,
    pub(crate) cqs: Places<Box<CqCore>>,
    /// The next ring of a completion queue.
    pub(crate) cq_rings: Places<CqRing>,
    pub(crate) srqs: Places<Box<SrqCore>>,
}

impl Handover {
    pub(crate) fn new(limits: &LimitsConfig) -> Self {
        Handover {
            qps: Places::new(limits.queue_pairs),
            cm_params: Places::new(limits.queue_pairs),
            reject_params: Places::new(limits.half_open),
            cqs: Places::new(limits.completion_queues),
            cq_rings: Places::new(limits.completion_queues),
            srqs: Places::new(limits.shared_receive_queues),
        }
    }
}

/// A place for each slot of a table. Messages order the use of a place, so its lock is free.
pub(crate) struct Places<T>(Box<[Mutex<Option<T>>]>);

impl<T> Places<T> {
    fn new(slots: u32) -> Self {
        Places((0..slots).map(|_| Mutex::new(None)).collect())
    }

    /// Puts a value into the place of a slot. What was there is dropped, and so is the value if
    /// there is no such place.
    pub(crate) fn put(&self, slot: u32, value: T) {
        if let Some(place) = self.0.get(slot as usize) {
            *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
        }
    }

    /// Takes the value out of the place of a slot.
    pub(crate) fn take(&self, slot: u32) -> Option<T> {
        self.0.get(slot as usize)?.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_taken_once_and_the_last_one_stays() {
        let places = Places::new(2);
        places.put(1, "first");
        places.put(1, "second");
        assert_eq!([places.take(1), places.take(1), places.take(0)], [Some("second"), None, None]);
    }

    #[test]
    fn a_slot_without_a_place_has_no_value() {
        let places = Places::new(1);
        places.put(1, ());
        assert_eq!((places.take(1), places.take(u32::MAX)), (None, None));
    }
}
