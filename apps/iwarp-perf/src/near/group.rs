//! Measuring a group: opening its cases, alternating their slices, adding up.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ironwarp::Config;
use ironwarp::config::DeviceConfig;
use ironwarp_bench::baseline::tcp;
use ironwarp_bench::host::{Activity, cpu_ns, hop_ns};
use ironwarp_bench::report::CorePolls;
use ironwarp_bench::rounds::{self, Interrupted, Pair, Rounds, Tally, alternate};
use ironwarp_bench::{Case, FarSlice, Latency, Pace, PathKind, Slice, Test, Transport};

use super::NearError;
use super::link::{FarLink, due};
use super::sockets::Sockets;
use super::words::Account;
use crate::control::{Channel, FromFar, FromNear, Measured, ToFar, ToNear};
use crate::plan::{FarPlace, Group, Session};
use crate::rdma::{Endpoint, OpenRdma, RdmaError, Sleeps, frames_near, open_pair};

/// Between the last word to a server and this end's leaving.
const LEAVE_AFTER: Duration = Duration::from_millis(100);

/// A session under way.
pub struct Measuring<'a> {
    parent: &'a Channel<ToNear>,
    far: FarLink,
    session: &'a Session,
    endpoint: Option<Endpoint>,
    sockets: Sockets,
    /// Sequence number of the next raw frame.
    sequence: u64,
    halt: Arc<AtomicBool>,
}

/// Why a device has no link, where that is the far end's affair.
#[cold]
fn unlinked(error: RdmaError, config: &str) -> NearError {
    match (error, Config::from_toml(config).map(|config| config.port.device)) {
        (RdmaError::NoLink, Ok(DeviceConfig::Memif { socket, .. })) => {
            let socket = socket.display();
            NearError::FarGone(format!(
                "is not at the memif {socket}: start its server first, with the same socket"
            ))
        }
        (error, _) => error.into(),
    }
}

/// A group whose cases are open.
struct OpenGroup<'m, 'a> {
    measuring: &'m mut Measuring<'a>,
    group: &'m Group,
    cases: Vec<Case>,
    /// The cases that run over the stack, in their places.
    rdma: Vec<Option<OpenRdma>>,
    /// What became of the operations of the cases that are atomic tests.
    accounts: Vec<Account>,
}

impl<'a> Measuring<'a> {
    /// Starts the far end and opens the devices of both ends.
    pub fn start(
        parent: &'a Channel<ToNear>,
        session: &'a Session,
        halt: Arc<AtomicBool>,
    ) -> Result<Self, NearError> {
        if session.far == FarPlace::Server {
            return Self::call(parent, session, halt);
        }
        let (near, far) = match session.far {
            FarPlace::Process => (None, None),
            _ => open_pair(session)?.map_or((None, None), |(near, far)| (Some(near), Some(far))),
        };
        let far = FarLink::start(session, far, halt.clone())?;
        let sockets = Sockets::default();
        let mut this = Measuring { parent, far, session, endpoint: near, sockets, sequence: 0, halt };
        this.open_devices()?;
        Ok(this)
    }

    /// Opens this end's device and calls the server over it.
    fn call(
        parent: &'a Channel<ToNear>,
        session: &'a Session,
        halt: Arc<AtomicBool>,
    ) -> Result<Self, NearError> {
        let (config, peer) = session.near_config.as_ref().zip(session.peer).ok_or(RdmaError::NoDevice)?;
        let mut endpoint = Endpoint::open(config, session.apart(), session.events)?;
        if let Some(path) = &session.pcap {
            endpoint.capture(path, "near")?;
        }
        endpoint.wait_for_link().map_err(|error| unlinked(error, config))?;
        let (far, wire) = FarLink::to_server(halt.clone());
        endpoint.call(peer, wire)?;
        let (endpoint, sockets) = (Some(endpoint), Sockets::default());
        Ok(Measuring { parent, far, session, endpoint, sockets, sequence: 0, halt })
    }

    /// Says something to the far end and waits for the answer.
    fn ask(&mut self, message: &ToFar) -> Result<FromFar, NearError> {
        if !self.far.is_server() {
            return self.far.ask(message);
        }
        self.far.send(message)?;
        let endpoint = &mut self.endpoint;
        self.far.recv_while(|| turn(endpoint))
    }

