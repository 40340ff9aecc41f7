//! `iwarp-perf server`: serves several clients at a time until Ctrl-C.
//!
//! Each client has a thread, a context and a protection domain. A client that exits, falls silent,
//! speaks another version or asks for too much ends only its own run. A client beyond `--clients`
//! is rejected at once. Lines that clients cause are limited, and written by this thread alone.
//!
//! A DPDK memif has one peer, and must not be polled while that connects or disconnects, because
//! the driver removes its rings meanwhile. The loop therefore pauses after a client until the link
//! is down and up again. A client that is killed can still crash a server over such a memif.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ironwarp::{Config, LogLimit, Nanos};
use ironwarp_bench::host::pin;
use ironwarp_bench::{StopSignal, nanos};
use ironwarp_cli::{CliExit, on_interrupt, print_stdout};

use super::limits::{ClientLimits, ClientMemory};
use super::session::{Ended, ServerSession, message_handler};
use crate::cli::Args;
use crate::control::Channel;
use crate::error::Result;
use crate::rdma::{Endpoint, Newcomer, SharedEndpoint};

/// The time between two checks: of a link that is not polled, and for clients while others poll.
const CHECK_INTERVAL: Duration = Duration::from_millis(1);
/// Polls between two checks for clients, and of the link, while there is none.
const POLLS_PER_CHECK: u32 = 64;

/// Serves until Ctrl-C. `text` is the configuration as its file has it.
pub fn run(args: &Args, text: &str, config: &Config) -> Result<ExitCode, CliExit> {
    // Each client needs a context, and the listener another one.
    let (clients, contexts) = (u32::from(args.clients), config.limits.contexts);
    if clients >= contexts {
        let most = contexts.saturating_sub(1);
        return Err(format!("--clients {clients}: at most {most} with limits.contexts = {contexts}").into());
    }
    let halt = on_interrupt().map_err(CliExit::Failed)?;
    let tally = StandaloneServer::open(args, text, config, halt).and_then(|mut server| server.run(args));
    let Tally { served, silent, busy } = tally.map_err(CliExit::failed)?;
    print_stdout(format_args!(
        "stopped; served {served} clients, dropped {silent} that were silent, rejected {busy} while busy\n"
    ));
    Ok(ExitCode::SUCCESS)
}

/// Counts of a server.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    /// Clients that were admitted, silent ones too.
    served: u64,
    silent: u64,
    busy: u64,
}

/// A client that is being served.
struct Client {
    remote: SocketAddr,
    thread: JoinHandle<Result<Ended>>,
}

struct StandaloneServer {
    shared: SharedEndpoint,
    /// The addresses that it listens on: every address of every port.
    addresses: Vec<SocketAddr>,
    limits: ClientLimits,
    clients: Vec<Client>,
    tally: Tally,
    /// Of the lines that clients cause.
    limit: LogLimit,
    start: Instant,
    halt: Arc<AtomicBool>,
}

impl StandaloneServer {
    fn open(args: &Args, text: &str, config: &Config, halt: Arc<AtomicBool>) -> Result<Self> {
        if let Some(core) = config.core.processor {
            // If the processor is not available, the server is not pinned.
            let _ = pin(core);
        }
        let ours = config.addresses()?;
        let addresses: Vec<_> = ours.into_iter().map(|addr| SocketAddr::new(addr, args.port)).collect();
        let mut endpoint = Endpoint::open(text, None, false)?;
        if let Some(path) = &args.pcap {
            endpoint.capture(path, "server")?;
        }
        addresses.iter().try_for_each(|address| endpoint.listen(*address))?;
        let limits = ClientLimits {
            timeout: Duration::from_secs(args.client_timeout),
            slice: Duration::from_secs(args.slice_limit),
            memory: ClientMemory::new(args.memory << 20),
        };
        Ok(StandaloneServer {
            shared: SharedEndpoint::new(endpoint, args.clients.into())?,
            addresses,
            limits,
            clients: Vec::new(),
            tally: Tally::default(),
            limit: LogLimit::new(Nanos::ZERO),
            start: Instant::now(),
            halt,
        })
    }

