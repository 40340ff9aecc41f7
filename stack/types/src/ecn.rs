//! The ECN bits of an IP header.

/// The ECN codepoint of a packet. Source: RFC 3168 s5, figure 1.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
#[repr(u8)]
pub enum Ecn {
    /// Not ECN-capable: a congested router drops the packet.
    #[default]
    NotEct = 0,
    /// ECT(1).
    Ect1 = 1,
    /// ECT(0): the codepoint that ECN-capable senders use.
    Ect0 = 2,
    /// CE: the packet experienced congestion.
    Ce = 3,
}

impl Ecn {
    /// Returns the codepoint of a type-of-service or traffic-class octet.
    #[inline]
    pub const fn from_bits(bits: u8) -> Self {
        match bits & 0b11 {
            0 => Ecn::NotEct,
            1 => Ecn::Ect1,
            2 => Ecn::Ect0,
            _ => Ecn::Ce,
        }
    }

    /// Returns the two bits.
    #[inline]
    pub const fn bits(self) -> u8 {
        self as u8
    }
}
