//! Programs in C for tests: the library as users build it, a compiler, and runs with a deadline.
#![allow(dead_code, reason = "each test uses its part")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

pub fn here() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The folder with the library under its two names. `IRONWARP_CAPI_LIBRARY` names the folder of a
/// build with other flags: `scripts/sanitizers.sh` sets it.
pub fn library() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let from = std::env::var_os("IRONWARP_CAPI_LIBRARY").map_or_else(build, PathBuf::from);
        let folder = tests_own().join("lib");
        fs::create_dir_all(&folder).expect("a folder");
        for (name, built) in [
            ("libironwarp.so", "libironwarp.so"),
            ("libironwarp.so.1", "libironwarp.so"),
            ("libironwarp.a", "libironwarp.a"),
        ] {
            // Tests of several programs may be here at once: the link appears whole.
            let (link, made) = (folder.join(name), folder.join(format!("{name}.{}", std::process::id())));
            let _ = fs::remove_file(&made);
            std::os::unix::fs::symlink(from.join(built), &made).expect("a link");
            fs::rename(made, link).expect("in its place");
        }
        folder
    })
}

/// Cargo builds no shared library for a test, so it is asked to. Returns where cargo puts what it
/// builds without a word about the profile. `IRONWARP_WHOLE_BUILD` selects as `build_options` of
/// `scripts/packages.sh` does.
fn build() -> PathBuf {
    let selected: &[&str] = match std::env::var_os("IRONWARP_WHOLE_BUILD") {
        Some(_) => &["--workspace", "--lib", "--bins", "--examples"],
        None => &["-p", "ironwarp-capi"],
    };
    let output = Command::new(env!("CARGO"))
        .args(["build", "--locked"])
        .args(selected)
        .current_dir(here())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    tests_own().parent().expect("the target folder").join("debug")
}

fn tests_own() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
}

/// Compiles `sources` to a program called `name`, with warnings as errors.
pub fn compile(name: &str, sources: &[PathBuf], flags: &[&str]) -> PathBuf {
    compile_against(&here().join("include"), name, sources, flags)
}

/// The same with the header in another folder.
pub fn compile_against(include: &Path, name: &str, sources: &[PathBuf], flags: &[&str]) -> PathBuf {
    let program = tests_own().join(format!("{name}-{}", std::process::id()));
    let folder = library();
    let output = Command::new("cc")
        .args(["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(include)
        .args(sources)
        .arg("-o")
        .arg(&program)
        .arg("-L")
        .arg(folder)
        .arg(format!("-Wl,-rpath,{}", folder.display()))
        .args(flags)
        .arg("-lironwarp")
        .args(system_libraries(flags))
        .output()
        .expect("a compiler");
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    program
}

/// What a program that brings DPDK's calls of its own links with, behind everything else.
fn system_libraries(flags: &[&str]) -> Vec<String> {
    if flags.contains(&"-DOWNS_EAL") { pkg_config("--libs") } else { Vec::new() }
}

/// What pkg-config says of DPDK.
pub fn pkg_config(what: &str) -> Vec<String> {
    let output = Command::new("pkg-config").args([what, "libdpdk"]).output().expect("pkg-config");
    String::from_utf8_lossy(&output.stdout).split_whitespace().map(str::to_owned).collect()
}

/// Whether DPDK is here at all: without it the library is another one, and some programs have
/// nothing to do.
pub fn has_dpdk() -> bool {
    cfg!(feature = "dpdk") && !pkg_config("--cflags").is_empty()
}

/// Runs a program with a deadline.
pub fn run(program: &Path, arguments: &[&str]) -> Output {
    Command::new("timeout").arg("100").arg(program).args(arguments).output().expect("the program starts")
}

/// Runs a program that must succeed and answers what it printed.
#[track_caller]
pub fn printed(program: &Path, arguments: &[&str]) -> String {
    let output = run(program, arguments);
    let (out, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(
        output.status.success(),
        "{} {arguments:?}: {}\n{out}\n{errors}",
        program.display(),
        output.status
    );
    out.into_owned()
}
