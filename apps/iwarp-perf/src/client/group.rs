//! A session with a server: opens both ends, and measures groups of alternating cases.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ironwarp::Config;
use ironwarp::config::DeviceConfig;
use ironwarp_bench::baseline::namespaces::VethPair;
use ironwarp_bench::baseline::stream;
use ironwarp_bench::host::hop_ns;
use ironwarp_bench::report::CorePolls;
use ironwarp_bench::rounds::{CaseRunner, CaseTotals, EndedEarly, alternate};
use ironwarp_bench::{Case, CpuClock, ServerSlice, Slice, StopCondition, Test, Transport, UsageMeter};

use super::error::ClientError;
use super::results::{AtomicTotals, polls_since, send_results};
use super::server_link::ServerLink;
use super::sockets::Sockets;
use crate::control::{Channel, FromClient, FromServer, ToClient, ToServer};
use crate::plan::{Group, ServerPlacement, ServerSetup, Session};
use crate::rdma::{Endpoint, RdmaCase, RdmaError, SleepCounts, frames_client, open_case, open_pair};

/// The time between the last message to a server and the exit of the client.
const CLOSE_DELAY: Duration = Duration::from_millis(100);

/// A session in progress.
pub struct Measurement<'a> {
    parent: &'a Channel<ToClient>,
    server: ServerLink,
    session: &'a Session,
    endpoint: Option<Endpoint>,
    sockets: Sockets,
    /// The interfaces of the devices. Dropped last: they are removed with it.
    _veth: Option<VethPair>,
    /// Sequence number of the next raw frame, and number of the next smoltcp connection.
    sequence: u64,
    halt: Arc<AtomicBool>,
}

/// A group with open cases.
struct OpenGroup<'m, 'a> {
    measurement: &'m mut Measurement<'a>,
    group: &'m Group,
    cases: Vec<Case>,
    /// The RDMA cases, indexed as `cases`.
    rdma: Vec<Option<RdmaCase>>,
    /// The operations of atomic tests, indexed as `cases`.
    atomic_totals: Vec<AtomicTotals>,
}

impl<'a> Measurement<'a> {
    /// Starts the server, or connects to the one that the user started, and opens the device of the client.
    pub fn start(
        parent: &'a Channel<ToClient>,
        session: &'a Session,
        halt: Arc<AtomicBool>,
    ) -> Result<Self, ClientError> {
        let (mut endpoint, server_endpoint) = match session.server_placement {
            ServerPlacement::Process | ServerPlacement::Remote => (None, None),
            _ => open_pair(session)?.unzip(),
        };
        let (mut server, carrier) = match session.server_placement {
            ServerPlacement::Remote => ServerLink::to_remote(halt.clone()),
            _ => (ServerLink::start(session, server_endpoint, halt.clone())?, None),
        };
        let veth = session.veth.then(|| enter_veth(session)).transpose()?;
        if !server.is_remote() {
            // The server opens first: it may create the socket that the client connects to.
            let namespace = veth.as_ref().map(VethPair::server_path);
            let setup = Box::new(ServerSetup { namespace, ..session.server_setup.clone() });
            server.request(&ToServer::Open(setup))?.expect(&FromServer::Opened)?;
        }
        if endpoint.is_none()
            && let Some(config) = &session.client_config
        {
            endpoint = Some(Endpoint::open(config, session.worker_processor(), session.events)?);
        }
        if let Some(endpoint) = &mut endpoint {
            if let Some(path) = &session.pcap {
                endpoint.capture(path, "client")?;
            }
            endpoint.wait_for_link().map_err(|error| link_error(error, session))?;
            if let Some(carrier) = carrier {
                endpoint.connect_control(session.peer.ok_or(RdmaError::NoDevice)?, carrier)?;
            }
        }
        let sockets = Sockets::new(veth.as_ref().map(VethPair::server_path));
        Ok(Measurement { parent, server, session, endpoint, sockets, _veth: veth, sequence: 0, halt })
    }

    /// Sends a request to the server and waits for the reply. A remote server is reached by polling the endpoint.
    fn request(&mut self, message: &ToServer) -> Result<FromServer, ClientError> {
        self.server.send(message)?;
        if self.server.is_remote() { self.recv_polling() } else { self.server.recv() }
    }

    /// Waits for a reply of the server and polls the endpoint meanwhile.
    fn recv_polling(&mut self) -> Result<FromServer, ClientError> {
        let endpoint = &mut self.endpoint;
        self.server.recv_while(|| {
            let Some(endpoint) = endpoint else {
                std::thread::yield_now();
                return Ok(());
            };
            endpoint.poll();
            match endpoint.control_loss() {
                Some(why) => Err(ClientError::ServerGone(format!("can no longer be reached: {why}"))),
                None => Ok(()),
            }
        })
    }

