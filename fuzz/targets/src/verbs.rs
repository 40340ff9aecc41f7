//! The verbs as a sequence of calls with handles that are right, stale or wrong, on two nodes that
//! are joined.

use crate::node::{PORT, advance, config};
use crate::{Input, Node};
use ironwarp::memory::{self, MemoryConfig};
use ironwarp::{
    Access, AtomicOp, CompletionQueue, FastRegion, MacAddr, QpAttr, QueuePair, RecvWr, Region, RemoteMemory,
    STag, SendWr, SharedReceiveQueue, Window,
};
use ironwarp_sim::VirtualClock;

/// What a sequence of calls has made, with stale handles among it.
struct Objects {
    qps: Vec<QueuePair>,
    cqs: Vec<CompletionQueue>,
    srqs: Vec<SharedReceiveQueue>,
    regions: Vec<Region>,
    windows: Vec<Window>,
    fast: Vec<FastRegion>,
}

/// Runs one input.
pub fn run(bytes: &[u8]) {
    let (mut input, clock) = (Input::new(bytes), VirtualClock::new());
    let memory = |mac| MemoryConfig { mac: MacAddr([2, 0, 0, 0, 0, mac]), ..MemoryConfig::default() };
    let (near, far) = memory::pair(&memory(1), &memory(2));
    let mut near = Node::over(config("10.0.0.1/24"), near, clock.clone());
    let mut far = Node::over(config("10.0.0.2/24"), far, clock.clone());
    let mut objects = Objects {
        qps: Vec::new(),
        cqs: vec![near.cq],
        srqs: Vec::new(),
        regions: Vec::new(),
        windows: Vec::new(),
        fast: Vec::new(),
    };
    while !input.is_empty() {
        call(&mut input, &mut near, &mut far, &mut objects);
        if input.u8() < 160 {
            near.run();
            far.run();
        }
        if input.u8() > 200 {
            advance(&clock, input.nanos());
        }
    }
    for _ in 0..50 {
        near.run();
        far.run();
        advance(&clock, 20_000_000);
    }
}

fn pick<T: Copy>(input: &mut Input<'_>, all: &[T]) -> Option<T> {
    all.get(input.below(all.len().max(1))).copied()
}

fn call(input: &mut Input<'_>, near: &mut Node, far: &mut Node, objects: &mut Objects) {
    match input.u8() % 20 {
        0 | 1 => create_qp(input, near, objects),
        2 => {
            if let Some(qp) = pick(input, &objects.qps) {
                let _ = near.ctx.connect(qp, ([10, 0, 0, 2], PORT).into(), input.short_bytes());
            }
        }
        3..=6 => post_send(input, near, far, objects),
        7 => post_recv(input, near, objects),
        8 => {
            if let Some(qp) = pick(input, &objects.qps) {
                let _ = near.ctx.disconnect(qp);
            }
        }
        9 => {
            if let Some(qp) = pick(input, &objects.qps) {
                let _ = near.ctx.abort(qp);
            }
        }
        10 => {
            if let Some(qp) = pick(input, &objects.qps) {
                let _ = near.ctx.destroy_qp(qp);
            }
        }
        11 => objects.cqs.extend(near.ctx.create_cq(input.u16().into())),
        12 => {
            if let Some(cq) = pick(input, &objects.cqs) {
                let _ = near.ctx.resize_cq(cq, input.u16().into());
                let _ = near.ctx.arm_cq(cq, input.flag());
            }
        }
        13 => {
            if let Some(cq) = pick(input, &objects.cqs).filter(|cq| *cq != near.cq) {
                let _ = near.ctx.destroy_cq(cq);
            }
        }
        14 => objects.srqs.extend(near.ctx.create_srq(near.pd, input.u8().into(), input.below(20))),
        15 => {
            if let Some(srq) = pick(input, &objects.srqs) {
                let _ = near.ctx.arm_srq(srq, input.u8().into());
                if input.u8() > 200 {
                    let _ = near.ctx.destroy_srq(srq);
                }
            }
        }
        16 => {
            let access = Access::from_bits_truncate(input.u8().into());
            objects.regions.extend(near.ctx.register(near.pd, vec![1u8; input.below(5000)], access));
        }
        17 => {
            if !objects.regions.is_empty() {
                let at = input.below(objects.regions.len());
                let token = objects.regions.swap_remove(at).deregister();
                let _ = token.poll();
            }
        }
        18 => {
            objects.windows.extend(near.ctx.create_window(near.pd));
            objects.fast.extend(near.ctx.create_fast_region(near.pd));
        }
        _ => {
            let _ = far.established.first().map(|&qp| far.ctx.disconnect(qp));
        }
    }
}

