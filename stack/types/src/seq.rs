//! Sequence numbers modulo 2^32: TCP's byte numbers and DDP's message numbers.
//!
//! Source: RFC 9293 s3.4. All operations are total, so no value from the wire can cause a panic.

use core::fmt;

/// A 32-bit serial number, compared by signed distance.
///
/// Two numbers exactly 2^31 apart are unordered: [`Seq::lt`] returns `true` for both orders, as the
/// usual signed-difference test does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, serde::Serialize, serde::Deserialize)]
pub struct Seq(pub u32);

impl Seq {
    /// Returns the signed distance from `other` to `self`.
    pub const fn delta(self, other: Seq) -> i32 {
        self.0.wrapping_sub(other.0) as i32
    }

    /// Returns the distance from `earlier` to `self`, modulo 2^32.
    pub const fn since(self, earlier: Seq) -> u32 {
        self.0.wrapping_sub(earlier.0)
    }

    /// Returns `self` moved forward by `n`.
    #[must_use]
    pub const fn plus(self, n: u32) -> Seq {
        Seq(self.0.wrapping_add(n))
    }

    /// Returns `self` moved back by `n`.
    #[must_use]
    pub const fn minus(self, n: u32) -> Seq {
        Seq(self.0.wrapping_sub(n))
    }

    /// Returns whether `self` is before `other`.
    pub const fn lt(self, other: Seq) -> bool {
        self.delta(other) < 0
    }

    /// Returns whether `self` is before or equal to `other`.
    pub const fn leq(self, other: Seq) -> bool {
        self.delta(other) <= 0
    }

    /// Returns whether `self` is after `other`.
    pub const fn gt(self, other: Seq) -> bool {
        self.delta(other) > 0
    }

    /// Returns whether `self` is after or equal to `other`.
    pub const fn geq(self, other: Seq) -> bool {
        self.delta(other) >= 0
    }

    /// Returns the later of the two.
    #[must_use]
    pub const fn max(self, other: Seq) -> Seq {
        if self.lt(other) { other } else { self }
    }

    /// Returns the earlier of the two.
    #[must_use]
    pub const fn min(self, other: Seq) -> Seq {
        if self.lt(other) { self } else { other }
    }
}

impl fmt::Debug for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_holds_across_the_wrap() {
        let (before, after) = (Seq(u32::MAX - 1), Seq(3));
        assert!(before.lt(after) && after.gt(before));
        assert_eq!(after.since(before), 5);
        assert_eq!(before.plus(5), after);
        assert_eq!(before.max(after), after);
        assert_eq!(before.min(after), before);
    }

    #[test]
    fn equal_numbers_are_neither_before_nor_after() {
        assert!(!Seq(9).lt(Seq(9)) && !Seq(9).gt(Seq(9)));
        assert!(Seq(9).leq(Seq(9)) && Seq(9).geq(Seq(9)));
    }
}
