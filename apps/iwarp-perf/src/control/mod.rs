//! How the processes of a run talk to each other: lines of JSON over Unix sockets.
//!
//! A run has three processes in a chain. The parent talks to the user and measures nothing; the near end measures;
//! the far end serves the near end. Each one starts the next and owns the only other end of its socket, so the end
//! of a process is the end of a stream, and is heard at once. Between two machines the same lines travel over a queue
//! pair of the stack itself, in place of the last socket.

mod channel;
mod messages;

pub use channel::{Carrier, Channel, ChannelError, Dispatch};
pub use messages::{FromClient, FromServer, Measured, TcpAddress, ToClient, ToServer};
