//! The temporary folder of a run, for the memif socket and the output of client and server.
//!
//! It is removed when the run ends. A killed run cannot remove its folder, so every run first
//! removes the folders of processes that no longer exist.

use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The prefix of the folder names; the process id follows.
const PREFIX: &str = "iwarp-perf.";

/// A private folder. Dropping it removes it.
#[derive(Debug)]
pub struct WorkDir {
    path: PathBuf,
}

impl WorkDir {
    /// Creates the folder in the system's folder for temporary files.
    pub fn new() -> io::Result<Self> {
        let parent = std::env::temp_dir();
        remove_stale(&parent);
        let path = parent.join(format!("{PREFIX}{}", std::process::id()));
        match std::fs::remove_dir_all(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        std::fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(WorkDir { path })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for WorkDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// Removes folders whose process no longer exists. A folder that cannot be removed belongs to
/// another user.
fn remove_stale(parent: &Path) {
    let Ok(entries) = std::fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.parse::<u32>().ok());
        if owner.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists()) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_folders_of_dead_processes_are_removed() {
        let parent = std::env::temp_dir().join(format!("iwarp-perf-test.{}", std::process::id()));
        // No process has an id at the largest value of pid_max.
        let dead = parent.join(format!("{PREFIX}4194304"));
        let live = parent.join(format!("{PREFIX}{}", std::process::id()));
        let other = parent.join("iwarp-perf.notes");
        for folder in [&dead, &live, &other] {
            std::fs::create_dir_all(folder).expect("a writable folder");
        }
        remove_stale(&parent);
        assert_eq!([dead.exists(), live.exists(), other.exists()], [false, true, true]);
        std::fs::remove_dir_all(&parent).expect("just made");
    }

    #[test]
    fn a_folder_is_private_and_removed_with_its_run() {
        use std::os::unix::fs::PermissionsExt;
        let folder = WorkDir::new().expect("a writable folder");
        let path = folder.path().to_owned();
        assert_eq!(std::fs::metadata(&path).expect("it is there").permissions().mode() & 0o777, 0o700);
        drop(folder);
        assert!(!path.exists());
    }
}
