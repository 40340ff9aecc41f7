//! A wrapper around any port that drops, damages and records frames on request.
//!
//! [`Instrumented`] is a [`Port`] with the same frames. Its [`PortControl`] switches two
//! instruments at run time, from any thread: a seeded fault injector with rates for each direction,
//! and a capture that writes pcapng. The capture is between the stack and the faults: it records
//! what the stack sent and received, as a capture on a real host does.
//!
//! Cost: with everything off, one relaxed load of one word for each burst. With an instrument on,
//! every frame is processed. Nothing is allocated after construction.
//!
//! Errors: a fault that needs a buffer or room where none is free is omitted and counted. A capture
//! that cannot be written, or that reaches its size limit, stops and is counted. Neither disturbs
//! the traffic.
#![forbid(unsafe_code)]

mod background;
mod capture;
mod control;
mod direction;
mod fault_queue;
mod faults;
mod pcapng;
#[cfg(test)]
mod tests;

pub use capture::{Capture, CaptureInterface, CaptureLimits, Direction};
pub use control::PortControl;
pub use faults::{FaultRates, Faults};

use std::sync::Arc;
use std::time::SystemTime;

use ironwarp_stats::{CoreStats, Counter};
use ironwarp_types::{Clock, Nanos};

use crate::{Burst, Frame, LinkState, Port, PortCaps, Sealed, TxOffloads, WakeSource};
use control::Shared;
use direction::{Inbound, Outbound};
use fault_queue::{FaultContext, FaultQueue};

/// A port with a fault injector and a capture. The clock gives the time stamps, in nanoseconds
/// since 1970.
pub struct Instrumented<P: Port> {
    port: P,
    clock: Arc<dyn Clock + Send + Sync>,
    stats: CoreStats,
    shared: Arc<Shared>,
    /// Receive bursts since the start: the injector's time.
    polls: u64,
    rx: FaultQueue<P, Inbound>,
    tx: FaultQueue<P, Outbound>,
    /// Frames that have passed the injector and that the device has not taken.
    leaving: Burst<<P::Frame as Frame>::Sealed>,
    tap: Option<CaptureInterface>,
}

impl<P: Port> Instrumented<P> {
    /// Wraps `port`, with everything off.
    pub fn new(port: P, clock: Arc<dyn Clock + Send + Sync>, stats: CoreStats) -> Self {
        Instrumented {
            port,
            clock,
            stats,
            shared: Arc::new(Shared::default()),
            polls: 0,
            rx: FaultQueue::new(),
            tx: FaultQueue::new(),
            leaving: Burst::new(),
            tap: None,
        }
    }

    /// Returns the switches.
    pub fn control(&self) -> PortControl {
        PortControl::new(self.shared.clone())
    }

    /// Returns the inner port.
    pub fn port_mut(&mut self) -> &mut P {
        &mut self.port
    }
}

impl<P: Port> Port for Instrumented<P> {
    type Frame = P::Frame;

    fn caps(&self) -> &PortCaps {
        self.port.caps()
    }

    #[inline(always)]
    fn rx_burst(&mut self, into: &mut Burst<P::Frame>) {
        if self.shared.all_off() {
            self.port.rx_burst(into);
        } else {
            self.rx_watched(into);
        }
    }

    #[inline]
    fn tx_burst(&mut self, from: &mut Burst<<P::Frame as Frame>::Sealed>) {
        if self.shared.all_off() {
            self.port.tx_burst(from);
        } else {
            self.tx_watched(from);
        }
    }

    #[inline]
    fn alloc(&mut self) -> Option<P::Frame> {
        self.port.alloc()
    }

    #[inline]
    fn alloc_long(&mut self) -> Option<P::Frame> {
        self.port.alloc_long()
    }

    fn tx_offloads(&self) -> TxOffloads {
        self.port.tx_offloads()
    }

    fn link(&self) -> LinkState {
        self.port.link()
    }

    fn take_wake_source(&mut self) -> Option<WakeSource> {
        self.port.take_wake_source()
    }
}