    /// The far end first: it may be the one that makes the socket that this end connects to.
    fn open_devices(&mut self) -> Result<(), NearError> {
        let answer = self.far.ask(&ToFar::Open(Box::new(self.session.far_setup.clone())))?;
        due(answer, |answer| if matches!(answer, FromFar::Opened) { Ok(()) } else { Err(answer) })?;
        if self.endpoint.is_none()
            && let Some(config) = &self.session.near_config
        {
            self.endpoint = Some(Endpoint::open(config, self.session.apart(), self.session.events)?);
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
    pub fn group(&mut self, group: &Group) -> Result<(), NearError> {
        let (cases, notes) = self.choose_paths(group)?;
        let rdma = self.open(&cases)?;
        let plan = rounds::Plan {
            cases: cases.len(),
            floor: group.floor,
            rounds: group.rounds,
            spare_rounds: group.spare_rounds,
        };
        let accounts = vec![Account::default(); cases.len()];
        let mut open = OpenGroup { measuring: self, group, cases, rdma, accounts };
        let polls_before = open.measuring.endpoint.as_ref().map(Endpoint::polls).unwrap_or_default();
        let (rounds, why) = alternate(&mut open, &plan);
        let OpenGroup { cases, rdma, accounts, .. } = open;
        if !rounds.rounds.is_empty() {
            let polls = self.endpoint.as_ref().map(|endpoint| since(&polls_before, endpoint.polls()));
            let sleeps = self.endpoint.as_mut().and_then(Endpoint::take_sleeps);
            let results = (0..cases.len()).map(|index| {
                let mut measured = self.measured(group, &cases, &notes, &rounds, index);
                accounts[index].note(&cases[index], &mut measured.result);
                if let Some(open) = &rdma[index] {
                    open.state_framing(&mut measured.result);
                    measured.result.polls = polls.clone();
                }
                if let Some(Sleeps { all, woken, stale }) = sleeps {
                    let note = format!(
                        "the near end slept {all} times and was woken by an event {woken} times; {stale} events were stale"
                    );
                    measured.result.notes.push(note);
                }
                measured
            });
            let results = results.collect();
            self.parent.send(&FromNear::Results(results))?;
        }
        match why {
            None | Some(Interrupted::ByUser) => self.close(rdma),
            Some(Interrupted::Failed { case, error }) => {
                Err(NearError::Case { title: cases[case].title(), source: Box::new(error) })
            }
        }
    }

    /// Ends the session in good order: the far end lets go of its device before this end does.
    pub fn goodbye(mut self) -> Result<(), NearError> {
        if !self.far.is_server() {
            return self.far.dismiss();
        }
        let answer = self.ask(&ToFar::Goodbye)?;
        due(answer, |answer| if matches!(answer, FromFar::Gone) { Ok(()) } else { Err(answer) })?;
        Ok(())
    }

    /// The cases as they can run, and a note where that is not as asked.
    fn choose_paths(&mut self, group: &Group) -> Result<(Vec<Case>, Vec<Option<String>>), NearError> {
        let (mut cases, mut notes) = (Vec::new(), Vec::new());
        for wanted in &group.cases {
            let mut case = wanted.case.clone();
            let mut note = group.note.clone();
            if case.test.transport() == Transport::KernelTcp {
                (case.path, note) = self.sockets.open(&mut self.far, case.path, case.mtu)?;
            }
            cases.push(case);
            notes.push(note);
        }
        Ok((cases, notes))
    }

    /// Opens and connects what runs over the stack.
    fn open(&mut self, cases: &[Case]) -> Result<Vec<Option<OpenRdma>>, NearError> {
        let answer = self.ask(&ToFar::Prepare { cases: cases.to_vec() })?;
        due(answer, |answer| if matches!(answer, FromFar::Prepared) { Ok(()) } else { Err(answer) })?;
        let mut rdma = Vec::new();
        for (number, case) in cases.iter().enumerate() {
            rdma.push(match case.test.transport() {
                Transport::Ironwarp => Some(self.connect(number, case)?),
                _ => None,
            });
        }
        let endpoint = &mut self.endpoint;
        let answer = self.far.recv_while(|| turn(endpoint))?;
        due(answer, |answer| if matches!(answer, FromFar::Connected) { Ok(()) } else { Err(answer) })?;
        Ok(rdma)
    }

    fn connect(&mut self, number: usize, case: &Case) -> Result<OpenRdma, NearError> {
        let endpoint = self.endpoint.as_mut().ok_or(RdmaError::NoDevice)?;
        let peer = self.session.peer.ok_or(RdmaError::NoDevice)?;
        let mut open = OpenRdma::new(endpoint, case, true)?;
        open.connect(endpoint, number, peer)?;
        Ok(open)
    }

    /// Closes what runs over the stack, at both ends.
    fn close(&mut self, mut rdma: Vec<Option<OpenRdma>>) -> Result<(), NearError> {
        self.far.send(&ToFar::Release)?;
        if let Some(endpoint) = &mut self.endpoint {
            rdma.iter_mut().flatten().try_for_each(|open| open.disconnect(endpoint))?;
        }
        let endpoint = &mut self.endpoint;
        let answer = self.far.recv_while(|| turn(endpoint))?;
        due(answer, |answer| if matches!(answer, FromFar::Released) { Ok(()) } else { Err(answer) })?;
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
        let tally = Tally::of(&rounds.case(index));
        let mut result = tally.result(case, self.session.device.clone(), &rounds.case(index), &baselines);
        result.notes.extend(notes[index].clone());
        Measured { result, latency: tally.latency.as_ref().map(Latency::to_text) }
    }
}

impl Drop for Measuring<'_> {
    /// Hangs up on a server, however the session went: it would wait long for a near end that just leaves.
    fn drop(&mut self) {
        if let Some(endpoint) = self.endpoint.as_mut().filter(|_| self.far.is_server()) {
            endpoint.hang_up(true);
            // The server stops polling when it has heard the last of this end; over memif it must have by the time
            // that this process takes the device away.
            std::thread::sleep(LEAVE_AFTER);
        }
    }
}

/// How often each core has looked for work since an earlier count.
pub fn since(before: &[CorePolls], now: Vec<CorePolls>) -> Vec<CorePolls> {
    let at = |core: u16| before.iter().find(|one| one.core == core).copied().unwrap_or_default();
    let less = |one: CorePolls| {
        let before = at(one.core);
        CorePolls { core: one.core, polls: one.polls - before.polls, idle: one.idle - before.idle }
    };
    now.into_iter().map(less).collect()
}

/// One turn of the stack's loop, where there is a stack.
fn turn(endpoint: &mut Option<Endpoint>) -> Result<(), NearError> {
    match endpoint {
        Some(endpoint) => {
            endpoint.turn();
            if let Some(why) = endpoint.cut_off() {
                return Err(NearError::FarGone(format!("can no longer be reached: {why}")));
            }
        }
        None => std::thread::yield_now(),
    }
    Ok(())
}

impl Pair for OpenGroup<'_, '_> {
    type Error = NearError;

