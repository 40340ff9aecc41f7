//! The machine: its description, its activity during a measurement, and the distance of its cores.

mod activity;
mod build;
mod cores;
mod hop;
mod machine;

pub use activity::{Activity, cpu_ns, process_cpu_ns};
pub use build::Build;
pub use cores::{CorePair, allowed, physical_first, pin};
pub use hop::{Hops, hop_ns};
pub use machine::Machine;

/// The text of a kernel file, without its last newline; `None` where the kernel has none.
fn read_kernel_file(path: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    Some(text.trim_end().to_owned())
}
