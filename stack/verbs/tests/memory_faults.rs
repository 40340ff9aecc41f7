//! Memory that is taken away while it is registered: each kind of access fails, and ends its own
//! connection with the Terminate of the layer that found it. No other connection notices.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

use super::common;

use std::ptr::{NonNull, null_mut};

use common::{Node, Pair, config, contents};
use ironwarp::{
    Access, AtomicOp, CompletionStatus, Event, Extensions, QueuePair, RawMemory, RecvWr, Region,
    RemoteMemory, SendWr, Sge,
};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect};

const PAGE: usize = 4096;
/// The bytes of an access that are still there.
const THERE: usize = 100;
const OK: CompletionStatus = CompletionStatus::Success;
const PROTECTION: CompletionStatus = CompletionStatus::LocalProtection;
const FLUSHED: CompletionStatus = CompletionStatus::FlushedInError;
/// RFC 5040 s4.8: the local catastrophic error of RDMAP, for memory that this side named, and of
/// DDP (RFC 5041 s7.2), for memory that the peer named in a tagged segment.
const RDMAP: (u8, u8, u8) = (0, 0, 0);
const DDP: (u8, u8, u8) = (1, 0, 0);

/// Three registered pages, of which all but the first are taken away.
struct Pages {
    region: Region,
    first: *mut std::ffi::c_void,
}

impl Pages {
    fn of(node: &Node) -> Self {
        ironwarp::catch_memory_faults().expect("handlers");
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address of the system's choice.
        let first =
            unsafe { mmap_anonymous(null_mut(), 3 * PAGE, rights, MapFlags::PRIVATE) }.expect("pages");
        let base = NonNull::new(first.cast()).expect("a mapping is not at 0");
        // SAFETY: the mapping stays, and is accessed through the region alone. What happens when it
        // may not be accessed is the test: the stack catches the fault.
        let raw = unsafe { RawMemory::new(base, 3 * PAGE) };
        let region = node.ctx.register(node.pd, raw, Access::all()).expect("a region");
        Pages { region, first }
    }

    fn take_away(&self) {
        // SAFETY: nothing but the region refers to the pages.
        unsafe { mprotect(self.first.byte_add(PAGE), 2 * PAGE, MprotectFlags::empty()) }.expect("a mapping");
    }

    fn element(&self, len: u32) -> [Sge; 1] {
        [Sge { len, ..self.region.slice(PAGE - THERE, THERE as u32).unwrap() }]
    }

    fn remote(&self) -> RemoteMemory {
        RemoteMemory {
            stag: self.region.stag(),
            tagged_offset: self.region.base_to() + (PAGE - THERE) as u64,
        }
    }
}

/// What an access to memory that is gone must lead to.
struct Outcome {
    /// Whose memory it is, and who sends the Terminate.
    at_near: bool,
    terminate: (u8, u8, u8),
    /// The near request, if it has to fail in one way.
    request: Option<CompletionStatus>,
    receive: CompletionStatus,
}

/// Two connections, memory of one node that is gone, and memory of the other.
struct Scene {
    pair: Pair,
    near: QueuePair,
    gone: Pages,
    other: Region,
}

/// Posts a request over memory that goes away, once short and once in several segments, and checks
/// the outcome of both ends and of a bystander.
#[track_caller]
fn fails(outcome: &Outcome, post: impl Fn(&mut Scene, u32)) {
    for len in [THERE as u32 + 8, 2 * PAGE as u32] {
        let mut pair = common::joined_with(|address| {
            let mut config = config(address);
            config.rdmap.extensions = Extensions::Rfc7306;
            config
        });
        let (bystander, _) = pair.connect();
        pair.near.events.clear();
        pair.far.events.clear();
        let (near, far) = pair.connect();
        let (owner, peer) = if outcome.at_near { (&pair.near, &pair.far) } else { (&pair.far, &pair.near) };
        let gone = Pages::of(owner);
        let other = peer.ctx.register(peer.pd, vec![5u8; 3 * PAGE], Access::all()).unwrap();
        let receive =
            if outcome.receive == PROTECTION { gone.element(len) } else { [other.slice(0, 0).unwrap()] };
        pair.far.ctx.post_recv(far, &RecvWr::new(9, &receive)).unwrap();
        gone.take_away();
        let mut scene = Scene { pair, near, gone, other };
        post(&mut scene, len);
        let pair = &mut scene.pair;
        pair.until("both ends", |pair| pair.near.is_disconnected(near) && pair.far.is_disconnected(far));
        let statuses =
            |node: &Node| node.completions.iter().map(|one| (one.wr_id, one.status)).collect::<Vec<_>>();
        let requests = statuses(&pair.near);
        assert!(requests.len() == 1 && requests[0].0 == 1, "{requests:?}");
        assert_eq!(outcome.request.unwrap_or(requests[0].1), requests[0].1, "{len} octets");
        assert_eq!(statuses(&pair.far), [(9, outcome.receive)]);
        let (sender, qp) = if outcome.at_near { (&pair.near, near) } else { (&pair.far, far) };
        let sent = sender.events.iter().find_map(|event| match event {
            Event::Terminated { qp: one, sent: true, terminate } if *one == qp => Some(*terminate),
            _ => None,
        });
        let sent = sent.expect("a Terminate was sent");
        assert_eq!((sent.layer, sent.etype, sent.code), outcome.terminate);

        pair.near.completions.clear();
        let target = pair.far.memory(&[0; 4]);
        let remote = RemoteMemory { stag: target.stag(), tagged_offset: target.base_to() };
        pair.near.ctx.post_send(bystander, &SendWr::write_inline(2, b"fine", remote)).unwrap();
        pair.until("the bystander", |pair| pair.near.completions.len() == 1);
        assert_eq!((statuses(&pair.near), &contents(&target)[..]), (vec![(2, OK)], &b"fine"[..]));
        assert_eq!((pair.near.worker.check(), pair.far.worker.check()), (Ok(()), Ok(())));
    }
}

