//! memif between two processes: frames of every length cross; one that fits no single buffer is
//! dropped and counted.
#![cfg(feature = "dpdk")]

mod vdev_lab;

use std::path::Path;

use ironwarp_port::dpdk::{DpdkPort, Eal, PoolLevels, PortSettings, Vdev};
use ironwarp_port::{Burst, Frame, Port, SHARED_RSS_KEY, Spread, TxMeta};
use ironwarp_stats::{CoreStats, Counter};
use vdev_lab::{Lab, Needs, alone, frame, pattern, receive, send};

/// The length of the frame that ends the test; no other frame has it.
const BYE_BYTES: usize = 61;

/// One end of a link with jumbo buffers.
fn memif(role: &str, socket: &Path) -> Vdev {
    let socket = socket.display();
    let arguments = format!("role={role},socket={socket},socket-abstract=no,bsize=10240,rsize=10");
    Vdev::parse(&format!("net_memif0,{arguments}")).unwrap()
}

fn open(lab: &Lab, memif: Vdev, mtu_bytes: u16, stats: CoreStats) -> (Eal, DpdkPort) {
    let eal = lab.eal(&lab.config().vdev(memif));
    let settings = PortSettings { mtu_bytes, ..PortSettings::default() };
    let port = DpdkPort::open(&eal, "net_memif0", &settings, stats);
    (eal, port.unwrap_or_else(|error| panic!("{error}")))
}

/// The number of queue pairs at both ends.
fn open_two(lab: &Lab, memif: Vdev) -> (Eal, Vec<DpdkPort>) {
    let eal = lab.eal(&lab.config().vdev(memif));
    let pages = vec![CoreStats::detached(), CoreStats::detached()];
    let ports = DpdkPort::open_queues(&eal, "net_memif0", &PortSettings::default(), pages);
    (eal, ports.unwrap_or_else(|error| panic!("{error}")))
}

fn is_full(levels: PoolLevels) -> bool {
    levels.rx_available == levels.rx_frames && levels.tx_available == levels.tx_frames
}

/// Sends every frame back until the final one arrives, and replies to that too. The device is not
/// polled while the peer exits.
fn echo_until_goodbye(port: &mut DpdkPort) {
    loop {
        let frames = receive(port);
        let bye = frames.iter().any(|frame| frame.bytes().len() == BYE_BYTES);
        let mut back: Burst<_> = frames.into_iter().map(|frame| frame.seal(TxMeta::default())).collect();
        while !back.is_empty() {
            port.tx_burst(&mut back);
            std::thread::yield_now();
        }
        if bye {
            return;
        }
    }
}

#[test]
fn frames_of_every_length_cross_between_two_processes_and_back() {
    alone("frames_of_every_length_cross_between_two_processes_and_back", Needs::Nothing, |lab| {
        let socket = lab.path("memif.sock");
        if lab.role() == "first" {
            let (_eal, mut port) = open(lab, memif("server", &socket), 9000, CoreStats::detached());
            assert!(!port.link_up(), "nobody is there yet");
            port.rx_burst(&mut Burst::new());
            let peer = lab.peer("client");
            echo_until_goodbye(&mut port);
            let output = peer.wait_with_output().expect("the client's end");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            assert!(is_full(port.pool_levels()), "{:?}", port.pool_levels());
        } else {
            let (_eal, mut port) = open(lab, memif("client", &socket), 9000, CoreStats::detached());
            for len in [60, 64, 1024, 1514, 2048, 4096, 9014].into_iter().chain(100..1100) {
                let bytes = pattern(len, len);
                send(&mut port, &bytes);
                assert_eq!(receive(&mut port)[0].bytes(), bytes, "{len} bytes");
            }
            send(&mut port, &[0; BYE_BYTES]);
            assert_eq!(receive(&mut port)[0].bytes().len(), BYE_BYTES);
            assert!(is_full(port.pool_levels()), "{:?}", port.pool_levels());
        }
    });
}

#[test]
fn a_frame_that_fits_no_single_buffer_is_dropped_and_counted_and_the_next_arrives() {
    let test = "a_frame_that_fits_no_single_buffer_is_dropped_and_counted_and_the_next_arrives";
    alone(test, Needs::Nothing, |lab| {
        let socket = lab.path("memif.sock");
        if lab.role() == "first" {
            // An ordinary port whose peer sends jumbo frames.
            let stats = CoreStats::detached();
            let (_eal, mut port) = open(lab, memif("server", &socket), 1500, stats.clone());
            let peer = lab.peer("client");
            echo_until_goodbye(&mut port);
            let output = peer.wait_with_output().expect("the client's end");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            assert_eq!(stats.read(Counter::PortRxTooLong), 5);
            assert!(is_full(port.pool_levels()), "{:?}", port.pool_levels());
        } else {
            let (_eal, mut port) = open(lab, memif("client", &socket), 9000, CoreStats::detached());
            for number in 0..5 {
                let frames = [9014, 200].map(|len| frame(&mut port, &pattern(number, len)));
                let mut burst = Burst::from_iter(frames);
                while !burst.is_empty() {
                    port.tx_burst(&mut burst);
                    std::thread::yield_now();
                }
                assert_eq!(receive(&mut port)[0].bytes(), pattern(number, 200));
            }
            send(&mut port, &[0; BYE_BYTES]);
            assert_eq!(receive(&mut port)[0].bytes().len(), BYE_BYTES);
        }
    });
}

/// A link with two queues: a frame arrives in the queue with the number of the queue that sent it,
/// in both directions.
#[test]
fn two_queues_of_a_link_are_two_links() {
    alone("two_queues_of_a_link_are_two_links", Needs::Nothing, |lab| {
        let socket = lab.path("memif.sock");
        if lab.role() == "first" {
            let (_eal, mut ports) = open_two(lab, memif("server", &socket));
            assert_eq!(ports[0].caps().spread, Spread::Toeplitz { entries: 128, key: SHARED_RSS_KEY });
            let peer = lab.peer("client");
            // The second queue first: the queues are independent.
            echo_until_goodbye(&mut ports[1]);
            echo_until_goodbye(&mut ports[0]);
            let output = peer.wait_with_output().expect("the client's end");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            assert!(ports.iter().all(|port| is_full(port.pool_levels())));
        } else {
            let (_eal, mut ports) = open_two(lab, memif("client", &socket));
            let mut held = Burst::new();
            for queue in [1, 0] {
                for number in 0..200 {
                    let bytes = pattern(number, 62 + queue + number);
                    send(&mut ports[queue], &bytes);
                    assert_eq!(receive(&mut ports[queue])[0].bytes(), bytes, "queue {queue}");
                }
                ports[1 - queue].rx_burst(&mut held);
                assert!(held.is_empty(), "nothing strays into queue {}", 1 - queue);
                send(&mut ports[queue], &[0; BYE_BYTES]);
                assert_eq!(receive(&mut ports[queue])[0].bytes().len(), BYE_BYTES);
            }
        }
    });
}
