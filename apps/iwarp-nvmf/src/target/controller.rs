//! A controller: registers, keep-alive timer, queues, events and error log.
//!
//! Its admin queue and I/O queues may be on different cores. Registers and times are atomics, the
//! rest is behind a lock that only admin commands and Connect take.

use core::fmt;
use core::net::IpAddr;
use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::subsystem::Subsystem;
use crate::wire::Status;
use crate::wire::fabrics::property::{
    CC_EN, CC_ENTRY_SIZES, CC_ENTRY_SIZES_MASK, CC_SHN_MASK, CC_ZERO_MASK, CSTS_CFS, CSTS_RDY,
    CSTS_SHST_COMPLETE,
};

/// Entries of the Error Information log.
pub(super) const ERROR_ENTRIES: usize = 64;
/// The largest number of entries of a Changed Namespace List.
const CHANGED_NAMESPACES_MAX: usize = 1024;
/// KAS of Identify: the granularity of the keep-alive timer (Base 1.4, 5.15.2.2).
pub(super) const KEEP_ALIVE_UNIT_MS: u32 = 100;
/// The activity timeout of a discovery controller whose host asked for none (Fabrics 1.1, 5.3 has a
/// fixed one).
const DISCOVERY_TIMEOUT_MS: u32 = 120_000;
/// Asynchronous event: a notice (2), Namespace Attribute Changed (0), read log page 4.
const EVENT_NAMESPACE_ATTRIBUTE: u32 = 0x0004_0002;

/// CC and CSTS.
#[derive(Debug, Default)]
pub struct Registers {
    cc: AtomicU32,
    csts: AtomicU32,
}

impl Registers {
    /// Returns CC.
    pub fn cc(&self) -> u32 {
        self.cc.load(Ordering::Acquire)
    }

    /// Returns CSTS.
    #[inline]
    pub fn csts(&self) -> u32 {
        self.csts.load(Ordering::Acquire)
    }

    /// Sets CC (Base 1.4, 3.1.5). Values that are not supported while the controller is enabled set
    /// CSTS.CFS.
    fn set_cc(&self, value: u32, is_discovery: bool) {
        let was = self.cc.swap(value, Ordering::AcqRel);
        let mut csts = self.csts();
        if value & CC_EN != 0 && was & CC_EN == 0 {
            let sizes = is_discovery || value & CC_ENTRY_SIZES_MASK == CC_ENTRY_SIZES;
            csts = if sizes && value & CC_ZERO_MASK == 0 { CSTS_RDY } else { CSTS_CFS };
        } else if value & CC_EN == 0 {
            csts = 0;
        }
        // Nothing has to be written back: shutdown completes at once.
        if value & CC_SHN_MASK != 0 {
            csts |= CSTS_SHST_COMPLETE;
        } else {
            csts &= !CSTS_SHST_COMPLETE;
        }
        self.csts.store(csts, Ordering::Release);
    }
}

/// An entry of the Error Information log.
#[derive(Clone, Copy, Debug)]
pub(super) struct ErrorRecord {
    pub(super) count: u64,
    pub(super) sqid: u16,
    pub(super) cid: u16,
    pub(super) status: Status,
    pub(super) lba: u64,
    pub(super) nsid: u32,
}

#[derive(Debug, Default)]
pub(super) struct ControllerState {
    /// Queue identifiers in use.
    pub(super) queues: BTreeSet<u16>,
    /// Changed namespaces since the log page was read.
    pub(super) changed: BTreeSet<u32>,
    /// An event that no Asynchronous Event Request has taken.
    event_pending: bool,
    /// An event was reported, and its log page not read yet.
    event_masked: bool,
    pub(super) errors: VecDeque<ErrorRecord>,
}