fn send(scene: &mut Scene, wr: &SendWr<'_>) {
    scene.pair.near.ctx.post_send(scene.near, wr).unwrap();
}

fn remote(region: &Region) -> RemoteMemory {
    RemoteMemory { stag: region.stag(), tagged_offset: region.base_to() }
}

const AT_NEAR: Outcome =
    Outcome { at_near: true, terminate: RDMAP, request: Some(PROTECTION), receive: FLUSHED };
const AT_FAR: Outcome = Outcome { at_near: false, terminate: RDMAP, request: None, receive: FLUSHED };

#[test]
fn a_send_whose_source_is_gone_fails_locally() {
    fails(&AT_NEAR, |scene, len| {
        let gather = scene.gone.element(len);
        send(scene, &SendWr::send(1, &gather));
    });
}

#[test]
fn a_write_whose_source_is_gone_fails_locally() {
    fails(&AT_NEAR, |scene, len| {
        let (gather, to) = (scene.gone.element(len), remote(&scene.other));
        send(scene, &SendWr::write(1, &gather, to));
    });
}

#[test]
fn a_receive_whose_memory_is_gone_fails_at_the_receiver() {
    fails(&Outcome { receive: PROTECTION, ..AT_FAR }, |scene, len| {
        let gather = [scene.other.slice(0, len).unwrap()];
        send(scene, &SendWr::send(1, &gather));
    });
}

#[test]
fn a_write_whose_target_is_gone_is_terminated() {
    fails(&Outcome { terminate: DDP, ..AT_FAR }, |scene, len| {
        let (gather, to) = ([scene.other.slice(0, len).unwrap()], scene.gone.remote());
        send(scene, &SendWr::write(1, &gather, to));
    });
}

#[test]
fn a_read_whose_source_is_gone_is_terminated() {
    fails(&AT_FAR, |scene, len| {
        let (sink, from) = ([scene.other.slice(0, len).unwrap()], scene.gone.remote());
        send(scene, &SendWr::read(1, &sink, from));
    });
}

#[test]
fn a_read_whose_sink_is_gone_fails_locally() {
    fails(&Outcome { terminate: DDP, ..AT_NEAR }, |scene, len| {
        let (sink, from) = (scene.gone.element(len), remote(&scene.other));
        send(scene, &SendWr::read(1, &sink, from));
    });
}

/// A word and the sink of its original value are 8 octets long, in the page that is gone.
#[test]
fn an_atomic_operation_whose_word_is_gone_is_terminated() {
    fails(&AT_FAR, |scene, _| {
        let word =
            RemoteMemory { tagged_offset: scene.gone.region.base_to() + PAGE as u64, ..scene.gone.remote() };
        let sink = [scene.other.slice(0, 8).unwrap()];
        send(scene, &SendWr::atomic(1, &sink, word, &AtomicOp::add(1)));
    });
}

#[test]
fn an_atomic_operation_whose_sink_is_gone_fails_locally() {
    fails(&AT_NEAR, |scene, _| {
        let (sink, word) = ([scene.gone.region.slice(PAGE, 8).unwrap()], remote(&scene.other));
        send(scene, &SendWr::atomic(1, &sink, word, &AtomicOp::add(1)));
    });
}
