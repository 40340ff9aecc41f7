//! The lifecycle of a queue pair's connection: one enum whose variants own the data of their state.
//!
//! ```text
//!                   Idle
//!          connect |    | accept
//!                  v    v
//!   +------> Resolving  Replying ---------------+
//!   |   path known |    | reply sent,           | reply sent, no RTR expected
//!   |              v    v RTR expected          |
//!   | use     Opening  AwaitingRtr ----------+  |
//!   | rev. 1       |    | first FPDU         |  |
//!   |       TCP up v    |                    |  |
//!   +----- Requesting   |                    |  |
//!   reply accepts  |    |                    |  |
//!                  v    v                    |  |
//!                  Running <-----------------|--+
//!                     |                      |
//!                     +----------------------+------> Draining (disconnect)
//!                     +----------------------+------> Terminating (error found, Terminate received)
//!                     +-----------------------------> Closing (peer's FIN)
//!
//!   Draining ----- all sent, acknowledged: FIN -----> HalfClosed ----- peer's FIN -----> Closing
//!   Draining ----- the same after the peer's FIN --------------------------------------> Closing
//!   Draining, HalfClosed ----- error found, Terminate received ----> Terminating
//!   Terminating ----- Terminate sent: FIN ---------------------------------------------> Closing
//!   every state ----- reset, timeout, reject, TCP closed ------------------------------> Ended
//! ```
//!
//! The edges, which a test reads from this comment and walks:
//!
//! ```text
//! Idle        -> Resolving Replying Ended
//! Resolving   -> Opening Ended
//! Opening     -> Requesting Ended
//! Requesting  -> Resolving Running Ended
//! Replying    -> AwaitingRtr Running Ended
//! AwaitingRtr -> Running Draining Terminating Ended
//! Running     -> Draining Terminating Closing Ended
//! Draining    -> HalfClosed Terminating Closing Ended
//! HalfClosed  -> Terminating Closing Ended
//! Terminating -> Closing Ended
//! Closing     -> Ended
//! Ended       ->
//! ```
//!
//! The data path reads the discriminant and, before a transmission, one time. Two other states remain, since each is a
//! different fact:
//! - [`StreamState`](ironwarp_iwarp::stream::StreamState) belongs to the RDMAP stream, which knows no TCP: whether it
//!   takes and sends FPDUs. The stream finds an error first; `Terminating` here follows from its result. `check` tests
//!   that the two agree.
//! - The stream's fence (RFC 5044 s7.1.2: a responder sends nothing before the initiator's first FPDU) exists only there;
//!   [`Stream::may_send`](ironwarp_iwarp::Stream::may_send) returns it. `AwaitingRtr` is more than a closed fence: the
//!   application does not know the connection yet (RFC 6581 s5).
//!
//! [`QpState`], the application's view, is derived by [`Lifecycle::qp_state`] and published by
//! [`QpCore::enter`](super::qp::QpCore::enter).

use ironwarp_types::Nanos;

use super::connection::setup::Setup;
use crate::event::DisconnectReason;
use crate::objects::QpState;

/// The state of a queue pair's connection, with the data that only this state needs.
#[expect(clippy::large_enum_variant, reason = "a box would be allocated on the core")]
pub(crate) enum Lifecycle {
    /// Neither connected nor accepted.
    Idle,
    /// Set-up: from the route's resolution to the end of the MPA start-up.
    Setup(Setup),
    /// Full operation of a responder that reports the connection after the initiator's first FPDU (RFC 6581 s5).
    AwaitingRtr,
    /// Full operation: FPDUs run both ways.
    Running(Running),
    /// The application disconnected: posted work requests are still carried out.
    Draining(Draining),
    /// FIN is sent; FPDUs that arrive before the peer's FIN are still placed and delivered.
    HalfClosed(HalfClosed),
    /// A Terminate was received, or an error was found and its Terminate may wait to be sent. Received bytes are
    /// discarded.
    Terminating { cause: DisconnectReason, established: bool },
    /// FIN is sent; received bytes are discarded. The cause is known if `Terminating` came before.
    Closing { cause: Option<DisconnectReason>, established: bool },
    /// No connection any more.
    Ended,
}

