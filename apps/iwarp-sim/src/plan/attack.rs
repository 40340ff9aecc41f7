//! Attacks of a hostile host on a connection, and the error that the expected Terminate names.
//!
//! Sources: RFC 5044 s8, RFC 5041 s7.1 and s7.2, RFC 5040 s4.8, s5.4 and s7.2.

use ironwarp::Terminate;

use crate::adversary::Habit;

/// A violation of the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Attack {
    /// An FPDU with a wrong CRC.
    Crc,
    /// An FPDU with a wrong marker pointer, or a wrong CRC where there are no markers.
    Marker,
    /// A segment shorter than its header.
    ShortSegment,
    /// A tagged segment with an unknown DDP version.
    TaggedVersion,
    /// An untagged segment with an unknown DDP version.
    UntaggedVersion,
    /// A segment with an unknown RDMAP version.
    RdmapVersion,
    /// An unknown operation.
    UnknownOpcode,
    /// A Send in a tagged segment.
    TaggedSend,
    /// A Read Request on the queue of Sends.
    ReadOnSendQueue,
    /// A Send on the queue of Read Requests.
    SendOnReadQueue,
    /// An unknown queue.
    InvalidQueue,
    /// A message with a number that is not the next one.
    MsnAhead,
    /// A message with a number that was used before.
    MsnBehind,
    /// A segment that leaves a gap in its message.
    OffsetAhead,
    /// A message longer than any receive.
    TooLong,
    /// More messages than there are receives.
    NoReceive,
    /// A Write by an unknown tag.
    WriteUnknown,
    /// A Write across the end of its region.
    WriteBeyond,
    /// A Write whose address overflows 64 bits.
    WriteWrap,
    /// A Write to memory of another protection domain.
    WriteForeign,
    /// A Write to memory without remote write access.
    WriteNoRight,
    /// A Read by an unknown tag.
    ReadUnknown,
    /// A Read across the end of its region.
    ReadBeyond,
    /// A Read whose address overflows 64 bits.
    ReadWrap,
    /// A Read of memory of another protection domain.
    ReadForeign,
    /// A Read of memory without remote read access.
    ReadNoRight,
    /// More outstanding Reads than negotiated.
    ReadTooMany,
    /// A Read Request without the last flag.
    ReadSplit,
    /// A truncated Read Request.
    ReadShort,
    /// A Read Request with extra bytes.
    ReadLong,
    /// A Send that invalidates an unknown tag.
    InvalidateUnknown,
    /// A Send that invalidates a tag that several streams share.
    InvalidateShared,
    /// A Read Response without a Read Request.
    ResponseUnasked,
    /// A Terminate that reports an error.
    Terminate,
    /// A Terminate with a wrong message number.
    TerminateMsn,
    /// A Terminate that is too short to name an error.
    TerminateShort,
    /// An FPDU longer than the rest of the stream.
    HalfFpdu,
    /// Random bytes instead of a start-up frame.
    StartupNoise,
    /// A reset.
    Reset,
    /// A TCP that abuses acknowledgements, windows or segments; the stream above it is valid.
    Habit(Habit),
}

/// The attacker's behaviour after the attack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AfterAttack {
    /// The attacker closes after the victim has closed.
    Close,
    /// It keeps sending, replies to a Terminate with another one, and then closes.
    KeepSending,
    /// It never closes.
    StayOpen,
}

impl Attack {
    /// All attacks above TCP.
    pub const ALL: [Attack; 39] = [
        Attack::Crc,
        Attack::Marker,
        Attack::ShortSegment,
        Attack::TaggedVersion,
        Attack::UntaggedVersion,
        Attack::RdmapVersion,
        Attack::UnknownOpcode,
        Attack::TaggedSend,
        Attack::ReadOnSendQueue,
        Attack::SendOnReadQueue,
        Attack::InvalidQueue,
        Attack::MsnAhead,
        Attack::MsnBehind,
        Attack::OffsetAhead,
        Attack::TooLong,
        Attack::NoReceive,
        Attack::WriteUnknown,
        Attack::WriteBeyond,
        Attack::WriteWrap,
        Attack::WriteForeign,
        Attack::WriteNoRight,
        Attack::ReadUnknown,
        Attack::ReadBeyond,
        Attack::ReadWrap,
        Attack::ReadForeign,
        Attack::ReadNoRight,
        Attack::ReadTooMany,
        Attack::ReadSplit,
        Attack::ReadShort,
        Attack::ReadLong,
        Attack::InvalidateUnknown,
        Attack::InvalidateShared,
        Attack::ResponseUnasked,
        Attack::Terminate,
        Attack::TerminateMsn,
        Attack::TerminateShort,
        Attack::HalfFpdu,
        Attack::StartupNoise,
        Attack::Reset,
    ];

    /// The error that the victim's Terminate names, or `None` where it sends none. `markers` is whether the victim
    /// requested markers.
    pub fn terminate(self, markers: bool) -> Option<Terminate> {
        let (layer, etype, code) = match self {
            Attack::Marker if markers => (2, 0, 3),
            Attack::Crc | Attack::Marker => (2, 0, 2),
            Attack::ShortSegment => (1, 0, 0),
            // DDP has no error for a missing access right: such a tag does not allow the placement.
            Attack::WriteUnknown | Attack::WriteNoRight => (1, 1, 0),
            Attack::WriteBeyond => (1, 1, 1),
            Attack::WriteForeign => (1, 1, 2),
            Attack::WriteWrap => (1, 1, 3),
            Attack::TaggedVersion => (1, 1, 4),
            Attack::InvalidQueue => (1, 2, 1),
            Attack::NoReceive | Attack::ReadTooMany => (1, 2, 2),
            Attack::MsnAhead | Attack::MsnBehind | Attack::TerminateMsn => (1, 2, 3),
            Attack::OffsetAhead => (1, 2, 4),
            Attack::TooLong | Attack::ReadLong => (1, 2, 5),
            Attack::UntaggedVersion => (1, 2, 6),
            Attack::ReadUnknown | Attack::InvalidateUnknown => (0, 1, 0),
            Attack::ReadBeyond => (0, 1, 1),
            Attack::ReadNoRight => (0, 1, 2),
            Attack::ReadForeign => (0, 1, 3),
            Attack::ReadWrap => (0, 1, 4),
            Attack::InvalidateShared => (0, 1, 9),
            Attack::RdmapVersion => (0, 2, 5),
            Attack::UnknownOpcode
            | Attack::TaggedSend
            | Attack::ReadOnSendQueue
            | Attack::SendOnReadQueue
            | Attack::ResponseUnasked => (0, 2, 6),
            Attack::ReadSplit => (0, 2, 7),
            Attack::ReadShort | Attack::TerminateShort => (0, 2, 0xff),
            Attack::Terminate
            | Attack::HalfFpdu
            | Attack::StartupNoise
            | Attack::Reset
            | Attack::Habit(_) => return None,
        };
        Some(Terminate { layer, etype, code })
    }

    /// Returns whether it is a well-formed Read Request for memory that it may not read.
    pub fn is_read_request(self) -> bool {
        matches!(
            self,
            Attack::ReadUnknown
                | Attack::ReadBeyond
                | Attack::ReadWrap
                | Attack::ReadForeign
                | Attack::ReadNoRight
        )
    }
}

/// The error that [`Attack::Terminate`] names.
pub const BAD_TERMINATE: Terminate = Terminate { layer: 0, etype: 2, code: 0xff };
