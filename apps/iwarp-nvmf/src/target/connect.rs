//! Connect and properties (Fabrics 1.1, 3.3 to 3.5).

use std::sync::Arc;

use zerocopy::FromBytes;

use super::controller::Controller;
use super::queue::{CapsuleLimits, Queue, Response, Step, pointer_of};
use super::{ADMIN_QUEUE_ENTRIES, Target};
use crate::wire::fabrics::{
    CATTR_DISABLE_SQ_FLOW_CONTROL, CNTLID_DYNAMIC, CONNECT_DATA_BYTES, Connect, ConnectData,
    invalid_parameter, nqn, property,
};
use crate::wire::{Status, SubmissionQueueEntry};

/// Offsets of parameters, for Connect Invalid Parameters.
mod parameter {
    pub(super) const QID: u16 = 42;
    pub(super) const SQSIZE: u16 = 44;
    pub(super) const CNTLID: u16 = 16;
    pub(super) const SUBNQN: u16 = 256;
    pub(super) const HOSTNQN: u16 = 512;
}

impl Queue {
    /// Checks the command; its data is still to be fetched.
    pub(super) fn connect(
        &self,
        entry: &SubmissionQueueEntry,
        capsule: CapsuleLimits,
    ) -> Result<Step, Status> {
        let pointer = pointer_of(entry, capsule, CONNECT_DATA_BYTES)?;
        Ok(Step::FromHost { pointer, bytes: CONNECT_DATA_BYTES })
    }

    /// Connects the queue to a new or an existing controller. The result is CNTLID, or the place of a bad parameter.
    pub(super) fn connect_with(
        &mut self,
        entry: &SubmissionQueueEntry,
        data: &[u8],
        now_ms: u64,
    ) -> Response {
        let Ok((data, _)) = ConnectData::ref_from_prefix(data) else {
            return Status::DATA_TRANSFER_ERROR.into();
        };
        match self.try_connect(Connect::of(entry), data, now_ms) {
            Ok(controller) => {
                let response = Response { result: controller.cntlid().into(), status: Status::SUCCESS };
                self.controller = Some(controller);
                response
            }
            Err(response) => response,
        }
    }

    fn try_connect(
        &mut self,
        connect: Connect,
        data: &ConnectData,
        now_ms: u64,
    ) -> Result<Arc<Controller>, Response> {
        if connect.recfmt != 0 {
            return Err(Status::CONNECT_INCOMPATIBLE_FORMAT.into());
        }
        // The connection was made for one queue (RDMA transport: QID in the private data).
        let io_queues = self.target.limits.io_queues;
        if connect.qid != self.qid || connect.qid > io_queues {
            return Err(bad(parameter::QID, false));
        }
        // SQSIZE is 0's based; 0 would be a queue of one entry, which is always full.
        if connect.sqsize == 0 || connect.sqsize >= self.entries.max(1) {
            return Err(bad(parameter::SQSIZE, false));
        }
        let subnqn = nqn(&data.subnqn).ok_or(bad(parameter::SUBNQN, true))?;
        let hostnqn = nqn(&data.hostnqn).filter(|nqn| !nqn.is_empty());
        let hostnqn = hostnqn.ok_or(bad(parameter::HOSTNQN, true))?;
        let subsystem = self.target.subsystem(subnqn).ok_or(bad(parameter::SUBNQN, true))?;
        if !subsystem.allows(hostnqn) {
            tracing::warn!("{hostnqn} may not connect to {subnqn}");
            return Err(Status::CONNECT_INVALID_HOST.into());
        }
        let controller = if connect.qid == 0 {
            let cntlid = data.cntlid.get();
            let subsystem = subsystem.clone();
            new_controller(&self.target, connect, cntlid, |cntlid, kato_ms| {
                Controller::new(cntlid, subsystem, (hostnqn, data.hostid), kato_ms, now_ms)
            })?
        } else {
            self.find_controller(data, (subnqn, hostnqn))?
        };
        if !controller.state().queues.insert(connect.qid) {
            return Err(Status::COMMAND_SEQUENCE_ERROR.into());
        }
        self.sq_entries = connect.sqsize + 1;
        self.flow_control = connect.cattr & CATTR_DISABLE_SQ_FLOW_CONTROL == 0;
        controller.seen(now_ms);
        Ok(controller)
    }

