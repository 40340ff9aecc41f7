//! The instructions of an I/O command between a host and a target of one thread over memory ports,
//! for callgrind.
//!
//! Arguments: `read` or `write`, the commands outstanding, the MTU, and whether the target
//! invalidates the tag of each command (`invalidate`). After as many commands to warm up,
//! [`measured`] is what both sides do, and [`target_turn`] is the target's part of it. Prints the
//! number of measured commands, and what the target sent and received for each.
//! `scripts/storage-cost.sh` runs it and divides the target's instructions by stage.
//!
//! ```text
//! cargo build --release -p iwarp-nvmf --example instructions
//! valgrind --tool=callgrind --callgrind-out-file=/dev/null --toggle-collect='instructions::measured' \
//!     target/release/examples/instructions read 32 9000
//! valgrind --tool=callgrind --callgrind-out-file=target.out --toggle-collect='instructions::target_turn*' \
//!     target/release/examples/instructions read 32 1500 invalidate
//! ```
#![forbid(unsafe_code)]

use ironwarp::memory::{MemoryConfig, pair};
use ironwarp::{Config, MacAddr, Stack};
use iwarp_nvmf::config::TargetConfig;
use iwarp_nvmf::host::{Host, HostSettings, NamespaceSummary, Pattern, Workload};
use iwarp_nvmf::serve::Appliance;
use iwarp_nvmf::transport::Reactor;

type Failure = Box<dyn std::error::Error>;

const TARGET: &str = "
listeners = [\"10.0.0.2:4420\"]
[stack.port]
device.memory = {}
mtu = MTU
[stack.net]
address = \"10.0.0.2/24\"
[[subsystem]]
nqn = \"nqn.2014-08.org.example:null\"
allow_any_host = true
[[subsystem.namespace]]
nsid = 1
backend.null = { mib = 1024 }
";

/// Commands of each of the two phases.
const COMMANDS: u64 = 2000;
/// What the target sends and receives for a command.
const COUNTERS: [&str; 6] =
    ["tcp_rx_segments", "tcp_tx_segments", "tcp_tx_acks", "tcp_tx_bytes", "iwarp_rx_fpdus", "iwarp_tx_fpdus"];

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let writes = match arguments.next().as_deref() {
        Some("read") | None => false,
        Some("write") => true,
        Some(other) => return Err(format!("{other}: read or write").into()),
    };
    let depth = arguments.next().map_or(Ok(32), |text| text.parse())?;
    let mtu: u16 = arguments.next().map_or(Ok(9000), |text| text.parse())?;
    let invalidate = arguments.next().is_some_and(|text| text == "invalidate");
    let near = MemoryConfig { mtu_bytes: mtu, ..MemoryConfig::default() };
    let far = MemoryConfig { mac: MacAddr([2, 0, 0, 0, 0, 2]), ..near.clone() };
    let (near, far) = pair(&near, &far);
    let mut config = Config::in_memory("10.0.0.1/24")?;
    config.port.mtu = mtu;
    let (stack, worker) = Stack::builder(config).memory_port(near).build_one()?;
    let settings = HostSettings {
        invalidate,
        ..HostSettings::new("10.0.0.2:4420".parse()?, "nqn.2014-08.org.example:null")
    };
    let mut host = Host::new(&stack, vec![worker], settings)?;
    let target = TargetConfig::from_toml(&TARGET.replace("MTU", &mtu.to_string()))?;
    let (namespaces, mut cores) = Appliance::open(&target, Some(vec![far]))?.into_cores();
    let mut reactor = cores.remove(0).start()?;
    host.connect(&mut || turn(&mut reactor))?;
    host.connect_io_queues(1, &mut || turn(&mut reactor))?;
    let namespace = host.namespace(1, &mut || turn(&mut reactor))?;
    let workload = Workload {
        writes,
        bytes: 4096,
        depth,
        commands: COMMANDS,
        pattern: Pattern::Random(1),
        verify: false,
    };
    host.bench(namespace, workload, &mut || turn(&mut reactor))?;
    let count =
        |name| namespaces.stack().counters().into_iter().find(|one| one.0 == name).map_or(0, |one| one.1);
    let before = COUNTERS.map(count);
    measured(&mut host, &mut reactor, (namespace, workload))?;
    println!("{COMMANDS} measured commands");
    for ((name, before), after) in COUNTERS.iter().zip(before).zip(COUNTERS.map(count)) {
        println!("{name} {:.3}", (after - before) as f64 / COMMANDS as f64);
    }
    Ok(())
}

#[inline(never)]
fn measured(
    host: &mut Host,
    reactor: &mut Reactor,
    (namespace, workload): (NamespaceSummary, Workload),
) -> Result<(), Failure> {
    host.bench(namespace, workload, &mut || target_turn(reactor))?;
    Ok(())
}

#[inline(never)]
fn target_turn(reactor: &mut Reactor) {
    turn(reactor);
}

#[inline(always)]
fn turn(reactor: &mut Reactor) {
    if let Err(error) = reactor.poll() {
        panic!("the target ends: {error}");
    }
}
