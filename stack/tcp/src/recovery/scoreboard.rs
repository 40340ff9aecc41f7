//! The scoreboard: the state of every retained unit (in flight, SACKed or lost).
//!
//! ```text
//!   SND.UNA                                            snd_nxt
//!     | Lost | InFlight | Sacked  Sacked  Sacked | InFlight | Unsent |
//!                        run ------------>
//!
//!   pipe = snd_nxt - SND.UNA - sacked - lost           (RFC 6675 s4; a retransmitted unit is InFlight and counted once)
//! ```
//!
//! All units stay in one list, in order of sequence, until they are cumulatively acknowledged,
//! since a peer may discard SACKed data (RFC 2018 s8). The sums `sacked` and `lost` are zero in
//! normal operation, so that an ordinary ACK costs nothing here. Contiguous SACKed units form a run
//! that walks skip. A SACK therefore costs the number of holes and new blocks, not the size of the
//! flight. An edge inside a unit splits it, while the peer has splits left ([`nodes_max`]). After
//! that, or if no node is free, the edge is rounded to the boundary that keeps the unit
//! unacknowledged, which costs at most an unnecessary retransmission.
//!
//! Source: RFC 2018 s5, RFC 6675 s3 to s5, RFC 8985 s6.2. Nothing here can fail.

use ironwarp_port::Sealed;
use ironwarp_types::{Nanos, Seq};
use serde::{Deserialize, Serialize};

use super::rack::{Delivered, Rack};
use crate::header::SackBlock;
use crate::queue::{Arena, List, NIL, Unit, UnitState};

/// The sums over the units of a connection.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Scoreboard {
    /// Sequence numbers in [`UnitState::Sacked`] units. For a peer without SACK: the estimate from
    /// its duplicate ACKs.
    pub(crate) sacked: u32,
    /// Sequence numbers in [`UnitState::Lost`] units.
    pub(crate) lost: u32,
    pub(crate) sacked_units: u16,
    /// No unit before this node is lost; [`NIL`] when unknown.
    #[serde(skip, default = "unknown")]
    next_lost_hint: u32,
}

fn unknown() -> u32 {
    NIL
}

/// The result of a loss scan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LossScan {
    /// Sequence numbers newly marked lost.
    pub(crate) lost: u32,
    /// When the last of the remaining candidates will be lost.
    pub(crate) recheck_at: Option<Nanos>,
}

impl Scoreboard {
    pub(crate) const fn new() -> Self {
        Scoreboard { sacked: 0, lost: 0, sacked_units: 0, next_lost_hint: NIL }
    }

    /// Applies the peer's SACK blocks and reports every newly delivered unit. No block may end
    /// beyond the sent data or begin before SND.UNA. Sorts `blocks`. A list of `nodes_max` units or
    /// more is not split.
    pub(crate) fn sack<S: Sealed>(
        &mut self,
        tx: &mut Arena<Unit<S>>,
        list: &mut List,
        una: Seq,
        (blocks, nodes_max): (&mut [SackBlock], u32),
        delivered: &mut impl FnMut(Delivered),
    ) {
        blocks.sort_unstable_by_key(|block| block.start.since(una));
        let mut cursor = Cursor { at: list.head(), run: NIL };
        for block in blocks {
            while let Some(unit) = tx.value(cursor.at) {
                if unit.state == UnitState::Unsent || block.end.leq(unit.seq) {
                    break;
                }
                if unit.state == UnitState::Sacked {
                    cursor.skip_run(tx);
                } else if self.split_at_block(tx, list, cursor.at, (block, nodes_max)) {
                    self.mark_sacked(tx, &mut cursor, delivered);
                } else {
                    cursor.step(tx);
                }
            }
        }
    }

