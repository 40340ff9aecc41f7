//! The rules of the layout: dependencies between crates point down, and `unsafe` is limited to
//! listed paths.
//!
//! The dependencies are those of `docs/architecture.md`. A crate that is not listed here fails the
//! test, so a new crate is added on purpose. `docs/design-decisions.md`, decision 9, lists where
//! `unsafe` may stand.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Each crate and the crates of this workspace that it may build on. Development dependencies may
/// point anywhere.
const ARROWS: &[(&str, &[&str])] = &[
    ("ironwarp-types", &[]),
    ("ironwarp-llp", &["types"]),
    ("ironwarp-dpdk-sys", &[]),
    ("ironwarp-arch", &[]),
    ("ironwarp-crypto", &[]),
    ("ironwarp-stats", &["arch"]),
    ("ironwarp-rings", &["types", "arch"]),
    ("ironwarp-mem", &["types", "arch"]),
    ("ironwarp-port", &["types", "arch", "stats", "dpdk-sys"]),
    ("ironwarp-net", &["types", "arch", "stats", "port"]),
    ("ironwarp-timers", &["types", "arch"]),
    ("ironwarp-ipsec", &["types", "arch", "stats", "crypto", "port"]),
    ("ironwarp-tcp", &["types", "llp", "timers", "arch", "stats", "port", "net"]),
    ("ironwarp-sctp", &["types", "llp", "timers", "arch", "stats", "port", "net"]),
    ("ironwarp-iwarp", &["types", "llp", "arch", "stats", "rings", "mem"]),
    (
        "ironwarp",
        &["types", "llp", "timers", "arch", "stats", "rings", "mem", "port", "net", "tcp", "sctp", "iwarp"],
    ),
    ("ironwarp-tests", &[]),
    ("ironwarp-capi", &["ironwarp"]),
    ("ironwarp-verbs-compat", &["port", "ironwarp"]),
    ("ironwarp-tokio", &["ironwarp"]),
    ("ironwarp-sim", &["types", "arch", "stats", "port"]),
    ("ironwarp-testkit", &["types", "llp", "port", "net"]),
    ("ironwarp-bench", &["types", "arch", "stats", "port", "ironwarp"]),
    ("ironwarp-cli", &[]),
    ("ironwarp-capi-rlib", &["ironwarp"]),
    (
        "ironwarp-fuzz",
        &[
            "types",
            "stats",
            "crypto",
            "ipsec",
            "port",
            "tcp",
            "iwarp",
            "ironwarp",
            "capi-rlib",
            "sim",
            "testkit",
            "iwarp-nvmf",
        ],
    ),
    ("iwarp-perf", &["types", "arch", "stats", "port", "ironwarp", "ironwarp-bench", "cli", "iwarp-nvmf"]),
    ("iwarp-ping", &["types", "ironwarp", "cli"]),
    ("iwarp-responder", &["types", "ironwarp", "cli"]),
    ("iwarp-top", &["stats", "cli"]),
    ("iwarp-run", &["ironwarp", "cli"]),
    ("iwarp-nvmf", &["ironwarp", "cli"]),
    ("iwarp-soak", &["types", "ironwarp", "cli", "iwarp-nvmf"]),
    (
        "iwarp-sim",
        &["types", "arch", "stats", "port", "net", "llp", "tcp", "sctp", "ironwarp", "sim", "testkit", "cli"],
    ),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace's root")
}

fn members() -> Vec<PathBuf> {
    let manifest = parse(&root().join("Cargo.toml"));
    let members = manifest["workspace"]["members"].as_array().expect("a list of members");
    assert!(members.len() > 10, "{} members", members.len());
    members.iter().map(|member| root().join(member.as_str().expect("a path"))).collect()
}

fn parse(manifest: &Path) -> toml::Table {
    fs::read_to_string(manifest).expect("a manifest").parse().expect("TOML")
}

/// The name as the table above writes it.
fn short(name: &str) -> &str {
    match name {
        "ironwarp-bench" => name,
        _ => name.strip_prefix("ironwarp-").unwrap_or(name),
    }
}

