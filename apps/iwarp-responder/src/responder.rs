//! The responder's loop: polls the worker, answers requests, prints events.

use core::net::SocketAddr;
use core::sync::atomic::{AtomicBool, Ordering};
use std::collections::HashMap;
use std::time::{Duration, Instant};

use ironwarp::config::TransportKind;
use ironwarp::instrument::{Capture, CaptureLimits, Faults};
use ironwarp::{
    Completion, CompletionQueue, Config, ConnectionRequest, Context, Event, ListenParams, ProtectionDomain,
    Stack, VerbsError, Worker,
};

use crate::args::Args;
use crate::connection::Connection;
use crate::{StartError, report};

/// It listens over all of these that its stack has.
const KINDS: [TransportKind; 2] = [TransportKind::Tcp, TransportKind::Sctp];

/// Completions taken from the queue at once.
const COMPLETIONS: usize = 64;

/// The time to poll after the last connection's end, so that acknowledgements and FINs are sent,
/// and sent again if lost.
const LINGER: Duration = Duration::from_millis(100);

/// The time that peers have to close after Ctrl-C. Later ones are reset.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// A stack with one worker, and its peers.
pub(crate) struct Responder<'a> {
    args: &'a Args,
    stack: Stack,
    worker: Worker,
    ctx: Context,
    pd: ProtectionDomain,
    cq: CompletionQueue,
    receive_bytes: usize,
    /// One entry for each queue pair of the stack.
    peers_max: usize,
    connections: HashMap<u32, Connection>,
    ended: u64,
}

impl<'a> Responder<'a> {
    pub(crate) fn start(args: &'a Args, config: Config) -> Result<Self, StartError> {
        let ours = config.addresses().map_err(ironwarp::SetupError::from)?;
        let local = args.connect.map_or_else(|| args.local(&ours), Ok).map_err(StartError::Argument)?;
        let receive_bytes = args.receive_bytes().map_err(StartError::Argument)?;
        let peers_max = config.limits.queue_pairs as usize;
        let completions = config.limits.queue_pairs.saturating_mul(args.receives * 2).clamp(1, 1 << 18);
        let transports = config.stack.transport;
        let (stack, mut worker) = Stack::builder(config).build_one()?;
        enable_capture_and_faults(args, &worker)?;
        let mut ctx = stack.context()?;
        let pd = ctx.alloc_pd();
        let cq = ctx.create_cq(completions)?;
        if args.connect.is_none() {
            let transports = KINDS.into_iter().filter(|kind| transports.has(*kind));
            for transport in transports.map(Some) {
                ctx.listen_with(local, &ListenParams { transport })?;
            }
            // The core has to process this first: earlier connections are refused.
            worker.poll(0);
            report::listening(local);
        }
        let mut responder = Responder {
            args,
            stack,
            worker,
            ctx,
            pd,
            cq,
            receive_bytes,
            peers_max,
            connections: HashMap::new(),
            ended: 0,
        };
        if let Some(remote) = args.connect {
            (0..args.connections).try_for_each(|_| responder.connect(remote))?;
        }
        Ok(responder)
    }

    /// Serves peers until `stop` is set, until the first has disconnected (`--once`), or until all
    /// have (`--connect`). Then closes the remaining connections.
    pub(crate) fn run(&mut self, stop: &AtomicBool) -> Result<(), VerbsError> {
        while !stop.load(Ordering::Relaxed) && self.ended < self.connections_to_serve() {
            self.poll()?;
        }
        self.drain_connections()?;
        report::counters(&self.stack.counters());
        if let Err(error) = self.worker.stop_capture() {
            tracing::error!("the capture is not whole: {error}");
        }
        Ok(())
    }

    /// Polls everything once.
    fn poll(&mut self) -> Result<(), VerbsError> {
        let mut busy = self.worker.poll(1).work > 0;
        busy |= self.on_completions()? > 0;
        while let Some(event) = self.ctx.poll_event() {
            busy = true;
            self.on_event(event)?;
        }
        if !busy {
            // A stop request is seen within 250 ms: a worker that sleeps wakes to check the link.
            self.worker.idle(|| false);
        }
        Ok(())
    }

    fn drain_connections(&mut self) -> Result<(), VerbsError> {
        let deadline = Instant::now() + DRAIN_TIMEOUT;
        while self.ctx.drain(deadline)?.open > 0 {
            self.poll()?;
        }
        // Connections that were reset are gone already.
        self.connections.clear();
        let end = Instant::now() + LINGER;
        while Instant::now() < end {
            self.poll()?;
        }
        Ok(())
    }

    /// Ended connections whose objects can be destroyed.
    fn connections_to_serve(&self) -> u64 {
        match self.args {
            Args { once: true, .. } => 1,
            Args { connect: Some(_), connections, .. } => u64::from(*connections),
            _ => u64::MAX,
        }
    }

