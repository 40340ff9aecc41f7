//! Get Log Page (Base 1.4, 5.14; Fabrics 1.1, 5.4).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use zerocopy::{FromZeros, IntoBytes};

use super::controller::{Controller, ERROR_ENTRIES};
use super::queue::{CapsuleLimits, PIECE_BYTES, Queue, Step, pointer_to_host};
use super::subsystem::Subsystem;
use super::{ADMIN_QUEUE_ENTRIES, Target};
use crate::wire::fabrics::copy_text;
use crate::wire::log_page::{DiscoveryEntry, DiscoveryHeader, ErrorEntry, SmartLog, discovery, lid};
use crate::wire::opcode::{admin, io};
use crate::wire::{Status, SubmissionQueueEntry};

/// Bytes of Firmware Slot Information.
const FIRMWARE_SLOT_BYTES: usize = 512;
/// Bytes of a Changed Namespace List, and of Commands Supported and Effects.
const PAGE_BYTES: usize = 4096;
/// A parameter error location that names nothing.
const LOCATION_NONE: u16 = 0xffff;
/// 30 degrees Celsius in kelvins: this program has no sensor.
const TEMPERATURE: u16 = 303;

impl Queue {
    pub(super) fn log_page(
        &self,
        controller: &Arc<Controller>,
        entry: &SubmissionQueueEntry,
        capsule: CapsuleLimits,
    ) -> Result<Step, Status> {
        // NUMD is 0's based and in dwords, its lower half in dword 10, its upper half in dword 11.
        let dwords = u64::from(entry.dword(10) >> 16) | u64::from(entry.dword(11) as u16) << 16;
        let bytes = u32::try_from((dwords + 1) * 4).map_err(|_| Status::INVALID_FIELD)?;
        if bytes > self.target.limits.transfer_bytes {
            return Err(Status::INVALID_FIELD);
        }
        let pointer = pointer_to_host(entry, capsule, bytes)?;
        let offset = entry.qword(12);
        if !offset.is_multiple_of(4) {
            return Err(Status::INVALID_FIELD);
        }
        let (identifier, nsid) = (entry.dword(10) as u8, entry.nsid.get());
        if offset > self.page_bytes(controller, identifier)? {
            return Err(Status::INVALID_FIELD);
        }
        let data = self.page(controller, (identifier, nsid), offset, bytes.min(PIECE_BYTES))?;
        Ok(Step::ToHost { data, pointer })
    }

    /// Returns a piece of a log page after the first. Only the discovery log is longer than a
    /// piece: the others read as zeros beyond.
    pub(super) fn log_piece(&self, entry: &SubmissionQueueEntry, from: u64, bytes: u32) -> Vec<u8> {
        let offset = entry.qword(12).saturating_add(from);
        let is_discovery = entry.opcode == admin::GET_LOG_PAGE && entry.dword(10) as u8 == lid::DISCOVERY;
        let controller = self.controller().filter(|one| is_discovery && one.subsystem().is_discovery());
        match controller {
            Some(controller) => self.target.discovery_log(controller.hostnqn(), offset, bytes),
            None => vec![0; bytes as usize],
        }
    }

    /// Returns the length of a log page.
    fn page_bytes(&self, controller: &Controller, identifier: u8) -> Result<u64, Status> {
        match (identifier, controller.subsystem().is_discovery()) {
            (lid::DISCOVERY, true) => Ok(self.target.discovery_log_bytes(controller.hostnqn())),
            (lid::ERROR, false) => Ok((ERROR_ENTRIES * size_of::<ErrorEntry>()) as u64),
            (lid::SMART, false) => Ok(size_of::<SmartLog>() as u64),
            (lid::FIRMWARE_SLOT, false) => Ok(FIRMWARE_SLOT_BYTES as u64),
            (lid::CHANGED_NAMESPACES | lid::COMMAND_EFFECTS, false) => Ok(PAGE_BYTES as u64),
            _ => Err(Status::INVALID_LOG_PAGE),
        }
    }

