//! Measuring a group: opening its cases, alternating their slices, adding up.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ironwarp::Config;
use ironwarp::config::DeviceConfig;
use ironwarp_bench::baseline::tcp;
use ironwarp_bench::host::{Activity, cpu_ns, hop_ns};
use ironwarp_bench::report::CorePolls;
use ironwarp_bench::rounds::{self, CaseRunner, CaseTotals, EndedEarly, Rounds, alternate};
use ironwarp_bench::{Case, Latency, PathKind, ServerSlice, Slice, StopCondition, Test, Transport};

use super::ClientError;
use super::atomic_totals::AtomicTotals;
use super::server_link::{ServerLink, expect_reply};
use super::sockets::Sockets;
use crate::control::{Channel, FromClient, FromServer, Measured, ToClient, ToServer};
use crate::plan::{Group, ServerPlacement, Session};
use crate::rdma::{Endpoint, RdmaCase, RdmaError, SleepCounts, frames_client, open_pair};

/// Between the last word to a server and this end's leaving.
const CLOSE_DELAY: Duration = Duration::from_millis(100);

/// A session under way.
pub struct Measurement<'a> {
    parent: &'a Channel<ToClient>,
    server: ServerLink,
    session: &'a Session,
    endpoint: Option<Endpoint>,
    sockets: Sockets,
    /// Sequence number of the next raw frame.
    sequence: u64,
    halt: Arc<AtomicBool>,
}

/// Why a device has no link, where that is the far end's affair.
#[cold]
fn link_error(error: RdmaError, config: &str) -> ClientError {
    match (error, Config::from_toml(config).map(|config| config.port.device)) {
        (RdmaError::NoLink, Ok(DeviceConfig::Memif { socket, .. })) => {
            let socket = socket.display();
            ClientError::ServerGone(format!(
                "is not at the memif {socket}: start its server first, with the same socket"
            ))
        }
        (error, _) => error.into(),
    }
}

/// A group whose cases are open.
struct OpenGroup<'m, 'a> {
    measurement: &'m mut Measurement<'a>,
    group: &'m Group,
    cases: Vec<Case>,
    /// The cases that run over the stack, in their places.
    rdma: Vec<Option<RdmaCase>>,
    /// What became of the operations of the cases that are atomic tests.
    atomic_totals: Vec<AtomicTotals>,
}

impl<'a> Measurement<'a> {
    /// Starts the far end and opens the devices of both ends.
    pub fn start(
        parent: &'a Channel<ToClient>,
        session: &'a Session,
        halt: Arc<AtomicBool>,
    ) -> Result<Self, ClientError> {
        if session.server_placement == ServerPlacement::Remote {
            return Self::connect_remote(parent, session, halt);
        }
        let (client, server) = match session.server_placement {
            ServerPlacement::Process => (None, None),
            _ => open_pair(session)?.map_or((None, None), |(client, server)| (Some(client), Some(server))),
        };
        let server = ServerLink::start(session, server, halt.clone())?;
        let sockets = Sockets::default();
        let mut this = Measurement { parent, server, session, endpoint: client, sockets, sequence: 0, halt };
        this.open_devices()?;
        Ok(this)
    }

    /// Opens this end's device and calls the server over it.
    fn connect_remote(
        parent: &'a Channel<ToClient>,
        session: &'a Session,
        halt: Arc<AtomicBool>,
    ) -> Result<Self, ClientError> {
        let (config, peer) = session.client_config.as_ref().zip(session.peer).ok_or(RdmaError::NoDevice)?;
        let mut endpoint = Endpoint::open(config, session.worker_processor(), session.events)?;
        if let Some(path) = &session.pcap {
            endpoint.capture(path, "near")?;
        }
        endpoint.wait_for_link().map_err(|error| link_error(error, config))?;
        let (server, carrier) = ServerLink::to_remote(halt.clone());
        endpoint.connect_control(peer, carrier)?;
        let (endpoint, sockets) = (Some(endpoint), Sockets::default());
        Ok(Measurement { parent, server, session, endpoint, sockets, sequence: 0, halt })
    }

