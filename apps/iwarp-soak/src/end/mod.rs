//! One end of a run: a process, or a thread of the process with both ends.
//!
//! Orders come as lines on standard input:
//!
//! ```text
//! go                                           connect, or listen
//! faults DROP DUPLICATE REORDER CORRUPT TRUNCATE DELAY      frames in a million, both directions
//! reload                                       a target's next configuration
//! disk EIO SHORT SYNC HANG PANIC               what a target's disk does: Reads and Writes in 65536 that fail, and that move
//!                                              a part; whether the next fdatasync fails, nothing completes, a core panics
//! stop                                         end all connections, release everything, report, exit
//! ```
//!
//! Reports leave as JSON lines on standard output.

mod client;
mod message;
mod node;
mod server;
mod session;

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::io::BufRead;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use ironwarp::instrument::{FaultRates, Faults, PortControl};
use ironwarp::{Completion, Config, Event, ResourceUsage, Stack};
use ironwarp_cli::print_stdout;
use serde_json::{Value, json};

use crate::args::{EndArgs, Role};
use client::Client;
use node::Node;
use server::Server;

/// The time between two reports.
pub(crate) const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// The time in which all connections close in order after the order to stop; a retransmission
/// timeout that has grown in the last failures is part of it.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(60);
/// The time in which everything must be released after the last connection.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(10);
const REAP: usize = 64;
/// Receive bursts for which a delayed frame waits.
const DELAY_POLLS: u32 = 50;

/// Why an end failed: a call that failed, or something that is not as it must be. One line of text.
#[derive(Debug)]
pub(crate) struct EndError(pub(crate) String);

impl Display for EndError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<E: std::error::Error> From<E> for EndError {
    fn from(error: E) -> Self {
        EndError(error.to_string())
    }
}

/// Counts for reports, by name.
#[derive(Default)]
pub(crate) struct Counts(BTreeMap<String, u64>);

impl Counts {
    pub(crate) fn add(&mut self, what: &str, by: u64) {
        *self.0.entry(what.to_owned()).or_default() += by;
    }

    /// All of them, and the connections that are `open` where the end counts them.
    pub(crate) fn json(&self, open: Option<usize>) -> Value {
        let mut counts = json!(self.0);
        if let Some(open) = open {
            counts["open"] = open.into();
        }
        counts
    }
}

/// An order of the run.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Order {
    Go,
    Faults(FaultRates),
    Reload,
    Disk(DiskState),
    Stop,
}

/// What the disk of a target does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct DiskState {
    /// Reads and Writes in 65536 that fail with EIO.
    pub(crate) eio: u32,
    /// Reads and Writes in 65536 that move a part of their bytes.
    pub(crate) short: u32,
    /// The next fdatasync fails.
    pub(crate) lose_sync: bool,
    pub(crate) hang: bool,
    /// A core panics at the next result.
    pub(crate) panic: bool,
}

impl DiskState {
    pub(crate) fn line(self) -> String {
        let DiskState { eio, short, lose_sync, hang, panic } = self;
        let [lose_sync, hang, panic] = [lose_sync, hang, panic].map(u32::from);
        format!("disk {eio} {short} {lose_sync} {hang} {panic}")
    }
}

/// What an end does besides polling.
trait Application {
    const NAME: &'static str;
    /// Listens, or begins to connect.
    fn go(&mut self, node: &mut Node) -> Result<(), EndError>;
    fn on_completion(&mut self, node: &mut Node, done: &Completion) -> Result<(), EndError>;
    fn on_event(&mut self, node: &mut Node, event: Event) -> Result<(), EndError>;
    /// Posts work. Never waits.
    fn advance(&mut self, node: &mut Node) -> Result<(), EndError>;
    /// Begins the end: no new connections. Returns the connections that are left.
    fn finish(&mut self, node: &mut Node, deadline: Instant) -> Result<usize, EndError>;
    fn counts(&self) -> Value;

    /// Handles all completions and events, and posts work.
    fn step(&mut self, node: &mut Node) -> Result<(), EndError> {
        let mut reaped = [Completion::default(); REAP];
        loop {
            let count = node.ctx.poll_cq(node.cq, &mut reaped)?;
            reaped[..count].iter().try_for_each(|done| self.on_completion(node, done))?;
            if count < REAP {
                break;
            }
        }
        while let Some(event) = node.ctx.poll_event() {
            self.on_event(node, event)?;
        }
        self.advance(node)
    }
}

/// Runs an end until it is ordered to stop.
pub(crate) fn run(args: &EndArgs) -> Result<(), EndError> {
    let config = |number: usize| Config::from_file(&args.config[number.min(args.config.len() - 1)]);
    let server = || Server::new(args.at);
    let client = || Client::new(args.at, args.queue_pairs, args.seed);
    match args.role {
        Role::Server => {
            let mut node = Node::new(Stack::builder(config(0)?).build_one()?)?;
            serve(&mut node, server(), &orders(1).remove(0))
        }
        Role::Client => {
            let mut node = Node::new(Stack::builder(config(0)?).build_one()?)?;
            serve(&mut node, client(), &orders(1).remove(0))
        }
        Role::Target | Role::Host => crate::storage::run(args),
        Role::Both => {
            let [first, second] = Stack::ring_pair(config(0)?, config(1)?, None)?;
            let (mut near, mut far) = (Node::new(first)?, Node::new(second)?);
            let mut inputs = orders(2);
            let (for_server, for_client) = (inputs.remove(1), inputs.remove(0));
            thread::scope(|scope| {
                let serving = scope.spawn(move || serve(&mut near, server(), &for_server));
                let outcome = serve(&mut far, client(), &for_client);
                let served = serving.join().map_err(|_| EndError("the server panicked".to_owned()))?;
                outcome.and(served)
            })
        }
    }
}

