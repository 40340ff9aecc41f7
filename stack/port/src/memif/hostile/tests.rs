//! The hostile peer reaches the code that it attacks, and none of its scripts breaks this end.

use super::*;

const START: u8 = 0;
const RECEIVE: u8 = 1;
const POLL: u8 = 9;
const RECONNECT: u8 = 11;
/// Ten frames of 64 bytes.
const SEND: [u8; 4] = [2, 10, 63, 0];

#[test]
fn a_script_of_right_steps_reaches_the_rings_in_both_roles() {
    // The hostile client sends four frames of 64 bytes and offers eight buffers.
    let client = [&[0, START, 6, 0, 4, 0, 64, 0, RECEIVE, 6, 1, 8, 0, 255, 0][..], &SEND, &[RECONNECT]];
    let reached = hostile_peer(&client.concat());
    assert_eq!(reached, Reached { connects: 1, disconnects: 1, received: 4, sent: 8 });
    // The hostile server fills two of the client's buffers, whose lengths are those of empty ones.
    let server = [&[1, START][..], &SEND, &[RECEIVE, 5, 3, 2, 0, RECEIVE, START, POLL]].concat();
    let reached = hostile_peer(&server);
    assert_eq!(reached, Reached { connects: 1, disconnects: 1, received: 2, sent: 8 });
}

#[test]
fn a_script_of_right_steps_reaches_the_rings_alone_with_buffers_of_either_end() {
    // The peer sends a frame of two buffers and offers four; this end sends three frames of one.
    let theirs = [3, 6, 0, 2, 1, 0, 6, 1, 4, 0, 2, 3, 63, 0];
    assert_eq!(hostile_rings(&theirs), (1, 3));
    // The peer fills two of this end's buffers; its own index of the other ring is where this end
    // has room for four.
    let ours = [2, 6, 2, 2, 0, 0, 2, 5, 63, 0];
    assert_eq!(hostile_rings(&ours), (2, 4));
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(256))]

    #[test]
    fn any_script_is_survived(
        first in 0u8..4,
        script in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..400),
        starts in proptest::prelude::any::<bool>(),
    ) {
        let start: &[u8] = if starts { &[START] } else { &[] };
        hostile_peer(&[&[first][..], start, &script].concat());
    }

    #[test]
    fn any_script_of_the_rings_is_survived(
        script in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..400),
    ) {
        hostile_rings(&script);
    }
}
