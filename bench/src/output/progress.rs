//! The progress bar of a run. It writes to standard error, so that standard output has only results.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressFinish, ProgressStyle};

/// Shorter runs show no bar.
const SHOWN_FROM: Duration = Duration::from_secs(2);

/// Creates a bar of `slices` steps. It draws nothing if standard error is no terminal or the run is short.
pub fn progress_bar(slices: u64, expected: Duration) -> ProgressBar {
    let target = match expected > SHOWN_FROM {
        true => ProgressDrawTarget::stderr_with_hz(5),
        false => ProgressDrawTarget::hidden(),
    };
    let template = "{wide_msg} {bar:30} {percent:>3}% {elapsed} of about {duration}";
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::with_draw_target(Some(slices), target)
        .with_style(style)
        .with_finish(ProgressFinish::AndClear)
}
