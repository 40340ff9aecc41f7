//! What a host does before it reads and writes: Connect, properties, Identify, queues; and single
//! commands.

use zerocopy::IntoBytes;

use super::{Host, Transfer};
use crate::NvmfError;
use crate::target::ADMIN_QUEUE_ENTRIES;
use crate::wire::fabrics::{
    CATTR_DISABLE_SQ_FLOW_CONTROL, CNTLID_DYNAMIC, CONNECT_DATA_BYTES, CmRequest, Connect, ConnectData,
    property, property_get, property_set,
};
use crate::wire::identify::{IDENTIFY_BYTES, IdentifyController, IdentifyNamespace, cns};
use crate::wire::log_page::{DiscoveryEntry, DiscoveryHeader, lid};
use crate::wire::opcode::{admin, feature, io};
use crate::wire::{CompletionQueueEntry, SQE_BYTES, Status, SubmissionQueueEntry};

/// What a host shows of a controller.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ControllerSummary {
    /// The model.
    pub model: String,
    /// The serial number.
    pub serial: String,
    /// The firmware revision.
    pub firmware: String,
    /// CNTLID.
    pub cntlid: u16,
    /// The largest transfer in bytes.
    pub transfer_bytes: u32,
    /// Bytes of data in a capsule.
    pub capsule_bytes: u32,
}

/// What a host shows of a namespace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NamespaceSummary {
    /// NSID.
    pub nsid: u32,
    /// Logical blocks.
    pub blocks: u64,
    /// The size of a logical block in bytes.
    pub block_bytes: u32,
    /// NGUID.
    pub nguid: [u8; 16],
}

/// A record of the discovery log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DiscoveryRecord {
    /// The subsystem.
    pub subnqn: String,
    /// The address.
    pub address: String,
    /// The port.
    pub service: String,
}

fn text(field: &[u8]) -> String {
    let end = field.iter().position(|&byte| byte == 0).unwrap_or(field.len());
    String::from_utf8_lossy(field.get(..end).unwrap_or_default()).trim_end().to_owned()
}

/// Fails unless a command succeeded.
pub(super) fn succeed(command: &'static str, entry: CompletionQueueEntry) -> Result<u64, NvmfError> {
    let (status, result) = (entry.status(), entry.result.get());
    if status.is_success() { Ok(result) } else { Err(NvmfError::Command { command, status, result }) }
}

impl Host {
    /// Connects the admin queue, enables the controller and reads what it offers.
    ///
    /// # Errors
    ///
    /// The target rejects the connection or a command, or does not respond.
    pub fn connect(&mut self, between: &mut dyn FnMut()) -> Result<ControllerSummary, NvmfError> {
        self.cntlid = CNTLID_DYNAMIC;
        let entry = self.connect_queue(0, ADMIN_QUEUE_ENTRIES, between)?;
        self.cntlid = succeed("Connect", entry)? as u16;
        let cap = self.property(property_get(0, property::CAP, true), between)?;
        self.settings.queue_entries = self.settings.queue_entries.min((cap as u16).saturating_add(1));
        self.property(property_set(0, property::CC, property::CC_EN | property::CC_ENTRY_SIZES), between)?;
        let csts = self.property(property_get(0, property::CSTS, false), between)? as u32;
        if csts & property::CSTS_RDY == 0 {
            return Err(NvmfError::Protocol(format!("the controller is not ready: CSTS {csts:#x}")));
        }
        self.identify_controller(between)
    }

    /// Opens a queue, sends its Connect, and authenticates it if that is due. Returns the response
    /// to Connect.
    ///
    /// # Errors
    ///
    /// The target rejects the connection or the authentication, or does not respond.
    pub fn connect_queue(
        &mut self,
        qid: u16,
        entries: u16,
        between: &mut dyn FnMut(),
    ) -> Result<CompletionQueueEntry, NvmfError> {
        let queue = self.open_queue(CmRequest::new(qid, entries).as_bytes(), entries)?;
        self.wait(queue, between, |host| host.is_up(queue).then_some(()))?;
        let settings = &self.settings;
        let cattr = if settings.no_flow_control { CATTR_DISABLE_SQ_FLOW_CONTROL } else { 0 };
        let kato_ms = if qid == 0 { settings.kato_ms } else { 0 };
        let connect = Connect { recfmt: 0, qid, sqsize: entries.saturating_sub(1), cattr, kato_ms };
        let data = ConnectData::new(settings.hostid, self.cntlid, &settings.subnqn, &settings.hostnqn);
        let entry = self.send_connect(queue, connect, &data, between)?;
        if entry.status().is_success() {
            self.authenticate_if_due(queue, entry.result.get(), between)?;
        }
        Ok(entry)
    }

