//! The program on a terminal: views that the keys choose, sorted and scrolled, drawn again at each
//! snapshot, key and change of the terminal's size.
//!
//! [`State`] holds what the user chose, [`draw`] puts it on the screen, [`run`] joins both to the
//! terminal. The terminal is as before when [`run`] returns, and after a panic. Fails if the page
//! or the terminal cannot be read.

mod draw;
mod state;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ironwarp_stats::ReadError;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};

use crate::args::Args;
use crate::snapshot::{ObservedProcess, Snapshot};
use state::State;

/// The interval between two checks for a signal.
const STEP: Duration = Duration::from_millis(100);

/// Why the program on a terminal ends with an error.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WatchError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("the terminal: {0}")]
    Terminal(#[from] io::Error),
}

/// Why the program on a terminal ends.
pub(crate) enum End {
    /// The user or a signal wants it.
    Quit,
    /// As many snapshots were taken as were asked for. The last one.
    Counted(Snapshot),
    /// The process that counts has ended. The last snapshot.
    ProcessEnded(Snapshot),
}

/// Shows snapshots until the user, a signal or the process ends it.
pub(crate) fn run(process: &mut ObservedProcess, args: &Args, stop: &AtomicBool) -> Result<End, WatchError> {
    let mut terminal = ratatui::try_init()?;
    let end = show(&mut terminal, process, args, stop);
    ratatui::try_restore()?;
    end
}

fn show(
    terminal: &mut DefaultTerminal,
    process: &mut ObservedProcess,
    args: &Args,
    stop: &AtomicBool,
) -> Result<End, WatchError> {
    let mut state = State::new();
    let mut taken = 0;
    while !stop.load(Ordering::Relaxed) {
        let ended = process.has_ended();
        let snapshot = process.snapshot()?;
        taken += 1;
        if ended {
            return Ok(End::ProcessEnded(snapshot));
        }
        if args.snapshot_limit().is_some_and(|most| taken >= most) {
            return Ok(End::Counted(snapshot));
        }
        state.update(snapshot);
        if !serve_keys(terminal, &mut state, args.interval, stop)? {
            return Ok(End::Quit);
        }
    }
    Ok(End::Quit)
}

/// Draws, and serves keys until the next snapshot is due. Returns false when the user wants to end.
fn serve_keys(
    terminal: &mut DefaultTerminal,
    state: &mut State,
    interval: Duration,
    stop: &AtomicBool,
) -> Result<bool, WatchError> {
    let start = Instant::now();
    terminal.draw(|frame| draw::draw(frame, state))?;
    while !stop.load(Ordering::Relaxed) {
        let left = interval.saturating_sub(start.elapsed());
        if left.is_zero() {
            return Ok(true);
        }
        if !event::poll(left.min(STEP))? {
            continue;
        }
        if let Event::Key(key) = event::read()? {
            state.on_key(key);
        }
        if state.wants_to_quit() {
            return Ok(false);
        }
        terminal.draw(|frame| draw::draw(frame, state))?;
    }
    Ok(false)
}
