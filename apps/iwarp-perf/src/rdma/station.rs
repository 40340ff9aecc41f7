//! A station: one core that plays both ends over its own queues of the device, polled by one thread.
//!
//! The near end is an ordinary one; the far end stands beside it and has a turn with each of the near end's, so that the
//! same loops measure it. Nothing is shared with another station but the stacks that both belong to.

use std::net::SocketAddr;
use std::sync::Arc;

use ironwarp::{PortVisit, ProtectionDomain, Stack, Worker};
use ironwarp_bench::baseline::frames::{Layout, relay};
use ironwarp_bench::report::CorePolls;
use ironwarp_bench::{Case, Pace, Slice, Transport};
use ironwarp_port::Port;

use super::case::OpenRdma;
use super::endpoint::{Endpoint, RdmaError};
use super::lanes::{Words, words};

/// What all stations' ends of one side belong to.
pub struct Side {
    stack: Arc<Stack>,
    cores: u16,
    pd: ProtectionDomain,
}

impl Side {
    /// A stack and the number of its cores.
    pub fn new(stack: Stack, cores: usize) -> Self {
        Side { pd: stack.alloc_pd(), stack: Arc::new(stack), cores: cores as u16 }
    }
}

/// One core, both ends.
pub struct Station {
    near: Endpoint,
    /// The cases, in their places: those over the stack that this core takes part in.
    open: Vec<Option<OpenRdma>>,
    peer: SocketAddr,
    /// Turns while others were measured.
    turns: u32,
}

/// The far end of a station.
pub struct Beside {
    endpoint: Endpoint,
    open: Vec<Option<OpenRdma>>,
    /// The case that is served.
    served: Option<usize>,
    /// The case whose queue pairs are let in.
    connecting: Option<usize>,
    failed: Option<RdmaError>,
}

impl Beside {
    /// One turn. What fails is told when the slice is over.
    pub fn turn(&mut self) {
        if let Err(error) = self.try_turn() {
            self.failed.get_or_insert(error);
        }
    }

    fn try_turn(&mut self) -> Result<(), RdmaError> {
        if let Some(open) = self.served.and_then(|case| self.open.get_mut(case)?.as_mut()) {
            return open.serve(&mut self.endpoint);
        }
        self.endpoint.turn();
        if let Some(open) = self.connecting.and_then(|case| self.open.get_mut(case)?.as_mut())
            && let Some(event) = self.endpoint.poll_event()
        {
            open.accept_one(&mut self.endpoint, event)?;
        }
        Ok(())
    }

    fn check(&mut self) -> Result<(), RdmaError> {
        self.failed.take().map_or(Ok(()), Err)
    }
}

impl Station {
    /// A core of two stacks that are joined back to back. The far end listens at `peer`, a port of this station's own.
    pub fn new(near: (&Side, Worker), far: (&Side, Worker), peer: SocketAddr) -> Result<Self, RdmaError> {
        let of =
            |(side, worker): (&Side, Worker)| Endpoint::of_core(&side.stack, worker, (side.cores, side.pd));
        let (mut near, mut endpoint) = (of(near)?, of(far)?);
        endpoint.listen(peer)?;
        let beside = Beside { endpoint, open: Vec::new(), served: None, connecting: None, failed: None };
        *near.beside() = Some(Box::new(beside));
        Ok(Station { near, open: Vec::new(), peer, turns: 0 })
    }

    /// One turn of both ends.
    pub fn turn(&mut self) {
        self.near.turn();
    }

    /// A turn while others are measured: the far end's core may own words that they ask for. The near end, which has nothing to
    /// do, would keep them waiting; it is looked after now and then.
    pub fn stand_by(&mut self) {
        /// Turns of the far end to one of both.
        const TURNS_TO_ONE: u32 = 64;
        self.turns = self.turns.wrapping_add(1);
        match self.near.beside() {
            Some(beside) if !self.turns.is_multiple_of(TURNS_TO_ONE) => beside.turn(),
            _ => self.turn(),
        }
    }

    /// Lets the far end's core hear what it was told.
    pub fn hear(&mut self) -> Result<(), RdmaError> {
        self.beside()?.endpoint.hear()
    }

