//! Streams: both ways at once, every byte checked, whatever options Linux offers and whatever the link does.

use ironwarp_port::instrument::{FaultRates, Faults};
use ironwarp_stats::Counter;

use crate::Device;
use crate::kernel::{self, Settings, aside};
use crate::ours::Ours;
use crate::{over_a_tap, over_a_veth, over_ipv6, over_xdp};

const PORT: u16 = 4_420;

/// Linux's options together and one by one.
const SETTINGS: [Settings; 5] = [
    Settings::ALL,
    Settings::NONE,
    Settings { sack: true, ..Settings::NONE },
    Settings { timestamps: true, ..Settings::NONE },
    Settings { window_scaling: true, ecn: true, ..Settings::NONE },
];

/// Who opens the connection.
#[derive(Clone, Copy, Debug)]
enum Opens {
    We,
    Linux,
}

/// One connection, bytes both ways at once, and an end in order. Answers what Linux said of it meanwhile.
#[track_caller]
fn stream(ours: &mut Ours, opens: Opens, we_send: u64, linux_sends: u64) -> String {
    let (talk, linux) = match opens {
        Opens::We => {
            let (listener, port) = kernel::listen();
            let linux = aside(move || kernel::exchange(kernel::accept(&listener), linux_sends));
            (ours.connect(port, we_send), linux)
        }
        Opens::Linux => {
            let linux = aside(|| kernel::connect(PORT).expect("an answer"));
            let talk = ours.accept(we_send);
            let stream = linux.join().expect("the connecting thread");
            (talk, aside(move || kernel::exchange(stream, linux_sends)))
        }
    };
    ours.until("bytes", |ours| ours.talks[talk].taken > 0);
    let flow = ours.tcp.flow(ours.talks[talk].id).expect("a connection");
    let shown = kernel::shown(flow.remote.port());
    println!("  {shown}");
    ours.talks[talk].closes = true;
    ours.until_all_closed();
    assert_eq!(ours.talks[talk].taken, linux_sends, "{}", ours.describe());
    assert_eq!(linux.join().expect("Linux's side"), we_send);
    ours.release_all();
    shown
}

/// Linux uses what it was set to use, since we offer all of it: time stamps, SACK, congestion marks and scaled windows.
#[track_caller]
fn negotiated(settings: Settings, shown: &str) {
    let words: Vec<&str> = shown.split_whitespace().collect();
    assert_eq!(words.contains(&"ts"), settings.timestamps, "{settings:?}: {shown}");
    assert_eq!(words.contains(&"sack"), settings.sack, "{settings:?}: {shown}");
    assert_eq!(words.contains(&"ecn"), settings.ecn, "{settings:?}: {shown}");
    assert_eq!(words.iter().any(|word| word.starts_with("wscale:")), settings.window_scaling, "{shown}");
}

/// Bytes both ways at once under each of Linux's settings, in both roles.
fn streams_under_all_settings(ours: &mut Ours, bytes: u64) {
    ours.tcp.listen((crate::ours::ours(), PORT).into()).expect("room");
    for settings in SETTINGS {
        settings.apply();
        for opens in [Opens::We, Opens::Linux] {
            println!("{settings:?}, {opens:?} open: {bytes} bytes each way");
            let shown = stream(ours, opens, bytes, bytes);
            negotiated(settings, &shown);
        }
    }
    assert_eq!(ours.read(Counter::NetDropTcpChecksum), 0);
}

/// RFC 9293, RFC 7323, RFC 2018, RFC 3168: whatever Linux offers, the bytes are the same.
#[test]
fn streams_cross_a_tap_under_all_of_linuxs_settings() {
    over_a_tap("bulk::streams_cross_a_tap_under_all_of_linuxs_settings", |mut ours| {
        streams_under_all_settings(&mut ours, 3 << 20);
    });
}

#[test]
fn streams_cross_a_veth_under_all_of_linuxs_settings() {
    over_a_veth("bulk::streams_cross_a_veth_under_all_of_linuxs_settings", 1_500, |mut ours| {
        streams_under_all_settings(&mut ours, 3 << 20);
    });
}

#[test]
fn streams_cross_a_veth_in_jumbo_frames() {
    over_a_veth("bulk::streams_cross_a_veth_in_jumbo_frames", 9_000, |mut ours| {
        streams_under_all_settings(&mut ours, 3 << 20);
        let segments = ours.read(Counter::TcpTxSegments) - ours.read(Counter::TcpTxAcks);
        assert!(ours.read(Counter::TcpTxBytes) > 4_000 * segments, "no jumbo frames: {}", ours.describe());
    });
}

#[test]
fn streams_cross_an_xdp_socket_under_all_of_linuxs_settings() {
    over_xdp("bulk::streams_cross_an_xdp_socket_under_all_of_linuxs_settings", |mut ours| {
        streams_under_all_settings(&mut ours, 2 << 20);
    });
}

