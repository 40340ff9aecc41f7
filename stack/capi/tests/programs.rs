//! Programs in C against the library, under the compiler's sanitizers: each operation once, and
//! each misuse.
#![forbid(unsafe_code)]

mod built;

use std::path::PathBuf;

use built::{compile, compile_against, here, printed};

const SANITIZED: &[&str] =
    &["-std=c11", "-Wpedantic", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"];

fn source(name: &str) -> Vec<PathBuf> {
    vec![here().join("tests/c").join(name)]
}

/// Over each transport below DDP.
#[track_caller]
fn prints_over_both(name: &str, flags: &[&str], line: &str) {
    for transport in ["tcp", "sctp"] {
        let define = format!("-DTRANSPORT=\"{transport}\"");
        let flags = [SANITIZED, flags, &[&define]].concat();
        let program = compile(&format!("{name}-{transport}"), &source(&format!("{name}.c")), &flags);
        assert_eq!(printed(&program, &[]), line, "{transport}");
    }
}

#[test]
fn a_program_in_c_carries_out_every_operation() {
    prints_over_both("verbs", &[], "every operation was carried out\n");
}

#[test]
fn a_program_in_c_lends_memory_by_windows_and_fast_regions() {
    prints_over_both("windows", &[], "everything that was lent came back\n");
}

#[test]
fn a_program_in_c_shares_words_with_its_peers() {
    prints_over_both("atomics", &[], "every sum was exact\n");
}

#[test]
fn a_program_in_c_shares_a_connection_between_threads() {
    prints_over_both("split", &["-pthread"], "three threads shared a connection\n");
}

#[test]
fn misuse_gets_error_numbers_and_nothing_is_touched_that_should_not_be() {
    let program = compile("misuse", &source("misuse.c"), SANITIZED);
    assert_eq!(printed(&program, &[]), "every misuse got its number\n");
}

#[test]
fn misuse_of_windows_and_words_gets_error_numbers_and_the_connection_stays() {
    prints_over_both("misuse_memory", &[], "every misuse of memory got its number\n");
}

/// tests/c/frozen/ironwarp.h is the header as it was when the interface was frozen. It is not
/// changed with the library, only replaced when the upper half of IW_ABI_VERSION changes.
#[test]
fn a_program_of_the_frozen_header_works_with_this_library() {
    let frozen = here().join("tests/c/frozen");
    let program = compile_against(&frozen, "frozen", &[frozen.join("program.c")], SANITIZED);
    assert_eq!(printed(&program, &[]), "the frozen program works\n");
}

#[test]
fn programs_of_older_and_newer_headers_work_with_this_library() {
    let program = compile("older", &source("older.c"), SANITIZED);
    assert_eq!(printed(&program, &[]), "programs of other headers work\n");
}

/// docs/embedding.md shows a whole program: it compiles as it stands there and does what the page
/// says.
#[test]
fn the_sample_of_the_guide_compiles_and_runs() {
    let guide = std::fs::read_to_string(here().join("../../docs/embedding.md")).expect("the guide");
    let (_, rest) = guide.split_once("```c\n").expect("a program in C");
    let (sample, _) = rest.split_once("```").expect("its end");
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("sample-{}.c", std::process::id()));
    std::fs::write(&file, sample).expect("written");
    let program = compile("sample", std::slice::from_ref(&file), SANITIZED);
    assert_eq!(printed(&program, &[]), "placed by RDMA\n");
}
