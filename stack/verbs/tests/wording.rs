//! Words that an engineer of this field must translate stay out of sources, documents and configurations.
//!
//! `docs/glossary.md` has the terms to use. A word is rejected in identifiers too: `NetNews` and `net_news` are "net
//! news" here.

use std::fs;
use std::path::{Path, PathBuf};

/// Words and phrases that are rejected, each with what to write.
const REJECTED: &[(&str, &str)] = &[
    ("attendance", "epoch slot"),
    ("by turns", "alternately"),
    ("crowd", "the hosts, the half-open connections"),
    ("dialect", "profile"),
    ("doomed", "failed"),
    ("house", "layout, crates"),
    ("how manieth", "the index of"),
    ("hoard", "over quota"),
    ("hoarder", "a connection over its quota"),
    ("is told", "is notified, gets an event"),
    ("let go of", "release, drop"),
    ("lets go of", "releases, drops"),
    ("news", "messages, updates, events"),
    ("parcel", "parameters, control message"),
    ("reproach", "Terminate"),
    ("rhythm", "marker spacing"),
    ("stranger", "an unknown peer, no connection"),
    ("strangers", "unknown peers"),
    ("was told", "was notified, got an event"),
    ("what came", "the received data"),
    ("what has come", "the received data"),
    ("whoever", "name the caller, the core, the peer"),
    ("whomever", "name it"),
    ("whose a", "which core owns"),
];

/// The file that has the list, and the file that lists old names.
const EXEMPT: &[&str] = &["stack/verbs/tests/wording.rs", "CHANGELOG.md"];

#[test]
fn sources_and_documents_use_the_words_of_the_field() {
    let root =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace's root");
    let mut offenders = Vec::new();
    for file in files(&root) {
        let relative = file.strip_prefix(&root).expect("inside the workspace");
        if EXEMPT.iter().any(|exempt| relative == Path::new(exempt)) {
            continue;
        }
        let Ok(text) = fs::read_to_string(&file) else { continue };
        for (number, line) in text.lines().enumerate() {
            let words = words(line);
            for (rejected, instead) in REJECTED {
                if words.contains(&format!(" {rejected} ")) {
                    offenders.push(format!(
                        "{}:{}: \"{rejected}\": {instead}",
                        relative.display(),
                        number + 1
                    ));
                }
            }
        }
    }
    assert!(offenders.is_empty(), "{} words to replace:\n{}", offenders.len(), offenders.join("\n"));
}

#[test]
fn identifiers_are_split_into_words() {
    assert_eq!(words("fn on_stranger(NetNews) // Whoever's"), " fn on stranger net news whoever s ");
}

/// Returns the words of a line in lower case with one space before and after each. Identifiers are split at underscores and
/// at capital letters.
fn words(line: &str) -> String {
    let mut words = String::from(" ");
    let mut previous = ' ';
    for letter in line.chars() {
        if letter.is_uppercase() && previous.is_lowercase() {
            words.push(' ');
        }
        if letter.is_alphanumeric() {
            words.extend(letter.to_lowercase());
        } else if !words.ends_with(' ') {
            words.push(' ');
        }
        previous = letter;
    }
    if !words.ends_with(' ') {
        words.push(' ');
    }
    words
}

/// Returns the sources, documents, configurations and scripts of the repository.
fn files(root: &Path) -> Vec<PathBuf> {
    const EXTENSIONS: [&str; 8] = ["rs", "md", "toml", "h", "c", "sh", "py", "csv"];
    let mut found = Vec::new();
    let mut open = vec![root.to_owned()];
    while let Some(folder) = open.pop() {
        for path in fs::read_dir(&folder).expect("a folder").flatten().map(|entry| entry.path()) {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() && name != "target" && !name.starts_with('.') {
                open.push(path);
            } else if path.extension().is_some_and(|end| EXTENSIONS.iter().any(|known| end == *known)) {
                found.push(path);
            }
        }
    }
    found
}
