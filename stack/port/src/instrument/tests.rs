use std::io::{self, Write};
use std::process::Command;
use std::sync::{Arc, Mutex};

use super::*;
use crate::memory::{self, MemoryConfig, MemoryFrame, MemoryPort, MemorySealed};
use crate::sample::{segment, unfilled_segment};
use crate::{Checksum, TxMeta, TxOffloads};

type Watched = Instrumented<MemoryPort, fn() -> Nanos>;

/// The wrapped port, its switches, its counters, and the port at the far end.
struct Bench {
    near: Watched,
    far: MemoryPort,
    control: PortControl,
    stats: CoreStats,
}

fn bench() -> Bench {
    bench_of(&MemoryConfig::default())
}

fn bench_of(config: &MemoryConfig) -> Bench {
    let (near, far) = memory::pair(config, config);
    let stats = CoreStats::detached();
    let near = Instrumented::new(near, stamp as fn() -> Nanos, stats.clone());
    Bench { control: near.control(), near, far, stats }
}

/// 2001-09-09 01:46:40.123456789 UTC.
fn stamp() -> Nanos {
    Nanos(1_000_000_000_123_456_789)
}

fn sealed(port: &mut impl Port<Frame = MemoryFrame>, bytes: &[u8], tx: TxMeta) -> MemorySealed {
    let mut frame = port.alloc().expect("the pool has a frame");
    frame.resize(bytes.len());
    frame.bytes_mut().copy_from_slice(bytes);
    frame.seal(tx)
}

fn send(port: &mut impl Port<Frame = MemoryFrame>, bytes: &[u8]) {
    let mut burst = Burst::from_iter([sealed(port, bytes, TxMeta::default())]);
    port.tx_burst(&mut burst);
    assert!(burst.is_empty());
}

fn receive(port: &mut impl Port<Frame = MemoryFrame>) -> Vec<Vec<u8>> {
    let mut burst = Burst::new();
    port.rx_burst(&mut burst);
    burst.iter().map(|frame| frame.bytes().to_vec()).collect()
}

/// Numbered frames, and the numbers of those that came.
fn numbered(n: u32) -> Vec<u8> {
    let mut bytes = vec![0; 64];
    bytes[20..24].copy_from_slice(&n.to_be_bytes());
    bytes
}

fn number(frame: &[u8]) -> u32 {
    u32::from_be_bytes(frame[20..24].try_into().unwrap())
}

/// Sends `frames` numbered frames out through the injector; answers what arrived, in order.
fn outbound(bench: &mut Bench, frames: u32) -> Vec<u32> {
    let mut got = Vec::new();
    for n in 0..frames {
        send(&mut bench.near, &numbered(n));
        assert!(receive(&mut bench.near).is_empty());
        got.extend(receive(&mut bench.far).iter().map(|frame| number(frame)));
    }
    got
}

/// The same in the other direction.
fn inbound(bench: &mut Bench, frames: u32) -> Vec<u32> {
    let mut got = Vec::new();
    for n in 0..frames {
        send(&mut bench.far, &numbered(n));
        got.extend(receive(&mut bench.near).iter().map(|frame| number(frame)));
    }
    got
}

/// Polls until nothing held can be left.
fn settle(bench: &mut Bench) -> Vec<u32> {
    let polled = (0..2_000).flat_map(|_| receive(&mut bench.near)).collect::<Vec<_>>();
    polled.iter().chain(&receive(&mut bench.far)).map(|frame| number(frame)).collect()
}

fn only_rx(rx: FaultRates) -> Faults {
    Faults { seed: 1, rx, ..Faults::default() }
}

fn only_tx(tx: FaultRates) -> Faults {
    Faults { seed: 1, tx, ..Faults::default() }
}

#[test]
fn with_everything_off_frames_pass_untouched() {
    let mut bench = bench();
    assert_eq!(outbound(&mut bench, 100), (0..100).collect::<Vec<_>>());
    assert_eq!(inbound(&mut bench, 100), (0..100).collect::<Vec<_>>());
    assert!(bench.near.shared.all_off());
}