    fn on_completions(&mut self) -> Result<usize, VerbsError> {
        let mut completions = [Completion::default(); COMPLETIONS];
        let reaped = self.ctx.poll_cq(self.cq, &mut completions)?;
        for completion in completions.iter().take(reaped) {
            report::completion(completion);
            let Some(connection) = self.connections.get(&completion.qp.0) else { continue };
            if let Err(error) = connection.on_completion(&mut self.ctx, completion) {
                // This peer gets no echo; the others are not affected.
                tracing::warn!("queue pair {} is given up: {error}", completion.qp.0);
                self.ctx.disconnect(connection.qp)?;
            }
        }
        Ok(reaped)
    }

    fn on_event(&mut self, event: Event) -> Result<(), VerbsError> {
        match event {
            Event::ConnectRequest { request, remote, private_data, .. } => {
                self.accept(request, remote, &private_data)?;
            }
            Event::Established { qp, private_data, .. } => self.on_established(qp.num().0, &private_data)?,
            Event::Rejected { qp, private_data, .. } => {
                report::rejected(qp.num().0, &private_data);
                self.remove_connection(qp.num().0, "Rejected")?;
            }
            Event::Terminated { qp, sent, terminate } => report::terminated(qp.num().0, sent, terminate),
            Event::Disconnected { qp, reason } => {
                self.remove_connection(qp.num().0, &format!("{reason:?}"))?
            }
            Event::ConnectFailed { qp, reason } => {
                self.remove_connection(qp.num().0, &format!("{reason:?}"))?
            }
            Event::ListenFailed { local, transport } => {
                tracing::error!("cannot listen on {local} over {transport}")
            }
            _ => {}
        }
        Ok(())
    }

    fn connect(&mut self, remote: SocketAddr) -> Result<(), VerbsError> {
        let connection = self.new_connection()?;
        self.ctx.connect(connection.qp, remote, &connection.advertisement())?;
        self.connections.insert(connection.qp.num().0, connection);
        Ok(())
    }

    /// A peer accepted our connection. Connections that we accepted report nothing here.
    fn on_established(&mut self, num: u32, private_data: &[u8]) -> Result<(), VerbsError> {
        let (Some(remote), Some(connection)) = (self.args.connect, self.connections.get(&num)) else {
            return Ok(());
        };
        report::connected(num, remote, private_data);
        if let Some(operation) = self.args.ask {
            connection.post_request(&mut self.ctx, operation)?;
        }
        Ok(())
    }

    /// Accepts a peer while there is room for it, else refuses it.
    fn accept(
        &mut self,
        request: ConnectionRequest,
        remote: SocketAddr,
        private_data: &[u8],
    ) -> Result<(), VerbsError> {
        if self.args.refuse {
            return self.ctx.reject(request, b"refused");
        }
        let connection = match self.new_connection() {
            Ok(connection) => connection,
            Err(error) => {
                tracing::warn!("{remote} refused: {error}");
                return self.ctx.reject(request, b"no resources");
            }
        };
        let num = connection.qp.num().0;
        if let Err(error) = self.ctx.accept(request, connection.qp, &connection.advertisement()) {
            // A queue pair that was destroyed is still being returned. The start-up timeout ends
            // the peer's attempt.
            tracing::warn!("{remote} not accepted: {error}");
            return self.ctx.destroy_qp(connection.qp);
        }
        report::connected(num, remote, private_data);
        self.connections.insert(num, connection);
        Ok(())
    }

    fn new_connection(&mut self) -> Result<Connection, VerbsError> {
        if self.connections.len() >= self.peers_max {
            return Err(VerbsError::LimitReached("queue pairs"));
        }
        Connection::new(&mut self.ctx, self.pd, self.cq, self.args, self.receive_bytes)
    }

    fn remove_connection(&mut self, num: u32, reason: &str) -> Result<(), VerbsError> {
        // Flushed completions come before the end of their connection.
        while self.on_completions()? > 0 {}
        if let Some(connection) = self.connections.remove(&num) {
            self.ctx.destroy_qp(connection.qp)?;
        }
        self.ended += 1;
        report::disconnected(num, reason);
        Ok(())
    }
}

/// Switches on the port's capture and faults as the command line requests.
fn enable_capture_and_faults(args: &Args, worker: &Worker) -> Result<(), StartError> {
    if let Some(path) = &args.pcap {
        let capture = Capture::create(path, CaptureLimits::default());
        let failed = |source| StartError::Capture { path: path.display().to_string(), source };
        capture.and_then(|file| worker.start_capture(&file, "iwarp0")).map_err(failed)?;
    }
    if args.drop > 0 {
        for port in worker.port_controls() {
            port.set_faults(Faults::loss(args.seed, args.drop));
        }
    }
    Ok(())
}
