//! Three threads with one connection: one posts sends, one polls their completions, one posts
//! receives. None takes a lock.
//!
//! The context creates and connects the objects, then splits their queues. Each end is used by one
//! thread at a time.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ironwarp::memory::{MemoryConfig, pair};
use ironwarp::{
    Completion, Config, Context, CqPoller, Event, PostError, QpAttr, QueuePair, RecvWr, SendPoster, SendWr,
    SrqPoster, Stack, VerbsError,
};

/// Messages of the connection.
const MESSAGES: usize = 1000;

/// Receives that are posted before the connection.
const RECEIVES: u32 = 64;

/// Receives that no message has been sent for. A Send without a receive at the peer ends the
/// connection, so a real program would carry such credits in its messages.
static CREDITS: AtomicU32 = AtomicU32::new(RECEIVES);

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let (near_port, far_port) = pair(&MemoryConfig::default(), &MemoryConfig::default());
    let (near, near_core) = Stack::builder(yielding("10.0.0.1/24")?).memory_port(near_port).build_one()?;
    let (far, far_core) = Stack::builder(yielding("10.0.0.2/24")?).memory_port(far_port).build_one()?;
    let _workers = (near_core.spawn(None)?, far_core.spawn(None)?);

    let mut server = far.context()?;
    let (pd, received) = (server.alloc_pd(), server.create_cq(2 * RECEIVES)?);
    let srq = server.create_srq(pd, RECEIVES, 1)?;
    let accepted = server.create_qp(pd, &QpAttr { srq: Some(srq), ..QpAttr::new(received) })?;
    let mut receives = server.split_srq(srq)?;
    (0..RECEIVES).try_for_each(|_| receives.post_recv(&RecvWr::new(0, &[])))?;
    server.listen("10.0.0.2:4791".parse()?)?;

    let mut client = near.context()?;
    let (near_pd, sent) = (client.alloc_pd(), client.create_cq(16)?);
    let qp = client.create_qp(near_pd, &QpAttr::new(sent))?;
    client.connect(qp, "10.0.0.2:4791".parse()?, b"")?;
    establish(&mut client, &mut server, accepted)?;

    // The end of the receive queue returns to the context here, since nobody needs it.
    let (sends, _) = client.split_qp(qp)?;
    let (sends_done, receives_done) = (client.split_cq(sent)?, server.split_cq(received)?);
    let (consumed, to_replace) = std::sync::mpsc::channel();
    let threads = [
        thread::spawn(move || post(sends)),
        thread::spawn(move || reap(sends_done, |_| Ok(()))),
        thread::spawn(move || replace(receives, &to_replace)),
    ];
    reap(receives_done, |completions| Ok(consumed.send(completions)?))?;
    drop(consumed);
    for thread in threads {
        thread.join().map_err(|_| "a thread panicked")??;
    }
    println!("{MESSAGES} messages");
    Ok(())
}

/// Posts all messages. A full completion queue empties as the other thread polls.
fn post(mut sends: SendPoster) -> Result<(), Failure> {
    for number in 0..MESSAGES {
        wait(|| Ok((CREDITS.load(Ordering::Acquire) > 0).then_some(())))?;
        CREDITS.fetch_sub(1, Ordering::Relaxed);
        wait(|| match sends.post_send(&SendWr::send_inline(number as u64, b"")) {
            Err(PostError::CqFull | PostError::QueueFull) => Ok(None),
            outcome => Ok(Some(outcome?)),
        })?;
    }
    Ok(())
}

/// Polls until every message has its completion.
fn reap(
    mut poller: CqPoller,
    mut on_reaped: impl FnMut(usize) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut left = MESSAGES;
    while left > 0 {
        let mut completions = [Completion::default(); 16];
        let reaped = wait(|| Ok(Some(poller.poll(&mut completions)?).filter(|reaped| *reaped > 0)))?;
        left -= reaped;
        on_reaped(reaped)?;
    }
    Ok(())
}

/// Posts a receive for each one that was consumed, until the other thread has seen the last
/// message.
fn replace(mut receives: SrqPoster, consumed: &std::sync::mpsc::Receiver<usize>) -> Result<(), Failure> {
    for count in consumed {
        for _ in 0..count {
            receives.post_recv(&RecvWr::new(0, &[]))?;
            CREDITS.fetch_add(1, Ordering::Release);
        }
    }
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
            None => thread::yield_now(),
        }
    }
}