#[test]
fn losses_come_at_their_rate_in_the_direction_asked_for() {
    let mut bench = bench();
    bench.control.set_faults(only_rx(FaultRates { drop_ppm: 20_000, ..FaultRates::default() }));
    let received = inbound(&mut bench, 20_000).len() as u64;
    let lost = bench.stats.read(Counter::PortFaultDrops);
    assert_eq!(received + lost, 20_000);
    assert!((300..500).contains(&lost), "{lost}");
    assert_eq!(outbound(&mut bench, 1_000).len(), 1_000);
    bench.control.set_faults(only_tx(FaultRates { drop_ppm: 1_000_000, ..FaultRates::default() }));
    assert_eq!((outbound(&mut bench, 100).len(), inbound(&mut bench, 100).len()), (0, 100));
}

#[test]
fn one_seed_loses_the_same_frames_every_time() {
    let run = |seed| {
        let mut bench = bench();
        bench.control.set_faults(Faults::loss(seed, 100_000));
        (outbound(&mut bench, 500), inbound(&mut bench, 500))
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
    let (out, back) = run(7);
    assert_ne!(out, back);
}

#[test]
fn faults_of_one_direction_leave_the_chances_of_the_other_alone() {
    let rates = |ppm| FaultRates { drop_ppm: ppm, ..FaultRates::default() };
    let run = |tx_ppm| {
        let mut bench = bench();
        bench.control.set_faults(Faults { seed: 3, rx: rates(100_000), tx: rates(tx_ppm) });
        outbound(&mut bench, 200);
        inbound(&mut bench, 200)
    };
    assert_eq!(run(0), run(500_000));
}

#[test]
fn duplicates_follow_their_originals() {
    let always = FaultRates { duplicate_ppm: 1_000_000, ..FaultRates::default() };
    let mut bench = bench();
    bench.control.set_faults(Faults { seed: 1, rx: always, tx: always });
    let twice: Vec<u32> = (0..50).flat_map(|n| [n, n]).collect();
    assert_eq!((outbound(&mut bench, 50), settle(&mut bench)), (twice.clone(), vec![]));
    let mut got = inbound(&mut bench, 50);
    got.extend(settle(&mut bench));
    assert_eq!(got, twice);
    assert_eq!(bench.stats.read(Counter::PortFaultDuplicates), 100);
}

#[test]
fn a_duplicate_carries_what_the_device_said() {
    let mut bench = bench_of(&MemoryConfig::default().offloading());
    bench.control.set_faults(only_rx(FaultRates { duplicate_ppm: 1_000_000, ..FaultRates::default() }));
    send(&mut bench.far, &segment(b"data"));
    let mut got = Burst::new();
    bench.near.rx_burst(&mut got);
    assert_eq!((got.len(), got[0].rx()), (2, got[1].rx()));
    assert_eq!((got[0].rx().l4_checksum, got[0].rx().rss_hash.is_some()), (Checksum::Good, true));
}

#[test]
fn a_fault_that_finds_no_buffer_is_left_out_and_counted() {
    let rates = FaultRates { duplicate_ppm: 1_000_000, corrupt_ppm: 1_000_000, ..FaultRates::default() };
    let mut bench = bench();
    bench.control.set_faults(Faults { seed: 1, rx: FaultRates { corrupt_ppm: 0, ..rates }, tx: rates });
    let frame = sealed(&mut bench.near, &numbered(5), TxMeta::default());
    bench.near.port_mut().control().allow_allocations(0);
    bench.near.tx_burst(&mut Burst::from_iter([frame]));
    // Outbound, a duplicate needs no buffer, damage does.
    let got: Vec<u32> = receive(&mut bench.far).iter().map(|frame| number(frame)).collect();
    assert_eq!((got, bench.stats.read(Counter::PortFaultsSkipped)), (vec![5, 5], 1));
    assert_eq!(inbound(&mut bench, 1), [0]);
    assert_eq!(bench.stats.read(Counter::PortFaultsSkipped), 2);
}

#[test]
fn reordering_loses_nothing_and_keeps_the_distance_small() {
    let often = FaultRates { reorder_ppm: 100_000, ..FaultRates::default() };
    for direction in [only_rx(often), only_tx(often)] {
        let mut bench = bench();
        bench.control.set_faults(direction);
        let mut got =
            if direction.rx.is_none() { outbound(&mut bench, 500) } else { inbound(&mut bench, 500) };
        got.extend(settle(&mut bench));
        let moved = got.windows(2).filter(|pair| pair[0] > pair[1]).count() as u64;
        assert!(moved > 20 && moved <= bench.stats.read(Counter::PortFaultReorders));
        let far_off = got.iter().enumerate().filter(|(place, n)| place.abs_diff(**n as usize) > 12).count();
        assert_eq!(far_off, 0);
        got.sort_unstable();
        assert_eq!(got, (0..500).collect::<Vec<_>>());
    }
}

#[test]
fn the_last_frame_is_not_held_for_ever() {
    let mut bench = bench();
    bench.control.set_faults(only_tx(FaultRates { reorder_ppm: 1_000_000, ..FaultRates::default() }));
    assert!(outbound(&mut bench, 1).is_empty());
    assert_eq!(settle(&mut bench), [0]);
}

#[test]
fn delayed_frames_keep_their_order_and_come_after_the_polls_asked_for() {
    let rates = FaultRates { delay_ppm: 1_000_000, delay_polls: 10, ..FaultRates::default() };
    let mut bench = bench();
    bench.control.set_faults(only_rx(rates));
    for n in 0..3 {
        send(&mut bench.far, &numbered(n));
    }
    let polls: Vec<usize> = (0..12).map(|_| receive(&mut bench.near).len()).collect();
    assert_eq!(polls, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0]);
    bench.control.set_faults(only_tx(rates));
    let mut got = outbound(&mut bench, 40);
    assert_eq!(got, (0..31).collect::<Vec<_>>());
    got.extend(settle(&mut bench));
    assert_eq!(got, (0..40).collect::<Vec<_>>());
}

