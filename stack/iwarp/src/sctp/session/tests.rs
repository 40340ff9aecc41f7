//! The legal sequences of a session, and every way to leave them.

use proptest::prelude::*;

use super::*;
use crate::sctp::{CHUNKS_IN_FLIGHT_MAX, PPID_CONTROL};
use crate::setup::Enhanced;

use Function::*;

const FUNCTIONS: [Function; 7] =
    [Initiate, Accept, Reject, Terminate, EnhancedInitiate, EnhancedAccept, EnhancedReject];

type Side = Session<Vec<u8>>;
/// Makes a side in some state.
type Make = fn() -> Side;

fn side() -> Side {
    Session::new(64)
}

fn control(ssn: u16, function: Function, private_data: &[u8]) -> Vec<u8> {
    let enhanced = function.is_enhanced().then(Enhanced::default);
    Control { function, enhanced, private_data }.encode(ssn).to_vec()
}

fn segment(ssn: u16) -> Vec<u8> {
    [&ssn.to_be_bytes()[..], b"segment"].concat()
}

impl Side {
    fn arrive(&mut self, ppid: u32, unordered: bool, octets: Vec<u8>) -> Result<Option<u16>, SessionFault> {
        self.on_message((ppid, unordered, &octets.clone()), octets)
    }

    fn on_control(&mut self, ssn: u16, function: Function) -> Result<Option<u16>, SessionFault> {
        self.arrive(PPID_CONTROL, true, control(ssn, function, b""))
    }

    fn on_segment(&mut self, ssn: u16) -> Result<Option<u16>, SessionFault> {
        self.arrive(PPID_SEGMENT, true, segment(ssn))
    }

    /// Delivers the next chunk: its function, or none of a segment.
    fn deliver(&mut self) -> Result<Option<Option<Function>>, SessionFault> {
        let function = self.front()?.map(|(function, _)| function);
        self.pop();
        Ok(function)
    }

    /// A chunk arrives and is the next one.
    fn takes(&mut self, ssn: u16, function: Option<Function>) -> Result<(), SessionFault> {
        match function {
            Some(function) => self.on_control(ssn, function)?,
            None => self.on_segment(ssn)?,
        };
        assert_eq!(self.deliver()?, Some(function));
        Ok(())
    }
}

fn initiated(function: Function) -> Side {
    let mut active = side();
    assert_eq!(active.send(function, true), Ok(()));
    active
}

fn requested(function: Function) -> Side {
    let mut passive = side();
    assert_eq!(passive.takes(0, Some(function)), Ok(()));
    passive
}

/// Both sides of an accepted session: the active one and the passive one.
fn open() -> [Side; 2] {
    let (mut active, mut passive) = (initiated(Initiate), requested(Initiate));
    assert_eq!(passive.send(Accept, true), Ok(()));
    assert_eq!(active.takes(0, Some(Accept)), Ok(()));
    [active, passive]
}

fn broken() -> Side {
    let [mut active, _] = open();
    assert_eq!(active.arrive(0, true, vec![0; 9]), Err(ChunkFault::Ppid(0).into()));
    assert!(active.is_broken());
    active
}

fn encoded(ssn: u16) -> Result<ControlBytes, NotNow> {
    Ok(Control::TERMINATE.encode(ssn))
}

/// RFC 5043 s6.1: a segment that is next may be delivered as it arrives, while nothing waits.
#[test]
fn a_segment_that_is_next_may_pass() {
    let [mut active, mut passive] = open();
    let octets = segment(1);
    let next = |side: &Side| side.next_segment((PPID_SEGMENT, true, &octets)).map(<[u8]>::to_vec);
    assert_eq!(next(&active), Some(b"segment".to_vec()));
    for other in
        [(PPID_CONTROL, true, &octets[..]), (PPID_SEGMENT, false, &octets), (PPID_SEGMENT, true, &[0])]
    {
        assert_eq!(active.next_segment(other), None);
    }
    active.pass();
    assert_eq!((next(&active), active.takes(2, None)), (None, Ok(())));
    assert_eq!(active.terminate(1, false), encoded(1), "it shows that the peer has our first message");
    assert_eq!(passive.on_segment(2), Ok(Some(1)));
    assert_eq!(next(&passive), None, "a chunk is held");
    let mut ended = open();
    assert_eq!(ended[0].takes(1, Some(Terminate)), Ok(()));
    for side in [&ended[0], &side(), &initiated(Initiate), &requested(Initiate), &broken()] {
        assert_eq!(
            [0, 1, 2].map(|ssn| side.next_segment((PPID_SEGMENT, true, &segment(ssn))).is_some()),
            [false; 3]
        );
    }
}

