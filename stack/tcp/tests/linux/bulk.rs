//! Streams in both directions at once, with every byte checked, for all options of Linux and all
//! link faults.

use ironwarp_port::instrument::{FaultRates, Faults};
use ironwarp_stats::Counter;
use ironwarp_tcp::Transport;

use crate::Device;
use crate::kernel::{self, Settings, spawn};
use crate::user_stack::UserStack;
use crate::{over_a_tap, over_a_veth, over_ipv6, over_xdp};

const PORT: u16 = 4_420;

/// Linux's options, all together and one by one.
const SETTINGS: [Settings; 5] = [
    Settings::ALL,
    Settings::NONE,
    Settings { sack: true, ..Settings::NONE },
    Settings { timestamps: true, ..Settings::NONE },
    Settings { window_scaling: true, ecn: true, ..Settings::NONE },
];

/// The side that opens the connection.
#[derive(Clone, Copy, Debug)]
enum Opens {
    We,
    Linux,
}

/// Runs one connection with bytes in both directions at once and an orderly close. Returns Linux's
/// `ss` output during the transfer.
#[track_caller]
fn stream(stack: &mut UserStack, opens: Opens, we_send: u64, linux_sends: u64) -> String {
    let (transfer, linux) = match opens {
        Opens::We => {
            let (listener, port) = kernel::listen();
            let linux = spawn(move || kernel::exchange(kernel::accept(&listener), linux_sends));
            (stack.connect(port, we_send), linux)
        }
        Opens::Linux => {
            let linux = spawn(|| kernel::connect(PORT).expect("an answer"));
            let transfer = stack.accept(we_send);
            let stream = linux.join().expect("the connecting thread");
            (transfer, spawn(move || kernel::exchange(stream, linux_sends)))
        }
    };
    stack.run_until("bytes", |stack| stack.transfers[transfer].taken > 0);
    let flow = stack.tcp.flow(stack.transfers[transfer].id).expect("a connection");
    let ss_output = kernel::ss_output(flow.remote.port());
    println!("  {ss_output}");
    stack.transfers[transfer].closes = true;
    stack.run_until_all_closed();
    assert_eq!(stack.transfers[transfer].taken, linux_sends, "{}", stack.describe());
    assert_eq!(linux.join().expect("Linux's side"), we_send);
    stack.release_all();
    ss_output
}

/// Asserts that Linux uses the options of its settings, since we offer all of them: timestamps,
/// SACK, ECN and window scaling.
#[track_caller]
fn negotiated(settings: Settings, ss_output: &str) {
    let words: Vec<&str> = ss_output.split_whitespace().collect();
    assert_eq!(words.contains(&"ts"), settings.timestamps, "{settings:?}: {ss_output}");
    assert_eq!(words.contains(&"sack"), settings.sack, "{settings:?}: {ss_output}");
    assert_eq!(words.contains(&"ecn"), settings.ecn, "{settings:?}: {ss_output}");
    assert_eq!(words.iter().any(|word| word.starts_with("wscale:")), settings.window_scaling, "{ss_output}");
}

/// Transfers bytes in both directions at once with each of Linux's settings, in both roles.
fn streams_under_all_settings(stack: &mut UserStack, bytes: u64) {
    stack.tcp.listen((crate::user_stack::our_ip(), PORT).into()).expect("room");
    for settings in SETTINGS {
        settings.apply();
        for opens in [Opens::We, Opens::Linux] {
            println!("{settings:?}, {opens:?} open: {bytes} bytes each way");
            let ss_output = stream(stack, opens, bytes, bytes);
            negotiated(settings, &ss_output);
        }
    }
    assert_eq!(stack.read(Counter::NetDropL4Checksum), 0);
}

/// RFC 9293, RFC 7323, RFC 2018, RFC 3168: the stream is correct for every option of Linux.
#[test]
fn streams_cross_a_tap_under_all_of_linuxs_settings() {
    over_a_tap("bulk::streams_cross_a_tap_under_all_of_linuxs_settings", |mut stack| {
        streams_under_all_settings(&mut stack, 3 << 20);
    });
}

#[test]
fn streams_cross_a_veth_under_all_of_linuxs_settings() {
    over_a_veth("bulk::streams_cross_a_veth_under_all_of_linuxs_settings", 1_500, |mut stack| {
        streams_under_all_settings(&mut stack, 3 << 20);
    });
}

#[test]
fn streams_cross_a_veth_in_jumbo_frames() {
    over_a_veth("bulk::streams_cross_a_veth_in_jumbo_frames", 9_000, |mut stack| {
        streams_under_all_settings(&mut stack, 3 << 20);
        let segments = stack.read(Counter::TcpTxSegments) - stack.read(Counter::TcpTxAcks);
        assert!(stack.read(Counter::TcpTxBytes) > 4_000 * segments, "no jumbo frames: {}", stack.describe());
    });
}

