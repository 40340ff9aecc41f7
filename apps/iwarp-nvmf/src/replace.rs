//! Replaces a file as a whole: readers see the old contents or the new ones, never a part.
//!
//! The new file has the name of the old one with `.new` behind it, and is always created: a link
//! that someone else has put there is removed and not followed. The owner may write, everyone may
//! read.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

const FILE_MODE: u32 = 0o644;

/// What holds when [`replace`] returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durability {
    /// Readers see the new contents.
    Visible,
    /// They also survive a power loss.
    Durable,
}

/// Replaces the file at `path` by what `write` writes, and a line feed.
///
/// # Errors
///
/// Those of the system. The old file stays then.
pub fn replace(
    path: &Path,
    durability: Durability,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> io::Result<()> {
    let new = path.with_added_extension("new");
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(&new)?;
    let mut file = BufWriter::new(file);
    write(&mut file)?;
    writeln!(file)?;
    let file = file.into_inner()?;
    let is_durable = durability == Durability::Durable;
    if is_durable {
        file.sync_all()?;
    }
    fs::rename(&new, path)?;
    match path.parent().filter(|_| is_durable) {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_file_is_replaced_as_a_whole_and_no_link_is_followed() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, other) = (folder.path().join("file"), folder.path().join("other"));
        fs::write(&other, "theirs").expect("written");
        symlink(&other, folder.path().join("file.new")).expect("a link");
        for (durability, text) in [(Durability::Durable, "one"), (Durability::Visible, "two")] {
            replace(&path, durability, |file| write!(file, "{text}")).expect("replaced");
            assert_eq!(fs::read_to_string(&path).expect("read"), format!("{text}\n"));
        }
        let failure = |_: &mut BufWriter<File>| Err(io::Error::other("no"));
        assert!(replace(&path, Durability::Visible, failure).is_err());
        assert_eq!(fs::read_to_string(&path).expect("read"), "two\n", "the old file stays");
        assert_eq!(fs::read_to_string(&other).expect("read"), "theirs");
    }
}
