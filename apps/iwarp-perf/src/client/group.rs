//! A session with a server: opens both ends, and measures groups of alternating cases.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ironwarp::Config;
use ironwarp::config::DeviceConfig;
use ironwarp_bench::baseline::namespaces::VethPair;
use ironwarp_bench::baseline::stream;
use ironwarp_bench::host::hop_ns;
use ironwarp_bench::rounds::{CaseRunner, CaseTotals, EndedEarly, alternate};
use ironwarp_bench::{Budget, Case, ServerSlice, Slice, StopCondition, Test, Transport};

use super::results::{AtomicTotals, polls_since, send_results};
use super::server_link::ServerLink;
use super::sockets::Sockets;
use crate::control::{Channel, FromClient, FromServer, ToClient, ToServer};
use crate::error::{Context, Error, Result};
use crate::plan::{Group, ServerPlacement, Session};
use crate::rdma::{
    Endpoint, RdmaCase, SleepCounts, frames_client, open_case, open_pair, polls_of, start_meter,
};

/// The time between the last message to a server and the exit of the client.
const CLOSE_DELAY: Duration = Duration::from_millis(100);

/// A session in progress.
pub struct Measurement<'a> {
    parent: &'a Channel<ToClient>,
    server: ServerLink,
    session: &'a Session,
    open: Vec<OpenCase>,
    endpoint: Option<Endpoint>,
    sockets: Sockets,
    /// The interfaces of the devices. Dropped last: they are removed with it.
    _veth: Option<VethPair>,
    /// Sequence number of the next raw frame, and number of the next smoltcp connection.
    sequence: u64,
    halt: Arc<AtomicBool>,
    /// The parent gets the figures of each slice.
    reports_slices: bool,
}

/// A case of the group in progress.
struct OpenCase {
    /// Its path may be another one than planned.
    case: Case,
    budget: Budget,
    note: Option<String>,
    rdma: Option<RdmaCase>,
    totals: AtomicTotals,
}

impl<'a> Measurement<'a> {
    /// Starts the server, or connects to the one that the user started, and opens the device of the
    /// client.
    pub fn start(parent: &'a Channel<ToClient>, session: &'a Session, halt: Arc<AtomicBool>) -> Result<Self> {
        let (mut endpoint, server_endpoint) = match session.server_placement {
            ServerPlacement::Thread => Some(open_pair(session)?).unzip(),
            _ => (None, None),
        };
        let (mut server, carrier) =
            ServerLink::start(session.server_placement, server_endpoint, halt.clone())?;
        let veth = session.veth.then(|| VethPair::without_addresses(session.mtu)).transpose();
        let veth = veth.context("no veth pair")?;
        if let Some(veth) = &veth {
            veth.enter_client_namespace()?;
        }
        let server_namespace = veth.as_ref().map(VethPair::server_path);
        if !server.is_remote() {
            // The server opens first: it may create the socket that the client connects to.
            let server_namespace = server_namespace.clone();
            let setup = Session { server_namespace, groups: Vec::new(), ..session.clone() };
            server.request(&ToServer::Open(Box::new(setup)))?.expect(&FromServer::Opened)?;
        }
        if endpoint.is_none()
            && let Some(config) = &session.client_config
        {
            endpoint = Some(Endpoint::open(config, session.client_worker(), session.events)?);
        }
        if let Some(endpoint) = &mut endpoint {
            if let Some(path) = &session.pcap {
                endpoint.capture(path, "client")?;
            }
            endpoint.wait_for_link().map_err(|error| link_error(error, session))?;
            if let Some(carrier) = carrier {
                endpoint.connect_control(session.peer.ok_or(Error::NoDevice)?, carrier)?;
            }
        }
        Ok(Measurement {
            parent,
            server,
            session,
            endpoint,
            sockets: Sockets::new(server_namespace),
            _veth: veth,
            sequence: 0,
            halt,
            open: Vec::new(),
            reports_slices: false,
        })
    }

    /// Sends a request to the server and waits for the reply. A remote server is reached by polling
    /// the endpoint.
    fn request(&mut self, message: &ToServer) -> Result<FromServer> {
        self.server.send(message)?;
        if self.server.is_remote() { self.recv_polling() } else { self.server.recv() }
    }

