//! Builds the frames of each attack and the expected Terminate.
//!
//! Takes what the attacker knows of its victim. Returns the octets for the wire and the expected
//! octets of the reply's payload. Source of the reply: RFC 5040 s4.8 with figure 10.

use ironwarp::{RemoteMemory, Terminate};
use ironwarp_testkit::mpa::Damage;
use ironwarp_testkit::rdmap::{READ_REQUEST, READ_RESPONSE, SEND, TERMINATE, WRITE, tagged, untagged};
use ironwarp_types::SeededEntropy;

use crate::adversary::Peer;
use crate::app::memory::{Piece, ShadowedRegion};
use crate::app::{Session, Side};
use crate::plan::{Attack, BAD_TERMINATE};

/// What an attacker knows of its victim.
#[derive(Clone, Copy, Debug)]
pub struct VictimInfo {
    /// Memory that it may write and read, its length, and memory that it may not access.
    shared: RemoteMemory,
    shared_bytes: u64,
    sink: RemoteMemory,
    source: RemoteMemory,
    foreign: RemoteMemory,
    receives: usize,
    room: usize,
}

/// The bytes to send and the expected reply.
pub struct AttackBytes {
    pub bytes: Vec<u8>,
    /// The expected payload of the Terminate: one of these.
    pub expected_terminates: Vec<Vec<u8>>,
}

/// Bytes of an attack's message.
const SHORT_PAYLOAD: [u8; 16] = [0xdd; 16];

/// Bytes of a message that is long enough to contain a marker.
const MARKED: [u8; 520] = [0xdd; 520];

/// Reads of which a resent segment has more in one piece than a victim allows, wherever it begins:
/// one that has answered the first of them may take the next.
const READS_SENT: usize = 20;

impl VictimInfo {
    /// The victim's side of a session, once its memory exists.
    pub fn of(session: &Session) -> Option<Self> {
        let Side { memory, .. } = &session.sides[1];
        let memory = memory.as_ref()?;
        let first = |shadowed_region: &ShadowedRegion| shadowed_region.remote(Piece { at: 0, len: 0 });
        Some(VictimInfo {
            shared: first(&memory.shared),
            shared_bytes: memory.shared.len() as u64,
            sink: first(&memory.sink),
            source: first(&memory.source),
            foreign: first(&memory.foreign),
            receives: session.plan.receives as usize,
            room: session.plan.bytes_max,
        })
    }

    /// Memory that it may read, and its length.
    pub fn readable(&self) -> (RemoteMemory, u64) {
        (self.shared, self.shared_bytes)
    }

    /// The target of an attack's Write or Read.
    fn attacked_memory(&self, attack: Attack, rng: &mut SeededEntropy) -> RemoteMemory {
        let tagged_offset = self.shared.tagged_offset;
        match attack {
            Attack::WriteUnknown | Attack::ReadUnknown => {
                let wrong = 1 + rng.below(u64::from(u32::MAX)) as u32;
                RemoteMemory { stag: ironwarp::STag(self.shared.stag.0 ^ wrong), tagged_offset }
            }
            Attack::WriteBeyond | Attack::ReadBeyond => {
                let tagged_offset = tagged_offset + self.shared_bytes - rng.below(SHORT_PAYLOAD.len() as u64);
                RemoteMemory { tagged_offset, ..self.shared }
            }
            Attack::WriteWrap | Attack::ReadWrap => {
                RemoteMemory { tagged_offset: u64::MAX - rng.below(8), ..self.shared }
            }
            Attack::WriteForeign | Attack::ReadForeign => self.foreign,
            Attack::WriteNoRight => self.sink,
            Attack::ReadNoRight => self.source,
            _ => self.shared,
        }
    }
}

/// Builds the attack with the numbering of `sender`.
pub fn build_attack(
    attack: Attack,
    sender: &mut Peer,
    target: &VictimInfo,
    rng: &mut SeededEntropy,
) -> AttackBytes {
    let remote = target.attacked_memory(attack, rng);
    let damage = match attack {
        Attack::Crc => Damage::Crc,
        Attack::Marker if sender.has_markers() => Damage::Markers,
        Attack::Marker => Damage::Crc,
        _ => Damage::None,
    };
    let ulpdus = ulpdus(attack, sender, target, remote, rng);
    let terminate = attack.terminate(sender.has_markers());
    // The victim may have fewer receives than usual, or have answered some Reads.
    let offenders = match attack {
        Attack::NoReceive | Attack::ReadTooMany => &ulpdus[..],
        _ => &ulpdus[ulpdus.len() - 1..],
    };
    let answer = |offender: &Vec<u8>| Some(expected_terminate(terminate?, attack, offender));
    let expected_terminates = offenders.iter().filter_map(answer).collect();
    let mut bytes: Vec<u8> = ulpdus.iter().flat_map(|ulpdu| sender.fpdu(ulpdu, damage)).collect();
    if attack == Attack::HalfFpdu {
        bytes.truncate(bytes.len() - 7);
    }
    AttackBytes { bytes, expected_terminates }
}

