//! Identify (Base 1.4, 5.15).

use std::sync::Arc;

use zerocopy::{FromZeros, IntoBytes};

use super::controller::{Controller, ERROR_ENTRIES, KEEP_ALIVE_UNIT_MS};
use super::io::{DATASET_BLOCKS_MAX, DATASET_RANGE_BLOCKS_MAX};
use super::queue::{CapsuleLimits, Queue, Step, pointer_to_host};
use super::subsystem::Namespace;
use super::{ADMIN_QUEUE_ENTRIES, ASYNC_EVENTS_MAX, Target};
use crate::wire::fabrics::{copy_text, property};
use crate::wire::identify::{
    DLFEAT_ZEROS, IDENTIFY_BYTES, IdentifyController, IdentifyNamespace, IdentifyNvmController, cns,
    controller_bits as bits, nidt,
};
use crate::wire::{CQE_BYTES, SQE_BYTES, Status, SubmissionQueueEntry};

/// NSID that names all namespaces.
const NSID_ALL: u32 = u32::MAX;
/// The largest NSID, as Identify Controller says.
pub const NSID_MAX: u32 = 1024;
/// CSI of the NVM command set.
const CSI_NVM: u8 = 0;
/// NSTAT: the namespace is ready.
const NSTAT_READY: u8 = 1;

impl Queue {
    pub(super) fn identify(
        &mut self,
        controller: &Arc<Controller>,
        entry: &SubmissionQueueEntry,
        capsule: CapsuleLimits,
    ) -> Result<Step, Status> {
        let pointer = pointer_to_host(entry, capsule, IDENTIFY_BYTES as u32)?;
        let (cns, nsid, csi) = (entry.dword(10) as u8, entry.nsid.get(), (entry.dword(11) >> 24) as u8);
        let is_discovery = controller.subsystem().is_discovery();
        let data = match cns {
            cns::CONTROLLER => self.target.identify_controller(controller),
            _ if is_discovery => return Err(Status::INVALID_FIELD),
            cns::NAMESPACE => self.identify_namespace(nsid)?,
            cns::ACTIVE_NAMESPACES => self.active_namespaces(nsid)?,
            cns::NAMESPACE_DESCRIPTORS => descriptors(self.namespace(nsid)?),
            cns::COMMAND_SET_CONTROLLER if csi == CSI_NVM => nvm_controller(),
            cns::INDEPENDENT_NAMESPACE => independent(self.namespace(nsid)?),
            _ => return Err(Status::INVALID_FIELD),
        };
        Ok(Step::ToHost { data, pointer })
    }

    /// An inactive namespace is all zeros; one that cannot exist is an error.
    fn identify_namespace(&mut self, nsid: u32) -> Result<Vec<u8>, Status> {
        if nsid == 0 || nsid == NSID_ALL || nsid > NSID_MAX {
            return Err(Status::INVALID_NAMESPACE);
        }
        Ok(self
            .namespace(nsid)
            .map_or_else(|_| vec![0; IDENTIFY_BYTES], |namespace| namespace_data(namespace)))
    }

    /// Lists NSIDs above `after`, in order.
    fn active_namespaces(&self, after: u32) -> Result<Vec<u8>, Status> {
        if after >= NSID_ALL - 1 {
            return Err(Status::INVALID_NAMESPACE);
        }
        let mut data = Vec::with_capacity(IDENTIFY_BYTES);
        for (nsid, _) in self.namespaces().range(after + 1..).take(IDENTIFY_BYTES / 4) {
            data.extend_from_slice(&nsid.to_le_bytes());
        }
        data.resize(IDENTIFY_BYTES, 0);
        Ok(data)
    }
}

