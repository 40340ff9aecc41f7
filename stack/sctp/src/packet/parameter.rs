//! Parameters of INIT, INIT ACK and HEARTBEAT, and error causes: both have one format.

use core::net::{Ipv4Addr, Ipv6Addr};

use super::{IfUnrecognized, split_padded};

/// The length of the header of a parameter or error cause in bytes.
pub(super) const TLV_HEADER_BYTES: usize = 4;

/// The type of a parameter (RFC 9260 s3.3.2 and s3.3.3, tables 6 and 8; RFC 5061 s4.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ParameterType(pub u16);

#[allow(missing_docs, reason = "the names of the RFC")]
impl ParameterType {
    pub const HEARTBEAT_INFO: Self = ParameterType(1);
    pub const IPV4_ADDRESS: Self = ParameterType(5);
    pub const IPV6_ADDRESS: Self = ParameterType(6);
    pub const STATE_COOKIE: Self = ParameterType(7);
    pub const UNRECOGNIZED_PARAMETER: Self = ParameterType(8);
    pub const COOKIE_PRESERVATIVE: Self = ParameterType(9);
    pub const HOST_NAME_ADDRESS: Self = ParameterType(11);
    pub const SUPPORTED_ADDRESS_TYPES: Self = ParameterType(12);
    pub const ADAPTATION_LAYER_INDICATION: Self = ParameterType(0xc006);
}

/// The code of an error cause (RFC 9260 s3.3.10, table 11).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CauseCode(pub u16);

#[allow(missing_docs, reason = "the names of the RFC")]
impl CauseCode {
    pub const INVALID_STREAM_IDENTIFIER: Self = CauseCode(1);
    pub const MISSING_MANDATORY_PARAMETER: Self = CauseCode(2);
    pub const STALE_COOKIE: Self = CauseCode(3);
    pub const OUT_OF_RESOURCE: Self = CauseCode(4);
    pub const UNRESOLVABLE_ADDRESS: Self = CauseCode(5);
    pub const UNRECOGNIZED_CHUNK_TYPE: Self = CauseCode(6);
    pub const INVALID_MANDATORY_PARAMETER: Self = CauseCode(7);
    pub const UNRECOGNIZED_PARAMETERS: Self = CauseCode(8);
    pub const NO_USER_DATA: Self = CauseCode(9);
    pub const COOKIE_RECEIVED_WHILE_SHUTTING_DOWN: Self = CauseCode(10);
    pub const RESTART_WITH_NEW_ADDRESSES: Self = CauseCode(11);
    pub const USER_INITIATED_ABORT: Self = CauseCode(12);
    pub const PROTOCOL_VIOLATION: Self = CauseCode(13);
}

/// A parameter or an error cause as it lies in its chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tlv<'a> {
    /// The type of the parameter or the code of the cause.
    pub kind: u16,
    /// The value, without padding.
    pub value: &'a [u8],
    /// Header and value: what a report of an unrecognised parameter quotes.
    pub octets: &'a [u8],
}

impl<'a> Tlv<'a> {
    /// Returns the typed view of a parameter. `None` if its length is not that of its type.
    pub fn parse(self) -> Option<Parameter<'a>> {
        let word = || self.value.try_into().ok().map(u32::from_be_bytes);
        Some(match ParameterType(self.kind) {
            ParameterType::HEARTBEAT_INFO => Parameter::HeartbeatInfo(self.value),
            ParameterType::IPV4_ADDRESS => Parameter::Ipv4Address(word()?.into()),
            ParameterType::IPV6_ADDRESS => {
                Parameter::Ipv6Address(<[u8; 16]>::try_from(self.value).ok()?.into())
            }
            ParameterType::STATE_COOKIE => Parameter::StateCookie(self.value),
            ParameterType::UNRECOGNIZED_PARAMETER => Parameter::UnrecognizedParameter(self.value),
            ParameterType::COOKIE_PRESERVATIVE => Parameter::CookiePreservative { increment_ms: word()? },
            ParameterType::HOST_NAME_ADDRESS => Parameter::HostNameAddress,
            ParameterType::SUPPORTED_ADDRESS_TYPES => Parameter::SupportedAddressTypes(self.value),
            ParameterType::ADAPTATION_LAYER_INDICATION => Parameter::AdaptationLayerIndication(word()?),
            ParameterType(kind) => {
                Parameter::Unrecognized(self.octets, IfUnrecognized::of(kind.to_be_bytes()[0]))
            }
        })
    }
}

/// A list of parameters or error causes, up to one with an impossible length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tlvs<'a>(&'a [u8]);

impl<'a> Tlvs<'a> {
    pub(super) const fn new(list: &'a [u8]) -> Self {
        Tlvs(list)
    }

    /// Returns the typed views of parameters, up to an unrecognised one that stops the processing
    /// of those behind it, which is the last. `None` stands for a parameter of a wrong length.
    pub fn recognized(self) -> impl Iterator<Item = Option<Parameter<'a>>> {
        let mut is_stopped = false;
        self.map_while(move |tlv| {
            let parameter = tlv.parse();
            let stops = matches!(parameter, Some(Parameter::Unrecognized(_, action)) if action.stops);
            (!core::mem::replace(&mut is_stopped, stops)).then_some(parameter)
        })
    }

    /// Returns whether a list of error causes has one with this code.
    pub fn has_cause(mut self, code: CauseCode) -> bool {
        self.any(|cause| cause.kind == code.0)
    }

    /// Returns whether every element fits the list.
    pub fn is_whole(mut self) -> bool {
        self.by_ref().for_each(drop);
        self.0.is_empty()
    }

    /// Returns what is left. After the last element: empty unless the list is malformed.
    pub const fn rest(&self) -> &'a [u8] {
        self.0
    }
}

impl<'a> Iterator for Tlvs<'a> {
    type Item = Tlv<'a>;

    fn next(&mut self) -> Option<Tlv<'a>> {
        let &[k0, k1, l0, l1] = self.0.first_chunk::<TLV_HEADER_BYTES>()?;
        let bytes = usize::from(u16::from_be_bytes([l0, l1]));
        let (octets, rest) = split_padded(self.0, bytes)?;
        let value = octets.get(TLV_HEADER_BYTES..)?;
        self.0 = rest;
        Some(Tlv { kind: u16::from_be_bytes([k0, k1]), value, octets })
    }
}

/// A parameter by its type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Parameter<'a> {
    /// RFC 9260 s3.3.5: opaque to the receiver.
    HeartbeatInfo(&'a [u8]),
    /// An address of the sender.
    Ipv4Address(Ipv4Addr),
    /// An address of the sender.
    Ipv6Address(Ipv6Addr),
    /// Opaque to the receiver, which returns it.
    StateCookie(&'a [u8]),
    /// A parameter of the INIT that the sender does not recognise.
    UnrecognizedParameter(&'a [u8]),
    /// The wish for a longer life of the cookie.
    CookiePreservative {
        /// The increment in milliseconds.
        increment_ms: u32,
    },
    /// RFC 9260 s3.3.2.1.4: nobody may send it, and it is refused.
    HostNameAddress,
    /// Types of address parameters, two octets each.
    SupportedAddressTypes(&'a [u8]),
    /// RFC 5061 s4.2.6: the code point of the upper layer.
    AdaptationLayerIndication(u32),
    /// Another type: the whole parameter, and what to do.
    Unrecognized(&'a [u8], IfUnrecognized),
}