    /// Returns whether the user or the end of a process stopped the session.
    pub fn halted(&self) -> bool {
        self.halt.load(Ordering::Relaxed)
    }

    /// Measures a group and sends its results to the parent. The results of a stopped group are sent too.
    pub fn group(&mut self, group: &Group) -> Result<(), ClientError> {
        let (cases, notes) = self.choose_paths(group)?;
        let rdma = self.open(&cases)?;
        let atomic_totals = vec![AtomicTotals::default(); cases.len()];
        let polls_before = self.polls();
        let mut open = OpenGroup { measurement: self, group, cases, rdma, atomic_totals };
        let (rounds, why) = alternate(&mut open, &group.round_plan());
        let OpenGroup { cases, rdma, atomic_totals, .. } = open;
        let polls = polls_since(&polls_before, self.polls());
        let sleeps = self.endpoint.as_mut().and_then(Endpoint::take_sleep_counts);
        let sleeps = sleeps.map(|SleepCounts { all, woken, stale }| {
            format!(
                "the client slept {all} times and was woken by an event {woken} times; {stale} events were stale"
            )
        });
        let device = self.session.device.as_deref();
        send_results(self.parent, (group, &cases), &rounds, device, |index, result| {
            result.notes.extend(notes[index].clone());
            atomic_totals[index].add_notes(&cases[index], result);
            if let Some(open) = &rdma[index] {
                open.report(result);
                result.polls = Some(polls.clone());
            }
            result.notes.extend(sleeps.clone());
        })?;
        match why {
            None | Some(EndedEarly::ByUser) => self.close(rdma),
            Some(EndedEarly::Failed { case, error }) => Err(error.in_case(&cases[case])),
        }
    }

    /// Ends the session: the server closes its device before the client does.
    pub fn finish(mut self) -> Result<(), ClientError> {
        self.request(&ToServer::Goodbye)?.expect(&FromServer::Gone)?;
        self.server.is_shut_down = true;
        Ok(())
    }

    fn cpu_clock(&self) -> CpuClock {
        let placement = self.session.server_placement;
        let is_alone = !matches!(placement, ServerPlacement::RingThread | ServerPlacement::MemoryThread);
        self.endpoint.as_ref().map_or(CpuClock::Process, |endpoint| endpoint.cpu_clock(is_alone))
    }

    fn polls(&self) -> Vec<CorePolls> {
        self.endpoint.as_ref().map(Endpoint::polls).unwrap_or_default()
    }

    /// Returns the cases with the paths that are possible, and a note for each case with another path than planned.
    fn choose_paths(&mut self, group: &Group) -> Result<(Vec<Case>, Vec<Option<String>>), ClientError> {
        let (mut cases, mut notes) = (Vec::new(), Vec::new());
        for planned in &group.cases {
            let mut case = planned.case.clone();
            let mut note = group.note.clone();
            if case.test.transport() == Transport::KernelTcp {
                (case.path, note) = self.sockets.open(&mut self.server, case.path, case.mtu)?;
            }
            cases.push(case);
            notes.push(note);
        }
        Ok((cases, notes))
    }

    /// Opens and connects the RDMA cases.
    fn open(&mut self, cases: &[Case]) -> Result<Vec<Option<RdmaCase>>, ClientError> {
        self.request(&ToServer::Prepare { cases: cases.to_vec() })?.expect(&FromServer::Prepared)?;
        let connect = |(number, case): (usize, &Case)| {
            if case.test.transport() != Transport::Ironwarp {
                return Ok(None);
            }
            let endpoint = self.endpoint.as_mut().ok_or(RdmaError::NoDevice)?;
            let mut open = open_case(endpoint, case, true, None)?;
            open.connect(endpoint, number, self.session.peer.ok_or(RdmaError::NoDevice)?)?;
            Ok::<_, ClientError>(Some(open))
        };
        let rdma = cases.iter().enumerate().map(connect).collect::<Result<_, _>>()?;
        self.recv_polling()?.expect(&FromServer::Connected)?;
        Ok(rdma)
    }

    /// Closes the RDMA cases at both ends.
    fn close(&mut self, mut rdma: Vec<Option<RdmaCase>>) -> Result<(), ClientError> {
        self.server.send(&ToServer::Release)?;
        if let Some(endpoint) = &mut self.endpoint {
            rdma.iter_mut().flatten().try_for_each(|open| open.disconnect(endpoint))?;
        }
        self.recv_polling()?.expect(&FromServer::Released)?;
        if let Some(endpoint) = &mut self.endpoint {
            rdma.iter_mut().flatten().try_for_each(|open| open.destroy(endpoint))?;
        }
        Ok(())
    }
}

