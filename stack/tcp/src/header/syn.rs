//! The options of a SYN: maximum segment size, window scale, SACK-permitted, timestamps.
//!
//! Source: RFC 9293 s3.2 and s3.7.1, RFC 7323 s2 and s3, RFC 2018 s2. Parsed like any option list.

use super::Timestamps;
use super::options::{
    KIND_MSS, KIND_NOP, KIND_SACK_PERMITTED, KIND_TIMESTAMPS, KIND_WINDOW_SCALE, OptionBytes, OptionIter,
    parse_timestamps,
};

/// The largest window scale (RFC 7323 s2.3). A larger one is reduced to this value.
const WINDOW_SCALE_MAX: u8 = 14;

/// The options that a SYN offers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct SynOptions {
    pub(crate) mss: Option<u16>,
    pub(crate) window_scale: Option<u8>,
    pub(crate) sack_permitted: bool,
    pub(crate) timestamps: Option<Timestamps>,
}

impl SynOptions {
    /// Parses an option list.
    pub(crate) fn parse(list: &[u8]) -> Self {
        let mut options = SynOptions::default();
        for (kind, data) in OptionIter(list) {
            match (kind, data) {
                (KIND_MSS, &[high, low]) => {
                    options.mss = options.mss.or(Some(u16::from_be_bytes([high, low])));
                }
                (KIND_WINDOW_SCALE, &[shift]) => {
                    options.window_scale = options.window_scale.or(Some(shift.min(WINDOW_SCALE_MAX)));
                }
                (KIND_SACK_PERMITTED, &[]) => options.sack_permitted = true,
                (KIND_TIMESTAMPS, data) => {
                    options.timestamps = options.timestamps.or_else(|| parse_timestamps(data))
                }
                _ => {}
            }
        }
        options
    }

    /// Returns the list as octets. Timestamps are not included: they are written before it, as in
    /// every segment.
    pub(crate) fn encode(&self) -> OptionBytes {
        let mut list = OptionBytes::EMPTY;
        if let Some(mss) = self.mss {
            let [high, low] = mss.to_be_bytes();
            list.append(&[KIND_MSS, 4, high, low]);
        }
        if self.sack_permitted {
            list.append(&[KIND_NOP, KIND_NOP, KIND_SACK_PERMITTED, 2]);
        }
        if let Some(shift) = self.window_scale {
            list.append(&[KIND_NOP, KIND_WINDOW_SCALE, 3, shift]);
        }
        list
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::header::options::encode_timestamps;

    const MSS_ONLY: SynOptions =
        SynOptions { mss: Some(1460), window_scale: None, sack_permitted: false, timestamps: None };

    #[test]
    fn encoded_syn_options_are_parsed_back() {
        for options in [
            SynOptions { window_scale: Some(4), ..MSS_ONLY },
            SynOptions { mss: Some(8960), sack_permitted: true, ..MSS_ONLY },
            SynOptions { mss: None, window_scale: Some(0), ..MSS_ONLY },
            SynOptions { window_scale: Some(14), sack_permitted: true, ..MSS_ONLY },
            SynOptions::default(),
        ] {
            let list = options.encode();
            assert_eq!(SynOptions::parse(list.as_slice()), options);
            let stamps = Timestamps { tsval: 1, tsecr: 2 };
            let stamped = [&encode_timestamps(stamps)[..], list.as_slice()].concat();
            assert_eq!(SynOptions::parse(&stamped), SynOptions { timestamps: Some(stamps), ..options });
        }
    }

    /// RFC 9293 s3.2, MUST-6: an option that is not implemented is skipped by its length.
    #[test]
    fn an_unknown_option_is_skipped() {
        assert_eq!(SynOptions::parse(&[1, 253, 4, 0xde, 0xad, 2, 4, 0x05, 0xb4]), MSS_ONLY);
    }

    /// RFC 9293 s3.2, MUST-7: an illegal option length is harmless.
    #[test]
    fn a_syn_option_list_is_parsed_up_to_an_invalid_length() {
        let good = [2, 4, 0x05, 0xb4];
        for broken in
            [&[3u8, 0][..], &[3, 1, 7], &[3, 200, 7], &[3], &[253, 0], &[2, 3, 1], &[4, 3, 1], &[8, 4, 1, 1]]
        {
            let list = [&good[..], broken].concat();
            assert_eq!(SynOptions::parse(&list), MSS_ONLY, "{broken:?}");
        }
    }

    /// RFC 7323 s2.3: a window scale above 14 is used as 14.
    #[test]
    fn a_window_scale_above_fourteen_is_used_as_fourteen() {
        assert_eq!(SynOptions::parse(&[3, 3, 200]).window_scale, Some(14));
    }

    proptest! {
        #[test]
        fn any_syn_options_are_parsed_without_panic(list in prop::collection::vec(any::<u8>(), 0..41)) {
            let shift = SynOptions::parse(&list).window_scale;
            prop_assert!(shift.is_none_or(|shift| shift <= WINDOW_SCALE_MAX));
        }
    }
}
