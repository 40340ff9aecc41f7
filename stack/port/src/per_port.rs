//! One value for each port of a core.
//!
//! Ports are numbered from 0 in the order of the configuration. A number without a port names the
//! first one, so an access cannot fail. The first value is stored in place: a core with one port
//! pays one comparison for each access.

use core::ops::Range;

/// One value for each port of a core, at least one.
pub struct PerPort<T> {
    first: T,
    others: Box<[T]>,
}

impl<T> PerPort<T> {
    /// Creates the table from the values in the order of the ports.
    pub fn new(first: T, others: impl IntoIterator<Item = T>) -> Self {
        PerPort { first, others: others.into_iter().collect() }
    }

    /// Creates the table of a core with one port.
    pub fn single(value: T) -> Self {
        Self::new(value, [])
    }

    /// Returns the number of ports.
    #[inline]
    pub fn count(&self) -> u8 {
        u8::try_from(self.others.len() + 1).unwrap_or(u8::MAX)
    }

    /// Returns the numbers of all ports.
    #[inline]
    pub fn numbers(&self) -> Range<u8> {
        0..self.count()
    }

    /// Returns the value of the first port.
    #[inline(always)]
    pub fn first_mut(&mut self) -> &mut T {
        &mut self.first
    }

    /// Returns the value of port `number`.
    #[inline(always)]
    pub fn at(&self, number: u8) -> &T {
        match number.checked_sub(1) {
            Some(other) => self.other(other),
            None => &self.first,
        }
    }

    /// Tuning: not inlined, as a core with one port should not compute the address of another
    /// port's value.
    #[inline(never)]
    fn other(&self, other: u8) -> &T {
        self.others.get(usize::from(other)).unwrap_or(&self.first)
    }

    /// Returns the value of port `number` for changes.
    #[inline(always)]
    pub fn at_mut(&mut self, number: u8) -> &mut T {
        match number.checked_sub(1) {
            Some(other) => self.others.get_mut(usize::from(other)).unwrap_or(&mut self.first),
            None => &mut self.first,
        }
    }

    /// Returns whether there is more than one port.
    #[inline(always)]
    pub fn has_several(&self) -> bool {
        !self.others.is_empty()
    }

    /// Returns all values in the order of the ports.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        core::iter::once(&self.first).chain(&self.others)
    }

    /// Combines all values. With one port this is one call of `combine`, where a chained iterator
    /// costs 15 instructions.
    #[inline(always)]
    pub fn fold<A>(&self, initial: A, mut combine: impl FnMut(A, &T) -> A) -> A {
        let result = combine(initial, &self.first);
        if self.has_several() { self.fold_others(result, combine) } else { result }
    }

    /// Tuning: not inlined, as the loop would take registers of a core with one port.
    #[inline(never)]
    fn fold_others<A>(&self, result: A, combine: impl FnMut(A, &T) -> A) -> A {
        self.others.iter().fold(result, combine)
    }

    /// Calls `each` with the number and the value of every port.
    #[inline(always)]
    pub fn for_each_mut(&mut self, mut each: impl FnMut(u8, &mut T)) {
        each(0, &mut self.first);
        if self.has_several() {
            self.for_each_other(each);
        }
    }

    /// Tuning: as [`PerPort::fold_others`].
    #[inline(never)]
    fn for_each_other(&mut self, mut each: impl FnMut(u8, &mut T)) {
        (1..).zip(&mut self.others).for_each(|(number, other)| each(number, other));
    }
}
