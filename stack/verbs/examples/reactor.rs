//! An application that owns `main`, DPDK and its own loop, and polls the stack from it.
//!
//! Two stacks use two DPDK ports that are joined inside the process, so the example runs on any
//! machine. The reactor gives each worker a budget, does its own work in between, and reads in
//! `PollResult` whether it may rest and until when.
#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use ironwarp::dpdk::{Eal, EalConfig, Memory};
use ironwarp::{Access, Completion, Config, Context, Event, QpAttr, RecvWr, SendWr, Stack, Worker};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // The application starts DPDK itself. One that called `rte_eal_init` adopts it with
    // `Eal::adopt`.
    let eal = Eal::start(&EalConfig::new().memory(Memory::Ordinary { mib: 256 }))?;
    let (near, far) = (config("10.99.1.1/24")?, config("10.99.1.2/24")?);
    let [(near, near_core), (far, far_core)] = Stack::ring_pair(near, far, Some(eal))?;
    let mut reactor = Reactor { workers: [near_core, far_core], own_work: 0 };

    let mut server = far.context()?;
    let (pd, cq) = (server.alloc_pd(), server.create_cq(16)?);
    let landing = server.register(pd, vec![0u8; 64], Access::LOCAL_WRITE)?;
    let accepted = server.create_qp(pd, &QpAttr::new(cq))?;
    server.post_recv(accepted, &RecvWr::new(1, &[landing.slice(0, 64)?]))?;
    server.listen("10.99.1.2:4791".parse()?)?;

    let mut client = near.context()?;
    let (near_pd, near_cq) = (client.alloc_pd(), client.create_cq(16)?);
    let qp = client.create_qp(near_pd, &QpAttr::new(near_cq))?;
    client.connect(qp, "10.99.1.2:4791".parse()?, b"")?;

    let mut completions = [Completion::default(); 4];
    let deadline = Instant::now() + Duration::from_secs(20);
    while server.poll_cq(cq, &mut completions)? == 0 {
        reactor.turn();
        if let Some(Event::ConnectRequest { request, .. }) = server.poll_event() {
            server.accept(request, accepted, b"")?;
        }
        if is_up(&mut client) {
            client.post_send(qp, &SendWr::send_inline(1, b"from a reactor"))?;
        }
        if Instant::now() > deadline {
            return Err("nothing arrived in twenty seconds".into());
        }
    }
    let mut text = [0; 14];
    landing.read_at(0, &mut text)?;
    println!("{} after {} turns of the application's own", String::from_utf8_lossy(&text), reactor.own_work);
    Ok(())
}

/// The application's loop.
struct Reactor {
    workers: [Worker; 2],
    own_work: u64,
}

impl Reactor {
    fn turn(&mut self) {
        let mut idle = true;
        for worker in &mut self.workers {
            idle &= worker.poll(4).work == 0;
        }
        self.own_work += 1;
        if idle {
            // No work before the earliest `next_deadline` unless a frame arrives: others may run.
            std::thread::yield_now();
        }
    }
}

fn is_up(client: &mut Context) -> bool {
    matches!(client.poll_event(), Some(Event::Established { .. }))
}

fn config(address: &str) -> Result<Config, ironwarp::ConfigError> {
    Config::from_toml(&format!(
        "[port]\ndevice.ring = {{}}\nring_size = 256\nrx_frames = 2048\ntx_frames = 2048\n[net]\naddress = \"{address}\"\n\
         [limits]\nqueue_pairs = 16\nhalf_open = 16\n"
    ))
}
