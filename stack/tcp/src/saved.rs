//! A connection as it is saved: its state as plain data, with the bytes that its frames hold.
//!
//! ```text
//!   Conn ------------ the same structs, frames and indices left out ------------> SavedConn
//!   received frames - unread bytes, and runs beyond the gap --------------------> bytes
//!   retained frames - the bytes of each unit, with its state -------------------> SavedUnit
//!   times of the core's clock -- Rebase --> distances from the time of saving
//! ```
//!
//! Not saved: what the core knows of shortages, and the hash and slot of the flow. Timers do not
//! run while a connection is saved. An event from before the start of the reader's clock counts as
//! one at its start.
//!
//! What can fail: bytes whose numbers could not be those of an established connection are refused.
//! The worst that others can make is a connection that its peer or a timeout ends.

use std::borrow::Cow;

use ironwarp_llp::RestoreError;
use ironwarp_types::{Flow, Nanos, Seq};
use serde::{Deserialize, Serialize};

use crate::conn::{Cold, EcnEcho, Negotiated, PendingAck, ReceiveSide, SendSide, TimestampState};
use crate::queue::UnitState;

/// The version of the format, which changes with every struct that [`SavedConn`] contains.
pub(crate) const VERSION: u16 = 2;

/// The most bytes of either direction: a quarter of the sequence space, so that comparisons stay
/// ordered.
const BYTES_MAX: usize = 1 << 30;

/// The state of an established connection.
#[derive(Serialize, Deserialize)]
pub(crate) struct SavedConn<'a> {
    pub(crate) flow: Flow,
    pub(crate) opts: Negotiated,
    pub(crate) echo: EcnEcho,
    pub(crate) ack: PendingAck,
    pub(crate) ts: TimestampState,
    pub(crate) last_rx_at: Nanos,
    pub(crate) rcv: ReceiveSide,
    /// The bytes before RCV.NXT that are not read.
    #[serde(borrow)]
    pub(crate) unread: Cow<'a, [u8]>,
    /// The bytes beyond the gap, in order of sequence.
    #[serde(borrow)]
    pub(crate) out_of_order: Vec<SavedRun<'a>>,
    pub(crate) snd: SendSide,
    /// The retained units from SND.UNA on.
    #[serde(borrow)]
    pub(crate) units: Vec<SavedUnit<'a>>,
    pub(crate) cold: Cold,
}

/// Contiguous bytes beyond the gap.
#[derive(Serialize, Deserialize)]
pub(crate) struct SavedRun<'a> {
    pub(crate) seq: Seq,
    #[serde(borrow)]
    pub(crate) bytes: Cow<'a, [u8]>,
}

/// A retained unit of payload.
#[derive(Serialize, Deserialize)]
pub(crate) struct SavedUnit<'a> {
    pub(crate) sent_at: Nanos,
    pub(crate) state: UnitState,
    pub(crate) retransmitted: bool,
    pub(crate) bytes: &'a [u8],
}

impl SavedConn<'_> {
    /// Converts all times.
    pub(crate) fn rebase(&mut self, clock: Rebase) {
        clock.time(&mut self.last_rx_at);
        self.ts.rebase(clock);
        self.snd.rebase(clock);
        self.cold.rebase(clock);
        self.units.iter_mut().for_each(|unit| clock.time(&mut unit.sent_at));
    }

    /// Checks what the invariants of the engine do not: that each number by itself is possible, so
    /// that no arithmetic on it overflows.
    pub(crate) fn check(&self) -> Result<(), RestoreError> {
        let unless = RestoreError::unless;
        unless(self.rcv.is_valid(), "a number of the receive side")?;
        unless(self.unread.len() <= BYTES_MAX, "the unread bytes are too many")?;
        let window = self.rcv.fin.unwrap_or(self.rcv.rcv_adv).since(self.rcv.rcv_nxt) as usize;
        let is_within = |run: &SavedRun| {
            let end = (run.seq.since(self.rcv.rcv_nxt) as usize).checked_add(run.bytes.len());
            end.is_some_and(|end| end <= window)
        };
        unless(self.out_of_order.iter().all(is_within), "bytes lie beyond the receive window")?;
        unless(self.snd.is_valid(), "a number of the send side")?;
        unless(self.cold.is_valid(&self.flow), "a path MTU")?;
        let has_ranges = self.cold.sack_ranges.are_within(self.rcv.rcv_nxt, self.rcv.rcv_adv);
        unless(has_ranges, "a range lies beyond the receive window")?;
        let bytes = self.units.iter().map(|unit| unit.bytes.len()).sum::<usize>();
        unless(bytes <= BYTES_MAX, "the retained bytes are too many")?;
        let sent = self.units.iter().take_while(|unit| unit.state != UnitState::Unsent);
        let flight = sent.map(|unit| unit.bytes.len()).sum::<usize>();
        unless(self.snd.flight() as usize == flight, "SND.NXT is not where the sent units end")?;
        let may_sack = |unit: &SavedUnit| self.opts.sack || unit.state != UnitState::Sacked;
        unless(self.units.iter().all(may_sack), "a unit is SACKed without SACK")
    }
}

