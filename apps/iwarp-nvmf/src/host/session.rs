//! How a host gets a controller without waiting: the connection of its admin queue and its Connect,
//! CC.EN, and the same for an I/O queue (Fabrics 1.1, 3.3 and 1.5.6). Each step waits for the one
//! before it; a connection that fails is tried again.

use ironwarp::Nanos;
use zerocopy::IntoBytes;

use super::{Host, Transfer};
use crate::NvmfError;
use crate::target::ADMIN_QUEUE_ENTRIES;
use crate::wire::fabrics::{
    CNTLID_DYNAMIC, CONNECT_DATA_BYTES, CmRequest, Connect, ConnectData, property, property_set,
};
use crate::wire::{Status, SubmissionQueueEntry};

/// The time between an attempt that failed and the next one.
const RETRY_DELAY: Nanos = Nanos::from_millis(50);

/// Where a session is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// It connects from this time on.
    Waiting(Nanos),
    /// The connection of a queue is being made.
    Opening(u16),
    /// Its Connect has no response.
    Connecting(u16),
    /// CC.EN has no response.
    Enabling,
    Ready,
}

/// A controller with an I/O queue, or an attempt to get one.
pub struct Session {
    /// Entries of the I/O queue.
    entries: u16,
    cntlid: u16,
    stage: Stage,
    /// The numbers of its queues at the host: admin, I/O.
    queues: [Option<usize>; 2],
    /// Attempts that have failed.
    pub failures: u32,
}

impl Session {
    /// A session with an I/O queue of `entries` entries, as the settings of its host say.
    pub fn new(entries: u16) -> Self {
        Session {
            entries,
            cntlid: CNTLID_DYNAMIC,
            stage: Stage::Waiting(Nanos::ZERO),
            queues: [None; 2],
            failures: 0,
        }
    }

    /// Returns the admin queue and the I/O queue.
    pub fn queues(&self) -> Option<[usize; 2]> {
        match (self.stage, self.queues) {
            (Stage::Ready, [Some(admin), Some(io)]) => Some([admin, io]),
            _ => None,
        }
    }

    /// Describes where it is.
    pub fn describe(&self) -> String {
        format!("{:?} after {} failures", self.stage, self.failures)
    }

    /// Goes on. Returns the status of a command that failed, after which it begins again.
    ///
    /// # Errors
    ///
    /// The stack refuses a call, except for a queue pair: then it begins again.
    pub fn poll(&mut self, host: &mut Host, now: Nanos) -> Result<Option<Status>, NvmfError> {
        if self.stage != Stage::Ready && self.has_lost_a_queue(host) {
            self.restart(host, now)?;
            return Ok(None);
        }
        match self.stage {
            Stage::Waiting(at) if now >= at => self.open(host, now, 0)?,
            Stage::Waiting(_) | Stage::Ready => {}
            Stage::Opening(qid) => self.connect(host, qid)?,
            Stage::Connecting(_) | Stage::Enabling => return self.on_response(host, now),
        }
        Ok(None)
    }

    fn queue(&self, qid: u16) -> Option<usize> {
        self.queues.get(usize::from(qid)).copied().flatten()
    }

    fn has_lost_a_queue(&self, host: &Host) -> bool {
        self.queues.iter().flatten().any(|&queue| !host.is_up(queue) && !host.is_connecting(queue))
    }

    /// Gives up its connections, and begins again later.
    ///
    /// # Errors
    ///
    /// The stack refuses a call.
    pub fn restart(&mut self, host: &mut Host, now: Nanos) -> Result<(), NvmfError> {
        self.failures += 1;
        self.stage = Stage::Waiting(now + RETRY_DELAY);
        self.leave(host)
    }

    /// Resets its connections.
    ///
    /// # Errors
    ///
    /// The stack refuses a call.
    pub fn leave(&mut self, host: &mut Host) -> Result<(), NvmfError> {
        for queue in core::mem::take(&mut self.queues).into_iter().flatten() {
            host.discard(queue)?;
        }
        Ok(())
    }

    fn open(&mut self, host: &mut Host, now: Nanos, qid: u16) -> Result<(), NvmfError> {
        let entries = if qid == 0 { ADMIN_QUEUE_ENTRIES } else { self.entries };
        match host.begin_raw(CmRequest::new(qid, entries).as_bytes(), entries) {
            Ok(queue) => {
                self.queues[usize::from(qid)] = Some(queue);
                self.stage = Stage::Opening(qid);
                Ok(())
            }
            // Queue pairs that were destroyed last are still being released.
            Err(NvmfError::Verbs(_)) => self.restart(host, now),
            Err(error) => Err(error),
        }
    }

    fn connect(&mut self, host: &mut Host, qid: u16) -> Result<(), NvmfError> {
        let Some(queue) = self.queue(qid).filter(|&queue| host.is_up(queue)) else { return Ok(()) };
        let entries = if qid == 0 { ADMIN_QUEUE_ENTRIES } else { self.entries };
        let connect = Connect { recfmt: 0, qid, sqsize: entries - 1, cattr: 0, kato_ms: 0 };
        let cntlid = if qid == 0 { CNTLID_DYNAMIC } else { self.cntlid };
        let settings = &host.settings;
        let data = ConnectData::new(settings.hostid, cntlid, &settings.subnqn, &settings.hostnqn);
        self.stage = Stage::Connecting(qid);
        let transfer = Transfer::ToTarget(CONNECT_DATA_BYTES);
        send(host, queue, connect.entry(0), (data.as_bytes(), transfer))?;
        Ok(())
    }

    fn on_response(&mut self, host: &mut Host, now: Nanos) -> Result<Option<Status>, NvmfError> {
        let qid = if let Stage::Connecting(qid) = self.stage { qid } else { 0 };
        let Some(queue) = self.queue(qid) else { return Ok(None) };
        let Some(done) = host.next_completion(queue) else { return Ok(None) };
        host.release(queue, done.cid);
        let status = done.entry.status();
        if !status.is_success() {
            self.restart(host, now)?;
            return Ok(Some(status));
        }
        match self.stage {
            Stage::Connecting(0) => {
                self.cntlid = done.entry.result.get() as u16;
                self.stage = Stage::Enabling;
                let enable = property_set(0, property::CC, property::CC_EN | property::CC_ENTRY_SIZES);
                send(host, queue, enable, (&[], Transfer::None))?;
            }
            Stage::Connecting(_) => self.stage = Stage::Ready,
            _ => self.open(host, now, 1)?,
        }
        Ok(None)
    }
}

/// Sends a command with its data, under a free identifier, which it returns.
///
/// # Errors
///
/// No identifier is free, the data is longer than the buffer, or the stack refuses a post.
pub fn send(
    host: &mut Host,
    queue: usize,
    entry: SubmissionQueueEntry,
    (data, transfer): (&[u8], Transfer),
) -> Result<u16, NvmfError> {
    let none = || NvmfError::Protocol("every command identifier is in use".to_owned());
    let cid = host.reserve(queue).ok_or_else(none)?;
    host.write_buffer(queue, cid, data)?;
    host.send(queue, cid, entry, transfer)?;
    Ok(cid)
}
