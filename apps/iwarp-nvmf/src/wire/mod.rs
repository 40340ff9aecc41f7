//! Structures of the wire: submission and completion queue entries, SGL descriptors, and what
//! commands carry as data.
//!
//! All fields are little-endian and none is aligned, so every structure is read and written as
//! bytes. Names are those of the NVM Express Base Specification 1.4, NVM Express over Fabrics 1.1
//! and the RDMA transport. Sizes are asserted.

pub mod auth;
pub mod fabrics;
pub mod identify;
pub mod log_page;
pub mod opcode;
pub mod sgl;
pub mod status;

pub use sgl::SglDescriptor;
pub use status::Status;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// A submission queue entry (Base 1.4, 4.2).
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, Debug)]
#[repr(C)]
pub struct SubmissionQueueEntry {
    /// OPC.
    pub opcode: u8,
    /// FUSE in bits 0 and 1, PSDT in bits 6 and 7.
    pub flags: u8,
    /// CID.
    pub cid: U16,
    /// NSID. The lowest byte is FCTYPE in a Fabrics command.
    pub nsid: U32,
    /// Command dword 2.
    pub cdw2: U32,
    /// Command dword 3.
    pub cdw3: U32,
    /// MPTR.
    pub metadata: U64,
    /// SGL1: the only descriptor in the entry.
    pub sgl1: SglDescriptor,
    /// Command dwords 10 to 15.
    pub cdw: [U32; 6],
}

/// PSDT: the data pointer is an SGL, and metadata a contiguous buffer. The only value for Fabrics.
pub const PSDT_SGL: u8 = 0x40;
/// The bits of PSDT.
pub const PSDT_MASK: u8 = 0xc0;
/// The bits of FUSE.
pub const FUSE_MASK: u8 = 0x03;

/// Bytes of a submission queue entry.
pub const SQE_BYTES: usize = 64;
/// Bytes of a completion queue entry.
pub const CQE_BYTES: usize = 16;
const _: () = assert!(size_of::<SubmissionQueueEntry>() == SQE_BYTES);
const _: () = assert!(size_of::<CompletionQueueEntry>() == CQE_BYTES);

impl SubmissionQueueEntry {
    /// Returns an entry of zeros with an SGL as data pointer.
    pub fn new(opcode: u8, cid: u16, nsid: u32) -> Self {
        let mut entry = Self::new_zeroed();
        (entry.opcode, entry.flags, entry.cid, entry.nsid) = (opcode, PSDT_SGL, cid.into(), nsid.into());
        entry
    }

    /// Returns command dword `number`, 10 to 15.
    pub fn dword(&self, number: usize) -> u32 {
        number.checked_sub(10).and_then(|index| self.cdw.get(index)).map_or(0, |dword| dword.get())
    }

    /// Sets command dword `number`, 10 to 15.
    pub fn set_dword(&mut self, number: usize, value: u32) {
        if let Some(dword) = number.checked_sub(10).and_then(|index| self.cdw.get_mut(index)) {
            dword.set(value);
        }
    }

    /// Returns command dwords `number` and `number + 1` as one value.
    pub fn qword(&self, number: usize) -> u64 {
        u64::from(self.dword(number + 1)) << 32 | u64::from(self.dword(number))
    }

    /// Sets command dwords `number` and `number + 1`.
    pub fn set_qword(&mut self, number: usize, value: u64) {
        self.set_dword(number, value as u32);
        self.set_dword(number + 1, (value >> 32) as u32);
    }

    /// Returns FCTYPE of a Fabrics command.
    pub fn fctype(&self) -> u8 {
        self.nsid.get() as u8
    }
}

/// A completion queue entry (Base 1.4, 4.6).
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct CompletionQueueEntry {
    /// Dwords 0 and 1: the result of the command.
    pub result: U64,
    /// SQHD.
    pub sq_head: U16,
    /// SQID. Reserved in Fabrics.
    pub sq_id: U16,
    /// CID.
    pub cid: U16,
    /// The status field in bits 1 to 15; the phase tag in bit 0 is reserved in Fabrics.
    pub status: U16,
}

impl CompletionQueueEntry {
    /// Returns the status.
    pub fn status(&self) -> Status {
        Status::from_field(self.status.get())
    }
}
