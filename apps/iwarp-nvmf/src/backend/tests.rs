//! What every backend keeps to: a call touches no more bytes than its budget, and a request that is
//! continued ends.

use std::sync::Arc;

use ironwarp::memory::{MemoryConfig, pair};
use ironwarp::{Access, Config, Context, ProtectionDomain, Region, Stack};

use super::*;

const BYTES: usize = 1 << 20;

/// A stack whose memory backends can use.
fn stack() -> (Stack, Context, ProtectionDomain) {
    let (port, _far) = pair(&MemoryConfig::default(), &MemoryConfig::default());
    let config = Config::in_memory("10.0.0.1/24").expect("valid");
    let (stack, _worker) = Stack::builder(config).memory_port(port).build_one().expect("a stack");
    let (ctx, pd) = (stack.context().expect("a context"), stack.alloc_pd());
    (stack, ctx, pd)
}

fn region(ctx: &Context, pd: ProtectionDomain) -> Arc<Region> {
    Arc::new(ctx.register(pd, vec![7; BYTES], Access::LOCAL_WRITE).expect("registered"))
}

/// Submits a request until it is done, each time with `budget` bytes. Returns the bytes that each
/// call touched.
fn run(backend: &mut dyn Backend, mut request: BlockRequest, budget: u64) -> Vec<u64> {
    let mut touched = Vec::new();
    loop {
        let mut one = Budget::new(budget);
        let before = one.left();
        let outcome = backend.submit(1, &request, &mut one);
        touched.push(before - one.left());
        match outcome {
            Submission::Progress(bytes) => {
                assert!(bytes > 0 && bytes == before - one.left(), "progress is what the budget paid for");
                (request.offset, request.bytes) = (request.offset + bytes, request.bytes - bytes);
            }
            outcome => {
                assert_eq!(outcome, Submission::Done(Ok(())));
                return touched;
            }
        }
    }
}

#[test]
fn no_call_touches_more_than_its_budget_and_every_request_ends() {
    let (_stack, ctx, pd) = stack();
    let medium = region(&ctx, pd);
    let mut memory = MemoryBackend::new(medium.clone());
    let mut null = NullBackend::new(region(&ctx, pd), region(&ctx, pd));
    let backends: [&mut dyn Backend; 2] = [&mut memory, &mut null];
    for backend in backends {
        for operation in [
            BlockOperation::Flush,
            BlockOperation::Deallocate,
            BlockOperation::WriteZeroes { durable: true, may_deallocate: false },
        ] {
            for budget in [512, 4096, 10_000, u64::MAX] {
                let request = BlockRequest { operation, offset: 0, bytes: BYTES as u64, arena_offset: 0 };
                let touched = run(backend, request, budget);
                assert!(touched.iter().all(|&bytes| bytes <= budget.min(BUDGET_BYTES_MAX)), "{touched:?}");
            }
        }
    }
    let mut found = vec![1; BYTES];
    medium.read_at(0, &mut found).expect("inside");
    assert!(found.iter().all(|&byte| byte == 0), "the medium is zeros");
}

#[test]
fn a_request_outside_of_the_medium_fails_at_once() {
    let (_stack, ctx, pd) = stack();
    let mut memory = MemoryBackend::new(region(&ctx, pd));
    for (offset, bytes) in [(BYTES as u64, 1), (u64::MAX, 1), (BYTES as u64 - 1, 2)] {
        let request = BlockRequest { operation: BlockOperation::Deallocate, offset, bytes, arena_offset: 0 };
        let outcome = memory.submit(1, &request, &mut Budget::new(4096));
        assert_eq!(outcome, Submission::Done(Err(BlockError::Range)));
    }
}
