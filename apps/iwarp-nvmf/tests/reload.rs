//! A new configuration while hosts are connected: namespaces are added, changed and removed; the
//! others go on.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::common::{AT, NQN, Pair, target_config};
use iwarp_nvmf::backend::faults::FaultPlan;
use iwarp_nvmf::config::TargetConfig;
use iwarp_nvmf::host::{BlockRange, HostSettings, Pattern, Transfer, Workload};
use iwarp_nvmf::namespaces::ReloadReport;
use iwarp_nvmf::wire::Status;
use iwarp_nvmf::wire::opcode::io;

/// A configuration of two cores with these namespaces: NSID and the rest of the table.
fn config(namespaces: &[(u32, &str)]) -> TargetConfig {
    let each = |(nsid, rest): &(u32, &str)| format!("[[subsystem.namespace]]\nnsid = {nsid}\n{rest}\n");
    let tables: String = namespaces.iter().map(each).collect();
    target_config(&format!(
        "[stack.core]\ncount = 2\n[limits]\nbuffers = 8\ncapsules = 1024\n[[subsystem]]\nnqn = \"{NQN}\"\nallow_any_host = true\n{tables}"
    ))
}

/// Applies a configuration in a thread of its own, while this one polls the cores.
fn reload(pair: &mut Pair, new: &TargetConfig) -> ReloadReport {
    let crate::common::TargetSide { reactors, namespaces, .. } = &mut pair.side;
    std::thread::scope(|scope| {
        let reload = scope.spawn(|| namespaces.reload(new));
        while !reload.is_finished() {
            reactors.iter_mut().for_each(|one| {
                one.poll().expect("the target runs");
            });
        }
        reload.join().expect("no panic")
    })
}

fn sizes(pair: &mut Pair) -> Vec<(u32, u64)> {
    let Pair { host, side, .. } = pair;
    let all = host.namespaces(&mut || side.turn()).expect("namespaces");
    all.iter().map(|one| (one.nsid, one.blocks)).collect()
}

fn names(nsids: &[u32]) -> Vec<String> {
    nsids.iter().map(|nsid| format!("{NQN} {nsid}")).collect()
}

const MEMORY: &str = "backend.memory = { mib = 1 }";
const NULL: &str = "backend.null = { mib = 8 }";

#[test]
fn namespaces_are_added_changed_and_removed_and_the_others_keep_their_data() {
    let mut pair = Pair::connected(&config(&[(1, MEMORY), (2, NULL)]), 4);
    let kept = BlockRange { nsid: 1, slba: 3, blocks: 1 };
    let mut data = vec![0x5a; 512];
    let Pair { host, side, .. } = &mut pair;
    host.write(kept, &mut data, &mut || side.turn()).expect("written");

    let report = reload(&mut pair, &config(&[(1, MEMORY), (3, NULL), (7, "backend.null = { mib = 2 }")]));
    let expected = ReloadReport { added: names(&[3, 7]), removed: names(&[2]), ..ReloadReport::default() };
    assert_eq!(report, expected);
    assert_eq!(sizes(&mut pair), [(1, 2048), (3, 16_384), (7, 4096)]);

    let report = reload(&mut pair, &config(&[(1, MEMORY), (3, NULL), (7, "backend.null = { mib = 4 }")]));
    assert_eq!(report, ReloadReport { changed: names(&[7]), ..ReloadReport::default() });
    assert_eq!(sizes(&mut pair), [(1, 2048), (3, 16_384), (7, 8192)]);

    // A new namespace works on every queue, so on both cores; the old one has its data.
    let Pair { host, side, .. } = &mut pair;
    let namespace = host.namespace(7, &mut || side.turn()).expect("a namespace");
    let pattern = Pattern::Random(1);
    let reads = Workload { writes: false, bytes: 4096, depth: 8, commands: 500, pattern, verify: false };
    host.bench(namespace, reads, &mut || side.turn()).expect("read");
    let mut found = vec![0; 512];
    host.read(kept, &mut found, &mut || side.turn()).expect("read");
    assert_eq!(found, data);
    let report = reload(&mut pair, &config(&[(1, MEMORY), (3, NULL), (7, "backend.null = { mib = 4 }")]));
    assert_eq!(report.to_string(), "nothing has changed");
}

/// The descriptors of this process that are open at a path.
fn open_files(path: &std::path::Path) -> usize {
    let all = std::fs::read_dir("/proc/self/fd").expect("procfs");
    all.filter_map(|one| std::fs::read_link(one.ok()?.path()).ok()).filter(|at| at == path).count()
}