/// RFC 5043 s6.2: Initiate, Accept, segments, Terminates. RFC5043-6.6-02: the active side sends no
/// segment before the reply to its Initiate. RFC 6581 s7: the enhanced functions follow the same
/// rules, with the ordinary Terminate.
#[test]
fn a_session_is_accepted_and_ended_by_both_sides() {
    for (initiate, accept) in [(Initiate, Accept), (EnhancedInitiate, EnhancedAccept)] {
        let (mut active, mut passive) = (initiated(initiate), requested(initiate));
        assert!(!active.may_send_segments() && !passive.may_send_segments());
        assert_eq!(passive.send(accept, true), Ok(()));
        assert!(passive.may_send_segments(), "before the active side has the Accept");
        assert_eq!(active.takes(0, Some(accept)), Ok(()));
        assert!(active.may_send_segments());
        assert_eq!((active.takes(1, None), passive.takes(1, None)), (Ok(()), Ok(())));
        assert_eq!(active.terminate(2, false), encoded(2));
        assert!(!active.may_send_segments() && !active.is_free());
        assert_eq!(passive.takes(2, Some(Terminate)), Ok(()));
        assert!(passive.peer_has_ended() && passive.may_send_segments(), "the other direction goes on");
        assert_eq!(active.takes(2, None), Ok(()));
        assert_eq!(passive.terminate(3, false), encoded(3));
        assert_eq!(active.takes(3, Some(Terminate)), Ok(()));
        assert!(active.is_reusable() && passive.is_reusable());
    }
}

/// RFC 5043 s6.3, RFC 6581 s7: Initiate, Reject.
#[test]
fn a_session_is_rejected() {
    for (initiate, reject) in
        [(Initiate, Reject), (EnhancedInitiate, Reject), (EnhancedInitiate, EnhancedReject)]
    {
        let (mut active, mut passive) = (initiated(initiate), requested(initiate));
        assert_eq!(passive.send(reject, false), Ok(()));
        assert_eq!(active.takes(0, Some(reject)), Ok(()));
        assert!(active.is_reusable() && passive.is_reusable());
    }
}

/// RFC 5043 s6.4, RFC 6581 s7: Initiate, Terminate, whose number is 0.
#[test]
fn a_session_is_refused_without_the_application() {
    for initiate in [Initiate, EnhancedInitiate] {
        let (mut active, mut passive) = (initiated(initiate), requested(initiate));
        assert_eq!(passive.terminate(1, false), encoded(0));
        assert_eq!(active.takes(0, Some(Terminate)), Ok(()));
        assert!(active.is_reusable() && passive.is_reusable());
    }
}

/// RFC 5043 s5.2.3: what is reported has its private data.
#[test]
fn private_data_is_there_with_the_message() {
    let (mut active, mut passive) = (initiated(Initiate), side());
    let data = vec![7; 512];
    assert_eq!(passive.arrive(PPID_CONTROL, true, control(0, Initiate, &data)), Ok(None));
    let is_there = |front: Result<Option<(Option<Function>, &Vec<u8>)>, _>| matches!(front, Ok(Some((Some(_), message))) if message[4..] == data[..]);
    assert!(is_there(passive.front()));
    assert_eq!(active.arrive(PPID_CONTROL, true, control(0, Reject, &data)), Ok(None));
    assert!(is_there(active.front()));
}

