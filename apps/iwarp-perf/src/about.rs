//! The name and the build of the program.

use ironwarp_bench::host::Build;

pub const PROGRAM: &str = "iwarp-perf";

/// This build with its optional parts, for reports.
pub fn build() -> Build {
    Build::current(match (cfg!(feature = "dpdk"), cfg!(feature = "dpdk-static")) {
        (_, true) => &["dpdk", "dpdk-static"],
        (true, false) => &["dpdk"],
        (false, false) => &[],
    })
}
