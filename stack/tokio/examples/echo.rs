//! An asynchronous echo server and its client, in one process and on one thread: two stacks that
//! are joined by memory.
//!
//! Over a device, [`Stack::builder`] takes a configuration without `memory_port`, and each program
//! has one side.

use std::error::Error;
use std::io;
use std::net::SocketAddr;

use ironwarp::memory::{MemoryConfig, MemoryPort, pair};
use ironwarp::{
    Access, Completion, CompletionOpcode, CompletionStatus, Config, ConnectionRequest, Event, IdlePolicy,
    MacAddr, QpAttr, RecvWr, SendWr, Stack,
};
use ironwarp_tokio::{AsyncContext, AsyncCq, run_worker};

const ECHOES: usize = 3;
const BYTES: u32 = 64;

type Outcome<T> = Result<T, Box<dyn Error>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome<()> {
    let far_port = MemoryConfig { mac: MacAddr([2, 0, 0, 0, 0, 2]), ..MemoryConfig::default() };
    let (near, far) = pair(&MemoryConfig::default(), &far_port);
    let server = side("10.0.0.2/24", far)?;
    let client = side("10.0.0.1/24", near)?;
    let mut server = AsyncContext::new(server.context()?)?;
    let at = server.listen("10.0.0.2:0".parse()?)?;
    let (served, echoed) = tokio::join!(serve(server), echo(AsyncContext::new(client.context()?)?, at));
    served?;
    for text in echoed? {
        println!("{text}");
    }
    Ok(())
}

/// A stack whose worker is a task.
fn side(address: &str, port: MemoryPort) -> Outcome<Stack> {
    let mut config = Config::in_memory(address)?;
    config.core.idle = IdlePolicy::Sleep;
    // Memory cannot wake a worker.
    config.core.sleep_poll_us = 50;
    let (stack, worker) = Stack::builder(config).memory_port(port).build_one()?;
    tokio::spawn(run_worker(worker));
    Ok(stack)
}

/// Returns every message of one client to it.
async fn serve(mut ctx: AsyncContext) -> Outcome<()> {
    let (pd, cq) = (ctx.alloc_pd(), ctx.create_cq(64)?);
    let cq = AsyncCq::new(&ctx, cq)?;
    // One half receives while the other half is sent: iWARP has no receiver-not-ready.
    let buffer = ctx.register(pd, vec![0; 2 * BYTES as usize], Access::LOCAL_WRITE)?;
    let half = |number: u64, bytes| buffer.slice(number as usize * BYTES as usize, bytes);
    let qp = ctx.create_qp(pd, &QpAttr::new(cq.queue()))?;
    ctx.post_recv(qp, &RecvWr::new(0, &[half(0, BYTES)?]))?;
    let request = next_request(&mut ctx).await?;
    ctx.accept(request, qp, b"")?;
    loop {
        let done = next(&mut ctx, &cq).await?;
        match (done.status, done.opcode) {
            (CompletionStatus::Success, CompletionOpcode::Receive) => {
                let other = 1 - done.wr_id;
                // The client waits for each reply, so its message acknowledges what was sent from
                // the other half.
                ctx.post_recv(qp, &RecvWr::new(other, &[half(other, BYTES)?]))?;
                let reply = [half(done.wr_id, done.byte_len)?];
                ctx.post_send(qp, &SendWr::send(2, &reply).unsignaled())?;
            }
            // The client has left.
            (CompletionStatus::FlushedInError, _) => return Ok(()),
            other => return Err(format!("{other:?}").into()),
        }
    }
}

/// Returns the next request of a client that is welcome, and still waits for the answer.
async fn next_request(ctx: &mut AsyncContext) -> Outcome<ConnectionRequest> {
    loop {
        if let Event::ConnectRequest { request, remote, .. } = ctx.event().await? {
            match ctx.decide(&request, is_welcome(remote)).await? {
                Some(true) => return Ok(request),
                Some(false) => ctx.reject(request, b"not welcome")?,
                // The client has left.
                None => {}
            }
        }
    }
}

/// A server may ask somebody else, which takes its time.
async fn is_welcome(client: SocketAddr) -> bool {
    tokio::task::yield_now().await;
    client.is_ipv4()
}

/// Sends some messages and returns the replies.
async fn echo(mut ctx: AsyncContext, at: SocketAddr) -> Outcome<Vec<String>> {
    let (pd, cq) = (ctx.alloc_pd(), ctx.create_cq(64)?);
    let cq = AsyncCq::new(&ctx, cq)?;
    let inbox = ctx.register(pd, vec![0; BYTES as usize], Access::LOCAL_WRITE)?;
    let qp = ctx.create_qp(pd, &QpAttr::new(cq.queue()))?;
    ctx.connect(qp, at, b"")?;
    let Event::Established { .. } = ctx.event().await? else { return Err("no connection".into()) };
    let mut replies = Vec::new();
    for number in 0..ECHOES {
        let said = format!("echo {number}");
        ctx.post_recv(qp, &RecvWr::new(2, &[inbox.slice(0, BYTES)?]))?;
        ctx.post_send(qp, &SendWr::send_inline(1, said.as_bytes()).unsignaled())?;
        let done = next(&mut ctx, &cq).await?;
        if done.status != CompletionStatus::Success {
            return Err(format!("{:?}", done.status).into());
        }
        let mut bytes = vec![0; done.byte_len as usize];
        inbox.read_at(0, &mut bytes)?;
        replies.push(String::from_utf8(bytes)?);
    }
    ctx.disconnect(qp)?;
    while !matches!(ctx.event().await?, Event::Disconnected { .. }) {}
    Ok(replies)
}

async fn next(ctx: &mut AsyncContext, cq: &AsyncCq) -> io::Result<Completion> {
    let mut done = [Completion::default(); 1];
    ctx.completions(cq, &mut done).await?;
    let [done] = done;
    Ok(done)
}
