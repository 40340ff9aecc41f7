//! The user data of DATA chunks: DDP segments and session control (RFC 5043 s5.2, RFC 6581 s7).
//!
//! ```text
//! PPID 16 | DDP-SSN:u16 | DDP segment |
//! PPID 17 | DDP-SSN:u16 | function code:u16 | private data, 0..512 octets |
//! ```
//! In the enhanced functions the private data begins with the four octets of [`Enhanced`]; the rest
//! is the application's. RFC 6581 s7 names them in Initiate and Accept only. Here they are in
//! Reject, too: s7 has it indicate the supported kinds of RTR, and s9.1 has it name read depths. A
//! Reject that is too short for them is accepted without. Decoding copies nothing.

use arrayvec::ArrayVec;
use ironwarp_types::limits::PRIVATE_DATA_BYTES_MAX;

use crate::setup::{ENHANCED_BYTES, Enhanced, private_data_bytes_max};

/// The payload protocol identifier of a DDP segment.
pub const PPID_SEGMENT: u32 = 16;
/// The payload protocol identifier of session control.
pub const PPID_CONTROL: u32 = 17;

/// Octets of a DDP-SSN.
pub const SSN_BYTES: usize = 2;

/// Octets in front of private data.
const CONTROL_HEADER_BYTES: usize = SSN_BYTES + 2;

/// RFC 5043 s9: the user data that an unfragmented chunk always has room for, so that a control
/// message with all of its private data fits.
pub const CHUNK_BYTES_MIN: usize = 516;

const _: () = assert!(CONTROL_HEADER_BYTES + PRIVATE_DATA_BYTES_MAX == CHUNK_BYTES_MIN);

/// The user data of an encoded control message.
pub type ControlBytes = ArrayVec<u8, CHUNK_BYTES_MIN>;

/// The user data of a chunk, behind its DDP-SSN.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Chunk<'a> {
    /// A DDP segment.
    Segment(&'a [u8]),
    /// A session control message.
    Control(Control<'a>),
}

/// A session control message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Control<'a> {
    /// What it does.
    pub function: Function,
    /// The enhanced data of an enhanced function. A Reject of a peer may lack it.
    pub enhanced: Option<Enhanced>,
    /// The application's private data. Empty in a Terminate.
    pub private_data: &'a [u8],
}

/// The function codes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum Function {
    /// The active side requests a session.
    Initiate = 1,
    /// The passive side's application accepts.
    Accept = 2,
    /// The passive side's application rejects.
    Reject = 3,
    /// The last message of its sender in the session.
    Terminate = 4,
    /// Initiate with enhanced data.
    EnhancedInitiate = 5,
    /// Accept with enhanced data.
    EnhancedAccept = 6,
    /// Reject of a request that would have been accepted without enhanced data.
    EnhancedReject = 7,
}

/// Why a chunk is no message of DDP over SCTP. Its session is terminated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChunkFault {
    /// RFC 5043 s5.1: an association of DDP carries nothing else.
    #[error("payload protocol identifier {0}, known are 16 and 17")]
    Ppid(u32),
    /// The DDP-SSN or the function code is missing.
    #[error("the user data is too short for its header")]
    Truncated,
    /// The function code is unknown.
    #[error("function code {0} of session control, known are 1 to 7")]
    Function(u16),
    /// An Initiate or Accept has an enhanced function code and no enhanced data.
    #[error("enhanced session control with less than 4 bytes of enhanced data")]
    EnhancedDataMissing,
    /// RFC 5043 s5.2.3: at most 512 octets, and none in a Terminate.
    #[error("{0} bytes of private data, at most 512 are allowed, and none in a Terminate")]
    PrivateData(usize),
}

impl<'a> Chunk<'a> {
    /// Returns the DDP-SSN of user data, and what follows it.
    pub fn decode(ppid: u32, user_data: &'a [u8]) -> Result<(u16, Chunk<'a>), ChunkFault> {
        let (ssn, rest) = user_data.split_first_chunk::<SSN_BYTES>().ok_or(ChunkFault::Truncated)?;
        let chunk = match ppid {
            PPID_SEGMENT => Chunk::Segment(rest),
            PPID_CONTROL => Chunk::Control(Control::decode(rest)?),
            ppid => return Err(ChunkFault::Ppid(ppid)),
        };
        Ok((u16::from_be_bytes(*ssn), chunk))
    }
}

impl<'a> Control<'a> {
    /// A Terminate. RFC 5043 s5.2.3: it has no private data.
    pub const TERMINATE: Control<'static> =
        Control { function: Function::Terminate, enhanced: None, private_data: &[] };

