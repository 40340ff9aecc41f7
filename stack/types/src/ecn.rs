//! The congestion bits of an IP header.

/// What a packet says about congestion. Source: RFC 3168 s5, figure 1.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
#[repr(u8)]
pub enum Ecn {
    /// Not ECN-capable: congestion drops it.
    #[default]
    NotEct = 0,
    /// ECT(1).
    Ect1 = 1,
    /// ECT(0): what a sender sets that uses ECN.
    Ect0 = 2,
    /// Congestion was experienced on the way.
    Ce = 3,
}

impl Ecn {
    /// From the two low bits of a type of service or traffic class.
    #[inline]
    pub const fn from_bits(bits: u8) -> Self {
        match bits & 0b11 {
            0 => Ecn::NotEct,
            1 => Ecn::Ect1,
            2 => Ecn::Ect0,
            _ => Ecn::Ce,
        }
    }

    /// The two bits.
    #[inline]
    pub const fn bits(self) -> u8 {
        self as u8
    }
}
