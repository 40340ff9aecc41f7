//! Loss: how it is found out, and what follows until it is repaired.
//!
//! ```text
//!          loss found: RACK, or three duplicate ACKs            `recover` acknowledged
//!   Open ------------------------------------------> Fast ----------------------------> Open
//!    | \----------- congestion echoed -------------> Reduced --------------------------> Open
//!    |                                                 | loss found: Fast
//!    \------------- the timeout ran out ------------> Loss ----------------------------> Open
//! ```
//!
//! `scoreboard` knows of every unit whether it is on its way, `rack` decides when one is lost, `tlp` asks when nothing is
//! heard, `slow_path` draws the consequences: which phase, how large a window, which timer. All of it is off the fast path:
//! an acknowledgement that advances while `slow_path` is false and that brings neither SACK nor echo never comes here.
//!
//! Source: RFC 6675, RFC 8985, RFC 6937, RFC 6582 and RFC 3042 for peers without SACK, RFC 2883, RFC 3168 s6.1.2.

mod rack;
mod scoreboard;
mod slow_path;
mod tlp;

use ironwarp_types::Seq;

pub(crate) use rack::Rack;
pub(crate) use scoreboard::{Scoreboard, delivered_unit, split_unit};
pub(crate) use tlp::tlp_timeout;

use crate::congestion::Prr;
use tlp::Tlp;

/// Where loss recovery stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RecoveryPhase {
    /// Nothing is known to be lost.
    Open,
    /// The network has marked: the window comes down, and nothing is lost (RFC 3168 s6.1.2).
    Cwr,
    /// Something is lost and is sent again while the window comes down (RFC 6675 s5, RFC 6582 s3.2).
    FastRecovery,
    /// After a timeout: what is lost is sent again in slow start.
    Loss,
}

/// One connection's recovery.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recovery {
    pub(crate) phase: RecoveryPhase,
    /// Whether anything is or lately was amiss, so that acknowledgements need more than a look.
    pub(crate) slow_path: bool,
    /// The next new payload tells the peer that its echo was heard (RFC 3168 s6.1.2).
    pub(crate) cwr_due: bool,
    /// Duplicate ACKs in a row, of a peer without SACK.
    dup_acks: u8,
    /// SND.NXT when the phase began (RFC 6582 s3.2, RecoveryPoint of RFC 6675 s5).
    recover: Seq,
    /// Nothing beyond `recover` has been acknowledged: what the peer echoes or repeats is of the time before.
    before_recover: bool,
    /// The end of what was sent more than once.
    high_rxt: Seq,
    /// Segments sent again since the last reduction and not known to be in vain; `None` when there is nothing to undo.
    undo_retransmits: Option<u16>,
    /// When the doubt is over: SND.NXT when recovery ended.
    undo_until: Seq,
    prr: Prr,
    pub(crate) rack: Rack,
    pub(crate) tlp: Tlp,
}

impl Recovery {
    pub(crate) fn new(iss: Seq) -> Self {
        Recovery {
            phase: RecoveryPhase::Open,
            slow_path: false,
            cwr_due: false,
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

    /// Bytes left while the window comes down.
    #[cold]
    pub(crate) fn on_sent(&mut self, bytes: u32) {
        self.prr.on_sent(bytes);
    }

    /// A unit that ends at `seq_end` was sent again.
    pub(crate) fn on_retransmit(&mut self, seq_end: Seq) {
        // While nothing is amiss the number is of another time, and may lie anywhere.
        self.high_rxt = if self.slow_path { self.high_rxt.max(seq_end) } else { seq_end };
        self.slow_path = true;
        self.undo_retransmits = self.undo_retransmits.map(|units| units.saturating_add(1));
    }

    /// A phase begins. RFC 3168 s6.1.2: whatever the reduction was for, CWR tells of it.
    fn enter(&mut self, snd_nxt: Seq) {
        (self.recover, self.before_recover, self.slow_path, self.cwr_due) = (snd_nxt, true, true, true);
        self.tlp.reset();
    }

    /// Whether lost units are being repaired.
    fn in_loss_recovery(&self) -> bool {
        matches!(self.phase, RecoveryPhase::FastRecovery | RecoveryPhase::Loss)
    }
}
