//! The memory of one core: data buffers, and a slot for each capsule that may arrive.
//!
//! One registered region holds all of it. It is allocated when the core starts and never grows:
//! without a free buffer a command waits, and without free capsules a connection is refused.

use ironwarp::{Access, AlignedBuf, Context, ProtectionDomain, RangeError, Sge};

use super::buffers::{BufferId, BufferPool};
use super::wait::Who;
use crate::NvmfError;
use crate::backend::Arena;
use crate::wire::SQE_BYTES;

/// How much memory a core has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ArenaLimits {
    /// Data buffers.
    pub buffers: u32,
    /// Bytes of a data buffer.
    pub buffer_bytes: u32,
    /// Capsules, one for each entry of each queue.
    pub capsules: u32,
    /// Bytes of data of a capsule.
    pub capsule_bytes: u32,
}

/// The memory of one core, and what of it is free.
pub struct CoreMemory {
    arena: Arena,
    limits: ArenaLimits,
    buffers: BufferPool,
    free_capsules: Vec<u32>,
}

impl CoreMemory {
    /// Allocates and registers the memory of a core. Peers have no right on it.
    pub fn new(ctx: &Context, pd: ProtectionDomain, limits: ArenaLimits) -> Result<Self, NvmfError> {
        let bytes = limits.entries_offset() + limits.capsules as usize * SQE_BYTES;
        let memory = AlignedBuf::pages(bytes.max(SQE_BYTES))
            .map_err(|error| NvmfError::Memory { bytes, reason: error.to_string() })?;
        let arena = Arena::new(ctx.register(pd, memory, Access::LOCAL_WRITE)?);
        let buffers = BufferPool::new(limits.buffers);
        Ok(CoreMemory { arena, limits, buffers, free_capsules: (0..limits.capsules).rev().collect() })
    }

    /// Returns the memory as backends use it.
    pub fn arena(&self) -> &Arena {
        &self.arena
    }

    /// Takes a data buffer for a connection, if its host has not its share of them.
    #[inline]
    pub(super) fn take_buffer(&mut self, who: Who) -> Option<BufferId> {
        self.buffers.take(who)
    }

    /// Returns a data buffer.
    #[inline]
    pub(super) fn free_buffer(&mut self, buffer: BufferId) {
        self.buffers.free(buffer);
    }

    /// Lets nobody hold a buffer that a disk still uses.
    pub(super) fn orphan(&mut self, buffer: BufferId) {
        self.buffers.orphan(buffer);
    }

    /// Returns the elements of a receive: the entry and the data of a capsule.
    pub(super) fn receive(&self, capsule: u32) -> Result<[Sge; 2], RangeError> {
        Ok([
            self.slice(self.entry_offset(capsule), SQE_BYTES as u32)?,
            self.slice(self.capsule_offset(capsule), self.limits.capsule_bytes)?,
        ])
    }

    /// Returns who holds which buffers.
    pub(super) fn buffers(&mut self) -> &mut BufferPool {
        &mut self.buffers
    }

    /// Returns the buffers that a connection holds.
    pub(super) fn held_by(&self, who: Who) -> usize {
        self.buffers.held_by(who)
    }

    /// Returns the buffers that belong to no connection and are not free.
    pub(super) fn past_buffers(&self) -> usize {
        self.buffers.past_count()
    }

    /// Returns the free capsules.
    pub(super) fn free_capsules(&self) -> &[u32] {
        &self.free_capsules
    }

    /// Returns the number of free data buffers.
    pub fn free_buffers(&self) -> usize {
        self.buffers.free_count()
    }

    /// Returns the number of free capsules.
    pub fn free_capsule_count(&self) -> usize {
        self.free_capsules.len()
    }

    /// Takes the capsules of a connection.
    pub fn take_capsules(&mut self, count: u16) -> Option<Vec<u32>> {
        let rest = self.free_capsules.len().checked_sub(count.into())?;
        Some(self.free_capsules.split_off(rest))
    }

    /// Returns the capsules of a connection.
    pub fn return_capsules(&mut self, capsules: &[u32]) {
        self.free_capsules.extend_from_slice(capsules);
    }

    /// Returns the first byte of a data buffer in the arena.
    #[inline]
    pub(super) fn buffer_offset(&self, buffer: BufferId) -> usize {
        buffer.0 as usize * self.limits.buffer_bytes as usize
    }

    /// Returns the first byte of a capsule's data in the arena.
    #[inline]
    pub fn capsule_offset(&self, capsule: u32) -> usize {
        self.limits.capsules_offset() + capsule as usize * self.limits.capsule_bytes as usize
    }

    /// Returns the first byte of a capsule's submission queue entry in the arena.
    #[inline]
    pub fn entry_offset(&self, capsule: u32) -> usize {
        self.limits.entries_offset() + capsule as usize * SQE_BYTES
    }

    /// Returns an element for a work request.
    #[inline]
    pub fn slice(&self, offset: usize, bytes: u32) -> Result<Sge, RangeError> {
        self.arena.region().slice(offset, bytes)
    }

    /// Copies bytes out.
    #[inline]
    pub fn read_at(&self, offset: usize, into: &mut [u8]) -> Result<(), RangeError> {
        self.arena.region().read_at(offset, into)
    }

    /// Copies bytes in.
    pub fn write_at(&self, offset: usize, from: &[u8]) -> Result<(), RangeError> {
        self.arena.region().write_at(offset, from)
    }

    /// Returns the limits.
    pub fn limits(&self) -> ArenaLimits {
        self.limits
    }
}

impl ArenaLimits {
    fn capsules_offset(&self) -> usize {
        self.buffers as usize * self.buffer_bytes as usize
    }

    fn entries_offset(&self) -> usize {
        self.capsules_offset() + self.capsules as usize * self.capsule_bytes as usize
    }
}