    /// Says something to the far end and waits for the answer.
    fn request(&mut self, message: &ToServer) -> Result<FromServer, ClientError> {
        if !self.server.is_remote() {
            return self.server.request(message);
        }
        self.server.send(message)?;
        let endpoint = &mut self.endpoint;
        self.server.recv_while(|| poll_endpoint(endpoint))
    }

    /// The far end first: it may be the one that makes the socket that this end connects to.
    fn open_devices(&mut self) -> Result<(), ClientError> {
        let reply = self.server.request(&ToServer::Open(Box::new(self.session.server_setup.clone())))?;
        expect_reply(reply, |reply| if matches!(reply, FromServer::Opened) { Ok(()) } else { Err(reply) })?;
        if self.endpoint.is_none()
            && let Some(config) = &self.session.client_config
        {
            self.endpoint =
                Some(Endpoint::open(config, self.session.worker_processor(), self.session.events)?);
        }
        let Some(endpoint) = &mut self.endpoint else { return Ok(()) };
        if let Some(path) = &self.session.pcap {
            endpoint.capture(path, "near")?;
        }
        Ok(endpoint.wait_for_link()?)
    }

    /// Whether the user, or an end that went, said halt.
    pub fn halted(&self) -> bool {
        self.halt.load(Ordering::Relaxed)
    }

    /// Measures a group and tells the parent, also when it was cut short.
    pub fn group(&mut self, group: &Group) -> Result<(), ClientError> {
        let (cases, notes) = self.choose_paths(group)?;
        let rdma = self.open(&cases)?;
        let plan = rounds::RoundPlan {
            cases: cases.len(),
            floor: group.floor,
            rounds: group.rounds,
            spare_rounds: group.spare_rounds,
        };
        let atomic_totals = vec![AtomicTotals::default(); cases.len()];
        let mut open = OpenGroup { measurement: self, group, cases, rdma, atomic_totals };
        let polls_before = open.measurement.endpoint.as_ref().map(Endpoint::polls).unwrap_or_default();
        let (rounds, why) = alternate(&mut open, &plan);
        let OpenGroup { cases, rdma, atomic_totals, .. } = open;
        if !rounds.rounds.is_empty() {
            let polls = self.endpoint.as_ref().map(|endpoint| polls_since(&polls_before, endpoint.polls()));
            let sleeps = self.endpoint.as_mut().and_then(Endpoint::take_sleep_counts);
            let results = (0..cases.len()).map(|index| {
                let mut measured = self.measured(group, &cases, &notes, &rounds, index);
                atomic_totals[index].add_notes(&cases[index], &mut measured.result);
                if let Some(open) = &rdma[index] {
                    open.report_framing(&mut measured.result);
                    measured.result.polls = polls.clone();
                }
                if let Some(SleepCounts { all, woken, stale }) = sleeps {
                    let note = format!(
                        "the near end slept {all} times and was woken by an event {woken} times; {stale} events were stale"
                    );
                    measured.result.notes.push(note);
                }
                measured
            });
            let results = results.collect();
            self.parent.send(&FromClient::Results(results))?;
        }
        match why {
            None | Some(EndedEarly::ByUser) => self.close(rdma),
            Some(EndedEarly::Failed { case, error }) => {
                Err(ClientError::Case { title: cases[case].title(), source: Box::new(error) })
            }
        }
    }

    /// Ends the session in order: the server closes its device before the client does.
    pub fn finish(mut self) -> Result<(), ClientError> {
        if !self.server.is_remote() {
            return self.server.shut_down();
        }
        let reply = self.request(&ToServer::Goodbye)?;
        expect_reply(reply, |reply| if matches!(reply, FromServer::Gone) { Ok(()) } else { Err(reply) })?;
        Ok(())
    }

    /// The cases as they can run, and a note where that is not as asked.
    fn choose_paths(&mut self, group: &Group) -> Result<(Vec<Case>, Vec<Option<String>>), ClientError> {
        let (mut cases, mut notes) = (Vec::new(), Vec::new());
        for wanted in &group.cases {
            let mut case = wanted.case.clone();
            let mut note = group.note.clone();
            if case.test.transport() == Transport::KernelTcp {
                (case.path, note) = self.sockets.open(&mut self.server, case.path, case.mtu)?;
            }
            cases.push(case);
            notes.push(note);
        }
        Ok((cases, notes))
    }

