//! One fake peer for each quirk of existing stacks, numbered as in the survey of peers. Start-up
//! and data transfer succeed, or fail as the survey says.

mod data;
mod ending;
mod startup;

/// The tests cover every quirk.
#[test]
fn every_quirk_names_its_peer() {
    let tests = [include_str!("startup.rs"), include_str!("data.rs"), include_str!("ending.rs")].concat();
    for number in 1..=23 {
        assert!(tests.contains(&format!("\nfn q{number}_")), "no test of Q{number}");
    }
}
