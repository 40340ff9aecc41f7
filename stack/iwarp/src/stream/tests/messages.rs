//! A stream over a lower layer that is not MPA: its messages have boundaries, so each is one DDP
//! segment without a frame (RFC 5041 s3, requirements 1, 4 and 7), and either side may send first.

use super::*;
use crate::ddp::Header;
use crate::framing::OnePassFrame;

/// The longest message that the lower layer takes.
const MESSAGE_MAX: usize = 516;

/// Segments as they are.
#[derive(Default, serde::Serialize, serde::Deserialize)]
struct Messages;

impl Framing for Messages {
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
        usable.min(MESSAGE_MAX)
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

/// An end that may send at once, as both may here.
fn end(fast_path: bool) -> Endpoint<Messages> {
    let mut side = Endpoint::with_framing(StreamConfig { fast_path, ..config() });
    side.stream.start(StreamStart {
        role: Role::Initiator,
        framing: Messages,
        reads: None,
        rtr_to_send: None,
        rtr_awaited: RtrKinds::empty(),
        startup_bytes_sent: 0,
    });
    side
}

/// Carries all messages of `from` to `to`, and returns how many.
fn carry(from: &mut Endpoint<Messages>, to: &mut Endpoint<Messages>) -> usize {
    let messages = from.pull_all(SEGMENT_BYTES);
    for message in &messages {
        assert!(message.len() <= MESSAGE_MAX && Header::decode(message).is_ok(), "{message:x?}");
        assert_eq!(to.with(|stream, io| stream.on_message(message, io)), Ok(true));
    }
    from.ack_all();
    messages.len()
}

/// RFC 5041 s3.
#[test]
fn every_operation_crosses_a_lower_layer_with_messages() {
    for fast_path in [true, false] {
        let (mut a, mut b) = (end(fast_path), end(fast_path));
        let source = a.filled(3_000, EVERYTHING);
        let (sink, received) = (b.region(3_000, EVERYTHING), b.region(3_000, EVERYTHING));
        b.receive(9, &[all(&received)]);
        a.write(1, &[all(&source)], remote(&sink));
        a.send(2, &[all(&source)]);
        // Headers of 14 octets for the Write, of 18 for the Send.
        assert_eq!(carry(&mut a, &mut b), 3_000_usize.div_ceil(502) + 3_000_usize.div_ceil(498));
        assert_eq!([Endpoint::bytes(&sink), Endpoint::bytes(&received)], [pattern(3_000), pattern(3_000)]);

        let copy = b.region(3_000, EVERYTHING);
        b.read(3, all(&copy), remote(&source));
        carry(&mut b, &mut a);
        carry(&mut a, &mut b);
        assert_eq!(Endpoint::bytes(&copy), pattern(3_000));
        let success = CompletionStatus::Success;
        assert_eq!(ids(&a.log.sends), [(1, success), (2, success)]);
        assert_eq!(ids(&b.log.sends), [(3, success)]);
        assert_eq!(ids(&b.log.receives), [(9, success)]);
    }
}

/// Small requests share a segment of a byte stream, but are messages of their own here.
#[test]
fn each_message_is_one_segment() {
    let (mut a, mut b) = (end(true), end(true));
    let received = b.region(64, EVERYTHING);
    for id in 0..4 {
        b.receive(id, &[all(&received)]);
        a.send_inline(id, b"four");
    }
    assert_eq!(carry(&mut a, &mut b), 4);
    assert_eq!(b.log.receives.len(), 4);
}

/// RFC 5041 s7.1: an error is reported once, and nothing after it is used. The peer gets a
/// Terminate.
#[test]
fn a_message_that_is_no_segment_ends_the_stream() {
    let (mut a, mut b) = (end(true), end(true));
    let received = b.region(64, EVERYTHING);
    b.receive(9, &[all(&received)]);
    for octets in [&[][..], &[0x41], &[0xff; 40]] {
        let (mut a, mut b) = (end(true), end(true));
        assert!(b.with(|stream, io| stream.on_message(octets, io)).is_err());
        assert_eq!(b.with(|stream, io| stream.on_message(octets, io)), Ok(true), "dropped");
        let messages = b.pull_all(SEGMENT_BYTES);
        assert_eq!(messages.len(), 1);
        let ended = a.with(|stream, io| stream.on_message(&messages[0], io));
        assert!(matches!(ended, Err(StreamError::PeerTerminated(_))), "{ended:?}");
    }
    // Other streams go on.
    a.send_inline(1, b"fine");
    carry(&mut a, &mut b);
    assert_eq!(ids(&b.log.receives), [(9, CompletionStatus::Success)]);
}
