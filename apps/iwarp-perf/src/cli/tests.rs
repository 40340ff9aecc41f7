//! Tests of the command line: cases from valid options, errors for the others.

use super::*;
use crate::limits::check_case;
use crate::values;
use ironwarp_bench::{Case, PathKind, Test};

fn args(line: &str) -> Result<Args, CliExit> {
    let words: Vec<std::ffi::OsString> = line.split(' ').map(Into::into).collect();
    match CommandLine::read(&[vec!["iwarp-perf".into()], words].concat())? {
        CommandLine::Test(args) => Ok(*args),
        CommandLine::Tool(tool) => panic!("{line}: {tool:?}"),
    }
}

fn error(line: &str) -> String {
    let outcome = args(line).and_then(|args| {
        args.check().and_then(|()| {
            let test = args.command.test().unwrap_or(Test::SendLat);
            args.cases(test, PathKind::Memif).map(|_| ())
        })
    });
    match outcome {
        Err(CliExit::BadArguments(text)) => text,
        other => panic!("{line} was not rejected: {other:?}"),
    }
}

#[test]
fn an_error_is_one_line_with_the_option_the_value_and_the_allowed_values() {
    let text = error("send-lat --size 0");
    assert!(text.contains("--size") && text.contains("'0'") && text.contains("1 to 1G"), "{text}");
    let text = error("send-lat --qps 5000");
    assert!(text.contains("--qps") && text.contains("5000") && text.contains("1..=1024"), "{text}");
    let text = error("sendlat");
    assert!(text.contains("sendlat") && text.contains("send-lat") && text.contains("suite"), "{text}");
    for line in ["send-lat --size 0", "sendlat", "--wrong", "send-lat --pair rocket"] {
        assert!(!error(line).contains('\n'), "{line}");
    }
}

#[test]
fn options_that_do_not_apply_to_a_test_are_rejected() {
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
        ("send-inv-lat --inline 64", "--inline does not apply to send-inv-lat"),
        ("send-lat --slice-limit 2", "--slice-limit does not apply to send-lat"),
        ("suite --client-timeout 2", "--client-timeout does not apply to suite"),
        ("suite --slice-limit 2", "--slice-limit does not apply to suite"),
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
        ("smoltcp-lat --qps 2", "--qps does not apply to smoltcp-lat"),
        ("smoltcp-bw --path lo", "--path does not apply to smoltcp-bw"),
        ("conn-rate --qps 2", "--qps does not apply to conn-rate"),
        ("conn-rate --validate", "--validate does not apply to conn-rate"),
        ("conn-rate --events", "--events does not apply to conn-rate"),
        ("conn-rate --all-sizes", "--all-sizes does not apply to conn-rate"),
        ("write-bw --srq", "--srq does not apply to write-bw"),
        ("atomic-lat --srq", "--srq does not apply to atomic-lat"),
        ("read-write-bw --validate", "--validate does not apply to read-write-bw"),
        ("read-write-bw --inline 64", "--inline does not apply to read-write-bw"),
        ("tcp-bw --markers", "--markers does not apply to tcp-bw"),
        ("frame-lat --no-crc", "--no-crc does not apply to frame-lat"),
        ("suite --interval 1", "--interval does not apply to suite"),
        ("scaling --run-infinitely", "--run-infinitely does not apply to scaling"),
        ("server --config f --format table", "--format does not apply to server"),
        ("server --config f --json o", "--json does not apply to server"),
    ] {
        assert_eq!(error(line), text);
    }
}

#[test]
fn an_error_names_one_of_two_options_that_conflict() {
    for (line, one, other) in [
        ("send-lat --pair memif --config f", "--pair", "--config"),
        ("send-lat --iterations 5 --duration 1", "--iterations", "--duration"),
        ("send-lat --size 5 --all-sizes", "--size", "--all-sizes"),
        ("send-lat --connect 10.0.0.1", "--connect", "--config"),
        ("send-lat --events --rate 1000", "--events", "--rate"),
        ("send-lat --connect 10.0.0.1 --config f --markers", "--config", "--markers"),
        ("send-lat --connect 10.0.0.1 --config f --no-crc", "--config", "--no-crc"),
    ] {
        let text = error(line);
        assert!(text.contains(one.trim_start_matches('-')) || text.contains(other), "{line}: {text}");
    }
}

#[test]
fn an_error_shows_the_memory_that_exceeds_the_limit() {
    let text = error("write-bw --size 1G --qps 2");
    assert_eq!(text, "--size × --qps = 2147483648 bytes: at most 1073741824 bytes of memory at each end");
}

#[test]
fn a_work_request_is_signalled_before_the_queue_is_full() {
    let text = error("write-bw --depth 4 --signal-every 8");
    assert_eq!(text, "--signal-every 8: at most the depth, which is 4");
}

