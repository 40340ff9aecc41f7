//! Bad input: whatever a peer does wrong gets the Terminate that the RFC names, once, then an orderly end. Nothing
//! panics, no memory is touched that a checked segment did not name, and another connection of the same node goes on.
//!
//! A family a file: fields out of range, orders that the tables forbid, lengths from nothing to beyond the longest,
//! FPDUs that claim more than they carry, tags that are not the peer's, Terminates about Terminates, and the messages of
//! RFC 7306. `codes` has the
//! errors, and for each the test that shows it reported, or why it never is.

#[path = "../common/mod.rs"]
mod common;

mod bench;
mod codes;
mod extended;
mod fields;
mod fpdu_length;
mod lengths;
mod orders;
mod tags;
mod terminates;

use proptest::test_runner::Config;

/// Cases of a property: each is a few connections.
fn cases(cases: u32) -> Config {
    Config { cases, failure_persistence: None, ..Config::default() }
}

/// No error is left out: a test reports it, or there is a reason why none can.
#[test]
fn every_error_is_reported_or_its_silence_has_a_reason() {
    let tests = [
        include_str!("fpdu_length.rs"),
        include_str!("extended/atomics.rs"),
        include_str!("extended/immediates.rs"),
        include_str!("extended/responses.rs"),
        include_str!("fields.rs"),
        include_str!("lengths.rs"),
        include_str!("orders.rs"),
        include_str!("tags.rs"),
        include_str!("terminates.rs"),
    ]
    .concat();
    for row in codes::ROWS {
        match row.shown {
            codes::Shown::By(test) => {
                assert!(tests.contains(&format!("fn {test}(")), "{}: no test {test}", row.name);
                assert!(tests.contains(&format!("\"{}\"", row.name)), "{} is in no test", row.name);
            }
            codes::Shown::Never(reason) => {
                assert!(!reason.is_empty() && !tests.contains(&format!("\"{}\"", row.name)), "{}", row.name);
            }
        }
    }
}
