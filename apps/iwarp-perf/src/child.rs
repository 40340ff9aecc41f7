//! What the near end and the far end have in common as processes: how they are started, what they inherit, when they
//! die, where they log.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::{Pid, getppid};
use tracing_subscriber::EnvFilter;

/// What a process of a run is, when it is not the parent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// It measures.
    Client,
    /// It serves.
    Server,
}

/// The first arguments of the two ends' processes. No test is called so.
const CLIENT_ROLE: &str = "__client";
const SERVER_ROLE: &str = "__server";
/// The level of a log that nobody asked for.
const DEFAULT_LOG: &str = "warn";

impl Role {
    /// The role that the arguments name, none for a user's.
    pub fn of(arguments: &[OsString]) -> Option<Self> {
        match arguments.get(1)?.to_str()? {
            CLIENT_ROLE => Some(Role::Client),
            SERVER_ROLE => Some(Role::Server),
            _ => None,
        }
    }

    /// This program in that role, with one end of a socket as its standard input.
    pub fn command(self, socket: UnixStream, log: &str) -> io::Result<Command> {
        let name = if self == Role::Client { CLIENT_ROLE } else { SERVER_ROLE };
        let mut command = Command::new(std::env::current_exe()?);
        command.args([name, &std::process::id().to_string(), log]).stdin(Stdio::from(OwnedFd::from(socket)));
        Ok(command)
    }

    /// Settles in as that process: dies with its parent, logs to standard error, and gives the socket.
    pub fn init_process(self) -> io::Result<UnixStream> {
        start_log(&std::env::args().nth(3).unwrap_or_else(|| DEFAULT_LOG.to_owned()));
        die_with_parent()?;
        Ok(UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?))
    }
}

/// The level that this process logs at, for the processes that it starts.
pub fn log_level() -> String {
    std::env::args().nth(3).unwrap_or_else(|| DEFAULT_LOG.to_owned())
}

/// Logs to standard error, from a level on.
pub fn start_log(level: &str) {
    let filter = EnvFilter::try_new(level).unwrap_or_else(|_| EnvFilter::new(DEFAULT_LOG));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).with_ansi(false);
    // A second log of one process is the only failure, and there is none.
    let _ = log.without_time().with_target(false).try_init();
}

/// Lets the kernel end this process when the one that started it ends, whose number is the second argument.
fn die_with_parent() -> io::Result<()> {
    set_pdeathsig(Signal::SIGKILL)?;
    // It may have ended before the kernel was asked.
    let parent = std::env::args().nth(2).and_then(|pid| pid.parse().ok());
    if parent.map(Pid::from_raw) == Some(getppid()) {
        return Ok(());
    }
    Err(io::Error::other("an end is started by iwarp-perf itself"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_test_is_mistaken_for_a_role() {
        let role = |word: &str| Role::of(&["iwarp-perf".into(), word.into()]);
        assert_eq!(role("send-lat"), None);
        assert_eq!(role(CLIENT_ROLE), Some(Role::Client));
        assert_eq!(role(SERVER_ROLE), Some(Role::Server));
        assert_eq!(Role::of(&["iwarp-perf".into()]), None);
    }
}
