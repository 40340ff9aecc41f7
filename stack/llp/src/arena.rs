//! Singly linked lists in one slab of nodes.
//!
//! Each list has a reserve of nodes that no other list can take. Beyond it, lists share nodes,
//! first come, first served. When the shared nodes are used up, a push is refused and returns its
//! value. A third part, the emergency reserve, belongs to one list at a time, which must request it
//! by name. With it at least one list can complete and empty itself when all are blocked.

/// No node.
pub const NIL: u32 = u32::MAX;

struct Node<T> {
    value: Option<T>,
    next: u32,
}

impl<T> Node<T> {
    /// Fills a free node.
    #[inline]
    fn fill(&mut self, value: T, next: u32) {
        let nothing = self.value.replace(value);
        debug_assert!(nothing.is_none());
        // The compiler cannot know that there is nothing to drop, and would emit the drop code
        // here.
        core::mem::forget(nothing);
        self.next = next;
    }
}

/// The nodes of all lists of one kind.
pub struct Arena<T> {
    nodes: Box<[Node<T>]>,
    free: u32,
    shared: u32,
    shared_left: u32,
    emergency_reserve: u32,
    emergency_left: u32,
    emergency_grant: EmergencyGrant,
    /// A list of one value is emptied by [`Arena::drop_single_if`].
    fast_path: bool,
}

/// The current or most recent grant of the emergency reserve.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EmergencyGrant {
    /// The owner of the list, as it was named.
    pub owner: u32,
    /// Distinguishes this grant from others.
    pub grant_id: u32,
}

/// A list's ends and length.
#[derive(Clone, Copy, Debug)]
pub struct List {
    head: u32,
    tail: u32,
    len: u16,
    reserve: u16,
    /// Nodes of the emergency reserve that the list holds.
    emergency_nodes: u16,
}

impl Default for List {
    fn default() -> Self {
        List::with_reserve(0)
    }
}

impl List {
    /// An empty list. [`Arena::new`] takes the sum of all reserves.
    pub const fn with_reserve(reserve: u16) -> Self {
        List { head: NIL, tail: NIL, len: 0, reserve, emergency_nodes: 0 }
    }

    /// Returns the number of values.
    pub fn len(&self) -> u16 {
        self.len
    }

    /// Returns whether it has no value.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the node of the first value, or [`NIL`].
    #[inline]
    pub fn head(&self) -> u32 {
        self.head
    }

    /// Returns the node of the last value, or [`NIL`].
    #[inline]
    pub fn tail(&self) -> u32 {
        self.tail
    }
}

impl<T> Arena<T> {
    /// Creates an arena of `reserved` nodes, the sum of its lists' reserves, and `shared` more.
    pub fn new(reserved: u32, shared: u32) -> Self {
        Arena::with_emergency_reserve(reserved, shared, 0)
    }

    /// Creates an arena with an additional `emergency_reserve` nodes for one list at a time.
    pub fn with_emergency_reserve(reserved: u32, shared: u32, emergency_reserve: u16) -> Self {
        let emergency_reserve = u32::from(emergency_reserve);
        let count = reserved.saturating_add(shared).saturating_add(emergency_reserve).min(NIL - 1);
        let chained = |at: u32| Node { value: None, next: if at + 1 < count { at + 1 } else { NIL } };
        Arena {
            nodes: (0..count).map(chained).collect(),
            free: if count == 0 { NIL } else { 0 },
            shared,
            shared_left: shared,
            emergency_reserve,
            emergency_left: emergency_reserve,
            emergency_grant: EmergencyGrant::default(),
            fast_path: true,
        }
    }

    /// Returns the arena with its fast path on or off.
    pub fn with_fast_path(self, on: bool) -> Self {
        Arena { fast_path: on, ..self }
    }

    /// Appends a value and returns its node.
    #[inline]
    pub fn push_back(&mut self, list: &mut List, value: T) -> Result<u32, T> {
        if !self.has_room(list) {
            return Err(value);
        }
        self.shared_left -= u32::from(list.len - list.emergency_nodes >= list.reserve);
        self.link_last(list, value)
    }

    /// [`Arena::push_back`] into an empty list.
    #[inline(always)]
    pub fn push_single(&mut self, list: &mut List, value: T) -> Result<(), T> {
        debug_assert!(list.is_empty() && self.has_room(list));
        let at = self.free;
        let Some(node) = self.nodes.get_mut(at as usize) else { return Err(value) };
        self.free = node.next;
        node.fill(value, NIL);
        // One is left: there is room.
        self.shared_left = self.shared_left.wrapping_sub(u32::from(list.reserve == 0));
        (list.head, list.tail, list.len) = (at, at, 1);
        Ok(())
    }

