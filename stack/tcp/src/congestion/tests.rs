//! Rules that hold for all algorithms.

use super::*;

const EMSS: u32 = 1_000;
const ALL: [config::Congestion; 3] =
    [config::Congestion::NewReno, config::Congestion::Cubic, config::Congestion::Dctcp];

fn open(which: config::Congestion, segments: u32) -> CongestionWindow {
    let mut window = CongestionWindow::new(which, EMSS, segments * EMSS, Seq(0));
    window.on_cwnd_limited(Seq(1 << 30));
    window
}

fn acked(bytes: u32) -> Acked {
    Acked {
        now: Nanos::from_secs(1),
        bytes,
        una_before: Seq(1),
        snd_nxt: Seq(1 << 20),
        srtt: Nanos::from_micros(50),
        echo: false,
    }
}

/// RFC 5681 s3.1.
#[test]
fn slow_start_grows_by_the_acknowledged_bytes() {
    for which in ALL {
        let mut window = open(which, 10);
        (0..10).for_each(|_| window.on_ack(acked(EMSS)));
        assert_eq!(window.cwnd(), 20 * EMSS, "{which:?}");
    }
}

/// RFC 3465 s2.3: an ACK of many segments opens the window by at most two segments.
#[test]
fn a_stretched_ack_counts_for_two_segments() {
    for which in ALL {
        let mut window = open(which, 10);
        window.on_ack(acked(10 * EMSS));
        assert_eq!(window.cwnd(), 12 * EMSS, "{which:?}");
    }
}

/// RFC 5681 s3.1: one segment per round trip.
#[test]
fn congestion_avoidance_grows_by_one_segment_a_window() {
    let mut window = open(config::Congestion::NewReno, 10);
    window.ssthresh = 10 * EMSS;
    (0..10).for_each(|_| window.on_ack(acked(EMSS)));
    assert_eq!(window.cwnd(), 11 * EMSS);
}

/// RFC 5681 s3.1: slow start ends at ssthresh, also in the middle of an ACK.
#[test]
fn slow_start_does_not_overshoot_ssthresh() {
    for which in ALL {
        let mut window = open(which, 10);
        window.ssthresh = 10 * EMSS + 300;
        window.on_ack(acked(2 * EMSS));
        assert_eq!(window.cwnd(), 10 * EMSS + 300, "{which:?}");
    }
}

/// In the spirit of RFC 7661; RFC 5681 s4.3.
#[test]
fn an_unused_window_does_not_grow() {
    for which in ALL {
        let mut window = open(which, 10);
        window.on_cwnd_limited(Seq(0));
        (0..10).for_each(|_| window.on_ack(acked(EMSS)));
        assert_eq!(window.cwnd(), 10 * EMSS, "{which:?}");
    }
}

/// RFC 5681 s3.1: the window halves. CUBIC s4.6: it falls to seven tenths. It is never below two
/// segments.
#[test]
fn loss_reduces_ssthresh() {
    for (which, expected) in ALL.into_iter().zip([10, 14, 10]) {
        let mut window = open(which, 20);
        window.on_congestion(CongestionSignal::Loss, 20 * EMSS);
        assert_eq!(window.ssthresh(), expected * EMSS, "{which:?}");
        window.on_congestion(CongestionSignal::Loss, EMSS);
        assert_eq!(window.ssthresh(), 2 * EMSS, "{which:?}");
    }
}

#[test]
fn undo_restores_the_window() {
    for which in ALL {
        let mut window = open(which, 20);
        window.on_congestion(CongestionSignal::Loss, 20 * EMSS);
        window.set_loss_window(0);
        assert_eq!(window.cwnd(), EMSS);
        window.undo();
        assert_eq!((window.cwnd(), window.ssthresh()), (20 * EMSS, CWND_MAX), "{which:?}");
    }
}

/// RFC 5681 s4.1.
#[test]
fn after_an_idle_period_the_window_is_the_initial_window() {
    for which in ALL {
        let mut window = open(which, 40);
        window.ssthresh = 20 * EMSS;
        window.on_idle(Nanos::from_secs(2), 10 * EMSS);
        assert_eq!((window.cwnd(), window.ssthresh()), (10 * EMSS, 30 * EMSS), "{which:?}");
    }
}

/// RFC 4821 s4: another segment size changes no window in bytes, but a window holds at least one
/// segment.
#[test]
fn another_segment_size_leaves_the_window_in_bytes() {
    for which in ALL {
        let mut window = open(which, 10);
        for emss in [536, 9_000] {
            window.on_segment_size(emss);
            assert_eq!(window.cwnd(), 10 * EMSS, "{which:?} {emss}");
        }
        window.on_segment_size(60_000);
        assert_eq!(window.cwnd(), 60_000, "{which:?}");
    }
}
