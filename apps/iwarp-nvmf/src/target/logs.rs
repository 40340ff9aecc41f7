//! Get Log Page (Base 1.4, 5.14; Fabrics 1.1, 5.4).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use zerocopy::{FromZeros, IntoBytes};

use super::controller::{Controller, ERROR_ENTRIES};
use super::queue::{CapsuleLimits, Queue, Step, pointer_to_host};
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
        &mut self,
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
        let page = self.page(controller, entry.dword(10) as u8, entry.nsid.get())?;
        let offset = usize::try_from(offset).ok().filter(|&offset| offset <= page.len());
        let mut data = page.get(offset.ok_or(Status::INVALID_FIELD)?..).unwrap_or_default().to_vec();
        data.resize(bytes as usize, 0);
        Ok(Step::ToHost { data, pointer })
    }

    fn page(&mut self, controller: &Arc<Controller>, identifier: u8, nsid: u32) -> Result<Vec<u8>, Status> {
        if controller.subsystem().is_discovery() {
            return match identifier {
                lid::DISCOVERY => Ok(self.target.discovery_log(controller.hostnqn())),
                _ => Err(Status::INVALID_LOG_PAGE),
            };
        }
        match identifier {
            lid::ERROR => Ok(error_log(controller)),
            lid::SMART => self.smart_log(controller, nsid),
            // The active slot is 1; its revision is that of the program.
            lid::FIRMWARE_SLOT => {
                let mut page = vec![0; FIRMWARE_SLOT_BYTES];
                page[0] = 1;
                copy_text(&mut page[8..16], env!("CARGO_PKG_VERSION"), b' ');
                Ok(page)
            }
            lid::CHANGED_NAMESPACES => Ok(changed_namespaces(controller)),
            lid::COMMAND_EFFECTS => Ok(command_effects()),
            _ => Err(Status::INVALID_LOG_PAGE),
        }
    }

    fn smart_log(&mut self, controller: &Controller, nsid: u32) -> Result<Vec<u8>, Status> {
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

/// Four bytes for each opcode, admin commands first. Bit 0: supported; bit 1: changes logical blocks.
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
    /// An entry for each subsystem that the host may connect to, at each address.
    fn discovery_log(&self, hostnqn: &str) -> Vec<u8> {
        let allowed: Vec<_> = self.subsystems.iter().filter(|one| one.allows(hostnqn)).collect();
        let mut header = DiscoveryHeader::new_zeroed();
        header.generation = self.generation.load(Ordering::Relaxed).into();
        header.records = ((allowed.len() * self.listeners.len()) as u64).into();
        let mut page = header.as_bytes().to_vec();
        for (portid, listener) in (1u16..).zip(&self.listeners) {
            for subsystem in &allowed {
                let mut entry = DiscoveryEntry::new_zeroed();
                let family = if listener.is_ipv4() { discovery::ADRFAM_IPV4 } else { discovery::ADRFAM_IPV6 };
                (entry.trtype, entry.adrfam) = (discovery::TRTYPE_RDMA, family);
                (entry.subtype, entry.treq) = (discovery::SUBTYPE_NVM, discovery::TREQ);
                (entry.portid, entry.cntlid) = (portid.into(), u16::MAX.into());
                entry.asqsz = ADMIN_QUEUE_ENTRIES.into();
                copy_text(&mut entry.trsvcid, &listener.port().to_string(), b' ');
                copy_text(&mut entry.traddr, &listener.ip().to_string(), b' ');
                copy_text(&mut entry.subnqn, subsystem.nqn(), 0);
                (entry.qptype, entry.prtype) = (discovery::QPTYPE_CONNECTED, discovery::PRTYPE_IWARP);
                entry.cms = discovery::CMS_RDMA_CM;
                page.extend_from_slice(entry.as_bytes());
            }
        }
        page
    }
}
