//! Log pages (Base 1.4, 5.14.1; Fabrics 1.1, 5.4).

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Log page identifiers.
pub mod lid {
    /// Error Information.
    pub const ERROR: u8 = 0x01;
    /// SMART / Health Information.
    pub const SMART: u8 = 0x02;
    /// Firmware Slot Information.
    pub const FIRMWARE_SLOT: u8 = 0x03;
    /// Changed Namespace List.
    pub const CHANGED_NAMESPACES: u8 = 0x04;
    /// Commands Supported and Effects.
    pub const COMMAND_EFFECTS: u8 = 0x05;
    /// Discovery.
    pub const DISCOVERY: u8 = 0x70;
}

/// An entry of the Error Information log.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, Debug)]
#[repr(C)]
pub struct ErrorEntry {
    /// Error Count: from 1 on, 0 in an unused entry.
    pub count: U64,
    /// SQID.
    pub sqid: U16,
    /// CID.
    pub cid: U16,
    /// The status field.
    pub status: U16,
    /// Parameter Error Location: FFFFh if none is named.
    pub location: U16,
    /// The first logical block.
    pub lba: U64,
    /// NSID.
    pub nsid: U32,
    reserved: [u8; 36],
}

/// SMART / Health Information.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, Debug)]
#[repr(C)]
pub struct SmartLog {
    /// Critical warnings.
    pub critical_warning: u8,
    /// Temperature in kelvins.
    pub temperature: U16,
    /// Available spare in percent.
    pub available_spare: u8,
    /// Its threshold.
    pub spare_threshold: u8,
    reserved: [u8; 27],
    /// Data units read: thousands of 512 bytes, rounded up. The upper half is never used.
    pub data_units_read: [U64; 2],
    /// Data units written.
    pub data_units_written: [U64; 2],
    /// Read and Compare commands.
    pub host_reads: [U64; 2],
    /// Write commands.
    pub host_writes: [U64; 2],
    reserved2: [u8; 64],
    /// Media and data integrity errors.
    pub media_errors: [U64; 2],
    /// Entries of the Error Information log.
    pub error_entries: [U64; 2],
    reserved3: [u8; 320],
}

/// The header of the discovery log.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub struct DiscoveryHeader {
    /// GENCTR.
    pub generation: U64,
    /// NUMREC.
    pub records: U64,
    /// RECFMT: 0.
    pub recfmt: U16,
    reserved: [u8; 1006],
}

/// An entry of the discovery log.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub struct DiscoveryEntry {
    /// TRTYPE.
    pub trtype: u8,
    /// ADRFAM.
    pub adrfam: u8,
    /// SUBTYPE.
    pub subtype: u8,
    /// TREQ.
    pub treq: u8,
    /// PORTID.
    pub portid: U16,
    /// CNTLID.
    pub cntlid: U16,
    /// ASQSZ.
    pub asqsz: U16,
    reserved: [u8; 22],
    /// TRSVCID: the port as text.
    pub trsvcid: [u8; 32],
    reserved2: [u8; 192],
    /// SUBNQN.
    pub subnqn: [u8; 256],
    /// TRADDR: the address as text.
    pub traddr: [u8; 256],
    /// RDMA_QPTYPE.
    pub qptype: u8,
    /// RDMA_PRTYPE.
    pub prtype: u8,
    /// RDMA_CMS.
    pub cms: u8,
    reserved3: [u8; 253],
}

/// Values of a discovery entry.
pub mod discovery {
    /// TRTYPE: RDMA.
    pub const TRTYPE_RDMA: u8 = 1;
    /// ADRFAM: IPv4.
    pub const ADRFAM_IPV4: u8 = 1;
    /// ADRFAM: IPv6.
    pub const ADRFAM_IPV6: u8 = 2;
    /// SUBTYPE: an NVM subsystem.
    pub const SUBTYPE_NVM: u8 = 2;
    /// TREQ: no secure channel is required; SQ flow control may be disabled.
    pub const TREQ: u8 = 2 | 1 << 2;
    /// RDMA_QPTYPE: reliable connected.
    pub const QPTYPE_CONNECTED: u8 = 1;
    /// RDMA_PRTYPE: iWARP.
    pub const PRTYPE_IWARP: u8 = 5;
    /// RDMA_CMS: RDMA_IP_CM.
    pub const CMS_RDMA_CM: u8 = 1;
}

const _: () = assert!(size_of::<ErrorEntry>() == 64 && size_of::<SmartLog>() == 512);
const _: () = assert!(size_of::<DiscoveryHeader>() == 1024 && size_of::<DiscoveryEntry>() == 1024);
const _: () = assert!(core::mem::offset_of!(DiscoveryEntry, traddr) == 512);
const _: () = assert!(core::mem::offset_of!(SmartLog, data_units_read) == 32);
const _: () = assert!(core::mem::offset_of!(SmartLog, media_errors) == 160);
