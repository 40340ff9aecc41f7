//! DDP over SCTP: two sides of an association in memory. Nothing is lost, and messages arrive in
//! any order (RFC 5043 s10).

use std::collections::BTreeMap;

use ironwarp_mem::AtomicOp;
use ironwarp_types::SeededEntropy;

use super::atomic::{ATOMIC, at, atomic, word, words};
use super::*;
use crate::sctp::{
    CHUNK_BYTES_MIN, Chunk, Control, Function, Initiator, NotNow, PPID_CONTROL, PPID_SEGMENT, Reply, Request,
    SegmentChunk, SessionFault, Sessions,
};
use crate::setup::{Enhanced, Offer, ReadDepths, ResponderParams, Terms};

/// The room of a chunk: odd, so that a payload that crosses it is seldom aligned.
const ROOM: usize = 1_001;
const STREAMS: u16 = 4;
const READS: ReadDepths = ReadDepths { ird: 4, ord: 4 };
const OFFER: Offer = Offer { enhanced: None, reads: READS, ird_max: 4 };
const PARAMS: ResponderParams = ResponderParams { reads: READS, rtr: RtrKinds::all() };

type End = Endpoint<SegmentChunk>;

/// A queue pair on a stream.
struct Queue {
    end: End,
    initiator: Option<Initiator>,
    request: Option<Request>,
    /// The peer's private data, and what became of the set-up.
    private_data: Vec<u8>,
    reply: Option<Reply>,
    /// The application has disconnected.
    closing: bool,
}

/// A message in flight.
struct Sent {
    stream: u16,
    ppid: u32,
    user_data: Vec<u8>,
    number: usize,
}

/// One side of the association.
struct Side {
    sessions: Sessions<Vec<u8>>,
    queues: BTreeMap<u16, Queue>,
    config: StreamConfig,
    in_flight: Vec<Sent>,
    /// The length of each chunk that was sent in the session on a stream, and whether it has
    /// arrived.
    sent: BTreeMap<u16, Vec<(usize, bool)>>,
    faults: Vec<SessionFault>,
}

impl Side {
    fn new(is_opener: bool, config: StreamConfig) -> Self {
        Side {
            sessions: Sessions::new(STREAMS, is_opener, 256, 2),
            queues: BTreeMap::new(),
            config,
            in_flight: Vec::new(),
            sent: BTreeMap::new(),
            faults: Vec::new(),
        }
    }

    fn queue(&mut self, stream: u16) -> &mut Queue {
        self.queues.get_mut(&stream).unwrap()
    }

    fn end(&mut self, stream: u16) -> &mut End {
        &mut self.queue(stream).end
    }

    fn add_queue(&mut self, stream: u16) {
        let mut end = End::with_framing(self.config);
        end.table = MemTable::with_secret(MemLimits { regions_max: 64, cores_max: 1 }, [1, 2]).unwrap();
        end.memory = end.table.core(CoreId(0)).unwrap();
        let (initiator, request, private_data, reply) = (None, None, Vec::new(), None);
        self.queues.insert(stream, Queue { end, initiator, request, private_data, reply, closing: false });
    }

    fn send(&mut self, stream: u16, ppid: u32, user_data: Vec<u8>) {
        let sent = self.sent.entry(stream).or_default();
        sent.push((user_data.len(), false));
        self.in_flight.push(Sent { stream, ppid, user_data, number: sent.len() - 1 });
    }

    fn all_acked(&self, stream: u16) -> bool {
        self.sent.get(&stream).is_none_or(|sent| sent.iter().all(|(_, arrived)| *arrived))
    }

    /// The application connects. Returns the stream.
    fn connect(&mut self, offer: Offer, private_data: &[u8]) -> u16 {
        let stream = self.sessions.free_stream(|stream| self.all_acked(stream)).unwrap();
        self.add_queue(stream);
        self.sent.remove(&stream);
        let (initiator, initiate) = Initiator::start(offer, private_data).unwrap();
        let enhanced = initiator.is_enhanced();
        self.queue(stream).initiator = Some(initiator);
        let function = if enhanced { Function::EnhancedInitiate } else { Function::Initiate };
        self.sessions.session(stream).unwrap().send(function, true).unwrap();
        self.send(stream, PPID_CONTROL, initiate.to_vec());
        stream
    }

