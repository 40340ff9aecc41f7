//! `iwarp-perf server`: serves one client after another until Ctrl-C.
//!
//! A client that exits, speaks another version or asks for too much ends only its own run. A memif must not be polled
//! while its peer connects or disconnects, because the driver removes its rings meanwhile. The loop therefore pauses
//! after a client until the link is down and up again. A client that is killed can still crash a server over memif.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ironwarp::{Config, ConnectionRequest, Worker};
use ironwarp_bench::StopSignal;
use ironwarp_bench::host::pin;
use ironwarp_cli::{CliExit, on_interrupt, print_stdout};

use super::{Failure, ServerSession, message_handler};
use crate::control::{Channel, FromServer};
use crate::rdma::{Endpoint, Incoming, RdmaError};

/// The time between two checks of a link that is not polled.
const LINK_POLL_INTERVAL: Duration = Duration::from_millis(1);

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
}

/// Serves until Ctrl-C.
pub fn run(setup: &Setup, source: &Path) -> Result<ExitCode, CliExit> {
    let halt = on_interrupt().map_err(CliExit::Failed)?;
    let served = StandaloneServer::open(setup, halt).and_then(|mut server| server.run(source));
    let served = served.map_err(CliExit::failed)?;
    print_stdout(format_args!("stopped; served {served} clients\n"));
    Ok(ExitCode::SUCCESS)
}

struct StandaloneServer {
    endpoint: Option<Endpoint>,
    /// The addresses that it listens on: every address of every port.
    addresses: Vec<SocketAddr>,
    /// The device is a memif, which must not be polled while its peer connects or disconnects. False with several
    /// ports, because no port waits for another.
    memif: bool,
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
        Ok(StandaloneServer { endpoint: Some(endpoint), addresses, memif, halt })
    }

    fn run(&mut self, source: &Path) -> Result<u32, RdmaError> {
        let addresses: Vec<String> = self.addresses.iter().map(SocketAddr::to_string).collect();
        let (source, addresses) = (source.display(), addresses.join(", "));
        print_stdout(format_args!("serving {source} at {addresses}; Ctrl-C stops\n"));
        let mut served = 0;
        while !self.halt.load(Ordering::Relaxed) {
            self.wait_for_link(true)?;
            let endpoint = self.endpoint.as_mut().ok_or(RdmaError::NoDevice)?;
            if let Incoming::Request(request, remote) = endpoint.wait_for_client(&self.halt)? {
                served += 1;
                let ended = self.serve(request, remote)?;
                print_stdout(format_args!("{remote}: served; {ended}\n"));
                self.wait_for_link(false)?;
            }
        }
        Ok(served)
    }

    /// Waits without polling until the link of a memif is up or down.
    fn wait_for_link(&mut self, up: bool) -> Result<(), RdmaError> {
        let (memif, halt) = (self.memif, self.halt.clone());
        let endpoint = self.endpoint.as_mut().ok_or(RdmaError::NoDevice)?;
        endpoint.with_worker(|worker: &mut Worker| {
            while memif && worker.link_up() != up && !halt.load(Ordering::Relaxed) {
                std::thread::sleep(LINK_POLL_INTERVAL);
            }
        })
    }

    /// Serves one client. Returns how its session ended.
    fn serve(&mut self, request: ConnectionRequest, remote: SocketAddr) -> Result<String, RdmaError> {
        let mut endpoint = self.endpoint.take().ok_or(RdmaError::NoDevice)?;
        let stop = Arc::new(StopSignal::default());
        let closed = stop.clone();
        let (channel, carrier) =
            Channel::over_carrier(message_handler(stop.clone()), move || closed.raise(0));
        let accepted = endpoint.accept_client(request, carrier, self.halt.clone());
        let mut server = ServerSession::new(channel, stop, Some(endpoint));
        server.remote = Some(remote.ip());
        let outcome = accepted.map_err(Failure::from).and_then(|()| server.run());
        let ended = server.finish(outcome);
        self.endpoint = server.endpoint.take();
        ended
    }
}

impl ServerSession {
    /// Closes the control channel to a remote client and destroys its queue pairs. Returns how the session ended.
    fn finish(&mut self, outcome: Result<(), Failure>) -> Result<String, RdmaError> {
        if let Err(Failure::Failed(line)) = &outcome {
            let _ = self.channel.send(&FromServer::Failed(line.clone()));
        }
        let endpoint = self.endpoint.as_mut().ok_or(RdmaError::NoDevice)?;
        let why = endpoint.control_loss().map(str::to_owned);
        // The last message is still to be carried; the client disconnects after it.
        endpoint.close_control(false);
        self.rdma.drain(..).flatten().try_for_each(|open| open.destroy(endpoint))?;
        Ok(match (outcome, why) {
            (Ok(()), _) => "the client closed the session".to_owned(),
            (Err(Failure::Failed(line)), None) => format!("failed: {line}"),
            (Err(_), Some(why)) => format!("the client was dropped: {why}"),
            (Err(Failure::Gone), None) => "the client exited".to_owned(),
        })
    }
}
