//! Completion queues as an application uses them: it polls some, sleeps over others, and gives them other depths while
//! work runs.
//!
//! One run is one thread, so what wakes a sleeper is known exactly: nothing completes between the look at an empty queue
//! and the arming, and from then on the descriptor is readable when, and only when, a completion of the kind that was
//! asked for lies in the queue.

mod app_srq;

use std::fs::File;
use std::io::{ErrorKind, Read};

use ironwarp::{Completion, CompletionFlags, CompletionQueue, CompletionStatus, Context, VerbsError};
use ironwarp_types::{Nanos, SeededEntropy};

pub use app_srq::{AppSrq, SharedAppSrq};

/// A completion queue.
pub struct AppCq {
    cq: CompletionQueue,
    /// Its descriptor.
    event_fd: File,
    /// What it is armed for; `Some(true)` is solicited and failed completions only.
    armed: Option<bool>,
    /// Until when its application does not look at it by itself.
    sleeps_until: Option<Nanos>,
    /// Depths that it may be given.
    depths: [u32; 2],
    /// Sleepers that were woken and not counted yet.
    woken: u64,
    /// Everything that had completed was reaped at the last look.
    drained: bool,
}

/// Completions reaped together.
pub const REAP_MAX: usize = 16;

/// The longest sleep, as a power of two of nanoseconds.
const SLEEP_BITS: (u32, u32) = (12, 22);

impl AppCq {
    /// A queue of the deeper of the two `depths`, to be resized between them.
    pub fn new(ctx: &mut Context, depths: [u32; 2]) -> Result<Self, VerbsError> {
        let cq = ctx.create_cq(depths[1])?;
        let descriptor = ctx.cq_fd(cq)?.try_clone_to_owned();
        let event_fd = descriptor.map_err(|source| VerbsError::System { what: "eventfd", source })?;
        Ok(AppCq {
            cq,
            event_fd: event_fd.into(),
            armed: None,
            sleeps_until: None,
            depths,
            woken: 0,
            drained: false,
        })
    }

    /// The queue itself.
    pub fn cq(&self) -> CompletionQueue {
        self.cq
    }

    /// Whether everything was reaped that had completed before the last look.
    pub fn was_drained(&self) -> bool {
        self.drained
    }

    /// Takes some completions, or all of a queue that is armed. A sleeper takes none until it is woken or its time is
    /// over, unless `force` says that it must look.
    pub fn reap(
        &mut self,
        now: Nanos,
        ctx: &mut Context,
        most: usize,
        force: bool,
    ) -> Result<Vec<Completion>, String> {
        let Some(solicited_only) = self.armed else { return self.poll(ctx, most) };
        let woken = self.is_woken()?;
        let asleep = self.sleeps_until.is_some_and(|until| now < until);
        if asleep && !woken && !force {
            self.drained = false;
            return Ok(Vec::new());
        }
        self.sleeps_until = None;
        let all = self.poll(ctx, usize::MAX)?;
        let asked_for = |completion: &Completion| {
            let solicited = completion.flags.contains(CompletionFlags::SOLICITED);
            !solicited_only || solicited || completion.status != CompletionStatus::Success
        };
        let due = all.iter().any(asked_for);
        if due != woken {
            return Err(format!("armed, solicited only {solicited_only}, woken {woken} by {all:?}"));
        }
        if woken {
            (self.armed, self.woken) = (None, self.woken + 1);
        }
        Ok(all)
    }

    /// Whether an event was raised since the last look: one at most.
    fn is_woken(&mut self) -> Result<bool, String> {
        let mut count = [0; 8];
        match self.event_fd.read(&mut count) {
            Ok(8) if u64::from_ne_bytes(count) == 1 => Ok(true),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            other => Err(format!("an armed queue's descriptor says {other:?} {count:?}")),
        }
    }

    /// Sleepers that were woken since the last count.
    pub fn count_woken(&mut self) -> u64 {
        core::mem::take(&mut self.woken)
    }

    fn poll(&mut self, ctx: &mut Context, most: usize) -> Result<Vec<Completion>, String> {
        self.drained = false;
        let mut all = Vec::new();
        while all.len() < most {
            let mut some = [Completion::default(); REAP_MAX];
            let room = (most - all.len()).min(REAP_MAX);
            let count = ctx.poll_cq(self.cq, &mut some[..room]).map_err(|error| error.to_string())?;
            all.extend_from_slice(&some[..count]);
            if count < room {
                self.drained = true;
                break;
            }
        }
        Ok(all)
    }

    /// Goes to sleep over the queue, if it is empty. Answers whether it did.
    pub fn sleep(&mut self, now: Nanos, ctx: &mut Context, rng: &mut SeededEntropy) -> Result<bool, String> {
        if self.armed.is_some() {
            return Ok(false);
        }
        let solicited_only = rng.chance(500_000);
        // Whoever finds something does not sleep; here it has just been looked at.
        ctx.arm_cq(self.cq, solicited_only).map_err(|error| error.to_string())?;
        if !self.poll(ctx, 1)?.is_empty() {
            return Err("something completed while nothing ran".into());
        }
        self.armed = Some(solicited_only);
        let (low, high) = SLEEP_BITS;
        self.sleeps_until = Some(now + Nanos(crate::plan::log_uniform(rng, low, high)));
        Ok(true)
    }

    /// Gives it another depth. Answers whether it did: more may be outstanding than it is to have places, and the last
    /// change may not be over.
    pub fn resize(&mut self, ctx: &mut Context, rng: &mut SeededEntropy) -> Result<bool, VerbsError> {
        let [least, most] = self.depths;
        let depth = least + rng.below(u64::from(most - least) + 1) as u32;
        match ctx.resize_cq(self.cq, depth) {
            Ok(()) => Ok(true),
            Err(VerbsError::Busy | VerbsError::CqDepthTooSmall { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }
}
