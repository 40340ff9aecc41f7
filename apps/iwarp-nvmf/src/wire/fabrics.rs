//! What Fabrics commands and connection set-up carry (Fabrics 1.1, 3.3; RDMA transport, RDMA_CM
//! format 0).

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use super::SubmissionQueueEntry;
use super::opcode::{FABRICS, fctype};

/// The NQN of the discovery subsystem.
pub const DISCOVERY_NQN: &str = "nqn.2014-08.org.nvmexpress.discovery";
/// The longest NQN in bytes, without the closing zero.
pub const NQN_BYTES_MAX: usize = 223;
/// CNTLID of a Connect that asks for a new controller.
pub const CNTLID_DYNAMIC: u16 = 0xffff;
/// Bytes of the data of Connect.
pub const CONNECT_DATA_BYTES: u32 = 1024;
/// CATTR: the host does not use SQ flow control.
pub const CATTR_DISABLE_SQ_FLOW_CONTROL: u8 = 1 << 2;
/// SQHD of the response to Connect when SQ flow control is off.
pub const SQ_HEAD_FLOW_CONTROL_OFF: u16 = 0xffff;

/// The data of Connect.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub struct ConnectData {
    /// HOSTID.
    pub hostid: [u8; 16],
    /// CNTLID.
    pub cntlid: U16,
    reserved: [u8; 238],
    /// SUBNQN, ended by a zero.
    pub subnqn: [u8; 256],
    /// HOSTNQN, ended by a zero.
    pub hostnqn: [u8; 256],
    reserved2: [u8; 256],
}

const _: () = assert!(size_of::<ConnectData>() == CONNECT_DATA_BYTES as usize);
const _: () = assert!(core::mem::offset_of!(ConnectData, subnqn) == 256);

impl ConnectData {
    /// The data of a host that connects to a subsystem.
    pub fn new(hostid: [u8; 16], cntlid: u16, subnqn: &str, hostnqn: &str) -> Self {
        let mut data = Self::new_zeroed();
        (data.hostid, data.cntlid) = (hostid, cntlid.into());
        copy_text(&mut data.subnqn, subnqn, 0);
        copy_text(&mut data.hostnqn, hostnqn, 0);
        data
    }
}

/// Returns a field of text that a zero ends. `None`: no zero, longer than an NQN, not UTF-8, or
/// with control characters, which no name has and which would write lines of a log.
pub fn nqn(field: &[u8]) -> Option<&str> {
    let length = field.iter().position(|&byte| byte == 0)?;
    let text = core::str::from_utf8(field.get(..length)?).ok()?;
    (text.len() <= NQN_BYTES_MAX && !text.contains(char::is_control)).then_some(text)
}

/// Fills a field with text and then with `padding`. Text that does not fit is cut off.
pub fn copy_text(field: &mut [u8], text: &str, padding: u8) {
    field.fill(padding);
    field.iter_mut().zip(text.bytes()).for_each(|(place, byte)| *place = byte);
}

/// The fields of a Connect command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Connect {
    /// RECFMT.
    pub recfmt: u16,
    /// QID.
    pub qid: u16,
    /// SQSIZE, 0's based.
    pub sqsize: u16,
    /// CATTR.
    pub cattr: u8,
    /// KATO in milliseconds.
    pub kato_ms: u32,
}

impl Connect {
    /// Reads the fields of a Connect.
    pub fn of(entry: &SubmissionQueueEntry) -> Self {
        Connect {
            recfmt: entry.dword(10) as u16,
            qid: (entry.dword(10) >> 16) as u16,
            sqsize: entry.dword(11) as u16,
            cattr: (entry.dword(11) >> 16) as u8,
            kato_ms: entry.dword(12),
        }
    }

    /// Returns the command, without its SGL.
    pub fn entry(&self, cid: u16) -> SubmissionQueueEntry {
        let mut entry = SubmissionQueueEntry::new(FABRICS, cid, fctype::CONNECT.into());
        entry.set_dword(10, u32::from(self.qid) << 16 | u32::from(self.recfmt));
        entry.set_dword(11, u32::from(self.cattr) << 16 | u32::from(self.sqsize));
        entry.set_dword(12, self.kato_ms);
        entry
    }
}

/// Returns the result of a Connect that failed with Connect Invalid Parameters: the offset of the
/// parameter, in the command or in the data (IATTR).
pub fn invalid_parameter(offset: u16, in_data: bool) -> u64 {
    u64::from(in_data) << 16 | u64::from(offset)
}

/// Returns a Property Get. `wide` properties have 8 bytes.
pub fn property_get(cid: u16, offset: u32, wide: bool) -> SubmissionQueueEntry {
    let mut entry = SubmissionQueueEntry::new(FABRICS, cid, fctype::PROPERTY_GET.into());
    entry.set_dword(10, wide.into());
    entry.set_dword(11, offset);
    entry
}

/// Returns a Property Set of a property of 4 bytes.
pub fn property_set(cid: u16, offset: u32, value: u32) -> SubmissionQueueEntry {
    let mut entry = SubmissionQueueEntry::new(FABRICS, cid, fctype::PROPERTY_SET.into());
    entry.set_dword(11, offset);
    entry.set_qword(12, value.into());
    entry
}