#[test]
fn ipv6_streams_cross_a_tap() {
    over_ipv6("bulk::ipv6_streams_cross_a_tap", Device::Tap, 1_500, |mut ours| {
        streams_under_all_settings(&mut ours, 1 << 20);
    });
}

#[test]
fn ipv6_streams_cross_a_veth() {
    over_ipv6("bulk::ipv6_streams_cross_a_veth", Device::Veth, 1_500, |mut ours| {
        streams_under_all_settings(&mut ours, 1 << 20);
    });
}

#[test]
fn ipv6_streams_cross_a_veth_in_jumbo_frames() {
    over_ipv6("bulk::ipv6_streams_cross_a_veth_in_jumbo_frames", Device::Veth, 9_000, |mut ours| {
        streams_under_all_settings(&mut ours, 1 << 20);
    });
}

#[test]
fn ipv6_streams_cross_an_xdp_socket() {
    over_ipv6("bulk::ipv6_streams_cross_an_xdp_socket", Device::Xdp, 1_500, |mut ours| {
        streams_under_all_settings(&mut ours, 1 << 20);
    });
}

/// RFC 9293 s3.7.1, MUST-16: the smaller of the two sizes decides, whoever has it.
#[test]
fn linux_may_ask_for_smaller_segments() {
    over_a_veth("bulk::linux_may_ask_for_smaller_segments", 9_000, |mut ours| {
        crate::vdev_lab::system("ip route change 10.88.0.0/24 dev veth0 advmss 700");
        ours.tcp.listen((crate::ours::ours(), PORT).into()).expect("room");
        for opens in [Opens::We, Opens::Linux] {
            stream(&mut ours, opens, 200_000, 200_000);
        }
    });
}

/// Faults that a link has, both ways.
fn faults(seed: u64) -> Faults {
    let rates = FaultRates {
        drop_ppm: 5_000,
        duplicate_ppm: 5_000,
        reorder_ppm: 10_000,
        corrupt_ppm: 3_000,
        truncate_ppm: 1_000,
        ..FaultRates::default()
    };
    Faults { seed, rx: rates, tx: rates }
}

/// Loses, doubles, reorders, damages and cuts short, while bytes go both ways under each of Linux's settings.
fn streams_through_faults(ours: &mut Ours, bytes: u64) {
    ours.tcp.listen((crate::ours::ours(), PORT).into()).expect("room");
    for (round, settings) in SETTINGS.into_iter().enumerate() {
        settings.apply();
        let opens = if round % 2 == 0 { Opens::Linux } else { Opens::We };
        println!("{settings:?}, {opens:?} open: {bytes} bytes each way through faults");
        ours.faults.set_faults(faults(round as u64));
        stream(ours, opens, bytes, bytes);
    }
    for counter in [
        Counter::PortFaultDrops,
        Counter::PortFaultDuplicates,
        Counter::PortFaultReorders,
        Counter::PortFaultCorruptions,
        Counter::TcpTxResent,
        Counter::TcpRxOutOfOrder,
        Counter::NetDropTcpChecksum,
    ] {
        assert!(ours.read(counter) > 0, "{} did not happen", counter.name());
    }
}

/// RFC 9293 s3.8, RFC 5681: every byte arrives once, in order and right, over a link that does everything wrong.
#[test]
fn streams_survive_a_faulty_tap() {
    over_a_tap("bulk::streams_survive_a_faulty_tap", |mut ours| streams_through_faults(&mut ours, 1 << 20));
}

#[test]
fn streams_survive_a_faulty_veth_in_jumbo_frames() {
    over_a_veth("bulk::streams_survive_a_faulty_veth_in_jumbo_frames", 9_000, |mut ours| {
        streams_through_faults(&mut ours, 2 << 20);
    });
}

/// Fifty connections at once, half of them opened by each side.
#[test]
fn many_connections_share_a_device() {
    over_a_veth("bulk::many_connections_share_a_device", 1_500, |mut ours| {
        const EACH: u64 = 200_000;
        ours.tcp.listen((crate::ours::ours(), PORT).into()).expect("room");
        let (listener, port) = kernel::listen();
        let mut linux = Vec::new();
        for _ in 0..25 {
            let listener = listener.try_clone().expect("a second handle");
            linux.push(aside(move || kernel::exchange(kernel::accept(&listener), EACH)));
            ours.connect(port, EACH);
            linux.push(aside(|| kernel::exchange(kernel::connect(PORT).expect("an answer"), EACH)));
            ours.accept(EACH);
        }
        ours.talks.iter_mut().for_each(|talk| talk.closes = true);
        ours.until_all_closed();
        assert!(ours.talks.iter().all(|talk| talk.taken == EACH));
        ours.release_all();
        assert!(linux.into_iter().all(|side| side.join().expect("Linux's side") == EACH));
    });
}