    fn accept(&mut self, stream: u16, params: ResponderParams, private_data: &[u8]) {
        let request = self.queue(stream).request.take().unwrap();
        let (accept, terms) = request.accept(params, private_data).unwrap();
        let enhanced = request.peer_enhanced().is_some();
        let function = if enhanced { Function::EnhancedAccept } else { Function::Accept };
        self.sessions.session(stream).unwrap().send(function, false).unwrap();
        self.start(stream, &terms, accept.len());
        self.send(stream, PPID_CONTROL, accept.to_vec());
    }

    fn reject(&mut self, stream: u16, wanted: Option<ReadDepths>, private_data: &[u8]) {
        let request = self.queue(stream).request.take().unwrap();
        let reject = request.reject(wanted, private_data).unwrap();
        let function = if wanted.is_some() { Function::EnhancedReject } else { Function::Reject };
        self.sessions.session(stream).unwrap().send(function, false).unwrap();
        self.send(stream, PPID_CONTROL, reject.to_vec());
    }

    fn start(&mut self, stream: u16, terms: &Terms, control_bytes: usize) {
        self.end(stream).stream.start(StreamStart::over_sctp(terms, control_bytes as u64));
    }

    /// A message arrives.
    fn on_message(&mut self, stream: u16, ppid: u32, user_data: Vec<u8>) {
        match self.sessions.on_message(stream, (ppid, true, &user_data), user_data.clone()) {
            Ok(Some(distance)) => self.end(stream).with(|stream, io| {
                stream.on_message_out_of_order(distance.into(), &user_data[2..], io);
            }),
            Ok(None) => {}
            Err(fault) => self.on_fault(stream, fault),
        }
        while self.deliver(stream) {}
    }

    fn on_fault(&mut self, stream: u16, fault: SessionFault) {
        self.faults.push(fault);
        let is_broken = self.sessions.session(stream).unwrap().is_broken();
        if let Some(queue) = self.queues.get_mut(&stream).filter(|_| is_broken) {
            queue.end.with(|stream, io| stream.terminate(fault.into(), io));
        } else if fault == SessionFault::TooManyRequests {
            let refused = self.sessions.session(stream).unwrap().terminate(1, false).unwrap();
            self.send(stream, PPID_CONTROL, refused.to_vec());
        }
    }

    /// Delivers the next chunk of a stream. Returns whether there was one.
    fn deliver(&mut self, stream: u16) -> bool {
        let session = self.sessions.session(stream).unwrap();
        match session.front() {
            Ok(None) => return false,
            Err(fault) => {
                self.on_fault(stream, fault);
                return false;
            }
            Ok(Some((None, user_data))) => {
                let end = &mut self.queues.get_mut(&stream).unwrap().end;
                if end.with(|stream, io| stream.on_message(&user_data[2..], io)) == Ok(false) {
                    return false;
                }
                end.check();
                session.pop();
            }
            Ok(Some((Some(_), user_data))) => {
                let user_data = user_data.clone();
                session.pop();
                let (_, Chunk::Control(control)) = Chunk::decode(PPID_CONTROL, &user_data).unwrap() else {
                    panic!("{user_data:?}")
                };
                self.on_control(stream, &control);
            }
        }
        true
    }

    fn on_control(&mut self, stream: u16, control: &Control<'_>) {
        if matches!(control.function, Function::Initiate | Function::EnhancedInitiate) {
            self.add_queue(stream);
            self.sent.remove(&stream);
            let queue = self.queue(stream);
            let (request, private_data) = Request::new(control);
            (queue.request, queue.private_data) = (Some(request), private_data.to_vec());
            return;
        }
        let sent_bytes = self.sent[&stream][0].0;
        let queue = self.queue(stream);
        match queue.initiator.take().map(|initiator| initiator.on_reply(control)) {
            Some(reply) => {
                if let Reply::Accepted { terms, fault, .. } = &reply {
                    let (terms, fault) = (*terms, *fault);
                    self.start(stream, &terms, sent_bytes);
                    if let Some(fault) = fault {
                        self.end(stream).with(|stream, io| stream.terminate(fault.into(), io));
                    }
                }
                self.queue(stream).reply = Some(reply);
            }
            None => {
                assert_eq!(control.function, Function::Terminate);
                queue.end.with(|stream, io| stream.abort(io));
            }
        }
    }

