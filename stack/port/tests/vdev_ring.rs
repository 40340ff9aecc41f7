//! Two ring ports of one process: frames cross whole, none is lost, none is edited while its sender
//! keeps it.
#![cfg(feature = "dpdk")]

mod vdev_lab;

use std::sync::atomic::{AtomicBool, Ordering};

use dpdk_sys::{DSYS_MBUF_RX_LRO, Mbuf, pack_tx_offload};
use ironwarp_port::dpdk::{
    DpdkPort, Eal, PoolLevels, PortSettings, SealedMbuf, Vdev, ring_pair, ring_pair_of_queues,
};
use ironwarp_port::{
    Burst, Checksum, Frame, Port, RxMeta, SHARED_RSS_KEY, Sealed, Spread, TxMeta, TxOffloads,
};
use ironwarp_stats::{CoreStats, Counter};
use vdev_lab::{Lab, Needs, alone, frame, pattern, receive, send};

/// Small pools and rings, so that tests exhaust them.
fn small() -> PortSettings {
    PortSettings {
        rx_ring_frames: 128,
        tx_ring_frames: 128,
        rx_frames: 512,
        tx_frames: 512,
        ..PortSettings::default()
    }
}

fn pair(lab: &Lab) -> (Eal, [DpdkPort; 2]) {
    let eal = lab.eal(&lab.config());
    let ports = ring_pair(&eal, &small(), [CoreStats::detached(), CoreStats::detached()]);
    (eal, ports.unwrap_or_else(|error| panic!("{error}")))
}

fn is_full(levels: PoolLevels) -> bool {
    levels.rx_available == levels.rx_frames && levels.tx_available == levels.tx_frames
}

#[test]
fn frames_are_echoed_between_two_threads_byte_for_byte_and_all_come_home() {
    alone("frames_are_echoed_between_two_threads_byte_for_byte_and_all_come_home", Needs::Nothing, |lab| {
        let (_eal, [mut near, mut far]) = pair(lab);
        let done = &AtomicBool::new(false);
        let far = std::thread::scope(|scope| {
            let echo = scope.spawn(move || {
                while !done.load(Ordering::Acquire) {
                    let mut frames = Burst::new();
                    far.rx_burst(&mut frames);
                    let mut back: Burst<_> =
                        frames.drain(..).map(|frame| frame.seal(TxMeta::default())).collect();
                    while !back.is_empty() {
                        far.tx_burst(&mut back);
                    }
                    std::thread::yield_now();
                }
                far
            });
            for number in 0..2000 {
                let bytes = pattern(number, 60 + number % 1455);
                send(&mut near, &bytes);
                let echoed = receive(&mut near);
                assert_eq!(echoed.len(), 1, "frame {number}");
                assert_eq!(echoed[0].bytes(), bytes, "frame {number}");
            }
            done.store(true, Ordering::Release);
            echo.join().expect("the echoing thread")
        });
        assert!(is_full(near.pool_levels()) && is_full(far.pool_levels()), "{:?}", near.pool_levels());
        assert_eq!(near.device_counts().rx_frames, 2000);
        assert_eq!(far.device_counts().tx_frames, 2000);
    });
}

#[test]
fn what_a_sender_keeps_the_receiver_cannot_edit() {
    alone("what_a_sender_keeps_the_receiver_cannot_edit", Needs::Nothing, |lab| {
        let eal = lab.eal(&lab.config());
        let stats = CoreStats::detached();
        let ports = ring_pair(&eal, &small(), [CoreStats::detached(), stats.clone()]);
        let [mut near, mut far] = ports.unwrap_or_else(|error| panic!("{error}"));
        let sent = frame(&mut near, &pattern(1, 700));
        let kept = sent.clone();
        near.tx_burst(&mut Burst::from_iter([sent]));
        let mut arrived = receive(&mut far);
        assert_eq!(arrived[0].bytes(), pattern(1, 700));
        arrived[0].bytes_mut().fill(0);
        assert_eq!(kept.bytes(), pattern(1, 700), "the retained frame");
        assert_eq!(stats.read(Counter::PortRxCopied), 1);
        drop((kept, arrived));
        assert!(is_full(near.pool_levels()) && is_full(far.pool_levels()));
    });
}

