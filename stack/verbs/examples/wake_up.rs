//! What an idle worker that sleeps costs, and how long it takes to wake.
//!
//! `cargo run --release -p ironwarp --features dpdk --example wake_up -- near.toml far.toml`
//!
//! The far side is a worker on a thread of its own with the idle policy of its configuration, and
//! nothing else: the near side reads its memory, after pauses that are long enough for it to fall
//! asleep. Prints the far side's share of a processor while nothing happens, and percentiles of the
//! round trip of a Read of 8 bytes. Without arguments both sides are joined by memory, whose ports
//! cannot wake a worker.

use std::error::Error;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use ironwarp::memory::{MemoryConfig, pair};
use ironwarp::{
    Access, Completion, CompletionStatus, Config, Context, Event, IdlePolicy, MacAddr, ProtectionDomain,
    QpAttr, RemoteMemory, STag, SendWr, Stack, Worker,
};
use rustix::time::{ClockId, clock_gettime};

/// How long the far side is watched while nothing happens.
const IDLE: Duration = Duration::from_secs(5);
/// The pause before each Read.
const PAUSE: Duration = Duration::from_millis(5);
const READS: usize = 1_000;
/// After this a missing event ends the program.
const PATIENCE: Duration = Duration::from_secs(30);

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let ((near, mut near_worker), (far, far_worker), at) = match &arguments[..] {
        [near, far] => {
            let far = Config::from_file(Path::new(far))?;
            let at = far.addresses()?[0];
            let far = Stack::builder(far).build_one()?;
            (Stack::builder(Config::from_file(Path::new(near))?).build_one()?, far, at)
        }
        _ => in_memory()?,
    };
    let policy = far_worker.idle_policy();
    let _thread = far_worker.spawn(None)?;
    let mut server = far.context()?;
    let server_pd = server.alloc_pd();
    let offered = server.register(server_pd, vec![7; 64], Access::LOCAL_WRITE | Access::REMOTE_READ)?;
    let at = server.listen((at, 0).into())?;

    let mut client = near.context()?;
    let (pd, cq) = (client.alloc_pd(), client.create_cq(16)?);
    let sink = client.register(pd, vec![0; 64], Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    let qp = client.create_qp(pd, &QpAttr::new(cq))?;
    client.connect(qp, at, b"")?;
    let advert = [&offered.stag().0.to_be_bytes()[..], &offered.base_to().to_be_bytes()].concat();
    let remote = establish(&mut near_worker, &mut client, (&mut server, server_pd), &advert)?;

    sleep(Duration::from_millis(500));
    let (began, before) = (Instant::now(), cpu_time());
    sleep(IDLE);
    let share = 100.0 * (cpu_time() - before).as_secs_f64() / began.elapsed().as_secs_f64();
    println!("{policy:?}: {share:.2} % of a processor while idle");

    let mut round_trips = Vec::with_capacity(READS);
    for number in 0..READS as u64 {
        pause(&mut near_worker);
        let began = Instant::now();
        client.post_send(qp, &SendWr::read(number, &[sink.slice(0, 8)?], remote))?;
        let mut done = [Completion::default(); 1];
        while client.poll_cq(cq, &mut done)? == 0 {
            near_worker.poll(1);
            if began.elapsed() > PATIENCE {
                return Err("a Read takes too long".into());
            }
        }
        if done[0].status != CompletionStatus::Success {
            return Err(format!("{:?}", done[0].status).into());
        }
        round_trips.push(began.elapsed());
    }
    round_trips.sort_unstable();
    let at = |percent: usize| round_trips[(READS - 1) * percent / 100].as_secs_f64() * 1e6;
    println!(
        "{policy:?}: Read after {PAUSE:?}: p50 {:.1} us, p90 {:.1} us, p99 {:.1} us, longest {:.1} us",
        at(50),
        at(90),
        at(99),
        at(100)
    );
    Ok(())
}

type Side = (Stack, Worker);

fn in_memory() -> Result<(Side, Side, std::net::IpAddr), Box<dyn Error>> {
    let far_port = MemoryConfig { mac: MacAddr([2, 0, 0, 0, 0, 2]), ..MemoryConfig::default() };
    let (near_port, far_port) = pair(&MemoryConfig::default(), &far_port);
    let mut far = Config::in_memory("10.0.0.2/24")?;
    far.core.idle = IdlePolicy::Sleep;
    let near = Stack::builder(Config::in_memory("10.0.0.1/24")?).memory_port(near_port).build_one()?;
    Ok((near, Stack::builder(far).memory_port(far_port).build_one()?, [10, 0, 0, 2].into()))
}

/// Connects the two sides and returns the memory that the far one offers.
fn establish(
    worker: &mut Worker,
    client: &mut Context,
    (server, pd): (&mut Context, ProtectionDomain),
    advert: &[u8],
) -> Result<RemoteMemory, Box<dyn Error>> {
    let (began, server_cq) = (Instant::now(), server.create_cq(16)?);
    loop {
        worker.poll(1);
        if let Some(Event::ConnectRequest { request, .. }) = server.poll_event() {
            let qp = server.create_qp(pd, &QpAttr::new(server_cq))?;
            server.accept(request, qp, advert)?;
        }
        if let Some(Event::Established { private_data, .. }) = client.poll_event() {
            let (stag, offset) = private_data.split_first_chunk().ok_or("no advertisement")?;
            let tagged_offset = u64::from_be_bytes(offset.try_into()?);
            return Ok(RemoteMemory { stag: STag(u32::from_be_bytes(*stag)), tagged_offset });
        }
        if began.elapsed() > PATIENCE {
            return Err("no connection".into());
        }
    }
}

/// Keeps the near side alive during the pause.
fn pause(worker: &mut Worker) {
    let until = Instant::now() + PAUSE;
    while Instant::now() < until {
        worker.poll(1);
    }
}

/// The processor time of this process.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
