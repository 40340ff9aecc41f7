//! Two nodes of the network and SCTP layers only, on a simulated link.
//!
//! An [`SctpRun`] puts one association between two hosts. The first one sends messages of several
//! flows, as queue pairs would. The second one checks every byte and notes how long each message
//! took. Everything happens in virtual time and depends only on a seed.

mod flow;
mod node;

use ironwarp_port::memory::{MemoryConfig, MemoryPort};
use ironwarp_sctp::SctpConfig;
use ironwarp_sim::{LinkConfig, SimNet};
use ironwarp_types::Nanos;

pub use flow::{Arrivals, Flow};
pub use node::{SctpNode, SctpSetup};

use crate::tcp::{RxFilter, SharedNode, link_address};
use crate::text;

/// A run of one association.
#[derive(Clone, Debug)]
pub struct SctpRun {
    pub seed: u64,
    /// The cable, the same in both directions.
    pub link: LinkConfig,
    pub mtu_bytes: u16,
    /// Bytes of the receive window, and of what is sent and not acknowledged.
    pub window_bytes: u32,
    pub flows: Vec<Flow>,
    /// Time limit of the run.
    pub until: Nanos,
}

impl SctpRun {
    /// Runs until all messages have arrived. `filter` selects the frames that the receiver loses.
    /// Returns an error for a wrong byte, a violated invariant or a run that does not end.
    pub fn run(&self, filter: Option<RxFilter>) -> Result<Arrivals, String> {
        let mut net = SimNet::new(self.seed);
        let devices = [1, 2].map(|host| self.device(host));
        let [(a, a_port), (b, b_port)] = [net.add_port(&devices[0]), net.add_port(&devices[1])];
        net.connect(a, b, self.link.clone());
        let [sender, receiver] = [self.node(1, a_port), self.node(2, b_port)];
        receiver.borrow_mut().listen(PORT).map_err(text)?;
        receiver.borrow_mut().rx_filter = filter;
        receiver.borrow_mut().arrivals.expect(&self.flows);
        sender.borrow_mut().connect(Nanos::ZERO, (FROM_PORT, (2, PORT)), self.flows.clone()).map_err(text)?;
        net.add_node(sender.clone(), &[a]);
        net.add_node(receiver.clone(), &[b]);
        let is_done = |_: &SimNet<_>| receiver.borrow().arrivals.are_complete();
        if !net.run_until_done(self.until, is_done).map_err(text)? {
            return Err(format!("messages are missing at {:?}", net.now()));
        }
        let arrivals = core::mem::take(&mut receiver.borrow_mut().arrivals);
        Ok(arrivals)
    }

    fn node(&self, host: u8, port: MemoryPort) -> SharedNode<SctpNode> {
        let device = self.device(host);
        SharedNode::new(SctpNode::new(SctpSetup { host, device, sctp: self.config(), seed: self.seed }, port))
    }

    fn device(&self, host: u8) -> MemoryConfig {
        let frames = self.frames() as usize + 2 * RING_FRAMES;
        MemoryConfig {
            mac: link_address(host),
            mtu_bytes: self.mtu_bytes,
            rx_frames: frames,
            tx_frames: frames,
            rx_ring_frames: RING_FRAMES,
            tx_ring_frames: RING_FRAMES,
            ..MemoryConfig::default()
        }
    }

    fn config(&self) -> SctpConfig {
        let frames = self.frames();
        SctpConfig {
            associations_max: 4,
            a_rwnd_bytes: self.window_bytes,
            held_messages_shared: frames,
            retained_chunks_max: frames.min(32_767) as u16,
            retained_chunks_shared: frames,
            // As long as TCP tries.
            association_retries: 20,
            init_retries: 20,
            ..SctpConfig::default()
        }
    }

    /// Packets that fill a window, and some more; messages may be shorter than a packet.
    fn frames(&self) -> u32 {
        let least = self.flows.iter().map(|flow| flow.message_bytes).min().unwrap_or(usize::MAX);
        let bytes = least.min(usize::from(self.mtu_bytes)) as u32;
        self.window_bytes / bytes.max(64) + SPARE_FRAMES
    }
}

const RING_FRAMES: usize = 512;
const SPARE_FRAMES: u32 = 64;
const PORT: u16 = 4_420;
const FROM_PORT: u16 = 50_000;