    /// Sends a Connect on an open queue, for tests of its fields.
    ///
    /// # Errors
    ///
    /// The target does not respond.
    pub fn send_connect(
        &mut self,
        queue: usize,
        connect: Connect,
        data: &ConnectData,
        between: &mut dyn FnMut(),
    ) -> Result<CompletionQueueEntry, NvmfError> {
        // As Linux does: the data is in the capsule where capsules have data.
        let in_capsule =
            connect.qid > 0 && self.settings.in_capsule && self.capsule_bytes >= CONNECT_DATA_BYTES;
        let transfer = if in_capsule { Transfer::InCapsule } else { Transfer::ToTarget };
        let mut bytes = data.as_bytes().to_vec();
        self.execute(queue, connect.entry(0), transfer(CONNECT_DATA_BYTES), &mut bytes, between)
    }

    /// Requests and opens I/O queues.
    ///
    /// # Errors
    ///
    /// The target refuses a queue.
    pub fn connect_io_queues(&mut self, count: u16, between: &mut dyn FnMut()) -> Result<(), NvmfError> {
        let mut set = SubmissionQueueEntry::new(admin::SET_FEATURES, 0, 0);
        set.set_dword(10, feature::NUMBER_OF_QUEUES.into());
        let requested = u32::from(count.saturating_sub(1));
        set.set_dword(11, requested << 16 | requested);
        let granted = self.property(set, between)? as u16;
        for qid in 1..=count.min(granted.saturating_add(1)) {
            let entry = self.connect_queue(qid, self.settings.queue_entries, between)?;
            succeed("Connect", entry)?;
        }
        Ok(())
    }

    /// Executes an admin command without data, and returns its result.
    ///
    /// # Errors
    ///
    /// The command fails.
    pub fn property(
        &mut self,
        entry: SubmissionQueueEntry,
        between: &mut dyn FnMut(),
    ) -> Result<u64, NvmfError> {
        succeed("an admin command", self.execute(0, entry, Transfer::None, &mut [], between)?)
    }

    /// Executes Identify. Returns its data.
    ///
    /// # Errors
    ///
    /// The command fails.
    pub fn identify(&mut self, cns: u8, nsid: u32, between: &mut dyn FnMut()) -> Result<Vec<u8>, NvmfError> {
        let mut entry = SubmissionQueueEntry::new(admin::IDENTIFY, 0, nsid);
        entry.set_dword(10, cns.into());
        let mut data = vec![0; IDENTIFY_BYTES];
        let transfer = Transfer::FromTarget(IDENTIFY_BYTES as u32);
        succeed("Identify", self.execute(0, entry, transfer, &mut data, between)?)?;
        Ok(data)
    }

    fn identify_controller(&mut self, between: &mut dyn FnMut()) -> Result<ControllerSummary, NvmfError> {
        let data = self.identify(cns::CONTROLLER, 0, between)?;
        let mut identity = Host::zeroed::<IdentifyController>();
        identity.as_mut_bytes().copy_from_slice(&data);
        if identity.cntlid.get() != self.cntlid {
            let (found, own) = (identity.cntlid.get(), self.cntlid);
            return Err(NvmfError::Protocol(format!("Identify names controller {found}, Connect {own}")));
        }
        let capsule = identity.ioccsz.get().saturating_mul(16);
        self.capsule_bytes = capsule.saturating_sub(SQE_BYTES as u32);
        Ok(ControllerSummary {
            model: text(&identity.model),
            serial: text(&identity.serial),
            firmware: text(&identity.firmware),
            cntlid: self.cntlid,
            transfer_bytes: if identity.mdts == 0 { u32::MAX } else { 4096 << identity.mdts.min(19) },
            capsule_bytes: self.capsule_bytes,
        })
    }

    /// Returns the active namespaces.
    ///
    /// # Errors
    ///
    /// A command fails.
    pub fn namespaces(&mut self, between: &mut dyn FnMut()) -> Result<Vec<NamespaceSummary>, NvmfError> {
        let list = self.identify(cns::ACTIVE_NAMESPACES, 0, between)?;
        let nsids = list.as_chunks::<4>().0.iter().map(|&bytes| u32::from_le_bytes(bytes));
        nsids.take_while(|&nsid| nsid != 0).map(|nsid| self.namespace(nsid, between)).collect()
    }

    /// Returns a namespace.
    ///
    /// # Errors
    ///
    /// The command fails.
    pub fn namespace(&mut self, nsid: u32, between: &mut dyn FnMut()) -> Result<NamespaceSummary, NvmfError> {
        let data = self.identify(cns::NAMESPACE, nsid, between)?;
        let mut identity = Host::zeroed::<IdentifyNamespace>();
        identity.as_mut_bytes().copy_from_slice(&data);
        let block_bytes = 1u32.checked_shl(identity.lbaf0[2].into()).unwrap_or(0);
        Ok(NamespaceSummary { nsid, blocks: identity.nsze.get(), block_bytes, nguid: identity.nguid })
    }

