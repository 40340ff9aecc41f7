//! The hostile host: it does what its habits say, in random order, as long as the run lasts.
//!
//! Its errors are its own stack's, and nothing follows from them. It gets a controller as others
//! do, for commands, and has further connections.

use ironwarp_types::{Entropy, Nanos, SeededEntropy};
use iwarp_nvmf::host::session::{Session, send};
use iwarp_nvmf::host::{BlockRange, Host, Transfer};
use iwarp_nvmf::wire::SubmissionQueueEntry;
use iwarp_nvmf::wire::fabrics::{
    CNTLID_DYNAMIC, CONNECT_DATA_BYTES, CmRequest, Connect, ConnectData, DISCOVERY_NQN, DatasetRange,
};
use iwarp_nvmf::wire::log_page::lid;
use iwarp_nvmf::wire::opcode::{admin, io};
use zerocopy::IntoBytes;

use super::{DISK, HONEST_NQN, HOSTILE_HOST, HOSTILE_NQN, MEMORY};
use crate::app::SharedOracle;
use crate::plan::{StorageHabit, StoragePlan};

/// Connections other than those of its controller.
const CONNECTIONS_MAX: usize = 12;
const BURST: usize = 8;
/// Actions at the full rate. Later ones are rarer, so that a run ends in time.
const ACTIONS_MAX: u64 = 2_000;
const RARE: u64 = 16;

/// A connection other than those of its controller.
struct Raw {
    queue: usize,
    /// Its Connect, and the subsystem that it names.
    asked: Option<(u16, &'static str)>,
}

pub struct Hostile {
    pub(super) host: Host,
    session: Session,
    raw: Vec<Raw>,
    /// Queues that a full control queue kept from being discarded.
    leaving: Vec<usize>,
    habits: Vec<StorageHabit>,
    interval: Nanos,
    next_at: Nanos,
    actions: u64,
    rng: SeededEntropy,
    has_left: bool,
    oracle: SharedOracle,
}

impl Hostile {
    pub fn new(host: Host, plan: &StoragePlan, oracle: &SharedOracle) -> Self {
        Hostile {
            host,
            session: Session::new(64),
            raw: Vec::new(),
            leaving: Vec::new(),
            habits: plan.habits.clone(),
            interval: plan.hostile_interval,
            next_at: Nanos::ZERO,
            actions: 0,
            rng: SeededEntropy::new(plan.seeds[1]),
            has_left: false,
            oracle: oracle.clone(),
        }
    }

    pub fn poll(&mut self, now: Nanos) -> Result<bool, String> {
        // A response to what it did not send is an error of its library.
        let is_busy = self.host.poll().unwrap_or(true);
        self.host.workers_mut().iter_mut().try_for_each(|worker| worker.check())?;
        self.discard_leaving();
        if self.has_left {
            return Ok(is_busy);
        }
        // Nobody promises it a controller, and its connections may be gone.
        let _ = self.session.poll(&mut self.host, now);
        if let Some([admin, io]) = self.session.queues()
            && !(self.host.is_up(admin) && self.host.is_up(io))
        {
            let _ = self.session.restart(&mut self.host, now);
        }
        self.take_responses()?;
        if now < self.next_at {
            return Ok(is_busy);
        }
        self.actions += 1;
        self.oracle.borrow_mut().totals.attacks += 1;
        let rarer = if self.actions > ACTIONS_MAX { RARE } else { 1 };
        self.next_at = now + Nanos(1 + self.rng.below(self.interval.0) * rarer);
        let habit = self.habits[self.rng.below(self.habits.len() as u64) as usize];
        self.act(now, habit);
        Ok(true)
    }

    pub fn leave(&mut self) {
        self.has_left = true;
        self.leaving.extend(self.raw.drain(..).map(|one| one.queue));
        let _ = self.session.leave(&mut self.host);
        self.discard_leaving();
    }

