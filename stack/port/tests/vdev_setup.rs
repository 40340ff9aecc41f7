//! Starting DPDK and opening devices: what works once, and what is refused by name.
#![cfg(feature = "dpdk")]

mod vdev_lab;

use std::ffi::CString;

use ironwarp_port::dpdk::{DpdkError, DpdkPort, Eal, EalConfig, PortSettings, Vdev, Wakes};
use ironwarp_port::{Burst, Frame, Port, TxMeta};
use ironwarp_stats::CoreStats;
use vdev_lab::{Needs, alone, packet_socket};

#[test]
fn the_eal_starts_once_per_process_even_after_it_is_gone() {
    alone("the_eal_starts_once_per_process_even_after_it_is_gone", Needs::Nothing, |lab| {
        let eal = lab.eal(&lab.config());
        assert!(eal.version().starts_with("DPDK "));
        let again = Eal::start(&lab.config());
        assert!(matches!(again, Err(DpdkError::EalAlreadyStarted)), "while it runs");
        drop(eal);
        let after = Eal::start(&lab.config());
        assert!(matches!(after, Err(DpdkError::EalAlreadyStarted)), "after it is gone");
        assert!(
            std::fs::read_dir(lab.path("dpdk")).is_ok_and(|files| files.count() == 0),
            "it left files behind"
        );
    });
}

#[test]
fn an_eal_that_the_application_started_is_adopted_and_left_running() {
    alone("an_eal_that_the_application_started_is_adopted_and_left_running", Needs::Nothing, |lab| {
        // SAFETY: no EAL runs yet, and the application below never cleans up.
        assert!(matches!(unsafe { Eal::adopt() }, Err(DpdkError::EalNotStarted)));
        the_application_starts(&lab.config().vdev(Vdev::ring(0)));
        // SAFETY: the application never cleans up.
        let eal = unsafe { Eal::adopt() }.unwrap_or_else(|error| panic!("{error}"));
        assert!(matches!(Eal::start(&lab.config()), Err(DpdkError::EalAlreadyStarted)));
        let port =
            open(&eal, "net_ring0", &PortSettings::default()).unwrap_or_else(|error| panic!("{error}"));
        drop((port, eal));
        // SAFETY: as above.
        let again = unsafe { Eal::adopt() }.unwrap_or_else(|error| panic!("{error}"));
        again.add_vdev(&Vdev::null(0)).unwrap_or_else(|error| panic!("{error}"));
        assert!(open(&again, "net_null0", &PortSettings::default()).is_ok(), "it still runs");
    });
}

/// What an application that owns `main` does: DPDK's own call with its own arguments.
fn the_application_starts(config: &EalConfig) {
    let arguments = config.arguments().unwrap_or_else(|error| panic!("{error}"));
    let texts: Vec<_> = arguments.into_iter().map(|text| CString::new(text).expect("no NUL")).collect();
    let mut vector: Vec<_> = texts.iter().map(|text| text.as_ptr().cast_mut()).collect();
    // SAFETY: NUL-terminated texts, kept for as long as the process.
    let answer = unsafe { dpdk_sys::rte_eal_init(vector.len() as i32, vector.as_mut_ptr()) };
    std::mem::forget((texts, vector));
    assert!(answer >= 0);
}

#[test]
fn arguments_that_dpdk_refuses_are_named() {
    alone("arguments_that_dpdk_refuses_are_named", Needs::Nothing, |lab| {
        let refused =
            Eal::start(&lab.config().extra("--no-such-option")).err().expect("an error").to_string();
        assert!(refused.contains("--no-such-option") && refused.contains("errno"), "{refused}");
    });
}

#[test]
fn a_device_that_dpdk_cannot_make_stops_the_start() {
    alone("a_device_that_dpdk_cannot_make_stops_the_start", Needs::Nothing, |lab| {
        let config = lab.config().vdev(packet_socket("nosuchiface", 1500));
        let refused = Eal::start(&config).err().expect("an error");
        assert!(matches!(&refused, DpdkError::NotMade { vdev } if vdev.contains("nosuchiface")), "{refused}");
    });
}

