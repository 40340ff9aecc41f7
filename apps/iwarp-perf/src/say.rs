//! Standard output, where a reader may have gone.

use std::fmt::Display;
use std::io::Write;

/// Writes text to standard output. A reader that closed its end hears nothing more; the run goes on, since what it
/// measures and serves does not depend on who listens.
pub(crate) fn say(text: impl Display) {
    let mut out = std::io::stdout().lock();
    let _ = write!(out, "{text}").and_then(|()| out.flush());
}