    /// Opens and connects the next case, or leaves its place empty where this station has no part in it.
    /// `words` are the far end's, where stations share them.
    pub fn open(&mut self, case: &Case, takes_part: bool, words: Option<Words>) -> Result<(), RdmaError> {
        let takes_part = takes_part && case.test.transport() == Transport::Ironwarp;
        let mine = || Case { qps: case.qps / case.cores, cores: 1, ..case.clone() };
        let number = self.open.len();
        let near = takes_part.then(|| OpenRdma::new(&mut self.near, &mine(), true)).transpose()?;
        let beside = self.beside()?;
        let far = || OpenRdma::with_words(&mut beside.endpoint, &mine(), false, words);
        let far = takes_part.then(far).transpose()?;
        beside.open.push(far);
        beside.connecting = Some(number);
        let (peer, endpoint) = (self.peer, &mut self.near);
        // Each station has one case at a time that is connected, so it is the first of what is offered.
        let connected = near.map(|mut open| open.connect(endpoint, 0, peer).map(|()| open)).transpose()?;
        self.open.push(connected);
        let beside = self.beside()?;
        beside.connecting = None;
        beside.check()
    }

    /// What the far end has done with atomic operations so far: those on words of its own core, and those that it mailed.
    pub fn atomics(&mut self) -> [u64; 2] {
        self.beside().map_or([0; 2], |beside| beside.endpoint.atomics())
    }

    /// Words for the far ends of all stations.
    pub fn words(&mut self, case: &Case) -> Result<Words, RdmaError> {
        words(&mut self.beside()?.endpoint, case)
    }

    /// The far end's words in a case.
    pub fn words_of(&mut self, number: usize) -> Result<Option<Words>, RdmaError> {
        Ok(self.beside()?.open.get(number).and_then(Option::as_ref).map(|open| open.words().clone()))
    }

    /// This station's part of a slice, and what its part of all slices must have added to the far end's words.
    pub fn slice(&mut self, number: usize, case: &Case, pace: Pace<'_>) -> Result<(Slice, u64), RdmaError> {
        if case.test.transport() == Transport::Frames {
            return Ok((self.frames(Layout::new(case.bytes, case.mtu), pace)?, 0));
        }
        self.beside()?.served = Some(number);
        let open = self.open.get_mut(number).and_then(Option::as_mut).ok_or(RdmaError::NoDevice)?;
        let outcome = open.near(&mut self.near, pace)?;
        let beside = self.beside()?;
        beside.served = None;
        beside.check()?;
        Ok(outcome)
    }

    /// Raw frames over the same two queues, while the stacks stand still.
    fn frames(&mut self, layout: Layout, pace: Pace<'_>) -> Result<Slice, RdmaError> {
        let mut beside = self.near.beside().take().ok_or(RdmaError::NoDevice)?;
        let far = &mut beside.endpoint;
        let outcome = self.near.with_worker(|worker| worker.with_port(NearPort { far, layout, pace }));
        *self.near.beside() = Some(beside);
        outcome?.ok_or(RdmaError::NoDevice)?
    }

    /// How often the near end's core has looked for work.
    pub fn polls(&self) -> Vec<CorePolls> {
        self.near.polls()
    }

    fn beside(&mut self) -> Result<&mut Beside, RdmaError> {
        self.near.beside().as_deref_mut().ok_or(RdmaError::NoDevice)
    }
}

struct NearPort<'a> {
    far: &'a mut Endpoint,
    layout: Layout,
    pace: Pace<'a>,
}

struct FarPort<'a, N> {
    near: &'a mut N,
    layout: Layout,
    pace: Pace<'a>,
}

impl PortVisit for NearPort<'_> {
    type Output = Result<Slice, RdmaError>;

    fn visit<P: Port>(self, near: &mut P) -> Self::Output {
        let NearPort { far, layout, pace } = self;
        let outcome = far.with_worker(|worker| worker.with_port(FarPort { near, layout, pace }))?;
        outcome.ok_or(RdmaError::NoDevice)
    }
}

impl<N: Port> PortVisit for FarPort<'_, N> {
    type Output = Slice;

    fn visit<P: Port>(self, far: &mut P) -> Slice {
        relay(self.near, far, self.layout, self.pace)
    }
}
