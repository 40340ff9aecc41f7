//! What is understood, and how the rest is refused.

use super::*;
use ironwarp_bench::{PathKind, Test};

fn args(line: &str) -> Result<Args, CliExit> {
    let words: Vec<std::ffi::OsString> = line.split(' ').map(Into::into).collect();
    Args::read(&[vec!["iwarp-perf".into()], words].concat())
}

fn refusal(line: &str) -> String {
    let outcome = args(line).and_then(|args| {
        args.check().and_then(|()| {
            let test = args.command.test().unwrap_or(Test::SendLat);
            args.cases(test, PathKind::Memif).map(|_| ())
        })
    });
    match outcome {
        Err(CliExit::BadArguments(text)) => text,
        other => panic!("{line} was not refused: {other:?}"),
    }
}

#[test]
fn a_refusal_is_one_line_that_names_the_option_the_value_and_what_is_allowed() {
    let text = refusal("send-lat --size 0");
    assert!(text.contains("--size") && text.contains("'0'") && text.contains("1 to 1G"), "{text}");
    let text = refusal("send-lat --qps 5000");
    assert!(text.contains("--qps") && text.contains("5000") && text.contains("1..=1024"), "{text}");
    let text = refusal("sendlat");
    assert!(text.contains("sendlat") && text.contains("send-lat") && text.contains("suite"), "{text}");
    for line in ["send-lat --size 0", "sendlat", "--wrong", "send-lat --pair rocket"] {
        assert!(!refusal(line).contains('\n'), "{line}");
    }
}

#[test]
fn options_that_mean_nothing_to_a_test_are_refused_and_not_ignored() {
    for (line, text) in [
        ("tcp-lat --qps 2", "--qps does not apply to tcp-lat"),
        ("send-lat --depth 4", "--depth does not apply to send-lat"),
        ("frame-lat --validate", "--validate does not apply to frame-lat"),
        ("send-bw --path lo", "--path does not apply to send-bw"),
        ("suite --size 64", "--size does not apply to suite"),
        ("send-lat --quick", "--quick does not apply to send-lat"),
        ("read-bw --inline 64", "--inline does not apply to read-bw"),
        ("atomic-bw --size 16", "--size does not apply to atomic-bw"),
        ("atomic-bw --signal-every 4", "--signal-every does not apply to atomic-bw"),
        ("atomic-lat --rate 5", "--rate does not apply to atomic-lat"),
        ("imm-lat --all-sizes", "--all-sizes does not apply to imm-lat"),
        ("write-imm-lat --inline 4", "--inline does not apply to write-imm-lat"),
        ("read-bw --atomics locked", "--atomics does not apply to read-bw"),
        ("scaling --qps 2", "--qps does not apply to scaling"),
        ("scaling --quick", "--quick does not apply to scaling"),
        ("send-bw --words 4", "--words does not apply to send-bw"),
        ("read-lat --operation cmp-swap", "--operation does not apply to read-lat"),
        ("write-imm-bw --inline 8", "--inline does not apply to write-imm-bw"),
        ("send-lat --owner local", "--owner does not apply to send-lat"),
        ("atomics --size 8", "--size does not apply to atomics"),
        ("atomics --words 8", "--words does not apply to atomics"),
        ("tcp-lat --stats-page p", "--stats-page does not apply to tcp-lat"),
        ("frame-bw --cores 2", "--cores does not apply to frame-bw"),
        ("suite --cores 2", "--cores does not apply to suite"),
        ("tcp-lat --events", "--events does not apply to tcp-lat"),
        ("frame-bw --events", "--events does not apply to frame-bw"),
        ("suite --events", "--events does not apply to suite"),
        ("server --config f --events", "--events does not apply to server"),
        ("tcp-bw --markers", "--markers does not apply to tcp-bw"),
        ("frame-lat --no-crc", "--no-crc does not apply to frame-lat"),
        ("server --config f --json o", "--json does not apply to server"),
    ] {
        assert_eq!(refusal(line), text);
    }
}

#[test]
fn options_that_exclude_each_other_are_named() {
    for (line, one, other) in [
        ("send-lat --pair memif --config f", "--pair", "--config"),
        ("send-lat --iterations 5 --duration 1", "--iterations", "--duration"),
        ("send-lat --size 5 --all-sizes", "--size", "--all-sizes"),
        ("send-lat --connect 10.0.0.1", "--connect", "--config"),
        ("send-lat --events --rate 1000", "--events", "--rate"),
        ("send-lat --connect 10.0.0.1 --config f --markers", "--config", "--markers"),
        ("send-lat --connect 10.0.0.1 --config f --no-crc", "--config", "--no-crc"),
    ] {
        let text = refusal(line);
        assert!(text.contains(one.trim_start_matches('-')) || text.contains(other), "{line}: {text}");
    }
}

#[test]
fn more_memory_than_an_end_may_take_is_refused_with_the_sum() {
    let text = refusal("write-bw --size 1G --qps 2");
    assert_eq!(text, "--size × --qps = 2147483648 bytes: at most 1073741824 bytes of memory an end");
}

#[test]
fn a_completion_is_asked_for_before_the_queue_is_full() {
    let text = refusal("write-bw --depth 4 --signal-every 8");
    assert_eq!(text, "--signal-every 8: at most the depth, which is 4");
}

#[test]
fn several_cores_are_for_both_ends_on_one_machine() {
    for line in ["read-bw --config f --connect 10.0.0.1 --cores 2", "server --config f --cores 2"] {
        assert!(refusal(line).starts_with("--cores 2: 1 with --config"), "{line}");
    }
}

#[test]
fn the_only_core_is_remote_from_nobody() {
    for line in ["atomic-lat --owner remote", "atomic-bw --owner remote --cores 1"] {
        assert!(refusal(line).starts_with("--owner remote: with --cores 2"), "{line}");
    }
}

#[test]
fn help_shows_examples_and_is_no_failure() {
    let Err(CliExit::Help(text)) = args("--help") else { panic!("help is shown") };
    assert!(text.contains("Examples:") && text.contains("--signal-every") && text.contains("tcp-bw"));
}

#[test]
fn all_sizes_are_those_of_perftest() {
    let plan = args("write-bw -a").expect("understood").cases(Test::WriteBw, PathKind::Memif).expect("fits");
    let sizes: Vec<u64> = plan.cases.iter().map(|case| case.bytes).collect();
    assert_eq!((sizes.len(), sizes[0], sizes[22]), (23, 2, 8 << 20));
}

#[test]
fn a_bandwidth_test_keeps_the_link_full_unless_told_otherwise() {
    let depth = |line: &str| {
        args(line).expect("understood").cases(Test::WriteBw, PathKind::Memif).expect("fits").cases[0].depth
    };
    assert_eq!(depth("write-bw --size 1M"), 4);
    assert_eq!(depth("write-bw --size 64"), 64);
    assert_eq!(depth("write-bw --size 64 --depth 7"), 7);
}

#[test]
fn baselines_over_sockets_run_over_veth_and_everything_else_over_the_device() {
    let case = |line: &str, test| {
        args(line).expect("understood").cases(test, PathKind::Ring).expect("fits").cases[0].path
    };
    assert_eq!(case("tcp-lat", Test::TcpLat), PathKind::Veth);
    assert_eq!(case("tcp-lat --path lo", Test::TcpLat), PathKind::Lo);
    assert_eq!(case("frame-lat", Test::FrameLat), PathKind::Ring);
}
