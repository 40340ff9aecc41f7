//! The sessions of an association of DDP over SCTP: any messages on its streams, among messages
//! that are right, and any calls of an application.

use ironwarp_iwarp::sctp::{
    Chunk, Control, Function, Initiator, PPID_CONTROL, PPID_SEGMENT, Request, SessionFault, Sessions,
};
use ironwarp_iwarp::setup::{Enhanced, Offer, ReadDepths, ResponderParams, RtrKinds};

use crate::Input;

const STREAMS: u16 = 4;
const READS: ReadDepths = ReadDepths { ird: 4, ord: 4 };
const FUNCTIONS: [Function; 7] = [
    Function::Initiate,
    Function::Accept,
    Function::Reject,
    Function::Terminate,
    Function::EnhancedInitiate,
    Function::EnhancedAccept,
    Function::EnhancedReject,
];

/// Runs one input.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut sessions = Sessions::new(STREAMS, input.flag(), 16, 2);
    while !input.is_empty() {
        // One number has no stream.
        let stream = input.u8() as u16 % (STREAMS + 1);
        match input.u8() % 7 {
            0 => {
                let ppid = 15 + u32::from(input.u8() % 4);
                let unordered = input.u8() < 250;
                arrive(&mut sessions, (stream, ppid, unordered), input.short_bytes());
            }
            1 => {
                let function = FUNCTIONS[input.below(FUNCTIONS.len())];
                let enhanced = function.is_enhanced().then(|| Enhanced::decode(input.u32().to_be_bytes()));
                let ssn = input.u8() as u16;
                let private_data = input.short_bytes();
                let octets = Control { function, enhanced, private_data }.encode(ssn);
                arrive(&mut sessions, (stream, PPID_CONTROL, true), &octets);
            }
            2 => {
                let segment = [&u16::from(input.u8()).to_be_bytes(), input.short_bytes()].concat();
                arrive(&mut sessions, (stream, PPID_SEGMENT, true), &segment);
            }
            3 => deliver(&mut sessions, stream),
            4 => {
                let function = FUNCTIONS[input.below(FUNCTIONS.len())];
                if let Some(session) = sessions.session(stream) {
                    let _ = session.send(function, input.flag());
                }
            }
            5 => {
                if let Some(session) = sessions.session(stream) {
                    let _ = session.terminate(input.u16(), input.flag());
                }
            }
            _ => {
                if let Some(session) = sessions.session(stream).filter(|session| !session.is_free()) {
                    session.abandon();
                }
            }
        }
    }
    // Whatever has happened, each session can be ended.
    for stream in 0..STREAMS {
        deliver(&mut sessions, stream);
        let session = sessions.session(stream).expect("a stream");
        let ended = session.terminate(1, true).is_ok();
        assert!(ended || !session.may_send_segments() && !session.is_broken());
    }
}

fn arrive(sessions: &mut Sessions<Vec<u8>>, (stream, ppid, unordered): (u16, u32, bool), octets: &[u8]) {
    if sessions.on_message(stream, (ppid, unordered, octets), octets.to_vec())
        == Err(SessionFault::TooManyRequests)
    {
        let session = sessions.session(stream).expect("the stream of a request");
        session.terminate(1, false).expect("nothing was sent that it could overtake");
    }
}

/// Delivers what is in order. Control messages reach both sides of set-up.
fn deliver(sessions: &mut Sessions<Vec<u8>>, stream: u16) {
    let Some(session) = sessions.session(stream) else { return };
    while let Ok(Some((function, message))) = session.front() {
        let message = message.clone();
        session.pop();
        if function.is_none() {
            continue;
        }
        let Ok((_, Chunk::Control(control))) = Chunk::decode(PPID_CONTROL, &message) else {
            panic!("a control message that was accepted: {message:?}")
        };
        let (request, private_data) = Request::new(&control);
        let params = ResponderParams { reads: READS, rtr: RtrKinds::all() };
        let _ = (request.accept(params, &private_data), request.reject(Some(READS), &private_data));
        for enhanced in [None, request.peer_enhanced()] {
            let offer = Offer { enhanced, reads: READS, ird_max: 4 };
            if let Ok((initiator, _)) = Initiator::start(offer, &[]) {
                let _ = initiator.on_reply(&control);
            }
        }
    }
}
