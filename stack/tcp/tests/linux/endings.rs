//! Set-up and teardown of connections: half-closed, reset, refused, idle, simultaneous.

use std::io::{ErrorKind, Read};
use std::net::Shutdown;
use std::sync::mpsc;

use ironwarp_port::{Burst, Port};
use ironwarp_stats::Counter;
use ironwarp_tcp::{State, TcpEvents, Transport};
use rustix::net::sockopt;

use crate::kernel::{self, spawn};
use crate::over_a_tap;
use crate::user_stack::{UserStack, our_ip as our_address};

const PORT: u16 = 4_420;
const BYTES: u64 = 1 << 20;

fn listening(stack: &mut UserStack) {
    stack.tcp.listen((our_address(), PORT).into()).expect("room");
}

/// RFC 9293 s3.6, case 1: we close first and continue to read.
#[test]
fn linux_may_send_after_our_fin() {
    over_a_tap("endings::linux_may_send_after_our_fin", |mut stack| {
        let (listener, port) = kernel::listen();
        let linux = spawn(move || {
            let stream = kernel::accept(&listener);
            let received = kernel::receive(&stream);
            kernel::send(&stream, 0, BYTES);
            received
        });
        let transfer = stack.connect(port, 1_000);
        stack.transfers[transfer].closes = true;
        stack.run_until_all_closed();
        assert_eq!((stack.transfers[transfer].taken, linux.join().expect("Linux's side")), (BYTES, 1_000));
        stack.release_all();
    });
}

/// RFC 9293 s3.6, case 2: Linux closes first and continues to read.
#[test]
fn we_may_send_after_the_fin_of_linux() {
    over_a_tap("endings::we_may_send_after_the_fin_of_linux", |mut stack| {
        listening(&mut stack);
        let linux = spawn(|| {
            let stream = kernel::connect(PORT).expect("an answer");
            kernel::send(&stream, 0, 1_000);
            stream.shutdown(Shutdown::Write).expect("an open direction");
            kernel::receive(&stream)
        });
        let transfer = stack.accept(0);
        stack.run_until("Linux's FIN", |stack| {
            stack.transfers[transfer].events.contains(TcpEvents::PEER_CLOSED)
        });
        assert_eq!(stack.tcp.state(stack.transfers[transfer].id), State::CloseWait);
        stack.transfers[transfer].source.left = BYTES;
        stack.transfers[transfer].closes = true;
        stack.run_until_all_closed();
        assert_eq!((stack.transfers[transfer].taken, linux.join().expect("Linux's side")), (1_000, BYTES));
        stack.release_all();
    });
}

/// RFC 9293 s3.10.5: our abort resets Linux in the middle of a stream.
#[test]
fn our_abort_resets_linux() {
    over_a_tap("endings::our_abort_resets_linux", |mut stack| {
        let (listener, port) = kernel::listen();
        let linux = spawn(move || {
            let mut stream = kernel::accept(&listener);
            std::io::copy(&mut stream, &mut std::io::sink()).expect_err("a reset").kind()
        });
        let transfer = stack.connect(port, u64::MAX / 2);
        let id = stack.transfers[transfer].id;
        stack.run_until("a stream", |stack| stack.tcp.acked_bytes(id) > BYTES);
        let now = stack.now();
        stack.tcp.abort(now, id, &mut stack.wires);
        stack.run_until("an error at Linux", |_| linux.is_finished());
        assert_eq!(linux.join().expect("Linux's side"), ErrorKind::ConnectionReset);
        stack.release_all();
    });
}

/// RFC 9293 s3.5.2: Linux's next segment to a released connection is answered with a reset.
#[test]
fn a_released_connection_is_reset() {
    over_a_tap("endings::a_released_connection_is_reset", |mut stack| {
        let (listener, port) = kernel::listen();
        let linux = spawn(move || {
            let mut stream = kernel::accept(&listener);
            kernel::send(&stream, 0, 10);
            stream.read(&mut [0; 8]).expect_err("a reset").kind()
        });
        let transfer = stack.connect(port, 0);
        let id = stack.transfers[transfer].id;
        stack.run_until("an open connection", |stack| stack.tcp.state(id) == State::Established);
        stack.release_all();
        stack.run_until("an error at Linux", |_| linux.is_finished());
        assert_eq!(linux.join().expect("Linux's side"), ErrorKind::ConnectionReset);
    });
}

/// RFC 9293 s3.10.7.4, second step: Linux aborts, with bytes in flight in both directions.
#[test]
fn an_abort_of_linux_resets_us() {
    over_a_tap("endings::an_abort_of_linux_resets_us", |mut stack| {
        for lingers in [true, false] {
            let (listener, port) = kernel::listen();
            let linux = spawn(move || {
                let stream = kernel::accept(&listener);
                let mut taken = 0;
                while taken < 100_000 {
                    kernel::receive_some(&stream, &mut taken, 4_096);
                }
                kernel::send(&stream, 0, 10_000);
                // Linux resets in both cases: because of SO_LINGER, or because of unread bytes.
                let linger = lingers.then_some(std::time::Duration::ZERO);
                sockopt::set_socket_linger(&stream, linger).expect("an open socket");
            });
            let transfer = stack.connect(port, u64::MAX / 2);
            stack.run_until("a reset", |stack| stack.transfers[transfer].is_over());
            assert!(stack.transfers[transfer].events.contains(TcpEvents::RESET));
            linux.join().expect("Linux's side");
            stack.release_all();
        }
    });
}

