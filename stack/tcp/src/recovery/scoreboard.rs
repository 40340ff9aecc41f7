//! What is known of every unit that is retained: on its way, held by the peer, or lost.
//!
//! ```text
//!   SND.UNA                                            snd_nxt
//!     | Lost | Flying | Sacked  Sacked  Sacked | Flying | Unsent |
//!                        run ------------>
//!
//!   pipe = snd_nxt - SND.UNA - sacked - lost           (RFC 6675 s4; what was sent again is Flying once)
//! ```
//!
//! The units stay in one list in order of sequence until they are cumulatively acknowledged (RFC 2018 s8: a peer may
//! change its mind). Two sums are kept beside it, both zero while nothing is amiss, so that an ordinary ACK costs nothing
//! here. Sacked units that follow each other form a run that walks jump over, so that a SACK costs the holes and what is
//! news, not the flight. An edge inside a unit cuts it in two; where no node is left for the second part, the edge counts
//! as if it were at the unit's near end, which is at worst sent once more than needed.
//!
//! Source: RFC 2018 s5, RFC 6675 s3 to s5, RFC 8985 s6.2. Nothing here can fail.

use ironwarp_port::Sealed;
use ironwarp_types::{Nanos, Seq};

use super::rack::{Delivered, Rack};
use crate::header::SackBlock;
use crate::queue::{Arena, List, Mark, NIL, Unit};

/// The sums over a connection's units.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scoreboard {
    /// Numbers in units that are [`Mark::Sacked`]. For a peer without SACK: what its duplicate ACKs stand for.
    pub(crate) sacked: u32,
    /// Numbers in units that are [`Mark::Lost`].
    pub(crate) lost: u32,
    pub(crate) sacked_units: u16,
    /// No unit before this node is lost; [`NIL`] when that must be looked for.
    resend_at: u32,
}

/// What a look for losses found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Found {
    /// Numbers newly marked lost.
    pub(crate) lost: u32,
    /// When the last of those that may be lost will be.
    pub(crate) look_at: Option<Nanos>,
}

impl Scoreboard {
    pub(crate) const fn new() -> Self {
        Scoreboard { sacked: 0, lost: 0, sacked_units: 0, resend_at: NIL }
    }

    /// Takes the peer's blocks, of which none ends beyond what was sent or begins before SND.UNA, and tells of every
    /// unit that is newly delivered. `blocks` is put in order.
    pub(crate) fn sack<S: Sealed>(
        &mut self,
        tx: &mut Arena<Unit<S>>,
        list: &mut List,
        una: Seq,
        blocks: &mut [SackBlock],
        delivered: &mut impl FnMut(Delivered),
    ) {
        blocks.sort_unstable_by_key(|block| block.start.since(una));
        let mut walk = Walk { at: list.head(), run: NIL };
        for block in blocks {
            while let Some(unit) = tx.value(walk.at) {
                if unit.mark == Mark::Unsent || block.end.leq(unit.seq) {
                    break;
                }
                if unit.mark == Mark::Sacked {
                    walk.jump(tx);
                } else if self.cut_to(tx, list, walk.at, block) {
                    self.mark_sacked(tx, &mut walk, delivered);
                } else {
                    walk.step(tx);
                }
            }
        }
    }

    /// Cuts the unit at a node so that it lies wholly inside the block or wholly outside, and answers whether it lies
    /// inside.
    fn cut_to<S: Sealed>(
        &mut self,
        tx: &mut Arena<Unit<S>>,
        list: &mut List,
        at: u32,
        block: &SackBlock,
    ) -> bool {
        let Some(unit) = tx.value(at) else { return false };
        let (seq, end) = (unit.seq, unit.seq_end());
        if seq.lt(block.start) {
            if block.start.lt(end) {
                cut_by_peer(tx, list, at, block.start);
            }
            return false;
        }
        end.leq(block.end) || cut_by_peer(tx, list, at, block.end)
    }

    fn mark_sacked<S: Sealed>(
        &mut self,
        tx: &mut Arena<Unit<S>>,
        walk: &mut Walk,
        delivered: &mut impl FnMut(Delivered),
    ) {
        let at = walk.at;
        if let Some(unit) = tx.value_mut(at) {
            if unit.mark == Mark::Lost {
                self.lost = self.lost.saturating_sub(unit.seq_len());
            }
            self.sacked += unit.seq_len();
            self.sacked_units = self.sacked_units.saturating_add(1);
            (unit.mark, unit.run) = (Mark::Sacked, at);
            delivered(told(unit));
        }
        walk.jump(tx);
    }

