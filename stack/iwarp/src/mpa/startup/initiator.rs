//! The side that sends the Request Frame (RFC 5044 s7.1.2, rules 1 and 3).

use ironwarp_tcp::ByteStream;

use super::frame::{Frame, FrameBytes, Kind, PrivateData};
use super::{PrivateDataTooLong, StartupFault};

/// An initiator that waits for the reply to its request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Initiator {
    crc_asked: bool,
}

/// What the bytes so far mean.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Progress {
    /// The reply is not whole yet.
    NeedMore,
    /// The connection is accepted: full operation begins with the next byte, which may have arrived already.
    Accepted {
        /// What the far application says.
        private_data: PrivateData,
        /// Whether CRCs are in use.
        crc: bool,
    },
    /// The far application refuses. MPA is over; TCP is still open.
    Rejected {
        /// What it says.
        private_data: PrivateData,
    },
    /// Close TCP.
    Fault(StartupFault),
}

impl Initiator {
    /// Starts: the request goes out as the connection's first bytes. `crc` is false only where an administrator
    /// turned CRCs off (RFC 5044 s4.4).
    pub fn start(crc: bool, private_data: &[u8]) -> Result<(Initiator, FrameBytes), PrivateDataTooLong> {
        let request = Frame::new(Kind::Request, crc, false, private_data)?;
        Ok((Initiator { crc_asked: crc }, request.encode()))
    }

    /// Looks at what has arrived and takes the reply when it is whole, and nothing behind it.
    pub fn on_bytes(&self, bytes: &mut impl ByteStream) -> Progress {
        match Frame::decode(Kind::Reply, bytes) {
            Ok(None) => Progress::NeedMore,
            Ok(Some(reply)) => self.on_reply(reply),
            Err(fault) => Progress::Fault(fault),
        }
    }

    fn on_reply(&self, reply: Frame) -> Progress {
        let Frame { reject, markers, crc, private_data, .. } = reply;
        if reject {
            Progress::Rejected { private_data }
        } else if markers {
            // RFC 5044 s7.1.1 obliges whoever goes on to send markers. We cannot, so we do not go on.
            Progress::Fault(StartupFault::MarkersRequired)
        } else {
            // RFC 5044 s7.1.1: C in either frame means CRCs in both directions.
            Progress::Accepted { private_data, crc: crc || self.crc_asked }
        }
    }
}
