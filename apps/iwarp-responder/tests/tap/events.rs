//! The output of the responder: one JSON object a line.

use std::io::{BufRead, BufReader, Read};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

/// Events in the order in which they were printed.
#[derive(Default)]
pub struct Events {
    seen: Vec<Value>,
    /// The number of consumed events.
    consumed: usize,
    incoming: Option<Receiver<Value>>,
    timeout: Duration,
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.seen.iter().try_for_each(|event| writeln!(f, "{event}"))
    }
}

impl Events {
    /// Reads a pipe. Waiting for an event takes `timeout` at most.
    pub fn of(pipe: impl Read + Send + 'static, timeout: Duration) -> Self {
        let (sender, incoming) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                let event = serde_json::from_str(&line).unwrap_or(Value::String(line));
                if sender.send(event).is_err() {
                    return;
                }
            }
        });
        Events { seen: Vec::new(), consumed: 0, incoming: Some(incoming), timeout }
    }

    /// Waits for the next event of a kind and consumes everything up to it. Returns `None` at the
    /// end or after the timeout.
    pub fn wait_for(&mut self, kind: &str) -> Option<Value> {
        let deadline = Instant::now() + self.timeout;
        loop {
            while let Some(event) = self.seen.get(self.consumed) {
                self.consumed += 1;
                if event["event"] == kind {
                    return Some(event.clone());
                }
            }
            let left = deadline.saturating_duration_since(Instant::now());
            self.seen.push(self.incoming.as_ref()?.recv_timeout(left).ok()?);
        }
    }

    /// Consumes everything up to the `count`th event of a kind from here on, and returns that
    /// event.
    pub fn take_through(&mut self, count: usize, kind: &str) -> Vec<Value> {
        let from = self.consumed;
        for nth in 1..=count {
            assert!(self.wait_for(kind).is_some(), "no {kind} number {nth} of {count}");
        }
        self.seen[from..self.consumed].to_vec()
    }

    /// Everything until the pipe was closed, from the first event on.
    pub fn read_to_end(mut self) -> Self {
        if let Some(incoming) = self.incoming.take() {
            self.seen.extend(incoming);
        }
        self
    }

    /// All events of a kind.
    pub fn all(&self, kind: &str) -> Vec<&Value> {
        self.seen.iter().filter(|event| event["event"] == kind).collect()
    }

    /// The number of completions with this operation and status.
    pub fn completions(&self, opcode: &str, status: &str) -> usize {
        let wanted = |event: &&&Value| event["opcode"] == opcode && event["status"] == status;
        self.all("completion").iter().filter(wanted).count()
    }

    /// The value of a counter at the end; 0 if it was not printed.
    pub fn counter(&self, name: &str) -> u64 {
        let last = self.all("counters").last().map(|event| &event["counters"][name]);
        last.and_then(Value::as_u64).unwrap_or(0)
    }
}
