//! The instructions of an I/O command between a host and a target of one thread over memory ports, for callgrind.
//!
//! The host keeps a depth of commands outstanding. [`measured`] is what callgrind collects for both sides; for the target
//! alone, collect `Reactor::poll`. Prints the number of measured commands; divide the count by it.
//!
//! ```text
//! cargo build --release -p iwarp-nvmf --example instructions
//! valgrind --tool=callgrind --callgrind-out-file=/dev/null --toggle-collect='instructions::measured*' \
//!     target/release/examples/instructions read 32
//! valgrind --tool=callgrind --callgrind-out-file=/dev/null --toggle-collect='*transport::Reactor::poll*' \
//!     target/release/examples/instructions read 32
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
mtu = 9000
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

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let writes = match arguments.next().as_deref() {
        Some("read") | None => false,
        Some("write") => true,
        Some(other) => return Err(format!("{other}: read or write").into()),
    };
    let depth = arguments.next().map_or(Ok(32), |text| text.parse())?;
    let near = MemoryConfig::default();
    let far = MemoryConfig { mac: MacAddr([2, 0, 0, 0, 0, 2]), ..near.clone() };
    let (near, far) = pair(&near, &far);
    let mut config = Config::in_memory("10.0.0.1/24")?;
    config.port.mtu = 9000;
    let (stack, worker) = Stack::builder(config).memory_port(near).build_one()?;
    let settings = HostSettings::new("10.0.0.2:4420".parse()?, "nqn.2014-08.org.example:null");
    let mut host = Host::new(&stack, vec![worker], settings)?;
    let (_namespaces, mut cores) =
        Appliance::open(&TargetConfig::from_toml(TARGET)?, Some(vec![far]))?.into_cores();
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
    measured(&mut host, &mut reactor, (namespace, workload))?;
    println!("{COMMANDS} measured commands, as many before them, at depth {depth}");
    Ok(())
}

#[inline(never)]
fn measured(
    host: &mut Host,
    reactor: &mut Reactor,
    (namespace, workload): (NamespaceSummary, Workload),
) -> Result<(), Failure> {
    host.bench(namespace, workload, &mut || turn(reactor))?;
    Ok(())
}

fn turn(reactor: &mut Reactor) {
    if let Err(error) = reactor.poll() {
        panic!("the target ends: {error}");
    }
}
