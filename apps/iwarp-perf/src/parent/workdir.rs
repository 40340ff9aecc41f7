//! A folder of this run alone, for the memif socket and the ends' own output.
//!
//! It goes when the run ends. A run that is killed cannot remove it, so every run first removes those whose process
//! is gone.

use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// How the folders of all runs begin; the process number follows.
const PREFIX: &str = "iwarp-perf.";

/// A private folder, removed when dropped.
#[derive(Debug)]
pub struct WorkDir {
    path: PathBuf,
}

impl WorkDir {
    /// Makes the folder, under the system's folder for temporary files.
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

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for WorkDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// Removes folders whose process is gone. What cannot be removed is left: it is somebody else's.
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
    fn folders_of_dead_runs_go_and_those_of_live_ones_and_of_others_stay() {
        let parent = std::env::temp_dir().join(format!("iwarp-perf-test.{}", std::process::id()));
        // No process has the largest number that the kernel could be told to give out.
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
    fn a_folder_is_private_and_goes_with_its_run() {
        use std::os::unix::fs::PermissionsExt;
        let folder = WorkDir::new().expect("a writable folder");
        let path = folder.path().to_owned();
        assert_eq!(std::fs::metadata(&path).expect("it is there").permissions().mode() & 0o777, 0o700);
        drop(folder);
        assert!(!path.exists());
    }
}