    /// Encodes the message with its DDP-SSN. Private data beyond what fits is left out.
    pub fn encode(&self, ssn: u16) -> ControlBytes {
        let enhanced = self.enhanced.map(|enhanced| enhanced.encode());
        let most = private_data_bytes_max(enhanced.is_some());
        let private_data = self.private_data.get(..most).unwrap_or(self.private_data);
        let enhanced = enhanced.as_ref().map_or(&[][..], |octets| octets);
        let mut bytes = ControlBytes::new();
        for part in [&ssn.to_be_bytes()[..], &(self.function as u16).to_be_bytes(), enhanced, private_data] {
            // The four parts have the octets of a control message at most.
            let _ = bytes.try_extend_from_slice(part);
        }
        bytes
    }

    fn decode(octets: &'a [u8]) -> Result<Self, ChunkFault> {
        let (code, private_data) = octets.split_first_chunk().ok_or(ChunkFault::Truncated)?;
        let function = Function::decode(u16::from_be_bytes(*code))?;
        let allowed = if function == Function::Terminate { 0 } else { PRIVATE_DATA_BYTES_MAX };
        if private_data.len() > allowed {
            return Err(ChunkFault::PrivateData(private_data.len()));
        }
        if !function.is_enhanced() {
            return Ok(Control { function, enhanced: None, private_data });
        }
        match private_data.split_first_chunk::<ENHANCED_BYTES>() {
            Some((octets, private_data)) => {
                Ok(Control { function, enhanced: Some(Enhanced::decode(*octets)), private_data })
            }
            None if function == Function::EnhancedReject => {
                Ok(Control { function, enhanced: None, private_data: &[] })
            }
            None => Err(ChunkFault::EnhancedDataMissing),
        }
    }
}

impl Function {
    fn decode(code: u16) -> Result<Self, ChunkFault> {
        Ok(match code {
            1 => Function::Initiate,
            2 => Function::Accept,
            3 => Function::Reject,
            4 => Function::Terminate,
            5 => Function::EnhancedInitiate,
            6 => Function::EnhancedAccept,
            7 => Function::EnhancedReject,
            code => return Err(ChunkFault::Function(code)),
        })
    }

    /// Returns whether the message has enhanced data.
    pub fn is_enhanced(self) -> bool {
        self as u16 >= Function::EnhancedInitiate as u16
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::setup::{ReadDepths, RtrKinds};

    const FUNCTIONS: [Function; 7] = [
        Function::Initiate,
        Function::Accept,
        Function::Reject,
        Function::Terminate,
        Function::EnhancedInitiate,
        Function::EnhancedAccept,
        Function::EnhancedReject,
    ];

    fn control(user_data: &[u8]) -> Result<Control<'_>, ChunkFault> {
        match Chunk::decode(PPID_CONTROL, user_data)?.1 {
            Chunk::Control(control) => Ok(control),
            other => panic!("{other:?}"),
        }
    }

    /// RFC 5043 s5.2.2 and s5.2.3: DDP-SSN and function code are 16 bits in network byte order.
    #[test]
    fn chunks_have_the_layout_of_rfc_5043() {
        let plain = Control { function: Function::Initiate, enhanced: None, private_data: b"hi" };
        assert_eq!(plain.encode(0x0102)[..], *b"\x01\x02\x00\x01hi");
        assert_eq!(Control::TERMINATE.encode(0xfffe)[..], [0xff, 0xfe, 0, 4]);
        let segment = Chunk::decode(PPID_SEGMENT, b"\x80\x01segment");
        assert_eq!(segment, Ok((0x8001, Chunk::Segment(b"segment"))));
    }

    /// RFC 6581 s7: the private data follows the enhanced data.
    #[test]
    fn enhanced_data_precedes_private_data() {
        let reads = ReadDepths { ird: 16, ord: 8 };
        let enhanced = Some(Enhanced { peer_to_peer: true, rtr: RtrKinds::all(), reads });
        for (function, code) in
            [(Function::EnhancedInitiate, 5), (Function::EnhancedAccept, 6), (Function::EnhancedReject, 7)]
        {
            let octets = Control { function, enhanced, private_data: b"hi" }.encode(0);
            assert_eq!(octets[..], [0, 0, 0, code, 0xc0, 16, 0xc0, 8, b'h', b'i']);
            assert_eq!(control(&octets), Ok(Control { function, enhanced, private_data: b"hi" }));
        }
    }

