//! Bad input: for each error of a peer the stack sends the Terminate that the RFC names, once, and
//! ends the connection in order. Nothing panics, no memory is touched except what a checked segment
//! names, and another connection of the same node continues.
//!
//! Each file has one family: fields out of range, forbidden orders, lengths from zero to beyond the
//! longest, FPDUs with wrong lengths, tags that the peer may not use, Terminates about Terminates,
//! and the messages of RFC 7306. `codes` lists the errors, each with the test that shows its
//! report, or with the reason why it is never reported.

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
    Config { cases, ..Config::default() }
}

/// Each error has a test that reports it, or a reason why none can.
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