impl Target {
    fn identify_controller(&self, controller: &Controller) -> Vec<u8> {
        let mut data = IdentifyController::new_zeroed();
        let (limits, subsystem) = (&self.limits, controller.subsystem().info());
        copy_text(&mut data.serial, &subsystem.serial, b' ');
        copy_text(&mut data.model, &subsystem.model, b' ');
        copy_text(&mut data.firmware, env!("CARGO_PKG_VERSION"), b' ');
        copy_text(&mut data.subnqn, &subsystem.nqn, 0);
        data.cntlid = controller.cntlid().into();
        data.version = property::VS_1_4.into();
        data.ctratt = (bits::CTRATT_HOSTID_128 | bits::CTRATT_TRAFFIC_KEEP_ALIVE).into();
        data.aerl = (ASYNC_EVENTS_MAX - 1) as u8;
        data.lpa = bits::LPA;
        data.elpe = (ERROR_ENTRIES - 1) as u8;
        data.kas = ((KEEP_ALIVE_UNIT_MS / 100) as u16).into();
        data.mdts = mdts(limits.transfer_bytes);
        data.sgls = (bits::SGLS_KEYED | bits::SGLS_OFFSET).into();
        data.msdbd = 1;
        if controller.subsystem().is_discovery() {
            (data.controller_type, data.max_commands) = (2, ADMIN_QUEUE_ENTRIES.into());
            return data.as_bytes().to_vec();
        }
        data.controller_type = 1;
        data.max_commands = limits.queue_entries.into();
        data.cmic = bits::CMIC_PORTS_AND_CONTROLLERS;
        data.oaes = bits::OAES_NAMESPACE_ATTRIBUTE.into();
        data.acl = 3;
        data.frmw = bits::FRMW_ONE_SLOT;
        (data.sqes, data.cqes) = (0x66, 0x44);
        (data.namespaces, data.max_namespaces) = (NSID_MAX.into(), NSID_MAX.into());
        data.oncs = (bits::ONCS_COMPARE | bits::ONCS_DATASET_MANAGEMENT | bits::ONCS_WRITE_ZEROES).into();
        data.vwc = bits::VWC;
        data.ioccsz = ((SQE_BYTES as u32 + limits.capsule_bytes) / 16).into();
        data.iorcsz = (CQE_BYTES as u32 / 16).into();
        data.max_power = 2500.into();
        data.as_bytes().to_vec()
    }
}

/// Limits of commands that move no data (NVM Command Set 1.0, 4.1.5.4). WZSL and DMRL are 0: a
/// Write Zeroes takes as many blocks, and Dataset Management as many ranges, as their fields can
/// say. Hosts of 1.4 do not ask, and may send that.
fn nvm_controller() -> Vec<u8> {
    let mut data = IdentifyNvmController::new_zeroed();
    data.dmrsl = DATASET_RANGE_BLOCKS_MAX.into();
    data.dmsl = DATASET_BLOCKS_MAX.into();
    data.as_bytes().to_vec()
}

/// Returns MDTS: the binary logarithm of the pages of 4 KiB.
fn mdts(transfer_bytes: u32) -> u8 {
    (transfer_bytes / 4096).max(1).ilog2() as u8
}

fn namespace_data(namespace: &Namespace) -> Vec<u8> {
    let info = &namespace.info;
    let mut data = IdentifyNamespace::new_zeroed();
    (data.nsze, data.ncap, data.nuse) = (info.blocks.into(), info.blocks.into(), info.blocks.into());
    data.nmic = 1;
    data.dlfeat = DLFEAT_ZEROS;
    data.nsattr = info.read_only.into();
    data.nguid = info.nguid;
    data.lbaf0 = [0, 0, info.block_shift, 0];
    data.as_bytes().to_vec()
}

/// Type, length, two reserved bytes, identifier.
fn descriptors(namespace: &Namespace) -> Vec<u8> {
    let mut data = Vec::with_capacity(IDENTIFY_BYTES);
    let (nguid, uuid) = (&namespace.info.nguid[..], &namespace.info.uuid[..]);
    for (kind, identifier) in [(nidt::NGUID, nguid), (nidt::UUID, uuid), (nidt::CSI, &[CSI_NVM][..])] {
        data.extend_from_slice(&[kind, identifier.len() as u8, 0, 0]);
        data.extend_from_slice(identifier);
    }
    data.resize(IDENTIFY_BYTES, 0);
    data
}

/// NSFEAT, NMIC, RESCAP, FPI, ANAGRPID, NSATTR, and NSTAT at 14 (Base 2.0, 5.17.2.8).
fn independent(namespace: &Namespace) -> Vec<u8> {
    let mut data = vec![0; IDENTIFY_BYTES];
    (data[1], data[8], data[14]) = (1, namespace.info.read_only.into(), NSTAT_READY);
    data
}
