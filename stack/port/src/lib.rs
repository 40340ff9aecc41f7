//! Ports and frames: the interface between the stack and a device, and its backends.
//!
//! A [`Port`] is one receive queue and one transmit queue of one device, owned by one core. Frames
//! leave it in bursts and enter it in bursts; a frame has one owner at a time, and once
//! [sealed](Frame::seal) its bytes never change again. The rest of the stack is generic over
//! `Port`, so the same code runs over DPDK, over memory and in the simulator.
//!
//! Errors: a full transmit ring leaves frames in the burst; [`Port::alloc`] returns `None` if the
//! pool is empty. Both are counted by the caller and neither is fatal.
#![deny(unsafe_code)]

#[cfg(all(feature = "dpdk", not(dpdk_missing)))]
pub mod dpdk;
mod frame;
pub mod instrument;
pub mod kernel;
pub mod memif;
pub mod memory;
mod per_port;
mod pool;
mod port;
#[cfg(test)]
mod sample;
mod super_segment;
mod wake;
mod wire;

#[cfg(all(feature = "dpdk", dpdk_missing))]
compile_error!(
    "the feature `dpdk` needs DPDK 22.11 or newer, and dpdk-sys found none: install it (Debian: apt install \
     libdpdk-dev), point PKG_CONFIG_PATH at its libdpdk.pc, unset IRONWARP_NO_DPDK, or build without the feature"
);

pub use frame::{Checksum, Frame, RxMeta, Sealed, TxMeta, TxOffloads};
pub use per_port::PerPort;
pub use port::{Burst, LinkState, Port, PortCaps, SHARED_RSS_KEY, Spread};
pub use wake::{RxInterrupt, WakeSource};
pub use wire::{Wire, Wires};