    /// Finds the controller of an I/O queue: that of the same host.
    fn find_controller(
        &self,
        data: &ConnectData,
        (subnqn, hostnqn): (&str, &str),
    ) -> Result<Arc<Controller>, Response> {
        let controller = self.target.controller(data.cntlid.get()).filter(|one| !one.is_ended());
        let controller = controller.ok_or(bad(parameter::CNTLID, true))?;
        if controller.subsystem().nqn() != subnqn {
            return Err(bad(parameter::CNTLID, true));
        }
        // Another host's controller looks as if it did not exist.
        if controller.hostnqn() != hostnqn || controller.hostid() != data.hostid {
            return Err(bad(parameter::CNTLID, true));
        }
        if controller.subsystem().is_discovery() {
            return Err(bad(parameter::QID, false));
        }
        if !controller.is_ready() {
            return Err(Status::COMMAND_SEQUENCE_ERROR.into());
        }
        Ok(controller)
    }

    pub(super) fn property_get(&self, entry: &SubmissionQueueEntry) -> Result<Step, Status> {
        let controller = self.controller.as_ref().ok_or(Status::COMMAND_SEQUENCE_ERROR)?;
        let is_wide = match entry.dword(10) & 7 {
            0 => false,
            1 => true,
            _ => return Err(Status::INVALID_FIELD),
        };
        let registers = controller.registers();
        let result = match (entry.dword(11), is_wide) {
            (property::CAP, true) => {
                self.target.capabilities(self.qid == 0 && controller.subsystem().is_discovery())
            }
            (property::VS, false) => property::VS_1_4.into(),
            (property::CC, false) => registers.cc().into(),
            (property::CSTS, false) => registers.csts().into(),
            _ => return Err(Status::INVALID_FIELD),
        };
        Ok(Step::Respond(Response { result, status: Status::SUCCESS }))
    }

    pub(super) fn property_set(&self, entry: &SubmissionQueueEntry) -> Result<Step, Status> {
        let controller = self.controller.as_ref().ok_or(Status::COMMAND_SEQUENCE_ERROR)?;
        // CC is the only property that a host may write.
        if entry.dword(10) & 7 != 0 || entry.dword(11) != property::CC {
            return Err(Status::INVALID_FIELD);
        }
        controller.set_cc(entry.dword(12));
        Ok(Step::Respond(Status::SUCCESS.into()))
    }
}

impl Target {
    /// Returns CAP: MQES, CQR, a ready timeout of 5 s, and the NVM command set.
    fn capabilities(&self, is_discovery: bool) -> u64 {
        let entries = if is_discovery { ADMIN_QUEUE_ENTRIES } else { self.limits.queue_entries };
        u64::from(entries.saturating_sub(1)) | 1 << 16 | 10 << 24 | 1 << 37
    }
}

/// Creates the controller of an admin queue.
fn new_controller(
    target: &Target,
    connect: Connect,
    cntlid: u16,
    make: impl FnOnce(u16, u32) -> Controller,
) -> Result<Arc<Controller>, Response> {
    if cntlid != CNTLID_DYNAMIC {
        return Err(bad(parameter::CNTLID, true));
    }
    let kato_ms = match connect.kato_ms {
        0 => target.limits.keep_alive_default_ms,
        requested => requested,
    };
    let controller = target.add(|cntlid| make(cntlid, kato_ms)).ok_or(Status::CONNECT_CONTROLLER_BUSY)?;
    tracing::info!("{controller} connected");
    Ok(controller)
}

fn bad(offset: u16, in_data: bool) -> Response {
    Response { result: invalid_parameter(offset, in_data), status: Status::CONNECT_INVALID_PARAMETERS }
}
