//! The folder for what must stay the same, if the configuration names none.
//!
//! As a service, systemd's `$STATE_DIRECTORY`. Else a folder of the user, by the path of the
//! configuration, so that two targets of one user have two: `$XDG_STATE_HOME/ironwarp/PATH`, where
//! `/` in the path is `-`. `$XDG_STATE_HOME` is `~/.local/state` if it is not set (XDG Base
//! Directory Specification 0.8).

use std::env;
use std::path::{Path, PathBuf};

/// Returns the folder; `None` if the configuration names none.
pub(super) fn default_folder(config: &Path) -> Option<PathBuf> {
    // Several folders are separated by colons.
    let of_service = env::var_os("STATE_DIRECTORY").filter(|all| !all.is_empty()).map(|all| {
        let all = all.into_string().unwrap_or_default();
        PathBuf::from(all.split(':').next().unwrap_or_default())
    });
    of_service.filter(|one| one.is_absolute()).or_else(|| {
        let absolute =
            |name| env::var_os(name).map(PathBuf::from).filter(|path: &PathBuf| path.is_absolute());
        let base = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")))?;
        let path = config.canonicalize().ok()?;
        let name = path.to_string_lossy().trim_start_matches('/').replace('/', "-");
        Some(base.join("ironwarp").join(name))
    })
}
