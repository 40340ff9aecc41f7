//! `configs/memif-server.toml` explains every key that the parser knows.

use std::fs;
use std::path::{Path, PathBuf};

use ironwarp::Config;

/// The tables of a configuration; the first is the top level.
const TABLES: [&str; 13] = [
    "",
    "eal",
    "port",
    "net",
    "core",
    "stack",
    "mpa",
    "ddp",
    "rdmap",
    "tcp",
    "tcp.keep_alive",
    "limits",
    "stats",
];

#[test]
fn the_explained_configuration_names_every_key() {
    let explained = fs::read_to_string(configs().join("memif-server.toml")).expect("the file is there");
    let mut missing = Vec::new();
    for table in TABLES {
        let keys = known_keys(table);
        assert!(!keys.is_empty(), "the parser names no key of [{table}]");
        missing.extend(
            keys.into_iter()
                .filter(|key| !is_explained(&explained, table, key))
                .map(|key| format!("[{table}] {key}")),
        );
    }
    assert!(missing.is_empty(), "configs/memif-server.toml does not explain {missing:?}");
}

/// Each key of a memif has a line of its own in the list below the kinds of devices.
#[test]
fn the_explained_configuration_names_every_key_of_a_memif() {
    let explained = fs::read_to_string(configs().join("memif-server.toml")).expect("the file is there");
    let keys = known_keys("port.device.memif");
    assert!(keys.iter().any(|key| key == "sparse"), "{keys:?}");
    for key in keys {
        let line = format!("#   {key} ");
        assert!(explained.lines().any(|found| found.starts_with(&line)), "no line explains {key}");
    }
}

fn configs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs")
}

/// The keys that the parser accepts in a table: it lists them when it refuses an unknown one.
fn known_keys(table: &str) -> Vec<String> {
    let text = match table {
        "" => "no_such_key = 1".to_owned(),
        table => format!("[{table}]\nno_such_key = 1"),
    };
    let error = Config::from_toml(&text).expect_err("the key is unknown").to_string();
    // A device is one of several kinds, whose errors have words of their own.
    if let Some((_, keys)) = error.split_once("available keys: ") {
        return keys.split(", ").map(|key| key.trim().to_owned()).collect();
    }
    let (_, expected) =
        error.split_once("expected ").unwrap_or_else(|| panic!("no list of keys in: {error}"));
    expected.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Returns whether a line, commented out or not, sets the key in its table, sets it in an inline
/// table, or begins its table.
fn is_explained(text: &str, table: &str, key: &str) -> bool {
    let mut current = String::new();
    for line in text.lines() {
        let line = line.trim_start_matches(['#', ' ']);
        if let Some(header) = line.strip_prefix('[') {
            current = header.trim_start_matches('[').split(']').next().unwrap_or_default().to_owned();
            let path = if table.is_empty() { key.to_owned() } else { format!("{table}.{key}") };
            if current == path {
                return true;
            }
            continue;
        }
        let Some((name, value)) = line.split_once('=') else { continue };
        let name = name.trim();
        let sets_key = current == table && name.split('.').next() == Some(key);
        let sets_inline = format!("{current}.{name}") == table && value.contains(&format!("{key} ="));
        if sets_key || sets_inline {
            return true;
        }
    }
    false
}

/// The sections that the cells of the interop lab add to a configuration have no key that the
/// parser does not know.
#[test]
fn the_interop_lab_names_known_keys() {
    let lab = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/interop/lab");
    let files = |folder: &Path| fs::read_dir(folder).expect("the folder is there").flatten();
    let mut found = 0;
    for file in files(&lab).chain(files(&lab.join("cells"))) {
        let Ok(text) = fs::read_to_string(file.path()) else { continue };
        for (table, key) in text.lines().flat_map(keys_in_strings) {
            assert!(
                known_keys(table).contains(&key),
                "{}: [{table}] has no key {key}",
                file.path().display()
            );
            found += 1;
        }
    }
    assert!(found >= 8, "only {found} keys found: the cells write them in another way");
}

/// The keys of the tables in the strings of a line of Python, where lines of TOML end with `\n`.
fn keys_in_strings(line: &str) -> Vec<(&'static str, String)> {
    let mut keys = Vec::new();
    for table in TABLES.into_iter().filter(|table| !table.is_empty()) {
        let Some((_, rest)) = line.split_once(&format!("[{table}]\\n")) else { continue };
        let entries = rest.split("\\n").map_while(|entry| entry.split_once(" = "));
        keys.extend(entries.map(|(key, _)| (table, key.split('.').next().unwrap_or(key).to_owned())));
    }
    keys
}