/// The segments of an attack; the last one is the invalid one.
fn ulpdus(
    attack: Attack,
    sender: &mut Peer,
    target: &VictimInfo,
    remote: RemoteMemory,
    rng: &mut SeededEntropy,
) -> Vec<Vec<u8>> {
    let (stag, to) = (remote.stag.0, remote.tagged_offset);
    let (send_msn, read_msn) = (sender.sends + 1, sender.reads + 1);
    let changed = |mut ulpdu: Vec<u8>, at: usize, to: u8| {
        ulpdu[at] = to;
        ulpdu
    };
    let terminates = |msn, payload: &[u8]| untagged(TERMINATE, 2, msn, 0, payload);
    vec![match attack {
        Attack::Marker => tagged(WRITE, stag, to, &MARKED),
        Attack::ShortSegment => tagged(WRITE, stag, to, &[])[..1 + rng.below(13) as usize].to_vec(),
        Attack::TaggedVersion => {
            changed(tagged(WRITE, stag, to, &SHORT_PAYLOAD), 0, 0xc0 | [0, 2, 3][rng.below(3) as usize])
        }
        Attack::UntaggedVersion => changed(
            untagged(SEND, 0, send_msn, 0, &SHORT_PAYLOAD),
            0,
            0x40 | [0, 2, 3][rng.below(3) as usize],
        ),
        Attack::RdmapVersion => {
            changed(tagged(WRITE, stag, to, &SHORT_PAYLOAD), 1, [0, 0x80, 0xc0][rng.below(3) as usize])
        }
        Attack::UnknownOpcode => tagged(12 + rng.below(4) as u8, stag, to, &SHORT_PAYLOAD),
        Attack::TaggedSend => tagged(SEND, stag, to, &SHORT_PAYLOAD),
        Attack::ReadOnSendQueue => untagged(READ_REQUEST, 0, send_msn, 0, &SHORT_PAYLOAD),
        Attack::SendOnReadQueue => untagged(SEND, 1, read_msn, 0, &SHORT_PAYLOAD),
        Attack::InvalidQueue => {
            let queue = 3 + rng.below(1 << 31) as u32;
            untagged(SEND, queue, send_msn, 0, &SHORT_PAYLOAD)
        }
        Attack::MsnAhead => {
            let msn = send_msn + 1 + rng.below(1 << 20) as u32;
            untagged(SEND, 0, msn, 0, &SHORT_PAYLOAD)
        }
        Attack::MsnBehind => untagged(SEND, 0, send_msn - 1, 0, &SHORT_PAYLOAD),
        Attack::OffsetAhead => untagged(SEND, 0, send_msn, 1 + rng.below(8) as u32, &[0; 4]),
        Attack::TooLong => sender.next_send(&vec![0xdd; target.room + 1], None),
        Attack::NoReceive => return (0..=target.receives).map(|_| sender.next_send(&[], None)).collect(),
        Attack::InvalidateUnknown => sender.next_send(&SHORT_PAYLOAD, Some(stag ^ 0x0100_0001)),
        Attack::InvalidateShared => sender.next_send(&SHORT_PAYLOAD, Some(stag)),
        attack if attack.is_read_request() => sender.next_read((stag, to), SHORT_PAYLOAD.len() as u32),
        Attack::ReadTooMany => return (0..READS_SENT).map(|_| sender.next_read((stag, to), 64)).collect(),
        Attack::ReadSplit => changed(sender.next_read((stag, to), 16), 0, 0x01),
        Attack::ReadShort => untagged(READ_REQUEST, 1, read_msn, 0, &[0; 27][rng.below(27) as usize..]),
        Attack::ReadLong => untagged(READ_REQUEST, 1, read_msn, 0, &[0; 29]),
        Attack::ResponseUnasked => tagged(READ_RESPONSE, stag, to, &SHORT_PAYLOAD),
        Attack::Terminate => {
            terminates(1, &[BAD_TERMINATE.layer << 4 | BAD_TERMINATE.etype, BAD_TERMINATE.code, 0, 0])
        }
        Attack::TerminateMsn => terminates(2 + rng.below(8) as u32, &[0x02, 0xff, 0, 0]),
        Attack::TerminateShort => terminates(1, &[0x02, 0xff][..rng.below(3) as usize]),
        _ => tagged(WRITE, stag, to, &SHORT_PAYLOAD),
    }]
}

/// The payload of the Terminate; figure 10 defines which headers it contains.
fn expected_terminate(terminate: Terminate, attack: Attack, offender: &[u8]) -> Vec<u8> {
    let Terminate { layer, etype, code } = terminate;
    let shows = (layer == 1 || (layer == 0 && etype != 0)) && attack != Attack::ShortSegment;
    let mut answer = vec![layer << 4 | etype, code, 0, 0];
    if shows {
        answer[2] = 0xc0;
        let header_bytes = if offender[0] & 0x80 != 0 { 14 } else { 18 };
        answer.extend_from_slice(&(offender.len() as u16).to_be_bytes());
        answer.extend_from_slice(&offender[..header_bytes]);
        if attack.is_read_request() {
            answer[2] |= 0x20;
            answer.extend_from_slice(&offender[header_bytes..]);
        }
    }
    answer
}

/// Traffic of an attacker that continues after the attack. The victim must ignore it: all of it
/// would change memory.
pub fn traffic_after_attack(sender: &mut Peer, target: &VictimInfo) -> Vec<u8> {
    let RemoteMemory { stag, tagged_offset } = target.shared;
    let write = tagged(WRITE, stag.0, tagged_offset, &SHORT_PAYLOAD);
    let send = sender.next_send(&SHORT_PAYLOAD, None);
    let terminate = untagged(TERMINATE, 2, 1, 0, &[0x12, 0x02, 0, 0]);
    [write, send, terminate].iter().flat_map(|ulpdu| sender.fpdu(ulpdu, Damage::None)).collect()
}
