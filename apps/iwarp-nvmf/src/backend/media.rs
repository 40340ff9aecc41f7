//! The files that a target has open, by what they are, and those that it has inherited.
//!
//! A target opens each medium through [`Media`], which refuses one that another namespace has, and
//! gives a namespace that is opened again the claim that the process holds. A predecessor's
//! descriptors come as systemd passes them (`LISTEN_FDS`, `LISTEN_FDNAMES`, sd_listen_fds(3)): from
//! the service manager's store, from `OpenFile=`, or from any program that starts this one. They
//! are found by what they lead to, so their order says nothing.
#![allow(unsafe_code, reason = "descriptors that another process has opened come as numbers")]

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Arc, Weak};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use super::medium::in_use;
use super::{Claim, FileMedium, FileOptions, MediumId};

/// The beginning of the names under which a target stores its descriptors. One with such a name was
/// opened exclusively.
const NAME_PREFIX: &str = "ironwarp-";

/// Returns the name under which the descriptor of a medium is stored.
pub fn stored_name(id: MediumId) -> String {
    match id {
        MediumId::File { device, inode } => format!("{NAME_PREFIX}file-{device:x}-{inode:x}"),
        MediumId::Block(number) => format!("{NAME_PREFIX}block-{number:x}"),
    }
}

/// A descriptor of a predecessor.
#[derive(Debug)]
pub struct Inherited {
    file: File,
    name: String,
    id: MediumId,
}

impl Inherited {
    /// Takes the descriptors that this process was started with. Call it once, before anything else
    /// opens one.
    ///
    /// # Errors
    ///
    /// `LISTEN_FDS` is not as sd_listen_fds(3) describes it.
    pub fn take() -> io::Result<Vec<Inherited>> {
        let mut found = Vec::new();
        for (number, name) in sd_notify::listen_fds_with_names()? {
            // SAFETY: the starter of this process says that the descriptor is open and for us (its
            // LISTEN_PID is our process), `listen_fds_with_names` has set its close-on-exec flag,
            // which fails if it is not open, and nothing else in this program takes descriptors by
            // number.
            let file = File::from(unsafe { OwnedFd::from_raw_fd(number) });
            match file.metadata().and_then(|found| MediumId::of_metadata(&found)) {
                Ok(id) => found.push(Inherited { file, name, id }),
                Err(error) => tracing::warn!("the inherited descriptor {name} is not used: {error}"),
            }
        }
        Ok(found)
    }

    /// Returns the name under which it was stored.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Makes a medium of it. It keeps its lock, or takes one.
    fn adopt(self, options: FileOptions) -> io::Result<FileMedium> {
        let flags = fcntl_getfl(&self.file)?;
        let mode = flags & OFlags::RWMODE;
        if mode == OFlags::WRONLY || (mode == OFlags::RDONLY && !options.read_only) {
            let text = format!("the inherited descriptor {} does not allow to read and write", self.name);
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
        }
        let is_direct = set_direct(&self.file, flags, options.direct)?;
        let claim = Claim::lock(&self.file, self.id, options.shared)?;
        let is_ours = self.name.starts_with(NAME_PREFIX);
        if let MediumId::Block(_) = self.id
            && !options.shared
            && !is_ours
        {
            // Whether it was opened with O_EXCL cannot be seen. A second open with it fails if
            // anybody has it so.
            let through = format!("/proc/self/fd/{}", self.file.as_raw_fd());
            let exclusive = OpenOptions::new().read(true).custom_flags(libc::O_EXCL).open(through);
            let exclusive = exclusive.map_err(|error| match error.raw_os_error() {
                Some(libc::EBUSY) => in_use("mounted, part of another device, or open elsewhere with O_EXCL"),
                _ => error,
            })?;
            let claim = Claim::lock(&exclusive, self.id, false)?;
            return FileMedium::of_file(self.file, Arc::new(claim), is_direct);
        }
        FileMedium::of_file(self.file, Arc::new(claim), is_direct)
    }
}