/// The data of full operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Running {
    /// FPDUs are held back until this time ([`MpaConfig::first_fpdu_holdoff_us`](crate::config::MpaConfig)).
    pub(super) holdoff_until: Nanos,
    /// The progress of the oldest Read when its timer was armed; `None` while it is not armed.
    pub(super) read_progress_at_arm: Option<u64>,
    /// Whether sends waited for the initiator's first FPDU when the timer was armed.
    pub(super) sends_waited_at_arm: bool,
}

/// The data of a disconnect that waits for posted work requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Draining {
    /// The connection is reset at this time unless there was progress.
    pub(super) deadline: Nanos,
    /// The progress when the deadline was set.
    pub(super) progress: DrainProgress,
    /// The peer's FIN has arrived.
    pub(super) peer_closed: bool,
    /// See [`Running::holdoff_until`].
    pub(super) holdoff_until: Nanos,
    /// Whether the application knows that the connection is up.
    pub(super) established: bool,
}

/// How far a disconnect has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct DrainProgress {
    /// Bytes that the peer has acknowledged.
    pub(super) acked_bytes: u64,
    /// The progress of the oldest Read.
    pub(super) read: Option<u64>,
}

/// The data of a connection whose FIN is sent while the peer may still send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct HalfClosed {
    /// The connection is reset at this time, even if the peer still sends.
    pub(super) deadline: Nanos,
    /// Whether bytes arrived since the timer was armed.
    pub(super) rx_since_timer: bool,
    /// Whether the application knows that the connection is up.
    pub(super) established: bool,
}

/// The states of the diagram. [`Lifecycle::Setup`] is four of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    Idle,
    Resolving,
    Opening,
    Requesting,
    Replying,
    AwaitingRtr,
    Running,
    Draining,
    HalfClosed,
    Terminating,
    Closing,
    Ended,
}

impl Stage {
    /// Returns whether the diagram has an edge from this state to `next`.
    fn leads_to(self, next: Stage) -> bool {
        use Stage::*;
        match self {
            Idle => matches!(next, Resolving | Replying | Ended),
            Resolving => matches!(next, Opening | Ended),
            Opening => matches!(next, Requesting | Ended),
            Requesting => matches!(next, Resolving | Running | Ended),
            Replying => matches!(next, AwaitingRtr | Running | Ended),
            AwaitingRtr => matches!(next, Running | Draining | Terminating | Ended),
            Running => matches!(next, Draining | Terminating | Closing | Ended),
            Draining => matches!(next, HalfClosed | Terminating | Closing | Ended),
            HalfClosed => matches!(next, Terminating | Closing | Ended),
            Terminating => matches!(next, Closing | Ended),
            Closing => next == Ended,
            Ended => false,
        }
    }
}

impl Lifecycle {
    /// Returns whether received bytes are FPDUs that are placed and delivered.
    #[inline]
    pub(super) fn takes_fpdus(&self) -> bool {
        matches!(
            self,
            Lifecycle::Running(_)
                | Lifecycle::AwaitingRtr
                | Lifecycle::Draining(_)
                | Lifecycle::HalfClosed(_)
        )
    }

    /// Returns whether the connection is not up yet, as the application sees it.
    pub(super) fn is_connecting(&self) -> bool {
        matches!(self, Lifecycle::Setup(_) | Lifecycle::AwaitingRtr)
    }

    /// The application's view of the state.
    pub(super) fn qp_state(&self) -> QpState {
        match self {
            Lifecycle::Idle => QpState::Idle,
            Lifecycle::Setup(_) | Lifecycle::AwaitingRtr => QpState::Connecting,
            Lifecycle::Running(_) => QpState::Established,
            Lifecycle::Draining(_) | Lifecycle::HalfClosed(_) => QpState::Draining,
            Lifecycle::Terminating { .. } | Lifecycle::Closing { .. } | Lifecycle::Ended => QpState::Error,
        }
    }

