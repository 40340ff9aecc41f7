//! The plan of a run: sessions of two processes, groups of alternating cases, slices.
//!
//! A session is one client and one server with one device and one MTU, because DPDK starts once in
//! a process. The parent makes the plan and sends each session to its client.

mod cores;
mod pair;
mod scaling;
mod single;
mod suite;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use ironwarp_bench::host::CorePair;
use ironwarp_bench::rounds::RoundPlan;
use ironwarp_bench::{Budget, Case};
use serde::{Deserialize, Serialize};

pub use cores::{CoresPlan, cores};
pub use pair::{PORT, PairKind};
pub use scaling::{atomics, scaling};
pub use single::{Intervals, single};
pub use suite::suite;

/// The setting of a stack that changes words with locked instructions.
pub const LOCKED: &str = "[rdmap]\natomic_execution = \"locked\"\n";

/// A whole run.
#[derive(Debug)]
pub struct Plan {
    /// Sessions, one after the other.
    pub sessions: Vec<Session>,
}

/// One client and one server.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Session {
    pub server_placement: ServerPlacement,
    pub client_core: usize,
    pub server_core: usize,
    /// The processor of the client's application thread, if it is not the polled one.
    pub app_core: Option<usize>,
    /// The device of each end is an end of a veth pair, in a network namespace of its own. The
    /// client creates both.
    pub veth: bool,
    /// The network namespace of the server's device, if it is not that of the client.
    pub server_namespace: Option<PathBuf>,
    /// Applications sleep until an event. Their threads are not the polled ones and are not pinned
    /// without `app_core`.
    pub events: bool,
    /// Polled cores at each end. Several have threads of their own.
    pub cores: u16,
    /// With [`ServerPlacement::Loopback`], the processors of each core's two ends. Empty: one
    /// thread polls both.
    pub ends: Vec<CorePair>,
    /// Whether one of these processors polls several cores.
    pub oversubscribed: bool,
    /// The time without a slice after which the session has failed.
    pub silent_max: Option<Duration>,
    /// The configuration of the client, TOML. `None`: the session needs no device.
    pub client_config: Option<String>,
    pub server_config: Option<String>,
    pub peer: Option<SocketAddr>,
    pub device: Option<String>,
    /// The MTU of the session, in bytes.
    pub mtu: u16,
    /// The file for the frames of the client, pcapng.
    pub pcap: Option<PathBuf>,
    /// The groups, one after the other.
    pub groups: Vec<Group>,
}

/// Where the server runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum ServerPlacement {
    #[default]
    Process,
    Thread,
    /// On every core together with the client.
    Loopback,
    /// On another machine, or in a process that the user started.
    Remote,
}

/// Cases that alternate.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Group {
    pub cases: Vec<GroupCase>,
    pub floor: Option<usize>,
    pub rounds: u32,
    /// Rounds that may replace dropped ones.
    pub spare_rounds: u32,
    /// The client reports each slice, for a line of the terminal.
    pub reports_slices: bool,
    pub note: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GroupCase {
    pub case: Case,
    pub budget: Budget,
    /// The cases of the group that it is compared with.
    pub against: Vec<usize>,
}

impl Plan {
    /// The slices of the run if no round is dropped. One more slice of the floor ends the last
    /// round of a group.
    pub fn slices(&self) -> u64 {
        let of_group = |group: &Group| {
            u64::from(group.rounds) * group.cases.len() as u64 + u64::from(group.floor.is_some())
        };
        self.groups().map(of_group).sum()
    }

    pub fn expected_duration(&self) -> Duration {
        /// The start of two processes and their devices.
        const SESSION: Duration = Duration::from_secs(2);
        let measured: Duration = self.groups().map(Group::expected_duration).sum();
        measured + SESSION * self.sessions.len() as u32
    }

    /// Whether the terminal shows a line for each slice.
    pub fn reports_slices(&self) -> bool {
        self.groups().any(|group| group.reports_slices)
    }

    /// Whether the run lasts until the user ends it.
    pub fn is_unlimited(&self) -> bool {
        self.groups().any(|group| group.rounds == RoundPlan::UNLIMITED)
    }

    fn groups(&self) -> impl Iterator<Item = &Group> {
        self.sessions.iter().flat_map(|session| &session.groups)
    }
}

impl Group {
    pub fn add(&mut self, case: Case, budget: Budget, against: &[usize]) -> usize {
        self.cases.push(GroupCase { case, budget, against: against.to_vec() });
        self.cases.len() - 1
    }

    pub fn round_plan(&self) -> RoundPlan {
        let &Group { floor, rounds, spare_rounds, .. } = self;
        RoundPlan { cases: self.cases.len(), floor, rounds, spare_rounds }
    }

    fn expected_duration(&self) -> Duration {
        /// The least duration of a slice with a message count, the duration of a message, and the
        /// overhead of a slice. All are estimates.
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
    /// The processor of the client's polled thread, if the application has another one.
    pub fn client_worker(&self) -> Option<usize> {
        (self.app_core.is_some() || self.events).then_some(self.client_core)
    }

    /// The processor of the server's polled thread, if the application has another one.
    pub fn server_worker(&self) -> Option<usize> {
        self.events.then_some(self.server_core)
    }

    pub fn processors(&self) -> CorePair {
        CorePair { client: self.client_core, server: self.server_core }
    }

    pub fn configs(&mut self) -> impl Iterator<Item = &mut String> {
        [&mut self.client_config, &mut self.server_config].into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A session on two processors, without devices.
    pub fn session(mtu: u16) -> Session {
        Session { server_core: 1, cores: 1, mtu, ..Session::default() }
    }
}
