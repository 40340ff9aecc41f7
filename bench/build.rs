//! Records in the binary which compiler and which commit made it, so that a report says what it
//! measured.

use std::process::Command;

fn main() {
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    emit("IRONWARP_RUSTC", output_of(&rustc, &["--version"]));
    emit("IRONWARP_COMMIT", output_of("git", &["describe", "--always", "--dirty", "--abbrev=12"]));
    emit("IRONWARP_PROFILE", std::env::var("PROFILE").ok());
    emit("IRONWARP_TARGET", std::env::var("TARGET").ok());
    println!("cargo::rerun-if-changed=build.rs");
    // In a linked worktree `.git` is a file: git itself names the paths.
    for name in ["HEAD", "index"] {
        if let Some(path) = output_of("git", &["rev-parse", "--git-path", name]) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
}

fn emit(name: &str, value: Option<String>) {
    if let Some(value) = value {
        println!("cargo::rustc-env={name}={value}");
    }
}

/// What a program prints, or nothing where it is missing or fails: a source archive has no git.
fn output_of(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}
