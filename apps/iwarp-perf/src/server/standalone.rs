//! `iwarp-perf server`: serves one client after another until Ctrl-C.
//!
//! A client that exits, falls silent, speaks another version or asks for too much ends only its own
//! run: it has a context and a protection domain of its own, which end with it. One that asks while
//! another is served is rejected at once. Lines that clients cause are limited.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ironwarp::{Config, ConnectionRequest, LogLimit, Nanos};
use ironwarp_bench::host::pin;
use ironwarp_bench::{StopSignal, nanos};
use ironwarp_cli::{CliExit, on_interrupt, print_stdout};

use super::session::{ClientLimits, Ended, ServerSession, message_handler};
use crate::cli::Args;
use crate::control::Channel;
use crate::error::Result;
use crate::rdma::Endpoint;

/// Polls between two checks for clients.
const POLLS_PER_CHECK: u32 = 64;

/// Serves until Ctrl-C. `text` is the configuration as its file has it.
pub fn run(args: &Args, text: &str, config: &Config) -> Result<ExitCode, CliExit> {
    if config.limits.contexts < 2 {
        let line = "limits.contexts = 1: must be 2 or more, one for the listener and one for a client";
        return Err(line.to_owned().into());
    }
    let halt = on_interrupt().map_err(CliExit::Failed)?;
    let Tally { served, silent, busy } = serve(args, text, config, &halt).map_err(CliExit::failed)?;
    print_stdout(format_args!(
        "stopped; served {served} clients, dropped {silent} that were silent, rejected {busy} while busy\n"
    ));
    Ok(ExitCode::SUCCESS)
}

#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    /// Clients that were admitted, silent ones too.
    served: u64,
    silent: u64,
    busy: u64,
}

fn serve(args: &Args, text: &str, config: &Config, halt: &Arc<AtomicBool>) -> Result<Tally> {
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
    let (timeout, slice) = [args.client_timeout, args.slice_limit].map(Duration::from_secs).into();
    let limits = ClientLimits { timeout, slice };
    let list: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
    let source = args.config.clone().unwrap_or_default();
    print_stdout(format_args!("serving {} at {}; Ctrl-C stops\n", source.display(), list.join(", ")));

    let (mut tally, mut limit, start) = (Tally::default(), LogLimit::new(Nanos::ZERO), Instant::now());
    endpoint = endpoint.with_own_context()?;
    while !halt.load(Ordering::Relaxed) {
        (0..POLLS_PER_CHECK).for_each(|_| endpoint.poll());
        limit.refill(0, Nanos(nanos(start.elapsed())));
        let (request, remote) = match endpoint.next_client() {
            Some(Ok(client)) => client,
            Some(Err(line)) => {
                if limit.take() {
                    eprintln!("iwarp-perf: {line}");
                }
                continue;
            }
            None => continue,
        };
        tally.served += 1;
        let ended;
        (ended, endpoint) = serve_client(endpoint, (request, remote), limits, halt)?;
        tally.silent += u64::from(matches!(ended, Ended::Silent(_)));
        tally.busy += endpoint.take_busy();
        if limit.take() {
            match ended {
                Ended::Served(how) => print_stdout(format_args!("{remote}: served; {how}\n")),
                Ended::Silent(how) => {
                    tracing::warn!("{remote}: dropped: {how}");
                    print_stdout(format_args!("{remote}: dropped; {how}\n"));
                }
            }
        }
    }
    Ok(tally)
}

/// Serves a client to its end, and returns how that came and the endpoint of the next one.
fn serve_client(
    mut endpoint: Endpoint,
    (request, remote): (ConnectionRequest, SocketAddr),
    limits: ClientLimits,
    halt: &Arc<AtomicBool>,
) -> Result<(Ended, Endpoint)> {
    let stop = Arc::new(StopSignal::default());
    let closed = stop.clone();
    let (channel, carrier) = Channel::over_carrier(message_handler(stop.clone()), move || closed.close());
    let accepted = endpoint.accept_client(request, carrier, halt.clone(), limits.timeout);
    let mut server = ServerSession::new(channel, stop, Some(endpoint), Some((remote.ip(), limits)));
    let outcome = accepted.and_then(|()| server.run());
    let (ended, endpoint) = server.finish(outcome)?;
    Ok((ended, endpoint.with_own_context()?))
}