/// Switches O_DIRECT. Returns whether it is on: a file system without it is not an error.
fn set_direct(file: &impl AsFd, flags: OFlags, direct: bool) -> io::Result<bool> {
    let flags = flags - OFlags::NONBLOCK;
    let wanted = if direct { flags | OFlags::DIRECT } else { flags - OFlags::DIRECT };
    match fcntl_setfl(file, wanted) {
        Ok(()) => Ok(direct),
        Err(rustix::io::Errno::INVAL) if direct => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// What a target has open.
#[derive(Default)]
pub struct Media {
    /// The claims of this process, also those of namespaces that are being closed.
    claims: HashMap<MediumId, Weak<Claim>>,
    /// What each namespace has.
    owners: HashMap<String, (MediumId, bool)>,
    inherited: Vec<Inherited>,
}

impl Media {
    /// No media, and the descriptors of a predecessor.
    pub fn new(inherited: Vec<Inherited>) -> Self {
        Media { inherited, ..Media::default() }
    }

    /// Opens the medium of a namespace. [`Media::settle`] makes it the namespace's.
    ///
    /// # Errors
    ///
    /// Those of the system; the kind `ResourceBusy` if another namespace or process has it.
    pub fn open(&mut self, owner: &str, path: &Path, options: FileOptions) -> io::Result<FileMedium> {
        let id = MediumId::of(path)?;
        if let Some((other, is_shared)) = self.other_owner(owner, id)
            && !(is_shared && options.shared)
        {
            return Err(in_use(&format!("it is namespace {other} already")));
        }
        if let Some(claim) = self.claims.get(&id).and_then(Weak::upgrade) {
            return FileMedium::open_claimed(path, options, claim);
        }
        let medium = match self.inherited.iter().position(|one| one.id == id) {
            Some(at) => self.inherited.swap_remove(at).adopt(options)?,
            None => FileMedium::open(path, options)?,
        };
        self.claims.retain(|_, claim| claim.strong_count() > 0);
        self.claims.insert(id, Arc::downgrade(medium.claim()));
        Ok(medium)
    }

    fn other_owner(&self, owner: &str, id: MediumId) -> Option<(&str, bool)> {
        let mut others = self.owners.iter().filter(|(one, (of, _))| *of == id && one.as_str() != owner);
        others.next().map(|(other, (_, is_shared))| (other.as_str(), *is_shared))
    }

    /// Returns whether another namespace has what a path leads to.
    pub fn has_other(&self, owner: &str, path: &Path) -> bool {
        MediumId::of(path).is_ok_and(|id| self.other_owner(owner, id).is_some())
    }

    /// Records what a namespace has now, or that it has no file.
    pub fn settle(&mut self, owner: &str, medium: Option<&FileMedium>) {
        match medium {
            Some(medium) => {
                let claim = medium.claim();
                self.owners.insert(owner.to_owned(), (claim.id(), claim.is_shared()));
            }
            None => drop(self.owners.remove(owner)),
        }
    }

    /// Returns the claims of the namespaces.
    pub fn claims(&self) -> Vec<Arc<Claim>> {
        let ids: std::collections::BTreeSet<_> = self.owners.values().map(|(id, _)| *id).collect();
        ids.iter().filter_map(|id| self.claims.get(id)?.upgrade()).collect()
    }

    /// Closes the inherited descriptors that no namespace has taken, and returns their names.
    pub fn close_unused(&mut self) -> Vec<String> {
        self.inherited.drain(..).map(|one| one.name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: FileOptions = FileOptions { direct: false, read_only: false, shared: false };

    fn inherited(path: &Path, name: &str, write: bool) -> Inherited {
        let file = OpenOptions::new().read(true).write(write).open(path).expect("open");
        let id = MediumId::of(path).expect("a file");
        Inherited { file, name: name.to_owned(), id }
    }

    fn disk() -> (tempfile::TempDir, std::path::PathBuf) {
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a folder");
        let path = folder.path().join("disk");
        std::fs::write(&path, vec![0; 8192]).expect("written");
        (folder, path)
    }

    #[test]
    fn a_second_namespace_is_refused_and_told_which_has_it() {
        let (_folder, path) = disk();
        let mut media = Media::default();
        let first = media.open("nqn 1", &path, OPTIONS).expect("open");
        media.settle("nqn 1", Some(&first));
        let error = media.open("nqn 2", &path, OPTIONS).expect_err("in use");
        assert!(error.to_string().contains("namespace nqn 1"), "{error}");
        assert_eq!(error.kind(), io::ErrorKind::ResourceBusy);
        // The namespace itself may open it again, and another when the first has it no more,
        // although it is not closed.
        let again = media.open("nqn 1", &path, FileOptions { read_only: true, ..OPTIONS }).expect("open");
        media.settle("nqn 1", None);
        let second = media.open("nqn 2", &path, OPTIONS).expect("open");
        media.settle("nqn 2", Some(&second));
        drop((first, again, second));
        assert!(media.claims().is_empty());
    }

    #[test]
    fn an_inherited_descriptor_keeps_the_lock_of_its_predecessor() {
        let (_folder, path) = disk();
        let before = FileMedium::open(&path, OPTIONS).expect("open");
        let passed = before.claim().file().try_clone().expect("a copy");
        let id = before.claim().id();
        drop(before);
        // Only the copy holds the lock.
        assert!(FileMedium::open(&path, OPTIONS).is_err());
        let mut media = Media::new(vec![Inherited { file: passed, name: stored_name(id), id }]);
        let medium = media.open("nqn 1", &path, OPTIONS).expect("adopted");
        media.settle("nqn 1", Some(&medium));
        assert_eq!((media.claims().len(), media.close_unused().len()), (1, 0));
        assert!(FileMedium::open(&path, OPTIONS).is_err());
    }

    #[test]
    fn an_inherited_descriptor_that_others_have_locked_or_that_cannot_write_is_refused() {
        let (_folder, path) = disk();
        let mut media = Media::new(vec![inherited(&path, "disk", false)]);
        let error = media.open("nqn 1", &path, OPTIONS).expect_err("read only");
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
        let other = FileMedium::open(&path, OPTIONS).expect("open");
        let mut media = Media::new(vec![inherited(&path, "disk", true)]);
        let error = media.open("nqn 1", &path, OPTIONS).expect_err("locked");
        assert_eq!(error.kind(), io::ErrorKind::ResourceBusy, "{error}");
        drop(other);
        let mut media = Media::new(vec![inherited(&path, "disk", true)]);
        assert_eq!(media.close_unused(), ["disk"]);
    }
}