/// RFC 5043 s6.1, s10: legality is judged by DDP-SSN, whatever order the lower layer delivers in.
#[test]
fn chunks_are_judged_in_the_order_of_their_ssns() {
    let mut active = initiated(Initiate);
    assert_eq!(active.on_control(3, Terminate), Ok(None));
    assert_eq!(active.on_segment(1), Ok(None), "not placed before the Accept");
    assert_eq!(active.deliver(), Ok(None));
    assert_eq!(active.on_control(0, Accept), Ok(None));
    assert_eq!((active.deliver(), active.deliver()), (Ok(Some(Some(Accept))), Ok(Some(None))));
    assert_eq!(active.on_segment(5), Ok(Some(3)), "placed early, though the Terminate will make it illegal");
    assert_eq!(active.on_segment(2), Ok(None));
    assert_eq!((active.deliver(), active.deliver()), (Ok(Some(None)), Ok(Some(Some(Terminate)))));
    assert_eq!(active.on_segment(4), Ok(None));
    assert_eq!(active.deliver(), Err(SessionFault::OutOfTurn));
}

/// RFC 5043 s6.1: only the enumerated sequences are legal; anything else terminates the session.
/// RFC 5043 s6.5: there are no others.
#[test]
fn a_chunk_out_of_turn_breaks_the_session() {
    let chunks = FUNCTIONS.map(Some).into_iter().chain([None]);
    let legal: [(&str, Make, u16, &[Option<Function>]); 7] = [
        ("initiated", || initiated(Initiate), 0, &[Some(Accept), Some(Reject), Some(Terminate)]),
        (
            "initiated, enhanced",
            || initiated(EnhancedInitiate),
            0,
            &[Some(EnhancedAccept), Some(EnhancedReject), Some(Reject), Some(Terminate)],
        ),
        ("requested", || requested(Initiate), 1, &[Some(Terminate)]),
        ("requested, enhanced", || requested(EnhancedInitiate), 1, &[Some(Terminate)]),
        ("open, active", || open().into_iter().next().unwrap(), 1, &[None, Some(Terminate)]),
        ("open, passive", || open().into_iter().nth(1).unwrap(), 1, &[None, Some(Terminate)]),
        (
            "ended by the peer",
            || {
                let [mut active, _] = open();
                active.takes(1, Some(Terminate)).unwrap();
                active
            },
            2,
            &[],
        ),
    ];
    for (state, make, ssn, legal) in legal {
        for chunk in chunks.clone() {
            let mut side = make();
            let taken = side.takes(ssn, chunk);
            if legal.contains(&chunk) {
                assert_eq!(taken, Ok(()), "{state}: {chunk:?}");
                continue;
            }
            assert_eq!(taken, Err(SessionFault::OutOfTurn), "{state}: {chunk:?}");
            assert!(side.is_broken() && !side.may_send_segments());
            assert_eq!(side.on_segment(2), Ok(None), "what follows is dropped");
            assert_eq!(side.deliver(), Ok(None));
            // After the acknowledgement of our first message, if there is one.
            let ssn = if state.starts_with("requested") { 0 } else { 9 };
            assert_eq!(side.terminate(9, true), encoded(ssn), "{state}: {chunk:?}");
        }
    }
}

/// RFC 5043 s5.1, s5.2, s10: what is no message of DDP, ordered, or has an impossible DDP-SSN
/// breaks the session. The error for RDMAP is 2/0/5.
#[test]
fn a_message_that_cannot_belong_to_the_session_breaks_it() {
    let cases: [(u32, bool, Vec<u8>, SessionFault); 6] = [
        (0, true, segment(1), ChunkFault::Ppid(0).into()),
        (PPID_SEGMENT, true, vec![0], ChunkFault::Truncated.into()),
        (PPID_CONTROL, true, [0, 1, 0, 9].into(), ChunkFault::Function(9).into()),
        (PPID_CONTROL, true, control(1, Reject, &[0; 512]), SessionFault::OutOfTurn),
        (PPID_SEGMENT, false, segment(1), SessionFault::Ordered),
        (PPID_SEGMENT, true, segment(0), SsnFault::OutsideWindow { ssn: 0, next: 1 }.into()),
    ];
    for (ppid, unordered, message, fault) in cases {
        let [mut active, _] = open();
        let arrived = active.arrive(ppid, unordered, message);
        assert_eq!(arrived.and_then(|_| active.deliver().map(|_| None::<u16>)), Err(fault));
        assert!(active.is_broken());
        assert_eq!(active.terminate(1, false), encoded(1));
        assert!(active.is_free());
    }
    let [mut active, _] = open();
    assert_eq!(active.on_segment(2), Ok(Some(1)));
    assert_eq!(active.on_segment(2), Err(SsnFault::Repeated(2).into()));
    let error = crate::terminate::Terminate::from(SessionFault::OutOfTurn);
    assert_eq!((error.layer, error.etype, error.code), (2, 0, 5));
}