#[test]
fn a_shared_receive_queue_holds_the_receives_of_all_queue_pairs_on_one_core() {
    let text = error("send-bw --srq --qps 1024 --depth 64 --size 64");
    assert_eq!(text, "--srq: --qps × --depth need 139264 receives; a shared receive queue holds 65536");
    assert!(error("send-bw --srq --cores 2").starts_with("--srq: needs one polled core at each end"));
    let given = args("send-bw --srq").expect("valid").cases(Test::SendBw, PathKind::Memif).expect("fits");
    assert_eq!((given[0].srq, check_case(&given[0])), (true, Ok(())));
    let other = Case { test: Test::WriteBw, ..given[0].clone() };
    assert!(check_case(&other).is_err(), "a Write consumes no receive");
}

#[test]
fn connections_are_limited_and_carry_no_message_by_default() {
    assert_eq!(error("conn-rate --depth 257"), "--depth 257: conn-rate takes 1 to 256 connections at a time");
    let case = |line: &str| {
        args(line).expect("valid").cases(Test::ConnRate, PathKind::Memif).expect("fits").remove(0)
    };
    assert_eq!((case("conn-rate").bytes, case("conn-rate").depth), (0, 16));
    let given = case("conn-rate --size 64 --depth 256");
    assert_eq!((given.bytes, given.depth, check_case(&given)), (64, 256, Ok(())));
    assert_eq!(check_case(&case("conn-rate")), Ok(()));
    assert!(check_case(&Case { depth: 257, ..given.clone() }).is_err());
    assert!(
        check_case(&Case { test: Test::SendBw, bytes: 0, ..given }).is_err(),
        "only conn-rate has no message"
    );
}

#[test]
fn connection_set_up_has_no_columns_of_perftest() {
    assert_eq!(error("conn-rate --format perftest"), "--format does not apply to conn-rate");
}

#[test]
fn several_cores_need_both_ends_on_one_machine() {
    for line in ["read-bw --config f --connect 10.0.0.1 --cores 2", "server --config f --cores 2"] {
        assert!(error(line).starts_with("--cores 2: 1 with --config"), "{line}");
    }
}

#[test]
fn a_remote_owner_needs_two_cores() {
    for line in ["atomic-lat --owner remote", "atomic-bw --owner remote --cores 1"] {
        assert!(error(line).starts_with("--owner remote: needs --cores 2"), "{line}");
    }
}

#[test]
fn a_duration_is_rounded_up_to_whole_intervals() {
    let intervals = |line: &str| args(line).expect("valid").intervals().expect("valid").expect("intervals");
    let some = intervals("send-lat --duration 2.5 --interval 1");
    assert_eq!((some.length.as_secs_f64(), some.count), (1.0, 3));
    let unlimited = intervals("send-lat --run-infinitely");
    assert_eq!((unlimited.length.as_secs_f64(), unlimited.count), (5.0, u32::MAX));
    assert_eq!(args("send-lat").expect("valid").intervals(), Ok(None));
}

#[test]
fn an_interval_is_at_most_the_duration() {
    let text = args("send-lat --interval 3").expect("valid").intervals().expect_err("too long");
    let expected = "--interval 3: at most the duration, which is 2 seconds";
    assert_eq!(text, CliExit::BadArguments(expected.to_owned()));
    assert!(error("send-lat --interval 0").contains("0.1 to 3600 seconds"));
    for line in
        ["--interval 1 --iterations 5", "--run_infinitely --duration 5", "--run-infinitely --all-sizes"]
    {
        assert!(error(&format!("send-lat {line}")).contains("cannot be used with"), "{line}");
    }
}

#[test]
fn help_shows_examples() {
    let Err(CliExit::Help(text)) = args("--help") else { panic!("no help text") };
    assert!(text.contains("Examples:") && text.contains("--signal-every") && text.contains("tcp-bw"));
}

#[test]
fn all_sizes_are_the_sizes_of_perftest() {
    let cases = args("write-bw -a").expect("valid").cases(Test::WriteBw, PathKind::Memif).expect("fits");
    let sizes: Vec<u64> = cases.iter().map(|case| case.bytes).collect();
    assert_eq!((sizes.len(), sizes[0], sizes[22]), (23, 2, 8 << 20));
}

#[test]
fn the_default_depth_of_a_bandwidth_test_keeps_the_link_busy() {
    let depth =
        |line: &str| args(line).expect("valid").cases(Test::WriteBw, PathKind::Memif).expect("fits")[0].depth;
    assert_eq!(depth("write-bw --size 1M"), 4);
    assert_eq!(depth("write-bw --size 64"), 64);
    assert_eq!(depth("write-bw --size 64 --depth 7"), 7);
}

