//! Attacks of a hostile host on a connection, and the error that the expected Terminate names.
//!
//! Sources: RFC 5044 s8, RFC 5041 s7.1 and s7.2, RFC 5040 s4.8, s5.4 and s7.2.

use ironwarp::Terminate;

use crate::adversary::Habit;
use crate::kinds::kinds;

kinds! {
    /// A violation of the protocol.
    pub enum Attack {
        /// Layer, type and code of the Terminate that it causes.
        fn error -> Option<(u8, u8, u8)>;

        /// An FPDU with a wrong CRC.
        Crc => Some((2, 0, 2)),
        /// An FPDU with a wrong marker pointer, or a wrong CRC where there are no markers.
        Marker => Some((2, 0, 2)),
        /// A segment shorter than its header.
        ShortSegment => Some((1, 0, 0)),
        /// A tagged segment with an unknown DDP version.
        TaggedVersion => Some((1, 1, 4)),
        /// An untagged segment with an unknown DDP version.
        UntaggedVersion => Some((1, 2, 6)),
        /// A segment with an unknown RDMAP version.
        RdmapVersion => Some((0, 2, 5)),
        /// An unknown operation.
        UnknownOpcode => Some((0, 2, 6)),
        /// A Send in a tagged segment.
        TaggedSend => Some((0, 2, 6)),
        /// A Read Request on the queue of Sends.
        ReadOnSendQueue => Some((0, 2, 6)),
        /// A Send on the queue of Read Requests.
        SendOnReadQueue => Some((0, 2, 6)),
        /// An unknown queue.
        InvalidQueue => Some((1, 2, 1)),
        /// A message with a number that is not the next one.
        MsnAhead => Some((1, 2, 3)),
        /// A message with a number that was used before.
        MsnBehind => Some((1, 2, 3)),
        /// A segment that leaves a gap in its message.
        OffsetAhead => Some((1, 2, 4)),
        /// A message longer than any receive.
        TooLong => Some((1, 2, 5)),
        /// More messages than there are receives.
        NoReceive => Some((1, 2, 2)),
        /// A Write by an unknown tag.
        WriteUnknown => Some((1, 1, 0)),
        /// A Write across the end of its region.
        WriteBeyond => Some((1, 1, 1)),
        /// A Write whose address overflows 64 bits.
        WriteWrap => Some((1, 1, 3)),
        /// A Write to memory of another protection domain.
        WriteForeign => Some((1, 1, 2)),
        /// A Write to memory without remote write access.
        WriteNoRight => Some((1, 1, 0)),
        /// A Read by an unknown tag.
        ReadUnknown => Some((0, 1, 0)),
        /// A Read across the end of its region.
        ReadBeyond => Some((0, 1, 1)),
        /// A Read whose address overflows 64 bits.
        ReadWrap => Some((0, 1, 4)),
        /// A Read of memory of another protection domain.
        ReadForeign => Some((0, 1, 3)),
        /// A Read of memory without remote read access.
        ReadNoRight => Some((0, 1, 2)),
        /// More outstanding Reads than negotiated.
        ReadTooMany => Some((1, 2, 2)),
        /// A Read Request without the last flag.
        ReadSplit => Some((0, 2, 7)),
        /// A truncated Read Request.
        ReadShort => Some((0, 2, 0xff)),
        /// A Read Request with extra bytes.
        ReadLong => Some((1, 2, 5)),
        /// A Send that invalidates an unknown tag.
        InvalidateUnknown => Some((0, 1, 0)),
        /// A Send that invalidates a tag that several streams share.
        InvalidateShared => Some((0, 1, 9)),
        /// A Read Response without a Read Request.
        ResponseUnasked => Some((0, 2, 6)),
        /// A Terminate that reports an error.
        Terminate => None,
        /// A Terminate with a wrong message number.
        TerminateMsn => Some((1, 2, 3)),
        /// A Terminate that is too short to name an error.
        TerminateShort => Some((0, 2, 0xff)),
        /// An FPDU longer than the rest of the stream.
        HalfFpdu => None,
        /// Random bytes instead of a start-up frame.
        StartupNoise => None,
        /// A reset.
        Reset => None,
        ;
        /// A TCP that abuses acknowledgements, windows or segments; the stream above it is valid.
        Habit(Habit) => None
    }
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
    /// The error that the victim's Terminate names, or `None` where it sends none. `markers` is
    /// whether the victim requested markers. DDP has no error for a missing access right: such a
    /// tag does not allow the placement.
    pub fn terminate(self, markers: bool) -> Option<Terminate> {
        let (layer, etype, code) = if self == Attack::Marker && markers { (2, 0, 3) } else { self.error()? };
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
