//! An open case: its completion queue and, for each queue pair, a lane with the memory that it works on.
//!
//! Every lane has two regions. From `source` it sends, writes and is read; into `sink` it receives, is written and
//! reads. Both are cut into slots of one message. Without validation one slot serves all messages, as in perftest.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrayvec::ArrayVec;
use ironwarp::{
    AcceptParams, Access, AlignedBuf, CompletionQueue, ConnectParams, Event, Extensions, Framing, QpAttr,
    QueuePair, RecvWr, Region, RemoteMemory, STag, Sge,
};
use ironwarp_bench::pattern::Pattern;
use ironwarp_bench::{Case, Test};
use ironwarp_types::limits::INLINE_BYTES_MAX;
use serde::{Deserialize, Serialize};

use super::endpoint::{Endpoint, RdmaError};

/// Connecting or disconnecting every queue pair of a case.
const SETTLE_WITHIN: Duration = Duration::from_secs(10);
/// Queue pairs that connect at a time: fewer than a peer keeps half-open unless told otherwise (`limits.half_open`).
const CONNECTING_MAX: usize = 64;
/// Receives beyond those that stand for credits: room for the credits themselves, and for the checks of validation.
const SPARE_RECEIVES: u32 = 8;
/// Sends beyond the depth: credits and checks.
const SPARE_SENDS: u32 = 16;
/// Receives of a latency test: one is used at a time, the rest is for the far end's next turn.
const LATENCY_RECEIVES: u32 = 4;
/// Reads that one end may have outstanding, at most.
const READS_MAX: u32 = 64;
/// Both ends fill and check with the same pattern.
pub const SEED: u64 = 0x1a7;

/// One end of a case.
pub struct OpenCase {
    /// The case.
    pub case: Case,
    /// Where everything completes.
    pub cq: CompletionQueue,
    /// A lane a queue pair.
    pub lanes: Vec<Lane>,
    /// The lane that the next message of a latency test is for.
    pub turn: usize,
    /// The words of an atomic test, each in a cache line of its own: one set of them, or one for the queue pairs of each
    /// core. The near end's stay as they are.
    pub words: Words,
}

/// Sets of words, which the far ends of several stations may share.
pub type Words = Arc<Vec<Region>>;

/// Bytes from one word to the next.
pub const WORD_STRIDE: usize = 64;

/// One queue pair and what it works on.
pub struct Lane {
    /// The queue pair.
    pub qp: QueuePair,
    /// What is sent, written and read from here.
    pub source: Region,
    /// Where it lands.
    pub sink: Region,
    /// The same places at the other end; the sink is where its words are in an atomic test.
    pub remote: Places,
    /// Where our words are in an atomic test.
    words: Option<(u32, u64)>,
    /// How its messages are framed, once the near end is connected.
    pub framing: Option<Framing>,
    /// A gather list a slot of the source.
    pub gather: Vec<[Sge; 1]>,
    /// A scatter list a slot of the sink.
    pub scatter: Vec<[Sge; 1]>,
    /// Messages that this end has begun, over all slices.
    pub begun: u64,
    /// Messages that this end has received, over all slices.
    pub received: u64,
    receives_posted: u64,
}

/// Where an end's memory lies, for the other end.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Places {
    source: (u32, u64),
    sink: (u32, u64),
}

/// What travels as private data, both ways.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Hello {
    case: usize,
    lane: usize,
    places: Places,
}

impl Places {
    /// The far source, at an offset.
    pub fn source(&self, offset: u64) -> RemoteMemory {
        RemoteMemory { stag: STag(self.source.0), tagged_offset: self.source.1.wrapping_add(offset) }
    }

    /// The far sink, at an offset.
    pub fn sink(&self, offset: u64) -> RemoteMemory {
        RemoteMemory { stag: STag(self.sink.0), tagged_offset: self.sink.1.wrapping_add(offset) }
    }
}