impl<P: Port> Instrumented<P> {
    #[cold]
    fn rx_watched(&mut self, into: &mut Burst<P::Frame>) {
        self.take_changes();
        self.polls += 1;
        // Sending may pause while frames are delayed, so they are released here.
        self.tx.release(self.polls);
        self.push_out();
        let first = into.len();
        self.receive(into);
        self.record(Direction::Inbound, into.get(first..).unwrap_or_default().iter().map(Frame::bytes));
        self.rest_when_idle();
    }

    #[cold]
    fn tx_watched(&mut self, from: &mut Burst<<P::Frame as Frame>::Sealed>) {
        self.take_changes();
        if self.tx.is_transparent() && self.leaving.is_empty() {
            return self.send_recorded(from);
        }
        self.push_out();
        // While the device is full, frames stay with the caller, as without the injector.
        if self.tx.has_ready() || !self.leaving.is_empty() {
            return;
        }
        self.record(Direction::Outbound, from.iter().map(Sealed::bytes));
        let mut around = FaultContext { port: &mut self.port, stats: &self.stats, poll: self.polls };
        for frame in from.drain(..) {
            self.tx.admit(&mut around, frame);
        }
        self.push_out();
    }

    /// Receives through the injector.
    fn receive(&mut self, into: &mut Burst<P::Frame>) {
        if self.rx.is_transparent() {
            return self.port.rx_burst(into);
        }
        if !self.rx.has_ready() {
            let mut fresh = Burst::new();
            self.port.rx_burst(&mut fresh);
            let mut around = FaultContext { port: &mut self.port, stats: &self.stats, poll: self.polls };
            for frame in fresh {
                self.rx.admit(&mut around, frame);
            }
        }
        self.rx.release(self.polls);
        self.rx.drain_into(into);
    }

    /// Sends through the injector, and records the frames that the device took.
    fn send_recorded(&mut self, from: &mut Burst<<P::Frame as Frame>::Sealed>) {
        if self.tap.is_none() {
            return self.port.tx_burst(from);
        }
        let offered = from.clone();
        self.port.tx_burst(from);
        let taken = offered.len().saturating_sub(from.len());
        self.record(Direction::Outbound, offered.iter().take(taken).map(Sealed::bytes));
    }

    /// Gives the device the frames that the injector has released.
    fn push_out(&mut self) {
        loop {
            self.tx.drain_into(&mut self.leaving);
            if self.leaving.is_empty() {
                return;
            }
            self.port.tx_burst(&mut self.leaving);
            if !self.leaving.is_empty() {
                return;
            }
        }
    }

    fn record<'a>(&mut self, direction: Direction, frames: impl Iterator<Item = &'a [u8]>) {
        let Some(tap) = &self.tap else { return };
        let recorded = tap.record_all(self.clock.now(), direction, frames);
        self.stats.add(Counter::PortPcapFrames, recorded.written);
        if recorded.lost > 0 {
            self.stats.add(Counter::PortPcapDrops, recorded.lost);
        }
        if recorded.outcome.is_err() {
            self.stats.count(Counter::PortPcapStops);
            self.shared.capture_stopped(tap);
            self.tap = None;
        }
    }

    fn take_changes(&mut self) {
        let Some(settings) = self.shared.take_changes() else { return };
        let [rx_seed, tx_seed] = settings.faults.seeds();
        self.rx.set_rates(settings.faults.rx, rx_seed);
        self.tx.set_rates(settings.faults.tx, tx_seed);
        self.tap = settings.capture;
    }

    /// Turns the instruments off once nothing is injected, recorded or delayed.
    fn rest_when_idle(&mut self) {
        let idle = self.tap.is_none() && self.leaving.is_empty();
        if idle && self.rx.is_transparent() && self.tx.is_transparent() {
            self.shared.rest();
        }
    }
}

/// The system's clock, for captures of real traffic. Unlike other clocks, it may be set back.
#[derive(Clone, Copy, Debug, Default)]
pub struct WallClock;

impl Clock for WallClock {
    fn now(&self) -> Nanos {
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(Nanos::ZERO, Nanos::from)
    }
}

// The control is used from any thread; the port moves to the thread that polls it.
const _: fn() = || {
    fn shared<T: Send + Sync>() {}
    fn sendable<T: Send>() {}
    shared::<PortControl>();
    sendable::<Instrumented<crate::memory::MemoryPort>>();
};