#[test]
fn frames_beyond_the_places_for_delay_pass_and_are_counted() {
    let mut bench = bench_of(&MemoryConfig { rx_frames: 2048, ..MemoryConfig::default() });
    let rates = FaultRates { delay_ppm: 1_000_000, delay_polls: 5_000, ..FaultRates::default() };
    bench.control.set_faults(only_rx(rates));
    assert_eq!(inbound(&mut bench, 600), (512..600).collect::<Vec<_>>());
    assert_eq!(bench.stats.read(Counter::PortFaultsSkipped), 88);
}

#[test]
fn switching_off_lets_held_frames_go_and_returns_to_the_short_way() {
    let rates = FaultRates { delay_ppm: 1_000_000, delay_polls: 1_000_000, ..FaultRates::default() };
    let mut bench = bench();
    bench.control.set_faults(Faults { seed: 1, rx: rates, tx: rates });
    assert!(outbound(&mut bench, 10).is_empty() && inbound(&mut bench, 10).is_empty());
    bench.control.set_faults(Faults::default());
    assert_eq!(settle(&mut bench), [(0..10).collect::<Vec<_>>(), (0..10).collect()].concat());
    assert!(bench.near.shared.all_off());
    assert_eq!(bench.control.faults(), Faults::default());
}

#[test]
fn damage_is_seen_by_the_checksum_whichever_way_the_frame_goes() {
    let mut bench = bench_of(&MemoryConfig::default().offloading());
    let rates = FaultRates { corrupt_ppm: 1_000_000, ..FaultRates::default() };
    bench.control.set_faults(Faults { seed: 1, rx: rates, tx: rates });
    let original = segment(&[7; 1000]);
    for _ in 0..200 {
        send(&mut bench.near, &original);
        let mut got = Burst::new();
        bench.far.rx_burst(&mut got);
        let changed: Vec<usize> =
            (0..original.len()).filter(|at| got[0].bytes()[*at] != original[*at]).collect();
        assert_eq!(changed.len(), 1);
        let rx = got[0].rx();
        // The Ethernet header has no checksum of its own here.
        assert!(changed[0] < 14 || [rx.ip_checksum, rx.l4_checksum].contains(&Checksum::Bad));
    }
    send(&mut bench.far, &original);
    let mut got = Burst::new();
    bench.near.rx_burst(&mut got);
    let rx = got[0].rx();
    assert_eq!((rx.ip_checksum, rx.l4_checksum), (Checksum::Unknown, Checksum::Unknown));
    assert_ne!(got[0].bytes(), original);
    assert_eq!(bench.stats.read(Counter::PortFaultCorruptions), 201);
}