/// The checksum is left out between ends that want that, whether the sender keeps its frame or not.
/// A frame with a complete checksum is verified.
#[test]
fn tcp_checksums_are_left_out_between_the_ends_of_a_pair() {
    alone("tcp_checksums_are_left_out_between_the_ends_of_a_pair", Needs::Nothing, |lab| {
        let eal = lab.eal(&lab.config());
        let tcp = TxOffloads::TCP_CHECKSUM | TxOffloads::TCP_CHECKSUM_IPV6;
        for fast_path in [false, true] {
            let settings = PortSettings { fast_path, ..small() };
            let ports = ring_pair(&eal, &settings, [CoreStats::detached(), CoreStats::detached()]);
            let [mut near, mut far] = ports.unwrap_or_else(|error| panic!("{error}"));
            let expected = if fast_path { tcp } else { TxOffloads::empty() };
            assert_eq!((near.caps().tx_offloads, far.caps().tx_offloads), (expected, expected));
            for (keeps, offloads, arrives) in [
                (false, tcp, Checksum::Good),
                (true, tcp, Checksum::Good),
                (true, TxOffloads::empty(), Checksum::Unknown),
            ] {
                let mut plain = near.alloc().expect("a frame");
                plain.resize(60);
                plain.bytes_mut().copy_from_slice(&pattern(3, 60));
                let sent = plain.seal(TxMeta { offloads, ..TxMeta::default() });
                let kept = keeps.then(|| sent.clone());
                near.tx_burst(&mut Burst::from_iter([sent]));
                let arrived = receive(&mut far);
                let expected = if fast_path { arrives } else { Checksum::Unknown };
                assert_eq!(arrived[0].rx().l4_checksum, expected, "{fast_path} {keeps} {offloads:?}");
                assert_eq!(arrived[0].bytes(), pattern(3, 60));
                drop(kept);
            }
        }
    });
}

#[test]
fn a_frame_sent_twice_arrives_twice() {
    alone("a_frame_sent_twice_arrives_twice", Needs::Nothing, |lab| {
        let (_eal, [mut near, mut far]) = pair(lab);
        let once = frame(&mut near, &pattern(2, 300));
        let mut burst = Burst::from_iter([once.clone(), once]);
        near.tx_burst(&mut burst);
        assert!(burst.is_empty());
        let arrived = receive(&mut far);
        assert_eq!(arrived.len(), 2);
        assert!(arrived.iter().all(|frame| frame.bytes() == pattern(2, 300)));
        assert_ne!(arrived[0].bytes().as_ptr(), arrived[1].bytes().as_ptr(), "each has bytes of its own");
        drop(arrived);
        assert!(is_full(near.pool_levels()) && is_full(far.pool_levels()));
    });
}

#[test]
fn what_a_full_ring_does_not_take_stays_in_the_burst_in_order() {
    alone("what_a_full_ring_does_not_take_stays_in_the_burst_in_order", Needs::Nothing, |lab| {
        let (_eal, [mut near, mut far]) = pair(lab);
        let mut next = 0;
        let mut burst = Burst::new();
        while burst.is_empty() {
            while !burst.is_full() {
                let sealed = frame(&mut near, &pattern(next, 64));
                burst.push(sealed);
                next += 1;
            }
            near.tx_burst(&mut burst);
        }
        let taken = next - burst.len();
        assert!(taken >= 128, "the ring took {taken} frames");
        for (number, frame) in (taken..).zip(&burst) {
            assert_eq!(frame.bytes(), pattern(number, 64));
        }
        for number in 0..next {
            let mut one = Burst::new();
            // A full burst leaves no room, so frames are taken one at a time.
            let mut rest = Burst::from_iter((0..31).map(|_| far.alloc().expect("a frame")));
            far.rx_burst(&mut rest);
            one.extend(rest.drain(31..));
            assert_eq!(one[0].bytes(), pattern(number, 64), "frame {number}");
            near.tx_burst(&mut burst);
        }
        assert!(is_full(near.pool_levels()) && is_full(far.pool_levels()));
    });
}