impl Drop for Measurement<'_> {
    /// Disconnects from a remote server even if the session failed. Otherwise the server waits long for the client.
    fn drop(&mut self) {
        if let Some(endpoint) = self.endpoint.as_mut().filter(|_| self.server.is_remote()) {
            endpoint.close_control(true);
            // The server stops polling when it receives the disconnect. Over memif it must have stopped before this
            // process removes the device.
            std::thread::sleep(CLOSE_DELAY);
        }
    }
}

/// Creates a veth pair, and moves this thread to the namespace of the client's interface.
fn enter_veth(session: &Session) -> Result<VethPair, ClientError> {
    let veth = VethPair::without_addresses(session.mtu)?;
    veth.enter_client_namespace()?;
    Ok(veth)
}

/// Names the socket if a remote server over memif is not there.
#[cold]
fn link_error(error: RdmaError, session: &Session) -> ClientError {
    let config = session.client_config.as_deref().unwrap_or_default();
    let device = Config::from_toml(config).map(|config| config.port.device);
    match (error, session.server_placement, device) {
        (RdmaError::NoLink, ServerPlacement::Remote, Ok(DeviceConfig::Memif { socket, .. })) => {
            let socket = socket.display();
            ClientError::ServerGone(format!(
                "is not at the memif {socket}: start the server first, with the same socket"
            ))
        }
        (error, ..) => error.into(),
    }
}

impl CaseRunner for OpenGroup<'_, '_> {
    type Error = ClientError;

    fn slice(&mut self, index: usize) -> Result<Slice, ClientError> {
        let title = self.cases[index].title();
        tracing::info!("a slice of {title}");
        self.measurement.parent.send(&FromClient::Slice { title })?;
        self.measurement.request(&ToServer::Start { case: index })?.expect(&FromServer::Ready)?;
        let meter = UsageMeter::start(self.measurement.cpu_clock(), self.measurement.polls());
        let (mut slice, expected) = self.measure(index)?;
        slice.client = meter.stop(&self.measurement.polls());
        slice.cpu_ns = slice.client.cpu_ns;
        self.atomic_totals[index].changed = expected;
        let server = self.stop(index, expected)?;
        let case = &self.cases[index];
        if case.bidirectional {
            slice.add_arrived(&server);
        }
        let counted_at_server = matches!(case.test, Test::TcpBw | Test::FrameBw | Test::SmoltcpBw);
        let slice = slice.with_server(&server, counted_at_server);
        if self.group.reports_slices {
            let result = Box::new(CaseTotals::of_slice(case, &slice));
            self.measurement.parent.send(&FromClient::Interval(result))?;
        }
        Ok(slice)
    }

    fn hop_ns(&mut self) -> Option<f64> {
        // Two machines share no cache line.
        if self.measurement.server.is_remote() { None } else { hop_ns(self.measurement.session.processors()) }
    }

    fn interrupted(&mut self) -> bool {
        self.measurement.halted()
    }
}

impl OpenGroup<'_, '_> {
    /// Runs the client's part of a slice. Returns it, and what the server should have received by its end.
    fn measure(&mut self, index: usize) -> Result<(Slice, u64), ClientError> {
        let case = &self.cases[index];
        let measurement = &mut *self.measurement;
        let until = StopCondition { budget: self.group.cases[index].budget, halt: &measurement.halt };
        if case.test.transport() == Transport::KernelTcp {
            let connection = measurement.sockets.connection(case.path)?;
            return stream::client(connection, case, until)
                .map_err(|source| ClientError::System { what: "the Linux sockets", source });
        }
        let endpoint = measurement.endpoint.as_mut().ok_or(RdmaError::NoDevice)?;
        Ok(match &mut self.rdma[index] {
            Some(open) => open.run_client(endpoint, until)?,
            None => frames_client(endpoint, case, until, &mut measurement.sequence)?,
        })
    }

    /// Ends the slice. An RDMA case is polled until the server is done, because the server may still need responses.
    fn stop(&mut self, index: usize, expected: u64) -> Result<ServerSlice, ClientError> {
        let measurement = &mut *self.measurement;
        measurement.server.send(&ToServer::Stop { expected })?;
        let reply = match (&mut self.rdma[index], &mut measurement.endpoint) {
            (Some(open), Some(endpoint)) => measurement.server.recv_while(|| Ok(open.poll(endpoint)?))?,
            _ => measurement.server.recv()?,
        };
        match reply {
            FromServer::Done(server) => Ok(server),
            other => Err(ClientError::UnexpectedMessage(format!("{other:?}"))),
        }
    }
}
