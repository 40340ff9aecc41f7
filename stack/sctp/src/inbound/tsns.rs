//! The TSNs that have arrived: all up to the cumulative one, and ranges beyond it.
//!
//! ```text
//!   ... received | gap | range 0 | gap | range 1 | ...      at most 64 ranges, apart and in order
//!              cum
//! ```
//!
//! A TSN that needs one range more, or that no Gap Ack Block can report, is refused, and its sender
//! sends it again. The first missing TSN is never refused, so an association always makes progress.
//!
//! Source: RFC 9260 s3.3.4 and s6.7. Cost: a TSN behind all others takes one comparison; another
//! one takes one for each range.

use ironwarp_types::Seq;

/// All of them fit a SACK of the smallest path MTU.
const RANGES_MAX: usize = 64;

/// The place of a TSN among those that have arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// It has arrived before.
    Duplicate,
    /// It cannot be recorded.
    Refused,
    /// It is new. `range` is the number of ranges before it.
    New { range: usize },
}

/// First and last TSN.
type Range = [Seq; 2];

#[derive(Clone, Debug)]
pub(crate) struct Tsns {
    cum: Seq,
    len: usize,
    ranges: [Range; RANGES_MAX],
}

impl Tsns {
    /// `initial` is the first TSN to arrive.
    pub(crate) fn new(initial: Seq) -> Self {
        Tsns { cum: initial.minus(1), len: 0, ranges: [[Seq(0); 2]; RANGES_MAX] }
    }

    /// Returns the last TSN in sequence.
    pub(crate) fn cum(&self) -> Seq {
        self.cum
    }

    /// Returns the last TSN that has arrived.
    pub(crate) fn highest(&self) -> Seq {
        self.ranges().last().map_or(self.cum, |&[_, last]| last)
    }

    /// Returns whether a TSN is missing before one that has arrived.
    pub(crate) fn has_gap(&self) -> bool {
        self.len > 0
    }

    pub(crate) fn ranges(&self) -> &[Range] {
        self.ranges.get(..self.len).unwrap_or_default()
    }

    /// Returns the Gap Ack Blocks.
    pub(crate) fn gap_blocks(&self) -> impl ExactSizeIterator<Item = [u16; 2]> {
        // RFC 9260 s3.3.4: distances of 16 bits, which `place` sees to.
        self.ranges().iter().map(|range| range.map(|tsn| tsn.since(self.cum) as u16))
    }

    pub(crate) fn place(&self, tsn: Seq) -> Place {
        if tsn.leq(self.cum) {
            return Place::Duplicate;
        }
        if tsn.since(self.cum) > u32::from(u16::MAX) {
            return Place::Refused;
        }
        let range = self.ranges().iter().rposition(|[first, _]| first.leq(tsn)).map_or(0, |at| at + 1);
        let last_before = range.checked_sub(1).and_then(|at| self.ranges().get(at)).map(|&[_, last]| last);
        if last_before.is_some_and(|last| tsn.leq(last)) {
            return Place::Duplicate;
        }
        let extends = tsn == self.cum.plus(1)
            || last_before == Some(tsn.minus(1))
            || self.ranges().get(range).is_some_and(|&[first, _]| first == tsn.plus(1));
        if !extends && self.len == RANGES_MAX { Place::Refused } else { Place::New { range } }
    }

    /// Records a TSN, whose place is `New` with this range.
    pub(crate) fn insert(&mut self, tsn: Seq, range: usize) {
        let follows = self.ranges().get(range).is_some_and(|&[first, _]| first == tsn.plus(1));
        let before = range.checked_sub(1);
        let precedes =
            before.and_then(|at| self.ranges().get(at)).is_some_and(|&[_, last]| last == tsn.minus(1));
        let last = match self.ranges.get(range) {
            Some(&[_, last]) if follows => last,
            _ => tsn,
        };
        if tsn == self.cum.plus(1) {
            self.cum = last;
        } else if let Some(place) = before.filter(|_| precedes).and_then(|at| self.ranges.get_mut(at)) {
            place[1] = last;
        } else if let Some(place) = self.ranges.get_mut(range).filter(|_| follows) {
            place[0] = tsn;
            return;
        } else {
            return self.open(range, [tsn, tsn]);
        }
        if follows {
            self.close(range);
        }
    }