/// A controller.
#[derive(Debug)]
pub struct Controller {
    cntlid: u16,
    subsystem: Arc<Subsystem>,
    hostnqn: String,
    hostid: [u8; 16],
    /// Where its admin queue comes from.
    address: IpAddr,
    /// Its ordinal among all controllers of the target, from 0.
    number: u64,
    registers: Registers,
    kato_ms: AtomicU32,
    last_seen_ms: AtomicU64,
    /// Its host need not prove itself, or has done so.
    admitted: AtomicBool,
    /// Ended: every queue ends.
    ended: AtomicBool,
    event_config: AtomicU32,
    /// Set with `event_pending`, so that the admin queue polls without the lock.
    event_hint: AtomicBool,
    errors: AtomicU64,
    state: Mutex<ControllerState>,
}

impl fmt::Display for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (subsystem, host) = (self.subsystem.nqn(), self.hostnqn.escape_debug());
        write!(f, "controller {} of {subsystem} for {host} at {}", self.cntlid, self.address)
    }
}

/// What a controller is made of.
pub(super) struct ControllerInfo<'a> {
    pub(super) subsystem: Arc<Subsystem>,
    pub(super) hostnqn: &'a str,
    pub(super) hostid: [u8; 16],
    pub(super) address: IpAddr,
    /// The keep-alive timeout that the host asked for.
    pub(super) kato_ms: u32,
    /// Its host need not prove itself.
    pub(super) is_admitted: bool,
}

impl Controller {
    pub(super) fn new((cntlid, number): (u16, u64), info: ControllerInfo<'_>, now_ms: u64) -> Self {
        let ControllerInfo { subsystem, hostnqn, hostid, address, kato_ms, is_admitted } = info;
        Controller {
            cntlid,
            subsystem,
            hostnqn: hostnqn.to_owned(),
            hostid,
            address,
            number,
            registers: Registers::default(),
            kato_ms: round_kato(kato_ms).into(),
            last_seen_ms: now_ms.into(),
            admitted: is_admitted.into(),
            ended: AtomicBool::new(false),
            event_config: AtomicU32::new(0),
            event_hint: AtomicBool::new(false),
            errors: AtomicU64::new(0),
            // Its owner is the admin queue that makes it.
            state: Mutex::new(ControllerState { queues: BTreeSet::from([0]), ..ControllerState::default() }),
        }
    }

    /// Returns CNTLID.
    pub fn cntlid(&self) -> u16 {
        self.cntlid
    }

    /// Returns the NQN of its host.
    pub fn hostnqn(&self) -> &str {
        &self.hostnqn
    }

    /// Returns the identifier of its host.
    pub fn hostid(&self) -> [u8; 16] {
        self.hostid
    }

    /// Returns the address of its host.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Returns its ordinal among all controllers of the target, from 0.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Returns its subsystem.
    pub fn subsystem(&self) -> &Arc<Subsystem> {
        &self.subsystem
    }

    /// Returns its registers.
    pub fn registers(&self) -> &Registers {
        &self.registers
    }

    /// Returns whether it executes commands.
    #[inline]
    pub fn is_ready(&self) -> bool {
        self.registers.csts() & CSTS_RDY != 0
    }

    /// Returns whether its host is whom it claims to be, as far as the target asks.
    pub(super) fn is_admitted(&self) -> bool {
        self.admitted.load(Ordering::Relaxed)
    }

    pub(super) fn admit(&self) {
        self.admitted.store(true, Ordering::Relaxed);
    }

    /// Returns whether it has ended, and so all of its queues.
    #[inline]
    pub fn is_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    pub(super) fn set_cc(&self, value: u32) {
        self.registers.set_cc(value, self.subsystem.is_discovery());
    }

