//! Lines in the log about links that do not come up.

use std::time::{Duration, Instant};

use tracing::warn;

use crate::memif::MemifConfig;
use crate::memif::wire::Disconnect;

/// The least interval between two lines. A client tries again many times a second.
const INTERVAL: Duration = Duration::from_secs(30);

/// When the next line may be written.
#[derive(Default)]
pub(super) struct Reports {
    next: Option<Instant>,
}

impl Reports {
    /// Reports that this end drops its peer before the link is up.
    pub(super) fn refused(&mut self, config: &MemifConfig, reason: &str, now: Instant) {
        if self.is_due(now) {
            warn!("memif {}: a peer is refused: {reason}; {}", config.socket.display(), this_end(config));
        }
    }

    /// Reports that the peer ends the start of a link.
    pub(super) fn refused_by_peer(&mut self, config: &MemifConfig, end: &Disconnect, now: Instant) {
        if self.is_due(now) {
            let reason = printable(&end.reason);
            warn!("memif {}: the peer refuses: {reason}; {}", config.socket.display(), this_end(config));
        }
    }

    /// A link is up: what follows is new.
    pub(super) fn link_up(&mut self) {
        self.next = None;
    }

    fn is_due(&mut self, now: Instant) -> bool {
        let due = self.next.is_none_or(|next| now >= next);
        if due {
            self.next = Some(now + INTERVAL);
        }
        due
    }
}

/// What must be the same at both ends, without the secret.
fn this_end(config: &MemifConfig) -> String {
    let secret = if config.secret.is_some() { "a" } else { "no" };
    format!(
        "this end has interface {}, {} queue pairs (one a core) and {secret} secret",
        config.id, config.queues
    )
}

/// Returns the text up to its first NUL, without control characters: it comes from the peer.
fn printable(reason: &[u8]) -> String {
    let text = reason.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).escape_debug().to_string()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use ironwarp_stats::CoreStats;
    use parking_lot::Mutex;
    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};

    use super::super::{Control, Shared};
    use super::*;
    use crate::memif::MemifSecret;

    /// The messages of one thread.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<String>>>, Arc<AtomicU64>);

    impl Subscriber for Lines {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }

        fn event(&self, event: &Event<'_>) {
            event.record(&mut Message(&mut self.0.lock()));
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(self.1.fetch_add(1, Ordering::Relaxed) + 1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    struct Message<'a>(&'a mut Vec<String>);

    impl Visit for Message<'_> {
        fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
            if field.name() == "message" {
                self.0.push(format!("{value:?}"));
            }
        }
    }

    /// What both ends write in half a minute of attempts.
    fn lines_of(server: &MemifConfig, client: &MemifConfig) -> Vec<String> {
        let lines = Lines::default();
        let _guard = tracing::subscriber::set_default(lines.clone());
        let open = |config: &MemifConfig| Control::new(config.clone(), Shared::new()).expect("an end");
        let (mut server, mut client) = (open(server), open(client));
        let (start, stats) = (Instant::now(), CoreStats::detached());
        for step in 0..600 {
            let now = start + Duration::from_millis(step * 40);
            client.poll(now, &stats);
            server.poll(now, &stats);
        }
        lines.0.lock().clone()
    }

    #[test]
    fn both_ends_say_once_why_their_link_does_not_come_up() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("m");
        let two = MemifConfig { queues: 2, ..MemifConfig::server(&path) };
        // Each line is registered when it is first written, by whichever test; a subscriber that
        // comes meanwhile may miss it.
        lines_of(&two, &MemifConfig::client(&path));
        let lines = lines_of(&two, &MemifConfig::client(&path));
        let of = |words: [&str; 2]| {
            lines.iter().filter(|line| words.iter().all(|word| line.contains(word))).count()
        };
        assert_eq!(of(["a peer is refused: Another number of rings;", "2 queue pairs"]), 1, "{lines:?}");
        assert_eq!(of(["the peer refuses: Another number of rings;", "1 queue pairs"]), 1, "{lines:?}");
        assert_eq!(lines.len(), 2, "{lines:?}");

        let secret = MemifConfig { secret: Some(MemifSecret("hidden".into())), ..MemifConfig::server(&path) };
        let lines = lines_of(&secret, &MemifConfig::client(&path));
        assert!(lines.iter().any(|line| line.contains("the peer refuses: Incorrect secret")), "{lines:?}");
        assert!(!lines.iter().any(|line| line.contains("hidden")), "{lines:?}");
    }

    #[test]
    fn the_peers_reason_ends_at_a_nul_and_has_no_control_characters() {
        let end = Disconnect::new("no\x1b[2J\nqueue");
        assert_eq!(printable(&end.reason), r"no\u{1b}[2J\nqueue");
        assert_eq!(printable(b"\0left"), "");
        assert_eq!(printable(&[0xff; 96]).chars().count(), 96);
    }

    #[test]
    fn lines_come_at_an_interval_and_at_once_after_a_link() {
        let (mut reports, start) = (Reports::default(), Instant::now());
        assert!(reports.is_due(start) && !reports.is_due(start + Duration::from_secs(1)));
        assert!(reports.is_due(start + INTERVAL) && !reports.is_due(start + INTERVAL));
        reports.link_up();
        assert!(reports.is_due(start + INTERVAL));
    }
}
