//! A block device that is opened exclusively, with a loop device: root can make one on most
//! machines.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use iwarp_nvmf::backend::{FileMedium, FileOptions, Media, MediumId};

const BYTES: u64 = 4 << 20;
const OPTIONS: FileOptions = FileOptions { direct: true, read_only: false, shared: false };
const SHARED: FileOptions = FileOptions { shared: true, ..OPTIONS };

/// A loop device over a file, until it is dropped.
struct LoopDevice {
    folder: tempfile::TempDir,
    path: PathBuf,
}

impl LoopDevice {
    /// `None`, with a line that says so: this machine lets nobody make one.
    fn new() -> Option<Self> {
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a folder");
        let disk = folder.path().join("disk");
        File::create(&disk).and_then(|file| file.set_len(BYTES)).expect("a file");
        let made = Command::new("losetup").args(["--find", "--show"]).arg(&disk).output();
        let path = made.ok().filter(|output| output.status.success()).map(|output| {
            let line = String::from_utf8(output.stdout).expect("a path");
            PathBuf::from(line.trim_end())
        });
        if path.is_none() {
            writeln!(std::io::stderr(), "\nSKIPPED: block devices: no loop device can be made")
                .expect("a terminal");
        }
        path.map(|path| LoopDevice { folder, path })
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.path).status();
    }
}

#[track_caller]
fn assert_busy(path: &Path, options: FileOptions) {
    let error = FileMedium::open(path, options).expect_err("it is in use");
    assert_eq!(error.kind(), ErrorKind::ResourceBusy, "{error}");
}

#[test]
fn a_block_device_is_opened_once_by_whatever_name() {
    let Some(device) = LoopDevice::new() else { return };
    let link = device.folder.path().join("link");
    symlink(&device.path, &link).expect("a link");
    let id = MediumId::of(&link).expect("a device");
    assert!(matches!(id, MediumId::Block(_)) && id == MediumId::of(&device.path).expect("a device"));
    let first = FileMedium::open(&device.path, OPTIONS).expect("open");
    assert_eq!(first.bytes_now().expect("its size"), BYTES);
    for path in [&device.path, &link] {
        assert_busy(path, OPTIONS);
    }
    // The same namespace may open what it has.
    let again = FileMedium::open_claimed(&link, OPTIONS, first.claim().clone()).expect("open");
    drop(first);
    assert_busy(&link, OPTIONS);
    drop(again);
    FileMedium::open(&link, OPTIONS).expect("nobody has it");
}

/// O_EXCL is how the kernel holds what is mounted, or part of another device.
#[test]
fn a_device_that_the_system_uses_is_refused_unless_it_is_shared() {
    let Some(device) = LoopDevice::new() else { return };
    let holder = OpenOptions::new().read(true).custom_flags(libc::O_EXCL).open(&device.path).expect("open");
    assert_busy(&device.path, OPTIONS);
    let mut media = Media::default();
    let error = media.open("nqn 1", &device.path, OPTIONS).expect_err("it is in use");
    assert!(error.to_string().contains("mounted"), "{error}");
    let shared = FileMedium::open(&device.path, SHARED).expect("without the exclusive lock");
    drop((holder, shared));
    media.open("nqn 1", &device.path, OPTIONS).expect("nobody has it");
}