    /// Returns `bytes` bytes of a page from an offset on; zeros beyond its end.
    fn page(
        &self,
        controller: &Arc<Controller>,
        (identifier, nsid): (u8, u32),
        offset: u64,
        bytes: u32,
    ) -> Result<Vec<u8>, Status> {
        let page = match identifier {
            lid::DISCOVERY => return Ok(self.target.discovery_log(controller.hostnqn(), offset, bytes)),
            lid::ERROR => error_log(controller),
            lid::SMART => self.smart_log(controller, nsid)?,
            // The active slot is 1; its revision is that of the program.
            lid::FIRMWARE_SLOT => {
                let mut page = vec![0; FIRMWARE_SLOT_BYTES];
                page[0] = 1;
                copy_text(&mut page[8..16], env!("CARGO_PKG_VERSION"), b' ');
                page
            }
            lid::CHANGED_NAMESPACES => changed_namespaces(controller),
            lid::COMMAND_EFFECTS => command_effects(),
            _ => return Err(Status::INVALID_LOG_PAGE),
        };
        let offset = usize::try_from(offset).map_err(|_| Status::INVALID_FIELD)?;
        let mut data: Vec<u8> = page.into_iter().skip(offset).take(bytes as usize).collect();
        data.resize(bytes as usize, 0);
        Ok(data)
    }

    fn smart_log(&self, controller: &Controller, nsid: u32) -> Result<Vec<u8>, Status> {
        let all = self.namespaces();
        let counted: Vec<_> = match nsid {
            0 | u32::MAX => all.values().collect(),
            one => vec![all.get(&one).ok_or(Status::INVALID_NAMESPACE)?],
        };
        let sum = |of: fn(&super::IoCounters) -> &std::sync::atomic::AtomicU64| -> u64 {
            counted.iter().map(|one| of(&one.counters).load(Ordering::Relaxed)).fold(0, u64::wrapping_add)
        };
        let units = |bytes: u64| (bytes / 512).div_ceil(1000);
        let mut page = SmartLog::new_zeroed();
        page.temperature = TEMPERATURE.into();
        (page.available_spare, page.spare_threshold) = (100, 10);
        page.data_units_read[0] = units(sum(|one| &one.read_bytes)).into();
        page.data_units_written[0] = units(sum(|one| &one.written_bytes)).into();
        page.host_reads[0] = sum(|one| &one.reads).into();
        page.host_writes[0] = sum(|one| &one.writes).into();
        page.media_errors[0] = sum(|one| &one.media_errors).into();
        page.error_entries[0] = controller.errors().into();
        Ok(page.as_bytes().to_vec())
    }
}

fn error_log(controller: &Controller) -> Vec<u8> {
    let mut page = Vec::new();
    for record in &controller.state().errors {
        let mut entry = ErrorEntry::new_zeroed();
        entry.count = record.count.into();
        (entry.sqid, entry.cid) = (record.sqid.into(), record.cid.into());
        entry.status = record.status.to_field().into();
        entry.location = LOCATION_NONE.into();
        (entry.lba, entry.nsid) = (record.lba.into(), record.nsid.into());
        page.extend_from_slice(entry.as_bytes());
    }
    page.resize(ERROR_ENTRIES * size_of::<ErrorEntry>(), 0);
    page
}

fn changed_namespaces(controller: &Controller) -> Vec<u8> {
    let changed = controller.take_changed();
    let mut page: Vec<u8> = changed.iter().flat_map(|nsid| nsid.to_le_bytes()).collect();
    page.resize(PAGE_BYTES, 0);
    page
}

