//! Tests of the receive window.

use ironwarp_types::Ecn;
use proptest::prelude::*;

use super::*;
use crate::header::{Flags, Options};

fn side(window: u32) -> ReceiveSide {
    let mut side = ReceiveSide::new(&TcpConfig { rcv_window_bytes: window, ..TcpConfig::default() }, 0);
    side.on_syn(Seq(999), true);
    side
}

fn segment(seq: u32, len: u16, flags: Flags) -> Segment {
    Segment {
        seq: Seq(seq),
        ack: Seq(0),
        window: 0,
        flags,
        start: 54,
        end: 54 + len,
        ecn: Ecn::NotEct,
        options: Options::default(),
    }
}

/// RFC 7323 s2.3: the shift is the smallest one that fits.
#[test]
fn the_scale_is_the_smallest_that_holds_the_window() {
    for (bytes, shift) in [(1, 0), (65_535, 0), (65_536, 1), (512 * 1024, 4), (RCV_WINDOW_BYTES_MAX, 14)] {
        assert_eq!(side(bytes).wscale(), shift, "{bytes}");
    }
}

#[test]
fn a_partial_fpdu_does_not_shrink_the_window() {
    let mut side = side(512 * 1024);
    assert_eq!(u32::from(side.advertise_window()) << 4, 512 * 1024);
    side.rcv_nxt = side.rcv_nxt.plus(60_000);
    side.unread = 60_000;
    assert_eq!(u32::from(side.advertise_window()) << 4, 512 * 1024);
}

#[test]
fn unread_bytes_beyond_the_allowance_close_the_window() {
    let mut side = side(65_536);
    let mut arrived = 0;
    loop {
        let window = u32::from(side.advertise_window()) << side.wscale();
        if window == 0 {
            break;
        }
        let len = window.min(1_000);
        side.rcv_nxt = side.rcv_nxt.plus(len);
        side.unread += len;
        arrived += len;
        assert!(arrived <= 65_536 + UNREAD_ALLOWANCE_BYTES + 2);
    }
    side.unread = 0;
    assert!(side.needs_window_update(1_460));
    assert_eq!(u32::from(side.advertise_window()) << side.wscale(), 65_536);
}

/// RFC 9293 s3.10.7.4, table 6.
#[test]
fn a_segment_is_acceptable_when_any_part_of_it_is_in_the_window() {
    let mut side = side(1_000);
    side.advertise_window();
    let data = |seq, len| segment(seq, len, Flags::ACK);
    for (segment, verdict) in [
        (data(1_000, 0), true),
        (data(1_999, 0), true),
        (data(999, 0), false),
        (data(2_001, 0), false),
        (data(900, 100), false),
        (data(900, 101), true),
        (data(1_999, 500), true),
        (data(2_000, 1), false),
        (segment(2_000, 0, Flags::FIN), false),
        (segment(1_999, 0, Flags::FIN), true),
    ] {
        assert_eq!(side.acceptable(&segment), verdict, "{segment:?}");
    }
}

proptest! {
    /// RFC 9293 s3.8.6: the right edge never moves left, for any arrivals and reads, on the fast
    /// path as off it. RFC 9293 (SHLD-14); RFC 5041 sA; RFC 7323 s2.3 and s2.4.
    #[test]
    fn the_right_edge_never_moves_left(
        window in 1u32..1 << 21,
        steps in prop::collection::vec((any::<bool>(), 0u32..70_000), 1..200),
    ) {
        let mut side = side(window);
        side.advertise_window();
        for (read, n) in steps {
            if read {
                side.unread -= n.min(side.unread);
            } else {
                let n = n.min(side.rcv_adv.since(side.rcv_nxt));
                side.rcv_nxt = side.rcv_nxt.plus(n);
                side.unread += n;
            }
            let before = side.rcv_adv;
            let mut general = ReceiveSide { fast_path: false, ..side.clone() };
            let field = side.advertise_window();
            prop_assert_eq!((field, side.rcv_adv), (general.advertise_window(), general.rcv_adv));
            let announced = side.rcv_nxt.plus(u32::from(field) << side.wscale());
            prop_assert!(side.rcv_adv.geq(before));
            // The announced edge may be up to one unit short.
            prop_assert!(before.delta(announced) < 1 << side.wscale());
            prop_assert!(side.unread <= window + UNREAD_ALLOWANCE_BYTES + (1 << side.wscale()));
        }
    }
}