    /// Splits the unit at a node at the edge of the block, if needed. Returns whether the unit now
    /// lies inside the block.
    fn split_at_block<S: Sealed>(
        &mut self,
        tx: &mut Arena<Unit<S>>,
        list: &mut List,
        at: u32,
        (block, nodes_max): (&SackBlock, u32),
    ) -> bool {
        let Some(unit) = tx.value(at) else { return false };
        let (seq, end) = (unit.seq, unit.seq_end());
        if seq.lt(block.start) {
            if block.start.lt(end) {
                split_for_sack(tx, list, at, block.start, nodes_max);
            }
            return false;
        }
        end.leq(block.end) || split_for_sack(tx, list, at, block.end, nodes_max)
    }

    fn mark_sacked<S: Sealed>(
        &mut self,
        tx: &mut Arena<Unit<S>>,
        cursor: &mut Cursor,
        delivered: &mut impl FnMut(Delivered),
    ) {
        let at = cursor.at;
        if let Some(unit) = tx.value_mut(at) {
            if unit.state == UnitState::Lost {
                self.lost = self.lost.saturating_sub(unit.seq_len());
            }
            self.sacked += unit.seq_len();
            self.sacked_units = self.sacked_units.saturating_add(1);
            (unit.state, unit.run) = (UnitState::Sacked, at);
            delivered(delivered_unit(unit));
        }
        cursor.skip_run(tx);
    }

    /// RFC 8985 s6.2, step 5: marks the units that RACK considers lost. `pipe` is the number of
    /// bytes in flight; the scan ends after that many.
    pub(crate) fn detect_loss<S: Sealed>(
        &mut self,
        tx: &mut Arena<Unit<S>>,
        list: &List,
        pipe: u32,
        rack: &Rack,
        now: Nanos,
        window: Nanos,
    ) -> LossScan {
        let mut scan = LossScan { lost: 0, recheck_at: None };
        let mut cursor = Cursor { at: list.head(), run: NIL };
        let mut left = pipe;
        while left > 0
            && let Some(unit) = tx.value(cursor.at)
        {
            match unit.state {
                UnitState::Sacked => cursor.skip_run(tx),
                UnitState::Lost => cursor.step(tx),
                UnitState::Unsent => break,
                UnitState::InFlight => {
                    left = left.saturating_sub(unit.seq_len());
                    let is_loss_candidate = rack.is_loss_candidate(unit.sent_at, unit.seq_end());
                    if !is_loss_candidate && !unit.retransmitted {
                        // The following units were sent later still.
                        break;
                    }
                    let lost_at = rack.lost_at(unit.sent_at, window);
                    if is_loss_candidate && lost_at <= now {
                        scan.lost += unit.seq_len();
                        self.mark_lost(tx, cursor.at);
                    } else if is_loss_candidate {
                        scan.recheck_at = scan.recheck_at.max(Some(lost_at));
                    }
                    cursor.step(tx);
                }
            }
        }
        scan
    }

    /// RFC 6298 s5.4 and RFC 8985 s6.3: the timeout expired. Marks the first unit as lost, and the
    /// others that were last sent at `before` or earlier. Returns whether any unit was newly
    /// marked.
    pub(crate) fn on_timeout<S: Sealed>(
        &mut self,
        tx: &mut Arena<Unit<S>>,
        list: &List,
        before: Nanos,
    ) -> bool {
        let lost = self.lost;
        let mut at = list.head();
        while let Some(unit) = tx.value(at).filter(|unit| unit.state != UnitState::Unsent) {
            let overdue = at == list.head() || unit.sent_at <= before;
            if unit.state == UnitState::InFlight && overdue {
                self.mark_lost(tx, at);
            }
            at = tx.next(at);
        }
        self.lost > lost
    }

    /// RFC 2018 s8: the peer discarded SACKed data. It will report again what it still holds.
    pub(crate) fn clear_sacks<S: Sealed>(&mut self, tx: &mut Arena<Unit<S>>, list: &List) {
        let mut at = list.head();
        while let Some(unit) = tx.value_mut(at) {
            if unit.state == UnitState::Sacked {
                unit.state = UnitState::InFlight;
            }
            at = tx.next(at);
        }
        (self.sacked, self.sacked_units) = (0, 0);
    }