    /// Opens and connects what runs over the stack.
    fn open(&mut self, cases: &[Case]) -> Result<Vec<Option<RdmaCase>>, ClientError> {
        let reply = self.request(&ToServer::Prepare { cases: cases.to_vec() })?;
        expect_reply(reply, |reply| if matches!(reply, FromServer::Prepared) { Ok(()) } else { Err(reply) })?;
        let mut rdma = Vec::new();
        for (number, case) in cases.iter().enumerate() {
            rdma.push(match case.test.transport() {
                Transport::Ironwarp => Some(self.connect(number, case)?),
                _ => None,
            });
        }
        let endpoint = &mut self.endpoint;
        let reply = self.server.recv_while(|| poll_endpoint(endpoint))?;
        expect_reply(
            reply,
            |reply| if matches!(reply, FromServer::Connected) { Ok(()) } else { Err(reply) },
        )?;
        Ok(rdma)
    }

    fn connect(&mut self, number: usize, case: &Case) -> Result<RdmaCase, ClientError> {
        let endpoint = self.endpoint.as_mut().ok_or(RdmaError::NoDevice)?;
        let peer = self.session.peer.ok_or(RdmaError::NoDevice)?;
        let mut open = RdmaCase::new(endpoint, case, true)?;
        open.connect(endpoint, number, peer)?;
        Ok(open)
    }

    /// Closes what runs over the stack, at both ends.
    fn close(&mut self, mut rdma: Vec<Option<RdmaCase>>) -> Result<(), ClientError> {
        self.server.send(&ToServer::Release)?;
        if let Some(endpoint) = &mut self.endpoint {
            rdma.iter_mut().flatten().try_for_each(|open| open.disconnect(endpoint))?;
        }
        let endpoint = &mut self.endpoint;
        let reply = self.server.recv_while(|| poll_endpoint(endpoint))?;
        expect_reply(reply, |reply| if matches!(reply, FromServer::Released) { Ok(()) } else { Err(reply) })?;
        if let Some(endpoint) = &mut self.endpoint {
            rdma.into_iter().flatten().try_for_each(|open| open.destroy(endpoint))?;
        }
        Ok(())
    }

    fn measured(
        &self,
        group: &Group,
        cases: &[Case],
        notes: &[Option<String>],
        rounds: &Rounds,
        index: usize,
    ) -> Measured {
        let case = &cases[index];
        // Loopback is never a goal's denominator.
        let comparable =
            group.cases[index].against.iter().filter(|&&other| cases[other].path != PathKind::Lo);
        let baselines: Vec<_> = comparable.map(|&other| (&cases[other], rounds.case(other))).collect();
        let totals = CaseTotals::of(&rounds.case(index));
        let mut result = totals.result(case, self.session.device.clone(), &rounds.case(index), &baselines);
        result.notes.extend(notes[index].clone());
        Measured { result, latency: totals.latency.as_ref().map(Latency::to_text) }
    }
}

impl Drop for Measurement<'_> {
    /// Hangs up on a server, however the session went: it would wait long for a near end that just leaves.
    fn drop(&mut self) {
        if let Some(endpoint) = self.endpoint.as_mut().filter(|_| self.server.is_remote()) {
            endpoint.close_control(true);
            // The server stops polling when it has heard the last of this end; over memif it must have by the time
            // that this process takes the device away.
            std::thread::sleep(CLOSE_DELAY);
        }
    }
}

/// How often each core has looked for work since an earlier count.
pub fn polls_since(before: &[CorePolls], now: Vec<CorePolls>) -> Vec<CorePolls> {
    let at = |core: u16| before.iter().find(|one| one.core == core).copied().unwrap_or_default();
    let less = |one: CorePolls| {
        let before = at(one.core);
        CorePolls { core: one.core, polls: one.polls - before.polls, idle: one.idle - before.idle }
    };
    now.into_iter().map(less).collect()
}

