//! What a run prints: the JSON of `iwarp-perf`, schema 1.
//!
//! Names are a contract with scripts. A figure that a test does not have is `null`, never 0; a
//! figure of 0 was measured. Latencies are full round trips; `gbit_per_s` is goodput, application
//! bytes alone.

use serde::{Deserialize, Serialize};

use crate::host::{Build, CorePair, Hops, Machine};
use crate::{AtomicKind, Case, EndPercent, PathKind, RttNs, Test, Transport, Wait, WordOwner};

/// The version of the JSON.
pub const SCHEMA: u32 = 1;

/// A whole run.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The command as it was typed.
    pub command: Option<String>,
    /// Where it ran.
    #[serde(default)]
    pub machine: Machine,
    /// What ran.
    #[serde(default)]
    pub build: Build,
    /// The distance of this machine's processors, in a run that uses many.
    #[serde(default)]
    pub hops: Option<Hops>,
    /// What the machine is too small for, each with the reason.
    #[serde(default)]
    pub skipped: Vec<String>,
    /// One entry a case, in the order in which they were asked for.
    pub results: Vec<TestResult>,
}

/// The figures of one case.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct TestResult {
    /// The test.
    pub test: Test,
    /// The implementation that carried the bytes.
    pub transport: Transport,
    /// The device, as the port names it.
    pub device: Option<String>,
    /// Bytes of one message.
    pub bytes: u64,
    /// The largest network-layer packet, in bytes.
    pub mtu: Option<u16>,
    /// Queue pairs.
    pub qps: Option<u32>,
    /// Cores a side.
    pub cores: Option<u32>,
    /// Messages outstanding a queue pair.
    pub depth: Option<u32>,
    /// Work requests posted together.
    pub post_list: Option<u32>,
    /// The largest message that was posted inline, in bytes; 0 for none.
    pub inline: Option<u32>,
    /// One work request in this many was signaled.
    pub signal_every: Option<u32>,
    /// Whether both ends sent.
    pub bidirectional: Option<bool>,
    /// Messages a second of an open loop, `None` for a closed one.
    pub rate: Option<f64>,
    /// What was done to the words of an atomic test.
    pub operation: Option<AtomicKind>,
    /// The words of an atomic test.
    pub words: Option<u32>,
    /// Who changed the words of an atomic test: `owner` or `locked`.
    pub atomics: Option<String>,
    /// The owner cores of the words of an atomic test: `spread`, `local` or `remote`.
    pub owner: Option<WordOwner>,
    /// Polls of the client's cores, one entry per core, over the whole group.
    pub polls: Option<Vec<CorePolls>>,
    /// Whether MPA startup negotiated the CRC.
    pub crc: Option<bool>,
    /// Whether MPA startup negotiated markers both ways.
    pub markers: Option<bool>,
    /// The path between the ends.
    pub path: Option<PathKind>,
    /// How the ends waited.
    pub wait: Option<Wait>,
    /// The transfer time of a cache line between the two cores, in nanoseconds: the median over the
    /// rounds that count.
    pub hop_ns: Option<f64>,
    /// Bytes that messages pass through: those of the applications at both ends, and the buffers of
    /// both directions of the link where each has its slot.
    pub working_set_bytes: Option<u64>,
    /// Rounds that count.
    pub rounds: Option<u32>,
    /// Rounds dropped because the floor moved.
    pub rounds_dropped: Option<u32>,
    /// Messages that count.
    pub iterations: Option<u64>,
    /// The time they took.
    pub seconds: Option<f64>,
    /// Full round trips.
    pub rtt_ns: Option<RttNs>,
    /// Connection set-up: from the connect call to the established connection, with TCP and MPA.
    pub setup_ns: Option<RttNs>,
    /// Connections a second that were established and closed in order.
    pub setups_per_s: Option<f64>,
    /// The same, divided by the cores of an end.
    pub setups_per_s_per_core: Option<f64>,
    /// Messages a second, one way.
    pub messages_per_s: Option<f64>,
    /// Application bits a second, in units of a thousand million, one way or both ways added up.
    pub gbit_per_s: Option<f64>,
    /// Processor time of both ends a message.
    pub cpu_ns_per_message: Option<f64>,
    /// Processor time of each end as a percentage of its part of the slices: 100 for each processor
    /// in use all the time.
    pub cpu_percent: Option<EndPercent>,
    /// Whether an end that spins got less than [`SPINNING_CPU_PERCENT_MIN`] of its processors: then
    /// the figures are also those of other programs. `null` for a test whose ends wait, and where
    /// processor time is unknown.
    pub short_of_cpu: Option<bool>,
    /// Polls of each end that found work, in percent of all its polls.
    pub busy_percent: Option<EndPercent>,
    /// Whether every byte was checked, which takes most of the time of a test.
    pub validated: bool,
    /// Bytes compared with the pattern.
    pub verified_bytes: Option<u64>,
    /// Messages lost, late or wrong.
    pub errors: Option<u64>,
    /// Whether receives came from a shared receive queue.
    pub srq: Option<bool>,
    /// Messages of each queue pair over the rounds that count, warm-up included, where a bandwidth
    /// test has several.
    pub messages_by_qp: Option<Vec<u64>>,
    /// How the cores shared the work, where each end has processors of its own.
    #[serde(default)]
    pub scale: Option<Scale>,
    /// Remarks about the figures.
    pub notes: Vec<String>,
    /// Comparisons with baselines of the same rounds.
    pub against: Option<Vec<Comparison>>,
    /// The rounds one by one, dropped ones included.
    pub round_log: Option<Vec<RoundLog>>,
}

