//! Raw frames one way between two ports that one thread polls: what a core can carry that plays both ends.

use std::time::{Duration, Instant};

use ironwarp_port::{Burst, Frame, Port};

use super::format::{Kind, Layout, parse_header};
use super::send_frames::Segmenter;
use crate::{Slice, StopCondition};

/// How long the last frames are waited for.
const ARRIVAL_TIMEOUT: Duration = Duration::from_millis(500);
/// Turns between two looks at the clock.
const POLLS_PER_CLOCK_READ: u64 = 16;

/// Sends whole messages from `client` to `server`, a burst out and a burst in, until the budget is spent. What arrived counts;
/// what did not is an error.
pub fn one_core_transfer<N: Port, F: Port>(
    client: &mut N,
    server: &mut F,
    layout: Layout,
    until: StopCondition<'_>,
) -> Slice {
    let start = Instant::now();
    let mut segmenter = Segmenter::new(layout, client.caps().mac);
    let mut tx: Burst<<N::Frame as Frame>::Sealed> = Burst::new();
    let mut arrived = Burst::new();
    let (mut frames, mut polls, mut over, mut last) = (0_u64, 0_u64, false, start);
    loop {
        while !tx.is_full() && (!over || segmenter.is_mid_message()) {
            let Some(frame) = segmenter.next(client) else { break };
            tx.push(frame);
            over = over || until.budget.iterations.is_some_and(|limit| segmenter.messages() >= limit);
        }
        client.tx_burst(&mut tx);
        server.rx_burst(&mut arrived);
        let received = arrived.drain(..).filter(|frame| is_data(frame.bytes())).count() as u64;
        frames += received;
        polls += 1;
        if !polls.is_multiple_of(POLLS_PER_CLOCK_READ) && !over {
            continue;
        }
        let now = Instant::now();
        if received > 0 {
            last = now;
        }
        over = over || until.is_spent(segmenter.messages(), nanos(now.duration_since(start)));
        let all = over && tx.is_empty() && !segmenter.is_mid_message() && frames >= segmenter.frames_built();
        if all || now.duration_since(last) > ARRIVAL_TIMEOUT {
            break;
        }
    }
    let (messages, errors) = (frames / layout.frames, segmenter.frames_built().saturating_sub(frames));
    let (bytes, elapsed_ns) = (messages * layout.message_bytes(), nanos(last.duration_since(start)));
    Slice { messages, bytes, elapsed_ns, errors, ..Slice::default() }
}

fn is_data(bytes: &[u8]) -> bool {
    matches!(parse_header(bytes), Some((Kind::Data, _)))
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