    /// Marks the in-flight unit at a node as lost.
    pub(crate) fn mark_lost<S: Sealed>(&mut self, tx: &mut Arena<Unit<S>>, at: u32) {
        let hint_seq = tx.value(self.next_lost_hint).map(|unit| unit.seq);
        let Some(unit) = tx.value_mut(at) else { return };
        unit.state = UnitState::Lost;
        self.lost += unit.seq_len();
        if hint_seq.is_some_and(|seq| unit.seq.lt(seq)) {
            self.next_lost_hint = at;
        }
    }

    /// Returns the first lost unit.
    pub(crate) fn next_lost<S: Sealed>(&mut self, tx: &mut Arena<Unit<S>>, list: &List) -> Option<u32> {
        let from = if self.next_lost_hint == NIL { list.head() } else { self.next_lost_hint };
        let mut cursor = Cursor { at: from, run: NIL };
        while let Some(unit) = tx.value(cursor.at) {
            match unit.state {
                UnitState::Lost => {
                    self.next_lost_hint = cursor.at;
                    return Some(cursor.at);
                }
                UnitState::Sacked => cursor.skip_run(tx),
                UnitState::InFlight => cursor.step(tx),
                UnitState::Unsent => break,
            }
        }
        None
    }

    /// The unit at a node is sent or retransmitted at `now`.
    #[inline]
    pub(crate) fn on_sent<S: Sealed>(&mut self, unit: &mut Unit<S>, now: Nanos) {
        unit.sent_at = now;
        if unit.state != UnitState::Unsent {
            self.on_retransmit(unit);
        }
        unit.state = UnitState::InFlight;
    }

    #[cold]
    fn on_retransmit<S: Sealed>(&mut self, unit: &mut Unit<S>) {
        unit.retransmitted = true;
        if unit.state == UnitState::Lost {
            self.lost = self.lost.saturating_sub(unit.seq_len());
        }
        if self.lost == 0 {
            self.next_lost_hint = NIL;
        }
    }

    /// The first unit, at `node`, is acknowledged and removed.
    #[cold]
    pub(crate) fn on_released<S: Sealed>(&mut self, unit: &Unit<S>, node: u32) {
        if self.next_lost_hint == node {
            self.next_lost_hint = NIL;
        }
        self.on_acked(unit.state, unit.seq_len());
        if unit.state == UnitState::Sacked {
            self.sacked_units = self.sacked_units.saturating_sub(1);
        }
    }

    /// The first `bytes` of a unit in this state are acknowledged.
    pub(crate) fn on_acked(&mut self, state: UnitState, bytes: u32) {
        match state {
            UnitState::Sacked => self.sacked = self.sacked.saturating_sub(bytes),
            UnitState::Lost => self.lost = self.lost.saturating_sub(bytes),
            UnitState::InFlight | UnitState::Unsent => {}
        }
    }

    /// Checks the sums against the units. `sacks` is false for a peer without SACK, whose duplicate
    /// ACKs mark no unit.
    pub(crate) fn check<S: Sealed>(
        &self,
        tx: &Arena<Unit<S>>,
        list: &List,
        sacks: bool,
    ) -> Result<(), String> {
        let of = |state: UnitState| tx.iter(list).filter(move |unit| unit.state == state);
        let sum = |state: UnitState| of(state).map(Unit::seq_len).sum::<u32>();
        let (lost, sacked, units) =
            (sum(UnitState::Lost), sum(UnitState::Sacked), of(UnitState::Sacked).count());
        if self.lost != lost {
            return Err(format!("{} sequence numbers lost by the sum, {lost} by the units", self.lost));
        }
        if sacks && (self.sacked, usize::from(self.sacked_units)) != (sacked, units) {
            return Err(format!(
                "{} sequence numbers SACKed by the sum, {sacked} by {units} units",
                self.sacked
            ));
        }
        Ok(())
    }
}