#[test]
fn crates_import_downward_only() {
    let rules: BTreeMap<_, _> = ARROWS.iter().copied().collect();
    let names: Vec<String> = members().iter().map(|path| name_of(path)).collect();
    for (member, name) in members().iter().zip(&names) {
        let allowed = rules.get(name.as_str()).unwrap_or_else(|| panic!("{name} is not listed in ARROWS"));
        let manifest = parse(&member.join("Cargo.toml"));
        let Some(dependencies) = manifest.get("dependencies").and_then(|table| table.as_table()) else {
            continue;
        };
        for dependency in dependencies.keys().filter(|dependency| names.contains(dependency)) {
            assert!(allowed.contains(&short(dependency)), "{name} imports upward: {dependency}");
        }
    }
}

fn name_of(member: &Path) -> String {
    parse(&member.join("Cargo.toml"))["package"]["name"].as_str().expect("a name").to_owned()
}

/// The paths whose code may use `unsafe`: the first column of decision 9's table.
fn unsafe_paths() -> Vec<String> {
    let text = fs::read_to_string(root().join("docs/design-decisions.md")).expect("the decisions");
    let (_, decision) = text.split_once("### Decision 9:").expect("decision 9");
    let (decision, _) = decision.split_once("### Decision 10:").expect("decision 10");
    let rows = decision.lines().filter_map(|line| line.strip_prefix("| `"));
    let paths: Vec<_> =
        rows.map(|row| row.split_once('`').expect("a path in backticks").0.to_owned()).collect();
    assert!(!paths.is_empty(), "decision 9 has no table");
    paths
}

#[test]
fn each_listed_path_uses_unsafe() {
    for path in unsafe_paths() {
        let path = root().join(path);
        let files = if path.is_dir() { sources(&path) } else { vec![path.clone()] };
        let is_used = files.iter().any(|file| uses_unsafe(&fs::read_to_string(file).expect("a source file")));
        assert!(is_used, "{} needs no line in decision 9", path.display());
    }
}

#[test]
fn unsafe_is_limited_to_listed_paths() {
    let listed_paths = unsafe_paths();
    let mut offenders = Vec::new();
    for member in members() {
        for file in sources(&member) {
            let relative = file.strip_prefix(root()).expect("inside the workspace").to_owned();
            // Tests that count allocations must implement an allocator, which is an unsafe trait.
            let counts_allocations = relative.components().any(|part| part.as_os_str() == "tests");
            let listed = listed_paths.iter().any(|path| relative.starts_with(path));
            if !listed
                && !counts_allocations
                && uses_unsafe(&fs::read_to_string(&file).expect("a source file"))
            {
                offenders.push(relative);
            }
        }
    }
    assert!(offenders.is_empty(), "unsafe outside the paths of decision 9: {offenders:?}");
}

/// Whether code, not a comment or a lint's name, uses the keyword.
fn uses_unsafe(text: &str) -> bool {
    text.lines().map(|line| line.split("//").next().unwrap_or("")).any(|code| {
        ["unsafe {", "unsafe fn", "unsafe impl", "unsafe trait", "unsafe extern"]
            .iter()
            .any(|use_| code.contains(use_))
    })
}

#[test]
fn crates_not_listed_forbid_unsafe_code() {
    let listed_paths = unsafe_paths();
    for member in members() {
        let relative = member.strip_prefix(root()).expect("inside the workspace").to_owned();
        if listed_paths.iter().any(|path| Path::new(path).starts_with(&relative)) {
            continue;
        }
        for file in ["src/lib.rs", "src/main.rs"].map(|file| member.join(file)) {
            if let Ok(text) = fs::read_to_string(&file) {
                assert!(
                    text.contains("#![forbid(unsafe_code)]"),
                    "{} does not forbid unsafe code",
                    file.display()
                );
            }
        }
    }
}

#[test]
fn every_source_file_has_a_module_comment() {
    for member in members() {
        for file in sources(&member) {
            let text = fs::read_to_string(&file).expect("a source file");
            assert!(text.starts_with("//!"), "{} has no header", file.display());
        }
    }
}

