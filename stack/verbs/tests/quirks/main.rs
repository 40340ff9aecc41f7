//! One fake peer for each habit of the world's stacks, under the number that the survey of peers gives it: start-up and
//! data succeed, or fail as the survey says.

#[path = "../common/mod.rs"]
mod common;

mod data;
mod ending;
mod startup;

/// No habit is left out.
#[test]
fn every_quirk_names_its_peer() {
    let tests = [include_str!("startup.rs"), include_str!("data.rs"), include_str!("ending.rs")].concat();
    for number in 1..=23 {
        assert!(tests.contains(&format!("\nfn q{number}_")), "nobody plays Q{number}");
    }
}
