//! Connections that begin and end in every way that two sides can: half closed, reset, refused, idle, at once.

use std::io::{ErrorKind, Read};
use std::net::Shutdown;
use std::sync::mpsc;

use ironwarp_port::{Burst, Port};
use ironwarp_stats::Counter;
use ironwarp_tcp::{State, TcpEvents};
use rustix::net::sockopt;

use crate::kernel::{self, aside};
use crate::ours::{Ours, ours as our_address};
use crate::over_a_tap;

const PORT: u16 = 4_420;
const BYTES: u64 = 1 << 20;

fn listening(ours: &mut Ours) {
    ours.tcp.listen((our_address(), PORT).into()).expect("room");
}

/// RFC 9293 s3.6, case 1: we close first and go on reading.
#[test]
fn linux_sends_on_after_our_fin() {
    over_a_tap("endings::linux_sends_on_after_our_fin", |mut ours| {
        let (listener, port) = kernel::listen();
        let linux = aside(move || {
            let stream = kernel::accept(&listener);
            let received = kernel::receive(&stream);
            kernel::send(&stream, 0, BYTES);
            received
        });
        let talk = ours.connect(port, 1_000);
        ours.talks[talk].closes = true;
        ours.until_all_closed();
        assert_eq!((ours.talks[talk].taken, linux.join().expect("Linux's side")), (BYTES, 1_000));
        ours.release_all();
    });
}

/// RFC 9293 s3.6, case 2: Linux closes first and goes on reading.
#[test]
fn we_send_on_after_linuxs_fin() {
    over_a_tap("endings::we_send_on_after_linuxs_fin", |mut ours| {
        listening(&mut ours);
        let linux = aside(|| {
            let stream = kernel::connect(PORT).expect("an answer");
            kernel::send(&stream, 0, 1_000);
            stream.shutdown(Shutdown::Write).expect("an open direction");
            kernel::receive(&stream)
        });
        let talk = ours.accept(0);
        ours.until("Linux's FIN", |ours| ours.talks[talk].events.contains(TcpEvents::PEER_CLOSED));
        assert_eq!(ours.tcp.state(ours.talks[talk].id), State::CloseWait);
        ours.talks[talk].source.left = BYTES;
        ours.talks[talk].closes = true;
        ours.until_all_closed();
        assert_eq!((ours.talks[talk].taken, linux.join().expect("Linux's side")), (1_000, BYTES));
        ours.release_all();
    });
}

/// RFC 9293 s3.10.5: an abort of ours is a reset at Linux, in the middle of a stream.
#[test]
fn our_abort_resets_linux() {
    over_a_tap("endings::our_abort_resets_linux", |mut ours| {
        let (listener, port) = kernel::listen();
        let linux = aside(move || {
            let mut stream = kernel::accept(&listener);
            std::io::copy(&mut stream, &mut std::io::sink()).expect_err("a reset").kind()
        });
        let talk = ours.connect(port, u64::MAX / 2);
        let id = ours.talks[talk].id;
        ours.until("a stream", |ours| ours.tcp.acked_bytes(id) > BYTES);
        let now = ours.now();
        ours.tcp.abort(now, id, &mut ours.wire);
        ours.until("an error at Linux", |_| linux.is_finished());
        assert_eq!(linux.join().expect("Linux's side"), ErrorKind::ConnectionReset);
        ours.release_all();
    });
}

/// RFC 9293 s3.5.2: a connection that we have forgotten is reset by what Linux sends next.
#[test]
fn a_connection_that_we_forgot_is_reset() {
    over_a_tap("endings::a_connection_that_we_forgot_is_reset", |mut ours| {
        let (listener, port) = kernel::listen();
        let linux = aside(move || {
            let mut stream = kernel::accept(&listener);
            kernel::send(&stream, 0, 10);
            stream.read(&mut [0; 8]).expect_err("a reset").kind()
        });
        let talk = ours.connect(port, 0);
        let id = ours.talks[talk].id;
        ours.until("an open connection", |ours| ours.tcp.state(id) == State::Established);
        ours.release_all();
        ours.until("an error at Linux", |_| linux.is_finished());
        assert_eq!(linux.join().expect("Linux's side"), ErrorKind::ConnectionReset);
    });
}

/// RFC 9293 s3.10.7.4, second step: Linux aborts, with bytes on their way both ways.
#[test]
fn linuxs_abort_resets_us() {
    over_a_tap("endings::linuxs_abort_resets_us", |mut ours| {
        for lingers in [true, false] {
            let (listener, port) = kernel::listen();
            let linux = aside(move || {
                let stream = kernel::accept(&listener);
                let mut taken = 0;
                while taken < 100_000 {
                    kernel::receive_some(&stream, &mut taken, 4_096);
                }
                kernel::send(&stream, 0, 10_000);
                // Linux resets either way: it was told to, or it has bytes that nobody will read.
                let linger = lingers.then_some(std::time::Duration::ZERO);
                sockopt::set_socket_linger(&stream, linger).expect("an open socket");
            });
            let talk = ours.connect(port, u64::MAX / 2);
            ours.until("a reset", |ours| ours.talks[talk].is_over());
            assert!(ours.talks[talk].events.contains(TcpEvents::RESET));
            linux.join().expect("Linux's side");
            ours.release_all();
        }
    });
}

