//! The target: a thread for each core, as `iwarp-nvmf serve` runs it, and reloads in between.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use ironwarp::idle;
use ironwarp::instrument::PortControl;
use iwarp_nvmf::backend::faults::FaultPlan;
use iwarp_nvmf::config::TargetConfig;
use iwarp_nvmf::namespaces::Namespaces;
use iwarp_nvmf::serve::{Appliance, Core, SetOnDrop, Surroundings, drain};
use iwarp_nvmf::transport::{CoreUsage, Reactor};
use serde_json::{Value, json};

use super::{EndError, Order, REPORT_INTERVAL, held, nonzero, orders, report, set_faults};
use crate::args::EndArgs;

/// The time in which a core must hold nothing after its last connection.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(20);
/// Turns of a core between two looks at its number of connections.
const LOOK_INTERVAL: u32 = 4096;

/// What the cores share with the thread that takes orders.
#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    connections: AtomicU64,
}

/// Serves until it is ordered to stop.
pub(super) fn run(args: &EndArgs) -> Result<(), EndError> {
    let configs =
        args.config.iter().map(|path| TargetConfig::from_file(path)).collect::<Result<Vec<_>, _>>()?;
    let disk = Arc::new(FaultPlan::default());
    let surroundings = Surroundings { faults: Some(disk.clone()), ..Surroundings::default() };
    let (mut namespaces, cores) = Appliance::open_in(&configs[0], surroundings)?.into_cores();
    let (shared, inputs) = (Shared::default(), orders());
    let outcome = thread::scope(|scope| {
        let (started, ports) = mpsc::channel();
        let count = cores.len();
        let serve = |core| {
            let (started, shared) = (started.clone(), &shared);
            scope.spawn(move || {
                let _stop = SetOnDrop(&shared.stop);
                serve(core, shared, &started)
            })
        };
        let threads: Vec<_> = cores.into_iter().map(serve).collect();
        let ports: Vec<PortControl> = ports.iter().take(count).flatten().collect();
        report("ready", json!({}));
        let outcome = take_orders(&mut namespaces, &configs, (&inputs, &ports, &disk), &shared);
        shared.stop.store(true, Ordering::Relaxed);
        let panicked = |_| Err("a core's thread panicked".into());
        threads.into_iter().fold(outcome, |outcome, thread| {
            let of_core = thread.join().unwrap_or_else(panicked);
            outcome.and(of_core)
        })
    });
    match &outcome {
        Err(error) => report("failed", json!({ "why": error.to_string() })),
        Ok(()) => {
            let counts = counts(&namespaces, &shared);
            report("stopped", json!({ "counts": counts, "counters": nonzero(namespaces.stack()) }));
        }
    }
    outcome
}

/// Runs until the order to stop, or until a core has ended.
fn take_orders(
    namespaces: &mut Namespaces,
    configs: &[TargetConfig],
    (orders, ports, disk): (&Receiver<Order>, &[PortControl], &FaultPlan),
    shared: &Shared,
) -> Result<(), EndError> {
    let (mut reloads, mut seed) = (0, 0);
    let mut next_report = Instant::now() + REPORT_INTERVAL;
    while !shared.stop.load(Ordering::Relaxed) {
        namespaces.close_removed();
        match orders.recv_timeout(next_report.saturating_duration_since(Instant::now())) {
            Ok(Order::Go) => {}
            Ok(Order::Faults(rates)) => {
                seed += 1;
                set_faults(ports, seed, rates);
            }
            Ok(Order::Disk(state)) => {
                disk.eio.store(state.eio, Ordering::Relaxed);
                disk.short.store(state.short, Ordering::Relaxed);
                disk.lose_sync.store(state.lose_sync, Ordering::Relaxed);
                disk.hang.store(state.hang, Ordering::Relaxed);
                disk.panic.store(state.panic, Ordering::Relaxed);
            }
            Ok(Order::Reload) => {
                reloads += 1;
                let done = namespaces.reload(&configs[reloads % configs.len()]);
                if !done.failed.is_empty() || !done.needs_restart.is_empty() {
                    return Err(format!("a reload: {done}").into());
                }
            }
            Ok(Order::Stop) | Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                next_report += REPORT_INTERVAL;
                report("stats", counts(namespaces, shared));
            }
        }
    }
    set_faults(ports, 0, Default::default());
    disk.hang.store(false, Ordering::Relaxed);
    Ok(())
}

fn counts(namespaces: &Namespaces, shared: &Shared) -> Value {
    let target = namespaces.target();
    let all =
        target.subsystems().iter().flat_map(|one| one.namespaces().values().cloned().collect::<Vec<_>>());
    let sum = all.fold([0; 3], |[reads, writes, errors], one| {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &one.counters;
        [
            reads + count(&counters.reads),
            writes + count(&counters.writes),
            errors + count(&counters.media_errors),
        ]
    });
    json!({
        "open": shared.connections.load(Ordering::Relaxed),
        "controllers": target.controllers().len(),
        "reads": sum[0], "writes": sum[1], "media errors": sum[2],
    })
}

/// Runs one core until the order to stop.
fn serve(core: Core, shared: &Shared, started: &Sender<Vec<PortControl>>) -> Result<(), EndError> {
    let mut reactor = core.start()?;
    let empty = reactor.usage();
    // The other thread waits for one message of each core, so it is there.
    let _ = started.send(reactor.worker().port_controls());
    let policy = reactor.worker().idle_policy();
    let (mut connections, mut turns) = (0, 0u32);
    while !shared.stop.load(Ordering::Relaxed) {
        if !reactor.poll()? {
            idle(policy);
        }
        turns = turns.wrapping_add(1);
        if turns.is_multiple_of(LOOK_INTERVAL) {
            let now = reactor.usage().connections as u64;
            shared.connections.fetch_add(now.wrapping_sub(connections), Ordering::Relaxed);
            connections = now;
        }
    }
    shared.connections.fetch_sub(connections, Ordering::Relaxed);
    drain(&mut reactor)?;
    release(&mut reactor, empty)
}

/// Waits until a core holds what it held at its start.
fn release(reactor: &mut Reactor, empty: CoreUsage) -> Result<(), EndError> {
    let deadline = Instant::now() + RELEASE_TIMEOUT;
    loop {
        reactor.poll()?;
        let mut usage = reactor.worker().resource_usage();
        // Its memory and its namespaces stay.
        usage.regions = 0;
        let (own, of_stack) = (reactor.usage(), held(usage));
        if own == empty && of_stack.is_none() {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(format!("after the last connection: {own:?}, {of_stack:?}").into());
        }
    }
}
