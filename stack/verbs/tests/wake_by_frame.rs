//! A worker that sleeps (`core.idle = "sleep"`) over a tap interface, a raw socket and an XDP
//! socket: frames wake it, and its timer does not, because the device has a descriptor.
//!
//! The timer is set to a millisecond for devices without one. So a sleep of fifty shows that it is
//! not used, however busy the machine is: an expired timer keeps the descriptor readable. The timer
//! that checks the link wakes it too, four times a second, so a frame must be seen at the device's
//! own descriptor.
#![cfg(feature = "dpdk")]

#[path = "../../port/tests/vdev_lab/mod.rs"]
mod vdev_lab;

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use ironwarp::{
    Access, Completion, CompletionQueue, CompletionStatus, Config, Context, Event, ProtectionDomain, QpAttr,
    QueuePair, RecvWr, Region, SendWr, Stack, Worker,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use vdev_lab::{Lab, Needs, alone, system};

/// The sleeper's address.
const NEAR: &str = "10.78.0.1:4791";
/// Messages, each sent when the worker sleeps.
const MESSAGES: u64 = 10;
/// Longer than the timer of a device without a descriptor.
const QUIET_MS: u64 = 50;
/// The time limit of a test; the lab's own limit is longer.
const PATIENCE: Duration = Duration::from_secs(60);

/// One stack of one core.
struct End {
    _stack: Stack,
    worker: Worker,
    ctx: Context,
    pd: ProtectionDomain,
    cq: CompletionQueue,
    qp: QueuePair,
    is_up: bool,
    completions: Vec<Completion>,
    memory: Region,
}

fn open(host: u8, device: &str, idle: &str) -> Result<End, String> {
    let text = format!(
        "[eal]\nhugepages = \"never\"\nmemory_mib = 256\n[port]\ndevice.{device}\nring_size = 256\nrx_frames = 4096\n\
         tx_frames = 2048\n[net]\naddress = \"10.78.0.{host}/24\"\n[core]\nidle = \"{idle}\"\nsleep_after_us = 0\n\
         sleep_poll_us = 1000\n"
    );
    let config = Config::from_toml(&text).map_err(|error| error.to_string())?;
    let (stack, worker) = Stack::builder(config).build_one().map_err(|error| error.to_string())?;
    let mut ctx = stack.context().expect("a context");
    let (pd, cq) = (ctx.alloc_pd(), ctx.create_cq(64).expect("a queue"));
    let qp = ctx.create_qp(pd, &QpAttr::new(cq)).expect("a queue pair");
    let memory = ctx.register(pd, vec![0; 64], Access::LOCAL_WRITE).expect("a region");
    Ok(End { _stack: stack, worker, ctx, pd, cq, qp, is_up: false, completions: Vec::new(), memory })
}

impl End {
    /// Runs the worker once and takes what it reports. Returns the work.
    fn turn(&mut self) -> usize {
        let work = self.worker.poll(1).work;
        while let Some(event) = self.ctx.poll_event() {
            match event {
                Event::ConnectRequest { request, .. } => {
                    self.ctx.accept(request, self.qp, b"").expect("accept")
                }
                Event::Established { .. } => self.is_up = true,
                Event::Disconnected { .. } | Event::ConnectFailed { .. } => panic!("{event:?}"),
                _ => {}
            }
        }
        let mut reaped = [Completion::default(); 8];
        let count = self.ctx.poll_cq(self.cq, &mut reaped).expect("the queue exists");
        self.completions.extend_from_slice(&reaped[..count]);
        work
    }

    fn wake_fd(&self) -> BorrowedFd<'_> {
        self.worker.wake_fd().expect("a worker that may sleep")
    }

    /// Sleeps until the descriptor was silent for longer than the timer of a device without one.
    /// Frames of the kernel and timers of the stack may end a sleep.
    fn sleep_undisturbed(&mut self) {
        let begun = Instant::now();
        loop {
            while self.turn() > 0 || !self.worker.arm() {
                assert!(begun.elapsed() < PATIENCE, "the worker always has something to do");
            }
            if !is_readable(self.wake_fd(), QUIET_MS) {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "something always ends the sleep");
        }
    }
}

/// Waits in full although signals interrupt it: the tap driver raises one for each frame.
fn is_readable(fd: BorrowedFd<'_>, timeout_ms: u64) -> bool {
    let until = Instant::now() + Duration::from_millis(timeout_ms);
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
        match poll(&mut fds, Some(&timeout)) {
            Err(Errno::INTR) => {}
            ready => return ready.expect("a poll") == 1,
        }
    }
}

