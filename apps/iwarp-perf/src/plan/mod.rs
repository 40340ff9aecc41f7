//! What a run consists of: sessions of two processes, groups of cases that alternate, slices.
//!
//! A session is one pair of processes with one device and one MTU, since DPDK starts once in a process. The plan is
//! made by the parent and travels to the near end, which measures it without asking.

mod pair;
mod scaling;
mod single;
mod suite;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use ironwarp_bench::host::CorePair;
use ironwarp_bench::{Budget, Case, Test, Transport};
use serde::{Deserialize, Serialize};

pub use pair::{PORT, PairKind};
pub use scaling::{atomics, scaling};
pub use single::single;
pub use suite::suite;

/// A whole run.
#[derive(Debug)]
pub struct Plan {
    /// Sessions, one after the other.
    pub sessions: Vec<Session>,
}

/// One pair of processes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Session {
    /// Where the far end is.
    pub server_placement: ServerPlacement,
    /// The processors of the two ends.
    pub client_core: usize,
    /// The far end's processor.
    pub server_core: usize,
    /// The processor of the near end's application thread, where it is apart from the polled one.
    pub app_core: Option<usize>,
    /// Applications wait for events. They are apart from the polled threads then, wherever the system puts them unless a
    /// processor is named.
    pub events: bool,
    /// Polled cores an end. Several have threads of their own.
    pub cores: u16,
    /// The near end's configuration, TOML. Absent: the session needs no device.
    pub client_config: Option<String>,
    /// The far end's setup.
    pub server_setup: ServerSetup,
    /// The far end's address on the device.
    pub peer: Option<SocketAddr>,
    /// The device in the report.
    pub device: Option<String>,
    /// The MTU of the session.
    pub mtu: u16,
    /// Where the near end writes what it sends and receives, as pcapng.
    pub pcap: Option<PathBuf>,
    /// The groups, one after the other.
    pub groups: Vec<Group>,
}

/// What the far end must know before it opens its device.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ServerSetup {
    /// Its configuration, TOML. Absent: it needs no device.
    pub config: Option<String>,
    /// Its processor.
    pub core: usize,
    /// The address that it listens at on the device.
    pub listen: Option<SocketAddr>,
    /// Its application waits for events, apart from the polled thread.
    pub events: bool,
    /// Its polled cores.
    pub cores: u16,
}

/// Where applications run, and how they wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AppOptions {
    /// The processor of the near end's, where it is apart from the polled one.
    pub core: Option<usize>,
    /// Both ends' wait for events.
    pub events: bool,
    /// Polled cores an end, where not 1.
    pub cores: Option<u16>,
}

/// Where the far end is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ServerPlacement {
    /// A process that the near end starts.
    Process,
    /// A thread of the near end's process, over two DPDK ports joined back to back.
    RingThread,
    /// A thread of the near end's process, over memory alone.
    MemoryThread,
    /// On every core beside the near end, over two DPDK ports joined back to back: stations.
    RingLoopback,
    /// The same over memory alone.
    MemoryLoopback,
    /// A server on another machine, or another process that the user started.
    Remote,
}

/// Cases that alternate.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Group {
    /// The cases.
    pub cases: Vec<GroupCase>,
    /// The case that is the floor of the group.
    pub floor: Option<usize>,
    /// Rounds.
    pub rounds: u32,
    /// Rounds that may be added for dropped ones.
    pub spare_rounds: u32,
    /// What a reader should know about the results.
    pub note: Option<String>,
}

/// A case of a group.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GroupCase {
    /// What is measured.
    pub case: Case,
    /// How long a slice of it lasts.
    pub budget: Budget,
    /// The cases of the group that it is compared with.
    pub against: Vec<usize>,
}

impl Plan {
    /// Slices of the whole run, when no round is dropped.
    pub fn slices(&self) -> u64 {
        self.groups().map(Group::slices).sum()
    }

    /// How long the run will take, roughly.
    pub fn expected_duration(&self) -> Duration {
        /// Starting two processes and their devices.
        const SESSION: Duration = Duration::from_secs(2);
        let measured: Duration = self.groups().map(Group::expected_duration).sum();
        measured + SESSION * self.sessions.len() as u32
    }

    fn groups(&self) -> impl Iterator<Item = &Group> {
        self.sessions.iter().flat_map(|session| &session.groups)
    }
}

impl Group {
    /// Adds a case and answers its place.
    pub fn add(&mut self, case: Case, budget: Budget, against: &[usize]) -> usize {
        self.cases.push(GroupCase { case, budget, against: against.to_vec() });
        self.cases.len() - 1
    }

    /// Slices, when no round is dropped: the floor closes the last round.
    fn slices(&self) -> u64 {
        u64::from(self.rounds) * self.cases.len() as u64 + u64::from(self.floor.is_some())
    }

    fn expected_duration(&self) -> Duration {
        /// What a slice of counted messages takes at least, and a message of it, at a guess; and what any slice costs
        /// beside its time.
        const COUNTED: Duration = Duration::from_millis(20);
        const MESSAGE: Duration = Duration::from_micros(1);
        const OVERHEAD: Duration = Duration::from_millis(1);
        let counted = |count: Option<u64>| {
            let count = u32::try_from(count.unwrap_or(0)).unwrap_or(u32::MAX);
            COUNTED.max(MESSAGE * count)
        };
        let slice = |budget: &Budget| budget.duration.unwrap_or_else(|| counted(budget.iterations));
        let round: Duration = self.cases.iter().map(|case| slice(&case.budget) + OVERHEAD).sum();
        round * self.rounds
    }
}

impl Session {
    /// The processor of the near end's polled thread, where it is not the application's.
    pub fn worker_processor(&self) -> Option<usize> {
        (self.app_core.is_some() || self.events).then_some(self.client_core)
    }

    /// The processors as a pair.
    pub fn processors(&self) -> CorePair {
        CorePair { client: self.client_core, server: self.server_core }
    }
}

impl ServerSetup {
    /// The processor of the far end's polled thread, where it is not the application's.
    pub fn worker_processor(&self) -> Option<usize> {
        self.events.then_some(self.core)
    }
}

/// Whether a test runs over the device.
pub fn needs_device(test: Test) -> bool {
    test.transport() != Transport::KernelTcp
}
