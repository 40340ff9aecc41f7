//! Completion queues as an application uses them: it polls some, arms others and sleeps, and
//! resizes them under load.
//!
//! One run is one thread, so the expected wake-up is known exactly. Nothing completes between the
//! poll of an empty queue and the arming. After that, the descriptor is readable if and only if a
//! completion of the requested kind is in the queue.

mod app_srq;

use std::fs::File;
use std::io::{ErrorKind, Read};

use ironwarp::{Completion, CompletionFlags, CompletionQueue, CompletionStatus, Context, VerbsError};
use ironwarp_types::{Nanos, SeededEntropy};

pub use app_srq::{AppSrq, SharedAppSrq};

use crate::plan::HostPlan;
use crate::text;

/// Creates the completion queues of a host, and its shared receive queue with a completion queue of
/// its own.
pub fn make_queues(
    ctx: &mut Context,
    plan: &HostPlan,
    depths: [u32; 2],
) -> Result<(Vec<AppCq>, Option<SharedAppSrq>), VerbsError> {
    let count = plan.completion_queues + usize::from(plan.app_srq.is_some());
    let cqs = (0..count).map(|_| AppCq::new(ctx, depths)).collect::<Result<_, _>>()?;
    Ok((cqs, plan.app_srq.map(|app_srq| AppSrq::new(ctx, app_srq, plan.cores())).transpose()?))
}

/// A completion queue.
pub struct AppCq {
    cq: CompletionQueue,
    event_fd: File,
    /// Its arming; `Some(true)` is for solicited and failed completions only.
    armed: Option<bool>,
    /// Until when its application sleeps if it is not woken.
    sleeps_until: Option<Nanos>,
    /// The depths between which it is resized.
    depths: [u32; 2],
    /// Wake-ups that are not counted yet.
    woken: u64,
    /// Whether the last poll reaped every completion.
    drained: bool,
}

/// Most completions reaped together.
pub const REAP_MAX: usize = 16;

/// The longest sleep: 2 to this power, in nanoseconds.
const SLEEP_BITS: (u32, u32) = (12, 22);

impl AppCq {
    /// Creates a queue of the larger of the two `depths`. It is later resized between them.
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

    pub fn cq(&self) -> CompletionQueue {
        self.cq
    }

    /// Returns whether the last poll reaped every earlier completion.
    pub fn was_drained(&self) -> bool {
        self.drained
    }

    /// Reaps some completions, or all of a queue that is armed. A sleeping application reaps none
    /// until it is woken or its sleep ends, unless `force` is set.
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

    /// Returns whether an event was raised since the last poll. More than one is an error.
    fn is_woken(&mut self) -> Result<bool, String> {
        let mut count = [0; 8];
        match self.event_fd.read(&mut count) {
            Ok(8) if u64::from_ne_bytes(count) == 1 => Ok(true),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            other => Err(format!("the descriptor of an armed queue returns {other:?} {count:?}")),
        }
    }

    /// Returns the number of wake-ups since the last call.
    pub fn count_woken(&mut self) -> u64 {
        core::mem::take(&mut self.woken)
    }

    fn poll(&mut self, ctx: &mut Context, most: usize) -> Result<Vec<Completion>, String> {
        self.drained = false;
        let mut all = Vec::new();
        while all.len() < most {
            let mut some = [Completion::default(); REAP_MAX];
            let room = (most - all.len()).min(REAP_MAX);
            let count = ctx.poll_cq(self.cq, &mut some[..room]).map_err(text)?;
            all.extend_from_slice(&some[..count]);
            if count < room {
                self.drained = true;
                break;
            }
        }
        Ok(all)
    }

    /// Arms the queue and sleeps, if it is empty. Returns whether it did.
    pub fn sleep(&mut self, now: Nanos, ctx: &mut Context, rng: &mut SeededEntropy) -> Result<bool, String> {
        if self.armed.is_some() {
            return Ok(false);
        }
        let solicited_only = rng.chance(500_000);
        // An application that finds a completion does not sleep; here the queue was just polled.
        ctx.arm_cq(self.cq, solicited_only).map_err(text)?;
        if !self.poll(ctx, 1)?.is_empty() {
            return Err("a request completed while no core ran".into());
        }
        self.armed = Some(solicited_only);
        let (low, high) = SLEEP_BITS;
        self.sleeps_until = Some(now + Nanos(crate::plan::log_uniform(rng, low, high)));
        Ok(true)
    }

    /// Resizes the queue. Returns whether it did: more entries may be in use than the new depth
    /// has, and the previous resize may not be complete.
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