#[test]
fn an_empty_pool_answers_none_until_a_frame_comes_back() {
    alone("an_empty_pool_answers_none_until_a_frame_comes_back", Needs::Nothing, |lab| {
        let (_eal, [mut near, _far]) = pair(lab);
        let mut held: Vec<_> = std::iter::from_fn(|| near.alloc()).collect();
        assert_eq!(held.len(), 512, "every frame of the pool, the last ones singly");
        assert!(near.alloc().is_none());
        held.pop();
        assert!(near.alloc().is_some());
        drop(held);
        assert!(is_full(near.pool_levels()));
    });
}

#[test]
fn a_frame_outlives_its_port_and_its_eal() {
    alone("a_frame_outlives_its_port_and_its_eal", Needs::Nothing, |lab| {
        let (eal, [mut near, mut far]) = pair(lab);
        send(&mut near, &pattern(3, 1500));
        let mut arrived = receive(&mut far);
        // One more is in the ring, in no port.
        send(&mut near, &pattern(4, 1500));
        drop((near, far, eal));
        arrived[0].bytes_mut()[0] ^= 0xff;
        assert_eq!(arrived[0].bytes()[1..], pattern(3, 1500)[1..]);
        drop(arrived);
    });
}

#[test]
fn a_frame_holds_what_is_written_and_no_more_than_its_room() {
    alone("a_frame_holds_what_is_written_and_no_more_than_its_room", Needs::Nothing, |lab| {
        let (_eal, [mut near, _far]) = pair(lab);
        let mut frame = near.alloc().expect("a frame");
        assert_eq!((frame.bytes().len(), frame.capacity()), (0, 2048));
        frame.resize(usize::MAX);
        assert_eq!(frame.bytes_mut().len(), 2048);
        frame.resize(3);
        frame.bytes_mut().copy_from_slice(b"abc");
        let rx = RxMeta { rss_hash: Some(7), ip_checksum: Checksum::Good, l4_checksum: Checksum::Bad };
        frame.set_rx(rx);
        assert_eq!(frame.rx(), rx);
        frame.set_rx(RxMeta::default());
        assert_eq!((frame.rx(), frame.bytes()), (RxMeta::default(), &b"abc"[..]));
        assert_eq!(frame.seal(TxMeta::default()).bytes(), b"abc");
        let fresh: Vec<_> = std::iter::from_fn(|| near.alloc()).collect();
        assert!(!fresh.is_empty());
        assert!(fresh.iter().all(|frame| frame.bytes().is_empty() && frame.rx() == RxMeta::default()));
    });
}

#[test]
fn a_ring_device_loops_to_itself() {
    alone("a_ring_device_loops_to_itself", Needs::Nothing, |lab| {
        let eal = lab.eal(&lab.config().vdev(Vdev::ring(0)));
        let port = DpdkPort::open(&eal, "net_ring0", &small(), CoreStats::detached());
        let mut port = port.unwrap_or_else(|error| panic!("{error}"));
        assert!(port.link_up());
        send(&mut port, &pattern(9, 64));
        assert_eq!(receive(&mut port)[0].bytes(), pattern(9, 64));
        assert!(is_full(port.pool_levels()));
    });
}

/// Changes what the first mbuf of a chain states.
type Describe<'a> = &'a dyn Fn(&mut Mbuf);

/// Sends frames as one chain, whose first mbuf `describe` changes.
fn send_chain(port: &mut DpdkPort, mut frames: Vec<SealedMbuf>, describe: impl FnOnce(&mut Mbuf)) {
    let mbuf = |frame: &SealedMbuf| {
        // SAFETY: a sealed frame is one pointer, as the crate asserts.
        unsafe { *std::ptr::from_ref(frame).cast::<*mut Mbuf>() }
    };
    let head = mbuf(&frames[0]);
    // SAFETY: live mbufs, of which this is the only owner.
    unsafe {
        for pair in frames.windows(2) {
            (*mbuf(&pair[0])).next = mbuf(&pair[1]);
        }
        (*head).nb_segs = frames.len() as u16;
        (*head).pkt_len = frames.iter().map(|frame| frame.bytes().len() as u32).sum();
        describe(&mut *head);
    }
    let mut burst = Burst::from_iter([frames.remove(0)]);
    // The first one frees them.
    frames.into_iter().for_each(std::mem::forget);
    port.tx_burst(&mut burst);
    assert!(burst.is_empty());
}

