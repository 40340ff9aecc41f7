//! The log of connections: their start, the reason of their end, and none of their data.

mod common;

use std::sync::{Arc, Mutex};

use common::Pair;
use ironwarp::{RecvWr, RemoteMemory, STag, SendWr};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Lines at `info` and above, of one thread.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl Lines {
    fn heard(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// Returns the message without other fields.
struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

#[test]
fn an_orderly_close_raises_established_and_disconnected_at_both_ends() {
    let lines = Lines::default();
    let _guard = tracing::subscriber::set_default(lines.clone());
    let mut pair = Pair::new();
    let (near, far) = pair.connect();
    let up = lines.heard();
    assert_eq!(up.iter().filter(|line| line.starts_with("connected; MPA revision 2")).count(), 2, "{up:?}");

    pair.far.ctx.post_recv(far, &RecvWr::new(1, &[])).unwrap();
    pair.near.ctx.post_send(near, &SendWr::send(2, &[])).unwrap();
    pair.until("the message", |pair| pair.far.completions.len() == 1 && pair.near.completions.len() == 1);
    assert_eq!(lines.heard(), [""; 0], "data is not logged");

    pair.near.ctx.disconnect(near).unwrap();
    pair.until("its end", |pair| pair.near.is_disconnected(near) && pair.far.is_disconnected(far));
    assert_eq!(lines.heard(), ["closed", "closed"]);
}

#[test]
fn a_terminate_raises_an_event_with_its_error_at_both_ends() {
    let lines = Lines::default();
    let _guard = tracing::subscriber::set_default(lines.clone());
    let mut pair = Pair::new();
    let (near, far) = pair.connect();
    lines.heard();
    let nobodys = RemoteMemory { stag: STag(0x1234_5678), tagged_offset: 0 };
    pair.near.ctx.post_send(near, &SendWr::write_inline(1, b"to nowhere", nobodys)).unwrap();
    pair.until("its end", |pair| pair.near.is_disconnected(near) && pair.far.is_disconnected(far));
    let told = lines.heard();
    let of = |line: &str| told.iter().filter(|one| *one == line).count();
    // RFC 5041 s8.2: a tagged buffer error, an invalid STag.
    let (sent, received) = (of("Terminate sent: 0x1/0x1/0x00"), of("Terminate received: 0x1/0x1/0x00"));
    assert_eq!((sent, received, of("ended: Terminated")), (1, 1, 2), "{told:?}");
}