/// How several cores shared the work.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Scale {
    /// The processors of both ends, by core.
    pub processors: Vec<CorePair>,
    /// Whether a processor polls several cores.
    pub oversubscribed: bool,
    /// Frames of both ends that were dropped because the ring to the owner core was full.
    pub steering_drops: u64,
    /// Messages of the slowest queue pair over the mean of all, 1 if all are equal.
    pub fairness: Option<f64>,
    /// The rate over that of one core a side, each the median of its rounds.
    pub to_one_core: Option<f64>,
}

/// Polls of a core.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct CorePolls {
    /// Its number.
    pub core: u16,
    /// Polls.
    pub polls: u64,
    /// Polls without work.
    pub idle: u64,
}

/// A comparison with a baseline that alternated with the test: ratios are ours over the baseline's,
/// round by round.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Comparison {
    /// The baseline's test.
    pub baseline: String,
    /// What the baseline ran over.
    pub path: Option<PathKind>,
    /// Of the median round trips.
    pub ratio_p50: Option<MedianRange>,
    /// Of the 99.9th percentiles.
    pub ratio_p999: Option<MedianRange>,
    /// Of the bandwidths.
    pub ratio_gbit: Option<MedianRange>,
    /// What we add to the baseline's median round trip, in nanoseconds: the median over rounds.
    pub added_ns_p50: Option<f64>,
}

/// Median and range of several rounds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct MedianRange {
    /// The middle one.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

/// One case in one round.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RoundLog {
    /// The transfer time of a cache line between the two cores in this round.
    pub hop_ns: Option<f64>,
    /// How far the floor moved between the beginning and the end of the round, in percent.
    pub floor_moved_percent: Option<f64>,
    /// Time that the hypervisor took from this machine's processors during the round, in
    /// milliseconds.
    pub steal_ms: Option<f64>,
    /// Context switches of the client, voluntary or not.
    pub context_switches: Option<u64>,
    /// Left out of the figures.
    pub dropped: bool,
    /// The median round trip.
    pub p50_ns: Option<u64>,
    /// The 99.9th percentile of the round trips.
    pub p999_ns: Option<u64>,
    /// The bandwidth.
    pub gbit_per_s: Option<f64>,
    /// Messages a second, one way.
    pub messages_per_s: Option<f64>,
}

impl MedianRange {
    /// The spread of some values, `None` of none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let (low, high) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
        Some(MedianRange { median: (low + high) / 2.0, min, max })
    }
}

/// The processor time of an end that spins, in percent of its processors, below which the result
/// says so.
pub const SPINNING_CPU_PERCENT_MIN: f64 = 90.0;

impl TestResult {
    /// Sets [`TestResult::short_of_cpu`], and a note if an end was.
    pub(crate) fn judge_cpu(mut self) -> Self {
        let ends = self.cpu_percent.filter(|_| self.wait == Some(Wait::Spin)).unwrap_or_default();
        let cores = f64::from(self.cores.unwrap_or(1).max(1));
        let ends = [("client", ends.client), ("server", ends.server)];
        let known: Vec<_> =
            ends.iter().filter_map(|(name, percent)| Some((name, (*percent)? / cores))).collect();
        let short = known.iter().filter(|(_, share)| *share < SPINNING_CPU_PERCENT_MIN);
        let short: Vec<String> =
            short.map(|(name, share)| format!("the {name} got {share:.0} % of its processors")).collect();
        self.short_of_cpu = (!known.is_empty()).then_some(!short.is_empty());
        if !short.is_empty() {
            self.notes.push(format!(
                "short of processor time: {}; both ends spin, so other programs are in this figure",
                short.join(", ")
            ));
        }
        self
    }

