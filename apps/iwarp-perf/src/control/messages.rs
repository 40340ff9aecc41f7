//! What is said.

use std::net::SocketAddr;
use std::path::PathBuf;

use ironwarp_bench::report::TestResult;
use ironwarp_bench::{Case, PathKind, ServerSlice};
use serde::{Deserialize, Serialize};

use crate::plan::{ServerSetup, Session};

/// The parent to the near end.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToClient {
    /// Measure this.
    Run(Box<Session>),
    /// End the slice and the session, and tell what was measured.
    Stop,
}

/// The near end to the parent.
#[derive(Debug, Serialize, Deserialize)]
pub enum FromClient {
    /// A slice begins.
    Slice {
        /// What is measured.
        title: String,
    },
    /// A group is done, or what was measured of it.
    Results(Vec<Measured>),
    /// The session failed.
    Failed(String),
    /// The session is over.
    Done,
}

/// A result, with its histogram as text.
#[derive(Debug, Serialize, Deserialize)]
pub struct Measured {
    /// The figures.
    pub result: TestResult,
    /// The round trips behind them.
    pub latency: Option<String>,
}

/// The near end to the far end.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToServer {
    /// Open the device, where the session needs one.
    Open(Box<ServerSetup>),
    /// Listen for the baselines over Linux sockets: over veth in this namespace, over loopback without one.
    Listen {
        /// What the stream runs over.
        path: PathKind,
        /// The far namespace.
        namespace: Option<PathBuf>,
    },
    /// Get ready for these cases and let the near end's queue pairs connect.
    Prepare {
        /// A group.
        cases: Vec<Case>,
    },
    /// Serve a case until the stop.
    Start {
        /// Its place in the group.
        case: usize,
    },
    /// The slice is over.
    Stop {
        /// Messages, frames or bytes that should have arrived, as the test counts.
        expected: u64,
    },
    /// Destroy the group's queue pairs.
    Release,
    /// Stop using the device: the near end is about to leave.
    Goodbye,
}

/// The far end to the near end.
#[derive(Debug, Serialize, Deserialize)]
pub enum FromServer {
    /// The device is open.
    Opened,
    /// The baselines' stream may be connected.
    Listening(TcpAddress),
    /// The near end's queue pairs may connect.
    Prepared,
    /// Every queue pair of the group is connected.
    Connected,
    /// The slice may begin.
    Ready,
    /// What the far end found in the slice.
    Done(ServerSlice),
    /// The group's queue pairs are gone.
    Released,
    /// The device is at rest.
    Gone,
    /// Something failed.
    Failed(String),
}

/// Where the far end listens with a Linux socket.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct TcpAddress(pub SocketAddr);