    /// Sends what there is to send on each stream. Returns whether there was anything.
    fn transmit(&mut self) -> bool {
        let streams: Vec<u16> = self.queues.keys().copied().collect();
        let before = self.in_flight.len();
        for stream in streams {
            let acked = self.acked_bytes(stream);
            let begin_acked =
                self.sent.get(&stream).and_then(|sent| sent.first()).is_some_and(|begin| begin.1);
            let session = self.sessions.session(stream).unwrap();
            let queue = self.queues.get_mut(&stream).unwrap();
            queue.end.with(|stream, io| stream.on_acked(acked, io));
            let mut units = Vec::new();
            if session.may_send_segments() || session.is_broken() {
                units.extend(Some(queue.end.pull(ROOM)).filter(|unit| !unit.is_empty()));
            }
            let ended = queue.end.stream.state() == StreamState::Ended || session.is_broken();
            let wants_end = ended || session.peer_has_ended() || queue.closing;
            let mut ppid = PPID_SEGMENT;
            if units.is_empty() && wants_end {
                let ssn = queue.end.stream.framing().next_ssn();
                if let Ok(terminate) = session.terminate(ssn, begin_acked) {
                    units.push(terminate.to_vec());
                    ppid = PPID_CONTROL;
                }
            }
            units.into_iter().for_each(|unit| self.send(stream, ppid, unit));
        }
        self.in_flight.len() > before
    }

    /// The octets of a stream that have arrived, up to the first that has not.
    fn acked_bytes(&self, stream: u16) -> u64 {
        let sent = self.sent.get(&stream).into_iter().flatten();
        sent.take_while(|(_, arrived)| *arrived).map(|(bytes, _)| *bytes as u64).sum()
    }
}

/// Both sides, and the order in which messages arrive.
struct Association {
    sides: [Side; 2],
    order: SeededEntropy,
}

impl Association {
    fn new(seed: u64, change: impl FnOnce(&mut StreamConfig)) -> Self {
        let mut config =
            StreamConfig { place_out_of_order: true, extensions: Some(Rfc7306Profile::RFC_7306), ..config() };
        change(&mut config);
        Association {
            sides: [Side::new(true, config), Side::new(false, config)],
            order: SeededEntropy::new(seed),
        }
    }

    /// One message arrives, or each side sends. Returns whether anything happened.
    fn step(&mut self) -> bool {
        let in_flight = self.sides.each_ref().map(|side| side.in_flight.len());
        let all = in_flight.iter().sum::<usize>() as u64;
        // Sending comes first now and then, so that there is something to reorder.
        if self.order.below(all + 1) < 12 {
            let sent = self.sides.each_mut().map(Side::transmit);
            if sent != [false; 2] {
                return true;
            }
        }
        if all == 0 {
            return false;
        }
        let chosen = self.order.below(all) as usize;
        let (from, at) = if chosen < in_flight[0] { (0, chosen) } else { (1, chosen - in_flight[0]) };
        let Sent { stream, ppid, user_data, number } = self.sides[from].in_flight.swap_remove(at);
        if let Some((_, arrived)) =
            self.sides[from].sent.get_mut(&stream).and_then(|sent| sent.get_mut(number))
        {
            *arrived = true;
        }
        self.sides[1 - from].on_message(stream, ppid, user_data);
        true
    }

    fn run(&mut self) {
        let steps = (0..100_000).take_while(|_| self.step()).count();
        assert!(steps < 100_000, "it does not come to rest");
    }

    /// An accepted session that the first side requested.
    fn connected(&mut self, offer: Offer, params: ResponderParams) -> u16 {
        let stream = self.sides[0].connect(offer, b"hello");
        self.run();
        self.sides[1].accept(stream, params, b"welcome");
        stream
    }

