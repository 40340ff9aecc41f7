//! The header that is kept in the repository is the one that the sources make, and compilers of C and C++ take it.
#![forbid(unsafe_code)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn here() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn made() -> String {
    let config = cbindgen::Config::from_file(here().join("cbindgen.toml")).expect("cbindgen.toml");
    let bindings =
        cbindgen::Builder::new().with_crate(here()).with_config(config).generate().expect("a header");
    let mut text = Vec::new();
    bindings.write(&mut text);
    String::from_utf8(text).expect("text")
}

/// `IRONWARP_WRITE_HEADER=1 cargo test -p ironwarp-capi --test header` rewrites it.
#[test]
fn the_header_is_the_one_that_the_sources_make() {
    let kept = here().join("include/ironwarp.h");
    let made = made();
    if std::env::var_os("IRONWARP_WRITE_HEADER").is_some() {
        fs::write(&kept, &made).expect("written");
    }
    let kept = fs::read_to_string(kept).expect("the header");
    assert!(kept == made, "include/ironwarp.h is out of date: IRONWARP_WRITE_HEADER=1 rewrites it");
}

/// Every exported function is in the header, and its text says which promises it leans on.
#[test]
fn every_exported_function_is_declared() {
    let header = fs::read_to_string(here().join("include/ironwarp.h")).expect("the header");
    let mut exported = 0;
    for folder in
        ["src", "src/boundary", "src/host", "src/objects", "src/objects/memory", "src/objects/queues"]
    {
        for file in fs::read_dir(here().join(folder)).expect("a folder").flatten() {
            if file.path().is_dir() {
                continue;
            }
            let text = fs::read_to_string(file.path()).expect("a source file");
            for line in text.lines().filter(|line| line.contains("extern \"C\" fn iw_")) {
                let (_, rest) = line.split_once("fn ").expect("a function");
                let (name, _) = rest.split_once('(').expect("arguments");
                assert!(header.contains(&format!("{name}(")), "{name} is not in the header");
                exported += 1;
            }
        }
    }
    assert!(exported > 40, "{exported} functions were found");
}

#[test]
fn compilers_take_the_header_alone_and_without_a_word() {
    for (compiler, flags) in
        [("cc", ["-std=c11", "-xc"]), ("cc", ["-std=c99", "-xc"]), ("c++", ["-std=c++11", "-xc++"])]
    {
        let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("alone{}.c", flags[0]));
        fs::write(
            &source,
            "#include <ironwarp.h>\nint main(void) { return (int)sizeof(struct iw_event) == 0; }\n",
        )
        .expect("written");
        let output = Command::new(compiler)
            .args(flags)
            .args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", "-I"])
            .arg(here().join("include"))
            .arg(source)
            .output()
            .expect("a compiler");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{compiler} {flags:?}: {said}");
    }
}