/// RFC 9293 s3.10.7.1 and s3.10.7.3: nobody listens, at either side.
#[test]
fn closed_ports_refuse_both_ways() {
    over_a_tap("endings::closed_ports_refuse_both_ways", |mut ours| {
        let (listener, port) = kernel::listen();
        drop(listener);
        let talk = ours.connect(port, 0);
        ours.until("a refusal", |ours| ours.talks[talk].is_over());
        assert_eq!(ours.talks[talk].events, TcpEvents::REFUSED);
        ours.release_all();
        let linux = aside(|| kernel::connect(PORT).expect_err("a refusal").kind());
        ours.until("a refusal", |_| linux.is_finished());
        assert_eq!(linux.join().expect("Linux's side"), ErrorKind::ConnectionRefused);
    });
}

/// RFC 9293 s3.8.4: Linux's keep-alives, which repeat an octet that we have, are answered; the connection goes on.
#[test]
fn linuxs_keep_alives_are_answered() {
    over_a_tap("endings::linuxs_keep_alives_are_answered", |mut ours| {
        let (listener, port) = kernel::listen();
        let (done, may_end) = mpsc::channel::<()>();
        let linux = aside(move || {
            let stream = kernel::accept(&listener);
            sockopt::set_socket_keepalive(&stream, true).expect("a connection");
            sockopt::set_tcp_keepidle(&stream, std::time::Duration::from_secs(1)).expect("a second");
            sockopt::set_tcp_keepintvl(&stream, std::time::Duration::from_secs(1)).expect("a second");
            sockopt::set_tcp_keepcnt(&stream, 1).expect("one try");
            may_end.recv().expect("an idle connection");
            kernel::exchange(stream, 1_000)
        });
        let talk = ours.connect(port, 1_000);
        // Had the first not been answered, Linux would have given up before the third.
        let old = ours.read(Counter::TcpDropOutsideWindow);
        ours.until("keep-alives", |ours| ours.read(Counter::TcpDropOutsideWindow) >= old + 3);
        done.send(()).expect("a waiting thread");
        ours.talks[talk].closes = true;
        ours.until_all_closed();
        assert_eq!((ours.talks[talk].taken, linux.join().expect("Linux's side")), (1_000, 1_000));
        ours.release_all();
    });
}

/// RFC 9293 s3.5, figure 7, MUST-10: both sides open at once, and it is one connection.
#[test]
fn both_sides_open_at_once() {
    over_a_tap("endings::both_sides_open_at_once", |mut ours| {
        let linux = aside(|| {
            let stream = kernel::connect_from(50_000, 50_001).expect("a crossing SYN");
            kernel::exchange(stream, BYTES)
        });
        // Linux's SYN is kept back until ours has left.
        let syn = hold_back_a_syn(&mut ours);
        let talk = ours.connect_from(50_001, (kernel::linux(), 50_000).into(), BYTES);
        ours.wire.flush();
        ours.turn_with(syn);
        ours.until("one connection", |ours| ours.talks[talk].events.contains(TcpEvents::ESTABLISHED));
        ours.talks[talk].closes = true;
        ours.until_all_closed();
        assert_eq!((ours.talks[talk].taken, linux.join().expect("Linux's side")), (BYTES, BYTES));
        assert_eq!(ours.read(Counter::TcpPassiveOpens), 0);
        ours.release_all();
    });
}

/// Answers everything but TCP until a SYN arrives, and gives that.
fn hold_back_a_syn(ours: &mut Ours) -> Burst<ironwarp_port::dpdk::MbufFrame> {
    // Linux is asked for its address now, so that nothing is left to wait for afterwards.
    let mut held = Burst::new();
    ours.until("Linux's SYN", |ours| {
        let now = ours.now();
        let _ = ours.net.route(now, kernel::linux(), &mut ours.wire);
        let mut burst = Burst::new();
        ours.wire.port_mut().rx_burst(&mut burst);
        for frame in burst {
            // An IPv4 packet of TCP with nothing but SYN among its flags, but for what ECN adds.
            let bytes = ironwarp_port::Frame::bytes(&frame);
            let syn = bytes.get(12..14) == Some(&[8, 0])
                && bytes.get(23) == Some(&6)
                && bytes.get(47).is_some_and(|flags| flags & 0x3f == 2);
            if syn {
                held.push(frame);
            } else {
                ours.turn_with([frame].into_iter().collect());
            }
        }
        !held.is_empty()
    });
    held
}

/// RFC 6191 s2: Linux uses a port again at once although we, who closed first, are in TIME-WAIT.
#[test]
fn linux_uses_a_port_again_that_is_in_time_wait() {
    over_a_tap("endings::linux_uses_a_port_again_that_is_in_time_wait", |mut ours| {
        listening(&mut ours);
        for _ in 0..3 {
            let linux = aside(|| {
                let stream = kernel::connect_from(50_000, PORT).expect("an answer");
                kernel::send(&stream, 0, 1_000);
                // Ends after ours, so that ours is in TIME-WAIT.
                kernel::receive(&stream)
            });
            let talk = ours.accept(1_000);
            ours.talks[talk].closes = true;
            ours.until_all_closed();
            assert_eq!((ours.talks[talk].taken, linux.join().expect("Linux's side")), (1_000, 1_000));
            ours.release_all();
        }
    });
}
