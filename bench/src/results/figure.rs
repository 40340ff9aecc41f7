//! What a row shows: a figure of one result, and the goal that it is compared with.

use serde::Deserialize;
use serde_json::Value;

use super::run::Run;
use crate::InputError;
use crate::report::MedianRange;

/// A figure of a result. Keys are JSON pointers.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Figure {
    /// The median round trip, over the rounds that count, in µs.
    RoundTrip,
    /// Messages a second, over the rounds that count, in millions.
    Rate,
    /// A number, or `{median, min, max}`, divided by `scale`: units of the JSON in one of the
    /// table's.
    Value { key: String, scale: f64, unit: String },
    /// A comparison with a baseline of the same rounds, ours divided by the baseline's:
    /// `ratio_p50`, `ratio_p999`, `ratio_gbit` or `added_ns_p50`.
    Against { baseline: String, key: String },
    /// The median, divided by that of another result.
    Quotient { key: String, divisor: String },
    /// The inverse of `Quotient`.
    Inverse { key: String, dividend: String },
}

/// What a figure should be, in the figure's unit.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Goal {
    AtMost(f64),
    AtLeast(f64),
    /// At most this, or so many nanoseconds more than the baseline.
    AtMostOrAdded(f64, f64),
    /// At most two core-to-core hops of the same run and so many nanoseconds.
    TwoHopsAnd(f64),
}

/// The key of the nanoseconds that we add to a baseline.
const ADDED_NS: &str = "added_ns_p50";

impl Figure {
    pub fn unit(&self) -> &str {
        match self {
            Figure::RoundTrip => "µs",
            Figure::Rate => "M/s",
            Figure::Value { unit, .. } => unit,
            Figure::Against { key, .. } if key == ADDED_NS => "ns",
            Figure::Against { .. } | Figure::Quotient { .. } | Figure::Inverse { .. } => "×",
        }
    }

    pub fn of(&self, run: &Run, select: &str) -> Result<MedianRange, InputError> {
        let result = run.result(select)?;
        match self {
            Figure::RoundTrip => rounds(run, result, select, "p50_ns").map(|spread| scaled(spread, 1e-3)),
            Figure::Rate => {
                let bytes = spread_at(run, result, select, "/bytes")?.median;
                rounds(run, result, select, "gbit_per_s").map(|spread| scaled(spread, 1e3 / 8.0 / bytes))
            }
            Figure::Value { key, scale, .. } => {
                spread_at(run, result, select, key).map(|spread| scaled(spread, 1.0 / scale))
            }
            Figure::Against { baseline, key } => against(run, select, baseline, key),
            Figure::Quotient { key, divisor } => quotient(run, key, select, divisor),
            Figure::Inverse { key, dividend } => quotient(run, key, dividend, select),
        }
    }
}

impl Goal {
    /// The goal as text, and whether `value` reaches it.
    pub fn judge(
        self,
        figure: &Figure,
        value: f64,
        run: &Run,
        select: &str,
    ) -> Result<(String, bool), InputError> {
        let unit = figure.unit();
        Ok(match self {
            Goal::AtMost(most) => (format!("≤ {most} {unit}"), value <= most),
            Goal::AtLeast(least) => (format!("≥ {least} {unit}"), value >= least),
            Goal::AtMostOrAdded(most, added_ns) => {
                let Figure::Against { baseline, .. } = figure else {
                    return Err(run.error("against", "the goal needs a comparison with a baseline"));
                };
                let added = against(run, select, baseline, ADDED_NS)?.median;
                let text = format!("≤ {most} {unit} or ≤ {added_ns} ns more ({added:.0} ns)");
                (text, value <= most || added <= added_ns)
            }
            Goal::TwoHopsAnd(ns) => {
                let most = 2.0 * spread_at(run, run.result(select)?, select, "/hop_ns")?.median + ns;
                (format!("≤ two hops + {ns} ns = {most:.0} ns"), value <= most)
            }
        })
    }
}

fn scaled(spread: MedianRange, by: f64) -> MedianRange {
    MedianRange { median: spread.median * by, min: spread.min * by, max: spread.max * by }
}

/// A figure of the rounds that count.
fn rounds(run: &Run, result: &Value, select: &str, key: &str) -> Result<MedianRange, InputError> {
    let log = result["round_log"].as_array().map_or(&[][..], Vec::as_slice);
    // Where every round was dropped, all of them count, as in the result's other figures.
    let all_dropped = log.iter().all(|round| round["dropped"] == true);
    let kept = log.iter().filter(|round| all_dropped || round["dropped"] != true);
    let missing = || run.error(&format!("round_log[].{key} ({select})"), "missing: must be numbers");
    MedianRange::of(kept.filter_map(|round| round[key].as_f64())).ok_or_else(missing)
}

/// The figure at a pointer. A number is its own range.
fn spread_at(run: &Run, result: &Value, select: &str, pointer: &str) -> Result<MedianRange, InputError> {
    let value = result.pointer(pointer).unwrap_or(&Value::Null);
    let Some(median) = value.as_f64().or_else(|| value["median"].as_f64()) else {
        let key = pointer.trim_start_matches('/').replace('/', ".");
        let problem = format!("{value}: must be a number or {{median, min, max}}");
        return Err(run.error(&format!("{key} ({select})"), &problem));
    };
    let end = |key| value.get(key).and_then(Value::as_f64).unwrap_or(median);
    Ok(MedianRange { median, min: end("min"), max: end("max") })
}

fn against(run: &Run, select: &str, baseline: &str, key: &str) -> Result<MedianRange, InputError> {
    let mut all = run.result(select)?["against"].as_array().into_iter().flatten();
    match all.find(|against| against["baseline"] == baseline) {
        Some(against) => spread_at(run, against, select, &format!("/{key}")),
        None => Err(run.error(&format!("against ({select})"), &format!("no comparison with {baseline}"))),
    }
}

fn quotient(run: &Run, key: &str, dividend: &str, divisor: &str) -> Result<MedianRange, InputError> {
    let median = |select| Ok(spread_at(run, run.result(select)?, select, key)?.median);
    let value = median(dividend)? / median(divisor)?;
    Ok(MedianRange { median: value, min: value, max: value })
}
