//! A lower layer of messages: no frames, and a start-up in which either side may send first.
//!
//! ```text
//! | kind, 1 | IRD, 2 | ORD, 2 | private data |
//! ```

use core::marker::PhantomData;

use ironwarp::config::{MpaConfig, TransportKind};
use ironwarp::lower::{Lower, MpaParams, PeerRequest, Reply, RxOf, Started, StreamOf};
use ironwarp::{
    Config, Framing as FramingInfo, Markers, MpaRequestInfo, NegotiatedParams, ReadDepths, RtrKinds,
};
use ironwarp_iwarp::framing::OnePassFrame;
use ironwarp_iwarp::mpa::startup::FrameBytes;
use ironwarp_iwarp::setup::PrivateDataTooLong;
use ironwarp_iwarp::{Framing, Io, Role, StreamCallbacks, StreamError, StreamStart};
use ironwarp_net::{FlowHasher, TransportProtocol};
use ironwarp_port::Port;
use ironwarp_stats::{ConnectionState, CoreStats};
use ironwarp_testkit::messages::{MESSAGE_BYTES_MAX, Messages, Readable};

/// Messages on ports of type `P`, which carry address resolution only.
pub struct OverMessages<P>(PhantomData<P>);

/// DDP segments as they are.
#[derive(Default, serde::Serialize, serde::Deserialize)]
pub struct Segments;

impl Framing for Segments {
    fn head_bytes(&self) -> usize {
        0
    }

    fn overhead_bytes(&self) -> usize {
        0
    }

    fn shares_units(&self) -> bool {
        false
    }

    fn mulpdu(&self, usable: usize) -> usize {
        usable.min(MESSAGE_BYTES_MAX)
    }

    fn complete(&mut self, room: &mut [u8], ulpdu_bytes: usize) -> usize {
        self.complete_fast::<false>(room, ulpdu_bytes).0
    }

    fn is_fast(&self) -> bool {
        true
    }

    fn complete_fast<const SUMMED: bool>(
        &mut self,
        room: &mut [u8],
        ulpdu_bytes: usize,
    ) -> (usize, Option<u32>) {
        (if ulpdu_bytes <= room.len() { ulpdu_bytes } else { 0 }, None)
    }

    fn in_one_pass<'a>(&self, _: &'a mut [u8], _: usize, _: usize) -> Option<OnePassFrame<'a>> {
        None
    }

    fn finds_frames_out_of_order(&self) -> bool {
        false
    }
}

const REQUEST: u8 = 1;
const ACCEPT: u8 = 2;
const REJECT: u8 = 3;

/// Octets before the private data.
const HEAD_BYTES: usize = 5;

fn encode(kind: u8, reads: ReadDepths, private_data: &[u8]) -> FrameBytes {
    let ([i0, i1], [o0, o1]) = (reads.ird.to_be_bytes(), reads.ord.to_be_bytes());
    [kind, i0, i1, o0, o1].into_iter().chain(private_data.iter().copied()).collect()
}

fn decode(message: &[u8]) -> Option<(u8, ReadDepths, &[u8])> {
    let ([kind, i0, i1, o0, o1], private_data) = message.split_first_chunk::<HEAD_BYTES>()?;
    let (ird, ord) = (u16::from_be_bytes([*i0, *i1]), u16::from_be_bytes([*o0, *o1]));
    Some((*kind, ReadDepths { ird, ord }, private_data))
}

/// Neither side sends more requests than the other takes.
fn started(own: ReadDepths, peer: ReadDepths, sent_bytes: usize) -> Started<Segments> {
    let reads = ReadDepths { ird: own.ird, ord: own.ord.min(peer.ird) };
    Started {
        start: StreamStart {
            role: Role::Initiator,
            framing: Segments,
            reads: Some(reads),
            rtr_to_send: None,
            rtr_awaited: RtrKinds::empty(),
            startup_bytes_sent: sent_bytes as u64,
        },
        negotiated: NegotiatedParams { revision: 2, peer_reads: Some(peer), reads },
        framing: FramingInfo { transport: TransportKind::Tcp, crc: false, markers: Markers::default() },
    }
}

