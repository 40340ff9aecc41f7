//! The hostile host: connections, Connects, commands and bytes of any kind, and ends at any time.

use crate::Input;
use iwarp_nvmf::auth::{Group, Hash, Nonce};
use iwarp_nvmf::host::{Host, Transfer};
use iwarp_nvmf::wire::SubmissionQueueEntry;
use iwarp_nvmf::wire::auth::{Body, Explanation, Message, command};
use iwarp_nvmf::wire::fabrics::{
    CNTLID_DYNAMIC, CONNECT_DATA_BYTES, CmRequest, Connect, ConnectData, DISCOVERY_NQN, DatasetRange,
    property, property_get, property_set,
};
use iwarp_nvmf::wire::opcode::{admin, fctype, io};
use zerocopy::IntoBytes;

use super::NQN;
use super::steps::{HOSTILE, HOSTILE_NQN};
use super::world::World;

/// Connections that it has at once.
const QUEUES_MAX: usize = 12;
const OPCODES: [u8; 14] = [
    io::FLUSH,
    io::WRITE,
    io::READ,
    io::COMPARE,
    io::WRITE_ZEROES,
    io::DATASET_MANAGEMENT,
    admin::IDENTIFY,
    admin::GET_LOG_PAGE,
    admin::SET_FEATURES,
    admin::GET_FEATURES,
    admin::KEEP_ALIVE,
    admin::ASYNC_EVENT_REQUEST,
    admin::ABORT,
    0x7f,
];

pub struct Hostile {
    /// Its queues: the admin queue and the I/O queues of a controller, and what it opens later.
    queues: Vec<usize>,
}

impl Hostile {
    pub fn new() -> Self {
        Hostile { queues: vec![0, 1, 2] }
    }

    pub fn step(&mut self, input: &mut Input<'_>, world: &mut World) {
        let host = &mut world.hosts[HOSTILE].host;
        let kind = input.u8() % 16;
        if kind == 0 {
            return self.open(input, host);
        }
        let at = input.below(self.queues.len().max(1));
        let Some(&queue) = self.queues.get(at) else { return };
        drop_completions(host, queue);
        match kind {
            1 if input.u8() > 128 => {
                self.queues.swap_remove(at);
                let _ = host.discard(queue);
            }
            1 => drop(host.abort(queue)),
            2 => drop(host.send_bytes(queue, input.bytes(64))),
            3 => connect(input, host, queue),
            4 => {
                let set = property_set(0, property::CC, input.u32());
                let entry = if input.flag() { set } else { property_get(0, input.u8().into(), input.flag()) };
                send(host, queue, entry, Transfer::None);
            }
            5..=10 => usual(input, host, queue),
            11 | 12 => authenticate(input, host, queue),
            _ => unusual(input, host, queue),
        }
    }

    fn open(&mut self, input: &mut Input<'_>, host: &mut Host) {
        let entries = [32, 32, 4, 2, 1, 128][input.below(6)];
        let private_data = CmRequest::new(input.below(5) as u16, entries);
        if self.queues.len() < QUEUES_MAX {
            self.queues.extend(host.begin_raw(private_data.as_bytes(), entries.max(2)));
        }
    }

    pub fn leave(&mut self, world: &mut World) {
        for queue in self.queues.drain(..) {
            let _ = world.hosts[HOSTILE].host.discard(queue);
        }
    }
}

/// Commands that are answered may be sent again.
fn drop_completions(host: &mut Host, queue: usize) {
    while let Some(done) = host.next_completion(queue) {
        host.release(queue, done.cid);
    }
}

/// Errors are its own stack's: the queue has ended, or is full.
fn send(host: &mut Host, queue: usize, mut entry: SubmissionQueueEntry, transfer: Transfer) {
    let Some(cid) = host.reserve(queue) else { return };
    entry.cid = cid.into();
    let _ = host.send(queue, cid, entry, transfer);
}

fn connect(input: &mut Input<'_>, host: &mut Host, queue: usize) {
    let nqn = [HOSTILE_NQN, DISCOVERY_NQN, NQN, "nqn.x"][input.below(4)];
    let cntlid = if input.flag() { CNTLID_DYNAMIC } else { input.u8().into() };
    let data = ConnectData::new([input.u8() % 3; 16], cntlid, nqn, "nqn.2014-08.org.example:host3");
    let (qid, sqsize) = (input.below(4) as u16, [31, 3, 1, 0, 127][input.below(5)]);
    let connect = Connect { recfmt: 0, qid, sqsize, cattr: input.u8() & 4, kato_ms: input.u8().into() };
    let Some(cid) = host.reserve(queue) else { return };
    let _ = host.write_buffer(queue, cid, data.as_bytes());
    let transfer = if input.flag() { Transfer::InCapsule } else { Transfer::ToTarget };
    let _ = host.send(queue, cid, connect.entry(cid), transfer(CONNECT_DATA_BYTES));
}