    /// Waits for a reply of the server and polls the endpoint meanwhile.
    fn recv_polling(&mut self) -> Result<FromServer> {
        let endpoint = &mut self.endpoint;
        self.server.recv_while(|| {
            let Some(endpoint) = endpoint else {
                std::thread::yield_now();
                return Ok(());
            };
            endpoint.poll();
            match endpoint.control_loss() {
                Some(why) => Err(Error::Failed(format!("the server can no longer be reached: {why}"))),
                None => Ok(()),
            }
        })
    }

    /// Measures a group and sends its results to the parent. The results of a stopped group are
    /// sent too.
    pub fn group(&mut self, group: &Group) -> Result<()> {
        self.open(group)?;
        self.reports_slices = group.reports_slices;
        let polls_before = polls_of(self.endpoint.as_ref());
        let (rounds, why) = alternate(self, &group.round_plan());
        let polls = polls_since(&polls_before, polls_of(self.endpoint.as_ref()));
        let sleeps = self.endpoint.as_mut().and_then(Endpoint::take_sleep_counts);
        let sleeps = sleeps.map(|SleepCounts { all, woken, stale }| {
            format!(
                "the client slept {all} times and was woken by an event {woken} times; {stale} events were stale"
            )
        });
        let cases: Vec<Case> = self.open.iter().map(|open| open.case.clone()).collect();
        send_results(self.parent, (group, &cases), &rounds, self.session, |index, result| {
            let open = &mut self.open[index];
            result.notes.extend(open.note.clone());
            open.totals.add_notes(&open.case, result);
            if let Some(rdma) = &mut open.rdma {
                rdma.report(result);
                result.polls = Some(polls.clone());
            }
            result.notes.extend(sleeps.clone());
        })?;
        match why {
            None | Some(EndedEarly::ByUser) => self.close(),
            Some(EndedEarly::Failed { case, error }) => Err(error).context(cases[case].title()),
        }
    }

    /// Ends the session: the server closes its device before the client does.
    pub fn finish(mut self) -> Result<()> {
        self.request(&ToServer::Goodbye)?.expect(&FromServer::Gone)?;
        self.server.is_shut_down = true;
        Ok(())
    }

    /// Opens the cases of a group at both ends, and connects the RDMA cases. A case with another
    /// path than planned has a note.
    fn open(&mut self, group: &Group) -> Result<()> {
        self.open.clear();
        for planned in &group.cases {
            let (mut case, mut note, budget) = (planned.case.clone(), group.note.clone(), planned.budget);
            if case.test.transport() == Transport::KernelTcp {
                (case.path, note) = self.sockets.open(&mut self.server, case.path, case.mtu)?;
            }
            self.open.push(OpenCase { case, budget, note, rdma: None, totals: AtomicTotals::default() });
        }
        let cases = self.open.iter().map(|open| open.case.clone()).collect();
        self.request(&ToServer::Prepare { cases })?.expect(&FromServer::Prepared)?;
        for (number, open) in self.open.iter_mut().enumerate() {
            if open.case.test.transport() == Transport::Ironwarp {
                let endpoint = self.endpoint.as_mut().ok_or(Error::NoDevice)?;
                let rdma = open.rdma.insert(open_case(endpoint, &open.case, true, None)?);
                rdma.connect(endpoint, number, self.session.peer.ok_or(Error::NoDevice)?)?;
            }
        }
        self.recv_polling()?.expect(&FromServer::Connected)
    }

    /// Closes the RDMA cases at both ends.
    fn close(&mut self) -> Result<()> {
        self.server.send(&ToServer::Release)?;
        let mut rdma: Vec<RdmaCase> = self.open.iter_mut().filter_map(|open| open.rdma.take()).collect();
        if let Some(endpoint) = &mut self.endpoint {
            rdma.iter_mut().try_for_each(|open| open.disconnect(endpoint))?;
        }
        self.recv_polling()?.expect(&FromServer::Released)?;
        if let Some(endpoint) = &mut self.endpoint {
            rdma.iter_mut().try_for_each(|open| open.destroy(endpoint))?;
        }
        Ok(())
    }

