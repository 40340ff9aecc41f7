//! Immediate Data: eight octets that the peer receives in a completion (RFC 7306 s6).
//!
//! Encodes and decodes the whole payload of one untagged segment on queue 0, in one numbering with
//! Sends. The octets are carried unchanged, in no byte order; their meaning is the application's. A
//! payload of any other length is an error of the message.

use super::RdmapFault;

/// Octets of an Immediate Data message, which are its whole payload (RFC 7306 s6.2, figure 7).
pub const IMMEDIATE_BYTES: usize = 8;

/// The payload of an Immediate Data message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Immediate(pub [u8; IMMEDIATE_BYTES]);

impl Immediate {
    /// Decodes a payload. RFC 7306 s6.3: the receiver checks that it has exactly eight octets.
    #[inline]
    pub fn decode(payload: &[u8]) -> Result<Immediate, RdmapFault> {
        payload.try_into().map(Immediate).map_err(|_| RdmapFault::Unspecified)
    }

    /// Encodes the payload.
    pub const fn encode(self) -> [u8; IMMEDIATE_BYTES] {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ddp::{Header, Untagged};
    use crate::rdmap::{Opcode, Rfc7306Profile};
    use crate::terminate::Terminate;

    const DATA: Immediate = Immediate([0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88]);

    /// Message 2 of queue 0, as in appendix A.3 of RFC 7306.
    const PLAIN: [u8; 26] = [
        0x41, 0x48, 0, 0, 0, 0, // untagged, last, DDP 1; RDMAP 1, operation 8; no tag to invalidate
        0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, // queue 0, message 2, offset 0
        0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88,
    ];

    fn segment(profile: Rfc7306Profile, opcode: Opcode, msn: u32) -> Vec<u8> {
        let mut out = vec![0xee; 18];
        Untagged::whole(opcode.control(), profile.queue(opcode).unwrap(), msn).encode(&mut out);
        out.extend(DATA.encode());
        out
    }

    fn read(profile: Rfc7306Profile, ulpdu: &[u8]) -> (Opcode, Immediate) {
        let Ok((Header::Untagged(header), payload)) = Header::decode(ulpdu) else { panic!("untagged") };
        Opcode::check_version(header.ulp).unwrap();
        (profile.expected(&header).unwrap(), Immediate::decode(payload).unwrap())
    }

    /// RFC7306-4-03, RFC7306-4.1-03 and RFC7306-6.3-04.
    #[test]
    fn immediate_data_has_the_layout_of_appendix_a() {
        assert_eq!(segment(Rfc7306Profile::RFC_7306, Opcode::Immediate, 2), PLAIN);
        assert_eq!(read(Rfc7306Profile::RFC_7306, &PLAIN), (Opcode::Immediate, DATA));
    }

    #[test]
    fn a_solicited_immediate_differs_only_in_the_operation() {
        let mut expected = PLAIN;
        expected[1] = 0x49;
        assert_eq!(segment(Rfc7306Profile::RFC_7306, Opcode::ImmediateSolicited, 2), expected);
        assert_eq!(read(Rfc7306Profile::RFC_7306, &expected), (Opcode::ImmediateSolicited, DATA));
        assert!(Opcode::ImmediateSolicited.is_solicited() && !Opcode::Immediate.is_solicited());
    }

    /// Figure 2 of draft -01: queue 1 with Solicited Event, queue 0 without.
    #[test]
    fn a_solicited_immediate_uses_queue_1_with_figure_2_of_draft_01() {
        let profile = Rfc7306Profile::DRAFT_01_FIGURE_2;
        let mut expected = PLAIN;
        (expected[1], expected[9]) = (0x49, 1);
        assert_eq!(segment(profile, Opcode::ImmediateSolicited, 2), expected);
        assert_eq!(read(profile, &expected), (Opcode::ImmediateSolicited, DATA));
        assert_eq!(segment(profile, Opcode::Immediate, 2), PLAIN);
    }

    /// RFC7306-6.3-07: a payload of any other length is refused, with the code for unspecified
    /// errors.
    #[test]
    fn any_other_length_is_refused() {
        for bytes in [0, 1, 7, 9, 16, 1000] {
            let refused = Immediate::decode(&vec![0; bytes]).map_err(Terminate::from);
            assert_eq!(refused, Err(Terminate { layer: 0, etype: 2, code: 0xff }));
        }
    }

    proptest! {
        #[test]
        fn immediate_data_round_trips(octets: [u8; 8]) {
            prop_assert_eq!(Immediate::decode(&Immediate(octets).encode()), Ok(Immediate(octets)));
        }

        #[test]
        fn only_payloads_of_eight_octets_are_decoded(octets in proptest::collection::vec(any::<u8>(), 0..40)) {
            prop_assert_eq!(Immediate::decode(&octets).is_ok(), octets.len() == 8);
        }
    }
}
