//! The engine of one core: maps segments to connections and handles segments without one.
//!
//! Connections lie in a slab. The flow table maps a segment's hash to a slot, or to an entry of the
//! TIME-WAIT table, whose values follow those of the slab. A [`ConnId`] is a slot and a generation.
//! A call with the id of a released connection does nothing.

mod api;
mod check;
mod connection_info;
mod cookies;
mod demux;
mod fast;
mod icmp;
mod isn;
mod open;
mod rx_stream;
mod saved;
mod shortage;
mod time_wait;
mod transport;

use core::mem::offset_of;

use ironwarp_llp::Listeners;
use ironwarp_net::{FlowHasher, FlowTable};
use ironwarp_port::{Port, Wires};
use ironwarp_stats::CoreStats;
use ironwarp_types::{Nanos, Seq};

pub use fast::LentBytes;
pub use rx_stream::RxStream;

use crate::ConnId;
use crate::TcpConfig;
use crate::congestion::CongestionWindow;
use crate::conn::{Conn, SendSide, State};
use crate::output::{EngineShared, TcpIo};
use crate::recovery::Recovery;
use cookies::Cookies;
use isn::IsnGenerator;
use time_wait::TimeWait;

/// A slot of the slab, in cache lines of its own.
#[repr(C, align(64))]
struct Slot {
    /// Counts the connections that have used the slot, to detect stale ids.
    generation: u32,
    conn: Option<Conn>,
}

impl Slot {
    /// Prefetches what segments and their acknowledgements use of the connection.
    #[inline(always)]
    fn prefetch(&self) {
        ironwarp_arch::prefetch_read_first::<Self, TRAFFIC_BYTES>(self);
    }
}

/// The part of a slot that segments use: the four lines that every segment does, and the five
/// behind them of the side that sends data.
const TRAFFIC_BYTES: usize = 9 * 64;

// docs/design-decisions.md allows 2 KiB for an idle connection with its timer and its share of the
// tables.
const _: () = assert!(size_of::<Slot>() == 832);

const _: () = {
    let snd = offset_of!(Slot, conn) + offset_of!(Conn, snd);
    assert!(snd + offset_of!(SendSide, recovery) + offset_of!(Recovery, rack) <= 4 * 64);
    assert!(snd + offset_of!(SendSide, cc) + CongestionWindow::TRAFFIC_BYTES <= TRAFFIC_BYTES);
};

/// TCP for one core: connections, listeners, timers and TIME-WAIT. See the crate documentation.
///
/// Most of its calls are those of [`Transport`](crate::Transport). In each iteration the core loop
/// calls [`Tcp::on_segment`] for every segment, `on_timers` when one is due, `transmit` for every
/// connection with something to send, then `flush_acks`. The engine keeps at most one unused
/// transmit frame: the one that a source left empty.
pub struct Tcp<P: Port> {
    slots: Box<[Slot]>,
    /// Free slots, used last in, first out.
    free: Vec<u32>,
    shared: EngineShared<P>,
    flows: FlowTable,
    /// The slot of the last fast segment. The next one often is of the same connection, which its
    /// key shows.
    last_fast: u32,
    hasher: FlowHasher,
    listeners: Listeners,
    time_wait: TimeWait,
    isn_generator: IsnGenerator,
    /// Connections in SYN-RECEIVED that a peer opened.
    half_open: u32,
    cookies: Cookies,
    /// The number after the last one of a flow that leaves TIME-WAIT to be reused in this call.
    reused_snd_nxt: Option<Seq>,
}

/// The upper limit of connections: slots and TIME-WAIT entries must fit the values of the flow
/// table.
const CONNECTIONS_MAX: u32 = 1 << 28;

