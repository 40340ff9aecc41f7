//! What a hostile host does to a connection, and what the Terminate in answer has to name.
//!
//! Sources: RFC 5044 s8, RFC 5041 s7.1 and s7.2, RFC 5040 s4.8, s5.4 and s7.2.

use ironwarp::Terminate;

/// Something that no peer may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Attack {
    /// An FPDU with a wrong CRC.
    Crc,
    /// An FPDU whose marker points elsewhere, or a wrong CRC where there are no markers.
    Marker,
    /// A segment that is shorter than its header.
    ShortSegment,
    /// A tagged segment of another version of DDP.
    TaggedVersion,
    /// An untagged one.
    UntaggedVersion,
    /// A segment of another version of RDMAP.
    RdmapVersion,
    /// An operation that does not exist.
    UnknownOpcode,
    /// A Send in a tagged segment.
    TaggedSend,
    /// A Read Request on the queue of Sends.
    ReadOnSendQueue,
    /// A Send on the queue of Read Requests.
    SendOnReadQueue,
    /// A queue that does not exist.
    InvalidQueue,
    /// A message whose number is not the next.
    MsnAhead,
    /// A message that was sent before.
    MsnBehind,
    /// A segment that leaves a hole in its message.
    OffsetAhead,
    /// A message longer than any receive.
    TooLong,
    /// More messages than there are receives.
    NoReceive,
    /// A Write by a tag that nobody has.
    WriteUnknown,
    /// A Write across the end of its region.
    WriteBeyond,
    /// A Write beyond the last offset that there is.
    WriteWrap,
    /// A Write to memory of another protection domain.
    WriteForeign,
    /// A Write to memory that the victim keeps for itself.
    WriteNoRight,
    /// A Read by a tag that nobody has.
    ReadUnknown,
    /// A Read across the end of its region.
    ReadBeyond,
    /// A Read beyond the last offset that there is.
    ReadWrap,
    /// A Read of memory of another protection domain.
    ReadForeign,
    /// A Read of memory that the victim keeps for itself.
    ReadNoRight,
    /// More Reads than were agreed on.
    ReadTooMany,
    /// A Read Request that says it goes on.
    ReadSplit,
    /// A Read Request that is cut short.
    ReadShort,
    /// A Read Request with more behind it.
    ReadLong,
    /// A Send that invalidates a tag that nobody has.
    InvalidateUnknown,
    /// A Send that invalidates a tag that streams share.
    InvalidateShared,
    /// An answer to a Read that nobody asked for.
    ResponseUnasked,
    /// A Terminate, which is nobody's fault but the sender's.
    Terminate,
    /// A Terminate with a wrong number.
    TerminateMsn,
    /// A Terminate that is too short to name anything.
    TerminateShort,
    /// An FPDU that claims more than comes before the end.
    HalfFpdu,
    /// Noise instead of a start-up frame.
    StartupNoise,
    /// A reset.
    Reset,
}

/// What follows an attack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AfterAttack {
    /// The attacker closes when the victim has.
    Close,
    /// It talks on, and answers a Terminate with one; then it closes.
    KeepSending,
    /// It never closes.
    StayOpen,
}

impl Attack {
    /// Every attack.
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

    /// The error that the victim's Terminate names, where it sends one. `markers` tells whether the victim asked for
    /// markers.
    pub fn terminate(self, markers: bool) -> Option<Terminate> {
        let (layer, etype, code) = match self {
            Attack::Marker if markers => (2, 0, 3),
            Attack::Crc | Attack::Marker => (2, 0, 2),
            Attack::ShortSegment => (1, 0, 0),
            // DDP knows no missing right: such a tag allows no such placement.
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
            Attack::Terminate | Attack::HalfFpdu | Attack::StartupNoise | Attack::Reset => return None,
        };
        Some(Terminate { layer, etype, code })
    }

    /// Whether it is a Read Request that is well formed and asks for what it must not.
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

/// What [`Attack::Terminate`] names.
pub const BAD_TERMINATE: Terminate = Terminate { layer: 0, etype: 2, code: 0xff };