/// RFC 5043 s10: a gap that chunks in flight cannot explain breaks the session before anything is
/// held for it.
#[test]
fn a_gap_that_cannot_close_breaks_the_session() {
    let [mut active, _] = open();
    assert_eq!(active.on_segment(CHUNKS_IN_FLIGHT_MAX), Ok(Some(CHUNKS_IN_FLIGHT_MAX - 1)));
    let ssn = CHUNKS_IN_FLIGHT_MAX + 1;
    assert_eq!(active.on_segment(ssn), Err(SsnFault::OutsideWindow { ssn, next: 1 }.into()));
    let mut full = Session::new(1);
    full.send(Initiate, true).unwrap();
    assert_eq!(full.on_segment(1), Ok(None));
    assert_eq!(full.on_segment(2), Err(SsnFault::Full.into()));
    assert!(full.is_broken());
}

/// RFC 9260 s6.2: a receiver may drop a message that it has held, and the peer sends it once more.
#[test]
fn a_message_that_was_dropped_may_arrive_once_more() {
    let [mut active, _] = open();
    for ssn in [1, 2, 4] {
        active.on_segment(ssn).unwrap();
    }
    active.forget(&segment(2));
    active.forget(&segment(9));
    assert!(active.order.is_consistent());
    assert_eq!((active.deliver(), active.deliver()), (Ok(Some(None)), Ok(None)));
    assert_eq!(active.on_segment(4), Err(SsnFault::Repeated(4).into()), "that one is held");

    let [mut active, _] = open();
    active.on_segment(2).unwrap();
    active.forget(&segment(2));
    assert_eq!((active.on_segment(2), active.on_segment(1)), (Ok(Some(1)), Ok(None)));
    assert_eq!((active.deliver(), active.deliver()), (Ok(Some(None)), Ok(Some(None))));
}

/// RFC 5043 s6.2: a session that is given up ends with a Terminate.
#[test]
fn a_session_may_be_given_up() {
    let [mut active, _] = open();
    active.on_segment(1).unwrap();
    active.abandon();
    assert_eq!((active.deliver(), active.on_segment(2)), (Ok(None), Ok(None)), "both are dropped");
    assert!(active.may_terminate() && !active.may_send_segments());
    assert_eq!(active.terminate(1, false), encoded(1));
    assert!(active.is_free() && !active.is_reusable());
}

/// What a side may send next, without sending it.
#[test]
fn a_side_knows_what_it_may_send() {
    let can =
        |side: &Side| [side.may_begin(true), side.may_begin(false), side.has_begun(), side.may_terminate()];
    let [active, passive] = open();
    assert_eq!(can(&side()), [true, false, false, false]);
    assert_eq!(can(&initiated(Initiate)), [false, false, true, true]);
    assert_eq!(can(&requested(Initiate)), [true, true, false, true]);
    assert_eq!((can(&active), can(&passive)), ([false, false, true, true], [false, false, true, true]));
    assert_eq!(can(&broken()), [false, false, true, true]);
    let [mut ended, _] = open();
    ended.terminate(1, true).unwrap();
    assert_eq!(can(&ended), [false, false, true, false]);
}