#[test]
fn damage_is_not_made_right_by_the_device_that_fills_in_checksums() {
    let mut bench = bench_of(&MemoryConfig::default().offloading());
    bench.control.set_faults(only_tx(FaultRates { corrupt_ppm: 1_000_000, ..FaultRates::default() }));
    let tx = TxMeta { l2_bytes: 14, l3_bytes: 20, l4_bytes: 20, offloads: TxOffloads::all() };
    for _ in 0..100 {
        let frame = sealed(&mut bench.near, &unfilled_segment(&[7; 1000]), tx);
        bench.near.tx_burst(&mut Burst::from_iter([frame.clone()]));
        assert_eq!(frame.bytes(), unfilled_segment(&[7; 1000]), "what TCP retains stays as it was");
        let mut got = Burst::new();
        bench.far.rx_burst(&mut got);
        assert_ne!(got[0].rx().ip_checksum, Checksum::Good);
    }
}

#[test]
fn truncated_frames_keep_their_beginning() {
    let rates = FaultRates { truncate_ppm: 1_000_000, ..FaultRates::default() };
    let mut bench = bench();
    bench.control.set_faults(Faults { seed: 1, rx: rates, tx: rates });
    let original = segment(&[7; 100]);
    for _ in 0..100 {
        send(&mut bench.near, &original);
        send(&mut bench.far, &original);
        for got in receive(&mut bench.far).iter().chain(&receive(&mut bench.near)) {
            assert!((14..original.len()).contains(&got.len()) && original.starts_with(got));
        }
    }
    assert_eq!(bench.stats.read(Counter::PortFaultTruncations), 200);
}

#[test]
fn a_full_device_leaves_frames_with_the_caller_and_nothing_is_lost_or_doubled() {
    let mut bench = bench();
    bench.control.set_faults(only_tx(FaultRates { reorder_ppm: 1, ..FaultRates::default() }));
    let device = bench.near.port_mut().control();
    device.limit_tx_burst(3);
    let frames: Vec<_> = (0..8).map(|n| sealed(&mut bench.near, &numbered(n), TxMeta::default())).collect();
    let mut burst: Burst<_> = frames.into_iter().collect();
    bench.near.tx_burst(&mut burst);
    // The injector took the burst over; the device took three of it.
    assert!(burst.is_empty());
    device.limit_tx_burst(0);
    let late = sealed(&mut bench.near, &numbered(8), TxMeta::default());
    burst.push(late);
    bench.near.tx_burst(&mut burst);
    assert_eq!(burst.len(), 1);
    device.limit_tx_burst(u64::MAX);
    bench.near.tx_burst(&mut burst);
    let got: Vec<u32> = receive(&mut bench.far).iter().map(|frame| number(frame)).collect();
    assert_eq!(got, (0..9).collect::<Vec<_>>());
}

#[test]
fn every_buffer_comes_back_from_every_fault() {
    let rates = FaultRates {
        drop_ppm: 50_000,
        duplicate_ppm: 50_000,
        reorder_ppm: 50_000,
        corrupt_ppm: 50_000,
        truncate_ppm: 50_000,
        delay_ppm: 50_000,
        delay_polls: 20,
    };
    let mut bench = bench();
    let levels = |bench: &mut Bench| {
        [bench.near.port_mut().control().free_frames(), bench.far.control().free_frames()]
    };
    let full = levels(&mut bench);
    bench.control.set_faults(Faults { seed: 1, rx: rates, tx: rates });
    for n in 0..2_000 {
        send(&mut bench.near, &numbered(n));
        send(&mut bench.far, &numbered(n));
        receive(&mut bench.near);
        receive(&mut bench.far);
    }
    bench.control.set_faults(Faults::default());
    for _ in 0..100 {
        receive(&mut bench.near);
        receive(&mut bench.far);
    }
    assert_eq!(levels(&mut bench), full);
}

