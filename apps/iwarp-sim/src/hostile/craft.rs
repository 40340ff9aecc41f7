//! The frames of each attack, and the Terminate that they deserve.
//!
//! Takes what the attacker knows of its victim; gives octets for the wire and the octets of the answer's payload.
//! Source of the answer: RFC 5040 s4.8 with figure 10.

use ironwarp::{RemoteMemory, Terminate};
use ironwarp_types::SeededEntropy;

use super::frames::{
    Damage, Mouth, Place, READ_REQUEST, READ_RESPONSE, SEND, TERMINATE, WRITE, tagged, untagged,
};
use crate::app::memory::{Piece, Plot};
use crate::app::{Session, Side};
use crate::plan::{Attack, REPROACH};

/// What an attacker knows of its victim.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Memory that it may write and read, its bytes, and what it may not reach.
    shared: RemoteMemory,
    shared_bytes: u64,
    sink: RemoteMemory,
    source: RemoteMemory,
    vault: RemoteMemory,
    receives: usize,
    reads: usize,
    room: usize,
}

/// What goes on the wire, and what must come back.
pub struct Crafted {
    /// Bytes, each piece in a segment of its own where it can be.
    pub units: Vec<Vec<u8>>,
    /// The payload of the Terminate in answer: one of these.
    pub answers: Vec<Vec<u8>>,
}

/// Bytes of a message of an attack.
const FEW: [u8; 16] = [0xdd; 16];

/// Bytes of a message in which a marker falls.
const MARKED: [u8; 520] = [0xdd; 520];

impl Target {
    /// The victim's side of a session, once it has memory.
    pub fn of(session: &Session) -> Option<Self> {
        let Side { plots, .. } = &session.sides[1];
        let plots = plots.as_ref()?;
        let first = |plot: &Plot| plot.remote(Piece { at: 0, len: 0 });
        Some(Target {
            shared: first(&plots.shared),
            shared_bytes: plots.shared.len() as u64,
            sink: first(&plots.sink),
            source: first(&plots.source),
            vault: first(&plots.vault),
            receives: session.plan.receives as usize,
            reads: session.plan.reads.into(),
            room: session.plan.bytes_max,
        })
    }

    /// Where a Write or Read of an attack is aimed at.
    fn aim(&self, attack: Attack, dice: &mut SeededEntropy) -> RemoteMemory {
        let tagged_offset = self.shared.tagged_offset;
        match attack {
            Attack::WriteUnknown | Attack::ReadUnknown => {
                let wrong = 1 + dice.below(u64::from(u32::MAX)) as u32;
                RemoteMemory { stag: ironwarp::STag(self.shared.stag.0 ^ wrong), tagged_offset }
            }
            Attack::WriteBeyond | Attack::ReadBeyond => {
                let tagged_offset = tagged_offset + self.shared_bytes - dice.below(FEW.len() as u64);
                RemoteMemory { tagged_offset, ..self.shared }
            }
            Attack::WriteWrap | Attack::ReadWrap => {
                RemoteMemory { tagged_offset: u64::MAX - dice.below(8), ..self.shared }
            }
            Attack::WriteForeign | Attack::ReadForeign => self.vault,
            Attack::WriteNoRight => self.sink,
            Attack::ReadNoRight => self.source,
            _ => self.shared,
        }
    }
}

/// The attack, said by `mouth`.
pub fn craft(attack: Attack, mouth: &mut Mouth, target: &Target, dice: &mut SeededEntropy) -> Crafted {
    let aim = target.aim(attack, dice);
    let damage = match attack {
        Attack::Crc => Damage::Crc,
        Attack::Marker if mouth.markers => Damage::Markers,
        Attack::Marker => Damage::Crc,
        _ => Damage::None,
    };
    let ulpdus = ulpdus(attack, mouth, target, aim, dice);
    let terminate = attack.terminate(mouth.markers);
    // The victim may be busy, and have fewer receives posted than it usually has.
    let offenders = if attack == Attack::NoReceive { &ulpdus[..] } else { &ulpdus[ulpdus.len() - 1..] };
    let answer = |offender: &Vec<u8>| Some(answer(terminate?, attack, offender));
    let answers = offenders.iter().filter_map(answer).collect();
    let mut units = vec![ulpdus.iter().flat_map(|ulpdu| mouth.fpdu(ulpdu, damage)).collect::<Vec<u8>>()];
    if attack == Attack::HalfFpdu {
        units.iter_mut().for_each(|unit| unit.truncate(unit.len() - 7));
    }
    Crafted { units, answers }
}

