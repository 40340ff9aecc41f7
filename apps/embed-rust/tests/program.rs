//! The program over DPDK's rings, as a user starts it: without a device and huge pages.
#![cfg(feature = "dpdk")]
#![forbid(unsafe_code)]

use std::process::Command;

fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    let program = env!("CARGO_BIN_EXE_embed-rust");
    let output = Command::new("timeout").arg("100").arg(program).args(arguments).output().expect("it starts");
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn eight_clients_write_read_and_compare_over_dpdk() {
    let (code, out, errors) = run(&["both", "--clients", "8", "--blocks", "500"]);
    assert_eq!(code, Some(0), "{out}\n{errors}");
    let numbers: Vec<u64> = out.split(' ').filter_map(|word| word.parse().ok()).collect();
    assert!(
        matches!(numbers[..], [written, read, refused] if written >= 4000 && read >= 4000 && refused > 0),
        "{out}"
    );
}

#[test]
fn arguments_that_cannot_be_used_end_with_two_and_one_line() {
    for arguments in
        [&["both", "--clients", "0"][..], &["server", "--config", "/no/such", "--at", "10.0.0.1:1"], &[]]
    {
        let (code, out, errors) = run(arguments);
        assert_eq!((code, out.as_str()), (Some(2), ""), "{arguments:?}");
        assert_eq!(errors.lines().count(), 1, "{errors}");
    }
}
