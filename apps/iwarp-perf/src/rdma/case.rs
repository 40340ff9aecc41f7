//! A case over the stack, open at one end: its lanes, and what runs over them.

use std::net::{IpAddr, SocketAddr};

use ironwarp::Event;
use ironwarp_bench::report::TestResult;
use ironwarp_bench::{Case, FarSlice, Pace, Slice, StopSignal};

use super::endpoint::{Endpoint, RdmaError};
use super::lanes::{self, OpenCase, Words};
use super::slices::{Atomics, Reaped, Stream, latency_far, latency_near, latency_turn};

/// An open case.
pub struct OpenRdma {
    open: OpenCase,
    work: Work,
}

/// What is done in a slice.
enum Work {
    Atomics(Atomics),
    Stream(Stream),
    RoundTrips(Box<Reaped>),
}

impl OpenRdma {
    /// Makes everything but the connections.
    pub fn new(endpoint: &mut Endpoint, case: &Case, near: bool) -> Result<Self, RdmaError> {
        Self::with_words(endpoint, case, near, None)
    }

    /// The same, with words that are there already.
    pub fn with_words(
        endpoint: &mut Endpoint,
        case: &Case,
        near: bool,
        words: Option<Words>,
    ) -> Result<Self, RdmaError> {
        let open = OpenCase::new(endpoint, case, words)?;
        let work = match case.test {
            test if test.is_atomic() => Work::Atomics(Atomics::new(&open)),
            test if test.is_latency() => Work::RoundTrips(Box::default()),
            _ => Work::Stream(Stream::new(&open, near)),
        };
        Ok(OpenRdma { open, work })
    }

    /// Connects the near end. `number` is the case's place in its group.
    pub fn connect(
        &mut self,
        endpoint: &mut Endpoint,
        number: usize,
        peer: SocketAddr,
    ) -> Result<(), RdmaError> {
        self.open.connect(endpoint, number, peer)
    }

    /// States in a result what start-up settled, which need not be what was asked for.
    pub fn state_framing(&self, result: &mut TestResult) {
        let framing = self.open.framing();
        let markers = framing.iter().flat_map(|framing| [framing.markers.sent, framing.markers.received]);
        result.crc = (!framing.is_empty()).then(|| framing.iter().all(|framing| framing.crc));
        result.markers = (!framing.is_empty()).then(|| markers.clone().all(|on| on));
        if result.markers == Some(false) && markers.clone().any(|on| on) {
            result.notes.push("markers one way only".to_owned());
        }
    }

    /// Queue pairs.
    pub fn connections(&self) -> usize {
        self.open.lanes.len()
    }

    /// The near end of a slice. Answers it, and the messages that the far end must wait for.
    pub fn near(&mut self, endpoint: &mut Endpoint, pace: Pace<'_>) -> Result<(Slice, u64), RdmaError> {
        match &mut self.work {
            Work::Atomics(atomics) => atomics.near(endpoint, &self.open, pace),
            Work::Stream(stream) => stream.near(endpoint, &mut self.open, pace),
            Work::RoundTrips(reaped) => {
                latency_near(endpoint, &mut self.open, reaped, pace).map(|slice| (slice, 0))
            }
        }
    }

    /// The far end of a slice.
    pub fn far(&mut self, endpoint: &mut Endpoint, stop: &StopSignal) -> Result<FarSlice, RdmaError> {
        match &mut self.work {
            Work::Atomics(atomics) => atomics.far(endpoint, &self.open, stop),
            Work::Stream(stream) => stream.far(endpoint, &mut self.open, stop),
            Work::RoundTrips(reaped) => latency_far(endpoint, &mut self.open, reaped, stop),
        }
    }

    /// One turn after this end's part of a slice is done, for the other end's sake.
    pub fn turn(&mut self, endpoint: &mut Endpoint) -> Result<(), RdmaError> {
        match &mut self.work {
            Work::Atomics(atomics) => atomics.turn(endpoint, &self.open),
            Work::Stream(stream) => stream.turn(endpoint, &mut self.open),
            Work::RoundTrips(_) => {
                endpoint.turn();
                Ok(())
            }
        }
    }

    /// A turn of a far end that serves without end: what has come is answered.
    pub fn serve(&mut self, endpoint: &mut Endpoint) -> Result<(), RdmaError> {
        match &mut self.work {
            Work::RoundTrips(reaped) => {
                latency_turn(endpoint, &mut self.open, reaped, &mut FarSlice::default())
            }
            _ => self.turn(endpoint),
        }
    }

    /// This end's words.
    pub fn words(&self) -> &Words {
        &self.open.words
    }

    /// Lets a queue pair of this case in, which is the only one. Answers whether one is up now.
    pub fn accept_one(&mut self, endpoint: &mut Endpoint, event: Event) -> Result<bool, RdmaError> {
        lanes::accept_one(endpoint, &mut [Some(&mut self.open)], None, event)
    }

    /// Closes the near end's connections and waits until they are.
    pub fn disconnect(&mut self, endpoint: &mut Endpoint) -> Result<(), RdmaError> {
        self.open.disconnect(endpoint)
    }

    /// Gives everything back.
    pub fn destroy(self, endpoint: &mut Endpoint) -> Result<(), RdmaError> {
        self.open.destroy(endpoint)
    }
}

/// Accepts the near end's queue pairs, of all cases of a group; from one machine, where one is named.
pub fn accept(
    endpoint: &mut Endpoint,
    cases: &mut [Option<OpenRdma>],
    from: Option<IpAddr>,
) -> Result<(), RdmaError> {
    let mut lanes: Vec<Option<&mut OpenCase>> =
        cases.iter_mut().map(|case| case.as_mut().map(|case| &mut case.open)).collect();
    lanes::accept(endpoint, &mut lanes, from)
}