    fn discard_leaving(&mut self) {
        let host = &mut self.host;
        self.leaving.retain(|&queue| host.discard(queue).is_err());
    }

    /// Takes all responses. A Connect to the other's subsystem must have failed.
    fn take_responses(&mut self) -> Result<(), String> {
        for queue in self.session.queues().into_iter().flatten() {
            drop_responses(&mut self.host, queue);
        }
        for one in &mut self.raw {
            while let Some(done) = self.host.next_completion(one.queue) {
                self.host.release(one.queue, done.cid);
                let asked = one.asked.take_if(|(cid, _)| *cid == done.cid);
                if asked.is_some_and(|(_, nqn)| nqn == HONEST_NQN) && done.entry.status().is_success() {
                    return Err("the hostile host has a controller of the honest host's subsystem".to_owned());
                }
            }
        }
        Ok(())
    }

    fn act(&mut self, now: Nanos, habit: StorageHabit) {
        match habit {
            StorageHabit::Commands | StorageHabit::Standstill => self.commands(),
            StorageHabit::Fills => self.fills(),
            StorageHabit::Connections => self.connections(),
            StorageHabit::Connects => self.connects(),
            StorageHabit::Nonsense => self.nonsense(),
            StorageHabit::Resets => self.resets(now),
            StorageHabit::Admin => self.admin(),
        }
    }

    fn below(&mut self, bound: usize) -> usize {
        self.rng.below(bound as u64) as usize
    }

    fn commands(&mut self) {
        let Some([_, queue]) = self.session.queues() else { return };
        for _ in 0..BURST.min(self.host.free_commands(queue)) {
            let nsid = [MEMORY, DISK][self.below(2)];
            let range =
                BlockRange { nsid, slba: self.rng.below(2000), blocks: 1 + self.rng.below(16) as u32 };
            let bytes = range.blocks * 512;
            let (opcode, transfer) = match self.below(4) {
                0 => (io::READ, Transfer::FromTarget(bytes)),
                1 => (io::WRITE, Transfer::InCapsule(bytes.min(4096))),
                2 => (io::COMPARE, Transfer::ToTarget(bytes)),
                _ => (io::WRITE, Transfer::ToTarget(bytes)),
            };
            let _ = send(&mut self.host, queue, range.entry(opcode), (&[0x66; 512], transfer));
        }
    }

    fn fills(&mut self) {
        let Some([_, queue]) = self.session.queues() else { return };
        for _ in 0..BURST.min(self.host.free_commands(queue)) {
            let nsid = [MEMORY, DISK][self.below(2)];
            if self.rng.chance(500_000) {
                let all = BlockRange { nsid, slba: 0, blocks: 2048 };
                let _ = send(&mut self.host, queue, all.entry(io::WRITE_ZEROES), (&[], Transfer::None));
                continue;
            }
            let range = DatasetRange { attributes: 0.into(), blocks: 2000.into(), slba: 0.into() };
            let mut entry = SubmissionQueueEntry::new(io::DATASET_MANAGEMENT, 0, nsid);
            entry.set_dword(10, 15);
            entry.set_dword(11, 1 << 2);
            let ranges = range.as_bytes().repeat(16);
            let _ = send(&mut self.host, queue, entry, (&ranges, Transfer::ToTarget(256)));
        }
    }

    fn connections(&mut self) {
        let entries = [32, 32, 4, 2, 1, 128][self.below(6)];
        let request = CmRequest::new(self.below(4) as u16, entries);
        let bytes = [request.as_bytes().len(), 0, 31][[0, 0, 0, 1, 2][self.below(5)]];
        if self.raw.len() < CONNECTIONS_MAX
            && let Ok(queue) = self.host.begin_raw(&request.as_bytes()[..bytes], entries.max(2))
        {
            self.raw.push(Raw { queue, asked: None });
        }
        if !self.raw.is_empty() && self.rng.chance(400_000) {
            let at = self.below(self.raw.len());
            self.leaving.push(self.raw.swap_remove(at).queue);
        }
    }