#[test]
fn no_dependency_requires_a_newer_compiler() {
    let stated = parse(&root().join("Cargo.toml"))["workspace"]["package"]["rust-version"].to_string();
    let stated = version(stated.trim_matches('"'));
    let metadata = std::process::Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--filter-platform", "x86_64-unknown-linux-gnu"])
        .current_dir(root())
        .output()
        .expect("cargo metadata runs");
    let metadata: serde_json::Value = serde_json::from_slice(&metadata.stdout).expect("JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    let asking: Vec<_> = packages.iter().filter(|package| package["rust_version"].is_string()).collect();
    assert!(asking.len() > 50, "{} packages ask for a compiler", asking.len());
    for package in asking {
        let asked = package["rust_version"].as_str().unwrap_or_default();
        assert!(version(asked) <= stated, "{} asks for Rust {asked}", package["name"]);
    }
}

/// Where Cargo does not look for tests itself, each file is a program of the manifest or a module
/// of `all.rs`.
#[test]
fn every_file_of_tests_is_built() {
    let mut built = 0;
    let programs: Vec<PathBuf> = members().iter().flat_map(|member| programs_of(member)).collect();
    for member in members() {
        if parse(&member.join("Cargo.toml"))["package"].get("autotests").is_none() {
            continue;
        }
        let all = fs::read_to_string(member.join("tests/all.rs")).expect("the program of most tests");
        for entry in fs::read_dir(member.join("tests")).expect("the folder of tests").flatten() {
            let path = entry.path().canonicalize().expect("a file");
            // A folder of data.
            if path.is_dir() && sources(&path).is_empty() {
                continue;
            }
            let name = path.file_stem().and_then(|name| name.to_str()).expect("a name");
            let is_module = all.lines().any(|line| line == format!("mod {name};"));
            let is_program = programs.contains(&path) || programs.contains(&path.join("main.rs"));
            assert!(is_module != is_program, "{} is not built once", path.display());
            built += 1;
        }
    }
    assert!(built > 50, "{built} files were found");
}

/// The files that a manifest lists as programs of tests.
fn programs_of(member: &Path) -> Vec<PathBuf> {
    let manifest = parse(&member.join("Cargo.toml"));
    let listed = manifest.get("test").and_then(|programs| programs.as_array());
    let paths = listed.into_iter().flatten().filter_map(|program| program.get("path")?.as_str());
    paths.map(|path| member.join(path).canonicalize().expect("a file")).collect()
}

fn version(text: &str) -> (u32, u32) {
    let mut parts = text.split('.').map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).expect("a folder").flatten() {
            let path = entry.path();
            if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found
}

/// The README shows the first example as it is.
#[test]
fn the_readme_shows_the_first_example_as_it_compiles() {
    let readme = fs::read_to_string(root().join("README.md")).expect("the README");
    let example = fs::read_to_string(root().join("stack/verbs/examples/first.rs")).expect("the example");
    let (_, shown) = example.split_once("#![forbid(unsafe_code)]").expect("a header");
    assert!(readme.contains(shown.trim()), "README.md shows another program than examples/first.rs");
}

/// `docs/fast-path.md` names a function for each shortcut, a test for each property, and every
/// budget.
#[test]
fn the_page_of_the_fast_path_names_what_exists() {
    let page = fs::read_to_string(root().join("docs/fast-path.md")).expect("the page");
    let mut found = 0;
    for (path, name) in page.split('`').skip(1).step_by(2).filter_map(|code| code.split_once(".rs::")) {
        let file = root().join(path).with_extension("rs");
        let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let functions =
            text.matches(&format!("fn {name}(")).count() + text.matches(&format!("fn {name}<")).count();
        assert!(functions > 0, "{path}.rs has no function {name}");
        found += 1;
    }
    assert!(found > 25, "{found} names");
    let budgets = fs::read_to_string(root().join("bench/instruction-budgets.txt")).expect("the budgets");
    let digits = |text: &str| text.chars().filter(char::is_ascii_digit).collect::<String>();
    for line in budgets.lines().filter(|line| !line.starts_with('#')) {
        let (case, limit) = line.split_once(' ').expect("a case and its budget");
        let row = page.lines().find(|row| row.starts_with(&format!("| {case} |"))).unwrap_or_default();
        let shown = row.trim_end_matches(" |").rsplit('|').next().map(digits);
        assert_eq!(shown.as_deref(), Some(limit), "docs/fast-path.md, {case}");
    }
}

/// Every configuration that is shipped is one that the stack accepts. Folders hold those of
/// programs with sections of their own, which test them.
#[test]
fn every_shipped_configuration_is_valid() {
    let entries = fs::read_dir(root().join("configs")).expect("the folder").flatten();
    let files: Vec<_> = entries.map(|entry| entry.path()).filter(|path| path.is_file()).collect();
    assert!(files.len() >= 10, "{files:?}");
    for file in files {
        ironwarp::Config::from_file(&file).unwrap_or_else(|error| panic!("{error}"));
    }
}