    /// The rounds that count: the steady ones, or all of them if none is.
    pub fn counted_rounds(&self) -> impl Iterator<Item = &RoundLog> {
        let log = self.round_log.as_deref().unwrap_or_default();
        let all = log.iter().all(|round| round.dropped);
        log.iter().filter(move |round| all || !round.dropped)
    }

    /// The median rate of the rounds that count, in messages a second.
    pub fn median_rate(&self) -> Option<f64> {
        MedianRange::of(self.counted_rounds().filter_map(|round| round.messages_per_s))
            .map(|rate| rate.median)
    }

    /// The share of the slowest queue pair, as in [`Scale::fairness`].
    pub fn fairness(&self) -> Option<f64> {
        let messages = self.messages_by_qp.as_deref()?;
        let mean = messages.iter().map(|&messages| messages as f64).sum::<f64>() / messages.len() as f64;
        (mean > 0.0).then_some(*messages.iter().min()? as f64 / mean)
    }

    /// Whether no message counts: a run with such a result has not measured what it was asked for.
    pub fn is_empty(&self) -> bool {
        self.iterations.unwrap_or(0) == 0
    }

    /// A result with nothing measured yet.
    pub fn unmeasured(case: &Case, device: Option<String>) -> Self {
        let ours = case.test.transport() == Transport::Ironwarp;
        TestResult {
            test: case.test,
            transport: case.test.transport(),
            device: device.filter(|_| case.test.transport() != Transport::KernelTcp),
            bytes: case.bytes,
            mtu: Some(case.mtu),
            qps: (ours && !case.test.is_connection_setup()).then_some(case.qps),
            cores: Some(case.cores),
            depth: ours.then_some(case.depth),
            post_list: ours.then_some(case.post_list),
            inline: ours.then_some(case.inline),
            signal_every: ours.then_some(case.signal_every),
            bidirectional: ours.then_some(case.bidirectional),
            rate: case.rate.filter(|_| ours),
            srq: (ours && case.test.has_receives()).then_some(case.srq),
            operation: case.operation,
            words: case.operation.map(|_| case.words),
            atomics: case.operation.map(|_| if case.locked { "locked" } else { "owner" }.to_owned()),
            owner: case.operation.map(|_| case.owner),
            path: Some(case.path),
            wait: Some(case.wait),
            validated: case.validate,
            ..TestResult::default()
        }
    }

    /// The name in tables: the test and its unusual options.
    pub fn name(&self) -> String {
        let words = self.words.filter(|words| *words > 1).map(|words| format!("{words} words"));
        let options = [
            (self.operation == Some(AtomicKind::CmpSwap), "swap"),
            (words.is_some(), words.as_deref().unwrap_or_default()),
            (self.owner == Some(WordOwner::Local), "local"),
            (self.owner == Some(WordOwner::Remote), "remote"),
            (self.atomics.as_deref() == Some("locked"), "locked"),
            (self.srq == Some(true), "SRQ"),
            (self.wait == Some(Wait::Block), "blocking"),
            (self.validated, "checked"),
        ];
        let options = options.iter().filter(|(is_set, _)| *is_set).map(|(_, text)| format!(" ({text})"));
        format!("{}{}", self.test, options.collect::<String>())
    }
}

