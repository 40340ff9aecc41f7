//! The options of a SYN: maximum segment size and window scale.
//!
//! Source: RFC 9293 s3.2 and s3.7.1, RFC 7323 s2. An option that is not known is skipped by its length. A list that
//! breaks off or contradicts itself is read up to there: what came before it stands, since RFC 9293 (MUST-7) wants a
//! stack to survive any option.

use smoltcp::wire::TcpOption;

/// MSS (4), window scale (3) and one octet of padding.
const SYN_OPTIONS_BYTES_MAX: usize = 8;

/// The largest shift (RFC 7323 s2.3): a larger one is taken as this one.
const WINDOW_SCALE_MAX: u8 = 14;

/// What a SYN offers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct SynOptions {
    pub(crate) mss: Option<u16>,
    pub(crate) window_scale: Option<u8>,
}

impl SynOptions {
    /// Reads an option list.
    pub(crate) fn parse(mut list: &[u8]) -> Self {
        let mut options = SynOptions::default();
        while let Ok((rest, option)) = TcpOption::parse(list) {
            match option {
                TcpOption::EndOfList => break,
                TcpOption::MaxSegmentSize(mss) => options.mss = Some(mss),
                TcpOption::WindowScale(shift) => options.window_scale = Some(shift.min(WINDOW_SCALE_MAX)),
                _ => {}
            }
            list = rest;
        }
        options
    }

    /// The list as octets and its length, a multiple of four.
    pub(crate) fn encode(&self) -> ([u8; SYN_OPTIONS_BYTES_MAX], usize) {
        let mut octets = [0u8; SYN_OPTIONS_BYTES_MAX];
        let mut rest = &mut octets[..];
        let mut used = 0;
        if let Some(mss) = self.mss {
            rest = TcpOption::MaxSegmentSize(mss).emit(rest);
            used += 4;
        }
        if let Some(shift) = self.window_scale {
            let rest = TcpOption::NoOperation.emit(rest);
            TcpOption::WindowScale(shift).emit(rest);
            used += 4;
        }
        (octets, used)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_offered_is_read_back() {
        for options in [
            SynOptions { mss: Some(1460), window_scale: Some(4) },
            SynOptions { mss: Some(8960), window_scale: None },
            SynOptions { mss: None, window_scale: Some(0) },
            SynOptions::default(),
        ] {
            let (octets, used) = options.encode();
            assert_eq!(SynOptions::parse(&octets[..used]), options);
        }
    }

    /// RFC 9293 s3.2, MUST-6: an option that is not implemented is skipped by its length.
    #[test]
    fn an_unknown_option_is_skipped() {
        let options = SynOptions::parse(&[1, 253, 4, 0xde, 0xad, 2, 4, 0x05, 0xb4]);
        assert_eq!(options, SynOptions { mss: Some(1460), window_scale: None });
    }

    /// RFC 9293 s3.2, MUST-7: an illegal option length does no harm.
    #[test]
    fn a_broken_list_is_read_up_to_the_break() {
        let good = [2, 4, 0x05, 0xb4];
        for broken in [&[3u8, 0][..], &[3, 1, 7], &[3, 200, 7], &[3], &[253, 0], &[2, 3, 1]] {
            let list = [&good[..], broken].concat();
            assert_eq!(SynOptions::parse(&list), SynOptions { mss: Some(1460), window_scale: None });
        }
    }

    /// RFC 7323 s2.3: a shift above 14 is used as 14.
    #[test]
    fn a_shift_above_fourteen_is_taken_as_fourteen() {
        assert_eq!(SynOptions::parse(&[3, 3, 200]).window_scale, Some(14));
    }

    proptest! {
        #[test]
        fn any_octets_can_be_read(list in prop::collection::vec(any::<u8>(), 0..40)) {
            let shift = SynOptions::parse(&list).window_scale;
            prop_assert!(shift.is_none_or(|shift| shift <= WINDOW_SCALE_MAX));
        }
    }
}