    /// Runs the client's part of a slice. Returns it, and what the server should have received by
    /// its end.
    fn measure(&mut self, index: usize) -> Result<(Slice, u64)> {
        let OpenCase { case, budget, rdma, .. } = &mut self.open[index];
        let until = StopCondition { budget: *budget, halt: &self.halt };
        if case.test.transport() == Transport::KernelTcp {
            let connection = self.sockets.connection(case.path)?;
            return stream::client(connection, case, until).context("the Linux sockets");
        }
        let endpoint = self.endpoint.as_mut().ok_or(Error::NoDevice)?;
        match rdma {
            Some(rdma) => rdma.run_client(endpoint, until),
            None => frames_client(endpoint, case, until, &mut self.sequence),
        }
    }

    /// Ends the slice. An RDMA case is polled until the server is done, because the server may
    /// still need responses.
    fn stop(&mut self, index: usize, expected: u64) -> Result<ServerSlice> {
        self.server.send(&ToServer::Stop { expected })?;
        let reply = match (&mut self.open[index].rdma, &mut self.endpoint) {
            (Some(rdma), Some(endpoint)) => self.server.recv_while(|| rdma.poll(endpoint))?,
            _ => self.server.recv()?,
        };
        match reply {
            FromServer::Done(server) => Ok(server),
            other => Err(other.unexpected()),
        }
    }
}

impl Drop for Measurement<'_> {
    /// Disconnects from a remote server even if the session failed. Otherwise the server waits long
    /// for the client.
    fn drop(&mut self) {
        if let Some(endpoint) = self.endpoint.as_mut().filter(|_| self.server.is_remote()) {
            endpoint.close_control(true);
            // The server stops polling when it receives the disconnect. Over memif it must have
            // stopped before this process removes the device.
            std::thread::sleep(CLOSE_DELAY);
        }
    }
}

/// Names the socket if a remote server over memif is not there.
#[cold]
fn link_error(error: Error, session: &Session) -> Error {
    let config = session.client_config.as_deref().unwrap_or_default();
    let device = Config::from_toml(config).map(|config| config.port.device);
    match (&error, session.server_placement, device) {
        (Error::NoLink, ServerPlacement::Remote, Ok(DeviceConfig::Memif { socket, .. })) => {
            let socket = socket.display();
            Error::Failed(format!(
                "the server is not at the memif {socket}: start the server first, with the same socket"
            ))
        }
        _ => error,
    }
}

impl CaseRunner for Measurement<'_> {
    type Error = Error;

    fn slice(&mut self, index: usize) -> Result<Slice> {
        let title = self.open[index].case.title();
        tracing::info!("a slice of {title}");
        self.parent.send(&FromClient::Slice { title })?;
        self.request(&ToServer::Start { case: index })?.expect(&FromServer::Ready)?;
        let is_alone = self.session.server_placement != ServerPlacement::Thread;
        let meter = start_meter(self.endpoint.as_ref(), is_alone);
        let (mut slice, expected) = self.measure(index)?;
        slice.client = meter.stop(&polls_of(self.endpoint.as_ref()));
        slice.cpu_ns = slice.client.cpu_ns;
        let server = self.stop(index, expected)?;
        let OpenCase { case, totals, .. } = &mut self.open[index];
        totals.changed = expected;
        if case.bidirectional {
            slice.add_arrived(&server);
        }
        let counted_at_server = matches!(case.test, Test::TcpBw | Test::FrameBw | Test::SmoltcpBw);
        let slice = slice.with_server(&server, counted_at_server);
        if self.reports_slices {
            self.parent.send(&FromClient::Interval(Box::new(CaseTotals::of_slice(case, &slice))))?;
        }
        Ok(slice)
    }

    fn hop_ns(&mut self) -> Option<f64> {
        // Two machines share no cache line.
        if self.server.is_remote() { None } else { hop_ns(self.session.processors()) }
    }

    fn interrupted(&mut self) -> bool {
        self.halt.load(Ordering::Relaxed)
    }
}
