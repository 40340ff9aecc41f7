//! Connect and properties (Fabrics 1.1, 3.3 to 3.5).

use std::sync::Arc;

use zerocopy::FromBytes;

use super::controller::{Controller, ControllerInfo};
use super::membership::Membership;
use super::queue::{CapsuleLimits, Queue, Response, Step, pointer_of};
use super::registry::Newcomer;
use super::{ADMIN_QUEUE_ENTRIES, Target, TargetCounter};
use crate::wire::auth::AUTH_REQUIRED;
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

    /// Connects the queue to a new or an existing controller. The result is CNTLID and whether
    /// the host has to authenticate, or the place of a bad parameter.
    pub(super) fn connect_with(
        &mut self,
        entry: &SubmissionQueueEntry,
        data: &[u8],
        now_ms: u64,
    ) -> Response {
        let Ok((data, _)) = ConnectData::ref_from_prefix(data) else {
            return Status::DATA_TRANSFER_ERROR.into();
        };
        let connect = Connect::of(entry);
        let (member, needs_authentication) = match self.try_connect(connect, data, now_ms) {
            Ok(connected) => connected,
            Err(response) => return response,
        };
        let required = if needs_authentication { AUTH_REQUIRED } else { 0 };
        let result = u64::from(member.controller().cntlid()) | required;
        self.join(member);
        if !needs_authentication && !self.admit(now_ms) {
            return Status::COMMAND_SEQUENCE_ERROR.into();
        }
        self.sq_entries = connect.sqsize + 1;
        self.flow_control = connect.cattr & CATTR_DISABLE_SQ_FLOW_CONTROL == 0;
        Response { result, status: Status::SUCCESS }
    }

    fn try_connect(
        &self,
        connect: Connect,
        data: &ConnectData,
        now_ms: u64,
    ) -> Result<(Membership, bool), Response> {
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
        // The discovery log is for everyone.
        let (policy, is_discovery) = (self.target.auth_policy(), subsystem.is_discovery());
        let needs_authentication = !is_discovery && policy.hosts.contains_key(hostnqn);
        let has_no_secret = policy.is_required && !is_discovery && !needs_authentication;
        if has_no_secret || !subsystem.allows(hostnqn) {
            self.target.counters.add(TargetCounter::ConnectsNotAllowed);
            if self.target.may_log(now_ms) {
                let (host, at) = (hostnqn.escape_debug(), self.address);
                tracing::warn!("{host} at {at} may not connect to {}", subnqn.escape_debug());
            }
            return Err(Status::CONNECT_INVALID_HOST.into());
        }
        let member = if connect.qid == 0 {
            let (subsystem, hostid, address) = (subsystem.clone(), data.hostid, self.address);
            let kato_ms = match connect.kato_ms {
                0 => self.target.limits.keep_alive_default_ms,
                requested => requested,
            };
            let is_admitted = !needs_authentication;
            let info = ControllerInfo { subsystem, hostnqn, hostid, address, kato_ms, is_admitted };
            new_controller(&self.target, data.cntlid.get(), info, now_ms)?
        } else {
            let controller = self.find_controller(data, (subnqn, hostnqn))?;
            Membership::of_io(self.target.clone(), controller)
        };
        Ok((member, needs_authentication))
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
        let controller = self.controller().ok_or(Status::COMMAND_SEQUENCE_ERROR)?;
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
        let controller = self.controller().ok_or(Status::COMMAND_SEQUENCE_ERROR)?;
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

/// Creates the controller of an admin queue, and ends that of a greedier host for it if none is
/// free.
fn new_controller(
    target: &Arc<Target>,
    cntlid: u16,
    info: ControllerInfo<'_>,
    now_ms: u64,
) -> Result<Membership, Response> {
    if cntlid != CNTLID_DYNAMIC {
        return Err(bad(parameter::CNTLID, true));
    }
    let (hostnqn, address) = (info.hostnqn, info.address);
    let (is_discovery, is_admitted) = (info.subsystem.is_discovery(), info.is_admitted);
    let newcomer = Newcomer { hostnqn, address, is_discovery, is_admitted };
    let mut all = target.lock();
    let evicted = match all.make_room(newcomer, &target.limits) {
        Ok(evicted) => evicted,
        Err(reached) => {
            drop(all);
            target.counters.add(reached);
            if target.may_log(now_ms) {
                tracing::warn!(
                    "{} at {address} gets no controller: {}",
                    hostnqn.escape_debug(),
                    reached.name()
                );
            }
            return Err(Status::CONNECT_CONTROLLER_BUSY.into());
        }
    };
    let controller = all.add(|numbers| Controller::new(numbers, info, now_ms));
    drop(all);
    let member = Membership::of_admin(target.clone(), controller);
    if let Some(evicted) = evicted {
        target.counters.add(TargetCounter::ControllersEvicted);
        evicted.fail();
        if target.may_log(now_ms) {
            tracing::warn!("{evicted} ends: its host has the most, and another host needs one");
        }
    }
    Ok(member)
}

fn bad(offset: u16, in_data: bool) -> Response {
    Response { result: invalid_parameter(offset, in_data), status: Status::CONNECT_INVALID_PARAMETERS }
}
