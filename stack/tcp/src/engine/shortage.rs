//! Taking memory back from connections that keep it from others without progress: at most one
//! holder of each kind a second.

use ironwarp_port::{Port, Wires};
use ironwarp_stats::Counter;
use ironwarp_types::Nanos;

use super::Tcp;
use crate::queue::Progress;
use crate::{ConnId, TcpEvents};

impl<P: Port> Tcp<P> {
    /// Examines the holders, while connections are refused memory.
    #[inline]
    pub(super) fn relieve_shortages(
        &mut self,
        now: Nanos,
        wires: &mut Wires<P>,
        events: &mut impl FnMut(ConnId, TcpEvents),
    ) {
        if self.shared.tx_shortage.take_due(now) {
            self.abort_over_quota(now, wires, events);
        }
        if self.shared.out_of_order_shortage.take_due(now) {
            self.discard_over_quota(now);
        }
    }

    /// Aborts the largest of the connections that retain more units than their reserve without
    /// progress.
    #[cold]
    fn abort_over_quota(
        &mut self,
        now: Nanos,
        wires: &mut Wires<P>,
        events: &mut impl FnMut(ConnId, TcpEvents),
    ) {
        let (shortage, reserve) = (self.shared.tx_shortage, self.shared.config.retained_units_reserve);
        let conns = self.slots.iter_mut().filter_map(|slot| slot.conn.as_mut());
        let largest = conns.filter_map(|conn| {
            let held = conn.snd.retained.len();
            if held <= reserve {
                conn.cold.tx_progress = Progress::default();
                return None;
            }
            let (at, bytes) = (conn.snd.snd_una, conn.snd.retained_bytes);
            let over_quota = shortage.is_over_quota(now, &mut conn.cold.tx_progress, at, bytes);
            over_quota.then_some((held, conn.slot))
        });
        let largest = largest.max().map(|(_, slot)| slot);
        let Some(id) = largest.and_then(|at| self.id_of(at)) else { return };
        let Some((conn, mut io)) = self.conn_and_io(id, now, wires) else { return };
        let before = conn.state;
        let mut happened = TcpEvents::empty();
        io.count(Counter::TcpTxPressureResets);
        conn.abort_on_timeout(&mut io, &mut happened);
        self.on_state_change(id.slot, before, now);
        events(id, happened);
    }

    /// RFC 2018 s8: discards the bytes that the largest of the connections without progress holds
    /// beyond its gap. Its peer sends them again.
    #[cold]
    fn discard_over_quota(&mut self, now: Nanos) {
        let shortage = self.shared.out_of_order_shortage;
        let conns = self.slots.iter_mut().filter_map(|slot| slot.conn.as_mut());
        let largest = conns.filter_map(|conn| {
            let queue = &conn.rcv.queues.out_of_order;
            let Some(last) = self.shared.rx.value(queue.tail()) else {
                conn.cold.rx_progress = Progress::default();
                return None;
            };
            let at = conn.rcv.rcv_nxt;
            let over_quota =
                shortage.is_over_quota(now, &mut conn.cold.rx_progress, at, last.seq_end().since(at));
            over_quota.then_some((queue.len(), conn))
        });
        let Some((_, conn)) = largest.max_by_key(|(held, _)| *held) else { return };
        self.shared.stats.count(Counter::TcpRxOutOfOrderDiscarded);
        self.shared.rx.clear(&mut conn.rcv.queues.out_of_order);
        conn.cold.sack_ranges = Default::default();
        conn.cold.rx_progress = Progress::default();
    }
}