/// One turn of the stack's loop, where there is a stack.
fn poll_endpoint(endpoint: &mut Option<Endpoint>) -> Result<(), ClientError> {
    match endpoint {
        Some(endpoint) => {
            endpoint.poll();
            if let Some(why) = endpoint.control_loss() {
                return Err(ClientError::ServerGone(format!("can no longer be reached: {why}")));
            }
        }
        None => std::thread::yield_now(),
    }
    Ok(())
}

impl CaseRunner for OpenGroup<'_, '_> {
    type Error = ClientError;

    fn slice(&mut self, case: usize) -> Result<Slice, ClientError> {
        let title = self.cases[case].title();
        tracing::info!("a slice of {title}");
        self.measurement.parent.send(&FromClient::Slice { title })?;
        let reply = self.measurement.request(&ToServer::Start { case })?;
        expect_reply(reply, |reply| if matches!(reply, FromServer::Ready) { Ok(()) } else { Err(reply) })?;
        let before = cpu_ns();
        let (mut slice, expected) = self.measure(case)?;
        slice.cpu_ns = Some(cpu_ns().saturating_sub(before));
        self.atomic_totals[case].changed = expected;
        let server = self.stop(case, expected)?;
        Ok(combine_slices(&self.cases[case], slice, &server))
    }

    fn hop_ns(&mut self) -> Option<f64> {
        // Between two machines there is no hop from core to core.
        if self.measurement.server.is_remote() { None } else { hop_ns(self.measurement.session.processors()) }
    }

    fn activity(&mut self) -> Activity {
        Activity::now()
    }

    fn interrupted(&mut self) -> bool {
        self.measurement.halted()
    }
}

/// Both ends' accounts of one slice.
fn combine_slices(case: &Case, mut slice: Slice, server: &ServerSlice) -> Slice {
    let counted_at_server = matches!(case.test, Test::TcpBw | Test::FrameBw);
    if case.bidirectional {
        slice.messages += server.messages;
        slice.bytes += server.bytes;
    }
    slice.with_server(server, counted_at_server)
}

impl OpenGroup<'_, '_> {
    /// This end's part of a slice, and what the far end should have received by its end.
    fn measure(&mut self, index: usize) -> Result<(Slice, u64), ClientError> {
        let case = &self.cases[index];
        let measurement = &mut *self.measurement;
        let until = StopCondition { budget: self.group.cases[index].budget, halt: &measurement.halt };
        let failed = |source| ClientError::System { what: "the Linux sockets", source };
        match case.test {
            Test::TcpLat => {
                let connection = measurement.sockets.connection(case.path)?;
                tcp::latency(connection, case, until).map(|slice| (slice, 0)).map_err(failed)
            }
            Test::TcpBw => {
                let connection = measurement.sockets.connection(case.path)?;
                tcp::bandwidth(connection, case, until).map_err(failed)
            }
            Test::FrameLat | Test::FrameBw => {
                let endpoint = measurement.endpoint.as_mut().ok_or(RdmaError::NoDevice)?;
                Ok(frames_client(endpoint, case, until, &mut measurement.sequence)?)
            }
            _ => {
                let endpoint = measurement.endpoint.as_mut().ok_or(RdmaError::NoDevice)?;
                let open = self.rdma[index].as_mut().ok_or(RdmaError::NoDevice)?;
                Ok(open.run_client(endpoint, until)?)
            }
        }
    }

    /// Ends the slice. The far end may still need this end's answers, so this end polls until it is done.
    fn stop(&mut self, index: usize, expected: u64) -> Result<ServerSlice, ClientError> {
        let measurement = &mut *self.measurement;
        measurement.server.send(&ToServer::Stop { expected })?;
        let reply = match (&mut self.rdma[index], &mut measurement.endpoint) {
            (Some(open), Some(endpoint)) => measurement.server.recv_while(|| Ok(open.poll(endpoint)?))?,
            _ => measurement.server.recv()?,
        };
        expect_reply(reply, |reply| match reply {
            FromServer::Done(server) => Ok(server),
            other => Err(other),
        })
    }
}
