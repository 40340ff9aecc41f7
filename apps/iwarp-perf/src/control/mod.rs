//! The control protocol of a run: lines of JSON over Unix sockets.
//!
//! A run is a chain of three processes. The parent talks to the user and measures nothing, the
//! client measures, and the server serves the client. Each process starts the next one and holds
//! the only other end of its socket, so the socket closes when a process ends. Between two
//! machines, a queue pair of the stack carries the lines between client and server.

mod channel;

use std::net::SocketAddr;
use std::path::PathBuf;

use ironwarp_bench::report::TestResult;
use ironwarp_bench::{Case, PathKind, ServerSlice};
use serde::{Deserialize, Serialize};

use crate::plan::Session;
pub use channel::{Carrier, Channel};

/// From the parent to the client.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToClient {
    Run(Box<Session>),
    /// End the slice and the session, and report the measured rounds.
    Stop,
}

/// From the client to the parent.
#[derive(Debug, Serialize, Deserialize)]
pub enum FromClient {
    /// A slice begins. The title names its case.
    Slice {
        title: String,
    },
    /// The figures of a slice, in a group that reports its slices.
    Interval(Box<TestResult>),
    /// The results of a group that is complete or was stopped.
    Results(Vec<Measured>),
    Failed(String),
    Done,
}

/// A result with its histogram.
#[derive(Debug, Serialize, Deserialize)]
pub struct Measured {
    pub result: TestResult,
    /// The histogram of the round trips, as text.
    pub latency: Option<String>,
}

/// From the client to the server.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToServer {
    /// Open the device, if the session needs one.
    Open(Box<Session>),
    /// Listen for a TCP baseline, in this network namespace if there is one.
    Listen { path: PathKind, namespace: Option<PathBuf> },
    /// Open the cases of a group and accept the queue pairs of the client.
    Prepare { cases: Vec<Case> },
    /// Serve the case with this index until `Stop`.
    Start { case: usize },
    /// The slice is over. `expected` messages, frames or bytes should have arrived; the test
    /// defines which.
    Stop { expected: u64 },
    /// Destroy the queue pairs of the group.
    Release,
    /// Stop using the device: the client is about to exit.
    Goodbye,
}

/// From the server to the client.
#[derive(Debug, Serialize, Deserialize)]
pub enum FromServer {
    Opened,
    /// The TCP baseline may connect to this address.
    Listening(SocketAddr),
    /// The queue pairs of the client may connect.
    Prepared,
    /// Every queue pair of the group is connected.
    Connected,
    /// The slice may begin.
    Ready,
    Done(ServerSlice),
    /// The queue pairs of the group are destroyed.
    Released,
    /// The server no longer uses the device.
    Gone,
    Failed(String),
}