/// Reads orders on a thread of their own, and gives them to each of `ends`.
pub(crate) fn orders(ends: usize) -> Vec<Receiver<Order>> {
    let (senders, receivers): (Vec<_>, Vec<Receiver<Order>>) = (0..ends).map(|_| mpsc::channel()).unzip();
    thread::spawn(move || {
        // An end that has failed takes no order.
        let give_all = |order: Option<Order>| {
            for (sender, order) in senders.iter().zip(std::iter::repeat(order)) {
                let _ = order.map(|order| sender.send(order));
            }
        };
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            give_all(parse_order(&line));
        }
        // The run is gone.
        give_all(Some(Order::Stop));
    });
    receivers
}

fn parse_order(line: &str) -> Option<Order> {
    let mut words = line.split_whitespace();
    match words.next()? {
        "go" => Some(Order::Go),
        "stop" => Some(Order::Stop),
        "reload" => Some(Order::Reload),
        "disk" => {
            let mut number = || words.next()?.parse::<u32>().ok();
            let (eio, short) = (number()?, number()?);
            let [lose_sync, hang, panic] = [number()? > 0, number()? > 0, number()? > 0];
            Some(Order::Disk(DiskState { eio, short, lose_sync, hang, panic }))
        }
        "faults" => {
            let mut rate = || words.next()?.parse().ok();
            Some(Order::Faults(FaultRates {
                drop_ppm: rate()?,
                duplicate_ppm: rate()?,
                reorder_ppm: rate()?,
                corrupt_ppm: rate()?,
                truncate_ppm: rate()?,
                delay_ppm: rate()?,
                delay_polls: DELAY_POLLS,
            }))
        }
        _ => None,
    }
}

/// Polls the node and its application until the order to stop, then ends everything in order.
fn serve<A: Application>(
    node: &mut Node,
    mut application: A,
    orders: &Receiver<Order>,
) -> Result<(), EndError> {
    report(A::NAME, "ready", json!({}));
    let outcome = work(node, &mut application, orders);
    if let Err(error) = &outcome {
        report(A::NAME, "failed", json!({ "why": error.to_string() }));
    }
    outcome
}

fn work<A: Application>(
    node: &mut Node,
    application: &mut A,
    orders: &Receiver<Order>,
) -> Result<(), EndError> {
    let (mut next_report, mut seed) = (Instant::now() + REPORT_INTERVAL, 0);
    let mut is_going = false;
    loop {
        node.poll();
        if is_going {
            application.step(node)?;
        }
        match orders.try_recv() {
            Ok(Order::Go) => {
                application.go(node)?;
                is_going = true;
            }
            Ok(Order::Faults(rates)) => {
                seed += 1;
                set_faults(&[node.worker.port_control()], seed, rates);
            }
            Ok(Order::Reload | Order::Disk(_)) => {}
            Ok(Order::Stop) | Err(mpsc::TryRecvError::Disconnected) => break,
            Err(mpsc::TryRecvError::Empty) => {}
        }
        if Instant::now() >= next_report {
            next_report = Instant::now() + REPORT_INTERVAL;
            report(A::NAME, "stats", application.counts());
            node.worker.check().map_err(EndError)?;
        }
    }
    node.worker.port_control().set_faults(Faults::default());
    close(node, application)?;
    report(A::NAME, "stopped", json!({ "counts": application.counts(), "counters": nonzero(&node.stack) }));
    Ok(())
}

/// Injects faults at ports, in both directions.
pub(crate) fn set_faults(ports: &[PortControl], seed: u64, rates: FaultRates) {
    ports.iter().for_each(|port| port.set_faults(Faults { seed, rx: rates, tx: rates }));
}

/// The counters of a stack that are not zero.
pub(crate) fn nonzero(stack: &Stack) -> serde_json::Map<String, Value> {
    let counters = stack.counters().into_iter().filter(|(_, count)| *count > 0);
    counters.map(|(name, count)| (name.to_owned(), count.into())).collect()
}

/// Names what a core still holds; empty when it holds nothing.
pub(crate) fn held(usage: ResourceUsage) -> String {
    let counts = [
        ("queue pairs", usage.queue_pairs),
        ("incoming connections", usage.incoming),
        ("TCP connections", usage.connections),
        ("flows in TIME-WAIT", usage.time_wait),
        ("half-open connections", usage.half_open),
        ("flows", usage.flows),
        ("received frames", usage.rx_frames),
        ("retained units", usage.tx_units),
        ("frames to send", usage.waiting_frames),
        ("regions", usage.regions),
        ("atomic requests", usage.remote_atomics_outstanding),
    ];
    let held = counts.iter().filter(|(_, count)| *count > 0).map(|(name, count)| format!("{count} {name}"));
    held.collect::<Vec<_>>().join(", ")
}

/// Closes all connections and waits until the core holds nothing.
fn close<A: Application>(node: &mut Node, application: &mut A) -> Result<(), EndError> {
    let deadline = Instant::now() + CLOSE_TIMEOUT;
    while application.finish(node, deadline)? > 0 {
        node.poll();
        application.step(node)?;
    }
    let deadline = Instant::now() + RELEASE_TIMEOUT;
    let mut is_released = false;
    loop {
        node.poll();
        while node.ctx.poll_event().is_some() {}
        is_released = is_released || node.release()?;
        let held = held(node.worker.resource_usage());
        if is_released && held.is_empty() {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(EndError(format!("{held} are held after the last connection")));
        }
    }
}

pub(crate) fn report(end: &str, event: &str, mut details: Value) {
    details["event"] = event.into();
    details["end"] = end.into();
    print_stdout(format_args!("{details}\n"));
}
