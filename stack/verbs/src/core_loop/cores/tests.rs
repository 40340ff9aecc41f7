//! The rings between cores, without loops.

use super::*;
use crate::config::TransportKind;
use ironwarp_port::Spread;

/// The ends of two cores.
fn two() -> [Box<OtherCores<u32>>; 2] {
    let ends = core_mesh::<u32>(Steering::new(2, Spread::Unknown), 4);
    let ends: Vec<_> = ends.into_iter().map(|end| end.expect("there is another core")).collect();
    ends.try_into().unwrap_or_else(|_| panic!("two ends"))
}

fn listen(context: u16) -> InterCoreMessage {
    let (transport, local) = (TransportKind::Tcp, ([10, 0, 0, 1], 80).into());
    InterCoreMessage::Listen { context, at: ListenAddress { transport, local } }
}

fn contexts(other_cores: &mut OtherCores<u32>) -> Vec<u16> {
    let channel = other_cores.channels.iter_mut().flatten().next().expect("another core");
    let read = core::iter::from_fn(|| channel.messages_in.pop());
    read.map(
        |message| if let InterCoreMessage::Listen { context, .. } = message { context } else { u16::MAX },
    )
    .collect()
}

#[test]
fn a_core_alone_has_no_others() {
    assert!(core_mesh::<u32>(Steering::new(1, Spread::Unknown), 4).iter().all(Option::is_none));
}

#[test]
fn every_two_cores_have_rings_of_their_own() {
    let mesh = core_mesh::<u32>(Steering::new(5, Spread::Unknown), 4);
    for (core, other_cores) in mesh.iter().enumerate() {
        let there: Vec<bool> =
            other_cores.as_ref().expect("others").channels.iter().map(Option::is_some).collect();
        assert_eq!(there, (0..5).map(|other| other != core).collect::<Vec<_>>());
    }
}

/// semantics "Atomics": steered frames use a droppable ring. What does not fit is counted, and what
/// is there stays.
#[test]
fn a_full_ring_drops_the_newest_frame_and_counts_it() {
    let ([mut near, mut far], stats) = (two(), CoreStats::detached());
    for frame in 0..6 {
        near.steer(1, Steered::ForLeader(0, frame), &stats);
    }
    near.publish();
    let channel = far.channels.iter_mut().flatten().next().expect("another core");
    let frames: Vec<u32> = core::iter::from_fn(|| channel.frames_in.pop())
        .map(|steered| if let Steered::ForLeader(0, frame) = steered { frame } else { u32::MAX })
        .collect();
    assert_eq!(frames, [0, 1, 2, 3]);
    assert_eq!((stats.read(Counter::CoresSteeredOut), stats.read(Counter::CoresSteeredDropped)), (4, 2));
}

#[test]
fn mail_that_finds_the_ring_full_waits_and_keeps_its_order() {
    let [mut near, mut far] = two();
    let sent: Vec<u16> = (0..MESSAGE_RING_ENTRIES as u16 + 10).collect();
    sent.iter().for_each(|&context| near.broadcast(listen(context)));
    assert!(near.has_backlog() && near.has_pending_work());
    let mut got = contexts(&mut far);
    near.flush_backlog();
    assert!(!near.has_backlog());
    got.extend(contexts(&mut far));
    assert_eq!(got, sent);
}

#[test]
fn nothing_waits_for_a_core_that_is_gone() {
    let [mut near, far] = two();
    (0..MESSAGE_RING_ENTRIES as u16 + 10).for_each(|context| near.broadcast(listen(context)));
    drop(far);
    near.flush_backlog();
    near.broadcast(listen(0));
    assert!(!near.has_backlog());
}

/// docs/design-decisions.md, decision 4: no cache line that one core writes is another's. Each end
/// of a ring lies in a line of its own (`ironwarp-rings` pads the words that both ends read), and
/// so does what a core keeps of another.
#[test]
fn what_a_core_writes_shares_no_line_with_what_another_writes() {
    const LINE: usize = 64;
    assert_eq!(align_of::<CachePadded<CoreRings<u32>>>() % LINE, 0);
    assert_eq!(size_of::<CachePadded<CoreRings<u32>>>() % LINE, 0);
    assert_eq!(align_of::<crate::objects::QpShared>() % LINE, 0);
    assert_eq!(align_of::<ironwarp_rings::notify::NotifyState>() % LINE, 0);
    assert_eq!(align_of::<CachePadded<crate::shared::CoreShared>>() % LINE, 0);
    type Loop = crate::core_loop::CoreLoop<MpaOverTcp<ironwarp_port::memory::MemoryPort>, Still>;
    assert_eq!((align_of::<Loop>() % LINE, size_of::<Loop>() % LINE), (0, 0));
    use crate::core_loop::data_path::remote_atomics::RemoteAtomics;
    use crate::core_loop::{CqCore, MpaOverTcp, QpCore, SrqCore};
    let boxed = [
        align_of::<QpCore<MpaOverTcp<ironwarp_port::memory::MemoryPort>>>(),
        align_of::<CqCore>(),
        align_of::<SrqCore>(),
        align_of::<RemoteAtomics>(),
    ];
    assert!(boxed.iter().all(|align| align % LINE == 0), "{boxed:?}");
    let page = ironwarp_stats::StatsPage::private(3);
    let words: Vec<usize> = (0..3).map(|core| page.core(core).address()).collect();
    assert!(words.iter().all(|word| word % LINE == 0) && words.windows(2).all(|two| two[1] - two[0] >= LINE));
}

/// A clock for the loop's type.
struct Still;

impl ironwarp_types::Clock for Still {
    fn now(&self) -> ironwarp_types::Nanos {
        ironwarp_types::Nanos::ZERO
    }
}
