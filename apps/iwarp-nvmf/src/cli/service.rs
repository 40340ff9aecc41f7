//! What the target tells its service manager (sd_notify(3)): that it listens, that it reloads, that
//! every core runs, and the descriptors of its disks.
//!
//! The manager keeps the descriptors while the service is started again
//! (`FileDescriptorStoreMax=`), so nobody else can take a disk meanwhile. Without `NOTIFY_SOCKET`
//! all of this does nothing.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use iwarp_nvmf::backend::{Inherited, stored_name};
use iwarp_nvmf::namespaces::Namespaces;
use sd_notify::NotifyState;

/// The connection to a service manager.
pub(super) struct Service {
    /// Names of the descriptors that it keeps.
    stored: BTreeSet<String>,
    /// How often it expects a sign of life.
    watchdog: Option<Duration>,
    next_sign: Instant,
}

impl Service {
    /// One that keeps these descriptors.
    pub(super) fn new(inherited: &[Inherited]) -> Self {
        let stored = inherited.iter().map(|one| one.name().to_owned()).collect();
        Service { stored, watchdog: sd_notify::watchdog_enabled(), next_sign: Instant::now() }
    }

    /// The target serves `namespaces`, after its start or a reload.
    pub(super) fn on_ready(&mut self, namespaces: &mut Namespaces) {
        for name in namespaces.close_unused() {
            tracing::warn!("the inherited descriptor {name} is of no namespace");
        }
        report("descriptors", self.store(namespaces));
        report("readiness", sd_notify::notify(&[NotifyState::Ready]));
    }

    /// Leaves the descriptors of `namespaces` with the manager, and takes others back.
    fn store(&mut self, namespaces: &Namespaces) -> io::Result<()> {
        let mut gone = std::mem::take(&mut self.stored);
        for claim in namespaces.claims() {
            let name = stored_name(claim.id());
            if !gone.remove(&name) {
                let state = [NotifyState::FdStore, NotifyState::FdName(&name)];
                sd_notify::notify_with_fds(&state, &[claim.file().as_fd()])?;
            }
            self.stored.insert(name);
        }
        gone.iter()
            .try_for_each(|name| sd_notify::notify(&[NotifyState::FdStoreRemove, NotifyState::FdName(name)]))
    }

    /// A reload begins.
    pub(super) fn on_reload(&self) {
        let state = NotifyState::monotonic_usec_now().map(|now| [NotifyState::Reloading, now]);
        report("a reload", state.and_then(|state| sd_notify::notify(&state)));
    }

    /// Gives a sign of life if it is time and every core runs.
    pub(super) fn on_turn(&mut self, all_cores_run: bool) {
        let Some(watchdog) = self.watchdog.filter(|_| all_cores_run && Instant::now() >= self.next_sign)
        else {
            return;
        };
        self.next_sign = Instant::now() + watchdog / 4;
        report("a sign of life", sd_notify::notify(&[NotifyState::Watchdog]));
    }
}

fn report(what: &str, outcome: io::Result<()>) {
    if let Err(error) = outcome {
        tracing::warn!("the service manager does not learn of {what}: {error}");
    }
}