impl Report {
    /// Compares each result of a run over several cores with the one of one core a side.
    pub fn compare_with_one_core(&mut self) {
        let key = |result: &TestResult| (result.test, result.bytes, result.words, result.path);
        let ones = self.results.iter().filter(|result| result.scale.is_some() && result.cores == Some(1));
        let ones: Vec<_> = ones.map(|result| (key(result), result.median_rate())).collect();
        for result in &mut self.results {
            let one = ones.iter().find(|(one, _)| *one == key(result)).and_then(|(_, rate)| *rate);
            let ratio =
                result.median_rate().zip(one.filter(|&rate| rate > 0.0)).map(|(rate, one)| rate / one);
            if let Some(scale) = &mut result.scale {
                scale.to_one_core = ratio;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn an_even_number_of_values_has_its_median_between_the_two_in_the_middle() {
        let spread = MedianRange::of([4.0, 1.0, 3.0, 2.0]).expect("four values");
        assert_eq!(spread, MedianRange { median: 2.5, min: 1.0, max: 4.0 });
        assert_eq!(MedianRange::of([5.0]).expect("one value").median, 5.0);
    }

    #[test]
    fn no_values_have_no_spread_and_infinities_are_not_values() {
        assert_eq!(MedianRange::of([]), None);
        assert_eq!(MedianRange::of([f64::NAN, f64::INFINITY]), None);
    }

    #[test]
    fn what_was_not_measured_is_null_and_never_zero() {
        let case = Case::new(Test::SendLat, 64, 1500, PathKind::Memif);
        let json = serde_json::to_value(TestResult::unmeasured(&case, None)).expect("plain data");
        for key in [
            "device",
            "hop_ns",
            "rounds",
            "rounds_dropped",
            "iterations",
            "seconds",
            "rtt_ns",
            "messages_per_s",
            "gbit_per_s",
            "cpu_ns_per_message",
            "cpu_percent",
            "busy_percent",
            "short_of_cpu",
            "errors",
            "against",
            "crc",
            "markers",
            "operation",
            "atomics",
            "words",
            "owner",
            "polls",
            "setup_ns",
            "setups_per_s",
            "setups_per_s_per_core",
            "rate",
            "messages_by_qp",
            "scale",
        ] {
            assert_eq!(json.get(key), Some(&Value::Null), "{key}");
        }
        assert_eq!(json["test"], "send-lat");
        assert_eq!(json["path"], "memif");
    }

    /// Only an end that spins uses all of its processors, so only for such an end is less a fault
    /// of the run.
    #[test]
    fn an_end_that_spins_and_got_less_than_nine_tenths_of_its_processors_is_reported() {
        let judge = |client, server, wait, cores| {
            let cpu_percent = Some(EndPercent { client, server });
            let case = Case::new(Test::SendLat, 64, 1500, PathKind::Memif);
            let result = TestResult { cpu_percent, wait, cores, ..TestResult::unmeasured(&case, None) };
            let result = result.judge_cpu();
            (result.short_of_cpu, result.notes.join(""))
        };
        let (spin, one) = (Some(Wait::Spin), Some(1));
        assert_eq!(judge(Some(99.0), Some(90.0), spin, one), (Some(false), String::new()));
        let (short, note) = judge(Some(38.0), Some(99.0), spin, one);
        assert!(
            short == Some(true) && note.contains("the client got 38 %") && !note.contains("server"),
            "{note}"
        );
        assert_eq!(judge(Some(150.0), Some(198.0), spin, Some(2)).0, Some(true), "of two processors");
        assert_eq!(judge(None, Some(10.0), spin, one).0, Some(true));
        assert_eq!(judge(None, None, spin, one), (None, String::new()));
        assert_eq!(judge(Some(5.0), Some(5.0), Some(Wait::Block), one), (None, String::new()));
    }

    #[test]
    fn a_baseline_has_no_queue_pairs_and_no_crc() {
        let case = Case::new(Test::FrameLat, 64, 1500, PathKind::Memif);
        let json =
            serde_json::to_value(TestResult::unmeasured(&case, Some("net_memif0".into()))).expect("plain");
        for key in ["qps", "depth", "post_list", "inline", "signal_every", "bidirectional", "crc", "markers"]
        {
            assert_eq!(json[key], Value::Null, "{key}");
        }
        assert_eq!((&json["transport"], &json["device"]), (&json!("frames"), &json!("net_memif0")));
    }

    #[test]
    fn a_comparison_has_the_keys_of_the_contract() {
        let spread = MedianRange::of([2.0]);
        let against = Comparison {
            baseline: "frame-lat".into(),
            path: Some(PathKind::Memif),
            ratio_p50: spread,
            ratio_p999: spread,
            ratio_gbit: None,
            added_ns_p50: Some(250.0),
        };
        let one = json!({"median": 2.0, "min": 2.0, "max": 2.0});
        assert_eq!(
            serde_json::to_value(against).expect("plain data"),
            json!({"baseline": "frame-lat", "path": "memif", "ratio_p50": one, "ratio_p999": one,
                   "ratio_gbit": null, "added_ns_p50": 250.0})
        );
    }
}