/// Four bytes for each opcode, admin commands first. Bit 0: supported; bit 1: changes logical
/// blocks.
fn command_effects() -> Vec<u8> {
    const SUPPORTED: u8 = 1;
    const CHANGES_BLOCKS: u8 = 2;
    let mut page = vec![0; PAGE_BYTES];
    let admins = [
        admin::GET_LOG_PAGE,
        admin::IDENTIFY,
        admin::ABORT,
        admin::SET_FEATURES,
        admin::GET_FEATURES,
        admin::ASYNC_EVENT_REQUEST,
        admin::KEEP_ALIVE,
    ];
    for opcode in admins {
        page[usize::from(opcode) * 4] = SUPPORTED;
    }
    for opcode in [io::FLUSH, io::READ, io::COMPARE] {
        page[1024 + usize::from(opcode) * 4] = SUPPORTED;
    }
    for opcode in [io::WRITE, io::WRITE_ZEROES, io::DATASET_MANAGEMENT] {
        page[1024 + usize::from(opcode) * 4] = SUPPORTED | CHANGES_BLOCKS;
    }
    page
}

impl Target {
    /// Returns the length of the discovery log that a host sees.
    fn discovery_log_bytes(&self, hostnqn: &str) -> u64 {
        let allowed = self.subsystems.iter().filter(|one| one.allows(hostnqn)).count();
        ((1 + allowed * self.listeners.len()) * size_of::<DiscoveryEntry>()) as u64
    }

    /// Returns `bytes` bytes of the discovery log from `offset` on; zeros beyond its end. It has an
    /// entry for each subsystem that the host may connect to, at each address. Only the entries
    /// that are asked for are made.
    fn discovery_log(&self, hostnqn: &str, offset: u64, bytes: u32) -> Vec<u8> {
        const ENTRY: u64 = size_of::<DiscoveryEntry>() as u64;
        let allowed: Vec<_> = self.subsystems.iter().filter(|one| one.allows(hostnqn)).collect();
        let end = offset.saturating_add(bytes.into());
        let mut data = Vec::with_capacity(bytes as usize + size_of::<DiscoveryEntry>());
        let (first, mut number) = (offset / ENTRY, offset / ENTRY);
        while number.saturating_mul(ENTRY) < end {
            match number.checked_sub(1) {
                None => data.extend_from_slice(self.discovery_header(&allowed).as_bytes()),
                Some(record) => match self.discovery_entry(&allowed, record) {
                    Some(entry) => data.extend_from_slice(entry.as_bytes()),
                    None => break,
                },
            }
            number += 1;
        }
        let skipped = usize::try_from(offset - first * ENTRY).unwrap_or_default();
        data.drain(..skipped.min(data.len()));
        data.resize(bytes as usize, 0);
        data
    }

    fn discovery_header(&self, allowed: &[&Arc<Subsystem>]) -> DiscoveryHeader {
        let mut header = DiscoveryHeader::new_zeroed();
        header.generation = self.generation.load(Ordering::Relaxed).into();
        header.records = ((allowed.len() * self.listeners.len()) as u64).into();
        header
    }

    /// Returns a record of the log, from 0.
    fn discovery_entry(&self, allowed: &[&Arc<Subsystem>], record: u64) -> Option<DiscoveryEntry> {
        let record = usize::try_from(record).ok()?;
        let port = record.checked_div(allowed.len())?;
        let (listener, subsystem) = (self.listeners.get(port)?, allowed.get(record % allowed.len())?);
        let mut entry = DiscoveryEntry::new_zeroed();
        let family = if listener.is_ipv4() { discovery::ADRFAM_IPV4 } else { discovery::ADRFAM_IPV6 };
        (entry.trtype, entry.adrfam) = (discovery::TRTYPE_RDMA, family);
        (entry.subtype, entry.treq) = (discovery::SUBTYPE_NVM, discovery::TREQ);
        (entry.portid, entry.cntlid) = ((port as u16).wrapping_add(1).into(), u16::MAX.into());
        entry.asqsz = ADMIN_QUEUE_ENTRIES.into();
        copy_text(&mut entry.trsvcid, &listener.port().to_string(), b' ');
        copy_text(&mut entry.traddr, &listener.ip().to_string(), b' ');
        copy_text(&mut entry.subnqn, subsystem.nqn(), 0);
        (entry.qptype, entry.prtype) = (discovery::QPTYPE_CONNECTED, discovery::PRTYPE_IWARP);
        entry.cms = discovery::CMS_RDMA_CM;
        Some(entry)
    }
}