    /// Inserts a value after the node `prev` of this list, or first when `prev` is [`NIL`].
    pub fn insert_after(&mut self, list: &mut List, prev: u32, value: T) -> Result<u32, T> {
        if !self.has_room(list) {
            return Err(value);
        }
        self.shared_left -= u32::from(list.len - list.emergency_nodes >= list.reserve);
        self.link_new(list, prev, value)
    }

    /// Appends a value in a node of the emergency reserve, unless another list holds some of it.
    /// `owner` names the list's owner.
    #[cold]
    pub fn push_back_emergency(&mut self, list: &mut List, value: T, owner: u32) -> Result<u32, T> {
        let ours = list.emergency_nodes > 0 || self.emergency_left == self.emergency_reserve;
        if !ours || self.emergency_left == 0 || list.len == u16::MAX {
            return Err(value);
        }
        if list.emergency_nodes == 0 {
            self.emergency_grant =
                EmergencyGrant { owner, grant_id: self.emergency_grant.grant_id.wrapping_add(1) };
        }
        self.emergency_left -= 1;
        list.emergency_nodes += 1;
        self.link_last(list, value)
    }

    #[inline]
    fn link_last(&mut self, list: &mut List, value: T) -> Result<u32, T> {
        let at = self.free;
        let Some(node) = self.nodes.get_mut(at as usize) else { return Err(value) };
        self.free = node.next;
        node.fill(value, NIL);
        let before = core::mem::replace(&mut list.tail, at);
        self.link(list, before, at);
        list.len += 1;
        Ok(at)
    }

    fn link_new(&mut self, list: &mut List, prev: u32, value: T) -> Result<u32, T> {
        let at = self.free;
        let next = self.next_in(list, prev);
        let Some(node) = self.nodes.get_mut(at as usize) else { return Err(value) };
        self.free = node.next;
        node.fill(value, next);
        self.link(list, prev, at);
        if next == NIL {
            list.tail = at;
        }
        list.len += 1;
        Ok(at)
    }

    /// Removes and returns the first value.
    #[inline]
    pub fn pop_front(&mut self, list: &mut List) -> Option<T> {
        self.remove_after(list, NIL)
    }

    /// Removes the value after the node `prev`, or the first when `prev` is [`NIL`].
    #[inline]
    pub fn remove_after(&mut self, list: &mut List, prev: u32) -> Option<T> {
        let at = self.next_in(list, prev);
        let free = self.free;
        let node = self.nodes.get_mut(at as usize)?;
        let next = core::mem::replace(&mut node.next, free);
        let value = node.value.take();
        self.free = at;
        self.link(list, prev, next);
        if next == NIL {
            list.tail = prev;
        }
        if list.emergency_nodes > 0 {
            list.emergency_nodes -= 1;
            self.emergency_left += 1;
        } else {
            self.shared_left += u32::from(list.len > list.reserve);
        }
        list.len -= 1;
        value
    }

    /// Removes and drops values from the front while `is_done` returns true for the value and its
    /// node. The nodes are freed as one chain, and no value is moved.
    #[inline(always)]
    pub fn drop_front_while(&mut self, list: &mut List, mut is_done: impl FnMut(&T, u32) -> bool) {
        if list.len == 1 && list.emergency_nodes == 0 && self.fast_path {
            return self.drop_single_if(list, is_done);
        }
        let (mut at, mut last, mut count) = (list.head, NIL, 0u16);
        while let Some(node) = self.nodes.get(at as usize)
            && node.value.as_ref().is_some_and(|value| is_done(value, at))
        {
            // At most the list's length.
            (last, at, count) = (at, node.next, count.wrapping_add(1));
        }
        let Some(last) = self.nodes.get_mut(last as usize) else { return };
        last.next = self.free;
        let first = list.head;
        (self.free, list.head) = (first, at);
        if at == NIL {
            list.tail = NIL;
        }
        let emergency_nodes = count.min(list.emergency_nodes);
        list.emergency_nodes -= emergency_nodes;
        self.emergency_left += u32::from(emergency_nodes);
        let beyond = (list.len - emergency_nodes).saturating_sub(list.reserve).min(count - emergency_nodes);
        self.shared_left += u32::from(beyond);
        list.len -= count;
        // Tuning: after the loop above, which keeps its values in registers because it calls
        // nothing.
        let mut at = first;
        for _ in 0..count {
            let Some(node) = self.nodes.get_mut(at as usize) else { return };
            node.value = None;
            at = node.next;
        }
    }

