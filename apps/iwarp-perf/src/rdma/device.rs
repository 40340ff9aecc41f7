//! Both ends' devices, when both ends are threads of one process.

use std::net::SocketAddr;
use std::time::Instant;

use ironwarp::config::DeviceConfig;
use ironwarp::memory::{self, MemoryConfig};
use ironwarp::{Config, Stack, Worker};
use ironwarp_types::MacAddr;

use super::endpoint::{Endpoint, LINK_UP_TIMEOUT};
use super::loopback::{LoopbackWorker, SharedStack};
use crate::error::{Error, Result};
use crate::plan::Session;

/// Frames that may wait in each ring of a memory pair, and buffers a pool: enough for a window's
/// worth of frames.
const MEMORY_RING_FRAMES: usize = 1024;
const MEMORY_POOL_FRAMES: usize = 8192;

pub fn open_pair(session: &Session) -> Result<(Endpoint, Endpoint)> {
    let [(client, client_workers), (server, server_workers)] = open_stacks(session, "")?;
    Ok((
        Endpoint::new(client, client_workers, session.client_worker(), session.events)?,
        Endpoint::new(server, server_workers, session.server_worker(), session.events)?,
    ))
}

/// One loopback worker for each core: two stacks whose cores of one number are polled together.
/// `more` is appended to their configurations.
pub fn open_loopback_workers(session: &Session, more: &str) -> Result<Vec<LoopbackWorker>> {
    let [(client, client_workers), (server, server_workers)] = open_stacks(session, more)?;
    let (client, server) =
        (SharedStack::new(client, client_workers.len()), SharedStack::new(server, server_workers.len()));
    let peer = session.peer.ok_or(Error::NoDevice)?;
    let ports = peer.port()..;
    let workers = client_workers.into_iter().zip(server_workers).zip(ports).map(|((one, other), port)| {
        LoopbackWorker::new((&client, one), (&server, other), SocketAddr::new(peer.ip(), port))
    });
    let mut workers = workers.collect::<Result<Vec<LoopbackWorker>>>()?;
    // Each worker listens at its own port. The other cores learn of it from the first one, in the
    // second pass.
    for _ in 0..2 {
        workers.iter_mut().try_for_each(LoopbackWorker::apply_control_requests)?;
    }
    Ok(workers)
}

type Stacks = [(Stack, Vec<Worker>); 2];

fn open_stacks(session: &Session, more: &str) -> Result<Stacks> {
    let config = |text: &Option<String>| match text {
        Some(text) => Ok(Config::from_toml(&format!("{text}{more}"))?),
        None => Err(Error::NoDevice),
    };
    let (client, server) = (config(&session.client_config)?, config(&session.server_config)?);
    match client.port.device {
        DeviceConfig::Memory {} => memory_stacks(session, client, server),
        DeviceConfig::Memif { .. } => memif_stacks(client, server),
        _ => ring_stacks(client, server),
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

/// The server opens first, because it creates the socket.
fn memif_stacks(client: Config, server: Config) -> Result<Stacks> {
    let mut server = Stack::builder(server).build()?;
    let mut client = Stack::builder(client).build()?;
    let start = Instant::now();
    while !client.1.iter_mut().chain(&mut server.1).all(Worker::link_up) {
        if start.elapsed() > LINK_UP_TIMEOUT {
            return Err(Error::NoLink);
        }
        std::thread::yield_now();
    }
    Ok([client, server])
}

#[cfg(feature = "dpdk")]
fn ring_stacks(client: Config, server: Config) -> Result<Stacks> {
    Ok(Stack::ring_pair_of_cores(client, server, None)?)
}

#[cfg(not(feature = "dpdk"))]
fn ring_stacks(_: Config, _: Config) -> Result<Stacks> {
    Err(Error::NoDevice)
}
