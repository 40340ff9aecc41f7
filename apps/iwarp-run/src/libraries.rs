//! The folder of the replacement libraries.

use std::path::{Path, PathBuf};

use ironwarp_cli::CliExit;

const NAMES: [&str; 2] = ["libibverbs.so.1", "librdmacm.so.1"];
const REMEDY: &str = "scripts/install-verbs.sh installs them";

/// Returns the folder: the requested one, or that beside this program. Fails unless both libraries
/// are there, as one file.
pub(crate) fn find(requested: Option<&Path>) -> Result<PathBuf, CliExit> {
    let folder = match requested {
        Some(folder) => folder.to_owned(),
        None => beside_program()?,
    };
    let folder = folder.canonicalize().map_err(|error| {
        CliExit::bad_arguments(format!("no libraries in {}: {error}; {REMEDY}", folder.display()))
    })?;
    let mut files = Vec::new();
    for name in NAMES {
        let file = folder.join(name).canonicalize().map_err(|error| {
            CliExit::bad_arguments(format!("no {name} in {}: {error}; {REMEDY}", folder.display()))
        })?;
        files.push(file);
    }
    if files[0] != files[1] {
        return Err(CliExit::bad_arguments(format!(
            "{}: {} must be a link to {}, as {REMEDY}",
            folder.display(),
            NAMES[1],
            NAMES[0]
        )));
    }
    Ok(folder)
}

/// Where the Debian package has them, `lib` beside the program, `../lib`, or where the build puts
/// them.
fn beside_program() -> Result<PathBuf, CliExit> {
    let program = std::env::current_exe().map_err(CliExit::bad_arguments)?;
    let folder = program.parent().unwrap_or(Path::new("."));
    let places = ["../lib/ironwarp/verbs", "lib", "../lib", "../verbs/lib"].map(|place| folder.join(place));
    let found = places.iter().find(|place| place.join(NAMES[0]).exists());
    Ok(found.unwrap_or(&folder.join("lib")).clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_libraries_must_be_one_file() {
        let folder = tempfile::tempdir().unwrap();
        let refused = |words: &str| {
            let Err(CliExit::BadArguments(line)) = find(Some(folder.path())) else {
                panic!("was not refused")
            };
            assert!(line.contains(words) && line.contains("install-verbs"), "{line}");
        };
        refused("libibverbs.so.1");
        std::fs::write(folder.path().join(NAMES[0]), "x").unwrap();
        refused("librdmacm.so.1");
        std::fs::write(folder.path().join(NAMES[1]), "x").unwrap();
        refused("must be a link");
        std::fs::remove_file(folder.path().join(NAMES[1])).unwrap();
        std::os::unix::fs::symlink(NAMES[0], folder.path().join(NAMES[1])).unwrap();
        assert!(find(Some(folder.path())).is_ok());
    }
}
