//! I/O commands of the NVM command set (Base 1.4, 6): checks, and what the backend has to do.

use std::sync::atomic::Ordering;

use zerocopy::FromBytes;

use super::TargetCounter;
use super::queue::{CapsuleLimits, PIECE_BYTES, Queue, Step, pointer_of, pointer_to_host};
use super::subsystem::Namespace;
use crate::wire::fabrics::{DATASET_RANGES_MAX, DatasetRange};
use crate::wire::opcode::io;
use crate::wire::sgl::DataPointer;
use crate::wire::{Status, SubmissionQueueEntry};

/// FUA: the data is on the medium before the response. Bit 30 of dword 12.
const FORCE_UNIT_ACCESS: u32 = 1 << 30;
/// DEAC of Write Zeroes. Bit 25 of dword 12.
const DEALLOCATE: u32 = 1 << 25;
/// AD of Dataset Management. Bit 2 of dword 11.
const ATTRIBUTE_DEALLOCATE: u32 = 1 << 2;

/// The longest list of ranges is taken in one piece, whose memory every capsule has.
const _: () = assert!(DATASET_RANGES_MAX * size_of::<DatasetRange>() as u32 <= PIECE_BYTES);
/// DMRSL: logical blocks of one range. The largest that the field has, as hosts of NVMe 1.4 do not
/// ask for it.
pub(super) const DATASET_RANGE_BLOCKS_MAX: u32 = u32::MAX;
/// DMSL: logical blocks of all ranges together.
pub(super) const DATASET_BLOCKS_MAX: u64 = u32::MAX as u64;

/// What a backend does for an I/O command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IoOperation {
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Reads and compares with the data of the host.
    Compare,
    /// Makes all that was written durable.
    Flush,
    /// Writes zeros, and may deallocate.
    WriteZeroes,
    /// Deallocates `ranges`.
    Deallocate,
}

/// An I/O command in bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IoCommand {
    /// The operation.
    pub operation: IoOperation,
    /// The number of the backend.
    pub backend: usize,
    /// The first byte.
    pub offset: u64,
    /// Bytes.
    pub bytes: u64,
    /// Whether the data must be durable before the response.
    pub force_unit_access: bool,
    /// Whether Write Zeroes may deallocate.
    pub may_deallocate: bool,
    /// First byte and bytes of each range of Dataset Management.
    pub ranges: Vec<(u64, u64)>,
}

impl IoCommand {
    #[inline]
    fn new(operation: IoOperation, namespace: &Namespace, (offset, bytes): (u64, u64)) -> Self {
        IoCommand {
            operation,
            backend: namespace.info.backend,
            offset,
            bytes,
            force_unit_access: false,
            may_deallocate: false,
            ranges: Vec::new(),
        }
    }
}

impl Queue {
    #[inline]
    pub(super) fn io(
        &mut self,
        entry: &SubmissionQueueEntry,
        capsule: CapsuleLimits,
    ) -> Result<Step, Status> {
        let transfer_bytes = self.target.limits.transfer_bytes;
        let namespace = self.namespace(entry.nsid.get())?;
        match entry.opcode {
            io::READ => {
                let extent = extent(entry, namespace)?;
                let bytes = transfer(extent, transfer_bytes)?;
                let pointer = pointer_to_host(entry, capsule, bytes)?;
                let counters = &namespace.counters;
                counters.reads.fetch_add(1, Ordering::Relaxed);
                counters.read_bytes.fetch_add(bytes.into(), Ordering::Relaxed);
                Ok(Step::Io {
                    command: IoCommand::new(IoOperation::Read, namespace, extent),
                    pointer: Some(pointer),
                })
            }
            io::WRITE => {
                check_writable(namespace)?;
                let extent = extent(entry, namespace)?;
                let bytes = transfer(extent, transfer_bytes)?;
                let pointer = pointer_of(entry, capsule, bytes)?;
                let counters = &namespace.counters;
                counters.writes.fetch_add(1, Ordering::Relaxed);
                counters.written_bytes.fetch_add(bytes.into(), Ordering::Relaxed);
                let mut command = IoCommand::new(IoOperation::Write, namespace, extent);
                command.force_unit_access = entry.dword(12) & FORCE_UNIT_ACCESS != 0;
                Ok(Step::Io { command, pointer: Some(pointer) })
            }
            _ => rare(entry, namespace, (capsule, transfer_bytes)),
        }
    }

