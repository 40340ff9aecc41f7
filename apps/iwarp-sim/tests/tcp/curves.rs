//! Compares the goodput curves with the golden file.

use iwarp_sim::tcp::curves;

const GOLDEN: &str = include_str!("../golden/curves.csv");

/// The command that regenerates the file.
const ACCEPT: &str =
    "cargo run --release -p iwarp-sim -- curves --write apps/iwarp-sim/tests/golden/curves.csv";

/// A difference is a change of behaviour. If it is intended, explain it in the commit and
/// regenerate the file.
#[test]
fn goodput_over_the_grid_equals_the_golden_file() {
    let table = curves::table(|| ()).expect("every run ends");
    let changed: Vec<String> = GOLDEN
        .lines()
        .zip(table.lines())
        .filter(|(golden, now)| golden != now)
        .map(|(golden, now)| format!("  was {golden}\n  is  {now}"))
        .collect();
    assert!(
        GOLDEN == table,
        "{} of {} points differ:\n{}\nTo accept them:\n  {}",
        changed.len(),
        table.lines().count(),
        changed.iter().take(20).cloned().collect::<Vec<_>>().join("\n"),
        ACCEPT
    );
}
