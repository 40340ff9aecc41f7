//! A host and a target in one process: data, queues, kinds of transfers.

mod common;

use common::{Pair, memory_subsystem};
use iwarp_nvmf::host::{BlockRange, Pattern, Workload};

fn workload(writes: bool, bytes: u32) -> Workload {
    let pattern = Pattern::Sequential;
    Workload { writes, bytes, depth: 16, commands: 256, pattern, verify: true }
}

/// Fabrics 1.1, 3 and 4: what every host does first.
#[test]
fn a_host_connects_identifies_reads_and_writes() {
    let mut pair = Pair::connected(&memory_subsystem(), 1);
    let Pair { host, side, .. } = &mut pair;
    let namespaces = host.namespaces(&mut || side.turn()).expect("namespaces");
    assert_eq!((namespaces[0].nsid, namespaces[0].blocks, namespaces[0].block_bytes), (1, 8192, 512));
    let range = BlockRange { nsid: 1, slba: 17, blocks: 16 };
    let mut data: Vec<u8> = (0..8192).map(|at| (at * 7 % 251) as u8).collect();
    host.write(range, &mut data, &mut || side.turn()).expect("written");
    let mut found = vec![0; 8192];
    host.read(range, &mut found, &mut || side.turn()).expect("read");
    assert_eq!(found, data);
}

/// Every byte, through RDMA Read and in the capsule, on several queues.
#[test]
fn what_is_written_at_depth_is_read_back() {
    for (bytes, queues) in [(4096, 1), (8192, 3), (512, 2)] {
        let mut pair = Pair::connected(&memory_subsystem(), queues);
        let Pair { host, side, .. } = &mut pair;
        let namespace = host.namespaces(&mut || side.turn()).expect("namespaces")[0];
        host.bench(namespace, workload(true, bytes), &mut || side.turn()).expect("written");
        let report = host.bench(namespace, workload(false, bytes), &mut || side.turn()).expect("read");
        assert_eq!((report.commands, report.bytes), (256, 256 * u64::from(bytes)));
    }
}
