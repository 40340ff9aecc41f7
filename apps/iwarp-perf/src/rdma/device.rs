//! Both ends' devices, when both ends are threads of one process.

use ironwarp::memory::{self, MemoryConfig};
use ironwarp::{Config, Stack};
use ironwarp_types::MacAddr;

use super::endpoint::{Endpoint, RdmaError};
use crate::plan::{FarPlace, Session};

/// Frames that may wait in each ring of a memory pair, and buffers a pool: enough for a window's worth of frames.
const MEMORY_RING_FRAMES: usize = 1024;
const MEMORY_POOL_FRAMES: usize = 8192;

/// The two ends; `None` when the session needs no device.
pub fn open_pair(session: &Session) -> Result<Option<(Endpoint, Endpoint)>, RdmaError> {
    let (Some(near), Some(far)) = (&session.near_config, &session.far_setup.config) else { return Ok(None) };
    let (near, far) = (Config::from_toml(near)?, Config::from_toml(far)?);
    match session.far {
        FarPlace::MemoryThread => memory_pair(session, near, far).map(Some),
        _ => ring_pair(session, near, far).map(Some),
    }
}

fn memory_pair(session: &Session, near: Config, far: Config) -> Result<(Endpoint, Endpoint), RdmaError> {
    let port = |last: u8| MemoryConfig {
        mac: MacAddr([2, 0, 0, 0, 0, last]),
        mtu_bytes: session.mtu,
        rx_frames: MEMORY_POOL_FRAMES,
        tx_frames: MEMORY_POOL_FRAMES,
        rx_ring_frames: MEMORY_RING_FRAMES,
        tx_ring_frames: MEMORY_RING_FRAMES,
        ..MemoryConfig::default()
    };
    let cores = usize::from(near.core.count);
    let (near_ports, far_ports) = memory::pair_of_queues((&port(1), cores), (&port(2), cores));
    let (near_stack, near_workers) = Stack::builder(near).memory_ports(near_ports).build()?;
    let (far_stack, far_workers) = Stack::builder(far).memory_ports(far_ports).build()?;
    Ok((
        Endpoint::new(near_stack, near_workers, session.apart(), session.events)?,
        Endpoint::new(far_stack, far_workers, session.far_setup.apart(), session.events)?,
    ))
}

#[cfg(feature = "dpdk")]
fn ring_pair(session: &Session, near: Config, far: Config) -> Result<(Endpoint, Endpoint), RdmaError> {
    let [(near_stack, near_workers), (far_stack, far_workers)] = Stack::ring_pair_of_cores(near, far, None)?;
    Ok((
        Endpoint::new(near_stack, near_workers, session.apart(), session.events)?,
        Endpoint::new(far_stack, far_workers, session.far_setup.apart(), session.events)?,
    ))
}

#[cfg(not(feature = "dpdk"))]
fn ring_pair(_: &Session, _: Config, _: Config) -> Result<(Endpoint, Endpoint), RdmaError> {
    Err(RdmaError::NoDevice)
}
