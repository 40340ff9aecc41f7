//! `iwarp-perf server`: serves several clients at a time until Ctrl-C.
//!
//! Each client has a thread, a context and a protection domain. A client that exits, falls silent, speaks another version or
//! asks for too much ends only its own run. A client beyond `--clients` is rejected at once. Lines that clients cause are
//! limited, and written by this thread alone.
//!
//! A DPDK memif has one peer, and must not be polled while that connects or disconnects, because the driver removes its
//! rings meanwhile. The loop therefore pauses after a client until the link is down and up again. A client that is killed
//! can still crash a server over such a memif.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ironwarp::{Config, LogLimit, Nanos, Worker};
use ironwarp_bench::host::pin;
use ironwarp_bench::nanos;
use ironwarp_cli::{CliExit, on_interrupt, print_stdout};

use super::clients::Client;
use super::limits::{ClientLimits, ClientMemory};
use super::session::Ended;
use crate::rdma::{Endpoint, Newcomer, RdmaError, SharedEndpoint};

/// The time between two checks: of a link that is not polled, and for clients while others poll.
const CHECK_INTERVAL: Duration = Duration::from_millis(1);
/// Polls between two checks for clients, and of the link, while there is none.
const POLLS_PER_CHECK: u32 = 64;

/// The setup of a server.
pub struct Setup {
    /// The text of the configuration.
    pub text: String,
    /// The parsed configuration.
    pub config: Config,
    /// The port to listen on.
    pub port: u16,
    /// The file for the frames of the server, pcapng.
    pub pcap: Option<PathBuf>,
    /// Clients at a time.
    pub clients: u16,
    /// The time after which a silent client is dropped.
    pub client_timeout: Duration,
    /// The time that a slice of a client may take.
    pub slice_limit: Duration,
    /// Bytes of memory of all clients together.
    pub memory_bytes: u64,
}

/// Serves until Ctrl-C.
pub fn run(setup: &Setup, source: &Path) -> Result<ExitCode, CliExit> {
    // Each client needs a context, and the listener another one.
    let (clients, contexts) = (u32::from(setup.clients), setup.config.limits.contexts);
    if clients >= contexts {
        let most = contexts.saturating_sub(1);
        return Err(format!("--clients {clients}: at most {most} with limits.contexts = {contexts}").into());
    }
    let halt = on_interrupt().map_err(CliExit::Failed)?;
    let tally = StandaloneServer::open(setup, halt).and_then(|mut server| server.run(source));
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

struct StandaloneServer {
    shared: SharedEndpoint,
    /// The addresses that it listens on: every address of every port.
    addresses: Vec<SocketAddr>,
    /// The device is a DPDK memif, which must not be polled while its peer connects or disconnects. False with several
    /// ports, because no port waits for another.
    memif: bool,
    limits: ClientLimits,
    clients: Vec<Client>,
    tally: Tally,
    /// Of the lines that clients cause.
    limit: LogLimit,
    start: Instant,
    halt: Arc<AtomicBool>,
}

impl StandaloneServer {
    fn open(setup: &Setup, halt: Arc<AtomicBool>) -> Result<Self, RdmaError> {
        if let Some(core) = setup.config.core.processor {
            // If the processor is not available, the server is not pinned.
            let _ = pin(core);
        }
        let ours = setup.config.addresses()?;
        let addresses: Vec<_> = ours.into_iter().map(|addr| SocketAddr::new(addr, setup.port)).collect();
        let mut endpoint = Endpoint::open(&setup.text, None, false)?;
        if let Some(path) = &setup.pcap {
            endpoint.capture(path, "server")?;
        }
        addresses.iter().try_for_each(|address| endpoint.listen(*address))?;
        let memif = setup.config.ports() == 1 && setup.config.port.device.is_dpdk_memif();
        if memif {
            endpoint.watch_link();
        }
        let shared = SharedEndpoint::new(endpoint, setup.clients.into())?;
        let limits = ClientLimits {
            timeout: setup.client_timeout,
            slice: setup.slice_limit,
            memory: ClientMemory::new(setup.memory_bytes),
        };
        let (clients, tally, start) = (Vec::new(), Tally::default(), Instant::now());
        let limit = LogLimit::new(Nanos::ZERO);
        Ok(StandaloneServer { shared, addresses, memif, limits, clients, tally, limit, start, halt })
    }

    fn run(&mut self, source: &Path) -> Result<Tally, RdmaError> {
        let addresses: Vec<String> = self.addresses.iter().map(SocketAddr::to_string).collect();
        let (source, addresses) = (source.display(), addresses.join(", "));
        print_stdout(format_args!("serving {source} at {addresses}; Ctrl-C stops\n"));
        self.wait_for_link(true);
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
        self.clients.drain(..).map(Client::join).for_each(drop);
        Ok(Tally { busy: self.shared.arrivals.busy(), ..self.tally })
    }

    /// Polls while there is no client. The threads of clients poll for this one too.
    fn poll(&self) {
        if !self.clients.is_empty() {
            return std::thread::sleep(CHECK_INTERVAL);
        }
        if self.memif && !self.shared.with_worker(|worker| worker.link_up()) {
            self.wait_for_link(true);
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
        match Client::start(endpoint, newcomer, self.limits.clone(), self.halt.clone()) {
            Ok(client) => {
                self.tally.served += 1;
                self.clients.push(client);
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
        for client in self.clients.extract_if(.., |client| client.has_ended()) {
            let remote = client.remote;
            let ended = client.join();
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
            if self.memif {
                wait_for_link(&self.shared, false, &self.halt);
            }
        }
    }

    /// Waits without polling until the link of a memif is up or down.
    fn wait_for_link(&self, up: bool) {
        if self.memif {
            wait_for_link(&self.shared, up, &self.halt);
        }
    }
}

/// Waits without polling until a link is up or down.
fn wait_for_link(shared: &SharedEndpoint, up: bool, halt: &AtomicBool) {
    shared.with_worker(|worker: &mut Worker| {
        while worker.link_up() != up && !halt.load(Ordering::Relaxed) {
            std::thread::sleep(CHECK_INTERVAL);
        }
    });
}