    fn connects(&mut self) {
        self.connections();
        let up = self.raw.iter().position(|one| one.asked.is_none() && self.host.is_up(one.queue));
        let Some(at) = up else { return };
        let nqn = [HOSTILE_NQN, HOSTILE_NQN, DISCOVERY_NQN, HONEST_NQN][self.below(4)];
        let number = self.below(3) as u8;
        let name =
            ["nqn.2014-08.org.example:a", "nqn.2014-08.org.example:b", HOSTILE_HOST][usize::from(number)];
        let data = ConnectData::new([number; 16], CNTLID_DYNAMIC, nqn, name);
        let connect = Connect { recfmt: 0, qid: 0, sqsize: 1, cattr: 0, kato_ms: 500 };
        let transfer = Transfer::ToTarget(CONNECT_DATA_BYTES);
        let one = &mut self.raw[at];
        let cid = send(&mut self.host, one.queue, connect.entry(0), (data.as_bytes(), transfer));
        one.asked = cid.ok().map(|cid| (cid, nqn));
    }

    fn nonsense(&mut self) {
        let own = self.session.queues().into_iter().flatten();
        let queues: Vec<usize> = own.chain(self.raw.iter().map(|one| one.queue)).collect();
        if queues.is_empty() {
            return;
        }
        let queue = queues[self.below(queues.len())];
        if self.rng.chance(50_000) {
            let bytes = self.rng.next_u64().to_be_bytes();
            let _ = self.host.send_bytes(queue, &bytes[..self.rng.below(8) as usize]);
            return;
        }
        let (opcode, nsid) = (self.rng.below(256) as u8, self.rng.below(4) as u32);
        let mut entry = SubmissionQueueEntry::new(opcode, 0, nsid);
        for _ in 0..self.rng.below(8) {
            let at = self.below(60) + 4;
            entry.as_mut_bytes()[at] = self.rng.below(256) as u8;
        }
        let transfer = match self.below(4) {
            0 => Transfer::None,
            1 => Transfer::AsIs,
            2 => Transfer::ToTarget(4096),
            _ => Transfer::FromTarget(4096),
        };
        let _ = send(&mut self.host, queue, entry, (&[], transfer));
    }

    /// With commands outstanding, if it has such a habit.
    fn resets(&mut self, now: Nanos) {
        self.commands();
        if let Some(queues) = self.session.queues().filter(|_| self.rng.chance(100_000)) {
            match self.below(3) {
                0 => drop(self.session.restart(&mut self.host, now)),
                at => drop(self.host.abort(queues[at - 1])),
            }
        }
    }

    fn admin(&mut self) {
        let Some([queue, _]) = self.session.queues() else { return };
        for _ in 0..BURST.min(self.host.free_commands(queue)) {
            let opcodes =
                [admin::GET_LOG_PAGE, admin::IDENTIFY, admin::KEEP_ALIVE, admin::ASYNC_EVENT_REQUEST];
            let mut entry = SubmissionQueueEntry::new(opcodes[self.below(4)], 0, MEMORY);
            let transfer = match entry.opcode {
                admin::GET_LOG_PAGE => {
                    entry.set_dword(10, (4096 / 4 - 1) << 16 | u32::from(lid::DISCOVERY));
                    Transfer::FromTarget(4096)
                }
                admin::IDENTIFY => {
                    entry.set_dword(10, self.rng.below(4) as u32);
                    Transfer::FromTarget(4096)
                }
                _ => Transfer::None,
            };
            let _ = send(&mut self.host, queue, entry, (&[], transfer));
        }
    }
}

fn drop_responses(host: &mut Host, queue: usize) {
    while let Some(done) = host.next_completion(queue) {
        host.release(queue, done.cid);
    }
}
