//! Every fuzz target runs its seeds, and random changes of them, without a fuzzer: what they found
//! stays found, and the targets stay current.

use std::fs;
use std::path::Path;

use ironwarp_fuzz::{
    capi, esp, fpdu, frames, neighbours, network, nvmf, rdmap, sctp, sctp_sessions, startup, tcp, toml, verbs,
};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

/// Runs a target from the files of a folder of `fuzz`: each as it is, and `changed` times with
/// bytes that are replaced, inserted or missing.
fn run(folder: &str, changed: u32, target: impl Fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(folder);
    let mut files: Vec<_> =
        fs::read_dir(&folder).expect("a folder").flatten().map(|file| file.path()).collect();
    files.retain(|file| file.is_file());
    files.sort();
    assert!(!files.is_empty(), "{} has no seeds", folder.display());
    let seeds: Vec<_> = files.iter().map(|file| fs::read(file).expect("a seed")).collect();
    for (file, seed) in files.iter().zip(&seeds) {
        println!("{}", file.display());
        target(seed);
    }
    let change = (any::<prop::sample::Index>(), 0..3u8, any::<u8>());
    let inputs = (prop::sample::select(seeds), prop::collection::vec(change, 1..8)).prop_map(
        |(mut bytes, changes)| {
            for (at, kind, byte) in changes {
                let at = at.index(bytes.len() + 1);
                match (kind, bytes.get_mut(at)) {
                    (0, Some(old)) => *old = byte,
                    (1, Some(_)) => drop(bytes.remove(at)),
                    _ => bytes.insert(at, byte),
                }
            }
            bytes
        },
    );
    let config = ProptestConfig {
        max_shrink_iters: 200,
        source_file: Some(file!()),
        ..ProptestConfig::with_cases(changed)
    };
    let outcome = TestRunner::new(config).run(&inputs, |bytes| {
        target(&bytes);
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn toml_texts() {
    run("../configs", 200, toml::run);
}

#[test]
fn any_frames() {
    run("seeds/frames", 50, frames::run);
}

#[test]
fn neighbour_discovery() {
    run("seeds/neighbours", 50, neighbours::run);
}

#[test]
fn segments() {
    run("seeds/tcp", 50, tcp::run);
}

#[test]
fn startup_frames() {
    run("seeds/startup", 50, startup::run);
}

#[test]
fn fpdus() {
    run("seeds/fpdu", 50, fpdu::run);
}

#[test]
fn rdma_messages() {
    run("seeds/rdmap", 50, rdmap::run);
}

#[test]
fn packets_of_sctp() {
    run("seeds/sctp", 50, sctp::run);
}

#[test]
fn sessions_over_sctp() {
    run("seeds/sctp_sessions", 200, sctp_sessions::run);
}

#[test]
fn packets_of_esp() {
    run("seeds/esp", 200, esp::run);
}

#[test]
fn a_lossy_network() {
    run("seeds/network", 20, network::run);
}

#[test]
fn calls_of_applications() {
    run("seeds/verbs", 30, verbs::run);
}

#[test]
fn calls_of_c_programs() {
    run("seeds/capi", 30, capi::run);
}

#[test]
fn any_steps_leave_the_honest_host_its_data() {
    run("seeds/nvmf", 24, nvmf::run);
}