    fn ends(&mut self, stream: u16) -> [&mut End; 2] {
        self.sides.each_mut().map(|side| side.end(stream))
    }

    fn assert_free(&mut self, stream: u16) {
        self.run();
        for side in &mut self.sides {
            assert!(side.all_acked(stream) && side.sessions.session(stream).unwrap().is_reusable());
        }
    }
}

fn enhanced(rtr: RtrKinds) -> Offer {
    let peer_to_peer = !rtr.is_empty();
    Offer { enhanced: Some(Enhanced { peer_to_peer, rtr, reads: READS }), ..OFFER }
}

/// RFC 5043 s4, s6, s10: every operation, whatever the order of arrival, with the fast path and
/// without, placed early and in order. RFC5043-6.5-02: no other sequences are needed.
/// RFC5043-10-02: no number but the DDP-SSN gives the order.
#[test]
fn every_operation_crosses_a_session_in_any_order() {
    let (mut placed, mut skipped) = (0, 0);
    for seed in 0..40 {
        let (fast_path, place_out_of_order) = (seed % 2 == 0, seed % 4 < 2);
        let mut pair = Association::new(seed, |config| {
            (config.fast_path, config.place_out_of_order) = (fast_path, place_out_of_order);
        });
        let stream = pair.connected(OFFER, PARAMS);
        let [a, b] = pair.ends(stream);
        let source = a.filled(9_000, EVERYTHING);
        let (sink, received) = (b.region(9_000, EVERYTHING), b.region(9_000, EVERYTHING));
        let (copy, word_there) = (a.region(9_000, EVERYTHING), words(b, &[40], ATOMIC));
        let original = words(a, &[0], EVERYTHING);
        let answer = b.region(9_000, EVERYTHING);
        b.receive(9, &[all(&received)]);
        a.write(1, &[all(&source)], remote(&sink));
        a.send(2, &[all(&source)]);
        a.read(3, all(&copy), remote(&sink));
        atomic(a, 4, AtomicOp::add(2), original.slice(0, 8).unwrap(), at(&word_there, 0));
        // RFC 5043 s6.2: the passive side may send first.
        b.read(5, all(&answer), remote(&source));
        pair.run();
        let [a, b] = pair.ends(stream);
        for region in [&sink, &received, &copy, &answer] {
            assert_eq!(Endpoint::bytes(region), pattern(9_000), "seed {seed}");
        }
        assert_eq!((word(&original, 0), word(&word_there, 0)), (40, 42));
        assert_eq!(ids(&a.log.sends), [(1, OK), (2, OK), (3, OK), (4, OK)]);
        assert_eq!((ids(&b.log.sends), ids(&b.log.receives)), (vec![(5, OK)], vec![(9, OK)]));
        let counted = |counter| a.counted(counter) + b.counted(counter);
        let early = counted(Counter::IwarpOutOfOrderPlacements);
        assert!(place_out_of_order || early == 0);
        placed += early;
        skipped += counted(Counter::IwarpOutOfOrderCopiesSkipped);
        pair.sides[0].queue(stream).closing = true;
        pair.assert_free(stream);
        assert!(pair.sides.iter().all(|side| side.faults.is_empty()));
    }
    assert!(placed > 100 && skipped > placed / 2, "{placed} were placed early, {skipped} not copied again");
}

/// RFC5043-5.2-01, RFC5043-5.2-04, RFC5043-5.2-06, RFC5043-6.4-03, RFC6581-7-07: set-up is reported
/// to the other application with its private data, in each direction, and waits for its decision.
/// RFC 5043 s9: 516 octets are always possible, so that 512 of them fit.
#[test]
fn both_applications_see_private_data() {
    for (offer, most) in [(OFFER, 512), (enhanced(RtrKinds::empty()), 508)] {
        let data = pattern(most);
        let mut pair = Association::new(1, |_| {});
        let stream = pair.sides[0].connect(offer, &data);
        pair.run();
        assert_eq!(pair.sides[1].queue(stream).private_data, data);
        assert!(!pair.sides[1].sessions.session(stream).unwrap().may_send_segments());
        pair.sides[1].accept(stream, PARAMS, &data);
        assert!(pair.sides[1].in_flight.iter().all(|sent| sent.user_data.len() == CHUNK_BYTES_MIN));
        pair.run();
        let reply = pair.sides[0].queue(stream).reply.take();
        assert!(matches!(reply, Some(Reply::Accepted { private_data, .. }) if private_data[..] == data[..]));
    }
}

