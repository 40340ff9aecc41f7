//! The operator's log of connections: one line when a connection comes up, when a Terminate names
//! an error, and when it ends. Written from the contexts' events; it contains no application data.
//!
//! The core writes the lines itself, and peers cause them, so their rate is limited
//! ([`crate::LogLimit`]).

use crate::core_loop::channel::Notification;
use crate::event::DisconnectReason;

/// Logs an event that concerns the operator.
#[cold]
#[inline(never)]
pub(crate) fn log_event(core: u16, event: &Notification) {
    match event {
        Notification::Established { qp, negotiated, .. } => {
            let (qp, reads, revision) = (qp.num().0, negotiated.reads, negotiated.revision);
            let (ird, ord) = (reads.ird, reads.ord);
            tracing::info!(core, qp, "connected; MPA revision {revision}, IRD {ird}, ORD {ord}");
        }
        Notification::Rejected { qp, .. } => {
            tracing::info!(core, qp = qp.num().0, "the peer refused the connection")
        }
        Notification::ConnectFailed { qp, reason } => {
            tracing::info!(core, qp = qp.num().0, "no connection: {reason:?}");
        }
        Notification::Terminated { qp, sent, terminate } => {
            let verb = if *sent { "sent" } else { "received" };
            tracing::info!(core, qp = qp.num().0, "Terminate {verb}: {terminate}");
        }
        Notification::Disconnected { qp, reason: DisconnectReason::Closed } => {
            tracing::info!(core, qp = qp.num().0, "closed");
        }
        Notification::Disconnected { qp, reason } => {
            tracing::info!(core, qp = qp.num().0, "ended: {reason:?}")
        }
        Notification::ListenFailed { at } => {
            tracing::warn!(core, "cannot listen on {} over {}", at.local, at.transport)
        }
        _ => {}
    }
}