fn create_qp(input: &mut Input<'_>, near: &mut Node, objects: &mut Objects) {
    let Some(cq) = pick(input, &objects.cqs) else { return };
    let mut attr = QpAttr::new(cq);
    (attr.send_depth, attr.recv_depth) = (input.u8().into(), input.u8().into());
    attr.max_sge = input.below(20);
    attr.srq = if input.flag() { pick(input, &objects.srqs) } else { None };
    objects.qps.extend(near.ctx.create_qp(near.pd, &attr));
}

fn post_recv(input: &mut Input<'_>, near: &mut Node, objects: &mut Objects) {
    let Some(region) = objects.regions.get(input.below(objects.regions.len().max(1))) else { return };
    let Ok(sge) = region.slice(input.below(64), u32::from(input.u8())) else { return };
    let scatter = vec![sge; input.below(18)];
    let wr = RecvWr::new(1, &scatter);
    if input.flag() {
        if let Some(qp) = pick(input, &objects.qps) {
            let _ = near.ctx.post_recv(qp, &wr);
        }
    } else if let Some(srq) = pick(input, &objects.srqs) {
        let _ = near.ctx.post_srq_recv(srq, &wr);
    }
}

fn post_send(input: &mut Input<'_>, near: &mut Node, far: &mut Node, objects: &mut Objects) {
    let Some(qp) = pick(input, &objects.qps) else { return };
    let Some(region) = objects.regions.get(input.below(objects.regions.len().max(1))) else { return };
    let offset = input.below(64);
    let Ok(sge) = region.slice(offset, u32::from(input.u16() % 1024)) else { return };
    let (one, many) = ([sge], vec![sge; input.below(18)]);
    let stag = if input.u8() < 200 { far.memory.stag() } else { STag(input.u32()) };
    let remote =
        RemoteMemory { stag, tagged_offset: far.memory.base_to().wrapping_add(input.offset().into()) };
    let (add, access) = (
        AtomicOp::FetchAdd { add: input.u64(), mask: input.u64() },
        Access::from_bits_truncate(input.u8().into()),
    );
    let octets = input.u64().to_be_bytes();
    let (windows, fast) = (objects.windows.len().max(1), objects.fast.len().max(1));
    let at = usize::from(input.u8());
    let mut wr = match input.u8() % 11 {
        0 => SendWr::send(1, &many),
        1 => SendWr::write(2, &many, remote),
        2 => SendWr::read(3, &one, remote),
        3 => SendWr::atomic(4, &one, remote, &add),
        4 => SendWr::immediate(5, &octets),
        5 => SendWr::invalidate(6, stag),
        6 => match objects.windows.get_mut(at % windows) {
            Some(window) => SendWr::bind(7, window, &one, access),
            None => return,
        },
        7 => match objects.fast.get_mut(at % fast) {
            Some(fast) => SendWr::fast_register(8, fast, &one, access),
            None => return,
        },
        8 => SendWr::read_with_invalidate(9, &one, remote),
        9 => SendWr::send(10, &many).with_invalidate(stag),
        _ => {
            let both = SendWr::write_with_immediate(11, &many, remote, &octets);
            let _ = near.ctx.post_all(qp, &both);
            return;
        }
    };
    let flags = input.u8();
    if flags & 1 == 1 {
        wr = wr.unsignaled();
    }
    if flags & 2 == 2 {
        wr = wr.fenced();
    }
    if flags & 4 == 4 {
        wr = wr.solicited();
    }
    if flags & 8 == 8 {
        wr = wr.stream_scoped();
    }
    let _ = near.ctx.post_send(qp, &wr);
}