#[test]
fn a_chain_that_is_not_as_it_states_is_a_counted_drop() {
    alone("a_chain_that_is_not_as_it_states_is_a_counted_drop", Needs::Nothing, |lab| {
        let eal = lab.eal(&lab.config());
        let stats = CoreStats::detached();
        let ports = ring_pair(&eal, &small(), [CoreStats::detached(), stats.clone()]);
        let [mut near, mut far] = ports.unwrap_or_else(|error| panic!("{error}"));
        let merged = |segment_bytes| {
            move |head: &mut Mbuf| {
                head.ol_flags |= DSYS_MBUF_RX_LRO;
                head.tx_offload = pack_tx_offload(0, 0, 0, segment_bytes);
            }
        };
        let cases: [(&str, usize, Describe<'_>, Counter); 9] = [
            ("as it states", 700, &|_| {}, Counter::PortRxCopied),
            ("a super-segment", 700, &merged(1448), Counter::PortRxSuperSegments),
            ("segments of nothing", 700, &merged(0), Counter::PortRxBadOffload),
            ("segments longer than the link's", 700, &merged(1501), Counter::PortRxBadOffload),
            ("longer than a buffer", 1100, &|_| {}, Counter::PortRxTooLong),
            ("more buffers", 700, &|head| head.nb_segs = u16::MAX, Counter::PortRxTooLong),
            ("more bytes", 700, &|head| head.pkt_len += 1, Counter::PortRxTooLong),
            ("fewer bytes", 700, &|head| head.pkt_len -= 1, Counter::PortRxTooLong),
            ("any number of bytes", 700, &|head| head.pkt_len = u32::MAX, Counter::PortRxTooLong),
        ];
        for (what, len, describe, counter) in cases {
            let parts = [pattern(1, len), pattern(2, len)];
            let frames = parts.iter().map(|part| frame(&mut near, part)).collect();
            let before = stats.read(counter);
            send_chain(&mut near, frames, describe);
            let mut arrived = Burst::new();
            far.rx_burst(&mut arrived);
            assert_eq!(stats.read(counter) - before, 1, "{what}");
            let good = matches!(counter, Counter::PortRxCopied | Counter::PortRxSuperSegments);
            let expected = if good { vec![parts.concat()] } else { vec![] };
            assert!(arrived.iter().map(|frame| frame.bytes()).eq(&expected), "{what}");
        }
        assert!(is_full(near.pool_levels()) && is_full(far.pool_levels()));
    });
}

/// A frame arrives in the queue with the number of the queue that sent it, and may be released
/// through another queue.
#[test]
fn each_queue_of_a_pair_has_its_own_ring() {
    alone("each_queue_of_a_pair_has_its_own_ring", Needs::Nothing, |lab| {
        let eal = lab.eal(&lab.config());
        let pages = || (0..3).map(|_| CoreStats::detached()).collect::<Vec<_>>();
        let ports = ring_pair_of_queues(&eal, &small(), [pages(), pages()]);
        let [mut near, mut far] = ports.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((near.len(), far.len()), (3, 3));
        for (queue, (near, far)) in near.iter_mut().zip(&mut far).enumerate() {
            assert_eq!(usize::from(near.queue()), queue);
            assert_eq!(near.caps().spread, Spread::Toeplitz { entries: 128, key: SHARED_RSS_KEY });
            send(near, &pattern(queue, 100));
            assert_eq!(receive(far)[0].bytes(), pattern(queue, 100));
        }
        for far in &mut far {
            let mut burst = Burst::new();
            far.rx_burst(&mut burst);
            assert!(burst.is_empty(), "queue {} has nothing more", far.queue());
        }
        let uneven = ring_pair_of_queues(&eal, &small(), [pages(), vec![CoreStats::detached()]]);
        assert!(uneven.is_err());
    });
}
