//! The control protocol of a run: lines of JSON over Unix sockets.
//!
//! A run is a chain of three processes. The parent talks to the user and measures nothing, the client measures, and the
//! server serves the client. Each process starts the next one and holds the only other end of its socket, so the socket
//! closes when a process ends. Between two machines, a queue pair of the stack carries the lines between client and
//! server.

mod channel;
mod messages;

pub use channel::{Carrier, Channel};
pub use messages::{FromClient, FromServer, Measured, ToClient, ToServer};
