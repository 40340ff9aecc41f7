//! Processors that this process may use, and pinning to one of them.

use std::collections::HashMap;
use std::io;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use super::read_kernel_file;

/// The processors of the two ends of a test.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CorePair {
    pub client: usize,
    pub server: usize,
}

impl CorePair {
    /// The first and the last allowed processor. With a single processor both ends share it, which
    /// is slow and works where the server yields.
    pub fn choose(allowed: &[usize]) -> Self {
        let client = allowed.first().copied().unwrap_or(0);
        CorePair { client, server: allowed.last().copied().unwrap_or(client) }
    }

    /// Whether each end has a processor of its own.
    pub fn is_distinct(&self) -> bool {
        self.client != self.server
    }
}

/// The processors that the calling thread may run on, in rising order.
pub fn allowed() -> Vec<usize> {
    let Ok(set) = sched_getaffinity(Pid::from_raw(0)) else { return vec![0] };
    (0..CpuSet::count()).filter(|&core| set.is_set(core).unwrap_or(false)).collect()
}

/// The same processors, one thread of each physical core before the second thread of any.
pub fn physical_first(allowed: &[usize]) -> Vec<usize> {
    let siblings = |core: &usize| {
        read_kernel_file(&format!("/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list"))
    };
    by_physical_core(allowed, |core| siblings(core).unwrap_or_else(|| core.to_string()))
}

fn by_physical_core(allowed: &[usize], physical: impl Fn(&usize) -> String) -> Vec<usize> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut ranked: Vec<(usize, usize)> = allowed
        .iter()
        .map(|core| {
            let threads = seen.entry(physical(core)).or_default();
            *threads += 1;
            (*threads, *core)
        })
        .collect();
    ranked.sort_unstable();
    ranked.into_iter().map(|(_, core)| core).collect()
}

/// Pins the calling thread to one processor.
pub fn pin(core: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(core)?;
    sched_setaffinity(Pid::from_raw(0), &set)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_ends_are_as_far_apart_as_the_list_allows() {
        assert_eq!(CorePair::choose(&[0, 1, 2, 3]), CorePair { client: 0, server: 3 });
        assert!(CorePair::choose(&[0, 1]).is_distinct());
        assert!(!CorePair::choose(&[5]).is_distinct());
    }

    #[test]
    fn physical_cores_come_before_second_threads() {
        let adjacent = |core: &usize| format!("{}-{}", core / 2 * 2, core / 2 * 2 + 1);
        assert_eq!(by_physical_core(&[0, 1, 2, 3, 5], adjacent), [0, 2, 5, 1, 3]);
        assert_eq!(by_physical_core(&[0, 1, 2], usize::to_string), [0, 1, 2]);
    }

    #[test]
    fn a_pinned_thread_may_run_there_and_nowhere_else() {
        let core = *allowed().last().expect("this thread runs somewhere");
        let seen = std::thread::spawn(move || pin(core).map(|()| allowed())).join().expect("the thread ends");
        assert_eq!(seen.expect("an allowed processor"), [core]);
    }

    #[test]
    fn a_processor_that_does_not_exist_is_refused() {
        assert!(pin(CpuSet::count()).is_err());
    }
}