    fn run(&mut self, args: &Args) -> Result<Tally> {
        let addresses: Vec<String> = self.addresses.iter().map(SocketAddr::to_string).collect();
        let (source, addresses) = (args.config.clone().unwrap_or_default(), addresses.join(", "));
        let source = source.display();
        print_stdout(format_args!("serving {source} at {addresses}; Ctrl-C stops\n"));
        while !self.halt.load(Ordering::Relaxed) {
            self.poll();
            while let Some(newcomer) = self.shared.arrivals.next_client() {
                self.admit(newcomer);
            }
            self.join_ended();
            for line in self.shared.arrivals.take_lines() {
                self.warn(&line);
            }
            self.limit.refill(0, Nanos(nanos(self.start.elapsed())));
        }
        self.clients.drain(..).for_each(|client| drop(client.thread.join()));
        Ok(Tally { busy: self.shared.arrivals.busy(), ..self.tally })
    }

    /// Polls while there is no client. The threads of clients poll for this one too.
    fn poll(&self) {
        if !self.clients.is_empty() {
            return thread::sleep(CHECK_INTERVAL);
        }
        (0..POLLS_PER_CHECK).for_each(|_| self.shared.poll());
    }

    fn warn(&mut self, line: &str) {
        if self.limit.take() {
            eprintln!("iwarp-perf: {line}");
        }
    }

    /// Starts the thread of a client.
    fn admit(&mut self, newcomer: Newcomer) {
        let remote = newcomer.remote;
        let endpoint = match self.shared.client(remote.ip()) {
            Ok(endpoint) => endpoint,
            Err(error) => {
                self.warn(&format!("{remote} was turned away: {error}"));
                return self.shared.arrivals.reject(newcomer, &format!("busy: {error}"));
            }
        };
        let (limits, halt) = (self.limits.clone(), self.halt.clone());
        let thread = thread::Builder::new().name(format!("client {}", remote.ip()));
        match thread.spawn(move || serve(endpoint, newcomer, limits, halt)) {
            Ok(thread) => {
                self.tally.served += 1;
                self.clients.push(Client { remote, thread });
            }
            // Its request times out.
            Err(error) => {
                self.warn(&format!("{remote} was turned away: a thread: {error}"));
                self.shared.arrivals.dismiss(remote.ip());
            }
        }
    }

    /// Prints how sessions ended, and lets further clients take their places.
    fn join_ended(&mut self) {
        for Client { remote, thread } in self.clients.extract_if(.., |client| client.thread.is_finished()) {
            let ended = match thread.join() {
                Ok(Ok(ended)) => ended,
                Ok(Err(error)) => Ended::Served(format!("failed: {error}")),
                Err(_) => Ended::Served("failed: its thread panicked".to_owned()),
            };
            self.tally.silent += u64::from(matches!(ended, Ended::Silent(_)));
            if self.limit.take() {
                match ended {
                    Ended::Served(how) => print_stdout(format_args!("{remote}: served; {how}\n")),
                    Ended::Silent(how) => {
                        tracing::warn!("{remote}: dropped: {how}");
                        print_stdout(format_args!("{remote}: dropped; {how}\n"));
                    }
                }
            }
            self.shared.arrivals.dismiss(remote.ip());
        }
    }
}

/// Serves one client, on a thread of its own. `halt` ends it.
fn serve(
    mut endpoint: Endpoint,
    Newcomer { request, remote }: Newcomer,
    limits: ClientLimits,
    halt: Arc<AtomicBool>,
) -> Result<Ended> {
    let stop = Arc::new(StopSignal::default());
    let closed = stop.clone();
    let (channel, carrier) = Channel::over_carrier(message_handler(stop.clone()), move || closed.close());
    let accepted = endpoint.accept_client(request, carrier, halt, limits.timeout);
    let mut server = ServerSession::new(channel, stop, Some(endpoint), Some((remote.ip(), limits)));
    let outcome = accepted.and_then(|()| server.run());
    server.finish(outcome)
}
