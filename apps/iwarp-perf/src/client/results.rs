//! The results of a group, as the parent receives them.

use ironwarp::Config;
use ironwarp_bench::report::{CorePolls, TestResult};
use ironwarp_bench::rounds::{CaseTotals, Rounds};
use ironwarp_bench::{Case, Latency, PathKind, Transport};

use crate::control::{Channel, FromClient, Measured, ToClient};
use crate::error::Result;
use crate::plan::{Group, Session};
use crate::rdma::QueueSizes;

/// The operations of an atomic test.
#[derive(Clone, Copy, Debug, Default)]
pub struct AtomicTotals {
    /// Operations that changed a word, as the client counts them.
    pub changed: u64,
    /// Operations that the receiving core executed, those that it forwarded to another core, and
    /// those of the first on shared lines. `None` if unknown.
    pub executed: Option<[u64; 3]>,
}

impl AtomicTotals {
    /// Adds notes about the sum of the words and the forwarded operations. A wrong sum is an error
    /// and has no note.
    pub fn add_notes(&self, case: &Case, result: &mut TestResult) {
        if !case.test.is_atomic() || result.errors != Some(0) {
            return;
        }
        let words = if case.words == 1 { "the word".to_owned() } else { format!("the {} words", case.words) };
        let changed = self.changed;
        result.notes.push(format!("{changed} operations changed {words}, and the sum is exactly that"));
        if let Some([local, forwarded, shared]) = self.executed
            && local + forwarded > 0
        {
            let percent = |part: u64| part as f64 * 100.0 / (local + forwarded) as f64;
            result.notes.extend([
                format!("{:.0} % of them were forwarded to another core", percent(forwarded)),
                format!("{:.0} % of them were on lines that the owner shares", percent(shared)),
            ]);
        }
    }
}

/// Sends the results of a group to the parent. `complete` adds what the rounds do not have to the
/// result with an index.
pub fn send_results(
    parent: &Channel<ToClient>,
    (group, cases): (&Group, &[Case]),
    rounds: &Rounds,
    session: &Session,
    mut complete: impl FnMut(usize, &mut TestResult),
) -> Result<()> {
    if rounds.rounds.is_empty() {
        return Ok(());
    }
    let measured = (0..cases.len()).map(|index| {
        // Loopback interfaces are no baseline.
        let comparable = |&&other: &&usize| cases[other].path != PathKind::Lo;
        let against = group.cases[index].against.iter().filter(comparable);
        let baselines: Vec<_> = against.map(|&other| (&cases[other], rounds.case(other))).collect();
        let totals = CaseTotals::of(&rounds.case(index));
        let device = session.device.clone();
        let mut result = totals.result(&cases[index], device, &rounds.case(index), &baselines);
        result.working_set_bytes = working_set_bytes(&cases[index], session);
        complete(index, &mut result);
        Measured { result, latency: totals.latency().map(Latency::to_text) }
    });
    parent.send(&FromClient::Results(measured.collect()))
}

/// Returns [`TestResult::working_set_bytes`] of a bandwidth test, if the link has a known part.
fn working_set_bytes(case: &Case, session: &Session) -> Option<u64> {
    let config = Config::from_toml(session.client_config.as_deref()?).ok()?;
    let link = 2 * u64::from(case.cores) * config.port.ring_bytes()?;
    match case.test.transport() {
        _ if case.test.is_latency() || case.test.is_connection_setup() => None,
        Transport::Ironwarp => Some(link + QueueSizes::bytes(case)),
        Transport::Frames | Transport::Smoltcp => Some(link),
        Transport::KernelTcp => None,
    }
}

/// Returns the polls of each core since an earlier count.
pub fn polls_since(before: &[CorePolls], mut now: Vec<CorePolls>) -> Vec<CorePolls> {
    for core in &mut now {
        let earlier = before.iter().find(|one| one.core == core.core).copied().unwrap_or_default();
        core.polls -= earlier.polls;
        core.idle -= earlier.idle;
    }
    now
}

#[cfg(test)]
mod tests {
    use ironwarp_bench::Test;

    use super::*;

    #[test]
    fn the_working_set_is_both_rings_and_one_message_at_each_end() {
        let config = "net.address = \"10.0.0.1/24\"\nport.ring_size = 128\n\
            [port.device.memif]\nrole = \"client\"\nsocket = \"/run/a.sock\"\nbuffer_bytes = 2048\n";
        let session = Session { client_config: Some(config.to_owned()), ..Session::default() };
        let of = |test| working_set_bytes(&Case::new(test, 1 << 20, 1500, PathKind::Memif), &session);
        assert_eq!(of(Test::WriteBw), Some((2 * 128 * 2048) + (2 << 20)));
        assert_eq!(
            (of(Test::FrameBw), of(Test::TcpBw), of(Test::SendLat)),
            (Some(2 * 128 * 2048), None, None)
        );
        assert_eq!(
            working_set_bytes(&Case::new(Test::WriteBw, 64, 1500, PathKind::Veth), &Session::default()),
            None
        );
    }
}