impl<P: Port> Tcp<P> {
    /// Creates an engine with room for everything that its configuration allows. Nothing is
    /// allocated afterwards.
    ///
    /// `hasher` is the one that `net` uses for
    /// [`Packet::hash`](ironwarp_net::Packet::hash). `secret` keys initial sequence numbers
    /// and ephemeral ports; every process must choose a new one.
    pub fn new(mut config: TcpConfig, hasher: FlowHasher, secret: [u64; 2], stats: CoreStats) -> Self {
        config.connections_max = config.connections_max.clamp(1, CONNECTIONS_MAX);
        config.time_wait_max = config.time_wait_max.min(CONNECTIONS_MAX);
        let connections = config.connections_max;
        let flows = connections as usize + config.time_wait_max as usize;
        Tcp {
            slots: (0..connections).map(|_| Slot { generation: 0, conn: None }).collect(),
            free: (0..connections).rev().collect(),
            flows: FlowTable::new(flows),
            last_fast: 0,
            hasher,
            listeners: Listeners::new(config.listeners_max),
            time_wait: TimeWait::new(config.time_wait_max, config.time_wait),
            isn_generator: IsnGenerator::new(secret),
            half_open: 0,
            cookies: Cookies::default(),
            reused_snd_nxt: None,
            shared: EngineShared::new(config, secret[0] ^ secret[1].rotate_left(32), stats),
        }
    }

    fn conn(&self, id: ConnId) -> Option<&Conn> {
        let slot = self.slots.get(id.slot as usize)?;
        if slot.generation == id.generation { slot.conn.as_ref() } else { None }
    }

    /// Returns the connection of an id and its I/O context.
    #[inline]
    fn conn_and_io<'a>(
        &'a mut self,
        id: ConnId,
        now: Nanos,
        wires: &'a mut Wires<P>,
    ) -> Option<(&'a mut Conn, TcpIo<'a, P>)> {
        let slot = self.slots.get_mut(id.slot as usize)?;
        let conn = if slot.generation == id.generation { slot.conn.as_mut()? } else { return None };
        let io = TcpIo::for_path(&conn.path, now, wires, &mut self.shared);
        Some((conn, io))
    }

    fn id_of(&self, slot: u32) -> Option<ConnId> {
        let generation = self.slots.get(slot as usize)?.generation;
        Some(ConnId { slot, generation })
    }

    /// Handles a state change. A connection that has ended leaves the flow table, and TIME-WAIT
    /// continues without it. `before` is the previous state.
    #[cold]
    #[inline(never)]
    fn on_state_change(&mut self, slot: u32, before: State, now: Nanos) {
        let Some(conn) = self.slots.get(slot as usize).and_then(|slot| slot.conn.as_ref()) else { return };
        let after = conn.state;
        if before == after {
            return;
        }
        if before == State::SynReceived && conn.cold.listener.is_some() {
            self.half_open = self.half_open.saturating_sub(1);
        }
        if !after.is_live() {
            self.on_connection_end(slot, after, now);
        }
    }

    #[cold]
    fn on_connection_end(&mut self, slot: u32, after: State, now: Nanos) {
        self.unlink(slot);
        match after {
            State::TimeWait => self.enter_time_wait(slot, now),
            State::Listen => self.free_slot(slot),
            _ => {}
        }
    }

    /// Removes a connection from the flow table and frees all that it held except readable bytes.
    fn unlink(&mut self, slot: u32) {
        let Some(conn) = self.slots.get_mut(slot as usize).and_then(|slot| slot.conn.as_mut()) else {
            return;
        };
        if core::mem::take(&mut conn.cold.in_flow_table) {
            self.flows.remove(conn.cold.hash, slot);
        }
        self.shared.wheel.disarm(slot);
        self.shared.tx.clear(&mut conn.snd.retained);
        self.shared.rx.clear(&mut conn.rcv.queues.out_of_order);
        conn.cold.sack_ranges = Default::default();
        conn.snd.retained_bytes = 0;
        conn.snd.board = crate::recovery::Scoreboard::new();
    }

    fn enter_time_wait(&mut self, slot: u32, now: Nanos) {
        let Some(conn) = self.slots.get_mut(slot as usize).and_then(|slot| slot.conn.as_mut()) else {
            return;
        };
        conn.state = State::Closed;
        let base = self.shared.config.connections_max;
        self.time_wait.insert(conn, now, &mut self.flows, base, &self.shared.stats);
    }

    /// Frees a slot. Its id is stale from now on.
    fn free_slot(&mut self, at: u32) {
        let Some(slot) = self.slots.get_mut(at as usize) else { return };
        let Some(mut conn) = slot.conn.take() else { return };
        conn.rcv.queues.clear(&mut self.shared.rx);
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(at);
    }
}