    /// The state of the diagram.
    pub(super) fn stage(&self) -> Stage {
        match self {
            Lifecycle::Idle => Stage::Idle,
            Lifecycle::Setup(Setup::Resolving { .. }) => Stage::Resolving,
            Lifecycle::Setup(Setup::Opening { .. }) => Stage::Opening,
            Lifecycle::Setup(Setup::Requesting { .. }) => Stage::Requesting,
            Lifecycle::Setup(Setup::Replying { .. }) => Stage::Replying,
            Lifecycle::AwaitingRtr => Stage::AwaitingRtr,
            Lifecycle::Running(_) => Stage::Running,
            Lifecycle::Draining(_) => Stage::Draining,
            Lifecycle::HalfClosed(_) => Stage::HalfClosed,
            Lifecycle::Terminating { .. } => Stage::Terminating,
            Lifecycle::Closing { .. } => Stage::Closing,
            Lifecycle::Ended => Stage::Ended,
        }
    }

    /// Returns whether the application knows that the connection is up.
    pub(super) fn established(&self) -> bool {
        match self {
            Lifecycle::Idle | Lifecycle::Setup(_) | Lifecycle::AwaitingRtr => false,
            Lifecycle::Running(_) | Lifecycle::Ended => true,
            Lifecycle::Draining(Draining { established, .. })
            | Lifecycle::HalfClosed(HalfClosed { established, .. })
            | Lifecycle::Terminating { established, .. }
            | Lifecycle::Closing { established, .. } => *established,
        }
    }

    /// The error that ends the connection, if one was found.
    pub(super) fn cause(&self) -> Option<DisconnectReason> {
        match self {
            Lifecycle::Terminating { cause, .. } => Some(*cause),
            Lifecycle::Closing { cause, .. } => *cause,
            _ => None,
        }
    }

    /// Returns whether the diagram has an edge from this state to `next`.
    fn may_enter(&self, next: &Lifecycle) -> bool {
        self.stage().leads_to(next.stage())
    }

    /// Replaces the state and returns the one before, so that its data can be returned to the context.
    pub(super) fn enter(&mut self, next: Lifecycle) -> Lifecycle {
        debug_assert!(self.may_enter(&next), "{:?} -> {:?}", self.stage(), next.stage());
        core::mem::replace(self, next)
    }

    /// Moves set-up one state on; other states stay.
    pub(super) fn advance_setup(&mut self, step: impl FnOnce(Setup) -> Setup) {
        let from = self.stage();
        match core::mem::replace(self, Lifecycle::Idle) {
            Lifecycle::Setup(setup) => {
                *self = Lifecycle::Setup(step(setup));
                debug_assert!(from.leads_to(self.stage()), "{from:?} -> {:?}", self.stage());
            }
            other => *self = other,
        }
    }

    /// The state after a disconnect in full operation.
    pub(super) fn draining(&self, deadline: Nanos, progress: DrainProgress) -> Lifecycle {
        Lifecycle::Draining(Draining {
            deadline,
            progress,
            peer_closed: false,
            holdoff_until: self.holdoff_until(),
            established: self.established(),
        })
    }

    /// The state after the FIN of a disconnect.
    pub(super) fn half_closed(&self, deadline: Nanos) -> Lifecycle {
        Lifecycle::HalfClosed(HalfClosed { deadline, rx_since_timer: false, established: self.established() })
    }

    /// The state after an error or a received Terminate.
    pub(super) fn terminating(&self, cause: DisconnectReason) -> Lifecycle {
        Lifecycle::Terminating { cause, established: self.established() }
    }

    /// The state after the FIN of any other end.
    pub(super) fn closing(&self) -> Lifecycle {
        Lifecycle::Closing { cause: self.cause(), established: self.established() }
    }

    /// Notes an RTR that arrives after a disconnect. Returns whether the state is one of a disconnect.
    pub(super) fn on_rtr_after_disconnect(&mut self) -> bool {
        match self {
            Lifecycle::Draining(Draining { established, .. })
            | Lifecycle::HalfClosed(HalfClosed { established, .. }) => {
                *established = true;
                true
            }
            _ => false,
        }
    }

    /// Until when FPDUs are held back.
    #[inline]
    pub(super) fn holdoff_until(&self) -> Nanos {
        match self {
            Lifecycle::Running(running) => running.holdoff_until,
            Lifecycle::Draining(draining) => draining.holdoff_until,
            _ => Nanos::ZERO,
        }
    }
}

#[cfg(test)]
mod tests;
