//! One end of a run: a host that writes, reads and compares blocks, or the target that serves them.
//! Every byte that was confirmed must be there.
//!
//! | module | contents |
//! | --- | --- |
//! | [`model`] | what a host knows of its blocks, in a file that outlives it |
//! | [`work`] | commands and their checks |
//! | [`host`] | a host: sessions that end and begin again |
//! | [`target`] | the target |
//!
//! Each host has a link of its own, and its own blocks in three namespaces: one in a file, one in
//! memory, and one that reloads add, replace and remove. Hosts and target are processes that the
//! run kills.
//!
//! Orders come as JSON lines on standard input ([`Order`]). Reports leave as JSON lines on standard
//! output.

mod host;
mod model;
mod target;
mod work;

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::io::{self, BufRead};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use ironwarp::instrument::{FaultRates, Faults, PortControl};
use ironwarp::{ResourceUsage, Stack};
use ironwarp_cli::print_stdout;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::args::{EndArgs, Role};
use model::{BLOCK_BYTES, BLOCKS, Extent, FILE_NSID, Model};

/// The time between two reports.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// Receive bursts for which a delayed frame waits.
const DELAY_POLLS: u32 = 50;
/// Hosts of a run. Host `n` has `n + 1` I/O queues.
pub(crate) const HOSTS: usize = 3;
const NQN: &str = "nqn.2014-08.org.ironwarp:soak";

/// Runs an end until it is ordered to stop.
pub(crate) fn run(args: &EndArgs) -> Result<(), EndError> {
    match args.role {
        Role::Target => target::run(args),
        Role::Host => host::run(args),
    }
}

/// Why an end failed: a call that failed, or something that is not as it must be. One line of text.
pub(crate) type EndError = Box<dyn Error + Send + Sync>;

/// Counts for reports, by name.
#[derive(Default)]
struct Counts(BTreeMap<String, u64>);

impl Counts {
    fn add(&mut self, what: &str, by: u64) {
        *self.0.entry(what.to_owned()).or_default() += by;
    }

    /// All of them, and the connections that are `open` where the end counts them.
    fn json(&self, open: Option<usize>) -> Value {
        let mut counts = json!(self.0);
        if let Some(open) = open {
            counts["open"] = open.into();
        }
        counts
    }
}

/// An order of the run.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Connects, or listens.
    Go,
    /// Injects faults, in both directions.
    Faults(Rates),
    /// A target takes its next configuration.
    Reload,
    Disk(DiskState),
    /// Ends all connections, releases everything, reports and exits.
    Stop,
}

/// Frames in a million that are dropped, duplicated, reordered, corrupted, truncated and delayed.
pub(crate) type Rates = [u32; 6];

/// What the disk of a target does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct DiskState {
    /// Reads and Writes in 65536 that fail with EIO.
    pub(crate) eio: u32,
    /// Reads and Writes in 65536 that move a part of their bytes.
    pub(crate) short: u32,
    /// The next fdatasync fails.
    pub(crate) lose_sync: bool,
    pub(crate) hang: bool,
    /// A core panics at the next result.
    pub(crate) panic: bool,
}

/// Reads orders on a thread of their own.
fn orders() -> Receiver<Order> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let lines = io::stdin().lock().lines().map_while(Result::ok);
        for order in lines.filter_map(|line| serde_json::from_str(&line).ok()) {
            // An end that has failed takes no order.
            let _ = sender.send(order);
        }
        // The run is gone.
        let _ = sender.send(Order::Stop);
    });
    receiver
}

/// Injects faults at ports, in both directions.
fn set_faults(ports: &[PortControl], seed: u64, rates: Rates) {
    let [drop_ppm, duplicate_ppm, reorder_ppm, corrupt_ppm, truncate_ppm, delay_ppm] = rates;
    let rates = FaultRates {
        drop_ppm,
        duplicate_ppm,
        reorder_ppm,
        corrupt_ppm,
        truncate_ppm,
        delay_ppm,
        delay_polls: DELAY_POLLS,
    };
    ports.iter().for_each(|port| port.set_faults(Faults { seed, rx: rates, tx: rates }));
}

/// The counters of a stack that are not zero.
fn nonzero(stack: &Stack) -> serde_json::Map<String, Value> {
    let counters = stack.counters().into_iter().filter(|(_, count)| *count > 0);
    counters.map(|(name, count)| (name.to_owned(), count.into())).collect()
}

