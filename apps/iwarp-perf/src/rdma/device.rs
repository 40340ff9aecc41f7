//! Both ends' devices, when both ends are threads of one process.

use std::net::SocketAddr;

use ironwarp::memory::{self, MemoryConfig};
use ironwarp::{Config, Stack, Worker};
use ironwarp_types::MacAddr;

use super::endpoint::{Endpoint, RdmaError};
use super::station::{Side, Station};
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

/// A station a core: two stacks whose cores of one number are polled together. `more` goes behind their configurations.
pub fn open_stations(session: &Session, more: &str) -> Result<Vec<Station>, RdmaError> {
    let (Some(near), Some(far)) = (&session.near_config, &session.far_setup.config) else {
        return Err(RdmaError::NoDevice);
    };
    let config = |text: &str| Config::from_toml(&format!("{text}{more}"));
    let (near, far) = (config(near)?, config(far)?);
    let [(near, near_workers), (far, far_workers)] = match session.far {
        FarPlace::MemoryStations => memory_stacks(session, near, far)?,
        _ => ring_stacks(near, far)?,
    };
    let (near, far) = (Side::new(near, near_workers.len()), Side::new(far, far_workers.len()));
    let peer = session.peer.ok_or(RdmaError::NoDevice)?;
    let ports = peer.port()..;
    let stations = near_workers.into_iter().zip(far_workers).zip(ports).map(|((one, other), port)| {
        Station::new((&near, one), (&far, other), SocketAddr::new(peer.ip(), port))
    });
    let mut stations = stations.collect::<Result<Vec<Station>, _>>()?;
    // Each listens at a port of its own, which the others' cores must know of too: the first one's passes it on.
    for _ in 0..2 {
        stations.iter_mut().try_for_each(Station::hear)?;
    }
    Ok(stations)
}

type Stacks = [(Stack, Vec<Worker>); 2];

fn memory_pair(session: &Session, near: Config, far: Config) -> Result<(Endpoint, Endpoint), RdmaError> {
    let [(near_stack, near_workers), (far_stack, far_workers)] = memory_stacks(session, near, far)?;
    Ok((
        Endpoint::new(near_stack, near_workers, session.apart(), session.events)?,
        Endpoint::new(far_stack, far_workers, session.far_setup.apart(), session.events)?,
    ))
}

fn memory_stacks(session: &Session, near: Config, far: Config) -> Result<Stacks, RdmaError> {
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
    let near = Stack::builder(near).memory_ports(near_ports).build()?;
    Ok([near, Stack::builder(far).memory_ports(far_ports).build()?])
}

fn ring_pair(session: &Session, near: Config, far: Config) -> Result<(Endpoint, Endpoint), RdmaError> {
    let [(near_stack, near_workers), (far_stack, far_workers)] = ring_stacks(near, far)?;
    Ok((
        Endpoint::new(near_stack, near_workers, session.apart(), session.events)?,
        Endpoint::new(far_stack, far_workers, session.far_setup.apart(), session.events)?,
    ))
}

#[cfg(feature = "dpdk")]
fn ring_stacks(near: Config, far: Config) -> Result<Stacks, RdmaError> {
    Ok(Stack::ring_pair_of_cores(near, far, None)?)
}

#[cfg(not(feature = "dpdk"))]
fn ring_stacks(_: Config, _: Config) -> Result<Stacks, RdmaError> {
    Err(RdmaError::NoDevice)
}