    /// Reads a log page.
    ///
    /// # Errors
    ///
    /// The command fails.
    pub fn log_page(
        &mut self,
        identifier: u8,
        (offset, bytes): (u64, u32),
        between: &mut dyn FnMut(),
    ) -> Result<Vec<u8>, NvmfError> {
        let dwords = (bytes / 4).saturating_sub(1);
        let mut entry = SubmissionQueueEntry::new(admin::GET_LOG_PAGE, 0, u32::MAX);
        entry.set_dword(10, dwords << 16 | u32::from(identifier));
        entry.set_dword(11, dwords >> 16);
        entry.set_qword(12, offset);
        let mut data = vec![0; bytes as usize];
        succeed("Get Log Page", self.execute(0, entry, Transfer::FromTarget(bytes), &mut data, between)?)?;
        Ok(data)
    }

    /// Reads the discovery log of a discovery controller.
    ///
    /// # Errors
    ///
    /// A command fails, or the log is not of this format.
    pub fn discover(&mut self, between: &mut dyn FnMut()) -> Result<Vec<DiscoveryRecord>, NvmfError> {
        const RECORD: usize = size_of::<DiscoveryEntry>();
        let header_bytes = self.log_page(lid::DISCOVERY, (0, RECORD as u32), between)?;
        let mut header = Host::zeroed::<DiscoveryHeader>();
        header.as_mut_bytes().copy_from_slice(&header_bytes);
        let mut records = Vec::new();
        for number in 0..header.records.get() {
            let offset = (number + 1) * RECORD as u64;
            let bytes = self.log_page(lid::DISCOVERY, (offset, RECORD as u32), between)?;
            let mut record = Host::zeroed::<DiscoveryEntry>();
            record.as_mut_bytes().copy_from_slice(&bytes);
            let (address, service) = (text(&record.traddr), text(&record.trsvcid));
            records.push(DiscoveryRecord { subnqn: text(&record.subnqn), address, service });
        }
        Ok(records)
    }

    /// Reads blocks on the first I/O queue. `data` is as long as the blocks.
    ///
    /// # Errors
    ///
    /// The command fails.
    pub fn read(
        &mut self,
        at: BlockRange,
        data: &mut [u8],
        between: &mut dyn FnMut(),
    ) -> Result<(), NvmfError> {
        let transfer = Transfer::FromTarget(data.len() as u32);
        succeed("Read", self.execute(1, at.entry(io::READ), transfer, data, between)?).map(drop)
    }

    /// Writes blocks on the first I/O queue.
    ///
    /// # Errors
    ///
    /// The command fails.
    pub fn write(
        &mut self,
        at: BlockRange,
        data: &mut [u8],
        between: &mut dyn FnMut(),
    ) -> Result<(), NvmfError> {
        let transfer = self.transfer_to_target(data.len() as u32);
        succeed("Write", self.execute(1, at.entry(io::WRITE), transfer, data, between)?).map(drop)
    }

    /// Returns how the data of a Write goes to the target.
    pub fn transfer_to_target(&self, bytes: u32) -> Transfer {
        if self.settings.in_capsule && bytes <= self.capsule_bytes {
            Transfer::InCapsule(bytes)
        } else {
            Transfer::ToTarget(bytes)
        }
    }

    /// Makes durable what was written.
    ///
    /// # Errors
    ///
    /// The command fails.
    pub fn flush(&mut self, nsid: u32, between: &mut dyn FnMut()) -> Result<(), NvmfError> {
        let entry = SubmissionQueueEntry::new(io::FLUSH, 0, nsid);
        succeed("Flush", self.execute(1, entry, Transfer::None, &mut [], between)?).map(drop)
    }

    /// Returns the status of a command on a queue, for tests.
    ///
    /// # Errors
    ///
    /// The target does not respond.
    pub fn status(
        &mut self,
        queue: usize,
        entry: SubmissionQueueEntry,
        transfer: Transfer,
        between: &mut dyn FnMut(),
    ) -> Result<Status, NvmfError> {
        let bytes = match transfer {
            Transfer::ToTarget(bytes) | Transfer::InCapsule(bytes) | Transfer::FromTarget(bytes) => bytes,
            Transfer::None | Transfer::AsIs => 0,
        };
        let mut data = vec![0; bytes as usize];
        Ok(self.execute(queue, entry, transfer, &mut data, between)?.status())
    }
}

/// Blocks of a namespace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockRange {
    /// NSID.
    pub nsid: u32,
    /// SLBA.
    pub slba: u64,
    /// The number of blocks, from 1.
    pub blocks: u32,
}

impl BlockRange {
    /// Returns a command for these blocks.
    pub fn entry(&self, opcode: u8) -> SubmissionQueueEntry {
        let mut entry = SubmissionQueueEntry::new(opcode, 0, self.nsid);
        entry.set_qword(10, self.slba);
        entry.set_dword(12, self.blocks.saturating_sub(1) & 0xffff);
        entry
    }
}
