//! The header that is kept in the repository is the one that the sources make, and compilers of C
//! and C++ take it.
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

/// Returns the texts of the source files of a folder and of those in it.
fn sources(folder: &Path) -> Vec<String> {
    let mut texts = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            texts.extend(sources(&path));
        } else {
            texts.push(fs::read_to_string(path).expect("a source file"));
        }
    }
    texts
}

/// Returns the names of the exported functions.
fn exported() -> Vec<String> {
    let mut names = Vec::new();
    for text in sources(&here().join("src")) {
        for line in text.lines().filter(|line| line.contains("extern \"C\" fn iw_")) {
            let (_, rest) = line.split_once("fn ").expect("a function");
            let (name, _) = rest.split_once('(').expect("arguments");
            names.push(name.to_owned());
        }
    }
    assert!(names.len() > 100, "{} functions were found", names.len());
    names
}

/// Every exported function is in the header, and its text says which promises it leans on.
#[test]
fn every_exported_function_is_declared() {
    let header = fs::read_to_string(here().join("include/ironwarp.h")).expect("the header");
    for name in exported() {
        assert!(header.contains(&format!("{name}(")), "{name} is not in the header");
    }
}

#[test]
fn the_fuzz_target_calls_every_exported_function() {
    let target = sources(&here().join("../../fuzz/targets/src/capi")).concat();
    let missing: Vec<String> =
        exported().into_iter().filter(|name| !target.contains(&format!("{name}("))).collect();
    assert!(missing.is_empty(), "fuzz/targets/src/capi does not call {missing:?}");
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