impl<P: Port> Lower for OverMessages<P> {
    type Port = P;
    type Transport = Messages<P>;
    type Framing = Segments;
    type Checked = ();
    type Initiator = ReadDepths;
    type Responder = ();
    type Request = ReadDepths;
    type Agreed = [ReadDepths; 2];

    /// RFC 3692: a number for experiments.
    const PROTOCOL: TransportProtocol =
        TransportProtocol { number: 253, header_bytes_min: 8, has_internet_checksum: false };
    const SCRATCH_BYTES: usize = 0;

    fn transport(config: &Config, _: FlowHasher, secret: [u64; 2], _: CoreStats) -> Messages<P> {
        Messages::new(config.limits.queue_pairs + 2 * config.limits.half_open, secret)
    }

    fn shown_state((): ()) -> ConnectionState {
        ConnectionState::Established
    }

    fn read<C: StreamCallbacks>(
        stream: &mut StreamOf<Self>,
        mut rx: Readable<'_>,
        _: &mut [u8],
        io: &mut Io<'_, C>,
    ) -> Result<(), StreamError> {
        while let Some(message) = rx.front() {
            match stream.on_message(message, io) {
                Ok(true) => rx.pop(),
                Ok(false) => break,
                Err(error) => {
                    while rx.front().is_some() {
                        rx.pop();
                    }
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    fn request(
        _: &MpaConfig,
        params: &MpaParams,
        limits: ReadDepths,
        private_data: &[u8],
    ) -> Result<(ReadDepths, FrameBytes), PrivateDataTooLong> {
        let reads = params.reads.unwrap_or(limits);
        Ok((reads, encode(REQUEST, reads, private_data)))
    }

    fn may_fall_back(_: &ReadDepths) -> bool {
        false
    }

    fn on_reply(own: &ReadDepths, mut rx: RxOf<'_, Self>, request_bytes: usize) -> Reply<Segments> {
        let Some(message) = rx.front() else { return Reply::Incomplete };
        let reply = match decode(message) {
            Some((ACCEPT, peer, private_data)) => Reply::Accepted {
                private_data: private_data.iter().copied().collect(),
                started: started(*own, peer, request_bytes),
                fault: None,
            },
            Some((REJECT, peer, private_data)) => Reply::Rejected {
                private_data: private_data.iter().copied().collect(),
                peer_reads: Some(peer),
            },
            _ => Reply::Fault { may_fall_back: false },
        };
        rx.pop();
        reply
    }

    fn responder(_: &MpaConfig) {}

    fn on_request((): &(), mut rx: RxOf<'_, Self>) -> PeerRequest<ReadDepths> {
        let Some(message) = rx.front() else { return PeerRequest::Incomplete };
        let request = match decode(message) {
            Some((REQUEST, request, private_data)) => {
                PeerRequest::Complete { private_data: private_data.iter().copied().collect(), request }
            }
            _ => PeerRequest::Fault,
        };
        rx.pop();
        request
    }

    fn request_info(request: &ReadDepths) -> MpaRequestInfo {
        MpaRequestInfo {
            transport: TransportKind::Tcp,
            revision: 2,
            peer_reads: Some(*request),
            peer_to_peer: true,
        }
    }

    fn accept(
        request: ReadDepths,
        _: &MpaConfig,
        params: &MpaParams,
        limits: ReadDepths,
        private_data: &[u8],
    ) -> Result<(FrameBytes, [ReadDepths; 2]), PrivateDataTooLong> {
        let own = params.reads.unwrap_or(limits);
        Ok((encode(ACCEPT, own, private_data), [own, request]))
    }

    fn reject(_: ReadDepths, params: &MpaParams, private_data: &[u8]) -> Option<FrameBytes> {
        Some(encode(REJECT, params.reads.unwrap_or_default(), private_data))
    }

    fn started([own, peer]: &[ReadDepths; 2], reply_bytes: usize) -> Started<Segments> {
        started(*own, *peer, reply_bytes)
    }
}