/// A walk along the list that tracks the current run of SACKed units.
struct Cursor {
    at: u32,
    /// The first node of the run that ends directly before `at`.
    run: u32,
}

impl Cursor {
    /// Moves to the next node, from one that is not SACKed.
    fn step<S: Sealed>(&mut self, tx: &Arena<Unit<S>>) {
        *self = Cursor { at: tx.next(self.at), run: NIL };
    }

    /// Skips the run that begins at a SACKed node, and merges adjacent runs.
    fn skip_run<S: Sealed>(&mut self, tx: &mut Arena<Unit<S>>) {
        let first = if self.run == NIL { self.at } else { self.run };
        let mut last = self.at;
        while let Some(run) = tx.value(last).map(|unit| unit.run).filter(|&run| run != last) {
            last = run;
        }
        if let Some(unit) = tx.value_mut(first) {
            unit.run = last;
        }
        *self = Cursor { at: tx.next(last), run: first };
    }
}

/// Splits the unit at a node at `seq`, which lies inside it. Returns whether a node for the second
/// part was free.
pub(crate) fn split_unit<S: Sealed>(tx: &mut Arena<Unit<S>>, list: &mut List, at: u32, seq: Seq) -> bool {
    if !tx.has_room(list) {
        return false;
    }
    let Some(unit) = tx.value_mut(at) else { return false };
    let bytes = seq.since(unit.seq).min(u32::from(u16::MAX)) as u16;
    if bytes == 0 || bytes >= unit.len {
        return false;
    }
    let rest = unit.split_off(bytes);
    tx.insert_after(list, at, rest).is_ok()
}

/// Returns how many units a connection may have after a split at the edge of a SACK block, with
/// `flight` sequence numbers sent: two for each full segment, and a few.
///
/// A peer that receives whole units needs no split. One that SACKs single bytes would otherwise
/// make a list of thousands of units, which every ACK walks and whose parts are resent alone
/// (CVE-2019-11478, CVE-2019-11479).
pub(crate) fn nodes_max(flight: u32, emss: u16) -> u32 {
    const SPLITS_ALWAYS: u32 = 16;
    2 * flight.div_ceil(u32::from(emss.max(1))) + SPLITS_ALWAYS
}

/// Splits at the edge of a SACK block. The peer decides about such splits, so they leave the last
/// quarter of the shared nodes unused, too.
fn split_for_sack<S: Sealed>(
    tx: &mut Arena<Unit<S>>,
    list: &mut List,
    at: u32,
    seq: Seq,
    nodes_max: u32,
) -> bool {
    u32::from(list.len()) < nodes_max && !tx.is_under_pressure() && split_unit(tx, list, at, seq)
}

/// Joins the unit at a node with the parts of the same frame that follow it and are lost like it,
/// up to `len_max` sequence numbers.
pub(crate) fn join_lost_parts<S: Sealed>(tx: &mut Arena<Unit<S>>, list: &mut List, at: u32, len_max: u32) {
    while let Some(unit) = tx.value(at)
        && let Some(next) = tx.value(tx.next(at))
        && unit.continues_in(next)
        && unit.state == UnitState::Lost
        && next.state == UnitState::Lost
        && unit.seq_len() + next.seq_len() <= len_max
    {
        if let Some(part) = tx.remove_after(list, at)
            && let Some(unit) = tx.value_mut(at)
        {
            unit.join(&part);
        }
    }
}

/// Returns the delivered unit for RACK.
pub(crate) fn delivered_unit<S: Sealed>(unit: &Unit<S>) -> Delivered {
    Delivered { sent_at: unit.sent_at, seq_end: unit.seq_end(), retransmitted: unit.retransmitted }
}

#[cfg(test)]
#[path = "scoreboard_tests.rs"]
mod tests;
