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
//! Who leaves each state, which timer it has, and what happens to posted work requests. Functions
//! are those of `connection/`:
//!
//! | state | left by | timer | posted work requests |
//! | --- | --- | --- | --- |
//! | Setup | `setup.rs`, `startup.rs`, `fail_connect` | connect timeout | held; flushed on failure |
//! | AwaitingRtr | first FPDU (`startup.rs`), `disconnect`, `on_stream_end` | connect timeout | held until the first FPDU |
//! | Running | `disconnect`, `on_stream_end`, `on_peer_closed` | user timeout of Reads and of held sends | carried out |
//! | Draining | `close_if_drained`, `on_stream_end` | user timeout for each step of progress | carried out |
//! | HalfClosed | `on_peer_closed`, `on_stream_end` | terminate timeout, longer while bytes arrive | none left to send |
//! | Terminating | `advance_after_round` when the Terminate is sent | terminate timeout, set again at the FIN | flushed by the stream on entry |
//! | Closing | `on_tcp_closed` | terminate timeout | flushed on entry (`abort_stream`) |
//! | Ended | none | none | flushed; later posts too, by the doorbell |
//!
//! - Events of one segment are handled in this order: established, acknowledged, readable, then FIN
//!   or RST. Data in front of a FIN is therefore delivered first. An orderly end that arrives while
//!   a delivery waits for quiescence is stored in `QpCore::deferred_close`.
//! - Every work request has its completion before the context receives the event that reports the
//!   end.
//! - No Terminate is sent if the peer sent one, if the responder's first-FPDU gate is closed, or
//!   after our FIN. In `HalfClosed` an error found here resets the connection.
//! - `Draining` also ends with work left over: the peer has sent FIN, and only Reads without a
//!   response or sends behind a closed gate remain.
//! - Destruction (`destroy_qp`), an abandoned context, and the loss of the core of an atomic
//!   operation end a connection in any state. `destroy_qp` resets it and removes the queue pair
//!   without an edge.
//!
//! For each frame the data path reads only which state it is. Before it transmits it also reads one
//! time, `holdoff_until`. Two more pieces of state exist outside this enum, because they describe
//! something else:
//! - [`StreamState`](ironwarp_iwarp::stream::StreamState) belongs to the RDMAP stream, which knows
//!   no TCP: whether it takes and sends FPDUs. The stream finds an error first; `Terminating` here
//!   follows from its result. `check` tests that the two agree.
//! - The stream's first-FPDU gate (RFC 5044 s7.1.2: a responder sends nothing before the
//!   initiator's first FPDU) exists only there;
//!   [`Stream::may_send`](ironwarp_iwarp::Stream::may_send) returns whether it is open. In
//!   `AwaitingRtr` the gate is closed and, in addition, the application does not know of the
//!   connection yet (RFC 6581 s5).
//!
//! [`QpState`], the application's view, is derived by [`Lifecycle::qp_state`] and published by
//! [`QpCore::enter`](super::QpCore::enter).

use ironwarp_types::Nanos;

use super::connection::setup::Setup;
use super::lower::Lower;
use crate::event::DisconnectReason;
use crate::objects::QpState;

/// The state of a queue pair's connection, with the data that only this state needs.
pub(crate) enum Lifecycle<L: Lower> {
    /// Neither connected nor accepted.
    Idle,
    /// Set-up: from the route's resolution to the end of the start-up.
    Setup(Setup<L>),
    /// Full operation of a responder that reports the connection after the initiator's first FPDU
    /// (RFC 6581 s5).
    AwaitingRtr,
    /// Full operation: FPDUs run both ways.
    Running(Running),
    /// The application disconnected: posted work requests are still carried out.
    Draining(Draining),
    /// FIN is sent; FPDUs that arrive before the peer's FIN are still placed and delivered.
    HalfClosed(HalfClosed),
    /// A Terminate was received, or an error was found here. In the second case the Terminate may
    /// still have to be sent. Received bytes are discarded.
    Terminating { cause: DisconnectReason, established: bool },
    /// FIN is sent; received bytes are discarded. The cause is known if `Terminating` came before.
    Closing { cause: Option<DisconnectReason>, established: bool },
    /// No connection any more.
    Ended,
}