    /// RFC 5043 s5.2.3, RFC 6581 s7: 512 octets with the enhanced data, none in a Terminate.
    #[test]
    fn private_data_has_at_most_512_octets_and_a_terminate_none() {
        for function in FUNCTIONS {
            let most = match function {
                Function::Terminate => 0,
                _ => 512,
            };
            let octets = [&[0, 0, 0, function as u8][..], &vec![0; most + 1]].concat();
            assert_eq!(control(&octets), Err(ChunkFault::PrivateData(most + 1)));
            let beside = if function.is_enhanced() { ENHANCED_BYTES } else { 0 };
            let decoded = control(&octets[..octets.len() - 1]).unwrap();
            assert_eq!(decoded.private_data.len(), most - beside);
        }
        let enhanced = Some(Enhanced::default());
        for enhanced in [None, enhanced] {
            let function = if enhanced.is_some() { Function::EnhancedAccept } else { Function::Accept };
            let octets = Control { function, enhanced, private_data: &[7; 513] }.encode(0);
            assert_eq!(octets.len(), CHUNK_BYTES_MIN, "a sender keeps within the limit");
        }
    }

    /// RFC 6581 s7: Initiate and Accept have the data that their codes announce. Its text has none
    /// in a Reject, so a peer's may lack it.
    #[test]
    fn only_a_reject_may_lack_enhanced_data() {
        for said in 0..ENHANCED_BYTES {
            let octets = |code| [&[0, 0, 0, code][..], &[1; 4][..said]].concat();
            assert_eq!(control(&octets(5)), Err(ChunkFault::EnhancedDataMissing));
            assert_eq!(control(&octets(6)), Err(ChunkFault::EnhancedDataMissing));
            let reject = Control { function: Function::EnhancedReject, enhanced: None, private_data: &[] };
            assert_eq!(control(&octets(7)), Ok(reject));
        }
    }

    /// RFC 5043 s5.1: other chunks do not belong in an association of DDP.
    #[test]
    fn what_is_neither_a_segment_nor_control_is_refused() {
        assert_eq!(Chunk::decode(0, &[0; 4]), Err(ChunkFault::Ppid(0)));
        assert_eq!(Chunk::decode(PPID_SEGMENT.swap_bytes(), &[0; 4]), Err(ChunkFault::Ppid(0x1000_0000)));
        for short in 0..2 {
            assert_eq!(Chunk::decode(PPID_SEGMENT, &[0; 2][..short]), Err(ChunkFault::Truncated));
        }
        for short in 0..4 {
            assert_eq!(Chunk::decode(PPID_CONTROL, &[0; 4][..short]), Err(ChunkFault::Truncated));
        }
        for code in [0, 8, 0x0100, 0xffff_u16] {
            let [high, low] = code.to_be_bytes();
            assert_eq!(control(&[0, 0, high, low]), Err(ChunkFault::Function(code)));
        }
    }

    proptest! {
        #[test]
        fn control_messages_round_trip(
            ssn: u16,
            function in 0..FUNCTIONS.len(),
            flags: u8,
            ird in 0..0x4000u16,
            ord in 0..0x4000u16,
            private_data in vec(any::<u8>(), 0..=508),
        ) {
            let function = FUNCTIONS[function];
            let rtr = RtrKinds::from_bits_truncate(flags);
            let enhanced = function.is_enhanced().then_some(Enhanced {
                peer_to_peer: !rtr.is_empty(), rtr, reads: ReadDepths { ird, ord },
            });
            let private_data = if function == Function::Terminate { &[][..] } else { &private_data };
            let sent = Control { function, enhanced, private_data };
            let octets = sent.encode(ssn);
            prop_assert_eq!(Chunk::decode(PPID_CONTROL, &octets), Ok((ssn, Chunk::Control(sent))));
        }

        /// What decodes has the octets that it was decoded from; nothing else does.
        #[test]
        fn hostile_octets_decode_to_what_they_are(
            ppid in prop_oneof![Just(PPID_SEGMENT), Just(PPID_CONTROL), any::<u32>()],
            code in prop_oneof![0..9u16, any::<u16>()],
            tail in vec(any::<u8>(), 0..600),
            cut: bool,
        ) {
            let octets = if cut { tail.clone() } else { [&[0, 9][..], &code.to_be_bytes(), &tail].concat() };
            match Chunk::decode(ppid, &octets) {
                Ok((ssn, Chunk::Segment(segment))) => {
                    prop_assert_eq!(ppid, PPID_SEGMENT);
                    prop_assert_eq!([&ssn.to_be_bytes()[..], segment].concat(), octets);
                }
                Ok((ssn, Chunk::Control(control))) => {
                    prop_assert_eq!(ppid, PPID_CONTROL);
                    prop_assert!(octets.len() <= CHUNK_BYTES_MIN);
                    prop_assert_eq!(control.private_data, &octets[octets.len() - control.private_data.len()..]);
                    let again = control.encode(ssn);
                    let (_, twice) = Chunk::decode(ppid, &again).unwrap();
                    prop_assert_eq!(twice, Chunk::Control(control));
                }
                Err(_) => {}
            }
        }
    }
}