#[test]
fn streams_cross_an_xdp_socket_under_all_of_linuxs_settings() {
    over_xdp("bulk::streams_cross_an_xdp_socket_under_all_of_linuxs_settings", |mut stack| {
        streams_under_all_settings(&mut stack, 2 << 20);
    });
}

#[test]
fn ipv6_streams_cross_a_tap() {
    over_ipv6("bulk::ipv6_streams_cross_a_tap", Device::Tap, 1_500, |mut stack| {
        streams_under_all_settings(&mut stack, 1 << 20);
    });
}

#[test]
fn ipv6_streams_cross_a_veth() {
    over_ipv6("bulk::ipv6_streams_cross_a_veth", Device::Veth, 1_500, |mut stack| {
        streams_under_all_settings(&mut stack, 1 << 20);
    });
}

#[test]
fn ipv6_streams_cross_a_veth_in_jumbo_frames() {
    over_ipv6("bulk::ipv6_streams_cross_a_veth_in_jumbo_frames", Device::Veth, 9_000, |mut stack| {
        streams_under_all_settings(&mut stack, 1 << 20);
    });
}

#[test]
fn ipv6_streams_cross_an_xdp_socket() {
    over_ipv6("bulk::ipv6_streams_cross_an_xdp_socket", Device::Xdp, 1_500, |mut stack| {
        streams_under_all_settings(&mut stack, 1 << 20);
    });
}

/// RFC 9293 s3.7.1, MUST-16: the smaller of the two segment sizes applies, whichever side announces
/// it.
#[test]
fn a_smaller_segment_size_of_linux_applies() {
    over_a_veth("bulk::a_smaller_segment_size_of_linux_applies", 9_000, |mut stack| {
        crate::vdev_lab::system("ip route change 10.88.0.0/24 dev veth0 advmss 700");
        stack.tcp.listen((crate::user_stack::our_ip(), PORT).into()).expect("room");
        for opens in [Opens::We, Opens::Linux] {
            stream(&mut stack, opens, 200_000, 200_000);
        }
    });
}

/// Link faults in both directions.
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

/// Loses, duplicates, reorders, damages and truncates frames, with bytes in both directions, for
/// each of Linux's settings.
fn streams_through_faults(stack: &mut UserStack, bytes: u64) {
    stack.tcp.listen((crate::user_stack::our_ip(), PORT).into()).expect("room");
    for (round, settings) in SETTINGS.into_iter().enumerate() {
        settings.apply();
        let opens = if round % 2 == 0 { Opens::Linux } else { Opens::We };
        println!("{settings:?}, {opens:?} open: {bytes} bytes each way through faults");
        stack.faults.set_faults(faults(round as u64));
        stream(stack, opens, bytes, bytes);
    }
    for counter in [
        Counter::PortFaultDrops,
        Counter::PortFaultDuplicates,
        Counter::PortFaultReorders,
        Counter::PortFaultCorruptions,
        Counter::TcpTxRetransmits,
        Counter::TcpRxOutOfOrder,
        Counter::NetDropL4Checksum,
    ] {
        assert!(stack.read(counter) > 0, "{} did not happen", counter.name());
    }
}

/// RFC 9293 s3.8, RFC 5681: every byte arrives once, in order and unchanged, over a link with all
/// faults.
#[test]
fn streams_survive_a_faulty_tap() {
    over_a_tap("bulk::streams_survive_a_faulty_tap", |mut stack| streams_through_faults(&mut stack, 1 << 20));
}

#[test]
fn streams_survive_a_faulty_veth_in_jumbo_frames() {
    over_a_veth("bulk::streams_survive_a_faulty_veth_in_jumbo_frames", 9_000, |mut stack| {
        streams_through_faults(&mut stack, 2 << 20);
    });
}

/// Fifty connections at once, half of them opened by each side.
#[test]
fn many_connections_share_a_device() {
    over_a_veth("bulk::many_connections_share_a_device", 1_500, |mut stack| {
        const EACH: u64 = 200_000;
        stack.tcp.listen((crate::user_stack::our_ip(), PORT).into()).expect("room");
        let (listener, port) = kernel::listen();
        let mut linux = Vec::new();
        for _ in 0..25 {
            let listener = listener.try_clone().expect("a second handle");
            linux.push(spawn(move || kernel::exchange(kernel::accept(&listener), EACH)));
            stack.connect(port, EACH);
            linux.push(spawn(|| kernel::exchange(kernel::connect(PORT).expect("an answer"), EACH)));
            stack.accept(EACH);
        }
        stack.transfers.iter_mut().for_each(|transfer| transfer.closes = true);
        stack.run_until_all_closed();
        assert!(stack.transfers.iter().all(|transfer| transfer.taken == EACH));
        stack.release_all();
        assert!(linux.into_iter().all(|side| side.join().expect("Linux's side") == EACH));
    });
}
