//! A worker on a thread of the library: the application only posts and polls completions, and
//! sleeps until one wakes it.
#![forbid(unsafe_code)]

use std::io::Read;
use std::time::{Duration, Instant};

use ironwarp::memory::{MemoryConfig, pair};
use ironwarp::{
    Access, Completion, Config, Context, Event, QpAttr, QueuePair, RecvWr, SendWr, Stack, VerbsError,
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (near_port, far_port) = pair(&MemoryConfig::default(), &MemoryConfig::default());
    let (near, near_core) = Stack::builder(yielding("10.0.0.1/24")?).memory_port(near_port).build_one()?;
    let (far, far_core) = Stack::builder(yielding("10.0.0.2/24")?).memory_port(far_port).build_one()?;
    // On a machine with enough processors each worker would be pinned: `spawn(Some(processor))`.
    let (near_thread, far_thread) = (near_core.spawn(None)?, far_core.spawn(None)?);

    let mut server = far.context()?;
    let (pd, cq) = (server.alloc_pd(), server.create_cq(16)?);
    let landing = server.register(pd, vec![0u8; 64], Access::LOCAL_WRITE)?;
    let accepted = server.create_qp(pd, &QpAttr::new(cq))?;
    server.post_recv(accepted, &RecvWr::new(7, &[landing.slice(0, 64)?]))?;
    server.listen("10.0.0.2:4791".parse()?)?;

    let mut client = near.context()?;
    let (near_pd, near_cq) = (client.alloc_pd(), client.create_cq(16)?);
    let qp = client.create_qp(near_pd, &QpAttr::new(near_cq))?;
    client.connect(qp, "10.0.0.2:4791".parse()?, b"")?;
    establish(&mut client, &mut server, accepted)?;

    server.arm_cq(cq, false)?;
    client.post_send(qp, &SendWr::send_inline(1, b"wake up"))?;

    // Sleeps in the kernel until the completion's event.
    let mut event = std::fs::File::from(server.cq_fd(cq)?.try_clone_to_owned()?);
    let mut completions = [Completion::default(); 4];
    let reaped = wait(|| {
        let _ = event.read(&mut [0; 8]);
        Ok(Some(server.poll_cq(cq, &mut completions)?).filter(|reaped| *reaped > 0))
    })?;
    let received = completions[0];
    println!("{reaped} completion: {:?} {} bytes, {:?}", received.opcode, received.byte_len, received.status);
    assert_eq!((received.wr_id, received.byte_len), (7, 7));

    near_thread.stop();
    far_thread.stop();
    Ok(())
}

fn yielding(address: &str) -> Result<Config, ironwarp::ConfigError> {
    let mut config = Config::in_memory(address)?;
    config.core.idle = ironwarp::IdlePolicy::Yield;
    Ok(config)
}

fn establish(client: &mut Context, server: &mut Context, accepted: QueuePair) -> Result<(), VerbsError> {
    wait(|| {
        if let Some(Event::ConnectRequest { request, .. }) = server.poll_event() {
            server.accept(request, accepted, b"")?;
        }
        Ok(matches!(client.poll_event(), Some(Event::Established { .. })).then_some(()))
    })
}

/// Calls again, yielding in between, until there is a result; for ten seconds at most.
fn wait<T>(mut ask: impl FnMut() -> Result<Option<T>, VerbsError>) -> Result<T, VerbsError> {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        match ask()? {
            Some(answer) => return Ok(answer),
            None if Instant::now() > deadline => return Err(VerbsError::WorkerDropped),
            None => std::thread::yield_now(),
        }
    }
}