/// How many slots and receives a case needs at each end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Messages that the source has room for.
    pub source_slots: u32,
    /// Messages that the sink has room for: one a receive, so that each is still whole when it is looked at.
    pub sink_slots: u32,
    /// Receives that stand for credits of the other end.
    pub receives: u32,
    /// Depth of the send queue.
    pub sends: u32,
    /// Reads outstanding.
    pub reads: u32,
}

impl Shape {
    /// The shape that a case asks for.
    pub fn of(case: &Case) -> Self {
        let receives = match case.test {
            test if test.streams_into_receives() && case.validate => case.depth,
            test if test.streams_into_receives() => case.depth * 2,
            _ => LATENCY_RECEIVES,
        };
        let (source_slots, sink_slots) = match case.validate {
            true => (case.depth, receives.max(case.depth) + SPARE_RECEIVES),
            // Each value that comes back has its own place.
            false if case.test.is_atomic() => (1, case.depth),
            false => (1, 1),
        };
        // A Write with Immediate is two requests.
        let requests = if case.test == Test::WriteImmBw { case.depth * 2 } else { case.depth };
        let (sends, reads) = (requests + SPARE_SENDS, case.depth.min(READS_MAX));
        Shape { source_slots, sink_slots, receives, sends, reads }
    }
}

impl OpenCase {
    /// Makes everything but the connections.
    pub fn new(endpoint: &mut Endpoint, case: &Case, shared: Option<Words>) -> Result<Self, RdmaError> {
        let shape = Shape::of(case);
        let places = (shape.sends + shape.receives + SPARE_RECEIVES).next_power_of_two() * 2 * case.qps;
        let cq = endpoint.ctx.create_cq(places)?;
        let words = shared.map_or_else(|| words(endpoint, case), Ok)?;
        let mut open = OpenCase { case: case.clone(), cq, lanes: Vec::new(), turn: 0, words };
        match open.fill(endpoint, shape) {
            Ok(()) => Ok(open),
            // A server goes on after a case that did not fit: what was made so far is given back.
            Err(error) => open.destroy(endpoint).and(Err(error)),
        }
    }

    fn fill(&mut self, endpoint: &mut Endpoint, shape: Shape) -> Result<(), RdmaError> {
        for index in 0..self.case.qps {
            let mut lane = Lane::new(endpoint, &self.case, shape, self.cq, index)?;
            lane.words = self.words.iter().cycle().nth(index as usize).map(place);
            self.lanes.push(lane);
        }
        for index in 0..self.lanes.len() {
            (0..shape.receives + SPARE_RECEIVES).try_for_each(|_| self.post_receive(endpoint, index))?;
        }
        Ok(())
    }

    /// Posts the next receive of a lane.
    pub fn post_receive(&mut self, endpoint: &mut Endpoint, index: usize) -> Result<(), RdmaError> {
        let lane = &mut self.lanes[index];
        let slot = (lane.receives_posted % lane.scatter.len() as u64) as usize;
        lane.receives_posted += 1;
        endpoint.ctx.post_recv(lane.qp, &RecvWr::new(wr_id(index, slot), &lane.scatter[slot]))?;
        Ok(())
    }

    /// Connects the near end's lanes. `number` is the case's place in its group.
    pub fn connect(
        &mut self,
        endpoint: &mut Endpoint,
        number: usize,
        peer: SocketAddr,
    ) -> Result<(), RdmaError> {
        let (mut begun, mut up) = (0, 0);
        let start = Instant::now();
        while up < self.lanes.len() {
            while begun < self.lanes.len().min(up + CONNECTING_MAX) {
                let lane = &self.lanes[begun];
                let (private_data, extensions) = (&hello(number, begun, lane)[..], extensions(&self.case));
                let params = ConnectParams { private_data, extensions, ..ConnectParams::default() };
                endpoint.control(|ctx| ctx.connect_with(lane.qp, peer, &params))?;
                begun += 1;
            }
            endpoint.turn();
            match endpoint.poll_event() {
                Some(Event::Established { qp, private_data, .. }) => {
                    let places = serde_json::from_slice::<Hello>(&private_data);
                    let lane = self.lanes.iter_mut().find(|lane| lane.qp == qp);
                    if let (Some(lane), Ok(hello)) = (lane, places) {
                        lane.remote = hello.places;
                        lane.framing = endpoint.ctx.query_qp(qp)?.framing;
                        up += 1;
                    }
                }
                Some(other) => refused(other)?,
                None if endpoint.is_cut_off() => return Err(RdmaError::Halted),
                None if start.elapsed() > SETTLE_WITHIN => return Err(RdmaError::Timeout("connecting")),
                None => {}
            }
        }
        Ok(())
    }