/// Properties: registers of the controller (Base 1.4, 3.1).
pub mod property {
    /// CAP, 8 bytes.
    pub const CAP: u32 = 0x00;
    /// VS.
    pub const VS: u32 = 0x08;
    /// CC.
    pub const CC: u32 = 0x14;
    /// CSTS.
    pub const CSTS: u32 = 0x1c;
    /// CC.EN.
    pub const CC_EN: u32 = 1 << 0;
    /// CC.SHN.
    pub const CC_SHN_MASK: u32 = 3 << 14;
    /// CC.SHN: normal shutdown.
    pub const CC_SHN_NORMAL: u32 = 1 << 14;
    /// CC.IOSQES 6 and CC.IOCQES 4: entries of 64 and 16 bytes.
    pub const CC_ENTRY_SIZES: u32 = 4 << 20 | 6 << 16;
    /// The bits of CC.IOSQES and CC.IOCQES.
    pub const CC_ENTRY_SIZES_MASK: u32 = 0xff << 16;
    /// The bits of CC.CSS, CC.MPS and CC.AMS, which must be 0 here.
    pub const CC_ZERO_MASK: u32 = 0x7 << 4 | 0xf << 7 | 0x7 << 11;
    /// CSTS.RDY.
    pub const CSTS_RDY: u32 = 1 << 0;
    /// CSTS.CFS.
    pub const CSTS_CFS: u32 = 1 << 1;
    /// CSTS.SHST: shutdown complete.
    pub const CSTS_SHST_COMPLETE: u32 = 2 << 2;
    /// Version 1.4.0.
    pub const VS_1_4: u32 = 0x0001_0400;
}

/// Private data of a connection request.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct CmRequest {
    /// RECFMT: 0.
    pub recfmt: U16,
    /// QID.
    pub qid: U16,
    /// HRQSIZE: receives of the host.
    pub hrqsize: U16,
    /// HSQSIZE: entries of the host's submission queue, 0's based.
    pub hsqsize: U16,
    /// CNTLID, from revision 1.1 on.
    pub cntlid: U16,
    reserved: [u8; 22],
}

/// Private data of an accept.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct CmAccept {
    /// RECFMT: 0.
    pub recfmt: U16,
    /// CRQSIZE: receives of the controller.
    pub crqsize: U16,
    reserved: [u8; 28],
}

/// Private data of a reject.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct CmReject {
    /// RECFMT: 0.
    pub recfmt: U16,
    /// STS: a [`CmStatus`].
    pub status: U16,
}

const _: () =
    assert!(size_of::<CmRequest>() == 32 && size_of::<CmAccept>() == 32 && size_of::<CmReject>() == 4);

impl CmRequest {
    /// A request for queue `qid` with `entries` entries.
    pub fn new(qid: u16, entries: u16) -> Self {
        let (hrqsize, hsqsize) = (entries.into(), entries.saturating_sub(1).into());
        CmRequest { qid: qid.into(), hrqsize, hsqsize, ..CmRequest::default() }
    }
}

impl CmAccept {
    /// An accept with `receives` receives.
    pub fn new(receives: u16) -> Self {
        CmAccept { crqsize: receives.into(), ..CmAccept::default() }
    }
}

/// Why a connection request is rejected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[repr(u16)]
pub enum CmStatus {
    /// The private data is too short.
    #[error("RDMA_CM: invalid length of the private data")]
    InvalidLength = 1,
    /// RECFMT is not 0.
    #[error("RDMA_CM: invalid record format")]
    InvalidRecordFormat = 2,
    /// QID is too large.
    #[error("RDMA_CM: invalid queue id")]
    InvalidQueueId = 3,
    /// HSQSIZE is 0 or too large.
    #[error("RDMA_CM: invalid host SQ size")]
    InvalidHsqsize = 4,
    /// HRQSIZE is smaller than the submission queue.
    #[error("RDMA_CM: invalid host RQ size")]
    InvalidHrqsize = 5,
    /// Connections or memory are used up.
    #[error("RDMA_CM: no resources")]
    NoResources = 6,
    /// The host allows no RDMA Read.
    #[error("RDMA_CM: invalid IRD")]
    InvalidIrd = 7,
    /// Invalid ORD.
    #[error("RDMA_CM: invalid ORD")]
    InvalidOrd = 8,
}

impl CmStatus {
    /// Returns the private data of the reject.
    pub fn reject(self) -> CmReject {
        CmReject { recfmt: U16::new(0), status: U16::new(self as u16) }
    }

    /// Returns the status in the private data of a reject.
    pub fn of_reject(private_data: &[u8]) -> Option<Self> {
        let (reject, _) = CmReject::read_from_prefix(private_data).ok()?;
        use CmStatus::*;
        let all = [
            InvalidLength,
            InvalidRecordFormat,
            InvalidQueueId,
            InvalidHsqsize,
            InvalidHrqsize,
            NoResources,
            InvalidIrd,
            InvalidOrd,
        ];
        all.into_iter().find(|status| *status as u16 == reject.status.get())
    }
}

/// One range of Dataset Management (Base 1.4, 6.7.1).
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, Debug)]
#[repr(C)]
pub struct DatasetRange {
    /// Context attributes.
    pub attributes: U32,
    /// Length in logical blocks.
    pub blocks: U32,
    /// The first logical block.
    pub slba: zerocopy::little_endian::U64,
}

const _: () = assert!(size_of::<DatasetRange>() == 16);
/// The largest number of ranges that a Dataset Management command can name.
pub const DATASET_RANGES_MAX: u32 = 256;
