//! A file or block device that is opened for one namespace alone.
//!
//! | | exclusive | shared (`shared = true`) |
//! | --- | --- | --- |
//! | block device | O_EXCL: the kernel refuses a device that is mounted, part of another device, or opened with O_EXCL | opened without |
//! | file | an exclusive `flock`: a second open, by whatever name, fails | a shared `flock`: only other shared opens succeed |
//!
//! The lock belongs to the open file description. It lives in a [`Claim`], which outlives a
//! namespace that is opened again with other options, and which a successor process can inherit
//! ([`super::Inherited`]).
//!
//! A failed fdatasync stays with the medium. Linux reports a write-back error once for each open
//! file description and drops the pages, so no later fdatasync can tell that data is lost. All
//! later Writes and Flushes of all cores fail until a reload opens the medium again.

use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use crate::target::LateRequests;

/// How a file is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileOptions {
    /// Uses O_DIRECT if the file system has it.
    pub direct: bool,
    /// Opens for reading only.
    pub read_only: bool,
    /// Others may have it open too.
    pub shared: bool,
}

/// What a path leads to, whatever its name: hard links and symbolic links have the same.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum MediumId {
    /// A file: its file system and inode.
    File {
        /// The device of the file system.
        device: u64,
        /// The inode.
        inode: u64,
    },
    /// A block device, by its number. Several nodes may lead to it.
    Block(u64),
}

impl MediumId {
    /// Returns what a path leads to.
    ///
    /// # Errors
    ///
    /// Those of the system, and everything that is neither a file nor a block device.
    pub fn of(path: &Path) -> io::Result<Self> {
        Self::of_metadata(&std::fs::metadata(path)?)
    }

    pub(super) fn of_metadata(found: &Metadata) -> io::Result<Self> {
        if found.file_type().is_block_device() {
            Ok(MediumId::Block(found.rdev()))
        } else if found.is_file() {
            Ok(MediumId::File { device: found.dev(), inode: found.ino() })
        } else {
            Err(io::Error::new(io::ErrorKind::InvalidInput, "neither a file nor a block device"))
        }
    }
}

/// The right to use a medium, as long as it lives.
#[derive(Debug)]
pub struct Claim {
    /// The open file description that has the lock.
    file: File,
    id: MediumId,
    is_shared: bool,
    late: Arc<LateRequests>,
}

impl Claim {
    /// Returns what may still change the medium, of commands that have ended. A namespace that has
    /// the medium later finds it here: the claim lives as long as the backend of the one before.
    pub fn late(&self) -> &Arc<LateRequests> {
        &self.late
    }

    /// Returns what is claimed.
    pub fn id(&self) -> MediumId {
        self.id
    }

    /// Returns the descriptor that has the lock. A process that has a copy of it keeps the claim.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Returns whether others may have it open too.
    pub fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Takes the lock of an open file.
    pub(super) fn lock(file: &File, id: MediumId, is_shared: bool) -> io::Result<Self> {
        if let MediumId::File { .. } = id {
            let locked = if is_shared { file.try_lock_shared() } else { file.try_lock() };
            locked.map_err(|error| match error {
                TryLockError::WouldBlock => in_use("another process, or another namespace, has locked it"),
                TryLockError::Error(error) => {
                    io::Error::new(error.kind(), format!("it cannot be locked: {error}"))
                }
            })?;
        }
        Ok(Claim { file: file.try_clone()?, id, is_shared, late: Arc::default() })
    }
}

/// Returns the error of a medium that someone else uses. Its kind is `ResourceBusy`.
pub(super) fn in_use(by: &str) -> io::Error {
    io::Error::new(io::ErrorKind::ResourceBusy, format!("it is in use: {by}"))
}

/// An open file. All cores share it.
#[derive(Debug)]
pub struct FileMedium {
    file: File,
    claim: Arc<Claim>,
    bytes: u64,
    /// Whether it was opened with O_DIRECT.
    pub is_direct: bool,
    /// The error of the first fdatasync that failed; 0: none did.
    sync_error: AtomicI32,
}

impl FileMedium {
    /// Opens a file or block device, and claims it.
    ///
    /// # Errors
    ///
    /// Those of the system; the kind `ResourceBusy` if someone else uses it. A file system without
    /// O_DIRECT is not an error.
    pub fn open(path: &Path, options: FileOptions) -> io::Result<Self> {
        let id = MediumId::of(path)?;
        let exclusive = matches!(id, MediumId::Block(_)) && !options.shared;
        let (file, is_direct) = open_file(path, options, exclusive)?;
        check_same(&file, id)?;
        let claim = Claim::lock(&file, id, options.shared)?;
        Self::of_file(file, Arc::new(claim), is_direct)
    }