    /// [`Arena::drop_front_while`] for a list of one value that is not in the emergency reserve.
    #[inline(always)]
    fn drop_single_if(&mut self, list: &mut List, mut is_done: impl FnMut(&T, u32) -> bool) {
        let at = list.head;
        let Some(node) = self.nodes.get_mut(at as usize) else { return };
        if !node.value.as_ref().is_some_and(|value| is_done(value, at)) {
            return;
        }
        node.next = self.free;
        self.free = at;
        // At most `shared`, since the value took a shared node.
        self.shared_left = self.shared_left.wrapping_add(u32::from(list.reserve == 0));
        (list.head, list.tail, list.len) = (NIL, NIL, 0);
        node.value = None;
    }

    /// Removes everything.
    pub fn clear(&mut self, list: &mut List) {
        self.drop_front_while(list, |_, _| true);
    }

    /// Returns the first value.
    #[inline]
    pub fn front(&self, list: &List) -> Option<&T> {
        self.value(list.head)
    }

    /// Returns the first value for modification.
    #[inline]
    pub fn front_mut(&mut self, list: &List) -> Option<&mut T> {
        self.value_mut(list.head)
    }

    /// Returns the last value for modification.
    #[inline]
    pub fn back_mut(&mut self, list: &List) -> Option<&mut T> {
        self.value_mut(list.tail)
    }

    /// Returns the value of a node.
    #[inline]
    pub fn value(&self, at: u32) -> Option<&T> {
        self.nodes.get(at as usize)?.value.as_ref()
    }

    /// Returns the value of a node for modification.
    #[inline]
    pub fn value_mut(&mut self, at: u32) -> Option<&mut T> {
        self.nodes.get_mut(at as usize)?.value.as_mut()
    }

    /// Returns the node after a node.
    #[inline]
    pub fn next(&self, at: u32) -> u32 {
        self.nodes.get(at as usize).map_or(NIL, |node| node.next)
    }

    /// Iterates over the values.
    pub fn iter(&self, list: &List) -> impl Iterator<Item = &T> {
        self.iter_from(list.head)
    }

    /// Iterates over the values from the node `at` on; none when it is [`NIL`].
    pub fn iter_from(&self, at: u32) -> impl Iterator<Item = &T> {
        let first = Some(at).filter(|&at| at != NIL);
        core::iter::successors(first, |&at| Some(self.next(at)).filter(|&next| next != NIL))
            .filter_map(|at| self.value(at))
    }

    /// Returns the number of nodes that hold a value.
    pub fn in_use(&self) -> usize {
        self.nodes.iter().filter(|node| node.value.is_some()).count()
    }

    /// Returns whether the list may take another node.
    #[inline]
    pub fn has_room(&self, list: &List) -> bool {
        list.len < u16::MAX && (list.len - list.emergency_nodes < list.reserve || self.shared_left > 0)
    }

    /// Returns how many nodes more the list may take, without the emergency reserve.
    #[inline]
    pub fn room(&self, list: &List) -> u16 {
        let of_reserve = list.reserve.saturating_sub(list.len - list.emergency_nodes);
        let room = self.shared_left.saturating_add(of_reserve.into()).min((u16::MAX - list.len).into());
        room as u16
    }

    /// [`Arena::has_room`] for an empty list.
    #[inline(always)]
    pub fn has_room_for_single(&self, list: &List) -> bool {
        debug_assert!(list.is_empty());
        list.reserve > 0 || self.shared_left > 0
    }

    /// Returns the current grant of the emergency reserve.
    pub fn emergency_reserve(&self) -> Option<EmergencyGrant> {
        (self.emergency_left < self.emergency_reserve).then_some(self.emergency_grant)
    }

    /// Returns whether more than half of the shared nodes are in use.
    pub fn is_half_used(&self) -> bool {
        self.shared_left <= self.shared.div_ceil(2)
    }

    /// Returns whether more than three quarters of the shared nodes are in use.
    #[inline]
    pub fn is_under_pressure(&self) -> bool {
        self.shared_left < self.shared.div_ceil(4)
    }

    #[inline]
    fn next_in(&self, list: &List, prev: u32) -> u32 {
        if prev == NIL { list.head } else { self.next(prev) }
    }

