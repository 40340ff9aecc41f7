//! The far end on a machine of its own: serves one near end after another until Ctrl-C.
//!
//! Whatever a near end does — vanishes, speaks another language, asks for more than fits — ends its own run alone.
//! A memif must not be polled while its other end comes or goes, since the driver removes its rings meanwhile: the
//! loop pauses from a client's goodbye until the link is down, and until it is up again. A near end
//! that is killed can still take a server over memif down with it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ironwarp::config::DeviceConfig;
use ironwarp::{Config, Worker};
use ironwarp_bench::StopSignal;
use ironwarp_bench::host::pin;
use ironwarp_cli::print_stdout;

use super::{Failure, ServerSession, message_handler};
use crate::control::{Channel, FromServer};
use crate::rdma::{Endpoint, Incoming, RdmaError};

/// Between two looks at a link that is not polled.
const LINK_POLL_INTERVAL: Duration = Duration::from_millis(1);

/// What a server is started with.
pub struct StandaloneSetup {
    /// The configuration's text.
    pub text: String,
    /// What it says.
    pub config: Config,
    /// The port to listen at.
    pub port: u16,
    /// Where to write what the server sends and receives, as pcapng.
    pub pcap: Option<PathBuf>,
}

/// Serves until Ctrl-C.
pub fn main(setup: &StandaloneSetup, source: &Path) -> ExitCode {
    let halt = Arc::new(AtomicBool::new(false));
    let requested = halt.clone();
    // The second Ctrl-C does not wait.
    let handler = move || {
        if requested.swap(true, Ordering::Relaxed) {
            std::process::exit(1);
        }
    };
    if let Err(error) = ctrlc::set_handler(handler) {
        eprintln!("iwarp-perf: Ctrl-C will not stop in good order: {error}");
    }
    match StandaloneServer::open(setup, halt).and_then(|mut server| server.run(source)) {
        Ok(served) => {
            print_stdout(format_args!("stopped; served {served} near ends\n"));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("iwarp-perf: {error}");
            ExitCode::FAILURE
        }
    }
}

struct StandaloneServer {
    endpoint: Option<Endpoint>,
    /// Where it listens: every address of every port.
    addresses: Vec<SocketAddr>,
    /// The device must not be polled while its other end comes or goes. Of several ports none waits for another's.
    memif: bool,
    halt: Arc<AtomicBool>,
}

impl StandaloneServer {
    fn open(setup: &StandaloneSetup, halt: Arc<AtomicBool>) -> Result<Self, RdmaError> {
        if let Some(core) = setup.config.core.processor {
            // Where the processor cannot be had, the server runs wherever the system puts it.
            let _ = pin(core);
        }
        let ours = setup.config.addresses()?;
        let addresses: Vec<_> = ours.into_iter().map(|addr| SocketAddr::new(addr, setup.port)).collect();
        let mut endpoint = Endpoint::open(&setup.text, None, false)?;
        if let Some(path) = &setup.pcap {
            endpoint.capture(path, "far")?;
        }
        addresses.iter().try_for_each(|address| endpoint.listen(*address))?;
        let memif =
            setup.config.ports() == 1 && matches!(setup.config.port.device, DeviceConfig::Memif { .. });
        if memif {
            endpoint.watch_link();
        }
        Ok(StandaloneServer { endpoint: Some(endpoint), addresses, memif, halt })
    }

    fn run(&mut self, source: &Path) -> Result<u32, RdmaError> {
        let addresses: Vec<String> = self.addresses.iter().map(SocketAddr::to_string).collect();
        print_stdout(format_args!(
            "serving {} at {}; Ctrl-C stops\n",
            source.display(),
            addresses.join(", ")
        ));
        let mut served = 0;
        while !self.halt.load(Ordering::Relaxed) {
            self.wait_for_link(true)?;
            let endpoint = self.endpoint.as_mut().ok_or(RdmaError::NoDevice)?;
            match endpoint.wait_for_client(&self.halt)? {
                Incoming::Request(request, remote) => {
                    served += 1;
                    let how = self.serve(request, remote)?;
                    print_stdout(format_args!("{remote}: served; {how}\n"));
                    self.wait_for_link(false)?;
                }
                Incoming::NoLink | Incoming::Halted => {}
            }
        }
        Ok(served)
    }

    /// Stands still until the link of a memif is up, or down.
    fn wait_for_link(&mut self, up: bool) -> Result<(), RdmaError> {
        let (memif, halt) = (self.memif, self.halt.clone());
        let endpoint = self.endpoint.as_mut().ok_or(RdmaError::NoDevice)?;
        endpoint.with_worker(|worker: &mut Worker| {
            while memif && worker.link_up() != up && !halt.load(Ordering::Relaxed) {
                std::thread::sleep(LINK_POLL_INTERVAL);
            }
        })
    }

    /// Serves one near end. Answers how it ended.
    fn serve(
        &mut self,
        request: ironwarp::ConnectionRequest,
        remote: SocketAddr,
    ) -> Result<String, RdmaError> {
        let mut endpoint = self.endpoint.take().ok_or(RdmaError::NoDevice)?;
        let stop = Arc::new(StopSignal::default());
        let ended = stop.clone();
        let (channel, carrier) = Channel::over_carrier(message_handler(stop.clone()), move || ended.raise(0));
        let accepted = endpoint.accept_client(request, carrier, self.halt.clone());
        let mut server = ServerSession::new(channel, stop, Some(endpoint));
        server.remote = Some(remote.ip());
        let outcome = match accepted {
            Ok(()) => server.run(),
            Err(error) => Err(error.into()),
        };
        let outcome_text = server.finish(outcome);
        self.endpoint = server.endpoint.take();
        outcome_text
    }
}

impl ServerSession {
    /// Parts with a near end over the line, in order or not, and gives back what it held. Answers how it ended.
    fn finish(&mut self, outcome: Result<(), Failure>) -> Result<String, RdmaError> {
        if let Err(Failure::Failed(line)) = &outcome {
            let _ = self.channel.send(&FromServer::Failed(line.clone()));
        }
        let endpoint = self.endpoint.as_mut().ok_or(RdmaError::NoDevice)?;
        let why = endpoint.control_loss().map(str::to_owned);
        // A goodbye, or what failed, is still to be carried; the near end hangs up.
        endpoint.close_control(false);
        self.rdma.drain(..).flatten().try_for_each(|open| open.destroy(endpoint))?;
        Ok(match (outcome, why) {
            (Ok(()), _) => "it said goodbye".to_owned(),
            (Err(Failure::Failed(line)), None) => format!("it failed: {line}"),
            (Err(_), Some(why)) => format!("it was dropped: {why}"),
            (Err(Failure::Gone), None) => "it left without a word".to_owned(),
        })
    }
}
