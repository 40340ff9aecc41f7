//! Data of Identify (Base 1.4, 5.15; Fabrics 1.1, 4.1). Reserved fields and those for features that
//! are not offered are zeros.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes of every data structure of Identify.
pub const IDENTIFY_BYTES: usize = 4096;

/// CNS: which data structure Identify returns.
pub mod cns {
    /// Identify Namespace.
    pub const NAMESPACE: u8 = 0x00;
    /// Identify Controller.
    pub const CONTROLLER: u8 = 0x01;
    /// Active Namespace ID list.
    pub const ACTIVE_NAMESPACES: u8 = 0x02;
    /// Namespace Identification Descriptor list.
    pub const NAMESPACE_DESCRIPTORS: u8 = 0x03;
    /// Identify Controller for a command set.
    pub const COMMAND_SET_CONTROLLER: u8 = 0x06;
    /// Identify Namespace, independent of the command set.
    pub const INDEPENDENT_NAMESPACE: u8 = 0x08;
}

/// Identify Controller.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub struct IdentifyController {
    /// VID.
    pub vid: U16,
    /// SSVID.
    pub ssvid: U16,
    /// SN, padded with spaces.
    pub serial: [u8; 20],
    /// MN, padded with spaces.
    pub model: [u8; 40],
    /// FR, padded with spaces.
    pub firmware: [u8; 8],
    /// RAB.
    pub rab: u8,
    /// IEEE.
    pub ieee: [u8; 3],
    /// CMIC.
    pub cmic: u8,
    /// MDTS: a power of two of pages of 4 KiB.
    pub mdts: u8,
    /// CNTLID.
    pub cntlid: U16,
    /// VER.
    pub version: U32,
    rtd3: [u8; 8],
    /// OAES.
    pub oaes: U32,
    /// CTRATT.
    pub ctratt: U32,
    reserved: [u8; 11],
    /// CNTRLTYPE: 1 an I/O controller, 2 a discovery controller.
    pub controller_type: u8,
    reserved2: [u8; 144],
    /// OACS.
    pub oacs: U16,
    /// ACL, 0's based.
    pub acl: u8,
    /// AERL, 0's based.
    pub aerl: u8,
    /// FRMW.
    pub frmw: u8,
    /// LPA.
    pub lpa: u8,
    /// ELPE, 0's based.
    pub elpe: u8,
    /// NPSS, 0's based.
    pub npss: u8,
    reserved3: [u8; 56],
    /// KAS: the granularity of the keep-alive timer, in 100 ms.
    pub kas: U16,
    reserved4: [u8; 190],
    /// SQES.
    pub sqes: u8,
    /// CQES.
    pub cqes: u8,
    /// MAXCMD.
    pub max_commands: U16,
    /// NN.
    pub namespaces: U32,
    /// ONCS.
    pub oncs: U16,
    /// FUSES.
    pub fuses: U16,
    /// FNA.
    pub fna: u8,
    /// VWC.
    pub vwc: u8,
    /// AWUN, 0's based.
    pub awun: U16,
    /// AWUPF, 0's based.
    pub awupf: U16,
    reserved5: [u8; 6],
    /// SGLS.
    pub sgls: U32,
    /// MNAN.
    pub max_namespaces: U32,
    reserved6: [u8; 224],
    /// SUBNQN, ended by a zero.
    pub subnqn: [u8; 256],
    reserved7: [u8; 768],
    /// IOCCSZ: the size of an I/O command capsule, in 16 bytes.
    pub ioccsz: U32,
    /// IORCSZ: the size of an I/O response capsule, in 16 bytes.
    pub iorcsz: U32,
    /// ICDOFF.
    pub icdoff: U16,
    /// FCATT.
    pub fcatt: u8,
    /// MSDBD: SGL descriptors in a capsule.
    pub msdbd: u8,
    /// OFCS.
    pub ofcs: U16,
    reserved8: [u8; 242],
    /// PSD0: the maximum power in 10 mW.
    pub max_power: U16,
    reserved9: [u8; 2046],
}

const _: () = assert!(size_of::<IdentifyController>() == IDENTIFY_BYTES);
const _: () = assert!(core::mem::offset_of!(IdentifyController, controller_type) == 111);
const _: () = assert!(core::mem::offset_of!(IdentifyController, oacs) == 256);
const _: () = assert!(core::mem::offset_of!(IdentifyController, kas) == 320);
const _: () = assert!(core::mem::offset_of!(IdentifyController, sqes) == 512);
const _: () = assert!(core::mem::offset_of!(IdentifyController, sgls) == 536);
const _: () = assert!(core::mem::offset_of!(IdentifyController, subnqn) == 768);
const _: () = assert!(core::mem::offset_of!(IdentifyController, ioccsz) == 1792);
const _: () = assert!(core::mem::offset_of!(IdentifyController, max_power) == 2048);

