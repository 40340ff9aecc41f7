//! The cost of a frame in the DPDK backend, without anything else in the loop.
//!
//! Prints nanoseconds for each frame: for allocating, sealing and sending bursts of 32 into
//! `net_null`; for a frame that crosses a pair of rings once and is read by the receiver; and the
//! same for a frame that its sender keeps.
//!
//! ```text
//! cargo run --release -p ironwarp-port --features dpdk --example dpdk_cost [hugepages]
//! ```

use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

use ironwarp_port::dpdk::{
    DpdkPort, Eal, EalConfig, MbufFrame, Memory, PortSettings, SealedMbuf, Vdev, ring_pair,
};
use ironwarp_port::{Burst, Frame, Port, Sealed, TxMeta};
use ironwarp_stats::CoreStats;

/// Bytes in each frame, as in a small message.
const FRAME_BYTES: usize = 64;
/// Bursts in one measurement: a few milliseconds.
const BURSTS: u32 = 20_000;
/// Measurements; the median is printed.
const ROUNDS: usize = 21;

fn main() -> Result<(), Box<dyn Error>> {
    let config = EalConfig::new().vdev(Vdev::null(0));
    let eal = match std::env::args().nth(1).as_deref() {
        Some("hugepages") => Eal::start(&config.memory(Memory::Hugepages))?,
        _ => Eal::start(&config)?,
    };
    let settings = PortSettings::default();
    let mut null = DpdkPort::open(&eal, "net_null0", &settings, CoreStats::detached())?;
    let mut pair = ring_pair(&eal, &settings, [CoreStats::detached(), CoreStats::detached()])?;
    report("alloc and free", || allocate(&mut null));
    report("net_null: alloc, seal, send", || send(&mut null));
    report("net_null: receive, free", || receive(&mut null));
    report("net_ring: alloc, seal, send, receive, free", || cross(&mut pair, false));
    report("net_ring: the same, each frame kept until received", || cross(&mut pair, true));
    Ok(())
}

fn report(what: &str, mut burst: impl FnMut() -> usize) {
    let mut rounds: Vec<f64> = (0..ROUNDS).map(|_| one_round(&mut burst)).collect();
    rounds.sort_by(f64::total_cmp);
    println!("{what:<52} {:6.2} ns a frame", rounds[ROUNDS / 2]);
}

fn one_round(burst: &mut impl FnMut() -> usize) -> f64 {
    let start = Instant::now();
    let frames: usize = (0..BURSTS).map(|_| burst()).sum();
    start.elapsed().as_nanos() as f64 / frames.max(1) as f64
}

fn allocate(port: &mut DpdkPort) -> usize {
    let frames: Burst<MbufFrame> = (0..32).map_while(|_| port.alloc()).collect();
    black_box(&frames).len()
}

fn sealed(port: &mut DpdkPort) -> Burst<SealedMbuf> {
    let fill = |mut frame: MbufFrame| {
        frame.resize(FRAME_BYTES);
        frame.bytes_mut()[..14].fill(0xff);
        frame.seal(TxMeta::default())
    };
    (0..32).map_while(|_| port.alloc()).map(fill).collect()
}

fn send(port: &mut DpdkPort) -> usize {
    let mut burst = sealed(port);
    port.tx_burst(&mut burst);
    32 - burst.len()
}

fn receive(port: &mut DpdkPort) -> usize {
    let mut burst = Burst::new();
    port.rx_burst(&mut burst);
    black_box(&burst).len()
}

fn cross([near, far]: &mut [DpdkPort; 2], keep: bool) -> usize {
    let mut burst = sealed(near);
    let kept: Burst<SealedMbuf> = if keep { burst.iter().cloned().collect() } else { Burst::new() };
    near.tx_burst(&mut burst);
    let mut arrived = Burst::new();
    far.rx_burst(&mut arrived);
    black_box(kept.iter().map(|frame| frame.bytes().len()).sum::<usize>());
    black_box(&arrived).iter().filter(|frame| frame.bytes().len() == FRAME_BYTES).count()
}
