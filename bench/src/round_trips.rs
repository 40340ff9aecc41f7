//! The loop of every latency test: round trips of the warm-up, then round trips that count.

use std::time::{Duration, Instant};

use crate::{Latency, Slice, StopCondition, nanos};

/// A slice ends after this number of lost messages in a row: the far end has gone.
const CONSECUTIVE_LOSSES_MAX: u32 = 4;

/// The result of one round trip.
#[derive(Clone, Copy, Debug)]
pub enum RoundTrip {
    /// The message came back.
    Done {
        /// From the intended start to the arrival of the last byte.
        rtt: Duration,
        /// Whether all compared bytes were right.
        is_intact: bool,
    },
    /// Some of the message did not come back.
    Lost,
    /// The slice ends early, and this message counts in no figure.
    Halted,
}

/// Runs `round_trip` until the slice is over. During the warm-up it is called with `None`, then
/// with the start of the measurement and the number of messages since.
pub fn measure_round_trips<E>(
    message_bytes: u64,
    until: StopCondition<'_>,
    mut round_trip: impl FnMut(Option<(Instant, u64)>) -> Result<RoundTrip, E>,
) -> Result<Slice, E> {
    let (mut slice, mut latency) = (Slice::default(), Latency::new());
    let (begun, mut warm, mut losses) = (Instant::now(), 0, 0);
    while losses < CONSECUTIVE_LOSSES_MAX
        && !until.halted()
        && !until.budget.is_warm(warm, nanos(begun.elapsed()))
    {
        warm += 1;
        losses = if matches!(round_trip(None)?, RoundTrip::Lost) { losses + 1 } else { 0 };
    }
    let (start, mut lost) = (Instant::now(), 0);
    while losses < CONSECUTIVE_LOSSES_MAX && !until.is_spent(slice.messages + lost, nanos(start.elapsed())) {
        match round_trip(Some((start, slice.messages)))? {
            RoundTrip::Done { rtt, is_intact } => {
                losses = 0;
                latency.record(nanos(rtt));
                slice.messages += 1;
                slice.errors += u64::from(!is_intact);
            }
            RoundTrip::Lost => {
                losses += 1;
                lost += 1;
            }
            RoundTrip::Halted => break,
        }
    }
    slice.elapsed_ns = nanos(start.elapsed());
    slice.errors += lost;
    slice.bytes = slice.messages * message_bytes;
    slice.latency = Some(latency);
    Ok(slice)
}
