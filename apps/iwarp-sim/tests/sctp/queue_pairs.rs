//! Queue pairs that share an association: a lost packet of one delays no other.

use ironwarp_sim::LinkConfig;
use ironwarp_types::Nanos;
use iwarp_sim::sctp::{Arrivals, Flow, SctpRun};
use iwarp_sim::tcp::RxFilter;

const QUEUE_PAIRS: u64 = 16;
const MESSAGES: u64 = 2_000;
const EVERY: Nanos = Nanos::from_micros(50);
const ROUND_TRIP: Nanos = Nanos::from_micros(50);

/// The receiver loses the first transmission of every fiftieth message of the first queue pair.
fn lost_now_and_then() -> RxFilter {
    let mut lost = std::collections::BTreeSet::new();
    Box::new(move |_, frame| {
        // A packet of one DATA chunk: its message is behind Ethernet, IPv4, SCTP and the chunk's
        // header.
        let word = |at: usize| frame.get(at..at + 8).map(|word| u64::from_be_bytes(word.try_into().unwrap()));
        let is_data = frame.get(46) == Some(&0);
        let (Some(flow), Some(number)) = (word(62), word(70)) else { return false };
        is_data && flow == 0 && number % 50 == 49 && lost.insert(number)
    })
}

/// Sixteen queue pairs, each with a message of 512 octets for each round trip: a quarter of the
/// smallest window, which four packets of 9000 octets are. On a stream each, or all on one.
fn run(is_one_stream: bool, filter: Option<RxFilter>) -> Arrivals {
    let flow = |number: u64| Flow {
        stream: if is_one_stream { 0 } else { number as u16 },
        is_ordered: is_one_stream,
        message_bytes: 512,
        count: MESSAGES,
        first_at: Nanos::from_millis(1) + Nanos(EVERY.0 * number / QUEUE_PAIRS),
        every: EVERY,
    };
    let link = LinkConfig {
        rate_bits_per_s: 10_000_000_000,
        delay: Nanos(ROUND_TRIP.0 / 2),
        ..LinkConfig::default()
    };
    let flows = (0..QUEUE_PAIRS).map(flow).collect();
    let until = Nanos::from_secs(10);
    SctpRun { seed: 3, link, mtu_bytes: 9_000, window_bytes: 1 << 20, flows, until }.run(filter).unwrap()
}

/// RFC 9260 s6.6, RFC 5043 s7: the order of one stream does not concern another. The bound is 1.2.
#[test]
fn a_lost_packet_of_one_queue_pair_delays_no_other() {
    let p99 = |arrivals: Arrivals| arrivals.percentile(1..QUEUE_PAIRS as usize, 99);
    let clean = p99(run(false, None));
    let lossy = p99(run(false, Some(lost_now_and_then())));
    let one_stream = p99(run(true, Some(lost_now_and_then())));
    println!(
        "p99 of the others: {clean:?} without loss, {lossy:?} with, {one_stream:?} in one ordered stream"
    );
    assert!(lossy.0 * 10 <= clean.0 * 12, "{lossy:?} with losses, {clean:?} without");
    assert!(one_stream.0 > lossy.0 * 2, "{one_stream:?} in one ordered stream, {lossy:?} in a stream each");
}