/// Sends a message of an authentication, which need not be due or whole, or fetches one.
fn authenticate(input: &mut Input<'_>, host: &mut Host, queue: usize) {
    let Some(cid) = host.reserve(queue) else { return };
    if input.flag() {
        let bytes = [4096, 16, 8, 1][input.below(4)];
        let _ = host.send(queue, cid, command(cid, fctype::AUTH_RECEIVE, bytes), Transfer::FromTarget(bytes));
        return;
    }
    let list = |input: &mut Input<'_>| input.short_bytes().iter().take(40).copied().collect::<Vec<_>>();
    let nonce = Nonce { challenge: vec![input.u8(); 32], seqnum: input.u8().into() };
    let body = match input.below(8) {
        0..=2 => Body::Negotiate { sc_c: input.u8() & 2, offer: Some((vec![1, 2], vec![0, input.u8() % 8])) },
        3 => Body::Negotiate { sc_c: 0, offer: Some((list(input), list(input))) },
        4 | 5 => {
            let nonce = input.flag().then_some(nonce);
            Body::Reply { response: vec![input.u8(); 32], nonce, public: list(input) }
        }
        6 => Body::Challenge { hash: Hash::Sha256, group: Group::Null, nonce, public: list(input) },
        _ if input.flag() => Body::Success2,
        _ => Body::Failure2(Explanation::Failed),
    };
    let mut bytes = Message { t_id: input.u8().into(), body }.encode();
    let (at, length) = (input.below(bytes.len()), bytes.len() + input.below(8));
    if input.u8() > 200 {
        bytes[at] = input.u8();
        bytes.resize(length, 0);
    }
    let _ = host.write_buffer(queue, cid, &bytes);
    let bytes = bytes.len() as u32;
    let _ = host.send(queue, cid, command(cid, fctype::AUTH_SEND, bytes), Transfer::ToTarget(bytes));
}

/// A command whose fields are near those of a right one.
fn usual(input: &mut Input<'_>, host: &mut Host, queue: usize) {
    let Some(cid) = host.reserve(queue) else { return };
    let opcode = OPCODES[input.below(OPCODES.len())];
    let mut entry = SubmissionQueueEntry::new(opcode, cid, 1 + u32::from(input.flag()));
    let blocks = u32::from(input.u8() % 20);
    if opcode == io::DATASET_MANAGEMENT {
        let range = DatasetRange {
            attributes: 0.into(),
            blocks: (blocks * 100).into(),
            slba: u64::from(input.u8()).into(),
        };
        let ranges = range.as_bytes().repeat(16);
        let _ = host.write_buffer(queue, cid, &ranges);
        entry.set_dword(10, u32::from(input.u8() % 20));
        entry.set_dword(11, 4);
    } else {
        entry.set_dword(10, input.u8().into());
        entry.set_dword(12, blocks | if input.flag() { 1 << 30 } else { 0 });
    }
    let bytes = (blocks + 1) * 512;
    let transfer = match input.u8() % 4 {
        0 => Transfer::None,
        1 => Transfer::InCapsule(bytes.min(8192)),
        2 => Transfer::ToTarget(bytes.min(16_384)),
        _ => Transfer::FromTarget(bytes.min(16_384)),
    };
    let _ = host.send(queue, cid, entry, transfer);
}

/// 64 bytes of any kind, or some of them, with a descriptor of any kind.
fn unusual(input: &mut Input<'_>, host: &mut Host, queue: usize) {
    let Some(cid) = host.reserve(queue) else { return };
    let mut entry = SubmissionQueueEntry::new(OPCODES[input.below(OPCODES.len())], cid, input.u8().into());
    let bytes = input.short_bytes();
    let at = input.below(64);
    let into = entry.as_mut_bytes().iter_mut().skip(at);
    into.zip(bytes).for_each(|(into, byte)| *into = *byte);
    let _ =
        host.send(queue, cid, entry, if input.flag() { Transfer::AsIs } else { Transfer::ToTarget(4096) });
}