    #[inline]
    fn link(&mut self, list: &mut List, prev: u32, to: u32) {
        match self.nodes.get_mut(prev as usize) {
            Some(node) => node.next = to,
            None => list.head = to,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    fn values(arena: &Arena<u32>, list: &List) -> Vec<u32> {
        arena.iter(list).copied().collect()
    }

    #[test]
    fn a_reserve_is_available_when_all_shared_nodes_are_taken() {
        let mut arena = Arena::new(4, 3);
        let (mut greedy, mut modest) = (List::with_reserve(2), List::with_reserve(2));
        for n in 0..5 {
            assert!(arena.push_back(&mut greedy, n).is_ok());
        }
        assert_eq!(arena.push_back(&mut greedy, 9), Err(9));
        assert!(arena.push_back(&mut modest, 1).is_ok() && arena.push_back(&mut modest, 2).is_ok());
        assert_eq!(arena.push_back(&mut modest, 3), Err(3));
        arena.clear(&mut greedy);
        assert!(arena.push_back(&mut modest, 3).is_ok());
        assert_eq!(values(&arena, &modest), [1, 2, 3]);
        assert_eq!(arena.in_use(), 3);
    }

    #[test]
    fn the_emergency_reserve_serves_one_list_at_a_time() {
        let mut arena = Arena::with_emergency_reserve(0, 1, 2);
        let (mut first, mut second) = (List::with_reserve(0), List::with_reserve(0));
        assert!(arena.push_back(&mut first, 1).is_ok());
        assert_eq!(arena.push_back(&mut first, 2), Err(2));
        assert!(arena.push_back_emergency(&mut first, 2, 1).is_ok());
        assert_eq!(arena.push_back_emergency(&mut second, 9, 2), Err(9));
        assert!(arena.push_back_emergency(&mut first, 3, 1).is_ok());
        assert_eq!(arena.push_back_emergency(&mut first, 4, 1), Err(4));
        assert_eq!(arena.pop_front(&mut first), Some(1));
        assert_eq!(arena.push_back_emergency(&mut second, 9, 2), Err(9));
        assert_eq!(arena.pop_front(&mut first), Some(2));
        assert!(arena.push_back_emergency(&mut second, 9, 2).is_ok());
        assert_eq!(arena.emergency_reserve(), Some(EmergencyGrant { owner: 2, grant_id: 2 }));
        // The rest of the first list is in a shared node.
        assert_eq!(arena.push_back(&mut second, 8), Err(8));
        arena.clear(&mut first);
        assert!(arena.push_back(&mut second, 8).is_ok());
        assert_eq!(values(&arena, &second), [9, 8]);
        arena.clear(&mut second);
        assert_eq!(arena.emergency_reserve(), None);
    }

    #[test]
    fn an_arena_of_no_nodes_refuses() {
        let mut arena = Arena::new(0, 0);
        assert_eq!(arena.push_back(&mut List::with_reserve(0), 1), Err(1));
    }

    proptest! {
        /// On the fast path and off it: the same values, and the same nodes are left.
        #[test]
        fn two_lists_in_one_arena_behave_as_two_queues(
            steps in prop::collection::vec((any::<bool>(), 0u8..5, 0usize..8), 1..300),
        ) {
            prop_assert_eq!(run_two_lists(&steps, true)?, run_two_lists(&steps, false)?);
        }
    }

    /// Compares two lists with two queues after each step. Returns how many shared nodes are left
    /// after it.
    fn run_two_lists(steps: &[(bool, u8, usize)], fast_path: bool) -> Result<Vec<u32>, TestCaseError> {
        let mut arena = Arena::new(4, 8).with_fast_path(fast_path);
        let mut shared_left = Vec::new();
        let mut lists = [List::with_reserve(2); 2];
        let mut oracle = [VecDeque::new(), VecDeque::new()];
        for (n, &(which, kind, place)) in steps.iter().enumerate() {
            let (list, queue) = (&mut lists[usize::from(which)], &mut oracle[usize::from(which)]);
            let prev = match place.min(queue.len()) {
                0 => NIL,
                behind => (1..behind).fold(list.head(), |at, _| arena.next(at)),
            };
            match kind {
                0 if fast_path && list.is_empty() && arena.has_room(list) => {
                    prop_assert_eq!(arena.push_single(list, n), Ok(()));
                    queue.push_back(n);
                }
                0 => {
                    if arena.push_back(list, n).is_ok() {
                        queue.push_back(n)
                    }
                }
                1 => {
                    if arena.insert_after(list, prev, n).is_ok() {
                        queue.insert(place.min(queue.len()), n)
                    }
                }
                2 => prop_assert_eq!(arena.pop_front(list), queue.pop_front()),
                3 => {
                    let mut left = place;
                    arena.drop_front_while(list, |_, _| {
                        left = left.wrapping_sub(1);
                        left < place
                    });
                    queue.drain(..place.min(queue.len()));
                }
                _ => prop_assert_eq!(arena.remove_after(list, prev), queue.remove(place.min(queue.len()))),
            }
            for (list, queue) in lists.iter().zip(&oracle) {
                prop_assert!(arena.iter(list).eq(queue));
                prop_assert_eq!(usize::from(list.len()), queue.len());
                prop_assert_eq!(arena.value(list.tail()), queue.back());
            }
            prop_assert_eq!(arena.in_use(), oracle.iter().map(VecDeque::len).sum::<usize>());
            shared_left.push(arena.shared_left);
        }
        Ok(shared_left)
    }
}