/// The data of full operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Running {
    /// FPDUs are held back until this time
    /// ([`MpaConfig::first_fpdu_holdoff_us`](crate::config::MpaConfig)).
    pub(super) holdoff_until: Nanos,
    /// The progress of the oldest Read when its timer was armed; `None` while it is not armed.
    pub(super) read_progress_at_arm: Option<u64>,
    /// When the timer was armed, posted sends were waiting because the initiator had not sent its
    /// first FPDU. If they still wait when it expires, the connection times out.
    pub(super) sends_waited_at_arm: bool,
}

/// The data of a disconnect that waits for posted work requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Draining {
    /// The connection is reset at this time unless there was progress.
    pub(super) deadline: Nanos,
    /// The progress when the deadline was set.
    pub(super) progress: ProgressMark,
    /// The peer's FIN has arrived.
    pub(super) peer_closed: bool,
    /// See [`Running::holdoff_until`].
    pub(super) holdoff_until: Nanos,
    /// Whether the application knows that the connection is up.
    pub(super) established: bool,
}

/// How far a disconnect has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct ProgressMark {
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
pub(crate) enum StateName {
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

impl StateName {
    /// Returns whether the diagram has an edge from this state to `next`.
    fn leads_to(self, next: StateName) -> bool {
        use StateName::*;
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

impl<L: Lower> Lifecycle<L> {
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
    pub(super) fn name(&self) -> StateName {
        match self {
            Lifecycle::Idle => StateName::Idle,
            Lifecycle::Setup(Setup::Resolving { .. }) => StateName::Resolving,
            Lifecycle::Setup(Setup::Opening { .. }) => StateName::Opening,
            Lifecycle::Setup(Setup::Requesting { .. }) => StateName::Requesting,
            Lifecycle::Setup(Setup::Replying { .. }) => StateName::Replying,
            Lifecycle::AwaitingRtr => StateName::AwaitingRtr,
            Lifecycle::Running(_) => StateName::Running,
            Lifecycle::Draining(_) => StateName::Draining,
            Lifecycle::HalfClosed(_) => StateName::HalfClosed,
            Lifecycle::Terminating { .. } => StateName::Terminating,
            Lifecycle::Closing { .. } => StateName::Closing,
            Lifecycle::Ended => StateName::Ended,
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
    fn may_enter(&self, next: &Self) -> bool {
        self.name().leads_to(next.name())
    }

    /// Replaces the state and returns the one before, so that its data can be returned to the
    /// context.
    pub(super) fn enter(&mut self, next: Self) -> Self {
        debug_assert!(self.may_enter(&next), "{:?} -> {:?}", self.name(), next.name());
        core::mem::replace(self, next)
    }

    /// Moves set-up one state on; other states stay.
    pub(super) fn advance_setup(&mut self, step: impl FnOnce(Setup<L>) -> Setup<L>) {
        let from = self.name();
        match core::mem::replace(self, Lifecycle::Idle) {
            Lifecycle::Setup(setup) => {
                *self = Lifecycle::Setup(step(setup));
                debug_assert!(from.leads_to(self.name()), "{from:?} -> {:?}", self.name());
            }
            other => *self = other,
        }
    }

    /// The state after a disconnect in full operation.
    pub(super) fn draining(&self, deadline: Nanos, progress: ProgressMark) -> Self {
        Lifecycle::Draining(Draining {
            deadline,
            progress,
            peer_closed: false,
            holdoff_until: self.holdoff_until(),
            established: self.established(),
        })
    }

    /// The state after the FIN of a disconnect.
    pub(super) fn half_closed(&self, deadline: Nanos) -> Self {
        Lifecycle::HalfClosed(HalfClosed { deadline, rx_since_timer: false, established: self.established() })
    }

    /// The state after an error or a received Terminate.
    pub(super) fn terminating(&self, cause: DisconnectReason) -> Self {
        Lifecycle::Terminating { cause, established: self.established() }
    }

    /// The state after our FIN when the connection does not end by a disconnect.
    pub(super) fn closing(&self) -> Self {
        Lifecycle::Closing { cause: self.cause(), established: self.established() }
    }

    /// Notes an RTR that arrives after a disconnect. Returns whether the state is one of a
    /// disconnect.
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
