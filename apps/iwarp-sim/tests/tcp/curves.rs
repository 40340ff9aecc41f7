//! The curves are what the golden file says.

use iwarp_sim::tcp::curves;

const GOLDEN: &str = include_str!("../golden/curves.csv");

/// How the file is written anew.
const ACCEPT: &str =
    "cargo run --release -p iwarp-sim -- curves --write apps/iwarp-sim/tests/golden/curves.csv";

/// A difference is a change of behaviour. Where it is wanted, say why in the commit and write the file anew.
#[test]
fn goodput_over_the_grid_is_what_the_golden_file_says() {
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