/// RFC 5043 s6.1, s6.6: only an Initiate can be the first chunk. Another one is answered with a
/// Terminate, but not a Terminate, and nothing on a stream whose last session may not have ended at
/// the peer.
#[test]
fn a_message_without_a_session_is_answered_with_a_terminate() {
    let expect = |mut side: Side, arrived: Result<Option<u16>, SessionFault>, fault: SessionFault| {
        assert_eq!(arrived, Err(fault));
        let answer = if fault == SessionFault::NoSession { Err(NotNow::OutOfTurn) } else { encoded(0) };
        assert_eq!(side.terminate(1, true), answer);
        assert!(side.is_free());
    };
    for function in FUNCTIONS {
        let fault = if function == Terminate { SessionFault::NoSession } else { SessionFault::OutOfTurn };
        for ssn in [0, 1] {
            let mut side = side();
            match side.on_control(ssn, function) {
                Ok(None) => assert!(ssn == 0 && is_initiate(Some(function))),
                arrived => expect(side, arrived, fault),
            }
        }
        let mut ended = broken();
        assert_eq!(ended.terminate(1, true), encoded(1));
        let arrived = ended.on_control(1, function);
        expect(ended, arrived, SessionFault::NoSession);
    }
    let long = [&control(0, Initiate, b"")[..], &[0; 513]].concat();
    for (ppid, message, fault) in [
        (PPID_SEGMENT, segment(0), SessionFault::OutOfTurn),
        (PPID_CONTROL, Vec::new(), ChunkFault::Truncated.into()),
        (PPID_CONTROL, long, ChunkFault::PrivateData(513).into()),
    ] {
        let mut side = side();
        let arrived = side.arrive(ppid, true, message);
        expect(side, arrived, fault);
    }
}

/// RFC 5043 s6.1, s6.3, s6.6: what may be sent in each state.
#[test]
fn only_legal_messages_are_sent() {
    let states: [(Make, &[Function]); 6] = [
        (side, &[Initiate, EnhancedInitiate]),
        (|| initiated(Initiate), &[]),
        (|| requested(Initiate), &[Accept, Reject]),
        (|| requested(EnhancedInitiate), &[EnhancedAccept, Reject, EnhancedReject]),
        (|| open().into_iter().next().unwrap(), &[]),
        (broken, &[]),
    ];
    for (make, legal) in states {
        for function in FUNCTIONS {
            let sent = make().send(function, true);
            let expected = if legal.contains(&function) { Ok(()) } else { Err(NotNow::OutOfTurn) };
            assert_eq!(sent, expected, "{function:?}");
        }
    }
    let [mut active, _] = open();
    assert_eq!(active.terminate(1, true), encoded(1));
    assert_eq!(active.terminate(2, true), Err(NotNow::OutOfTurn), "it is the last chunk");
    let mut cancelled = requested(Initiate);
    cancelled.takes(1, Some(Terminate)).unwrap();
    assert_eq!(cancelled.send(Accept, true), Err(NotNow::OutOfTurn), "the initiator has left");
    assert_eq!(cancelled.terminate(1, true), encoded(0));
    assert!(cancelled.is_reusable());
}

/// RFC 5043 s6.6: a control message must not be received before an earlier one of the session. The
/// acknowledgement shows that it cannot, or a reply.
#[test]
fn a_terminate_does_not_overtake_the_first_message() {
    let mut active = initiated(Initiate);
    assert_eq!(active.terminate(1, false), Err(NotNow::Unacknowledged));
    assert_eq!(active.terminate(1, true), encoded(1), "the Initiate is acknowledged");
    assert!(!active.is_free());
    assert_eq!(active.takes(0, Some(Accept)), Ok(()));
    assert!(!active.may_send_segments());
    assert_eq!((active.takes(1, None), active.takes(2, Some(Terminate))), (Ok(()), Ok(())));
    assert!(active.is_reusable());

    let [_, mut passive] = open();
    assert_eq!(passive.terminate(1, false), Err(NotNow::Unacknowledged));
    assert_eq!(passive.takes(1, None), Ok(()));
    assert_eq!(passive.terminate(1, false), encoded(1), "a segment shows that the Accept has arrived");
}