/// The conversion of the times of a connection, which are of the clock of its core.
#[derive(Clone, Copy)]
pub(crate) enum Rebase {
    /// To distances from this time.
    Relative(Nanos),
    /// From distances to this time.
    Absolute(Nanos),
}

/// What a saved state has for the time of saving. Earlier times are less.
const NOW: u64 = 1 << 63;

impl Rebase {
    /// Converts a time. Zero, which is no time, and [`Nanos::MAX`], which is never, remain.
    pub(crate) fn time(self, at: &mut Nanos) {
        if *at == Nanos::ZERO || *at == Nanos::MAX {
            return;
        }
        let (from, to) = match self {
            Rebase::Relative(now) => (now.0, NOW),
            Rebase::Absolute(now) => (NOW, now.0),
        };
        let moved = i128::from(at.0) - i128::from(from) + i128::from(to);
        at.0 = moved.clamp(1, i128::from(u64::MAX - 1)) as u64;
    }

    /// Returns the count of periods of 2^`shift` ns that the clock shows, modulo 2^32: to be added
    /// to a distance from the clock, or subtracted from a count of the clock's periods.
    pub(crate) fn periods(self, shift: u32) -> u32 {
        match self {
            Rebase::Relative(now) => (now.0 >> shift) as u32,
            Rebase::Absolute(now) => ((now.0 >> shift) as u32).wrapping_neg(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};

    use super::*;
    use crate::conn::KeepAliveTimer;
    use crate::{Congestion, TcpConfig};

    /// The state with another value at `path`.
    fn with<T: Serialize + DeserializeOwned>(state: &T, path: &str, value: &Value) -> T {
        let mut json = serde_json::to_value(state).unwrap();
        *json.pointer_mut(path).unwrap_or_else(|| panic!("no {path}")) = value.clone();
        serde_json::from_value(json).unwrap()
    }

    /// Each number that a connection cannot have is refused by itself.
    #[test]
    fn an_impossible_number_of_the_receive_side_is_refused() {
        let mut rcv = ReceiveSide::new(&TcpConfig::default(), 0);
        rcv.on_syn(Seq(u32::MAX - 9), true);
        rcv.advertise_window();
        assert!(rcv.is_valid());
        let (nxt, adv) = (rcv.rcv_nxt, rcv.rcv_adv);
        for (path, value) in [
            ("/wscale", json!(15)),
            ("/window", json!(0)),
            ("/window", json!(u32::MAX)),
            ("/rcv_adv", json!(nxt.minus(1))),
            ("/rcv_adv", json!(nxt.plus(1 << 30))),
            ("/fin", json!(nxt.minus(1))),
            ("/fin", json!(adv.plus(1))),
        ] {
            assert!(!with(&rcv, path, &value).is_valid(), "{path} {value}");
        }
        for (path, value) in [("/fin", json!(nxt)), ("/fin", json!(adv))] {
            assert!(with(&rcv, path, &value).is_valid(), "{path} {value}");
        }
    }

    #[test]
    fn an_impossible_number_of_the_send_side_is_refused() {
        let of = |congestion| {
            let config = TcpConfig { congestion, ..TcpConfig::default() };
            SendSide::new(&config, Seq(7), 1_448, Nanos(9))
        };
        let [reno, cubic, dctcp] = [Congestion::NewReno, Congestion::Cubic, Congestion::Dctcp].map(of);
        let beyond = json!((1u32 << 30) + 1);
        for (snd, path, value) in [
            (&cubic, "/wscale", json!(15)),
            (&cubic, "/snd_wnd", beyond.clone()),
            (&cubic, "/snd_wnd_max", beyond.clone()),
            (&cubic, "/fin_queued", json!(true)),
            (&cubic, "/fin_retained", json!(true)),
            (&cubic, "/acked_bytes", json!(1u64 << 62)),
            (&cubic, "/rtt/rto", json!(0)),
            (&cubic, "/rtt/backoff", json!(41)),
            (&cubic, "/recovery/phase", json!("Cwr")),
            (&cubic, "/recovery/phase", json!("FastRecovery")),
            (&cubic, "/cc/cwnd", json!(0)),
            (&cubic, "/cc/cwnd", beyond.clone()),
            (&cubic, "/cc/ssthresh", beyond.clone()),
            (&cubic, "/cc/undo_state/0", beyond.clone()),
            (&cubic, "/cc/undo_state/1", beyond.clone()),
            (&cubic, "/cc/algorithm/Cubic/k", json!((1u32 << 24) + 1)),
            (&cubic, "/cc/algorithm/Cubic/acked_per_segment", json!(0)),
            (&cubic, "/cc/algorithm/Cubic/w_max", beyond.clone()),
            (&dctcp, "/cc/algorithm/Dctcp/alpha", json!(1_025)),
            (&dctcp, "/cc/algorithm/Dctcp/reno/acked", beyond.clone()),
            (&reno, "/cc/algorithm/NewReno/acked", beyond.clone()),
        ] {
            assert!(snd.is_valid());
            assert!(!with(snd, path, &value).is_valid(), "{path} {value}");
        }
    }

    /// Every time of a connection is converted: those that are zero or never stay, so here none is.
    #[test]
    fn all_times_of_the_send_side_are_converted() {
        let mut snd = SendSide::new(&TcpConfig::default(), Seq(7), 1_448, Nanos(500));
        let times = [
            "/timer_at",
            "/rto_at",
            "/progress_at",
            "/sent_at",
            "/rtt/timed_at",
            "/cc/algorithm/Cubic/epoch",
            "/cc/algorithm/Cubic/next_update_at",
            "/cc/algorithm/Cubic/in_use_until",
            "/recovery/rack/sent_at",
        ];
        times.iter().for_each(|path| snd = with(&snd, path, &json!(500)));
        snd.rebase(Rebase::Relative(Nanos(600)));
        let json = serde_json::to_value(&snd).unwrap();
        for path in times {
            assert_eq!(json.pointer(path), Some(&json!(NOW - 100)), "{path}");
        }
    }

    #[test]
    fn the_times_of_probes_are_converted() {
        let mut timer = with(&KeepAliveTimer::new(None), "/probed_at", &json!(500));
        timer.rebase(Rebase::Relative(Nanos(600)));
        assert_eq!(serde_json::to_value(timer).unwrap().pointer("/probed_at"), Some(&json!(NOW - 100)));
    }

    /// The timestamp clock shows the same at the new core, and the epoch of the smallest round
    /// trips has the same distance.
    #[test]
    fn counts_of_periods_continue() {
        let (old, new) = (Nanos(900 << 32), Nanos(7 << 32));
        let mut ts = TimestampState::new(77);
        let shown = ts.option(old).tsval;
        ts.rebase(Rebase::Relative(old));
        ts.rebase(Rebase::Absolute(new));
        assert_eq!(ts.option(new).tsval, shown);
        let mut snd = SendSide::new(&TcpConfig::default(), Seq(7), 1_448, Nanos(500));
        snd = with(&snd, "/recovery/rack/min_rtt/epoch", &json!(899));
        snd.rebase(Rebase::Relative(old));
        snd.rebase(Rebase::Absolute(new));
        let json = serde_json::to_value(&snd).unwrap();
        assert_eq!(json.pointer("/recovery/rack/min_rtt/epoch"), Some(&json!(6)));
    }

    fn moved(at: u64, saved_at: u64, restored_at: u64) -> u64 {
        let mut at = Nanos(at);
        Rebase::Relative(Nanos(saved_at)).time(&mut at);
        Rebase::Absolute(Nanos(restored_at)).time(&mut at);
        at.0
    }

    #[test]
    fn a_time_keeps_its_distance_from_the_time_of_saving() {
        assert_eq!([moved(90, 100, 1_000), moved(130, 100, 1_000)], [990, 1_030]);
        assert_eq!([moved(0, 100, 1_000), moved(u64::MAX, 100, 1_000)], [0, u64::MAX]);
        assert_eq!(moved(10, 100, 50), 1, "before the start of the reader's clock");
    }
}
