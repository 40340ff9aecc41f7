//! Both ends' devices, when both ends are threads of one process.

use std::net::SocketAddr;

use ironwarp::memory::{self, MemoryConfig};
use ironwarp::{Config, Stack, Worker};
use ironwarp_types::MacAddr;

use super::endpoint::{Endpoint, RdmaError, Result};
use super::loopback::{LoopbackWorker, SharedStack};
use crate::plan::{ServerPlacement, Session};

/// Frames that may wait in each ring of a memory pair, and buffers a pool: enough for a window's worth of frames.
const MEMORY_RING_FRAMES: usize = 1024;
const MEMORY_POOL_FRAMES: usize = 8192;

/// The two ends; `None` when the session needs no device.
pub fn open_pair(session: &Session) -> Result<Option<(Endpoint, Endpoint)>> {
    let Some([(client_stack, client_workers), (server_stack, server_workers)]) = open_stacks(session, "")?
    else {
        return Ok(None);
    };
    Ok(Some((
        Endpoint::new(client_stack, client_workers, session.worker_processor(), session.events)?,
        Endpoint::new(server_stack, server_workers, session.server_setup.worker_processor(), session.events)?,
    )))
}

/// One loopback worker for each core: two stacks whose cores of one number are polled together. `more` is appended to
/// their configurations.
pub fn open_loopback_workers(session: &Session, more: &str) -> Result<Vec<LoopbackWorker>> {
    let [(client, client_workers), (server, server_workers)] =
        open_stacks(session, more)?.ok_or(RdmaError::NoDevice)?;
    let (client, server) =
        (SharedStack::new(client, client_workers.len()), SharedStack::new(server, server_workers.len()));
    let peer = session.peer.ok_or(RdmaError::NoDevice)?;
    let ports = peer.port()..;
    let workers = client_workers.into_iter().zip(server_workers).zip(ports).map(|((one, other), port)| {
        LoopbackWorker::new((&client, one), (&server, other), SocketAddr::new(peer.ip(), port))
    });
    let mut workers = workers.collect::<Result<Vec<LoopbackWorker>, _>>()?;
    // Each worker listens at its own port. The other cores learn of it from the first one, in the second pass.
    for _ in 0..2 {
        workers.iter_mut().try_for_each(LoopbackWorker::apply_control_requests)?;
    }
    Ok(workers)
}

type Stacks = [(Stack, Vec<Worker>); 2];

fn open_stacks(session: &Session, more: &str) -> Result<Option<Stacks>> {
    let (Some(client), Some(server)) = (&session.client_config, &session.server_setup.config) else {
        return Ok(None);
    };
    let config = |text: &str| Config::from_toml(&format!("{text}{more}"));
    let (client, server) = (config(client)?, config(server)?);
    match session.server_placement {
        ServerPlacement::MemoryThread | ServerPlacement::MemoryLoopback => {
            memory_stacks(session, client, server).map(Some)
        }
        _ => ring_stacks(client, server).map(Some),
    }
}

fn memory_stacks(session: &Session, client: Config, server: Config) -> Result<Stacks> {
    let port = |last: u8| MemoryConfig {
        mac: MacAddr([2, 0, 0, 0, 0, last]),
        mtu_bytes: session.mtu,
        rx_frames: MEMORY_POOL_FRAMES,
        tx_frames: MEMORY_POOL_FRAMES,
        rx_ring_frames: MEMORY_RING_FRAMES,
        tx_ring_frames: MEMORY_RING_FRAMES,
        ..MemoryConfig::default()
    };
    let cores = usize::from(client.core.count);
    let (client_ports, server_ports) = memory::pair_of_queues((&port(1), cores), (&port(2), cores));
    let client = Stack::builder(client).memory_ports(client_ports).build()?;
    Ok([client, Stack::builder(server).memory_ports(server_ports).build()?])
}

#[cfg(feature = "dpdk")]
fn ring_stacks(client: Config, server: Config) -> Result<Stacks> {
    Ok(Stack::ring_pair_of_cores(client, server, None)?)
}

#[cfg(not(feature = "dpdk"))]
fn ring_stacks(_: Config, _: Config) -> Result<Stacks> {
    Err(RdmaError::NoDevice)
}
