//! The messages of both sides: advertisements of memory, and the text that is moved.
//!
//! An advertisement is 16 bytes, big-endian: address (8), steering tag (4), length in bytes (4). A
//! text begins with its ping's number, continues with letters and ends with a zero, as in `rping`.
//! A server of `rping` writes back the bytes up to and including the first zero.

use std::io::Write;

use ironwarp::{
    Completion, CompletionOpcode, CompletionStatus, ConnectFailure, DisconnectReason, RemoteMemory, STag,
    Terminate,
};

pub const MESSAGE_BYTES: usize = 16;

/// Bytes of a receive buffer: larger than a message, so that a message slightly too long is
/// reported as a fault.
pub(crate) const RECEIVE_BYTES: usize = 64;

/// The contents of a server's messages: zeros.
pub const EMPTY_MESSAGE: [u8; MESSAGE_BYTES] = [0; MESSAGE_BYTES];

const LETTERS: std::ops::RangeInclusive<u8> = b'A'..=b'z';
const LETTER_COUNT: u64 = (*LETTERS.end() - *LETTERS.start() + 1) as u64;

/// A violation of the protocol, or the end of the connection.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Fault {
    /// Every message has 16 bytes.
    #[error("a message of {0} bytes, where each has 16")]
    Length(u32),
    /// The message is longer than the receive buffer, so its length is unknown.
    #[error("a message of more than {0} bytes, where each has 16")]
    Overlong(usize),
    /// Many adapters refuse steering tag 0, and none assigns it.
    #[error("an advertisement with steering tag 0, which names no memory")]
    ZeroStag,
    /// The length is zero or exceeds the buffer.
    #[error("an advertisement of {bytes} bytes, where 1 to {bytes_max} are taken")]
    Size { bytes: u32, bytes_max: u32 },
    /// The text does not fit the advertised sink.
    #[error("{sink_bytes} bytes of room advertised for a text of {text}")]
    SinkTooSmall { sink_bytes: u32, text: u32 },
    /// A message arrived before the reply to the sender's message before it.
    #[error("a message out of turn")]
    UnexpectedMessage,
    #[error("byte {offset} of ping {ping} is {found:#04x}, not {wanted:#04x}")]
    Mismatch {
        /// The ping, from 0.
        ping: u64,
        /// The first byte that differs.
        offset: usize,
        found: u8,
        wanted: u8,
    },
    /// The connection ended too early.
    #[error("the connection ended in ping {ping}: {how}")]
    Disconnected {
        /// The ping in progress, from 0.
        ping: u64,
        how: String,
    },
    /// The client made fewer or more pings than expected.
    #[error("{came} pings, where {wanted} were to come")]
    Count { came: u64, wanted: u64 },
    /// No message arrived within the limit.
    #[error("nothing was heard in ping {ping} for {seconds} s")]
    Timeout {
        /// The ping in progress, from 0.
        ping: u64,
        /// The limit in seconds.
        seconds: u64,
    },
    /// The link's peer is gone.
    #[error("the link went down in ping {0}")]
    LinkDown(u64),
    /// A work request of ours failed.
    #[error("{what} in ping {ping} ended as {status:?}")]
    Work {
        what: &'static str,
        /// The ping in progress, from 0.
        ping: u64,
        status: CompletionStatus,
    },
    /// The server refused the connection.
    #[error("rejected{0}")]
    Rejected(String),
    #[error("{}", connect_failure_text(*.0))]
    ConnectFailed(ConnectFailure),
}

fn connect_failure_text(failure: ConnectFailure) -> &'static str {
    match failure {
        ConnectFailure::Unreachable => "unreachable: nobody answers for the address",
        ConnectFailure::Refused => "refused: is a server there?",
        ConnectFailure::TimedOut => "no answer in time",
        ConnectFailure::Closed => "closed while the connection was made",
        ConnectFailure::Protocol => "an answer that is no answer of MPA",
        _ => "no port, connection or buffer was free",
    }
}

/// The fault of the peer that an unsuccessful completion shows; `None` when it was flushed, since
/// the connection's end explains it.
pub(crate) fn check_completion(completion: &Completion, ping: u64) -> Result<(), Fault> {
    let what = match (completion.status, completion.opcode) {
        (CompletionStatus::Success | CompletionStatus::FlushedInError, _) => return Ok(()),
        (CompletionStatus::LocalLength, CompletionOpcode::Receive) => {
            return Err(Fault::Overlong(RECEIVE_BYTES));
        }
        (_, CompletionOpcode::Receive) => "a receive",
        (_, CompletionOpcode::Read) => "the Read",
        _ => "a Send or Write",
    };
    Err(Fault::Work { what, ping, status: completion.status })
}

/// The reason of a connection's end as text.
pub fn disconnect_text(reason: DisconnectReason, terminate: Option<(bool, Terminate)>) -> String {
    if let Some((sent, Terminate { layer, etype, code })) = terminate {
        let whose = if sent { "this end" } else { "the peer" };
        return format!("{whose} sent a Terminate of layer {layer}, type {etype}, code {code}");
    }
    match reason {
        DisconnectReason::Closed => "the peer closed it",
        DisconnectReason::Reset => "the peer reset it",
        DisconnectReason::TimedOut => "the peer no longer acknowledges",
        DisconnectReason::Unreachable => "the peer no longer acknowledges, and was reported as unreachable",
        _ => "a Terminate",
    }
    .to_owned()
}

/// A piece of the sender's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Advertisement {
    pub at: RemoteMemory,
    pub bytes: u32,
}