    /// Ends it after a fatal error.
    pub(super) fn fail(&self) {
        self.registers.csts.fetch_or(CSTS_CFS, Ordering::AcqRel);
        self.end();
    }

    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }

    /// Returns the keep-alive timeout in milliseconds; 0: none.
    pub fn kato_ms(&self) -> u32 {
        self.kato_ms.load(Ordering::Relaxed)
    }

    pub(super) fn set_kato_ms(&self, value: u32, now_ms: u64) {
        self.kato_ms.store(round_kato(value), Ordering::Relaxed);
        self.seen(now_ms);
    }

    /// Records a sign of life of the host: any command (CTRATT: traffic-based keep alive).
    #[inline]
    pub(super) fn seen(&self, now_ms: u64) {
        // Queues on several cores share the line, so it is written once in a millisecond.
        if self.last_seen_ms.load(Ordering::Relaxed) != now_ms {
            self.last_seen_ms.store(now_ms, Ordering::Relaxed);
        }
    }

    /// Returns the time in milliseconds after which it ends without a command; 0: never.
    pub(super) fn timeout_ms(&self) -> u32 {
        match self.kato_ms() {
            0 if self.subsystem.is_discovery() => DISCOVERY_TIMEOUT_MS,
            kato_ms => kato_ms,
        }
    }

    pub(super) fn keep_alive_expired(&self, now_ms: u64) -> bool {
        let timeout = u64::from(self.timeout_ms());
        timeout != 0 && now_ms.saturating_sub(self.last_seen_ms.load(Ordering::Relaxed)) > timeout
    }

    pub(super) fn event_config(&self) -> u32 {
        self.event_config.load(Ordering::Relaxed)
    }

    pub(super) fn set_event_config(&self, value: u32) {
        self.event_config.store(value, Ordering::Relaxed);
    }

    pub(super) fn namespace_changed(&self, nsid: u32) {
        use crate::wire::identify::controller_bits::OAES_NAMESPACE_ATTRIBUTE;
        let mut state = self.state();
        // Base 1.4, 5.14.1.4: FFFFFFFFh alone says that more have changed than the list has room
        // for.
        if state.changed.len() >= CHANGED_NAMESPACES_MAX {
            state.changed = BTreeSet::from([u32::MAX]);
        } else if !state.changed.contains(&u32::MAX) {
            state.changed.insert(nsid);
        }
        if self.event_config() & OAES_NAMESPACE_ATTRIBUTE != 0 && !state.event_masked {
            state.event_pending = true;
            self.event_hint.store(true, Ordering::Release);
        }
    }

    /// Takes the changed namespaces for the log page; clears the event.
    pub(super) fn take_changed(&self) -> BTreeSet<u32> {
        let mut state = self.state();
        (state.event_masked, state.event_pending) = (false, false);
        std::mem::take(&mut state.changed)
    }

    /// Returns an event to report, if an Asynchronous Event Request is there to carry it.
    #[inline]
    pub(super) fn take_event(&self) -> Option<u32> {
        if !self.event_hint.swap(false, Ordering::AcqRel) {
            return None;
        }
        let mut state = self.state();
        if !std::mem::take(&mut state.event_pending) {
            return None;
        }
        state.event_masked = true;
        Some(EVENT_NAMESPACE_ATTRIBUTE)
    }

    /// Returns whether an event waits.
    #[inline]
    pub(super) fn has_event(&self) -> bool {
        self.event_hint.load(Ordering::Acquire)
    }

    pub(super) fn record_error(&self, mut record: ErrorRecord) {
        record.count = self.errors.fetch_add(1, Ordering::Relaxed) + 1;
        let mut state = self.state();
        state.errors.truncate(ERROR_ENTRIES - 1);
        state.errors.push_front(record);
    }

    pub(super) fn errors(&self) -> u64 {
        self.errors.load(Ordering::Relaxed)
    }

    pub(super) fn state(&self) -> MutexGuard<'_, ControllerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Rounds a keep-alive timeout up to the granularity of the timer (Base 1.4, 5.21.1.15).
fn round_kato(requested_ms: u32) -> u32 {
    let largest = u32::MAX - u32::MAX % KEEP_ALIVE_UNIT_MS;
    requested_ms.checked_next_multiple_of(KEEP_ALIVE_UNIT_MS).unwrap_or(largest)
}
