//! ICMP errors about our segments.
//!
//! An ICMP error is accepted only when the segment that it quotes is in flight, which an off-path
//! attacker would have to guess. Its effect is limited even then.
//!
//! | | before both SYNs are acknowledged | afterwards |
//! | --- | --- | --- |
//! | soft | recorded | recorded |
//! | hard | ends the attempt | recorded |
//! | too big | lowers the path MTU | the same, but once data was acknowledged only after a timeout confirms it |
//!
//! A recorded error adds UNREACHABLE to a later TIMED_OUT.
//!
//! Source: RFC 5927 s4.1 (sequence check), s5.2 (hard errors are soft), s7.2 (path MTU),
//! RFC 1122 s4.2.3.9, RFC 1191, RFC 8201.

use core::num::NonZeroU16;

use ironwarp_net::{IcmpError, IcmpErrorKind};
use ironwarp_port::{Port, Wires};
use ironwarp_stats::Counter;
use ironwarp_types::{Nanos, Seq};

use super::Tcp;
use crate::conn::{Conn, State};
use crate::output::TcpIo;
use crate::{ConnId, TcpEvents};

impl<P: Port> Tcp<P> {
    /// Processes an ICMP error from `net`. Returns the connection and its events, if there are any.
    #[cold]
    pub fn on_icmp_error(
        &mut self,
        now: Nanos,
        error: &IcmpError,
        wires: &mut Wires<P>,
    ) -> Option<(ConnId, TcpEvents)> {
        let found = self.find(error.hash, &error.flow).and_then(|at| self.id_of(at));
        let Some((id, (conn, mut io))) = found.and_then(|id| Some((id, self.conn_and_io(id, now, wires)?)))
        else {
            self.shared.stats.count(Counter::TcpDropIcmp);
            return None;
        };
        let before = conn.state;
        let events = conn.on_icmp_error(&mut io, error);
        self.on_state_change(id.slot, before, now);
        (!events.is_empty()).then_some((id, events))
    }
}

impl Conn {
    fn on_icmp_error<P: Port>(&mut self, io: &mut TcpIo<'_, P>, error: &IcmpError) -> TcpEvents {
        let mut events = TcpEvents::empty();
        // RFC 5927 s4.1: SND.UNA <= SEG.SEQ < SND.NXT.
        let seq = Seq(error.quoted);
        let in_flight = self.snd.snd_una.leq(seq) && seq.lt(self.snd.snd_max);
        if !in_flight || !self.state.is_live() {
            io.count(Counter::TcpDropIcmp);
            return events;
        }
        io.count(Counter::TcpRxIcmp);
        match error.kind {
            IcmpErrorKind::TooBig { mtu_bytes } => self.on_too_big(io, error, mtu_bytes, &mut events),
            IcmpErrorKind::Hard if !self.state.is_synchronised() => self.on_unreachable(&mut events),
            IcmpErrorKind::Hard | IcmpErrorKind::Soft => self.cold.unreachable = true,
        }
        events
    }

    fn on_unreachable(&mut self, events: &mut TcpEvents) {
        if self.state == State::SynReceived && self.cold.listener.is_some() {
            self.state = State::Listen;
        } else {
            self.end(TcpEvents::REFUSED, events);
        }
    }

    /// RFC 5927 s7.2: while nothing was acknowledged, no segment of this size is known to have
    /// arrived, and the claim is plausible. Later it must be confirmed by a timeout, since progress
    /// disproves it.
    fn on_too_big<P: Port>(
        &mut self,
        io: &mut TcpIo<'_, P>,
        error: &IcmpError,
        mtu_bytes: u16,
        events: &mut TcpEvents,
    ) {
        if mtu_bytes >= self.mtu_bytes() {
            return;
        }
        if self.snd.acked_bytes == 0 {
            self.on_path_mtu(io, mtu_bytes);
            // The oversized segment is lost. Retransmit it in smaller pieces at once.
            self.on_path_mtu_reduced(io, events);
        } else {
            self.cold.claimed_mtu =
                NonZeroU16::new(mtu_bytes).map(|mtu_bytes| (Seq(error.quoted), mtu_bytes));
        }
    }
}
