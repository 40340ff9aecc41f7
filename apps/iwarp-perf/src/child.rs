//! The client and the server as processes: start, log, end.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use ironwarp_cli::LogGuard;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::{Pid, getppid};

use crate::error::{Error, Result};

/// The role of a process that is not the parent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    Client,
    Server,
}

/// The first argument of the two processes; no test has such a name. The process id of the parent
/// and the log level follow.
const CLIENT_ROLE: &str = "__client";
const SERVER_ROLE: &str = "__server";
/// The log level without `--log`.
pub const DEFAULT_LOG: &str = "warn";
/// The time between two checks whether a process has exited.
const EXIT_POLL_INTERVAL: Duration = Duration::from_millis(2);

impl Role {
    /// Returns the role in the arguments, `None` for the arguments of a user.
    pub fn of(arguments: &[OsString]) -> Option<Self> {
        match arguments.get(1)?.to_str()? {
            CLIENT_ROLE => Some(Role::Client),
            SERVER_ROLE => Some(Role::Server),
            _ => None,
        }
    }

    /// Returns the command of a process in this role. Its standard input is `socket`.
    pub fn command(self, socket: UnixStream, log: &str) -> Result<Command> {
        let name = if self == Role::Client { CLIENT_ROLE } else { SERVER_ROLE };
        let mut command = Command::new(std::env::current_exe()?);
        command.args([name, &std::process::id().to_string(), log]).stdin(Stdio::from(OwnedFd::from(socket)));
        Ok(command)
    }
}

/// Starts the log of a client or server process, makes it end with its parent, and returns its
/// socket. The log is complete when its guard is dropped.
pub fn init_process() -> Result<(UnixStream, LogGuard)> {
    let log = ironwarp_cli::start_log(&log_level()).map_err(Error::Failed)?;
    set_pdeathsig(Signal::SIGKILL)?;
    // The parent may have ended before the kernel set the signal.
    let parent = std::env::args().nth(2).and_then(|pid| pid.parse().ok());
    if parent.map(Pid::from_raw) != Some(getppid()) {
        return Err(Error::failed("this process must be started by iwarp-perf itself"));
    }
    Ok((UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?), log))
}

/// Returns the log level of this client or server process.
pub fn log_level() -> String {
    std::env::args().nth(3).unwrap_or_else(|| DEFAULT_LOG.to_owned())
}

/// Waits until a process exits, and kills it after `timeout`.
pub fn wait_or_kill(child: &mut Child, timeout: Duration) -> Option<ExitStatus> {
    let start = Instant::now();
    while start.elapsed() < timeout {
        match child.try_wait() {
            Ok(None) => std::thread::sleep(EXIT_POLL_INTERVAL),
            Ok(status) => return status,
            Err(_) => break,
        }
    }
    let _ = child.kill();
    child.wait().ok()
}

/// Describes how a process ended before it reported a result.
pub fn exit_text(status: Option<ExitStatus>) -> String {
    let signal = status.and_then(|status| status.signal());
    match (signal.map(Signal::try_from), status.and_then(|status| status.code())) {
        (Some(Ok(Signal::SIGSEGV)), _) => {
            "was killed by SIGSEGV; a driver may crash when its peer exits, for example memif".to_owned()
        }
        (Some(Ok(signal)), _) => format!("was killed by {signal}"),
        (Some(Err(_)), _) => format!("was killed by signal {}", signal.unwrap_or(0)),
        (None, Some(code)) => format!("exited with code {code} and no result"),
        (None, None) => "exited without a result".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_differs_from_every_test() {
        let role = |word: &str| Role::of(&["iwarp-perf".into(), word.into()]);
        assert_eq!(role("send-lat"), None);
        assert_eq!(role(CLIENT_ROLE), Some(Role::Client));
        assert_eq!(role(SERVER_ROLE), Some(Role::Server));
        assert_eq!(Role::of(&["iwarp-perf".into()]), None);
    }

    #[test]
    fn the_exit_text_names_the_signal_or_the_code() {
        let status = |script: &str| Command::new("sh").args(["-c", script]).status().ok();
        assert_eq!(exit_text(status("kill -9 $$")), "was killed by SIGKILL");
        assert!(exit_text(status("kill -11 $$")).contains("SIGSEGV; a driver"));
        assert_eq!(exit_text(status("exit 3")), "exited with code 3 and no result");
        assert_eq!(exit_text(None), "exited without a result");
    }
}