    /// Forgets a TSN beyond the cumulative one. Returns whether it can be forgotten: not if that
    /// needs one range more than there are.
    pub(crate) fn remove(&mut self, tsn: Seq) -> bool {
        let Some(at) = self.ranges().iter().position(|&[first, last]| first.leq(tsn) && tsn.leq(last)) else {
            return false;
        };
        let Some(range) = self.ranges.get_mut(at) else { return false };
        match *range {
            [first, last] if first == last => self.close(at),
            [first, _] if first == tsn => range[0] = tsn.plus(1),
            [_, last] if last == tsn => range[1] = tsn.minus(1),
            _ if self.len == RANGES_MAX => return false,
            [_, last] => {
                range[1] = tsn.minus(1);
                self.open(at + 1, [tsn.plus(1), last]);
            }
        }
        true
    }

    fn open(&mut self, at: usize, range: Range) {
        self.len = (self.len + 1).min(RANGES_MAX);
        if let Some(part) = self.ranges.get_mut(at..self.len) {
            part.rotate_right(1);
            part.iter_mut().take(1).for_each(|place| *place = range);
        }
    }

    fn close(&mut self, at: usize) {
        if let Some(part) = self.ranges.get_mut(at..self.len) {
            part.rotate_left(1);
            self.len -= 1;
        }
    }

    /// Checks that ranges are in order, apart, and in reach of a Gap Ack Block.
    pub(crate) fn check(&self) -> Result<(), String> {
        let mut end = self.cum;
        for &[first, last] in self.ranges() {
            if first.leq(end.plus(1)) || last.lt(first) {
                return Err(format!("TSNs {first:?} to {last:?} behind {end:?}"));
            }
            end = last;
        }
        let is_reported = end.since(self.cum) <= u32::from(u16::MAX);
        is_reported.then_some(()).ok_or_else(|| format!("TSN {end:?} is far beyond {:?}", self.cum))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const INITIAL: Seq = Seq(u32::MAX - 3);

    proptest! {
        /// RFC 9260 s3.3.4: cumulative TSN and blocks are those of a set, across the wrap. What is
        /// refused needs one range more.
        #[test]
        fn ranges_are_those_of_a_set(steps in prop::collection::vec((0u32..400, 0u8..8), 1..600)) {
            let (mut tsns, mut set, mut cum) = (Tsns::new(INITIAL), BTreeSet::new(), 0u32);
            for (n, kind) in steps {
                let tsn = INITIAL.plus(n);
                if kind == 0 {
                    let held = set.contains(&n) && n >= cum;
                    prop_assert!(tsns.remove(tsn) == held || tsns.len == RANGES_MAX);
                    if tsns.place(tsn) != Place::Duplicate {
                        set.remove(&n);
                    }
                } else {
                    match tsns.place(tsn) {
                        Place::Duplicate => prop_assert!(n < cum || set.contains(&n)),
                        Place::Refused => prop_assert!(!set.contains(&n) && tsns.len == RANGES_MAX && n > cum),
                        Place::New { range } => {
                            prop_assert!(n >= cum && set.insert(n));
                            tsns.insert(tsn, range);
                        }
                    }
                }
                while set.contains(&cum) {
                    cum += 1;
                }
                tsns.check().expect("ranges");
                prop_assert_eq!(tsns.cum(), INITIAL.plus(cum).minus(1));
                let blocks: Vec<u32> = tsns
                    .gap_blocks()
                    .flat_map(|[first, last]| (first..=last).map(|at| u32::from(at) + cum - 1))
                    .collect();
                prop_assert_eq!(blocks, set.range(cum..).copied().collect::<Vec<_>>());
            }
        }
    }

    /// RFC 9260 s3.3.4: a Gap Ack Block has 16 bits.
    #[test]
    fn a_tsn_that_no_block_can_report_is_refused() {
        let tsns = Tsns::new(Seq(1));
        assert_eq!(tsns.place(Seq(65_535)), Place::New { range: 0 });
        assert_eq!(tsns.place(Seq(65_536)), Place::Refused);
        assert_eq!(tsns.place(Seq(1 << 31)), Place::Duplicate, "before, modulo 2^32");
    }
}
