//! NVMe over Fabrics: hosts write, read and compare blocks of one target, and every byte that was
//! confirmed must be there.
//!
//! | module | contents |
//! | --- | --- |
//! | [`model`] | what a host knows of its blocks, in a file that outlives it |
//! | [`work`] | commands and their checks |
//! | [`host`] | a host: sessions that end and begin again |
//! | [`target`] | the target |
//!
//! Each host has a link of its own, and its own blocks in three namespaces: one in a file, one in
//! memory, and one that reloads add, replace and remove. Hosts and target are processes that the
//! run kills.

mod host;
mod model;
mod target;
mod work;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::args::{EndArgs, Role};
use crate::end::EndError;
use model::{BLOCK_BYTES, BLOCKS, Extent, FILE_NSID, Model};

/// Hosts of a run. Host `n` has `n + 1` I/O queues.
pub(crate) const HOSTS: u32 = 3;
pub(crate) const NQN: &str = "nqn.2014-08.org.ironwarp:soak";

/// Runs an end until it is ordered to stop.
pub(crate) fn run(args: &EndArgs) -> Result<(), EndError> {
    let none = || EndError("--folder is missing".to_owned());
    match args.role {
        Role::Target => target::run(args),
        _ => host::run(args, args.folder.as_deref().ok_or_else(none)?),
    }
}

/// The tables of the namespaces in configuration `number` of [`CONFIGS`], for a target whose files
/// are in `folder`.
///
/// Each change of the UUID replaces the file's namespace by another on the same file.
pub(crate) fn namespaces(folder: &Path, number: usize) -> String {
    let uuid = if number == 1 { "uuid = \"00112233-4455-6677-8899-aabbccddeeff\"\n" } else { "" };
    let fleeting = match number {
        0 => "[[subsystem.namespace]]\nnsid = 3\nblock_bytes = 4096\nbackend.memory = { mib = 2 }\n",
        1 => "[[subsystem.namespace]]\nnsid = 3\nblock_bytes = 4096\nbackend.memory = { mib = 1 }\n",
        _ => "",
    };
    format!(
        "[[subsystem]]\nnqn = \"{NQN}\"\nallow_any_host = true\n\
         [[subsystem.namespace]]\nnsid = 1\nblock_bytes = 4096\n{uuid}backend.file = {{ path = {:?} }}\n\
         [[subsystem.namespace]]\nnsid = 2\nblock_bytes = 4096\nbackend.memory = {{ mib = 2 }}\n{fleeting}",
        disk_of(folder)
    )
}

/// Configurations that reloads go through in turn.
pub(crate) const CONFIGS: usize = 3;

/// Makes what must be there before the first target starts.
pub(crate) fn prepare(folder: &Path) -> io::Result<()> {
    let bytes = u64::from(HOSTS * BLOCKS) * BLOCK_BYTES as u64;
    fs::File::create(disk_of(folder))?.set_len(bytes)?;
    next_epoch(folder, 0)
}

/// Stores how many targets were killed. It must be there before the next one starts.
pub(crate) fn next_epoch(folder: &Path, epoch: u64) -> io::Result<()> {
    // Readers see the old number or the new one.
    let new = folder.join("epoch.new");
    fs::write(&new, epoch.to_string())?;
    fs::rename(new, folder.join("epoch"))
}

fn epoch_of(folder: &Path) -> io::Result<u64> {
    let text = fs::read_to_string(folder.join("epoch"))?;
    text.parse().map_err(|_| io::Error::other(format!("epoch: {text:?} is no number")))
}

/// Compares the file with what the hosts were told is in it, after all have stopped.
pub(crate) fn check_disk(folder: &Path) -> Result<(), String> {
    let text = |error: io::Error| error.to_string();
    let disk = fs::read(disk_of(folder)).map_err(text)?;
    for (number, bytes) in (0..HOSTS).zip(disk.chunks(BLOCKS as usize * BLOCK_BYTES)) {
        let model = Model::open(&model_of(folder, number), number).map_err(text)?;
        model
            .check(Extent { nsid: FILE_NSID, first: 0, blocks: BLOCKS }, bytes)
            .map_err(|why| format!("the file after the end, host {number}: {why}"))?;
    }
    Ok(())
}

fn disk_of(folder: &Path) -> PathBuf {
    folder.join("disk")
}

fn model_of(folder: &Path, host: u32) -> PathBuf {
    folder.join(format!("host-{host}.model"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_that_is_missing_in_the_file_is_found() {
        let folder = tempfile::tempdir().expect("a folder");
        prepare(folder.path()).expect("prepared");
        check_disk(folder.path()).expect("nothing was written");
        let last = Extent { nsid: FILE_NSID, first: BLOCKS - 1, blocks: 1 };
        let path = model_of(folder.path(), HOSTS - 1);
        let mut model = Model::open(&path, HOSTS - 1).expect("a model");
        model.send(last, false).expect("stored");
        check_disk(folder.path()).expect("no response");
        model.confirm(last).expect("stored");
        let fault = check_disk(folder.path()).expect_err("a lost Write");
        assert!(fault.contains("host 2: block 127 of namespace 1"), "{fault}");
    }

    #[test]
    fn an_epoch_is_stored() {
        let folder = tempfile::tempdir().expect("a folder");
        assert!(epoch_of(folder.path()).is_err());
        for epoch in [0, 7] {
            next_epoch(folder.path(), epoch).expect("stored");
            assert_eq!(epoch_of(folder.path()).expect("a number"), epoch);
        }
    }
}