    /// How the lanes that are connected frame their messages.
    pub fn framing(&self) -> Vec<Framing> {
        self.lanes.iter().filter_map(|lane| lane.framing).collect()
    }

    /// Closes the near end's connections and waits until they are.
    pub fn disconnect(&mut self, endpoint: &mut Endpoint) -> Result<(), RdmaError> {
        self.lanes.iter().try_for_each(|lane| endpoint.control(|ctx| ctx.disconnect(lane.qp)))?;
        let lanes = self.lanes.len();
        wait_for_ends(endpoint, lanes)
    }

    /// Gives everything back.
    pub fn destroy(self, endpoint: &mut Endpoint) -> Result<(), RdmaError> {
        self.lanes.iter().try_for_each(|lane| endpoint.control(|ctx| ctx.destroy_qp(lane.qp)))?;
        let start = Instant::now();
        while endpoint.ctx.destroy_cq(self.cq).is_err() {
            endpoint.turn();
            while endpoint.poll_event().is_some() {}
            if start.elapsed() > SETTLE_WITHIN {
                return Err(RdmaError::Timeout("giving queue pairs back"));
            }
        }
        Ok(())
    }
}

/// Accepts the near end's lanes, of all cases of a group.
pub fn accept(
    endpoint: &mut Endpoint,
    cases: &mut [Option<&mut OpenCase>],
    from: Option<IpAddr>,
) -> Result<(), RdmaError> {
    let mut missing: usize = cases.iter().flatten().map(|case| case.lanes.len()).sum();
    let start = Instant::now();
    while missing > 0 {
        endpoint.turn();
        match endpoint.poll_event() {
            Some(event) => missing -= usize::from(accept_one(endpoint, cases, from, event)?),
            None if endpoint.is_cut_off() => return Err(RdmaError::Halted),
            None if start.elapsed() > SETTLE_WITHIN => return Err(RdmaError::Timeout("accepting")),
            None => {}
        }
    }
    Ok(())
}

/// Lets a lane in that asks for it. Answers whether the news is that one is up.
pub fn accept_one(
    endpoint: &mut Endpoint,
    cases: &mut [Option<&mut OpenCase>],
    from: Option<IpAddr>,
    event: Event,
) -> Result<bool, RdmaError> {
    let (request, remote, private_data) = match event {
        Event::ConnectRequest { request, remote, private_data, .. } => (request, remote, private_data),
        Event::Established { .. } => return Ok(true),
        other => return refused(other).map(|()| false),
    };
    let known = from.is_none_or(|from| from == remote.ip());
    let theirs = serde_json::from_slice::<Hello>(&private_data).ok().filter(|_| known);
    let lane = theirs.and_then(|theirs| {
        let open = cases.get_mut(theirs.case)?.as_mut()?;
        let extensions = extensions(&open.case);
        Some((theirs, extensions, open.lanes.get_mut(theirs.lane)?))
    });
    match lane {
        Some((theirs, extensions, lane)) => {
            lane.remote = theirs.places;
            let private_data = &hello(theirs.case, theirs.lane, lane)[..];
            let params = AcceptParams { private_data, extensions, ..AcceptParams::default() };
            endpoint.ctx.accept_with(request, lane.qp, &params)?;
        }
        // Somebody else who found the port.
        None => endpoint.reject(request, b"not a test of this run"),
    }
    Ok(false)
}

