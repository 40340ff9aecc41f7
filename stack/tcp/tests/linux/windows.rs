//! Readers that stop: windows close, are probed, and open again.

use std::net::TcpStream;
use std::sync::mpsc;

use ironwarp_stats::Counter;
use ironwarp_tcp::ByteStream;
use ironwarp_types::Nanos;
use rustix::net::sockopt;

use crate::kernel::{self, spawn};
use crate::over_a_veth;
use crate::vdev_lab::{Needs, alone};

/// More than all buffers between the two applications.
const BYTES: u64 = 4 << 20;

/// RFC 9293 s3.8.6.1, MUST-36 and MUST-37: Linux's reader stalls. Its window closes and is probed
/// until it opens.
#[test]
fn a_stalled_reader_in_linux_closes_its_window_and_opens_it_again() {
    let name = "windows::a_stalled_reader_in_linux_closes_its_window_and_opens_it_again";
    over_a_veth(name, 1_500, |mut stack| {
        let (listener, port) = kernel::listen();
        sockopt::set_socket_recv_buffer_size(&listener, 32 * 1024).expect("a small buffer");
        let (go_on, may_go_on) = mpsc::channel();
        let linux = spawn(move || read_as_permitted(&kernel::accept(&listener), &may_go_on));
        let transfer = stack.connect(port, BYTES);
        stack.transfers[transfer].closes = true;
        for _ in 0..3 {
            let probes = stack.read(Counter::TcpWindowProbes);
            stack.run_until("probes of a closed window", |stack| {
                stack.read(Counter::TcpWindowProbes) > probes + 2
            });
            assert!(stack.transfers[transfer].source.left > 0);
            go_on.send(200_000).expect("a reader");
        }
        go_on.send(usize::MAX).expect("a reader");
        stack.run_until_all_closed();
        assert_eq!(linux.join().expect("Linux's side"), BYTES);
        stack.release_all();
    });
}

/// Reads the number of bytes that each message permits, then to the end of the stream.
fn read_as_permitted(stream: &TcpStream, permits: &mpsc::Receiver<usize>) -> u64 {
    let mut taken = 0;
    for bytes in permits {
        let until = if bytes == usize::MAX { u64::MAX } else { taken + bytes as u64 };
        while taken < until && kernel::receive_some(stream, &mut taken, 4_096) > 0 {}
        if bytes == usize::MAX {
            break;
        }
    }
    taken
}

/// RFC 9293 s3.8.6 and s3.8.6.2.2: our reader stalls. Linux fills the window completely, probes it,
/// and continues when it opens.
#[test]
fn our_stalled_reader_closes_our_window_and_opens_it_again() {
    over_a_veth("windows::our_stalled_reader_closes_our_window_and_opens_it_again", 1_500, |mut stack| {
        let (listener, port) = kernel::listen();
        let linux = spawn(move || kernel::exchange(kernel::accept(&listener), BYTES));
        let transfer = stack.connect(port, 0);
        for _ in 0..2 {
            stack.transfers[transfer].reads = false;
            let id = stack.transfers[transfer].id;
            // Linux probes with an acknowledged octet.
            let probes = stack.read(Counter::TcpDropOutsideWindow);
            stack.run_until("probes of our closed window", |stack| {
                let full = stack.tcp.rx(id).available() >= 500_000;
                full && stack.read(Counter::TcpDropOutsideWindow) > probes
            });
            let held = stack.tcp.rx(id).available() as u64;
            assert!(held <= 700_000, "{held} bytes for a window of 512 KiB and an FPDU");
            stack.transfers[transfer].reads = true;
            let taken = stack.transfers[transfer].taken;
            stack
                .run_until("bytes in an open window", |stack| stack.transfers[transfer].taken > taken + held);
        }
        stack.transfers[transfer].closes = true;
        stack.run_until_all_closed();
        assert_eq!((stack.transfers[transfer].taken, linux.join().expect("Linux's side")), (BYTES, 0));
        stack.release_all();
    });
}

/// Linux's receive buffers have every size, so that it announces windows from a few hundred bytes
/// to megabytes, scaled or not.
#[test]
fn windows_of_every_size_transfer_the_stream() {
    over_a_veth("windows::windows_of_every_size_transfer_the_stream", 1_500, |mut stack| {
        for (scaling, buffer) in
            [("0", 1), ("1", 1), ("0", 8_192), ("1", 8_192), ("0", 1 << 20), ("1", 4 << 20)]
        {
            kernel::sysctl("tcp_window_scaling", scaling);
            let (listener, port) = kernel::listen();
            sockopt::set_socket_recv_buffer_size(&listener, buffer).expect("a buffer size");
            let linux = spawn(move || kernel::exchange(kernel::accept(&listener), 300_000));
            let transfer = stack.connect(port, 300_000);
            stack.transfers[transfer].closes = true;
            stack.run_until_all_closed();
            assert_eq!(stack.transfers[transfer].taken, 300_000, "scaling {scaling}, buffer {buffer}");
            assert_eq!(linux.join().expect("Linux's side"), 300_000);
            stack.release_all();
        }
    });
}

/// Our smallest window, two FPDUs, does not block Linux.
#[test]
fn our_smallest_window_transfers_the_stream() {
    let name = "windows::our_smallest_window_transfers_the_stream";
    alone(name, Needs::Namespace, |lab| {
        let config = ironwarp_tcp::TcpConfig {
            rcv_window_bytes: 2 * ironwarp_types::limits::FPDU_BYTES_MAX as u32,
            rto_min: Nanos::from_millis(5),
            ..crate::user_stack::config()
        };
        let mut stack = crate::veth(lab, 9_000, config);
        let (listener, port) = kernel::listen();
        let linux = spawn(move || kernel::exchange(kernel::accept(&listener), BYTES));
        let transfer = stack.connect(port, BYTES);
        stack.transfers[transfer].closes = true;
        stack.run_until_all_closed();
        assert_eq!((stack.transfers[transfer].taken, linux.join().expect("Linux's side")), (BYTES, BYTES));
        stack.release_all();
    });
}