/// RFC 5043 s6.3, RFC 6581 s7: a rejection is the application's, with its private data.
#[test]
fn an_application_rejects() {
    let depths = ReadDepths { ird: 1, ord: 9 };
    for (offer, wanted) in [(OFFER, None), (enhanced(RtrKinds::all()), Some(depths))] {
        let mut pair = Association::new(1, |_| {});
        let stream = pair.sides[0].connect(offer, b"");
        pair.run();
        pair.sides[1].reject(stream, wanted, b"full");
        pair.run();
        let reply = pair.sides[0].queue(stream).reply.take();
        let is_said = matches!(reply, Some(Reply::Rejected { ref private_data, peer_reads })
            if private_data[..] == b"full"[..] && peer_reads == wanted);
        assert!(is_said, "{reply:?}");
        pair.assert_free(stream);
    }
}

/// RFC 5043 s6.4: beyond the limit a request is refused with a Terminate, by nobody's decision.
#[test]
fn requests_beyond_the_limit_are_refused() {
    let mut pair = Association::new(1, |_| {});
    // The opener has two streams of four for its sessions.
    pair.sides[1].sessions = Sessions::new(STREAMS, false, 256, 1);
    let first = pair.sides[0].connect(OFFER, b"");
    pair.run();
    let second = pair.sides[0].connect(OFFER, b"");
    pair.run();
    assert_eq!(pair.sides[1].faults, [SessionFault::TooManyRequests]);
    let reply = pair.sides[0].queue(second).reply.take();
    assert_eq!(reply, Some(Reply::Refused { may_fall_back: false }));
    pair.assert_free(second);
    pair.sides[1].accept(first, PARAMS, b"");
    pair.run();
    assert!(matches!(pair.sides[0].queue(first).reply, Some(Reply::Accepted { .. })));
}

/// RFC 5043 s6.2, s11.3: a Terminate of RDMAP is generated as over TCP, and that of the session
/// follows it. Other sessions of the association go on.
#[test]
fn a_terminate_ends_its_session_alone() {
    for seed in 0..20 {
        let mut pair = Association::new(seed, |_| {});
        let streams = [pair.connected(OFFER, PARAMS), pair.connected(OFFER, PARAMS)];
        assert_ne!(streams[0], streams[1]);
        pair.run();
        // No receive is posted for the first.
        let received = pair.ends(streams[1])[1].region(64, EVERYTHING);
        pair.ends(streams[1])[1].receive(9, &[all(&received)]);
        pair.ends(streams[0])[0].send_inline(1, b"nobody");
        pair.run();
        let no_buffer = Terminate { layer: 1, etype: 2, code: 2 };
        let [a, b] = pair.ends(streams[0]).map(|end| end.stream.error());
        assert_eq!(a, Some(StreamError::PeerTerminated(no_buffer)));
        assert_eq!(b, Some(StreamError::Failed(no_buffer)));
        pair.assert_free(streams[0]);
        pair.ends(streams[1])[0].send_inline(2, b"fine");
        pair.run();
        assert_eq!(ids(&pair.ends(streams[1])[1].log.receives), [(9, OK)]);
        assert!(pair.sides.iter().all(|side| side.faults.is_empty()));
    }
}

/// RFC 5043 s6.1: a session whose peer breaks the rules is terminated, on each layer.
#[test]
fn a_broken_session_is_terminated_on_each_layer() {
    let mut pair = Association::new(1, |_| {});
    let stream = pair.connected(OFFER, PARAMS);
    pair.run();
    pair.sides[1].on_message(stream, PPID_SEGMENT, vec![0xff; 32]);
    assert_eq!(pair.sides[1].faults.len(), 1);
    assert!(pair.sides[1].transmit() && pair.sides[1].transmit());
    let sent: Vec<u32> = pair.sides[1].in_flight.iter().map(|sent| sent.ppid).collect();
    assert_eq!(sent, [PPID_SEGMENT, PPID_CONTROL]);
    pair.run();
    let error = Terminate { layer: 2, etype: 0, code: 5 };
    assert_eq!(pair.ends(stream)[0].stream.error(), Some(StreamError::PeerTerminated(error)));
    assert!(pair.sides[0].sessions.session(stream).unwrap().is_reusable());
    assert!(!pair.sides[1].sessions.session(stream).unwrap().is_reusable(), "it cannot know");
}