/// Waits until so many connections have ended.
pub fn wait_for_ends(endpoint: &mut Endpoint, mut connections: usize) -> Result<(), RdmaError> {
    let start = Instant::now();
    while connections > 0 {
        endpoint.turn();
        match endpoint.poll_event() {
            Some(Event::Disconnected { .. }) => connections -= 1,
            Some(_) => {}
            None if endpoint.is_cut_off() => return Err(RdmaError::Halted),
            None if start.elapsed() > SETTLE_WITHIN => return Err(RdmaError::Timeout("disconnecting")),
            None => {}
        }
    }
    Ok(())
}

/// Fails on news that means there will be no connection.
fn refused(event: Event) -> Result<(), RdmaError> {
    match event {
        Event::ConnectFailed { reason, .. } => Err(RdmaError::Disconnected(format!("{reason:?}"))),
        Event::Disconnected { reason, .. } => Err(RdmaError::Disconnected(format!("{reason:?}"))),
        Event::Rejected { private_data, .. } => {
            Err(RdmaError::Disconnected(String::from_utf8_lossy(&private_data).into_owned()))
        }
        Event::ListenFailed { local } => Err(RdmaError::Disconnected(format!("{local} is taken"))),
        _ => Ok(()),
    }
}

fn hello(case: usize, lane: usize, ours: &Lane) -> Vec<u8> {
    let places =
        Places { source: place(&ours.source), sink: ours.words.unwrap_or_else(|| place(&ours.sink)) };
    // Three small numbers and four large ones: far below the 512 bytes of private data.
    serde_json::to_vec(&Hello { case, lane, places }).unwrap_or_default()
}

fn place(region: &Region) -> (u32, u64) {
    (region.stag().0, region.base_to())
}

/// What a case's connections carry beyond RFC 5040; what the configuration says where it needs nothing.
fn extensions(case: &Case) -> Option<Extensions> {
    case.test.needs_extensions().then_some(Extensions::Rfc7306)
}

/// Room for the words of an atomic test, all of them zero; none for another one. Queue pairs are dealt out to the cores in
/// turn, and so are sets of words to the queue pairs.
pub fn words(endpoint: &mut Endpoint, case: &Case) -> Result<Words, RdmaError> {
    let owners = if case.test.is_atomic() { endpoint.owners(case.owner) } else { Vec::new() };
    let sets: Result<Vec<Region>, RdmaError> =
        owners.into_iter().map(|owner| set_of_words(endpoint, case, owner)).collect();
    sets.map(Arc::new)
}

fn set_of_words(endpoint: &Endpoint, case: &Case, owner: Option<u16>) -> Result<Region, RdmaError> {
    let bytes = case.words as usize * WORD_STRIDE;
    let buffer = AlignedBuf::pages(bytes).map_err(|_| RdmaError::Memory(bytes))?;
    let access = Access::LOCAL_WRITE | Access::REMOTE_ATOMIC;
    let (ctx, pd) = (&endpoint.ctx, endpoint.pd);
    Ok(match owner {
        Some(core) => ctx.register_on_core(pd, buffer, access, core)?,
        None => ctx.register(pd, buffer, access)?,
    })
}

