//! A progress bar, for runs over two seconds on a terminal and for nothing else.
//!
//! It writes to standard error, so that tables and JSON on standard output stay clean.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Runs expected to be shorter show nothing.
const SHOWN_FROM: Duration = Duration::from_secs(2);

/// A bar that moves with the slices of a run.
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// A bar of `slices` steps; nothing is drawn when standard error is no terminal or the run is short.
    pub fn new(slices: u64, expected: Duration) -> Self {
        let target = if expected > SHOWN_FROM { ProgressDrawTarget::stderr_with_hz(5) } else { hidden() };
        let bar = ProgressBar::with_draw_target(Some(slices), target);
        let style =
            ProgressStyle::with_template("{wide_msg} {bar:30} {percent:>3}% {elapsed} of about {duration}");
        if let Ok(style) = style {
            bar.set_style(style);
        }
        Progress { bar }
    }

    /// One slice is done; `next` names what is measured now.
    pub fn advance(&self, next: &str) {
        self.bar.set_message(next.to_owned());
        self.bar.inc(1);
    }

    /// Names what happens now.
    pub fn set_message(&self, what: &str) {
        self.bar.set_message(what.to_owned());
    }

    /// Slices done.
    pub fn done(&self) -> u64 {
        self.bar.position()
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn hidden() -> ProgressDrawTarget {
    ProgressDrawTarget::hidden()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_run_draws_nothing_and_still_counts() {
        let progress = Progress::new(3, Duration::from_secs(1));
        assert!(progress.bar.is_hidden());
        progress.advance("send-lat");
        assert_eq!(progress.done(), 1);
    }
}