impl Advertisement {
    pub fn encode(&self) -> [u8; MESSAGE_BYTES] {
        let mut message = EMPTY_MESSAGE;
        message[..8].copy_from_slice(&self.at.tagged_offset.to_be_bytes());
        message[8..12].copy_from_slice(&self.at.stag.0.to_be_bytes());
        message[12..].copy_from_slice(&self.bytes.to_be_bytes());
        message
    }

    /// Decodes a message. `bytes_max` is the size of the buffer for the advertised text.
    pub fn decode(message: &[u8; MESSAGE_BYTES], bytes_max: u32) -> Result<Self, Fault> {
        let [offset @ .., t0, t1, t2, t3, l0, l1, l2, l3] = *message;
        let (stag, bytes) =
            (STag(u32::from_be_bytes([t0, t1, t2, t3])), u32::from_be_bytes([l0, l1, l2, l3]));
        if stag.0 == 0 {
            return Err(Fault::ZeroStag);
        }
        if !(1..=bytes_max).contains(&bytes) {
            return Err(Fault::Size { bytes, bytes_max });
        }
        Ok(Advertisement { at: RemoteMemory { stag, tagged_offset: u64::from_be_bytes(offset) }, bytes })
    }
}

/// Fills `text` with the text of ping number `ping`.
pub fn write_text(ping: u64, text: &mut [u8]) {
    let mut rest = &mut text[..];
    // A text shorter than the label has the beginning of it.
    let _ = write!(rest, "rdma-ping-{ping}: ");
    for (letter, byte) in rest.iter_mut().enumerate() {
        *byte = LETTERS.start() + ((ping % LETTER_COUNT + letter as u64) % LETTER_COUNT) as u8;
    }
    if let Some(last) = text.last_mut() {
        *last = 0;
    }
}

/// Fails on the first byte of `text` that differs from ping number `ping`'s. `wanted` is a buffer
/// of the same length.
pub fn check_text(ping: u64, text: &[u8], wanted: &mut [u8]) -> Result<(), Fault> {
    write_text(ping, wanted);
    let differs = text.iter().zip(wanted.iter()).position(|(found, wanted)| found != wanted);
    differs.map_or(Ok(()), |offset| {
        Err(Fault::Mismatch { ping, offset, found: text[offset], wanted: wanted[offset] })
    })
}

/// A text for printing: up to its zero, without characters that control a terminal.
pub fn printable(text: &[u8]) -> String {
    let before = text.iter().take_while(|byte| **byte != 0);
    before
        .map(|byte| if byte.is_ascii_graphic() || *byte == b' ' { char::from(*byte) } else { '.' })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(ping: u64, bytes: usize) -> Vec<u8> {
        let mut text = vec![0xff; bytes];
        write_text(ping, &mut text);
        text
    }

    /// The first three texts of 100 bytes and their first advertisement, as a capture of `rping`
    /// over Linux siw shows them.
    #[test]
    fn texts_and_advertisements_are_those_of_rping() {
        let first = b"rdma-ping-0: ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]\0";
        assert_eq!(text(0, 100), first[..99].iter().copied().chain([0]).collect::<Vec<_>>());
        assert!(text(1, 100).starts_with(b"rdma-ping-1: BCDEF"));
        assert!(text(2, 100).starts_with(b"rdma-ping-2: CDEF"));
        let message = 0x0000_559d_01ec_96b0_90b5_0000_0000_0064_u128.to_be_bytes();
        let advertised = Advertisement::decode(&message, 100).expect("a good one");
        assert_eq!((advertised.at.stag, advertised.bytes), (STag(0x90b5_0000), 100));
        assert_eq!(advertised.at.tagged_offset, 0x559d_01ec_96b0);
        assert_eq!(advertised.encode(), message);
    }

    /// `rping` writes back the bytes up to and including the first zero.
    #[test]
    fn a_text_of_any_length_has_its_only_zero_at_its_end() {
        for bytes in [1, 2, 13, 14, 64, 65_536] {
            for ping in [0, 57, 58, u64::MAX] {
                let text = text(ping, bytes);
                assert_eq!(
                    text.iter().position(|byte| *byte == 0),
                    Some(bytes - 1),
                    "{bytes} bytes of {ping}"
                );
            }
        }
        write_text(0, &mut []);
    }

    #[test]
    fn a_byte_that_differs_is_named() {
        let mut bytes = text(7, 64);
        let mut sink_bytes = [0; 64];
        assert_eq!(check_text(7, &bytes, &mut sink_bytes), Ok(()));
        bytes[40] ^= 1;
        let (found, wanted) = (bytes[40], bytes[40] ^ 1);
        assert_eq!(
            check_text(7, &bytes, &mut sink_bytes),
            Err(Fault::Mismatch { ping: 7, offset: 40, found, wanted })
        );
    }

    #[test]
    fn an_advertisement_of_nothing_or_too_much_is_refused() {
        let of = |stag: u32, bytes: u32| {
            let at = RemoteMemory { stag: STag(stag), tagged_offset: 1 };
            Advertisement::decode(&Advertisement { at, bytes }.encode(), 100)
        };
        assert!(of(1, 1).is_ok() && of(1, 100).is_ok());
        assert_eq!(of(0, 64), Err(Fault::ZeroStag));
        for bytes in [0, 101, u32::MAX] {
            assert_eq!(of(1, bytes), Err(Fault::Size { bytes, bytes_max: 100 }));
        }
    }

    #[test]
    fn what_a_terminal_would_obey_is_not_shown() {
        assert_eq!(printable(b"a b\x1b[2J\xff\0rest"), "a b.[2J.");
    }
}