impl Lane {
    fn new(
        endpoint: &mut Endpoint,
        case: &Case,
        shape: Shape,
        cq: CompletionQueue,
        index: u32,
    ) -> Result<Self, RdmaError> {
        let bytes = case.bytes as usize;
        let region = |slots: u32, access| -> Result<Region, RdmaError> {
            let memory = bytes * slots as usize;
            let buffer = AlignedBuf::pages(memory).map_err(|_| RdmaError::Memory(memory))?;
            Ok(endpoint.ctx.register(endpoint.pd, buffer, access)?)
        };
        let source = region(shape.source_slots, Access::LOCAL_WRITE | Access::REMOTE_READ)?;
        let sink = region(shape.sink_slots, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
        let slots = |region: &Region| -> Result<Vec<[Sge; 1]>, RdmaError> {
            (0..region.len() / bytes)
                .map(|slot| Ok([region.slice(slot * bytes, case.bytes as u32)?]))
                .collect()
        };
        let (gather, scatter) = (slots(&source)?, slots(&sink)?);
        let attr = QpAttr {
            send_depth: shape.sends,
            recv_depth: shape.receives + SPARE_RECEIVES,
            max_sge: 1,
            inline_bytes: INLINE_BYTES_MAX.min(case.inline as usize),
            ird: shape.reads as u16,
            ord: shape.reads as u16,
            core: endpoint.core_of(index),
            ..QpAttr::new(cq)
        };
        let pd = endpoint.pd;
        let qp = endpoint.control(|ctx| ctx.create_qp(pd, &attr))?;
        let lane = Lane {
            qp,
            source,
            sink,
            remote: Places::default(),
            words: None,
            framing: None,
            gather,
            scatter,
            begun: 0,
            received: 0,
            receives_posted: 0,
        };
        // What is read is the same all the time.
        lane.fill(case, 0, 0)?;
        Ok(lane)
    }

    /// Fills a slot of the source with a message's pattern, where the case is validated.
    pub fn fill(&self, case: &Case, slot: usize, message: u64) -> Result<(), RdmaError> {
        if !case.validate {
            return Ok(());
        }
        let mut bytes = vec![0; case.bytes as usize];
        Pattern::new(SEED, message).fill(&mut bytes, 0);
        Ok(self.source.write_at(slot * bytes.len(), &bytes)?)
    }

    /// The bytes of an inline message: an application that sends inline has them on its stack.
    pub fn inline_bytes(&self, bytes: u64) -> Result<ArrayVec<u8, INLINE_BYTES_MAX>, RdmaError> {
        let mut message = ArrayVec::from([0; INLINE_BYTES_MAX]);
        message.truncate(bytes as usize);
        self.source.read_at(0, &mut message)?;
        Ok(message)
    }

    /// Whether a slot of the sink holds a message's pattern in all but its last `spared` bytes.
    pub fn holds(&self, case: &Case, slot: usize, message: u64, spared: usize) -> Result<bool, RdmaError> {
        let mut bytes = vec![0; case.bytes as usize];
        self.sink.read_at(slot * bytes.len(), &mut bytes)?;
        let checked = bytes.len().saturating_sub(spared);
        Ok(Pattern::new(SEED, message).first_wrong(&bytes[..checked], 0).is_none())
    }
}

/// A work request's number: the lane above, the slot below.
pub fn wr_id(lane: usize, slot: usize) -> u64 {
    (lane as u64) << 32 | slot as u64
}

/// The lane and slot of a work request's number.
pub fn lane_and_slot(wr_id: u64) -> (usize, usize) {
    ((wr_id >> 32) as usize, (wr_id & 0xffff_ffff) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ironwarp_bench::PathKind;

    #[test]
    fn a_number_holds_lane_and_slot() {
        assert_eq!(lane_and_slot(wr_id(1023, 4095)), (1023, 4095));
    }

    #[test]
    fn validated_messages_have_a_slot_each() {
        let mut case = Case::new(Test::SendBw, 1 << 20, 9000, PathKind::Memif);
        case.depth = 8;
        assert_eq!((Shape::of(&case).source_slots, Shape::of(&case).sink_slots), (1, 1));
        case.validate = true;
        let shape = Shape::of(&case);
        assert_eq!((shape.source_slots, shape.receives), (8, 8));
        assert!(shape.sink_slots >= shape.receives + SPARE_RECEIVES);
    }

    #[test]
    fn places_fit_private_data() {
        let places = Places { source: (u32::MAX, u64::MAX), sink: (u32::MAX, u64::MAX) };
        let bytes =
            serde_json::to_vec(&Hello { case: usize::MAX, lane: usize::MAX, places }).expect("plain data");
        assert!(bytes.len() <= 512, "{}", bytes.len());
    }
}