/// The segments of an attack; the last one is what is wrong.
fn ulpdus(
    attack: Attack,
    mouth: &mut Mouth,
    target: &Target,
    aim: RemoteMemory,
    dice: &mut SeededEntropy,
) -> Vec<Vec<u8>> {
    let (stag, to) = (aim.stag.0, aim.tagged_offset);
    let send_place = Place { queue: 0, msn: mouth.sends + 1, mo: 0, word: 0 };
    let read_place = Place { queue: 1, msn: mouth.reads + 1, mo: 0, word: 0 };
    let changed = |mut ulpdu: Vec<u8>, at: usize, to: u8| {
        ulpdu[at] = to;
        ulpdu
    };
    let terminates =
        |msn, payload: &[u8]| untagged(TERMINATE, Place { queue: 2, msn, mo: 0, word: 0 }, payload);
    vec![match attack {
        Attack::Marker => tagged(WRITE, stag, to, &MARKED),
        Attack::ShortSegment => tagged(WRITE, stag, to, &[])[..1 + dice.below(13) as usize].to_vec(),
        Attack::TaggedVersion => {
            changed(tagged(WRITE, stag, to, &FEW), 0, 0xc0 | [0, 2, 3][dice.below(3) as usize])
        }
        Attack::UntaggedVersion => {
            changed(untagged(SEND, send_place, &FEW), 0, 0x40 | [0, 2, 3][dice.below(3) as usize])
        }
        Attack::RdmapVersion => {
            changed(tagged(WRITE, stag, to, &FEW), 1, [0, 0x80, 0xc0][dice.below(3) as usize])
        }
        Attack::UnknownOpcode => tagged(12 + dice.below(4) as u8, stag, to, &FEW),
        Attack::TaggedSend => tagged(SEND, stag, to, &FEW),
        Attack::ReadOnSendQueue => untagged(READ_REQUEST, send_place, &FEW),
        Attack::SendOnReadQueue => untagged(SEND, read_place, &FEW),
        Attack::InvalidQueue => {
            let queue = 3 + dice.below(1 << 31) as u32;
            untagged(SEND, Place { queue, ..send_place }, &FEW)
        }
        Attack::MsnAhead => {
            let msn = send_place.msn + 1 + dice.below(1 << 20) as u32;
            untagged(SEND, Place { msn, ..send_place }, &FEW)
        }
        Attack::MsnBehind => untagged(SEND, Place { msn: send_place.msn - 1, ..send_place }, &FEW),
        Attack::OffsetAhead => untagged(SEND, Place { mo: 1 + dice.below(8) as u32, ..send_place }, &[0; 4]),
        Attack::TooLong => mouth.send(&vec![0xdd; target.room + 1], None),
        Attack::NoReceive => return (0..=target.receives).map(|_| mouth.send(&[], None)).collect(),
        Attack::InvalidateUnknown => mouth.send(&FEW, Some(stag ^ 0x0100_0001)),
        Attack::InvalidateShared => mouth.send(&FEW, Some(stag)),
        attack if attack.asks() => mouth.read(stag, to, FEW.len() as u32),
        Attack::ReadTooMany => return (0..=target.reads).map(|_| mouth.read(stag, to, 64)).collect(),
        Attack::ReadSplit => changed(mouth.read(stag, to, 16), 0, 0x01),
        Attack::ReadShort => untagged(READ_REQUEST, read_place, &[0; 27][dice.below(27) as usize..]),
        Attack::ReadLong => untagged(READ_REQUEST, read_place, &[0; 29]),
        Attack::ResponseUnasked => tagged(READ_RESPONSE, stag, to, &FEW),
        Attack::Terminate => terminates(1, &[REPROACH.layer << 4 | REPROACH.etype, REPROACH.code, 0, 0]),
        Attack::TerminateMsn => terminates(2 + dice.below(8) as u32, &[0x02, 0xff, 0, 0]),
        Attack::TerminateShort => terminates(1, &[0x02, 0xff][..dice.below(3) as usize]),
        _ => tagged(WRITE, stag, to, &FEW),
    }]
}

/// The payload of the Terminate: figure 10 says which headers it shows.
fn answer(terminate: Terminate, attack: Attack, offender: &[u8]) -> Vec<u8> {
    let Terminate { layer, etype, code } = terminate;
    let shows = (layer == 1 || (layer == 0 && etype != 0)) && attack != Attack::ShortSegment;
    let mut answer = vec![layer << 4 | etype, code, 0, 0];
    if shows {
        answer[2] = 0xc0;
        let header_bytes = if offender[0] & 0x80 != 0 { 14 } else { 18 };
        answer.extend_from_slice(&(offender.len() as u16).to_be_bytes());
        answer.extend_from_slice(&offender[..header_bytes]);
        if attack.asks() {
            answer[2] |= 0x20;
            answer.extend_from_slice(&offender[header_bytes..]);
        }
    }
    answer
}

/// What is said behind an attack by somebody who does not stop: all of it would do harm.
pub fn chatter(mouth: &mut Mouth, target: &Target) -> Vec<u8> {
    let RemoteMemory { stag, tagged_offset } = target.shared;
    let write = tagged(WRITE, stag.0, tagged_offset, &FEW);
    let send = mouth.send(&FEW, None);
    let reproach = Place { queue: 2, msn: 1, mo: 0, word: 0 };
    let terminate = untagged(TERMINATE, reproach, &[0x12, 0x02, 0, 0]);
    [write, send, terminate].iter().flat_map(|ulpdu| mouth.fpdu(ulpdu, Damage::None)).collect()
}