/// RFC 5043 s6.6: a stream is not used for another session while a chunk of the last one may be
/// outstanding, of this side or of the peer.
#[test]
fn a_stream_is_used_again_only_when_nothing_is_outstanding() {
    let [mut active, _] = open();
    active.terminate(1, true).unwrap();
    assert_eq!(active.send(Initiate, true), Err(NotNow::OutOfTurn), "the peer has not ended");
    active.takes(1, Some(Terminate)).unwrap();
    assert_eq!(active.send(Initiate, false), Err(NotNow::Unacknowledged));
    assert_eq!(active.send(Initiate, true), Ok(()));
    // DDP-SSNs begin at 0 again.
    assert_eq!(active.takes(0, Some(Accept)), Ok(()));

    let mut unreliable = broken();
    assert_eq!(unreliable.terminate(1, true), encoded(1));
    assert_eq!(unreliable.send(Initiate, true), Err(NotNow::OutOfTurn), "the peer may still send");
    assert_eq!(unreliable.takes(0, Some(Initiate)), Ok(()), "unless it says that it does not");
    assert_eq!(unreliable.send(Reject, true), Ok(()));
    assert_eq!(unreliable.send(Initiate, true), Ok(()));
}

/// RFC 5043 s6.2: one side only has to send a Terminate. A peer that got ours may begin the next
/// session, if nothing of it is missing.
#[test]
fn a_peer_that_sends_no_terminate_may_begin_another_session() {
    let [_, mut passive] = open();
    passive.takes(1, None).unwrap();
    assert_eq!(passive.on_control(0, Initiate), Err(SsnFault::OutsideWindow { ssn: 0, next: 2 }.into()));

    let [_, mut passive] = open();
    passive.takes(1, None).unwrap();
    passive.terminate(1, true).unwrap();
    assert_eq!(passive.takes(0, Some(EnhancedInitiate)), Ok(()));
    assert_eq!(passive.send(EnhancedAccept, true), Ok(()));
    assert_eq!(passive.takes(1, None), Ok(()));

    let [_, mut passive] = open();
    passive.terminate(1, true).unwrap();
    assert_eq!(passive.on_segment(2), Ok(Some(1)));
    assert!(passive.on_control(0, Initiate).is_err(), "a chunk of the last session is missing");
}

/// Two Initiates that cross break both sessions, which both sides end.
#[test]
fn initiates_that_cross_break_both_sessions() {
    let mut sides = [initiated(Initiate), initiated(Initiate)];
    for side in &mut sides {
        assert_eq!(side.takes(0, Some(Initiate)), Err(SessionFault::OutOfTurn));
        assert_eq!(side.terminate(1, false), Err(NotNow::Unacknowledged));
        assert_eq!(side.terminate(1, true), encoded(1));
        assert!(side.is_free());
    }
}

/// RFC5043-5.2-05, RFC 5043 s6.4: beyond the limit a request is refused with a Terminate, and the
/// application does not see it.
#[test]
fn requests_that_wait_are_limited() {
    let mut sessions = Sessions::new(6, true, 8, 2);
    let request = |sessions: &mut Sessions<Vec<u8>>, stream| {
        let octets = control(0, Initiate, b"");
        sessions.on_message(stream, (PPID_CONTROL, true, &octets.clone()), octets)
    };
    assert_eq!((request(&mut sessions, 1), request(&mut sessions, 3)), (Ok(None), Ok(None)));
    sessions.session(1).unwrap().pop();
    assert_eq!(request(&mut sessions, 5), Err(SessionFault::TooManyRequests));
    let refused = sessions.session(5).unwrap();
    assert_eq!((refused.deliver(), refused.terminate(1, false)), (Ok(None), encoded(0)));
    assert!(refused.is_reusable());
    sessions.session(1).unwrap().send(Accept, true).unwrap();
    assert_eq!(request(&mut sessions, 5), Ok(None), "a decision makes room");
    assert_eq!(request(&mut sessions, 6), Err(SessionFault::NoSession), "there is no such stream");
}