    /// RFC 8985 s6.2, step 5: marks what RACK holds for lost. `pipe` is what is on its way: behind so much, nothing is
    /// worth a look.
    pub(crate) fn detect<S: Sealed>(
        &mut self,
        tx: &mut Arena<Unit<S>>,
        list: &List,
        pipe: u32,
        rack: &Rack,
        now: Nanos,
        window: Nanos,
    ) -> Found {
        let mut found = Found { lost: 0, look_at: None };
        let mut walk = Walk { at: list.head(), run: NIL };
        let mut left = pipe;
        while left > 0
            && let Some(unit) = tx.value(walk.at)
        {
            match unit.mark {
                Mark::Sacked => walk.jump(tx),
                Mark::Lost => walk.step(tx),
                Mark::Unsent => break,
                Mark::Flying => {
                    left = left.saturating_sub(unit.seq_len());
                    let passed = rack.passed(unit.sent_at, unit.seq_end());
                    if !passed && !unit.again {
                        // What follows was sent later still.
                        break;
                    }
                    let lost_at = rack.lost_at(unit.sent_at, window);
                    if passed && lost_at <= now {
                        found.lost += unit.seq_len();
                        self.mark_lost(tx, walk.at);
                    } else if passed {
                        found.look_at = found.look_at.max(Some(lost_at));
                    }
                    walk.step(tx);
                }
            }
        }
        found
    }

    /// RFC 6298 s5.4 and RFC 8985 s6.3: the timer ran out. The first unit is lost, and of the others those that left at
    /// `before` or earlier. Answers whether anything was newly marked.
    pub(crate) fn on_timeout<S: Sealed>(
        &mut self,
        tx: &mut Arena<Unit<S>>,
        list: &List,
        before: Nanos,
    ) -> bool {
        let lost = self.lost;
        let mut at = list.head();
        while let Some(unit) = tx.value(at).filter(|unit| unit.mark != Mark::Unsent) {
            let overdue = at == list.head() || unit.sent_at <= before;
            if unit.mark == Mark::Flying && overdue {
                self.mark_lost(tx, at);
            }
            at = tx.next(at);
        }
        self.lost > lost
    }

    /// RFC 2018 s8: the peer gave up what it had said to hold. What it holds now will be told again.
    pub(crate) fn forget_sacks<S: Sealed>(&mut self, tx: &mut Arena<Unit<S>>, list: &List) {
        let mut at = list.head();
        while let Some(unit) = tx.value_mut(at) {
            if unit.mark == Mark::Sacked {
                unit.mark = Mark::Flying;
            }
            at = tx.next(at);
        }
        (self.sacked, self.sacked_units) = (0, 0);
    }

    /// Marks the unit at a node, which is on its way, as lost.
    pub(crate) fn mark_lost<S: Sealed>(&mut self, tx: &mut Arena<Unit<S>>, at: u32) {
        let resend_seq = tx.value(self.resend_at).map(|unit| unit.seq);
        let Some(unit) = tx.value_mut(at) else { return };
        unit.mark = Mark::Lost;
        self.lost += unit.seq_len();
        if resend_seq.is_some_and(|seq| unit.seq.lt(seq)) {
            self.resend_at = at;
        }
    }

    /// The first unit that is lost.
    pub(crate) fn next_lost<S: Sealed>(&mut self, tx: &mut Arena<Unit<S>>, list: &List) -> Option<u32> {
        let from = if self.resend_at == NIL { list.head() } else { self.resend_at };
        let mut walk = Walk { at: from, run: NIL };
        while let Some(unit) = tx.value(walk.at) {
            match unit.mark {
                Mark::Lost => {
                    self.resend_at = walk.at;
                    return Some(walk.at);
                }
                Mark::Sacked => walk.jump(tx),
                Mark::Flying => walk.step(tx),
                Mark::Unsent => break,
            }
        }
        None
    }

