//! Captures: what is in them, and how a capture that cannot go on ends.

use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::sync::{Arc, Mutex};

use super::*;
use crate::sample::segment;

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

/// The size of the disk of the next test.
const DISK: &str = "size=128k";

/// A real disk without room, in a mount namespace of this process alone: the traffic goes on, and
/// the stop is counted.
#[test]
fn a_capture_on_a_full_disk_stops_and_the_traffic_goes_on() {
    const FOLDER: &str = "IRONWARP_FULL_DISK";
    let Some(folder) = std::env::var_os(FOLDER) else {
        return on_a_small_disk(
            FOLDER,
            "instrument::tests::tap::a_capture_on_a_full_disk_stops_and_the_traffic_goes_on",
        );
    };
    let path = std::path::Path::new(&folder).join("full.pcapng");
    let capture = Capture::create(&path, CaptureLimits::default()).unwrap();
    let mut bench = bench();
    bench.control.start_capture(capture.interface("port0").unwrap());
    let limit = std::time::Instant::now() + std::time::Duration::from_secs(60);
    // A thread writes; its failure is noticed at a later frame.
    while bench.stats.read(Counter::PortPcapStops) == 0 {
        assert_eq!(inbound(&mut bench, 20).len(), 20);
        assert!(std::time::Instant::now() < limit, "the capture goes on");
    }
    assert!(!bench.control.is_capturing());
    assert_eq!(inbound(&mut bench, 20).len(), 20);
    let written = std::fs::metadata(&path).unwrap().len();
    assert!((1..=128 << 10).contains(&written), "{written} bytes");
}

/// Runs a test again in a child process with a small disk, whose folder is in the environment.
fn on_a_small_disk(variable: &str, test: &str) {
    let folder = std::env::temp_dir().join(format!("ironwarp-full-disk-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    let mut command = Command::new("unshare");
    command.args(["--mount", "--map-root-user", "--", "sh", "-c"]);
    command
        .arg(format!("mount -t tmpfs -o {DISK} none \"${variable}\" && echo mounted && exec \"$0\" \"$@\""));
    command.arg(std::env::current_exe().unwrap()).args([test, "--exact", "--nocapture", "--test-threads=1"]);
    let output = command.env(variable, &folder).output().expect("unshare, of util-linux");
    std::fs::remove_dir(&folder).unwrap();
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    if !said.contains("mounted") {
        writeln!(io::stderr(), "\nSKIPPED: no mount namespace").expect("a terminal");
        return;
    }
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
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

/// The frames are the peers' data, and the folder may be anybody's.
#[test]
fn a_capture_is_readable_by_its_owner_alone_and_follows_no_link() {
    let folder = std::env::temp_dir().join(format!("ironwarp-capture-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    let (path, link) = (folder.join("new.pcapng"), folder.join("link.pcapng"));
    drop(Capture::create(&path, CaptureLimits::default()).unwrap());
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let linked = Capture::create(&link, CaptureLimits::default());
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(mode & 0o777, 0o600);
    assert!(linked.is_err());
}

/// Runs a program on a capture of one segment each way; `None` where it is not installed, which a
/// line past the capture of a test's output says.
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
    let Ok(output) = output else {
        writeln!(io::stderr(), "\nSKIPPED: {program} is not installed").expect("a terminal");
        return None;
    };
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
