//! Packets of an adversary whose connection has an MPA stream, or should have one.

use super::conn::RawConn;
use super::{Adversary, Habit};
use crate::hostile::frames::{Damage, PeerSender, WRITE, tagged};

/// A request for a stream with CRCs and without markers (RFC 5044 s7.1.1).
pub const REQUEST: &[u8] = b"MPA ID Req Frame\x40\x01\x00\x00";

/// Bytes of the reply to it.
const REPLY_BYTES: usize = 20;

/// The victim's memory that the packets name: steering tag, first tagged offset, bytes.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Its tag.
    pub stag: u32,
    /// Its first tagged offset.
    pub to: u64,
    /// Its length.
    pub bytes: u32,
}

/// What the packets of a kind need.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Needs {
    /// Nothing.
    Nothing,
    /// A connection that stays.
    Conn,
    /// A connection for each packet, which is its last.
    FreshConn,
}

impl Adversary {
    /// Returns what its packets need.
    pub fn needs(self) -> Needs {
        use Adversary::*;
        match self {
            Garbage | ArpRequests | Solicitations | Echoes | Unknown | Syns => Needs::Nothing,
            Startups | BadCrcs | BadStags => Needs::FreshConn,
            Honest | ArpFlaps | IcmpErrors | OneByteSegments | TinyFpdus | Markers | Habit(_) => Needs::Conn,
        }
    }
}

/// The state of a sender once the reply to its request has arrived. An error is another reply.
pub fn started(heard: &[u8]) -> Option<Result<PeerSender, String>> {
    let reply = heard.get(..REPLY_BYTES)?;
    Some(match reply.starts_with(b"MPA ID Rep Frame") {
        true => Ok(PeerSender::new(reply[16] & 0x80 != 0)),
        false => Err(format!("the reply to a start-up frame is {reply:02x?}")),
    })
}

/// The next packets of a kind inside a stream: one, except that an FPDU byte by byte is many.
pub fn next_packets(
    kind: Adversary,
    place: Place,
    (conn, sender): (&mut RawConn, &mut PeerSender),
    out: &mut Vec<Vec<u8>>,
) {
    let Place { stag, to, .. } = place;
    match kind {
        Adversary::Honest => {
            let send = sender.send(&SMALL, None);
            conn.send(&sender.fpdu(&send, Damage::None), out);
        }
        Adversary::OneByteSegments => {
            let bytes = sender.fpdu(&tagged(WRITE, stag, to, &SMALL), Damage::None);
            bytes.iter().for_each(|byte| conn.send(&[*byte], out));
        }
        Adversary::TinyFpdus => {
            let many = (0..TINY_FPDUS).flat_map(|_| sender.fpdu(&tagged(WRITE, 0, 0, &[]), Damage::None));
            conn.send(&many.collect::<Vec<u8>>(), out);
        }
        Adversary::Markers => {
            let bytes = sender.fpdu(&tagged(WRITE, stag, to, &[0x77; MARKED_BYTES]), Damage::None);
            conn.send(&bytes, out);
        }
        Adversary::Startups => conn.send(&[0xa5; 64], out),
        Adversary::BadCrcs => conn.send(&sender.fpdu(&tagged(WRITE, stag, to, &SMALL), Damage::Crc), out),
        Adversary::BadStags => {
            conn.send(&sender.fpdu(&tagged(WRITE, stag ^ 0x55, to, &SMALL), Damage::None), out);
        }
        _ => {}
    }
}

/// A connection adopts a habit. For those about acknowledgements the victim has something to send: Reads.
pub fn adopt(
    habit: Habit,
    place: Place,
    (conn, sender): (&mut RawConn, &mut PeerSender),
    out: &mut Vec<Vec<u8>>,
) {
    conn.begin(habit);
    if habit.is_about_acknowledgements() {
        for _ in 0..READS {
            let read = sender.read(place.stag, place.to, place.bytes);
            conn.send(&sender.fpdu(&read, Damage::None), out);
        }
    }
}

/// The payload of an honest Send.
const SMALL: [u8; 64] = [0x5a; 64];

/// FPDUs of 20 bytes in a full segment.
const TINY_FPDUS: usize = 70;

/// The payload of an FPDU with markers in one segment.
const MARKED_BYTES: usize = 1_340;

/// Outstanding Reads of a connection that has the victim send. The victim's memory is read by each.
const READS: u32 = 8;
