//! Proportional rate reduction: brings the window down to ssthresh during recovery.
//!
//! While more than ssthresh is in flight, the sender sends a fixed share of the delivered bytes.
//! The window reaches ssthresh when the whole flight has been delivered. Below ssthresh, slow start
//! makes up for losses beyond the reduction (the slow start reduction bound). A recovery therefore
//! neither pauses for half a round trip nor sends a burst.
//!
//! Source: RFC 6937 s3. Takes bytes delivered, sent and in flight; gives bytes that may be sent.
//! Cost: one division per ACK, in recovery only.

use serde::{Deserialize, Serialize};

/// The counters of one recovery, in bytes.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Prr {
    /// Bytes in flight when the recovery began (RecoverFS).
    flight: u32,
    delivered: u32,
    out: u32,
}

impl Prr {
    /// Begins a recovery with `flight` bytes sent and not acknowledged.
    pub(crate) fn new(flight: u32) -> Self {
        Prr { flight: flight.max(1), delivered: 0, out: 0 }
    }

    /// Returns whether a recovery has begun.
    pub(crate) fn has_begun(&self) -> bool {
        self.flight > 0
    }

    /// Bytes were sent or retransmitted.
    pub(crate) fn on_sent(&mut self, bytes: u32) {
        self.out = self.out.saturating_add(bytes);
    }

    /// An ACK delivers `delivered` bytes and leaves `pipe` bytes in flight. Returns the number of
    /// bytes that may be sent now.
    pub(crate) fn on_ack(&mut self, delivered: u32, pipe: u32, ssthresh: u32, emss: u32) -> u32 {
        self.delivered = self.delivered.saturating_add(delivered);
        let allowed = if pipe > ssthresh {
            let share = u64::from(self.delivered) * u64::from(ssthresh);
            (share.div_ceil(u64::from(self.flight)) as u32).saturating_sub(self.out)
        } else {
            let limit = self.delivered.saturating_sub(self.out).max(delivered).saturating_add(emss);
            (ssthresh - pipe).min(limit)
        };
        // RFC 6937 s3: the first lost segment is always retransmitted.
        if self.out == 0 { allowed.max(emss) } else { allowed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMSS: u32 = 1_000;

    /// RFC 6937 s4, first example: 20 segments, one lost, half the window. One segment is sent for
    /// every two delivered.
    #[test]
    fn after_one_loss_one_segment_is_sent_for_every_two_delivered() {
        let mut prr = Prr::new(20 * EMSS);
        let (mut pipe, mut sent) = (19 * EMSS, Vec::new());
        for _ in 0..19 {
            pipe -= EMSS;
            let segments = prr.on_ack(EMSS, pipe, 10 * EMSS, EMSS) / EMSS;
            prr.on_sent(segments * EMSS);
            pipe += segments * EMSS;
            sent.push(segments);
        }
        assert_eq!(sent.iter().sum::<u32>(), 10);
        assert!(sent.windows(2).all(|pair| pair[0] + pair[1] <= 2), "{sent:?}");
        assert_eq!(pipe, 10 * EMSS);
    }

    /// RFC 6937 s3, SSRB: after many losses each delivered segment permits two segments, never a
    /// burst.
    #[test]
    fn after_many_losses_the_window_is_rebuilt_without_a_burst() {
        let mut prr = Prr::new(20 * EMSS);
        let mut pipe = 4 * EMSS;
        for _ in 0..4 {
            pipe -= EMSS;
            let allowed = prr.on_ack(EMSS, pipe, 10 * EMSS, EMSS);
            assert!(allowed <= 2 * EMSS, "{allowed}");
            let segments = allowed / EMSS;
            prr.on_sent(segments * EMSS);
            pipe += segments * EMSS;
        }
        assert!(pipe >= 8 * EMSS, "{pipe}");
    }

    #[test]
    fn the_first_retransmission_is_always_allowed() {
        assert_eq!(Prr::new(100 * EMSS).on_ack(0, 99 * EMSS, 50 * EMSS, EMSS), EMSS);
    }
}