/// Values of single bits of Identify Controller.
pub mod controller_bits {
    /// CMIC: the subsystem may have several ports and several controllers.
    pub const CMIC_PORTS_AND_CONTROLLERS: u8 = 0b11;
    /// OAES: Namespace Attribute Notices.
    pub const OAES_NAMESPACE_ATTRIBUTE: u32 = 1 << 8;
    /// CTRATT: host identifiers of 128 bits.
    pub const CTRATT_HOSTID_128: u32 = 1 << 0;
    /// CTRATT: commands restart the keep-alive timer.
    pub const CTRATT_TRAFFIC_KEEP_ALIVE: u32 = 1 << 6;
    /// FRMW: one slot, read only.
    pub const FRMW_ONE_SLOT: u8 = 0b11;
    /// LPA: SMART for each namespace, Commands Supported and Effects, log page offsets.
    pub const LPA: u8 = 0b111;
    /// ONCS: Compare.
    pub const ONCS_COMPARE: u16 = 1 << 0;
    /// ONCS: Dataset Management.
    pub const ONCS_DATASET_MANAGEMENT: u16 = 1 << 2;
    /// ONCS: Write Zeroes.
    pub const ONCS_WRITE_ZEROES: u16 = 1 << 3;
    /// VWC: there is a cache; Flush names one namespace.
    pub const VWC: u8 = 0b101;
    /// SGLS: SGLs are supported, and keyed data blocks.
    pub const SGLS_KEYED: u32 = 1 << 0 | 1 << 2;
    /// SGLS: data blocks at an offset in the capsule.
    pub const SGLS_OFFSET: u32 = 1 << 20;
}

/// Identify Namespace.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub struct IdentifyNamespace {
    /// NSZE in logical blocks.
    pub nsze: U64,
    /// NCAP.
    pub ncap: U64,
    /// NUSE.
    pub nuse: U64,
    /// NSFEAT.
    pub nsfeat: u8,
    /// NLBAF, 0's based.
    pub nlbaf: u8,
    /// FLBAS.
    pub flbas: u8,
    reserved: [u8; 3],
    /// NMIC: bit 0, several controllers may attach it.
    pub nmic: u8,
    reserved2: [u8; 2],
    /// DLFEAT: what a deallocated block reads as.
    pub dlfeat: u8,
    reserved3: [u8; 65],
    /// NSATTR: bit 0, write protected.
    pub nsattr: u8,
    reserved4: [u8; 4],
    /// NGUID.
    pub nguid: [u8; 16],
    /// EUI64.
    pub eui64: [u8; 8],
    /// LBAF0: metadata size, data size as a power of two, relative performance.
    pub lbaf0: [u8; 4],
    reserved5: [u8; 3964],
}

const _: () = assert!(size_of::<IdentifyNamespace>() == IDENTIFY_BYTES);
const _: () = assert!(core::mem::offset_of!(IdentifyNamespace, nmic) == 30);
const _: () = assert!(core::mem::offset_of!(IdentifyNamespace, nsattr) == 99);
const _: () = assert!(core::mem::offset_of!(IdentifyNamespace, nguid) == 104);
const _: () = assert!(core::mem::offset_of!(IdentifyNamespace, lbaf0) == 128);

/// DLFEAT: deallocated blocks read as zeros, and Write Zeroes may deallocate.
pub const DLFEAT_ZEROS: u8 = 0b1001;

/// Types of namespace identification descriptors.
pub mod nidt {
    /// NGUID, 16 bytes.
    pub const NGUID: u8 = 2;
    /// UUID, 16 bytes.
    pub const UUID: u8 = 3;
    /// CSI, 1 byte.
    pub const CSI: u8 = 4;
}

/// Identify Controller of the NVM command set (NVM Command Set 1.0, 4.1.5.4): limits of commands
/// that move no data.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub struct IdentifyNvmController {
    /// VSL.
    pub vsl: u8,
    /// WZSL: a power of two of pages of 4 KiB.
    pub wzsl: u8,
    /// WUSL.
    pub wusl: u8,
    /// DMRL: ranges of a Dataset Management command.
    pub dmrl: u8,
    /// DMRSL: logical blocks of one range.
    pub dmrsl: U32,
    /// DMSL: logical blocks of all ranges of a command.
    pub dmsl: U64,
    reserved: [u8; 4080],
}

const _: () = assert!(size_of::<IdentifyNvmController>() == IDENTIFY_BYTES);
