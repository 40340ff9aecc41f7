//! What the tests of both instruments share: a wrapped port, its far end, numbered frames.

mod faults;
mod tap;

use super::*;
use crate::TxMeta;
use crate::memory::{self, MemoryConfig, MemoryFrame, MemoryPort, MemorySealed};

type Watched = Instrumented<MemoryPort>;

/// The wrapped port, its switches, its counters, and the port at the far end.
struct Bench {
    near: Watched,
    far: MemoryPort,
    control: PortControl,
    stats: CoreStats,
}

fn bench() -> Bench {
    bench_of(&MemoryConfig::default())
}

fn bench_of(config: &MemoryConfig) -> Bench {
    let (near, far) = memory::pair(config, config);
    let stats = CoreStats::detached();
    let near = Instrumented::new(near, Arc::new(stamp), stats.clone());
    Bench { control: near.control(), near, far, stats }
}

/// 2001-09-09 01:46:40.123456789 UTC.
fn stamp() -> Nanos {
    Nanos(1_000_000_000_123_456_789)
}

fn sealed(port: &mut impl Port<Frame = MemoryFrame>, bytes: &[u8], tx: TxMeta) -> MemorySealed {
    let mut frame = port.alloc().expect("the pool has a frame");
    frame.resize(bytes.len());
    frame.bytes_mut().copy_from_slice(bytes);
    frame.seal(tx)
}

fn send(port: &mut impl Port<Frame = MemoryFrame>, bytes: &[u8]) {
    let mut burst = Burst::from_iter([sealed(port, bytes, TxMeta::default())]);
    port.tx_burst(&mut burst);
    assert!(burst.is_empty());
}

fn receive(port: &mut impl Port<Frame = MemoryFrame>) -> Vec<Vec<u8>> {
    let mut burst = Burst::new();
    port.rx_burst(&mut burst);
    burst.iter().map(|frame| frame.bytes().to_vec()).collect()
}

/// Numbered frames, and the numbers of those that came.
fn numbered(n: u32) -> Vec<u8> {
    let mut bytes = vec![0; 64];
    bytes[20..24].copy_from_slice(&n.to_be_bytes());
    bytes
}

fn number(frame: &[u8]) -> u32 {
    u32::from_be_bytes(frame[20..24].try_into().unwrap())
}

/// Sends `frames` numbered frames out through the injector; answers what arrived, in order.
fn outbound(bench: &mut Bench, frames: u32) -> Vec<u32> {
    let mut got = Vec::new();
    for n in 0..frames {
        send(&mut bench.near, &numbered(n));
        assert!(receive(&mut bench.near).is_empty());
        got.extend(receive(&mut bench.far).iter().map(|frame| number(frame)));
    }
    got
}

/// The same in the other direction.
fn inbound(bench: &mut Bench, frames: u32) -> Vec<u32> {
    let mut got = Vec::new();
    for n in 0..frames {
        send(&mut bench.far, &numbered(n));
        got.extend(receive(&mut bench.near).iter().map(|frame| number(frame)));
    }
    got
}

/// Polls until nothing held can be left.
fn settle(bench: &mut Bench) -> Vec<u32> {
    let polled = (0..2_000).flat_map(|_| receive(&mut bench.near)).collect::<Vec<_>>();
    polled.iter().chain(&receive(&mut bench.far)).map(|frame| number(frame)).collect()
}

fn only_rx(rx: FaultRates) -> Faults {
    Faults { seed: 1, rx, ..Faults::default() }
}

fn only_tx(tx: FaultRates) -> Faults {
    Faults { seed: 1, tx, ..Faults::default() }
}
