//! The control octet of every segment (RFC 5040 s4.1): version, reserved bits, operation.

use super::RdmapFault;

const VERSION_SHIFT: u8 = 6;
const VERSION: u8 = 1;
const OPCODE_MASK: u8 = 0x0f;
/// Set in every operation code that RFC 5040 leaves reserved.
const EXTENDED_BIT: u8 = 0x08;

/// The messages of RFC 5040 s4.1, figure 4, and RFC 7306 s4.1, figure 2.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Opcode {
    /// Tagged.
    Write = 0,
    /// Queue 1.
    ReadRequest = 1,
    /// Tagged.
    ReadResponse = 2,
    /// Queue 0.
    Send = 3,
    /// Queue 0, with a steering tag to invalidate.
    SendInvalidate = 4,
    /// Queue 0, with solicited event.
    SendSolicited = 5,
    /// Queue 0, with solicited event and a steering tag to invalidate.
    SendSolicitedInvalidate = 6,
    /// Queue 2.
    Terminate = 7,
    /// Queue 0, eight octets for the completion (RFC 7306 s6).
    Immediate = 8,
    /// Queue 0, eight octets for the completion, with solicited event.
    ImmediateSolicited = 9,
    /// Queue 1 (RFC 7306 s5.2.1).
    AtomicRequest = 10,
    /// Queue 3 (RFC 7306 s5.2.2).
    AtomicResponse = 11,
}

impl Opcode {
    /// The control octet of a message of this kind: version 1, reserved bits zero.
    pub const fn control(self) -> u8 {
        VERSION << VERSION_SHIFT | self as u8
    }

    /// Decodes a control octet. RFC 5040 s7.2: the operation is checked first, then the version.
    /// The reserved bits are ignored. Version 0 is the RDMA Consortium's protocol; its peers do not
    /// speak MPA revision 1, so they never reach this point.
    #[inline]
    pub fn decode(control: u8) -> Result<Opcode, RdmapFault> {
        let opcode = Opcode::operation(control)?;
        Opcode::check_version(control).map(|()| opcode)
    }

    /// Returns whether a control octet has the bit that every operation outside RFC 5040 has.
    #[inline]
    pub const fn may_be_extended(control: u8) -> bool {
        control & EXTENDED_BIT != 0
    }

    /// Fails unless a control octet has version 1.
    #[inline]
    pub const fn check_version(control: u8) -> Result<(), RdmapFault> {
        if control >> VERSION_SHIFT == VERSION { Ok(()) } else { Err(RdmapFault::Version) }
    }

    /// Decodes a control octet on a stream that supports RFC 7306.
    #[inline]
    pub fn decode_extended(control: u8) -> Result<Opcode, RdmapFault> {
        let opcode = Opcode::operation_extended(control)?;
        Opcode::check_version(control).map(|()| opcode)
    }

    /// Decodes the operation of a control octet, RFC 7306 included. The version is not checked.
    pub(super) fn operation_extended(control: u8) -> Result<Opcode, RdmapFault> {
        match control & OPCODE_MASK {
            8 => Ok(Opcode::Immediate),
            9 => Ok(Opcode::ImmediateSolicited),
            10 => Ok(Opcode::AtomicRequest),
            11 => Ok(Opcode::AtomicResponse),
            _ => Opcode::operation(control),
        }
    }

    /// Decodes the operation of a control octet by RFC 5040. The version is not checked.
    #[inline]
    fn operation(control: u8) -> Result<Opcode, RdmapFault> {
        match control & OPCODE_MASK {
            0 => Ok(Opcode::Write),
            1 => Ok(Opcode::ReadRequest),
            2 => Ok(Opcode::ReadResponse),
            3 => Ok(Opcode::Send),
            4 => Ok(Opcode::SendInvalidate),
            5 => Ok(Opcode::SendSolicited),
            6 => Ok(Opcode::SendSolicitedInvalidate),
            7 => Ok(Opcode::Terminate),
            // The messages of RFC 7306 included: a stream has them only if both sides enabled them.
            _ => Err(RdmapFault::Opcode),
        }
    }

    /// Returns whether the message asks for a solicited event.
    pub const fn is_solicited(self) -> bool {
        matches!(self, Opcode::SendSolicited | Opcode::SendSolicitedInvalidate | Opcode::ImmediateSolicited)
    }

    /// Returns whether the message is Immediate Data.
    pub const fn is_immediate(self) -> bool {
        matches!(self, Opcode::Immediate | Opcode::ImmediateSolicited)
    }

    /// Returns whether the message carries a steering tag to invalidate.
    pub const fn invalidates(self) -> bool {
        matches!(self, Opcode::SendInvalidate | Opcode::SendSolicitedInvalidate)
    }

    /// Returns whether the message is a Send of any kind.
    pub const fn is_send(self) -> bool {
        matches!(
            self,
            Opcode::Send | Opcode::SendInvalidate | Opcode::SendSolicited | Opcode::SendSolicitedInvalidate
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 5040 s4.1: the operations of figure 4, version 01b, reserved bits zero and ignored.
    #[test]
    fn the_operations_of_figure_4_round_trip() {
        for code in 0..8u8 {
            let opcode = Opcode::decode(0x40 | code).unwrap();
            assert_eq!(opcode.control(), 0x40 | code);
            assert_eq!(Opcode::decode(0x70 | code), Ok(opcode));
        }
    }

    /// RFC 5040 s7.2: an unknown operation is reported before a wrong version.
    #[test]
    fn an_unknown_operation_is_reported_before_a_wrong_version() {
        for code in 8..16u8 {
            assert_eq!(Opcode::decode(0x40 | code), Err(RdmapFault::Opcode));
            assert_eq!(Opcode::decode(0xc0 | code), Err(RdmapFault::Opcode));
        }
        for version in [0x00, 0x80, 0xc0] {
            assert_eq!(Opcode::decode(version | 3), Err(RdmapFault::Version));
        }
    }

    /// RFC7306-4.1-01 and RFC7306-4.1-02: four more operations of the same version. All others
    /// remain unknown.
    #[test]
    fn the_operations_of_rfc_7306_round_trip() {
        for code in 0..12u8 {
            let opcode = Opcode::decode_extended(0x40 | code).unwrap();
            assert_eq!((opcode.control(), opcode as u8), (0x40 | code, code));
            assert_eq!(Opcode::decode_extended(0x70 | code), Ok(opcode));
            assert_eq!(Opcode::decode_extended(0x80 | code), Err(RdmapFault::Version));
        }
        for code in 12..16u8 {
            assert_eq!(Opcode::decode_extended(0x40 | code), Err(RdmapFault::Opcode));
        }
    }
}