#[test]
fn tcp_tests_run_over_veth_and_other_tests_over_the_device() {
    let case =
        |line: &str, test| args(line).expect("valid").cases(test, PathKind::Ring).expect("fits")[0].path;
    assert_eq!(case("tcp-lat", Test::TcpLat), PathKind::Veth);
    assert_eq!(case("tcp-lat --path lo", Test::TcpLat), PathKind::Lo);
    assert_eq!(case("frame-lat", Test::FrameLat), PathKind::Ring);
}

#[test]
fn sizes_have_units_of_1024() {
    for (text, value) in
        [("1", 1), ("64", 64), ("1k", 1024), ("4KiB", 4096), ("1M", 1 << 20), ("1G", 1 << 30)]
    {
        assert_eq!(values::bytes(text), Ok(value), "{text}");
    }
    for text in
        ["", "0", "-1", "k", "1kk", "1kM", "1T", "2G", "1.5k", "0x10", "99999999999999999999", "1iB", "1iB1"]
    {
        assert!(values::bytes(text).is_err(), "{text}");
    }
}

#[test]
fn a_duration_is_positive_and_finite() {
    assert_eq!(values::seconds("0.5"), Ok(0.5));
    for text in ["0", "-1", "nan", "inf", "1e9", "two"] {
        assert!(values::seconds(text).is_err(), "{text}");
    }
}

#[test]
fn an_address_may_have_a_port() {
    for (text, full) in [
        ("10.0.0.2", "10.0.0.2:18515"),
        ("10.0.0.2:7", "10.0.0.2:7"),
        ("fd00::1", "[fd00::1]:18515"),
        ("[fd00::1]", "[fd00::1]:18515"),
        ("[fd00::1]:4420", "[fd00::1]:4420"),
    ] {
        assert_eq!(values::address(text), Ok(full.parse().expect("an address with its port")));
    }
    for text in ["10.0.0", "host", "10.0.0.2:", "10.0.0.2:0", "10.0.0.2:70000", "[::1]:0", "[::1", "fd00::g"]
    {
        assert!(values::address(text).is_err(), "{text}");
    }
}

#[test]
fn a_send_with_invalidate_has_room_for_a_steering_tag() {
    let text = error("send-inv-lat --size 3");
    assert_eq!(text, "--size 3: send-inv-lat takes 4 bytes or more, because messages hold a steering tag");
    let given = args("send-inv-lat --all-sizes").expect("valid").cases(Test::SendInvLat, PathKind::Memif);
    assert_eq!(given.expect("fits").first().map(|case| case.bytes), Some(4));
    let case = Case::new(Test::SendInvLat, 3, 1500, PathKind::Memif);
    assert!(check_case(&case).is_err(), "from another machine");
}

/// The examples of the program and of its tools: each parses, and each file of `configs/` that it
/// names exists.
#[test]
fn every_example_parses_and_names_files_that_exist() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut count = 0;
    let command = command();
    for documented in command.get_subcommands().chain([&command]) {
        let help = documented.get_after_help().map(ToString::to_string).unwrap_or_default();
        for line in help.lines() {
            let example = line.trim_start().trim_start_matches("sudo ");
            if !example.starts_with("iwarp-perf ") {
                continue;
            }
            // A remark follows two spaces; a colon ends one that leads to the next line.
            let words: Vec<&str> = example.split("  ").next().unwrap_or(example).split(' ').collect();
            let missing =
                words.iter().find(|word| word.starts_with("configs/") && !root.join(word).is_file());
            assert_eq!(missing, None, "{line}");
            let parsed = command.clone().try_get_matches_from(words);
            assert!(parsed.is_ok(), "{line}: {}", parsed.expect_err("an error"));
            count += 1;
        }
    }
    assert!(count >= 30, "{count} examples");
}

/// The sources of every program, its help texts among them, name no configuration that does not
/// exist.
#[test]
fn every_configuration_that_a_program_names_exists() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut folders = vec![root.join("apps")];
    let (mut named, mut missing) = (0, Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder").flatten().map(|entry| entry.path()) {
            if entry.is_dir() {
                folders.push(entry);
            } else if entry.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&entry).expect("text");
                for part in text.split("configs/").skip(1) {
                    let end =
                        part.find(|one: char| !matches!(one, 'a'..='z' | '0'..='9' | '-' | '_' | '/' | '.'));
                    let name = part[..end.unwrap_or(part.len())].trim_end_matches('.');
                    if name.ends_with(".toml") {
                        named += 1;
                        missing.extend((!root.join("configs").join(name).is_file()).then(|| name.to_owned()));
                    }
                }
            }
        }
    }
    assert!(named > 10 && missing.is_empty(), "{named} named, missing: {missing:?}");
}
