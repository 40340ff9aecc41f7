//! The quantum of a scheduling round: how many bytes a queue pair sends before another one may.
//!
//! A queue pair that sends alone has a large quantum, so that the cost of a round is spread over
//! many segments. The frames of a round are ahead of a small message at the device, on the wire and
//! at the receiver. While one queue pair sends small messages and another one sends too, the
//! quantum of all queue pairs is therefore small: it is the same for all, so that they still share
//! by bytes.

/// The quantum in bytes of FPDUs: four full segments of 9000 bytes or 23 of 1500.
const LARGE_BYTES: i64 = 32 * 1024;

/// The quantum beside small messages: two segments of 1500 bytes or one of 9000.
const SMALL_BYTES: i64 = 2 * 1024;

/// The largest round that counts as small: a message of up to 4000 bytes and its headers.
const SMALL_ROUND_BYTES: usize = 4 * 1024;

/// Rounds with the small quantum after a small round: 2 MiB, which take about a millisecond.
const SMALL_ROUNDS: u16 = 1024;

/// What decides the quantum of the queue pairs of a core.
#[derive(Default)]
pub(crate) struct Quantum {
    /// The queue pair of the last small round.
    small_sender: u32,
    small_rounds_left: u16,
    /// Another queue pair had a round since.
    contended: bool,
}

impl Quantum {
    /// Returns the quantum of a round of the queue pair at `slot`, in bytes.
    #[inline]
    pub(crate) fn bytes(&self, slot: u32) -> i64 {
        let is_small = self.small_rounds_left > 0 && (self.contended || slot != self.small_sender);
        if is_small { SMALL_BYTES } else { LARGE_BYTES }
    }

    /// A round of the queue pair at `slot` sent `bytes`, and if `emptied` all that it had. A round
    /// that sends nothing, such as before a full device, is none.
    #[inline]
    pub(crate) fn on_round(&mut self, slot: u32, bytes: usize, emptied: bool) {
        if bytes == 0 {
            return;
        }
        let other = self.small_rounds_left > 0 && slot != self.small_sender;
        if emptied && bytes <= SMALL_ROUND_BYTES {
            *self = Quantum { small_sender: slot, small_rounds_left: SMALL_ROUNDS, contended: other };
        } else if self.small_rounds_left > 0 {
            self.contended |= other;
            self.small_rounds_left -= u16::from(self.contended);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LARGE_ROUND: usize = SMALL_ROUND_BYTES + 1;

    #[test]
    fn rounds_after_a_small_one_are_small_for_all_once_another_queue_pair_sends() {
        let mut quantum = Quantum::default();
        assert_eq!((quantum.bytes(0), quantum.bytes(1)), (LARGE_BYTES, LARGE_BYTES));
        quantum.on_round(0, 64, true);
        assert_eq!(quantum.bytes(0), LARGE_BYTES, "it sends alone");
        for _ in 0..SMALL_ROUNDS / 2 {
            assert_eq!(quantum.bytes(1), SMALL_BYTES);
            quantum.on_round(1, SMALL_BYTES as usize, false);
            assert_eq!(quantum.bytes(0), SMALL_BYTES);
            quantum.on_round(0, SMALL_BYTES as usize, false);
        }
        assert_eq!((quantum.bytes(0), quantum.bytes(1)), (LARGE_BYTES, LARGE_BYTES));
    }

    #[test]
    fn empty_and_long_rounds_limit_nobody() {
        for (bytes, emptied) in [(0, true), (LARGE_ROUND, true), (LARGE_BYTES as usize, true), (64, false)] {
            let mut quantum = Quantum::default();
            quantum.on_round(0, bytes, emptied);
            assert_eq!(quantum.bytes(1), LARGE_BYTES, "after {bytes} bytes");
        }
    }

    #[test]
    fn two_small_senders_limit_a_bulk_sender() {
        let mut quantum = Quantum::default();
        quantum.on_round(0, 64, true);
        quantum.on_round(1, 64, true);
        assert_eq!(quantum.bytes(2), SMALL_BYTES);
    }

    /// A single sender has rounds while the device is full, one of several has none: both share in
    /// the same way afterwards.
    #[test]
    fn rounds_that_send_nothing_change_nothing() {
        let mut quantum = Quantum::default();
        quantum.on_round(0, 64, true);
        for _ in 0..2 * SMALL_ROUNDS {
            quantum.on_round(1, 0, false);
        }
        assert_eq!((quantum.bytes(0), quantum.bytes(1)), (LARGE_BYTES, SMALL_BYTES));
    }
}
