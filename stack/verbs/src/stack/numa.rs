//! Checks that a port and the processor that polls it belong to one memory node.
//!
//! Takes the device's node and the configured processor; gives a line for the log if they differ.
//! Nodes and their processors are those of `/sys/devices/system/node`. If either is unknown there
//! is nothing to report, as with virtual devices and threads without a processor. Read once for
//! each core when the stack starts.

use core::fmt;
use std::path::Path;

/// Linux's list of nodes.
const NODES: &str = "/sys/devices/system/node";

/// A port and a processor on different nodes: every frame crosses between them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct NumaMismatch {
    port_node: u16,
    processor: usize,
    processor_node: u16,
}

impl fmt::Display for NumaMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NumaMismatch { port_node, processor, processor_node } = self;
        write!(
            f,
            "processor {processor} is on memory node {processor_node} and its port on node {port_node}; each frame \
             crosses between them"
        )
    }
}

/// Returns the line for a port on `port_node` that is polled on `processor`.
pub(super) fn mismatch(port_node: Option<u16>, processor: Option<usize>) -> Option<NumaMismatch> {
    mismatch_in(Path::new(NODES), port_node?, processor?)
}

fn mismatch_in(nodes: &Path, port_node: u16, processor: usize) -> Option<NumaMismatch> {
    let processor_node = node_of(nodes, processor)?;
    (processor_node != port_node).then_some(NumaMismatch { port_node, processor, processor_node })
}

fn node_of(nodes: &Path, processor: usize) -> Option<u16> {
    std::fs::read_dir(nodes).ok()?.flatten().find_map(|entry| {
        let node = entry.file_name().to_str()?.strip_prefix("node")?.parse().ok()?;
        let list = std::fs::read_to_string(entry.path().join("cpulist")).ok()?;
        is_in(&list, processor).then_some(node)
    })
}

/// Returns whether a list such as `0-3,8,10-11` contains `processor`.
fn is_in(list: &str, processor: usize) -> bool {
    list.trim().split(',').any(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let ends = first.parse::<usize>().ok().zip(last.parse::<usize>().ok());
        ends.is_some_and(|(first, last)| (first..=last).contains(&processor))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors_are_read_as_linux_writes_them() {
        let list = "0-3,8,10-11\n";
        let found: Vec<_> = (0..13).filter(|processor| is_in(list, *processor)).collect();
        assert_eq!(found, [0, 1, 2, 3, 8, 10, 11]);
        assert!(!is_in("\n", 0), "a node of memory alone");
    }

    /// Two nodes with two processors each.
    #[test]
    fn a_port_on_another_node_than_its_processor_is_reported() {
        let folder = std::env::temp_dir().join(format!("ironwarp-nodes-{}", std::process::id()));
        for (node, list) in [("node0", "0,2\n"), ("node1", "1,3\n")] {
            std::fs::create_dir_all(folder.join(node)).unwrap();
            std::fs::write(folder.join(node).join("cpulist"), list).unwrap();
        }
        std::fs::write(folder.join("online"), "0-1\n").unwrap();
        assert_eq!(mismatch_in(&folder, 0, 2), None);
        assert_eq!(mismatch_in(&folder, 1, 4), None, "a processor that nobody knows");
        let told = mismatch_in(&folder, 0, 3).unwrap().to_string();
        assert!(told.starts_with("processor 3 is on memory node 1 and its port on node 0"), "{told}");
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!((mismatch(None, Some(0)), mismatch(Some(0), None)), (None, None));
    }
}