    /// Opens what this process has claimed already, perhaps with other options.
    ///
    /// # Errors
    ///
    /// As [`FileMedium::open`]; also if the path leads to something else now, or `shared` is
    /// another.
    pub fn open_claimed(path: &Path, options: FileOptions, claim: Arc<Claim>) -> io::Result<Self> {
        if claim.is_shared != options.shared {
            return Err(in_use("shared cannot be changed while it is served; restart"));
        }
        let (file, is_direct) = open_file(path, options, false)?;
        check_same(&file, claim.id)?;
        Self::of_file(file, claim, is_direct)
    }

    /// Opens what someone else may have claimed, for a look: nothing is locked.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn look(path: &Path, options: FileOptions) -> io::Result<Self> {
        let id = MediumId::of(path)?;
        let (file, is_direct) = open_file(path, options, false)?;
        check_same(&file, id)?;
        let claim = Claim { file: file.try_clone()?, id, is_shared: true, late: Arc::default() };
        Self::of_file(file, Arc::new(claim), is_direct)
    }

    /// Makes a medium of an open file that has the claim.
    pub(super) fn of_file(file: File, claim: Arc<Claim>, is_direct: bool) -> io::Result<Self> {
        let mut medium = FileMedium { file, claim, bytes: 0, is_direct, sync_error: AtomicI32::new(0) };
        medium.bytes = medium.bytes_now()?;
        Ok(medium)
    }

    /// Checks that blocks of `bytes` can be read: O_DIRECT takes whole sectors of the disk only.
    ///
    /// # Errors
    ///
    /// The disk has larger sectors, or cannot be read.
    pub fn check_block(&self, bytes: u32) -> io::Result<()> {
        let mut block = Box::new(AlignedPage([0; PAGE_BYTES]));
        let Some(block) = block.0.get_mut(..bytes as usize) else { return Ok(()) };
        match self.file.read_at(block, 0) {
            Err(error) if self.is_direct && error.raw_os_error() == Some(libc::EINVAL) => {
                let text = format!(
                    "O_DIRECT does not take blocks of {bytes} bytes: raise block_bytes, or direct = false"
                );
                Err(io::Error::new(io::ErrorKind::InvalidInput, text))
            }
            outcome => outcome.map(drop),
        }
    }

    /// Opens it again for one core. Linux reports a write-back error once for each open file
    /// description, so with one of its own each core learns of it. A descriptor that was inherited
    /// and may not be opened again is shared.
    pub(super) fn file_of_core(&self) -> io::Result<File> {
        let flags = fcntl_getfl(&self.file)?;
        let can_write = flags & OFlags::RWMODE == OFlags::RDWR;
        let direct = if flags.contains(OFlags::DIRECT) { libc::O_DIRECT } else { 0 };
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let again = OpenOptions::new().read(true).write(can_write).custom_flags(direct).open(path);
        again.or_else(|_| self.file.try_clone())
    }

    /// Returns the size that it has now, in bytes.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn bytes_now(&self) -> io::Result<u64> {
        match self.claim.id {
            MediumId::Block(_) => io::Seek::seek(&mut &self.file, io::SeekFrom::End(0)),
            MediumId::File { .. } => Ok(self.file.metadata()?.len()),
        }
    }

    /// Returns its size in bytes when it was opened.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the right to use it.
    pub fn claim(&self) -> &Arc<Claim> {
        &self.claim
    }

    /// Returns the error of the fdatasync after which nothing that was written is known to be
    /// there. Writes and Flushes fail with it.
    pub fn sync_error(&self) -> Option<i32> {
        Some(self.sync_error.load(Ordering::Acquire)).filter(|&error| error != 0)
    }

    /// Records that fdatasync has failed.
    pub(super) fn record_sync_error(&self, error: i32) {
        if self.sync_error.compare_exchange(0, error, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            tracing::error!(
                "fdatasync failed, error {error}: Writes and Flushes of this medium fail until a reload opens it again"
            );
        }
    }
}

/// The alignment of memory that O_DIRECT takes.
pub(super) const PAGE_BYTES: usize = 4096;

/// A page, aligned for O_DIRECT.
#[repr(C, align(4096))]
struct AlignedPage([u8; PAGE_BYTES]);