/// RFC 9293 s3.10.7.1 and s3.10.7.3: no listener on either side.
#[test]
fn closed_ports_refuse_active_and_passive_opens() {
    over_a_tap("endings::closed_ports_refuse_active_and_passive_opens", |mut stack| {
        let (listener, port) = kernel::listen();
        drop(listener);
        let transfer = stack.connect(port, 0);
        stack.run_until("a refusal", |stack| stack.transfers[transfer].is_over());
        assert_eq!(stack.transfers[transfer].events, TcpEvents::REFUSED);
        stack.release_all();
        let linux = spawn(|| kernel::connect(PORT).expect_err("a refusal").kind());
        stack.run_until("a refusal", |_| linux.is_finished());
        assert_eq!(linux.join().expect("Linux's side"), ErrorKind::ConnectionRefused);
    });
}

/// RFC 9293 s3.8.4: Linux's keep-alives, which repeat an acknowledged octet, are answered, and the
/// connection stays open.
#[test]
fn keep_alives_of_linux_are_answered() {
    over_a_tap("endings::keep_alives_of_linux_are_answered", |mut stack| {
        let (listener, port) = kernel::listen();
        let (done, may_end) = mpsc::channel::<()>();
        let linux = spawn(move || {
            let stream = kernel::accept(&listener);
            sockopt::set_socket_keepalive(&stream, true).expect("a connection");
            sockopt::set_tcp_keepidle(&stream, std::time::Duration::from_secs(1)).expect("a second");
            sockopt::set_tcp_keepintvl(&stream, std::time::Duration::from_secs(1)).expect("a second");
            sockopt::set_tcp_keepcnt(&stream, 1).expect("one try");
            may_end.recv().expect("an idle connection");
            kernel::exchange(stream, 1_000)
        });
        let transfer = stack.connect(port, 1_000);
        // Without an answer to the first one, Linux would have aborted before the third.
        let old = stack.read(Counter::TcpDropOutsideWindow);
        stack.run_until("keep-alives", |stack| stack.read(Counter::TcpDropOutsideWindow) >= old + 3);
        done.send(()).expect("a waiting thread");
        stack.transfers[transfer].closes = true;
        stack.run_until_all_closed();
        assert_eq!((stack.transfers[transfer].taken, linux.join().expect("Linux's side")), (1_000, 1_000));
        stack.release_all();
    });
}

/// RFC 9293 s3.5, figure 7, MUST-10: a simultaneous open creates one connection.
#[test]
fn a_simultaneous_open_with_linux_creates_one_connection() {
    over_a_tap("endings::a_simultaneous_open_with_linux_creates_one_connection", |mut stack| {
        let linux = spawn(|| {
            let stream = kernel::connect_from(50_000, 50_001).expect("a crossing SYN");
            kernel::exchange(stream, BYTES)
        });
        // Hold Linux's SYN until ours has left.
        let syn = hold_syn(&mut stack);
        let transfer = stack.connect_from(50_001, (kernel::linux(), 50_000).into(), BYTES);
        stack.wires.flush();
        stack.poll_with(syn);
        stack.run_until("one connection", |stack| {
            stack.transfers[transfer].events.contains(TcpEvents::ESTABLISHED)
        });
        stack.transfers[transfer].closes = true;
        stack.run_until_all_closed();
        assert_eq!((stack.transfers[transfer].taken, linux.join().expect("Linux's side")), (BYTES, BYTES));
        assert_eq!(stack.read(Counter::TcpPassiveOpens), 0);
        stack.release_all();
    });
}

/// Processes everything but TCP until a SYN arrives, and returns the SYN.
fn hold_syn(stack: &mut UserStack) -> Burst<ironwarp_port::dpdk::MbufFrame> {
    // Resolve Linux's address now, so that our SYN can leave at once afterwards.
    let mut held = Burst::new();
    stack.run_until("Linux's SYN", |stack| {
        let now = stack.now();
        let _ = stack.net.route(now, kernel::linux(), stack.wires.first_mut());
        let mut burst = Burst::new();
        stack.wires.first_mut().port_mut().rx_burst(&mut burst);
        for frame in burst {
            // An IPv4 packet with a TCP SYN and no other flags but those of ECN.
            let bytes = ironwarp_port::Frame::bytes(&frame);
            let syn = bytes.get(12..14) == Some(&[8, 0])
                && bytes.get(23) == Some(&6)
                && bytes.get(47).is_some_and(|flags| flags & 0x3f == 2);
            if syn {
                held.push(frame);
            } else {
                stack.poll_with([frame].into_iter().collect());
            }
        }
        !held.is_empty()
    });
    held
}

/// RFC 6191 s2: Linux reuses a port at once although we closed first and are in TIME-WAIT.
#[test]
fn linux_reuses_a_port_in_time_wait() {
    over_a_tap("endings::linux_reuses_a_port_in_time_wait", |mut stack| {
        listening(&mut stack);
        for _ in 0..3 {
            let linux = spawn(|| {
                let stream = kernel::connect_from(50_000, PORT).expect("an answer");
                kernel::send(&stream, 0, 1_000);
                // Linux closes after us, so that we enter TIME-WAIT.
                kernel::receive(&stream)
            });
            let transfer = stack.accept(1_000);
            stack.transfers[transfer].closes = true;
            stack.run_until_all_closed();
            assert_eq!(
                (stack.transfers[transfer].taken, linux.join().expect("Linux's side")),
                (1_000, 1_000)
            );
            stack.release_all();
        }
    });
}
