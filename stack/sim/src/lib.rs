//! A deterministic network in virtual time: event heap, links, faults.
//!
//! A [`SimNet`] owns nodes and the links between their ports. A [`Node`] is anything that can be
//! polled: a whole host with all its cores, a test's script, another TCP. Its ports are in-memory
//! ports, so the code that runs is the code that runs over a device. Time stands still while a node
//! runs and jumps to the next event when all are done. All randomness comes from one seed. The same
//! seed and nodes give the same run to the last byte, which [`SimNet::trace_hash`] shows.
//! [`SimNet::capture`] writes the run for Wireshark.
//!
//! ```
//! use ironwarp_port::memory::MemoryConfig;
//! use ironwarp_port::{Burst, Frame, Port, TxMeta};
//! use ironwarp_sim::{FnNode, LinkConfig, SimNet};
//! use ironwarp_types::Nanos;
//!
//! // One node sends a frame when it starts; the other sees it after the link's delay.
//! let mut net = SimNet::new(1);
//! let (left, mut left_port) = net.add_port(&MemoryConfig::default());
//! let (right, mut right_port) = net.add_port(&MemoryConfig::default());
//! let [_there, _back] = net.connect(left, right, LinkConfig { delay: Nanos(500), ..LinkConfig::ideal() });
//! let mut frame = left_port.alloc();
//! let sender = move |_now: Nanos| {
//!     let mut frame = frame.take()?;
//!     frame.resize(60);
//!     left_port.tx_burst(&mut Burst::from_iter([frame.seal(TxMeta::default())]));
//!     None
//! };
//! let receiver = move |now: Nanos| {
//!     let mut got = Burst::new();
//!     right_port.rx_burst(&mut got);
//!     assert!(got.is_empty() || now == Nanos(500));
//!     None
//! };
//! net.add_node(Box::new(FnNode(sender)) as Box<dyn ironwarp_sim::Node>, &[left]);
//! net.add_node(Box::new(FnNode(receiver)), &[right]);
//! net.run_until(Nanos::from_micros(1)).unwrap();
//! ```
#![forbid(unsafe_code)]

mod clock;
mod heap;
mod link;
mod net;
mod node;
mod trace;

pub use clock::VirtualClock;
pub use heap::EventHeap;
pub use link::{Bursts, Link, LinkConfig, LinkCounts};
pub use net::{ArrivalCost, LinkId, NodeId, PortId, SimError, SimNet, Watch};
pub use node::{FnNode, Node};
pub use trace::TraceHash;