/// RFC 5043 s6.6, s8: each side begins sessions on streams of its own, so that no two cross, and on
/// free ones only.
#[test]
fn each_side_begins_sessions_on_streams_of_its_own() {
    for (is_opener, own) in [(true, [0, 2]), (false, [1, 3])] {
        let mut sessions = Sessions::<Vec<u8>>::new(4, is_opener, 8, 2);
        assert_eq!(sessions.free_stream(|_| true), Some(own[0]));
        assert_eq!(sessions.free_stream(|stream| stream != own[0]), Some(own[1]));
        sessions.session(own[0]).unwrap().send(Initiate, true).unwrap();
        assert_eq!(sessions.free_stream(|_| true), Some(own[1]));
        sessions.session(own[1]).unwrap().send(Initiate, true).unwrap();
        assert_eq!(sessions.free_stream(|_| true), None);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Message { ppid: u32, unordered: bool, bytes: Vec<u8> },
    Deliver,
    Send(Function, bool),
    Terminate(bool),
}

fn step() -> impl Strategy<Value = Step> {
    let known = (0..6u16, 0..8usize).prop_map(|(ssn, at)| match FUNCTIONS.get(at) {
        Some(function) => (PPID_CONTROL, control(ssn, *function, b"")),
        None => (PPID_SEGMENT, segment(ssn)),
    });
    let hostile = (15..19u32, proptest::collection::vec(any::<u8>(), 0..20));
    let message = prop_oneof![8 => known, 1 => hostile];
    prop_oneof![
        4 => (message, proptest::bool::weighted(0.95)).prop_map(|((ppid, bytes), unordered)| {
            Step::Message { ppid, unordered, bytes }
        }),
        4 => Just(Step::Deliver),
        2 => (0..FUNCTIONS.len(), any::<bool>()).prop_map(|(at, acked)| Step::Send(FUNCTIONS[at], acked)),
        1 => any::<bool>().prop_map(Step::Terminate),
    ]
}

proptest! {
    /// Whatever arrives and whatever is tried: control messages leave in a legal order, and the
    /// session can always be ended.
    #[test]
    fn no_schedule_leaves_the_legal_sequences(steps in proptest::collection::vec(step(), 0..60)) {
        let mut side = side();
        // What was sent in the session.
        let mut sent: Vec<Function> = Vec::new();
        for step in steps {
            match step {
                Step::Message { ppid, unordered, bytes } => {
                    let fault = side.arrive(ppid, unordered, bytes).err();
                    prop_assert!(
                        fault.is_none_or(|fault| fault == SessionFault::NoSession
                            || side.is_broken() || side.is_free())
                    );
                    // The peer may have begun the next session.
                    if !side.begun && !side.terminated {
                        sent.clear();
                    }
                }
                Step::Deliver => {
                    if let Ok(Some(function)) = side.deliver() {
                        let reply = matches!(function, Some(Accept | EnhancedAccept | Reject | EnhancedReject));
                        prop_assert!(!reply || matches!(sent[..], [Initiate | EnhancedInitiate, ..]));
                    }
                }
                Step::Send(function, acked) => {
                    if side.send(function, acked).is_ok() {
                        if matches!(function, Initiate | EnhancedInitiate) {
                            sent.clear();
                        }
                        prop_assert!(sent.is_empty(), "{function:?} after {sent:?}");
                        sent.push(function);
                    }
                }
                Step::Terminate(acked) => {
                    if side.terminate(1, acked).is_ok() {
                        prop_assert!(!sent.contains(&Terminate), "{sent:?}");
                        sent.push(Terminate);
                    }
                }
            }
            prop_assert!(side.order.is_consistent());
            prop_assert!(!side.may_send_segments() || !sent.is_empty() && !sent.contains(&Terminate));
        }
        let over = side.terminate(1, true).is_ok() || side.is_free() || sent.contains(&Terminate)
            || side.is_requested();
        prop_assert!(over);
    }
}
