//! What a host knows of its blocks: for each the version that the target has confirmed, and the
//! version sent last.
//!
//! The model is a file. A version is stored there before its command is sent, and again when it is
//! confirmed, so the successor of a killed host has both. Every multiple of [`ZERO_EVERY`] is a
//! version of zeros, as version 0 is.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The size of a logical block of every namespace.
pub(crate) const BLOCK_BYTES: usize = 4096;
pub(crate) const BLOCKS: u32 = 128;
/// The namespace in a file. Nothing that was confirmed is ever lost.
pub(crate) const FILE_NSID: u32 = 1;
/// The namespace in memory. It is lost when the target is killed.
pub(crate) const MEMORY_NSID: u32 = 2;
/// The namespace that reloads add, replace and remove. It is in memory.
pub(crate) const FLEETING_NSID: u32 = 3;
/// Versions of zeros.
const ZERO_EVERY: u32 = 16;
/// Bytes of the epoch in front of the versions.
const HEADER_BYTES: u64 = 8;
/// Bytes of the two versions of a block.
const RECORD_BYTES: usize = 8;

/// The versions of a block. They differ while a command has no response.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Versions {
    pub(crate) confirmed: u32,
    pub(crate) sent: u32,
}

impl Versions {
    pub(crate) fn is_confirmed(self) -> bool {
        self.confirmed == self.sent
    }
}

/// Blocks of a host in a namespace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Extent {
    pub(crate) nsid: u32,
    /// The first one, from 0.
    pub(crate) first: u32,
    pub(crate) blocks: u32,
}

impl Extent {
    pub(crate) fn each(self) -> impl Iterator<Item = Extent> {
        (self.first..self.first + self.blocks).map(move |first| Extent { first, blocks: 1, ..self })
    }
}

/// The versions of all blocks of a host.
pub(crate) struct Model {
    file: File,
    host: u32,
    /// The number of targets before the one that has the memory.
    epoch: u64,
    blocks: Vec<Versions>,
}

impl Model {
    /// Opens the model of a host. A new file is a model of zeros.
    pub(crate) fn open(path: &Path, host: u32) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        let blocks = (FLEETING_NSID * BLOCKS) as usize;
        let mut bytes = vec![0; HEADER_BYTES as usize + blocks * RECORD_BYTES];
        file.set_len(bytes.len() as u64)?;
        file.read_exact_at(&mut bytes, 0)?;
        let (epoch, records) = bytes.split_at(HEADER_BYTES as usize);
        let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, &byte| word << 8 | u32::from(byte));
        let blocks = records.as_chunks::<RECORD_BYTES>().0.iter().map(|record| {
            let (confirmed, sent) = record.split_at(4);
            Versions { confirmed: word(confirmed), sent: word(sent) }
        });
        let epoch = epoch.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
        Ok(Model { blocks: blocks.collect(), file, host, epoch })
    }

    /// Begins to work with the target of an epoch: memory of an earlier one is zeros again.
    pub(crate) fn begin_epoch(&mut self, epoch: u64) -> io::Result<()> {
        if epoch == self.epoch {
            return Ok(());
        }
        self.epoch = epoch;
        for nsid in [MEMORY_NSID, FLEETING_NSID] {
            let extent = Extent { nsid, first: 0, blocks: BLOCKS };
            self.change(extent, |_| Versions::default())?;
        }
        self.file.write_all_at(&epoch.to_le_bytes(), 0)
    }

    /// Returns the versions of the first block of an extent.
    pub(crate) fn versions(&self, at: Extent) -> Versions {
        self.blocks.get(index(at)).copied().unwrap_or_default()
    }

    /// Returns whether a version of each block is confirmed and no later one was sent.
    pub(crate) fn is_confirmed(&self, extent: Extent) -> bool {
        extent.each().all(|block| self.versions(block).is_confirmed())
    }

    /// Stores that new versions of these blocks are sent: of zeros, or of other bytes.
    pub(crate) fn send(&mut self, extent: Extent, zeros: bool) -> io::Result<()> {
        self.change(extent, |versions| Versions { sent: next(versions.sent, zeros), ..versions })
    }

    /// Stores that the versions that were sent are confirmed.
    pub(crate) fn confirm(&mut self, extent: Extent) -> io::Result<()> {
        self.change(extent, |versions| Versions { confirmed: versions.sent, ..versions })
    }

    /// Returns whether the version of a block that was sent last is one of zeros.
    pub(crate) fn is_zeros(&self, block: Extent) -> bool {
        is_zeros(self.versions(block).sent)
    }

    /// Fills in what a Write of these blocks has to carry: the versions that were sent last.
    pub(crate) fn fill(&self, extent: Extent, bytes: &mut [u8]) {
        for (block, bytes) in extent.each().zip(bytes.chunks_mut(BLOCK_BYTES)) {
            self.contents(block, self.versions(block).sent, bytes);
        }
    }

    /// Checks what a Read of these blocks has returned.
    ///
    /// A block of the file has its confirmed version, or one that was sent later. Memory of a Write
    /// without a response may be a mixture, and a namespace that was replaced has zeros.
    pub(crate) fn check(&self, extent: Extent, bytes: &[u8]) -> Result<(), String> {
        let mut expected = vec![0; BLOCK_BYTES];
        for (block, found) in extent.each().zip(bytes.chunks(BLOCK_BYTES)) {
            let Versions { confirmed, sent } = self.versions(block);
            let is_mixture_allowed = extent.nsid != FILE_NSID && confirmed != sent;
            let is_empty = extent.nsid == FLEETING_NSID && found.iter().all(|&byte| byte == 0);
            let mut is_version = |version| {
                self.contents(block, version, &mut expected);
                expected == found
            };
            if !is_mixture_allowed && !is_empty && !(confirmed..=sent).any(&mut is_version) {
                let head: Vec<u8> = found.iter().take(16).copied().collect();
                return Err(format!(
                    "block {} of namespace {} is no version from {confirmed} to {sent}; it begins with {head:02x?}",
                    block.first, block.nsid
                ));
            }
        }
        Ok(())
    }

    /// Returns the logical block address of a block.
    pub(crate) fn slba(&self, block: Extent) -> u64 {
        u64::from(self.host * BLOCKS + block.first)
    }

    /// The bytes of a version of a block: they name the version, the namespace and the address.
    fn contents(&self, block: Extent, version: u32, bytes: &mut [u8]) {
        if is_zeros(version) {
            bytes.fill(0);
            return;
        }
        let (slba, nsid) = (self.slba(block), u64::from(block.nsid));
        let mut word = u64::from(version) << 32 | nsid << 24 | slba;
        for bytes in bytes.as_chunks_mut::<8>().0 {
            *bytes = word.to_le_bytes();
            word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        }
    }

    fn change(&mut self, extent: Extent, change: impl Fn(Versions) -> Versions) -> io::Result<()> {
        let from = index(extent);
        let mut records = Vec::with_capacity(extent.blocks as usize * RECORD_BYTES);
        for versions in self.blocks.iter_mut().skip(from).take(extent.blocks as usize) {
            *versions = change(*versions);
            records.extend_from_slice(&versions.confirmed.to_le_bytes());
            records.extend_from_slice(&versions.sent.to_le_bytes());
        }
        self.file.write_all_at(&records, HEADER_BYTES + (from * RECORD_BYTES) as u64)
    }
}

