//! Tests of valid, truncated and hostile option lists.

use proptest::prelude::*;

use super::*;

fn parse(list: &[u8]) -> Options {
    Options::parse(list, Flags::ACK)
}

fn block(start: u32, end: u32) -> SackBlock {
    SackBlock { start: Seq(start), end: Seq(end) }
}

const TS: [u8; 10] = [8, 10, 0, 0, 0, 7, 0, 0, 0, 9];
const STAMPS: Timestamps = Timestamps { tsval: 7, tsecr: 9 };

/// RFC 7323 appendix A: the layout NOP NOP TS is written, and parsed on the fast path.
#[test]
fn encoded_timestamps_are_parsed_back() {
    let stamps = Timestamps { tsval: 0x0102_0304, tsecr: 0xfffe_fdfc };
    assert_eq!(parse(&encode_timestamps(stamps)), Options { timestamps: Some(stamps), ..Options::default() });
}

/// RFC 9293 s3.1, MUST-64: options may begin on any octet.
#[test]
fn timestamps_are_parsed_at_any_octet() {
    for list in [
        [&TS[..], &[0, 0]].concat(),
        [&[1], &TS[..], &[1]].concat(),
        [&[253, 4, 1, 1], &TS[..], &[1, 0]].concat(),
        TS.to_vec(),
    ] {
        assert_eq!(parse(&list).timestamps, Some(STAMPS), "{list:?}");
    }
}

/// RFC 2018 s3: four blocks without timestamps, three with them.
#[test]
fn encoded_sack_blocks_are_parsed_back() {
    let blocks = [block(10, 20), block(u32::MAX - 5, 5), block(40, 50), block(60, 70)];
    for count in 1..=4 {
        let list = OptionBytes::sack(&blocks[..count]);
        assert_eq!(list.as_slice().len(), 4 + 8 * count);
        assert_eq!(parse(list.as_slice()).sack().as_slice(), &blocks[..count]);
    }
    let list = [&encode_timestamps(STAMPS)[..], OptionBytes::sack(&blocks[..3]).as_slice()].concat();
    assert_eq!(list.len(), 40);
    let options = parse(&list);
    assert_eq!((options.timestamps, options.sack().len()), (Some(STAMPS), 3));
}

/// A block that is empty or ends before it begins is ignored.
#[test]
fn invalid_sack_blocks_are_ignored() {
    let list = OptionBytes::sack(&[block(10, 10), block(30, 20), block(1, 2)]);
    assert_eq!(parse(list.as_slice()).sack().as_slice(), &[block(1, 2)]);
}

/// RFC 9293 s3.2, MUST-7: an invalid length ends the list; the options before it remain valid.
#[test]
fn an_option_list_is_parsed_up_to_an_invalid_length() {
    for broken in
        [&[5u8, 0][..], &[5, 1], &[5, 200], &[5], &[8, 3, 1], &[5, 9, 0, 0, 0, 1, 0, 0, 0], &[253, 0]]
    {
        let list = [&TS[..], broken].concat();
        assert_eq!(parse(&list), Options { timestamps: Some(STAMPS), ..Options::default() }, "{list:?}");
    }
}

/// RFC 9293 s3.1: octets after the end-of-list option are ignored.
#[test]
fn the_end_of_list_option_ends_the_list() {
    assert_eq!(parse(&[&[0, 0][..], &TS].concat()), Options::default());
}

#[test]
fn the_first_of_two_options_of_one_kind_counts() {
    let other = [8, 10, 0, 0, 0, 1, 0, 0, 0, 1];
    assert_eq!(parse(&[TS, other].concat()).timestamps, Some(STAMPS));
}

proptest! {
    #[test]
    fn any_octets_are_parsed_without_panic(list in prop::collection::vec(any::<u8>(), 0..41)) {
        is_sound(&list)?;
    }

    /// Lists of known kinds with random lengths exercise more paths than random octets.
    #[test]
    fn lists_of_known_kinds_are_parsed_without_panic(
        list in prop::collection::vec(prop_oneof![0u8..9, Just(10u8), Just(18), Just(26), Just(34)], 0..41),
    ) {
        is_sound(&list)?;
    }
}

/// What is parsed stands in the list: its blocks are not empty, and its octets are there.
fn is_sound(list: &[u8]) -> Result<(), TestCaseError> {
    let options = parse(list);
    let holds = |octets: &[u8]| list.windows(octets.len()).any(|window| window == octets);
    for block in options.sack() {
        prop_assert!(block.start.lt(block.end));
        prop_assert!(holds(&[block.start.0.to_be_bytes(), block.end.0.to_be_bytes()].concat()));
    }
    if let Some(Timestamps { tsval, tsecr }) = options.timestamps {
        prop_assert!(holds(&[&[8, 10][..], &tsval.to_be_bytes(), &tsecr.to_be_bytes()].concat()));
    }
    Ok(())
}