    /// The unit at a node leaves at `now`, for the first time or again.
    #[inline]
    pub(crate) fn on_sent<S: Sealed>(&mut self, unit: &mut Unit<S>, now: Nanos) {
        unit.sent_at = now;
        if unit.mark != Mark::Unsent {
            self.on_sent_again(unit);
        }
        unit.mark = Mark::Flying;
    }

    #[cold]
    fn on_sent_again<S: Sealed>(&mut self, unit: &mut Unit<S>) {
        unit.again = true;
        if unit.mark == Mark::Lost {
            self.lost = self.lost.saturating_sub(unit.seq_len());
        }
        if self.lost == 0 {
            self.resend_at = NIL;
        }
    }

    /// The first unit, at `node`, is acknowledged and goes.
    #[cold]
    pub(crate) fn on_released<S: Sealed>(&mut self, unit: &Unit<S>, node: u32) {
        if self.resend_at == node {
            self.resend_at = NIL;
        }
        self.on_acked(unit.mark, unit.seq_len());
        if unit.mark == Mark::Sacked {
            self.sacked_units = self.sacked_units.saturating_sub(1);
        }
    }

    /// The first `bytes` of a unit with this mark are acknowledged.
    pub(crate) fn on_acked(&mut self, mark: Mark, bytes: u32) {
        match mark {
            Mark::Sacked => self.sacked = self.sacked.saturating_sub(bytes),
            Mark::Lost => self.lost = self.lost.saturating_sub(bytes),
            Mark::Flying | Mark::Unsent => {}
        }
    }

    /// Whether the sums are what the units say. `sacks` is false for a peer without SACK, whose duplicate ACKs are of no
    /// unit.
    pub(crate) fn check<S: Sealed>(
        &self,
        tx: &Arena<Unit<S>>,
        list: &List,
        sacks: bool,
    ) -> Result<(), String> {
        let of = |mark: Mark| tx.iter(list).filter(move |unit| unit.mark == mark);
        let sum = |mark: Mark| of(mark).map(Unit::seq_len).sum::<u32>();
        let (lost, sacked, units) = (sum(Mark::Lost), sum(Mark::Sacked), of(Mark::Sacked).count());
        if self.lost != lost {
            return Err(format!("{} numbers lost by the sum, {lost} by the units", self.lost));
        }
        if sacks && (self.sacked, usize::from(self.sacked_units)) != (sacked, units) {
            return Err(format!("{} numbers SACKed by the sum, {sacked} by {units} units", self.sacked));
        }
        Ok(())
    }
}

/// A walk along the list that remembers the run of sacked units that it is in.
struct Walk {
    at: u32,
    /// The first node of the run that ends right before `at`.
    run: u32,
}

impl Walk {
    /// To the next node, from one that is not sacked.
    fn step<S: Sealed>(&mut self, tx: &Arena<Unit<S>>) {
        *self = Walk { at: tx.next(self.at), run: NIL };
    }

    /// Over the run that begins at a sacked node. Runs that touch become one.
    fn jump<S: Sealed>(&mut self, tx: &mut Arena<Unit<S>>) {
        let first = if self.run == NIL { self.at } else { self.run };
        let mut last = self.at;
        while let Some(run) = tx.value(last).map(|unit| unit.run).filter(|&run| run != last) {
            last = run;
        }
        if let Some(unit) = tx.value_mut(first) {
            unit.run = last;
        }
        *self = Walk { at: tx.next(last), run: first };
    }
}

/// Cuts the unit at a node in two at `seq`, which lies inside it. Answers whether there was a node for the second part.
pub(crate) fn cut<S: Sealed>(tx: &mut Arena<Unit<S>>, list: &mut List, at: u32, seq: Seq) -> bool {
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

/// Cuts where the peer says. It may say so byte by byte, so the last quarter of what connections share is not for that.
fn cut_by_peer<S: Sealed>(tx: &mut Arena<Unit<S>>, list: &mut List, at: u32, seq: Seq) -> bool {
    !tx.is_scarce() && cut(tx, list, at, seq)
}

/// What RACK hears of a unit.
pub(crate) fn told<S: Sealed>(unit: &Unit<S>) -> Delivered {
    Delivered { sent_at: unit.sent_at, seq_end: unit.seq_end(), again: unit.again }
}

#[cfg(test)]
#[path = "scoreboard_tests.rs"]
mod tests;