fn index(at: Extent) -> usize {
    ((at.nsid - 1) * BLOCKS + at.first) as usize
}

fn is_zeros(version: u32) -> bool {
    version.is_multiple_of(ZERO_EVERY)
}

/// Returns the first version after `version` that is one of zeros, or is none.
fn next(version: u32, zeros: bool) -> u32 {
    let next = version + 1;
    match is_zeros(next) {
        _ if zeros => next.next_multiple_of(ZERO_EVERY),
        true => next + 1,
        false => next,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Extent = Extent { nsid: FILE_NSID, first: 0, blocks: 1 };

    fn model() -> (tempfile::TempDir, Model) {
        let folder = tempfile::tempdir().expect("a folder");
        let model = Model::open(&folder.path().join("model"), 2).expect("a file");
        (folder, model)
    }

    fn sent(model: &Model, extent: Extent) -> Vec<u8> {
        let mut bytes = vec![0; extent.blocks as usize * BLOCK_BYTES];
        model.fill(extent, &mut bytes);
        bytes
    }

    #[test]
    fn a_confirmed_version_excludes_every_other() {
        let (_folder, mut model) = model();
        let zeros = vec![0; BLOCK_BYTES];
        model.check(FIRST, &zeros).expect("a new block is zeros");
        model.send(FIRST, false).expect("stored");
        let first = sent(&model, FIRST);
        for bytes in [&zeros, &first] {
            model.check(FIRST, bytes).expect("a Write without a response may have taken effect or not");
        }
        model.confirm(FIRST).expect("stored");
        model.check(FIRST, &first).expect("the version");
        assert!(model.check(FIRST, &zeros).is_err(), "a confirmed Write is lost");
        model.send(FIRST, true).expect("stored");
        model.confirm(FIRST).expect("stored");
        model.check(FIRST, &zeros).expect("a version of zeros");
        assert!(model.check(FIRST, &first).is_err(), "an old version");
        let other = Extent { first: 1, ..FIRST };
        model.send(other, false).expect("stored");
        assert!(model.check(FIRST, &sent(&model, other)).is_err(), "the bytes of another block");
    }

    #[test]
    fn a_successor_has_the_model_and_a_new_target_has_no_memory() {
        let (folder, mut model) = model();
        let in_memory = Extent { nsid: MEMORY_NSID, first: 5, blocks: 3 };
        for extent in [FIRST, in_memory] {
            model.send(extent, false).expect("stored");
        }
        model.confirm(in_memory).expect("stored");
        let mut successor = Model::open(&folder.path().join("model"), 2).expect("a file");
        assert_eq!(successor.versions(FIRST), Versions { confirmed: 0, sent: 1 });
        assert!(successor.is_confirmed(in_memory) && !successor.is_confirmed(FIRST));
        successor.begin_epoch(0).expect("stored");
        assert_eq!(successor.versions(in_memory).confirmed, 1);
        successor.begin_epoch(1).expect("stored");
        assert_eq!(successor.versions(in_memory), Versions::default());
        assert_eq!(successor.versions(FIRST).sent, 1);
    }

    #[test]
    fn memory_may_be_a_mixture_until_a_write_is_confirmed() {
        let (_folder, mut model) = model();
        let mixture = vec![7; BLOCK_BYTES];
        for nsid in [MEMORY_NSID, FLEETING_NSID] {
            let block = Extent { nsid, ..FIRST };
            model.send(block, false).expect("stored");
            model.check(block, &mixture).expect("no response");
            model.confirm(block).expect("stored");
            assert!(model.check(block, &mixture).is_err());
        }
        let replaced = model.check(Extent { nsid: FLEETING_NSID, ..FIRST }, &vec![0; BLOCK_BYTES]);
        replaced.expect("a replaced namespace is empty");
    }
}