/// The descriptors of the device that a worker's epoll descriptor watches, apart from its signal
/// and its timer.
fn of_device(wake_fd: BorrowedFd<'_>) -> Vec<OwnedFd> {
    let watched =
        std::fs::read_to_string(format!("/proc/self/fdinfo/{}", wake_fd.as_raw_fd())).expect("its fdinfo");
    let numbers =
        watched.lines().filter_map(|line| line.strip_prefix("tfd:")?.split_whitespace().next()?.parse().ok());
    let is_of_device = |number: &i32| {
        let target = std::fs::read_link(format!("/proc/self/fd/{number}")).expect("an open descriptor");
        !target.to_string_lossy().starts_with("anon_inode:")
    };
    let process = pidfd_open(getpid(), PidfdFlags::empty()).expect("this process");
    let duplicate =
        |number| pidfd_getfd(&process, number, PidfdGetfdFlags::empty()).expect("an open descriptor");
    numbers.filter(is_of_device).map(duplicate).collect()
}

/// The far end connects and sends messages to a worker that sleeps before each.
fn is_woken(mut near: End, mut far: End) {
    let begun = Instant::now();
    let device = of_device(near.wake_fd());
    assert_eq!(device.len(), 1, "the device has one queue");
    near.ctx.listen(NEAR.parse().expect("an address")).expect("room");
    near.turn();
    far.ctx.connect(far.qp, NEAR.parse().expect("an address"), b"").expect("room");
    while !(near.is_up && far.is_up) {
        near.turn();
        far.turn();
        assert!(begun.elapsed() < PATIENCE, "no connection");
    }
    let inbox = [near.memory.slice(0, 64).expect("inside")];
    for number in 0..MESSAGES {
        near.ctx.post_recv(near.qp, &RecvWr::new(number, &inbox)).expect("room");
        near.sleep_undisturbed();
        let bytes = number.to_be_bytes();
        far.ctx.post_send(far.qp, &SendWr::send_inline(number, &bytes)).expect("room");
        far.turn();
        assert!(
            is_readable(device[0].as_fd(), PATIENCE.as_millis() as u64),
            "message {number} is not at the device"
        );
        assert!(is_readable(near.wake_fd(), PATIENCE.as_millis() as u64), "message {number} did not wake it");
        while near.completions.is_empty() {
            near.turn();
            far.turn();
            assert!(begun.elapsed() < 2 * PATIENCE, "message {number} woke it and did not arrive");
        }
        let done = near.completions.remove(0);
        assert_eq!((done.wr_id, done.status), (number, CompletionStatus::Success));
        let mut received = [0; 8];
        near.memory.read_at(0, &mut received).expect("inside");
        assert_eq!(received, bytes);
    }
    let _ = (near.pd, far.pd);
}

fn veth() {
    system("ip link add veth0 type veth peer name veth1");
    for end in ["veth0", "veth1"] {
        system(&format!("ethtool -K {end} tx off gso off tso off"));
        system(&format!("ip link set {end} up"));
    }
}

fn end(host: u8, device: &str, idle: &str) -> End {
    open(host, device, idle).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn a_frame_at_a_raw_socket_wakes_a_worker_that_sleeps() {
    alone("a_frame_at_a_raw_socket_wakes_a_worker_that_sleeps", Needs::Namespace, |_| {
        veth();
        let near = end(1, "af_packet = { interface = \"veth0\" }", "sleep");
        is_woken(near, end(2, "af_packet = { interface = \"veth1\" }", "spin"));
    });
}

#[test]
fn a_frame_at_an_xdp_socket_wakes_a_worker_that_sleeps() {
    alone("a_frame_at_an_xdp_socket_wakes_a_worker_that_sleeps", Needs::Namespace, |lab: &Lab| {
        veth();
        match open(1, "af_xdp = { interface = \"veth0\" }", "sleep") {
            Ok(near) => is_woken(near, end(2, "af_packet = { interface = \"veth1\" }", "spin")),
            Err(error) => lab.skip(&error),
        }
    });
}

/// The kernel's end of the tap is an ordinary interface, at which a raw socket sends the frames.
#[test]
fn a_frame_at_a_tap_interface_wakes_a_worker_that_sleeps() {
    alone("a_frame_at_a_tap_interface_wakes_a_worker_that_sleeps", Needs::Namespace, |_| {
        let near = end(1, "tap = { interface = \"wtap0\" }", "sleep");
        is_woken(near, end(2, "af_packet = { interface = \"wtap0\" }", "spin"));
    });
}

/// DPDK's drivers for kernel interfaces, which keep their descriptors to themselves.
#[test]
fn a_frame_at_dpdks_packet_socket_wakes_a_worker_that_sleeps() {
    alone("a_frame_at_dpdks_packet_socket_wakes_a_worker_that_sleeps", Needs::Namespace, |_| {
        veth();
        let args = "iface=veth0,framesz=2048,blocksz=4096,framecnt=512";
        let near = end(1, &format!("dpdk = {{ name = \"net_af_packet0\", args = \"{args}\" }}"), "sleep");
        is_woken(near, end(2, "af_packet = { interface = \"veth1\" }", "spin"));
    });
}