    fn slice(&mut self, case: usize) -> Result<Slice, NearError> {
        let title = self.cases[case].title();
        tracing::info!("a slice of {title}");
        self.measuring.parent.send(&FromNear::Slice { title })?;
        let answer = self.measuring.ask(&ToFar::Start { case })?;
        due(answer, |answer| if matches!(answer, FromFar::Ready) { Ok(()) } else { Err(answer) })?;
        let before = cpu_ns();
        let (mut slice, expected) = self.measure(case)?;
        slice.cpu_ns = Some(cpu_ns().saturating_sub(before));
        self.accounts[case].changed = expected;
        let far = self.stop(case, expected)?;
        Ok(account(&self.cases[case], slice, &far))
    }

    fn hop_ns(&mut self) -> Option<f64> {
        // Between two machines there is no hop from core to core.
        if self.measuring.far.is_server() { None } else { hop_ns(self.measuring.session.processors()) }
    }

    fn activity(&mut self) -> Activity {
        Activity::now()
    }

    fn interrupted(&mut self) -> bool {
        self.measuring.halted()
    }
}

/// Both ends' accounts of one slice.
fn account(case: &Case, mut slice: Slice, far: &FarSlice) -> Slice {
    let counted_at_far = matches!(case.test, Test::TcpBw | Test::FrameBw);
    if case.bidirectional {
        slice.messages += far.messages;
        slice.bytes += far.bytes;
    }
    slice.with_far(far, counted_at_far)
}

impl OpenGroup<'_, '_> {
    /// This end's part of a slice, and what the far end should have received by its end.
    fn measure(&mut self, index: usize) -> Result<(Slice, u64), NearError> {
        let case = &self.cases[index];
        let measuring = &mut *self.measuring;
        let pace = Pace { budget: self.group.cases[index].budget, halt: &measuring.halt };
        let failed = |source| NearError::System { what: "the Linux sockets", source };
        match case.test {
            Test::TcpLat => {
                let link = measuring.sockets.link(case.path)?;
                tcp::latency(link, case, pace).map(|slice| (slice, 0)).map_err(failed)
            }
            Test::TcpBw => {
                let link = measuring.sockets.link(case.path)?;
                tcp::bandwidth(link, case, pace).map_err(failed)
            }
            Test::FrameLat | Test::FrameBw => {
                let endpoint = measuring.endpoint.as_mut().ok_or(RdmaError::NoDevice)?;
                Ok(frames_near(endpoint, case, pace, &mut measuring.sequence)?)
            }
            _ => {
                let endpoint = measuring.endpoint.as_mut().ok_or(RdmaError::NoDevice)?;
                let open = self.rdma[index].as_mut().ok_or(RdmaError::NoDevice)?;
                Ok(open.near(endpoint, pace)?)
            }
        }
    }

    /// Ends the slice. The far end may still need this end's answers, so this end polls until it is done.
    fn stop(&mut self, index: usize, expected: u64) -> Result<FarSlice, NearError> {
        let measuring = &mut *self.measuring;
        measuring.far.send(&ToFar::Stop { expected })?;
        let answer = match (&mut self.rdma[index], &mut measuring.endpoint) {
            (Some(open), Some(endpoint)) => measuring.far.recv_while(|| Ok(open.turn(endpoint)?))?,
            _ => measuring.far.recv()?,
        };
        due(answer, |answer| match answer {
            FromFar::Done(far) => Ok(far),
            other => Err(other),
        })
    }
}