#[test]
fn a_device_that_does_not_exist_is_answered_with_those_that_do() {
    alone("a_device_that_does_not_exist_is_answered_with_those_that_do", Needs::Nothing, |lab| {
        let eal = lab.eal(&lab.config().vdev(Vdev::ring(0)).vdev(Vdev::null(1)));
        let refused = open(&eal, "net_memif0", &PortSettings::default()).err().expect("an error").to_string();
        assert_eq!(refused, "no DPDK device `net_memif0`; there are: net_ring0, net_null1");
    });
}

#[test]
fn an_mtu_beyond_the_buffers_is_refused_before_the_device_starts() {
    alone("an_mtu_beyond_the_buffers_is_refused_before_the_device_starts", Needs::Nothing, |lab| {
        let eal = lab.eal(&lab.config().vdev(Vdev::ring(0)));
        let jumbo = PortSettings { mtu_bytes: 9000, room_bytes: Some(2048), ..PortSettings::default() };
        let refused = open(&eal, "net_ring0", &jumbo).err().expect("an error").to_string();
        assert_eq!(
            refused,
            "net_ring0: mtu = 9000 needs frames of 9018 bytes, but the buffer (room_bytes) ends at 2048; set \
             port.mtu = 2030 or less"
        );
        let giant = PortSettings { mtu_bytes: u16::MAX, ..PortSettings::default() };
        assert!(matches!(open(&eal, "net_ring0", &giant), Err(DpdkError::Mtu { .. })));
        let fitting = PortSettings { mtu_bytes: 9000, ..PortSettings::default() };
        let mut port = open(&eal, "net_ring0", &fitting).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(port.caps().mtu_bytes, 9000);
        assert!(port.alloc().expect("a frame").capacity() >= 9018);
    });
}

#[test]
fn pools_that_cannot_fill_the_ring_or_the_memory_are_refused() {
    alone("pools_that_cannot_fill_the_ring_or_the_memory_are_refused", Needs::Nothing, |lab| {
        let eal = lab.eal(&lab.config().vdev(Vdev::ring(0)));
        let short = PortSettings { rx_frames: 1024, ..PortSettings::default() };
        let refused = open(&eal, "net_ring0", &short);
        assert!(matches!(refused, Err(DpdkError::Setting { key: "rx_frames", .. })));
        let huge = PortSettings { tx_frames: 1 << 22, ..PortSettings::default() };
        let refused = open(&eal, "net_ring0", &huge);
        assert!(matches!(refused, Err(DpdkError::Pool { frames: 4_194_304, .. })));
    });
}

#[test]
fn a_device_is_open_once_at_a_time() {
    alone("a_device_is_open_once_at_a_time", Needs::Nothing, |lab| {
        let eal = lab.eal(&lab.config().vdev(Vdev::ring(0)));
        let _first =
            open(&eal, "net_ring0", &PortSettings::default()).unwrap_or_else(|error| panic!("{error}"));
        let refused = open(&eal, "net_ring0", &PortSettings::default()).err().expect("an error").to_string();
        assert!(refused.starts_with("net_ring0: cannot be configured: "), "{refused}");
    });
}

#[test]
fn a_device_without_receive_interrupts_runs_although_they_are_asked_for() {
    alone("a_device_without_receive_interrupts_runs_although_they_are_asked_for", Needs::Nothing, |lab| {
        let eal = lab.eal(&lab.config().vdev(Vdev::ring(0)));
        let settings = PortSettings { wakes: Wakes::Interrupts, ..PortSettings::default() };
        let mut port = open(&eal, "net_ring0", &settings).unwrap_or_else(|error| panic!("{error}"));
        assert!(port.take_wake_source().is_none());
        let frame = port.alloc().expect("a frame").seal(TxMeta::default());
        port.tx_burst(&mut Burst::from_iter([frame]));
        let mut received = Burst::new();
        port.rx_burst(&mut received);
        assert_eq!(received.len(), 1, "a ring returns what is sent");
    });
}

