//! Raw frames one way between two ports that one thread polls: what a core can carry that plays both ends.

use std::time::{Duration, Instant};

use ironwarp_port::{Burst, Frame, Port};

use super::blast::Cutter;
use super::format::{Kind, Layout, read};
use crate::{Pace, Slice};

/// How long the last frames are waited for.
const LATE_AFTER: Duration = Duration::from_millis(500);
/// Turns between two looks at the clock.
const TURNS_A_LOOK: u64 = 16;

/// Sends whole messages from `near` to `far`, a burst out and a burst in, until the budget is spent. What arrived counts;
/// what did not is an error.
pub fn relay<N: Port, F: Port>(near: &mut N, far: &mut F, layout: Layout, pace: Pace<'_>) -> Slice {
    let start = Instant::now();
    let mut cutter = Cutter::new(layout, near.caps().mac);
    let mut leaving: Burst<<N::Frame as Frame>::Sealed> = Burst::new();
    let mut arrived = Burst::new();
    let (mut frames, mut turns, mut over, mut last) = (0_u64, 0_u64, false, start);
    loop {
        while !leaving.is_full() && (!over || cutter.is_midway()) {
            let Some(frame) = cutter.next(near) else { break };
            leaving.push(frame);
            over = over || pace.budget.iterations.is_some_and(|limit| cutter.messages() >= limit);
        }
        near.tx_burst(&mut leaving);
        far.rx_burst(&mut arrived);
        let came = arrived.drain(..).filter(|frame| is_blast(frame.bytes())).count() as u64;
        frames += came;
        turns += 1;
        if !turns.is_multiple_of(TURNS_A_LOOK) && !over {
            continue;
        }
        let now = Instant::now();
        if came > 0 {
            last = now;
        }
        over = over || pace.is_spent(cutter.messages(), nanos(now.duration_since(start)));
        let all = over && leaving.is_empty() && !cutter.is_midway() && frames >= cutter.filled();
        if all || now.duration_since(last) > LATE_AFTER {
            break;
        }
    }
    let (messages, errors) = (frames / layout.frames, cutter.filled().saturating_sub(frames));
    let (bytes, elapsed_ns) = (messages * layout.message_bytes(), nanos(last.duration_since(start)));
    Slice { messages, bytes, elapsed_ns, errors, ..Slice::default() }
}

fn is_blast(bytes: &[u8]) -> bool {
    matches!(read(bytes), Some((Kind::Blast, _)))
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