/// A file in memory whose bytes stay readable, and which fails once it is full.
#[derive(Clone, Default)]
struct Disk {
    bytes: Arc<Mutex<Vec<u8>>>,
    size: Option<usize>,
}

impl Write for Disk {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let mut bytes = self.bytes.lock().unwrap();
        if self.size.is_some_and(|size| bytes.len() + data.len() > size) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        bytes.extend_from_slice(data);
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Disk {
    /// The blocks as (type, body), checking that both lengths of each agree and that it is aligned.
    fn blocks(&self) -> Vec<(u32, Vec<u8>)> {
        let bytes = self.bytes.lock().unwrap();
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        let (mut at, mut blocks) = (0, Vec::new());
        while at < bytes.len() {
            let total = word(at + 4) as usize;
            assert_eq!((total % 4, word(at + total - 4) as usize), (0, total));
            blocks.push((word(at), bytes[at + 8..at + total - 4].to_vec()));
            at += total;
        }
        blocks
    }

    fn packets(&self) -> usize {
        self.blocks().iter().filter(|block| block.0 == 6).count()
    }
}

#[test]
fn a_packet_block_holds_time_lengths_frame_and_direction() {
    let disk = Disk::default();
    let capture = Capture::to(disk.clone(), CaptureLimits::default()).unwrap();
    let interface = capture.interface("port0").unwrap();
    interface.record(stamp(), Direction::Outbound, &[1, 2, 3, 4, 5]).unwrap();
    let blocks = disk.blocks();
    assert_eq!(blocks.iter().map(|block| block.0).collect::<Vec<_>>(), [0x0a0d_0d0a, 1, 6]);
    let head = [0u32, (stamp().0 >> 32) as u32, stamp().0 as u32, 5, 5].map(u32::to_le_bytes).concat();
    let body = [&head[..], &[1, 2, 3, 4, 5, 0, 0, 0], &[2, 0, 4, 0, 2, 0, 0, 0], &[0; 4]].concat();
    assert_eq!(blocks[2].1, body);
}

#[test]
fn long_frames_are_cut_to_the_snap_length() {
    let disk = Disk::default();
    let limits = CaptureLimits { snap_bytes: 6, ..CaptureLimits::default() };
    let interface = Capture::to(disk.clone(), limits).unwrap().interface("port0").unwrap();
    interface.record(stamp(), Direction::Inbound, &[9; 100]).unwrap();
    let body = &disk.blocks()[2].1;
    assert_eq!(body[12..20], [6, 0, 0, 0, 100, 0, 0, 0]);
    assert_eq!(body[20..28], [9, 9, 9, 9, 9, 9, 0, 0]);
}

#[test]
fn the_tap_sees_what_the_stack_sent_and_what_it_received() {
    let mut bench = bench();
    let disk = Disk::default();
    let capture = Capture::to(disk.clone(), CaptureLimits::default()).unwrap();
    bench.control.start_capture(capture.interface("port0").unwrap());
    let lost = FaultRates { drop_ppm: 1_000_000, ..FaultRates::default() };
    bench.control.set_faults(Faults { seed: 1, rx: lost, tx: lost });
    outbound(&mut bench, 4);
    inbound(&mut bench, 4);
    // What was sent is recorded, though it was lost; what was lost on its way here is not.
    assert_eq!(disk.packets(), 4);
    bench.control.set_faults(Faults::default());
    inbound(&mut bench, 3);
    assert_eq!((disk.packets(), bench.stats.read(Counter::PortPcapFrames)), (7, 7));
    bench.control.stop_capture().unwrap();
    inbound(&mut bench, 3);
    assert_eq!((disk.packets(), bench.near.shared.all_off()), (7, true));
}

#[test]
fn a_frame_that_the_device_refused_is_recorded_when_it_leaves() {
    let mut bench = bench();
    let disk = Disk::default();
    let capture = Capture::to(disk.clone(), CaptureLimits::default()).unwrap();
    bench.control.start_capture(capture.interface("port0").unwrap());
    let device = bench.near.port_mut().control();
    device.limit_tx_burst(1);
    let frames = [1, 2].map(|n| sealed(&mut bench.near, &numbered(n), TxMeta::default()));
    let mut burst = Burst::from_iter(frames);
    bench.near.tx_burst(&mut burst);
    assert_eq!((disk.packets(), burst.len()), (1, 1));
    bench.near.tx_burst(&mut burst);
    assert_eq!((disk.packets(), burst.len()), (2, 0));
}

#[test]
fn a_capture_that_cannot_be_written_stops_and_the_traffic_goes_on() {
    let mut bench = bench();
    let disk = Disk { size: Some(400), ..Disk::default() };
    let capture = Capture::to(disk.clone(), CaptureLimits::default()).unwrap();
    bench.control.start_capture(capture.interface("port0").unwrap());
    assert_eq!(inbound(&mut bench, 20).len(), 20);
    assert_eq!(bench.stats.read(Counter::PortPcapStops), 1);
    assert!(!bench.control.is_capturing() && capture.interface("port1").is_err());
    receive(&mut bench.near);
    assert!(bench.near.shared.all_off());
}

#[test]
fn a_capture_stops_at_its_limit_and_stays_readable() {
    let mut bench = bench();
    let disk = Disk::default();
    let limits = CaptureLimits { capture_bytes: 1_000, ..CaptureLimits::default() };
    let capture = Capture::to(disk.clone(), limits).unwrap();
    bench.control.start_capture(capture.interface("port0").unwrap());
    assert_eq!(inbound(&mut bench, 50).len(), 50);
    assert_eq!(disk.packets() as u64, bench.stats.read(Counter::PortPcapFrames));
    assert!((5..10).contains(&disk.packets()));
    assert_eq!(bench.stats.read(Counter::PortPcapStops), 1);
}

#[test]
fn a_capture_in_a_folder_that_does_not_exist_is_an_error() {
    assert!(Capture::create("/nonexistent/capture.pcapng".as_ref(), CaptureLimits::default()).is_err());
}

/// Runs a program on a capture of one segment each way; `None` where it is not installed.
fn asked(program: &str, arguments: &[&str]) -> Option<String> {
    let path = std::env::temp_dir().join(format!("ironwarp-{program}-{}.pcapng", std::process::id()));
    let capture = Capture::create(&path, CaptureLimits::default()).unwrap();
    let mut bench = bench();
    bench.control.start_capture(capture.interface("port0").unwrap());
    send(&mut bench.near, &segment(b"ping!"));
    send(&mut bench.far, &segment(b"pong"));
    receive(&mut bench.near);
    bench.control.stop_capture().unwrap();
    let output = Command::new(program).args(arguments).arg(&path).output();
    std::fs::remove_file(&path).unwrap();
    let output = output.ok()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn wireshark_reads_time_direction_and_data() {
    let fields = ["frame.time_epoch", "frame.packet_flags_direction", "frame.interface_name", "tcp.payload"];
    let mut arguments = vec!["-o", "tcp.check_checksum:TRUE", "-T", "fields"];
    arguments.extend(fields.iter().flat_map(|field| ["-e", field]));
    arguments.extend(["-e", "tcp.checksum.status", "-e", "_ws.malformed", "-r"]);
    let Some(seen) = asked("tshark", &arguments) else { return };
    let lines: Vec<Vec<&str>> = seen.lines().map(|line| line.split('\t').collect()).collect();
    let line = |direction, payload| vec!["1000000000.123456789", direction, "port0", payload, "1", ""];
    assert_eq!(lines, [line("0x00000002", "70696e6721"), line("0x00000001", "706f6e67")]);
}

#[test]
fn capinfos_finds_nothing_wrong() {
    let Some(seen) = asked("capinfos", &["-M"]) else { return };
    assert!(seen.contains("Number of packets:   2"), "{seen}");
    assert!(seen.contains("nanoseconds"), "{seen}");
}
