//! The program's output and exit codes.

use std::process::{Command, Output};

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_iwarp-sim")).args(arguments).output().expect("the program runs")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn the_last_line_of_a_run_counts_passed_and_failed_seeds() {
    let output = run(&["--seeds", "0..2", "--jobs", "1"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output).ends_with("2 passed, 0 failed\n"), "{}", text(&output));
    assert!(output.stderr.is_empty(), "no bar without a terminal");
}

/// The run ends with the seeds that have begun when the time is over; all of them passed.
#[test]
fn a_run_with_a_time_limit_counts_the_seeds_that_ran() {
    let output = run(&["--every-scenario", "--seeds", "0..100000", "--seconds", "0", "--jobs", "1"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert!(text(&output).contains("stopped after the time: "), "{}", text(&output));
    assert!(text(&output).ends_with("1 passed, 0 failed\n"), "{}", text(&output));
}

#[test]
fn a_trace_describes_the_seed_and_writes_its_frames() {
    let folder = std::env::temp_dir().join(format!("iwarp-sim-{}", std::process::id()));
    let name = folder.to_string_lossy().into_owned();
    let output = run(&["--seed", "1", "--trace", "--traces", &name]);
    let frames = ["mixed-1.pcapng", "mixed-1-general.pcapng"].map(|name| std::fs::read(folder.join(name)));
    std::fs::remove_dir_all(&folder).expect("the folder is there");
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output).contains("session 0: hosts") && text(&output).contains("hash "));
    let [fast, general] = frames.map(|frames| frames.expect("a capture"));
    assert_eq!(fast[..4], [0x0a, 0x0d, 0x0d, 0x0a]);
    assert_eq!(fast, general, "both paths send the same frames at the same times");
}

#[test]
fn every_scenario_is_listed() {
    let output = run(&["--list"]);
    let listed = text(&output);
    let names = ["mixed", "lossy", "reorder", "outage", "corrupt", "starved", "churn", "many-qps"];
    for name in names.into_iter().chain([
        "terminate",
        "limits",
        "shared",
        "memory",
        "queues",
        "storm",
        "vanish",
        "visitors",
        "slow-starts",
    ]) {
        assert!(listed.lines().any(|line| line.starts_with(name)), "{name}");
    }
}

#[test]
fn bad_arguments_exit_with_code_2_and_list_the_allowed_values() {
    for (arguments, named) in [
        (&["--seeds", "7..3"][..], "0..2000"),
        (&["--seeds", "5..5"], "A smaller than B"),
        (&["--every-scenario", "--seeds", "5..5"], "A smaller than B"),
        (&["--scenario", "sunny"], "mixed, lossy"),
        (&["--jobs", "0"], "1..=1024"),
        (&["--trace"], "--seed"),
        (&["--seed", "minus"], "--seed"),
        (&["--every-scenario", "--seeds", "0..100000000"], "at most 100000000"),
        (&["--every-scenario", "--scenario", "churn"], "--scenario"),
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(stderr.contains(named) && stderr.lines().count() == 1, "{arguments:?}: {stderr}");
    }
}

#[test]
fn help_shows_examples() {
    let output = run(&["--help"]);
    assert!(text(&output).contains("iwarp-sim --seeds 0..2000"));
}

/// The figure of a link is printed with its round-trip time and window, and is that of the golden
/// file.
#[test]
fn the_goodput_of_a_link_is_that_of_the_table() {
    let output = run(&["goodput", "--rtt-us", "50", "--window-kib", "2048", "--loss-ppm", "1000"]);
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(
        text.starts_with("10 Gbit/s, round trip 50 us, windows of 2048 KiB, MTU 1500, 1000 frames lost"),
        "{text}"
    );
    let golden = include_str!("golden/curves.csv");
    let row = golden.lines().find_map(|line| line.strip_prefix("1500,2097152,10,50,1000,")).expect("a row");
    let expected: Vec<u64> =
        row.split(',').map(|kbit| kbit.parse::<u64>().expect("a figure") / 1000).collect();
    let printed = text.lines().skip(1).map(|line| line.split_whitespace().nth(1).expect("a figure").parse());
    assert_eq!(printed.collect::<Result<Vec<u64>, _>>().expect("figures"), expected, "{text}");
}