/// RFC5043-5.1-01, RFC 5043 s6.1, s6.6: the sessions of a stream follow each other, each with
/// DDP-SSNs from 0, when nothing of the last one is outstanding.
#[test]
fn a_stream_carries_one_session_after_the_other() {
    for seed in 0..20 {
        let mut pair = Association::new(seed, |_| {});
        for session in 0..4_u64 {
            let closes = (session + seed) as usize % 2;
            let stream = pair.connected(OFFER, PARAMS);
            assert_eq!(stream, 0);
            let sink = pair.ends(stream)[1].region(64, EVERYTHING);
            let source = pair.ends(stream)[0].filled(64, EVERYTHING);
            pair.ends(stream)[0].write(session, &[all(&source)], remote(&sink));
            pair.run();
            assert_eq!(Endpoint::bytes(&sink), pattern(64));
            pair.sides[closes].queue(stream).closing = true;
            assert!(pair.sides[0].sessions.free_stream(|_| true) != Some(stream));
            pair.assert_free(stream);
        }
    }
}

/// RFC 6581 s9.2: in the peer-to-peer model the first segment is the indication, and the passive
/// side sends nothing before it. RFC 6581 s7: without the model either side may send first.
#[test]
fn the_peer_to_peer_model_sends_its_indication_first() {
    for kind in [RtrKinds::SEND, RtrKinds::WRITE, RtrKinds::READ] {
        let mut pair = Association::new(kind.bits().into(), |_| {});
        let stream = pair.connected(enhanced(kind), PARAMS);
        let [a, b] = pair.ends(stream);
        let received = a.region(64, EVERYTHING);
        a.receive(9, &[all(&received)]);
        assert!(!b.stream.may_send());
        b.send_inline(1, b"first");
        assert!(b.pull(ROOM).is_empty());
        pair.run();
        let [a, b] = pair.ends(stream);
        assert_eq!((ids(&a.log.receives), ids(&b.log.receives)), (vec![(9, OK)], vec![]));
        assert_eq!((a.counted(Counter::IwarpTxRtrs), b.counted(Counter::IwarpRxRtrs)), (1, 1));
    }
    let mut pair = Association::new(1, |_| {});
    let stream = pair.connected(enhanced(RtrKinds::empty()), PARAMS);
    assert!(pair.ends(stream)[1].stream.may_send());
}

/// RFC 6581 s9.1: an initiator that cannot meet the terms of the reply sends a Terminate with the
/// error, as its first segment.
#[test]
fn terms_that_cannot_be_met_end_the_session_with_a_terminate() {
    let mut pair = Association::new(1, |_| {});
    let offer = enhanced(RtrKinds::SEND);
    let params = ResponderParams { rtr: RtrKinds::WRITE, ..PARAMS };
    let stream = pair.connected(offer, params);
    pair.run();
    let error = Terminate { layer: 2, etype: 0, code: 7 };
    assert_eq!(pair.ends(stream)[1].stream.error(), Some(StreamError::PeerTerminated(error)));
    pair.assert_free(stream);
}

/// RFC 5043 s6.6: the Terminate waits until the Accept cannot be overtaken any more.
#[test]
fn a_terminate_waits_for_the_acknowledgement_of_the_accept() {
    let mut pair = Association::new(1, |_| {});
    let stream = pair.connected(OFFER, PARAMS);
    pair.sides[1].queue(stream).closing = true;
    assert!(!pair.sides[1].transmit());
    let session = pair.sides[1].sessions.session(stream).unwrap();
    assert_eq!(session.terminate(1, false), Err(NotNow::Unacknowledged));
    pair.assert_free(stream);
}
