//! Loss detection and recovery.
//!
//! ```text
//!           loss found: RACK, or three duplicate ACKs            `recover` acknowledged
//!    Open ---------------------------------------> FastRecovery -----------------------> Open
//!     | \----------- congestion echoed ----------> Cwr --------------------------------> Open
//!     |                                             | loss found: FastRecovery
//!     \------------- the timeout expired ---------> Loss -------------------------------> Open
//! ```
//!
//! `scoreboard` holds the state of every unit, `rack` decides when one is lost, `tlp` sends probes
//! when acknowledgements stop, and `on_ack` applies the results: the phase, the window and the
//! timer. All of this is off the fast path. An ACK that advances, without SACK blocks or echo, does
//! not reach this module while [`Recovery::active`] is false.
//!
//! Source: RFC 6675, RFC 8985, RFC 6937, RFC 6582 and RFC 3042 for peers without SACK, RFC 2883,
//! RFC 3168 s6.1.2.

mod on_ack;
mod rack;
mod scoreboard;
mod tlp;

use ironwarp_types::Seq;
use serde::{Deserialize, Serialize};

pub(crate) use rack::{Delivered, Rack};
pub(crate) use scoreboard::{Scoreboard, delivered_unit, join_lost_parts, split_unit};
pub(crate) use tlp::tlp_timeout;

use crate::congestion::Prr;
use tlp::Tlp;

/// The phase of loss recovery.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum RecoveryPhase {
    /// No loss is known.
    Open,
    /// The network marked a packet: the window is reduced without a loss (RFC 3168 s6.1.2).
    Cwr,
    /// Lost data is retransmitted while the window is reduced (RFC 6675 s5, RFC 6582 s3.2).
    FastRecovery,
    /// After a timeout: lost data is retransmitted in slow start.
    Loss,
}

/// The recovery state of one connection. The fields of every ACK come first.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[repr(C)]
pub(crate) struct Recovery {
    pub(crate) phase: RecoveryPhase,
    /// Acknowledgements need full processing, because of a current or recent loss.
    pub(crate) active: bool,
    /// A mark was echoed at a window of one segment: no new payload until the retransmission timer
    /// expires (RFC 3168 s6.1.2).
    pub(crate) held: bool,
    /// The next new payload carries CWR, which confirms the peer's echo (RFC 3168 s6.1.2).
    pub(crate) cwr_due: bool,
    /// Consecutive duplicate ACKs of a peer without SACK.
    dup_acks: u8,
    /// Nothing beyond `recover` is acknowledged: echoes and duplicates refer to data sent before
    /// the phase.
    before_recover: bool,
    pub(crate) rack: Rack,
    /// SND.NXT when a header got CWR. While it is SND.NXT still, that header has not left.
    cwr_at: Seq,
    /// SND.NXT when the phase began (RFC 6582 s3.2, RecoveryPoint of RFC 6675 s5).
    recover: Seq,
    /// The end of the highest retransmission.
    high_rxt: Seq,
    /// Retransmissions since the last reduction that are not known to be spurious; `None` when
    /// there is nothing to undo.
    undo_retransmits: Option<u16>,
    /// The end of the period in which the reduction may be undone: SND.NXT when recovery ended.
    undo_until: Seq,
    prr: Prr,
    pub(crate) tlp: Tlp,
}

impl Recovery {
    pub(crate) fn new(iss: Seq) -> Self {
        Recovery {
            phase: RecoveryPhase::Open,
            active: false,
            held: false,
            cwr_due: false,
            cwr_at: iss,
            dup_acks: 0,
            recover: iss,
            before_recover: false,
            high_rxt: iss,
            undo_retransmits: None,
            undo_until: iss,
            prr: Prr::default(),
            rack: Rack::new(iss),
            tlp: Tlp::default(),
        }
    }

    /// Bytes were sent while the window is reduced.
    #[cold]
    pub(crate) fn on_sent(&mut self, bytes: u32) {
        self.prr.on_sent(bytes);
    }

    /// A unit that ends at `seq_end` was retransmitted.
    pub(crate) fn on_retransmit(&mut self, seq_end: Seq) {
        // Outside recovery `high_rxt` is stale and must be replaced.
        self.high_rxt = if self.active { self.high_rxt.max(seq_end) } else { seq_end };
        self.active = true;
        self.undo_retransmits = self.undo_retransmits.map(|units| units.saturating_add(1));
    }

    /// Enters a phase. RFC 3168 s6.1.2: CWR reports every reduction, whatever its reason.
    fn enter(&mut self, snd_nxt: Seq) {
        (self.recover, self.before_recover, self.active, self.cwr_due) = (snd_nxt, true, true, true);
        self.tlp.reset();
    }

    /// Returns whether the header of new payload at `snd_nxt` has CWR.
    #[inline]
    pub(crate) fn take_cwr(&mut self, snd_nxt: Seq) -> bool {
        if !self.cwr_due {
            return false;
        }
        (self.cwr_due, self.cwr_at) = (false, snd_nxt);
        true
    }

    /// Payload at `snd_nxt` will get a header. If an earlier one did not leave, as behind a closed
    /// window, its CWR is due again.
    #[cold]
    pub(crate) fn renew_cwr(&mut self, snd_nxt: Seq) {
        self.cwr_due |= self.cwr_at == snd_nxt;
    }

    /// Returns whether a saved state has the count that [`Prr`] divides by.
    pub(crate) fn is_valid(&self) -> bool {
        !self.is_reducing() || self.prr.has_begun()
    }

    /// Returns whether PRR sets the window.
    fn is_reducing(&self) -> bool {
        matches!(self.phase, RecoveryPhase::FastRecovery | RecoveryPhase::Cwr)
    }

    /// Returns whether lost units are being repaired.
    fn in_loss_recovery(&self) -> bool {
        matches!(self.phase, RecoveryPhase::FastRecovery | RecoveryPhase::Loss)
    }
}