/// Opens a path, with O_DIRECT if it is wanted and the file system has it. Returns whether it has.
fn open_file(path: &Path, options: FileOptions, exclusive: bool) -> io::Result<(File, bool)> {
    // The kind was checked before, but the path may have become a FIFO since: never wait for its
    // other end.
    let flags = libc::O_NONBLOCK | if exclusive { libc::O_EXCL } else { 0 };
    let open = |more| {
        OpenOptions::new().read(true).write(!options.read_only).custom_flags(flags | more).open(path).map_err(
            |error| match error.raw_os_error() {
                Some(libc::EBUSY) => in_use("mounted, part of another device, or open elsewhere with O_EXCL"),
                Some(libc::ETXTBSY) => in_use("it is swap space or a running program"),
                _ => error,
            },
        )
    };
    let (file, is_direct) = match options.direct.then(|| open(libc::O_DIRECT)) {
        Some(Err(error)) if error.raw_os_error() == Some(libc::EINVAL) => (open(0)?, false),
        Some(opened) => (opened?, true),
        None => (open(0)?, false),
    };
    // io_uring returns EAGAIN for a file with this flag instead of waiting in a thread of the
    // kernel.
    fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    Ok((file, is_direct))
}

/// Checks that a file is what its path led to a moment before.
fn check_same(file: &File, id: MediumId) -> io::Result<()> {
    if MediumId::of_metadata(&file.metadata()?)? == id {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "the path leads to another file now"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: FileOptions = FileOptions { direct: false, read_only: false, shared: false };

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a folder")
    }

    /// Every disk has sectors of at least 512 bytes, so O_DIRECT never takes 100.
    #[test]
    fn a_block_smaller_than_a_sector_is_named() {
        let folder = folder();
        let path = folder.path().join("disk");
        std::fs::write(&path, vec![0; 8192]).expect("written");
        let open = |direct| {
            let options = FileOptions { direct, read_only: true, shared: true };
            FileMedium::open(&path, options).expect("open")
        };
        let direct = open(true);
        if direct.is_direct {
            let error = direct.check_block(100).expect_err("too small").to_string();
            assert!(error.contains("100") && error.contains("block_bytes"), "{error}");
        }
        assert!(direct.check_block(4096).is_ok());
        assert!(open(false).check_block(100).is_ok());
    }

    #[test]
    fn a_file_is_opened_once_by_whatever_name() {
        let folder = folder();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("disk"), vec![0; 8192]).expect("written");
        std::fs::hard_link(at("disk"), at("hard")).expect("a link");
        std::os::unix::fs::symlink(at("disk"), at("soft")).expect("a link");
        let first = FileMedium::open(&at("disk"), OPTIONS).expect("open");
        for name in ["disk", "hard", "soft"] {
            for options in
                [OPTIONS, FileOptions { read_only: true, ..OPTIONS }, FileOptions { shared: true, ..OPTIONS }]
            {
                let error = FileMedium::open(&at(name), options).expect_err("in use");
                assert_eq!(error.kind(), io::ErrorKind::ResourceBusy, "{name} {options:?}: {error}");
            }
        }
        // The claim alone keeps it, and it opens again with other options.
        let claim = first.claim().clone();
        drop(first);
        assert!(FileMedium::open(&at("disk"), OPTIONS).is_err());
        let again = FileOptions { read_only: true, ..OPTIONS };
        let again = FileMedium::open_claimed(&at("hard"), again, claim).expect("open");
        assert!(FileMedium::open(&at("disk"), OPTIONS).is_err());
        drop(again);
        assert!(FileMedium::open(&at("soft"), OPTIONS).is_ok());
    }

    #[test]
    fn shared_media_exclude_exclusive_ones_only() {
        let folder = folder();
        let path = folder.path().join("disk");
        std::fs::write(&path, vec![0; 8192]).expect("written");
        let shared = FileOptions { shared: true, ..OPTIONS };
        let both = [(); 2].map(|()| FileMedium::open(&path, shared).expect("open"));
        assert!(FileMedium::open(&path, OPTIONS).is_err());
        let error =
            FileMedium::open_claimed(&path, OPTIONS, both[0].claim().clone()).expect_err("another right");
        assert!(error.to_string().contains("shared"), "{error}");
    }

    #[test]
    fn what_is_no_medium_is_refused_without_waiting() {
        let folder = folder();
        let fifo = folder.path().join("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0)
            .expect("a FIFO");
        for path in [&fifo, folder.path(), Path::new("/dev/null")] {
            let error =
                FileMedium::open(path, FileOptions { read_only: true, ..OPTIONS }).expect_err("no medium");
            assert!(error.to_string().contains("neither a file nor a block device"), "{error}");
        }
    }

    #[test]
    fn the_first_failed_sync_stays() {
        let folder = folder();
        let path = folder.path().join("disk");
        std::fs::write(&path, vec![0; 8192]).expect("written");
        let medium = FileMedium::open(&path, OPTIONS).expect("open");
        assert_eq!(medium.sync_error(), None);
        medium.record_sync_error(libc::EIO);
        medium.record_sync_error(libc::ENOSPC);
        assert_eq!(medium.sync_error(), Some(libc::EIO));
        let again = FileMedium::open_claimed(&path, OPTIONS, medium.claim().clone()).expect("open");
        assert_eq!(again.sync_error(), None);
    }
}