#[test]
fn each_queue_of_a_device_is_a_port_and_the_last_one_closes_it() {
    alone("each_queue_of_a_device_is_a_port_and_the_last_one_closes_it", Needs::Nothing, |lab| {
        let eal = lab.eal(&lab.config().vdev(Vdev::null(0)));
        let settings = PortSettings { rx_frames: 2048, tx_frames: 2048, ..PortSettings::default() };
        let open_queues = |pages| DpdkPort::open_queues(&eal, "net_null0", &settings, pages);
        assert!(matches!(open_queues(Vec::new()), Err(DpdkError::Setting { key: "queues", .. })));
        let pages = vec![CoreStats::detached(), CoreStats::detached()];
        let mut ports = open_queues(pages).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(ports.iter().map(DpdkPort::queue).collect::<Vec<_>>(), [0, 1]);
        let mut last = ports.pop().expect("two ports");
        drop(ports);
        // net_null delivers without end: its queue still runs.
        let mut burst = Burst::new();
        last.rx_burst(&mut burst);
        assert!(burst.is_full());
        drop((burst, last));
        assert!(open(&eal, "net_null0", &settings).is_err(), "the device is closed");
    });
}

#[test]
fn a_device_is_plugged_in_and_again_while_the_eal_runs() {
    alone("a_device_is_plugged_in_and_again_while_the_eal_runs", Needs::Nothing, |lab| {
        let eal = lab.eal(&lab.config());
        let vdev = Vdev::null(5);
        assert!(open(&eal, vdev.name(), &PortSettings::default()).is_err());
        eal.add_vdev(&vdev).unwrap_or_else(|error| panic!("{error}"));
        let port =
            open(&eal, vdev.name(), &PortSettings::default()).unwrap_or_else(|error| panic!("{error}"));
        let busy = eal.add_vdev(&vdev).expect_err("an error").to_string();
        assert!(busy.starts_with("net_null5: cannot be plugged in: "), "{busy}");
        drop(port);
        assert!(open(&eal, vdev.name(), &PortSettings::default()).is_err(), "a closed device is gone");
        eal.add_vdev(&vdev).unwrap_or_else(|error| panic!("{error}"));
        assert!(open(&eal, vdev.name(), &PortSettings::default()).is_ok(), "and comes back");
    });
}

#[test]
fn a_polling_thread_is_an_lcore_until_it_ends() {
    alone("a_polling_thread_is_an_lcore_until_it_ends", Needs::Nothing, |lab| {
        let eal = lab.eal(&lab.config().vdev(Vdev::null(0)));
        assert!(eal.thread_is_lcore(), "the thread that started the EAL");
        let mut port =
            open(&eal, "net_null0", &PortSettings::default()).unwrap_or_else(|error| panic!("{error}"));
        // More threads, one after the other, than DPDK has lcore ids: each gives its own back.
        for _ in 0..200 {
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    assert!(!eal.thread_is_lcore());
                    port.rx_burst(&mut Burst::new());
                    assert!(eal.thread_is_lcore(), "its first burst registers it");
                });
            });
        }
    });
}

#[test]
fn a_thread_beyond_the_limit_is_a_named_error() {
    alone("a_thread_beyond_the_limit_is_a_named_error", Needs::Nothing, |lab| {
        let eal = &lab.eal(&lab.config());
        // Every thread stays registered until all have asked: 128 lcore ids, one of them the main
        // thread's.
        let everybody = &std::sync::Barrier::new(128);
        let refused: usize = std::thread::scope(|scope| {
            let ask = || {
                let answer = eal.enter_thread();
                everybody.wait();
                usize::from(matches!(answer, Err(DpdkError::Thread(_))))
            };
            let threads: Vec<_> = (0..128).map(|_| scope.spawn(ask)).collect();
            threads.into_iter().map(|thread| thread.join().expect("a thread")).sum()
        });
        assert_eq!(refused, 1);
    });
}

#[test]
fn starting_leaves_the_threads_affinity_alone() {
    alone("starting_leaves_the_threads_affinity_alone", Needs::Nothing, |lab| {
        let before = rustix::thread::sched_getaffinity(None).expect("an affinity");
        let _eal = lab.eal(&lab.config());
        assert_eq!(rustix::thread::sched_getaffinity(None).expect("an affinity"), before);
    });
}

fn open(eal: &Eal, device: &str, settings: &PortSettings) -> Result<DpdkPort, DpdkError> {
    DpdkPort::open(eal, device, settings, CoreStats::detached())
}