/// What a core still holds of connections; `None` when it holds nothing.
fn held(usage: ResourceUsage) -> Option<ResourceUsage> {
    let of_connections = ResourceUsage { completion_queues: 0, listeners: 0, ..usage };
    (of_connections != ResourceUsage::default()).then_some(of_connections)
}

fn report(event: &str, mut details: Value) {
    details["event"] = event.into();
    print_stdout(format_args!("{details}\n"));
}

/// The tables of the namespaces in configuration `number` of [`CONFIGS`], for a target whose files
/// are in `folder`.
///
/// Each change of the UUID replaces the file's namespace by another on the same file.
pub(crate) fn namespaces(folder: &Path, number: usize) -> String {
    let uuid = if number == 1 { "uuid = \"00112233-4455-6677-8899-aabbccddeeff\"\n" } else { "" };
    let fleeting = match number {
        0 => "[[subsystem.namespace]]\nnsid = 3\nblock_bytes = 4096\nbackend.memory = { mib = 2 }\n",
        1 => "[[subsystem.namespace]]\nnsid = 3\nblock_bytes = 4096\nbackend.memory = { mib = 1 }\n",
        _ => "",
    };
    format!(
        "[[subsystem]]\nnqn = \"{NQN}\"\nallow_any_host = true\n\
         [[subsystem.namespace]]\nnsid = 1\nblock_bytes = 4096\n{uuid}backend.file = {{ path = {:?} }}\n\
         [[subsystem.namespace]]\nnsid = 2\nblock_bytes = 4096\nbackend.memory = {{ mib = 2 }}\n{fleeting}",
        disk_of(folder)
    )
}

/// Configurations that reloads go through in turn.
pub(crate) const CONFIGS: usize = 3;

/// Makes what must be there before the first target starts.
pub(crate) fn prepare(folder: &Path) -> io::Result<()> {
    let bytes = HOSTS * BLOCKS as usize * BLOCK_BYTES;
    fs::File::create(disk_of(folder))?.set_len(bytes as u64)?;
    next_epoch(folder, 0)
}

/// Stores how many targets were killed. It must be there before the next one starts.
pub(crate) fn next_epoch(folder: &Path, epoch: u64) -> io::Result<()> {
    // Readers see the old number or the new one.
    let new = folder.join("epoch.new");
    fs::write(&new, epoch.to_string())?;
    fs::rename(new, folder.join("epoch"))
}

fn epoch_of(folder: &Path) -> io::Result<u64> {
    let text = fs::read_to_string(folder.join("epoch"))?;
    text.parse().map_err(|_| io::Error::other(format!("epoch: {text:?} is no number")))
}

/// Compares the file with what the hosts were told is in it, after all have stopped.
pub(crate) fn check_disk(folder: &Path) -> Result<(), String> {
    let text = |error: io::Error| error.to_string();
    let disk = fs::read(disk_of(folder)).map_err(text)?;
    for (number, bytes) in (0..).zip(disk.chunks(BLOCKS as usize * BLOCK_BYTES)) {
        let model = Model::open(&model_of(folder, number), number).map_err(text)?;
        model
            .check(Extent { nsid: FILE_NSID, first: 0, blocks: BLOCKS }, bytes)
            .map_err(|why| format!("the file after the end, host {number}: {why}"))?;
    }
    Ok(())
}

fn disk_of(folder: &Path) -> PathBuf {
    folder.join("disk")
}

fn model_of(folder: &Path, host: u32) -> PathBuf {
    folder.join(format!("host-{host}.model"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_that_is_missing_in_the_file_is_found() {
        let folder = tempfile::tempdir().expect("a folder");
        prepare(folder.path()).expect("prepared");
        check_disk(folder.path()).expect("nothing was written");
        let last = Extent { nsid: FILE_NSID, first: BLOCKS - 1, blocks: 1 };
        let path = model_of(folder.path(), 2);
        let mut model = Model::open(&path, 2).expect("a model");
        model.send(last, false).expect("stored");
        check_disk(folder.path()).expect("no response");
        model.confirm(last).expect("stored");
        let fault = check_disk(folder.path()).expect_err("a lost Write");
        assert!(fault.contains("host 2: block 127 of namespace 1"), "{fault}");
    }

    #[test]
    fn an_epoch_is_stored() {
        let folder = tempfile::tempdir().expect("a folder");
        assert!(epoch_of(folder.path()).is_err());
        for epoch in [0, 7] {
            next_epoch(folder.path(), epoch).expect("stored");
            assert_eq!(epoch_of(folder.path()).expect("a number"), epoch);
        }
    }
}