/// A file is closed when its namespace is removed, so that its file system can be unmounted; a file
/// that has grown is a larger namespace.
#[test]
fn files_grow_and_are_closed() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("disk");
    let file = std::fs::File::create(&path).expect("a file");
    file.set_len(1 << 20).expect("set");
    drop(file);
    let backend = format!("backend.file = {{ path = \"{}\" }}", path.display());
    let mut pair = Pair::connected(&config(&[(1, MEMORY), (2, &backend)]), 2);
    assert!(open_files(&path) > 0);

    let grown = std::fs::OpenOptions::new().write(true).open(&path).expect("the file");
    grown.set_len(4 << 20).expect("set");
    drop(grown);
    let report = reload(&mut pair, &config(&[(1, MEMORY), (2, &backend)]));
    assert_eq!(report, ReloadReport { changed: names(&[2]), ..ReloadReport::default() });
    assert_eq!(sizes(&mut pair), [(1, 2048), (2, 8192)]);
    let Pair { host, side, .. } = &mut pair;
    let end = BlockRange { nsid: 2, slba: 8191, blocks: 1 };
    host.write(end, &mut [7; 512], &mut || side.turn()).expect("written");

    let report = reload(&mut pair, &config(&[(1, MEMORY)]));
    assert_eq!(report, ReloadReport { removed: names(&[2]), ..ReloadReport::default() });
    // The control thread closes what the cores have given back.
    pair.until("the file is closed", |pair| {
        pair.side.namespaces.close_removed();
        open_files(&path) == 0
    });
}

#[test]
fn what_cannot_be_changed_is_named_and_changes_nothing() {
    let mut pair = Pair::connected(&config(&[(1, MEMORY)]), 1);
    let missing = "backend.file = { path = \"/nonexistent/disk\" }";
    let mut new = config(&[(1, missing), (2, missing), (3, NULL)]);
    new.limits.buffers = 9;
    new.subsystems[0].serial = Some("2".to_owned());
    let report = reload(&mut pair, &new);
    assert_eq!((&report.added, &report.changed, &report.removed), (&names(&[3]), &vec![], &vec![]));
    assert_eq!(report.needs_restart, ["limits", "subsystem"]);
    let failed = report.failed.join("\n");
    assert!(
        failed.contains(&format!("namespace 1 of {NQN}: /nonexistent/disk")) && report.failed.len() == 2,
        "{failed}"
    );
    assert_eq!(sizes(&mut pair), [(1, 2048), (3, 16_384)]);
}

/// Writes a block of a file, whose bytes are all `fill`. Returns the status.
fn write(pair: &mut Pair, fill: u8) -> Status {
    let Pair { host, side, .. } = pair;
    let entry = BlockRange { nsid: 2, slba: 8, blocks: 8 }.entry(io::WRITE);
    let done = host.execute(1, entry, Transfer::ToTarget(4096), &mut [fill; 4096], &mut || side.turn());
    done.expect("a response").status()
}

/// The results of a real file are held back: a Write ends at its deadline and may still change the
/// file. Its namespace is replaced, taken out, and comes back: nothing writes to those bytes until
/// the late Write is over.
#[test]
fn a_late_write_is_not_forgotten_when_its_namespace_is_replaced() {
    let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a folder");
    let path = folder.path().join("disk");
    std::fs::File::create(&path).and_then(|file| file.set_len(1 << 20)).expect("a file");
    let backend = format!("backend.file = {{ path = {path:?} }}");
    let of = |namespaces: &[(u32, &str)]| {
        let mut config = config(namespaces);
        (config.stack.core.count, config.limits.disk_timeout_ms) = (1, 100);
        config
    };
    let (first, without) = (of(&[(1, MEMORY), (2, &backend)]), of(&[(1, MEMORY)]));
    let mut second = first.clone();
    second.subsystems[0].namespaces[1].uuid = Some("00000000000000000000000000000077".to_owned());
    let faults = Arc::new(FaultPlan::default());
    let settings = HostSettings::new(AT.parse().expect("an address"), NQN);
    let mut pair = Pair::with_faults(&first, settings, Some(faults.clone()));
    pair.connect(1);
    let before = pair.usage();

    faults.hang.store(true, Ordering::Relaxed);
    assert_eq!(write(&mut pair, 1), Status::INTERNAL_ERROR);
    assert_eq!((pair.usage().orphaned, before.free_buffers - pair.usage().free_buffers), (1, 1));
    assert_eq!(write(&mut pair, 2), Status::NAMESPACE_NOT_READY);
    let report = reload(&mut pair, &second);
    assert_eq!(report, ReloadReport { changed: names(&[2]), ..ReloadReport::default() });
    assert_eq!(write(&mut pair, 2), Status::NAMESPACE_NOT_READY, "the file is the same");
    assert_eq!(reload(&mut pair, &without).removed, names(&[2]));
    assert_eq!(reload(&mut pair, &first).added, names(&[2]));
    assert_eq!(write(&mut pair, 2), Status::NAMESPACE_NOT_READY, "the file is the same");

    faults.hang.store(false, Ordering::Relaxed);
    pair.until("the late answer", |pair| pair.usage().orphaned == 0);
    assert_eq!(write(&mut pair, 2), Status::SUCCESS);
    assert_eq!(std::fs::read(&path).expect("the file")[8 * 512..16 * 512], [2; 4096]);
    pair.until("everything is free", |pair| pair.usage() == before);
}
