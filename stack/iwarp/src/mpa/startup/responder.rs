//! The side that answers with the Reply Frame (RFC 5044 s7.1.2, rules 2 and 4).

use ironwarp_tcp::ByteStream;

use super::frame::{Frame, FrameBytes, Kind, PrivateData};
use super::{PrivateDataTooLong, StartupFault};

/// A responder that waits for a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Responder {
    crc_wanted: bool,
}

/// A request that waits for the application's answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "a request wants an answer"]
pub struct Decision {
    crc: bool,
}

/// What the bytes so far mean.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Progress {
    /// The request is not whole yet.
    NeedMore,
    /// The far application asks for a connection.
    Request {
        /// What it says.
        private_data: PrivateData,
        /// How to answer.
        decision: Decision,
    },
    /// The request is well formed and asks for what we do not have. Send `reply`, which refuses, then close TCP.
    Refuse {
        /// The Reply Frame.
        reply: FrameBytes,
        /// What was asked for.
        fault: StartupFault,
    },
    /// Close TCP.
    Fault(StartupFault),
}

impl Responder {
    /// Waits for a request. `crc` is false only where an administrator turned CRCs off (RFC 5044 s4.4).
    pub fn new(crc: bool) -> Self {
        Responder { crc_wanted: crc }
    }

    /// Looks at what has arrived and takes the request when it is whole.
    pub fn on_bytes(&self, bytes: &mut impl ByteStream) -> Progress {
        match Frame::decode(Kind::Request, bytes) {
            Ok(None) => Progress::NeedMore,
            // RFC 5044 s7.1.1: private data that does not match its length. No initiator may send FPDUs before the
            // reply, so what follows the request can be nothing else.
            Ok(Some(_)) if bytes.available() > 0 => Progress::Fault(StartupFault::TrailingBytes),
            Ok(Some(request)) => self.on_request(request),
            Err(fault) => Progress::Fault(fault),
        }
    }

    fn on_request(&self, request: Frame) -> Progress {
        let decision = Decision { crc: request.crc || self.crc_wanted };
        if request.markers {
            // RFC 5044 s7.1.1 obliges whoever accepts to send markers. We cannot, so we refuse, as Linux siw does.
            let reply = decision.reply(true, PrivateData::new());
            return Progress::Refuse { reply, fault: StartupFault::MarkersRequired };
        }
        Progress::Request { private_data: request.private_data, decision }
    }
}

impl Decision {
    /// Whether CRCs will be in use: they are when either side asks for them (RFC 5044 s7.1.1).
    pub fn crc(&self) -> bool {
        self.crc
    }

    /// Accepts. Once the reply is sent the stream is in full operation; nothing may follow the reply until the
    /// initiator's first FPDU has come (RFC 5044 s7.1.2, rule 4).
    pub fn accept(self, private_data: &[u8]) -> Result<FrameBytes, PrivateDataTooLong> {
        Ok(self.reply(false, checked(private_data)?))
    }

    /// Refuses. MPA is over once the reply is sent; TCP stays open until the connection manager closes it.
    pub fn reject(self, private_data: &[u8]) -> Result<FrameBytes, PrivateDataTooLong> {
        Ok(self.reply(true, checked(private_data)?))
    }

    fn reply(self, reject: bool, private_data: PrivateData) -> FrameBytes {
        Frame { kind: Kind::Reply, markers: false, crc: self.crc, reject, revision: 1, private_data }.encode()
    }
}

fn checked(private_data: &[u8]) -> Result<PrivateData, PrivateDataTooLong> {
    PrivateData::try_from(private_data).map_err(|_| PrivateDataTooLong(private_data.len()))
}