    /// Continues Dataset Management with its ranges. Blocks that several ranges name are
    /// deallocated once, so a command never touches more than its namespace.
    pub(super) fn deallocate(&mut self, entry: &SubmissionQueueEntry, data: &[u8]) -> Result<Step, Status> {
        let namespace = self.namespace(entry.nsid.get())?;
        let mut command = IoCommand::new(IoOperation::Deallocate, namespace, (0, 0));
        let mut total = 0;
        for bytes in data.chunks_exact(size_of::<DatasetRange>()) {
            let range = DatasetRange::read_from_bytes(bytes).map_err(|_| Status::INTERNAL_ERROR)?;
            let blocks = u64::from(range.blocks.get());
            let extent = check_extent(range.slba.get(), blocks, namespace)?;
            total += blocks;
            if blocks > 0 {
                command.ranges.push(extent);
            }
        }
        if total > DATASET_BLOCKS_MAX {
            self.target.counters.add(TargetCounter::SizeLimitsExceeded);
            return Err(Status::COMMAND_SIZE_LIMIT_EXCEEDED);
        }
        merge(&mut command.ranges);
        Ok(Step::Io { command, pointer: None })
    }
}

/// Sorts ranges of first byte and bytes, and joins those that overlap or touch.
fn merge(ranges: &mut Vec<(u64, u64)>) {
    ranges.sort_unstable();
    // `dedup_by` passes a range and the one before it, which takes it in.
    ranges.dedup_by(|&mut (offset, bytes), (first, length)| {
        let joins = offset <= *first + *length;
        if joins {
            *length = (*length).max(offset + bytes - *first);
        }
        joins
    });
}

#[cold]
fn rare(
    entry: &SubmissionQueueEntry,
    namespace: &Namespace,
    (capsule, transfer_bytes): (CapsuleLimits, u32),
) -> Result<Step, Status> {
    let io = |operation, extent| IoCommand::new(operation, namespace, extent);
    match entry.opcode {
        io::COMPARE => {
            let extent = extent(entry, namespace)?;
            let pointer = pointer_of(entry, capsule, transfer(extent, transfer_bytes)?)?;
            namespace.counters.reads.fetch_add(1, Ordering::Relaxed);
            Ok(Step::Io { command: io(IoOperation::Compare, extent), pointer: Some(pointer) })
        }
        io::FLUSH => Ok(Step::Io { command: io(IoOperation::Flush, (0, 0)), pointer: None }),
        io::WRITE_ZEROES => {
            check_writable(namespace)?;
            let (offset, bytes) = extent(entry, namespace)?;
            let mut command = io(IoOperation::WriteZeroes, (offset, bytes));
            command.force_unit_access = entry.dword(12) & FORCE_UNIT_ACCESS != 0;
            command.may_deallocate = entry.dword(12) & DEALLOCATE != 0;
            Ok(Step::Io { command, pointer: None })
        }
        io::DATASET_MANAGEMENT => dataset_management(entry, namespace, capsule),
        _ => Err(Status::INVALID_OPCODE),
    }
}

/// Other attributes than Deallocate are hints, and need no data.
fn dataset_management(
    entry: &SubmissionQueueEntry,
    namespace: &Namespace,
    capsule: CapsuleLimits,
) -> Result<Step, Status> {
    if entry.dword(11) & ATTRIBUTE_DEALLOCATE == 0 {
        return Ok(Step::Respond(Status::SUCCESS.into()));
    }
    check_writable(namespace)?;
    let ranges = u32::from(entry.dword(10) as u8) + 1;
    let bytes = ranges * size_of::<DatasetRange>() as u32;
    let pointer: DataPointer = entry.sgl1.data_pointer(capsule.bytes)?;
    // A host may describe a whole page for a few ranges.
    let most = DATASET_RANGES_MAX * size_of::<DatasetRange>() as u32;
    if pointer.length() < bytes || pointer.length() > most {
        return Err(Status::DATA_SGL_LENGTH_INVALID);
    }
    Ok(Step::FromHost { pointer, bytes })
}

fn check_writable(namespace: &Namespace) -> Result<(), Status> {
    if namespace.info.read_only { Err(Status::NAMESPACE_WRITE_PROTECTED) } else { Ok(()) }
}

/// Returns first byte and bytes of a command with SLBA and NLB.
#[inline]
fn extent(entry: &SubmissionQueueEntry, namespace: &Namespace) -> Result<(u64, u64), Status> {
    // NLB is 0's based.
    check_extent(entry.qword(10), u64::from(entry.dword(12) as u16) + 1, namespace)
}

#[inline]
fn check_extent(slba: u64, blocks: u64, namespace: &Namespace) -> Result<(u64, u64), Status> {
    let info = &namespace.info;
    match slba.checked_add(blocks) {
        Some(end) if end <= info.blocks => Ok((slba << info.block_shift, blocks << info.block_shift)),
        _ => Err(Status::LBA_OUT_OF_RANGE),
    }
}

/// Checks the bytes of a transfer against MDTS (Base 1.4, 5.15.2.2).
#[inline]
fn transfer((_, bytes): (u64, u64), transfer_bytes: u32) -> Result<u32, Status> {
    if bytes > transfer_bytes.into() { Err(Status::INVALID_FIELD) } else { Ok(bytes as u32) }
}
