//! Admin commands: features, Abort, Keep Alive, Asynchronous Event Request (Base 1.4, 5).

use super::controller::Controller;
use super::queue::{CapsuleLimits, Queue, Response, Step};
use super::{ASYNC_EVENTS_MAX, Target};
use crate::wire::opcode::{admin, feature};
use crate::wire::{Status, SubmissionQueueEntry};

/// Set Features: the value is to be saved.
const SAVE: u32 = 1 << 31;
/// Get Features, SEL: the current value.
const SELECT_CURRENT: u32 = 0;
/// Abort: the command was not aborted.
const NOT_ABORTED: u64 = 1;

impl Queue {
    #[cold]
    pub(super) fn admin(
        &mut self,
        token: u32,
        entry: &SubmissionQueueEntry,
        capsule: CapsuleLimits,
    ) -> Result<Step, Status> {
        let controller = self.controller().cloned().ok_or(Status::COMMAND_SEQUENCE_ERROR)?;
        let is_discovery = controller.subsystem().is_discovery();
        match entry.opcode {
            admin::IDENTIFY => self.identify(&controller, entry, capsule),
            admin::GET_LOG_PAGE => self.log_page(&controller, entry, capsule),
            admin::KEEP_ALIVE => Ok(Step::Respond(Status::SUCCESS.into())),
            admin::ASYNC_EVENT_REQUEST => self.hold_event_request(token, entry.cid.get()),
            // Fabrics 1.1, 4: a discovery controller has no queues to configure.
            admin::SET_FEATURES => set_feature(&self.target, &controller, entry, capsule.now_ms),
            admin::GET_FEATURES => get_feature(&self.target, &controller, entry),
            admin::ABORT if !is_discovery => Ok(self.abort(entry)),
            _ => Err(Status::INVALID_OPCODE),
        }
    }

    fn hold_event_request(&mut self, token: u32, cid: u16) -> Result<Step, Status> {
        if self.held.len() >= ASYNC_EVENTS_MAX {
            return Err(Status::ASYNC_EVENT_LIMIT_EXCEEDED);
        }
        self.held.push_back((token, cid));
        Ok(Step::Held)
    }

    /// Every other command ends soon by itself, and a backend cannot recall what it has begun (Base
    /// 1.4, 5.1).
    fn abort(&self, _entry: &SubmissionQueueEntry) -> Step {
        Step::Respond(Response { result: NOT_ABORTED, status: Status::SUCCESS })
    }
}

fn set_feature(
    target: &Target,
    controller: &Controller,
    entry: &SubmissionQueueEntry,
    now_ms: u64,
) -> Result<Step, Status> {
    let (identifier, value) = (entry.dword(10) as u8, entry.dword(11));
    if entry.dword(10) & SAVE != 0 {
        return Err(Status::FEATURE_NOT_SAVEABLE);
    }
    let is_discovery = controller.subsystem().is_discovery();
    let result = match identifier {
        feature::NUMBER_OF_QUEUES if !is_discovery => queue_count(target, value)?,
        feature::ASYNC_EVENT_CONFIG => {
            controller.set_event_config(value);
            0
        }
        feature::KEEP_ALIVE_TIMER => {
            controller.set_kato_ms(value, now_ms);
            0
        }
        feature::VOLATILE_WRITE_CACHE if !is_discovery => return Err(Status::FEATURE_NOT_CHANGEABLE),
        feature::HOST_IDENTIFIER => return Err(Status::COMMAND_SEQUENCE_ERROR),
        _ => return Err(Status::INVALID_FIELD),
    };
    Ok(Step::Respond(Response { result, status: Status::SUCCESS }))
}

/// Returns the number of submission and completion queues, 0's based (Base 1.4, 5.21.1.7).
fn queue_count(target: &Target, requested: u32) -> Result<u64, Status> {
    let (submission, completion) = (requested as u16, (requested >> 16) as u16);
    if submission == u16::MAX || completion == u16::MAX {
        return Err(Status::INVALID_FIELD);
    }
    let count = target.limits.io_queues.saturating_sub(1);
    Ok(u64::from(count) << 16 | u64::from(count))
}

fn get_feature(
    target: &Target,
    controller: &Controller,
    entry: &SubmissionQueueEntry,
) -> Result<Step, Status> {
    let (identifier, select) = (entry.dword(10) as u8, entry.dword(10) >> 8 & 7);
    if select != SELECT_CURRENT {
        return Err(Status::INVALID_FIELD);
    }
    let is_discovery = controller.subsystem().is_discovery();
    let result = match identifier {
        feature::NUMBER_OF_QUEUES if !is_discovery => queue_count(target, 0)?,
        feature::ASYNC_EVENT_CONFIG => controller.event_config().into(),
        feature::KEEP_ALIVE_TIMER => controller.kato_ms().into(),
        feature::VOLATILE_WRITE_CACHE if !is_discovery => 1,
        _ => return Err(Status::INVALID_FIELD),
    };
    Ok(Step::Respond(Response { result, status: Status::SUCCESS }))
}
