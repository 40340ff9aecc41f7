//! What a row shows: a figure of one result, and the goal that it is compared with.

use serde_json::Value;

use super::input::{Error, Run};
use crate::report::MedianRange;

/// A figure of a result.
#[derive(Clone, Copy, Debug)]
pub enum Figure {
    /// The median round trip, over the rounds that count, in µs.
    RoundTrip,
    /// Messages a second, over the rounds that count, in millions.
    Rate,
    /// The value at a JSON pointer: a number, or `{median, min, max}`. It is divided by the scale.
    Value {
        /// The pointer.
        key: &'static str,
        /// Units of the JSON in one of the table's.
        scale: f64,
        /// The unit of the table.
        unit: &'static str,
    },
    /// The value of a comparison with a baseline of the same rounds: ours divided by the baseline's.
    Against {
        /// The name of the baseline.
        baseline: &'static str,
        /// `ratio_p50`, `ratio_p999`, `ratio_gbit` or `added_ns_p50`.
        key: &'static str,
    },
    /// The median at a JSON pointer, divided by another result's.
    Quotient {
        /// The pointer in both results.
        key: &'static str,
        /// The keys of the other result.
        divisor: &'static str,
    },
    /// The inverse of `Quotient`.
    Inverse {
        /// The pointer in both results.
        key: &'static str,
        /// The keys of the other result.
        dividend: &'static str,
    },
}

/// What a figure should be, in the figure's unit.
#[derive(Clone, Copy, Debug)]
pub enum Goal {
    /// No goal.
    None,
    /// At most this.
    AtMost(f64),
    /// At least this.
    AtLeast(f64),
    /// At most this, or so many nanoseconds more than the baseline.
    AtMostOrAdded(f64, f64),
    /// At most two core-to-core hops of the same run and so many nanoseconds.
    TwoHopsAnd(f64),
}

impl Figure {
    pub(super) fn unit(self) -> &'static str {
        match self {
            Figure::RoundTrip => "µs",
            Figure::Rate => "M/s",
            Figure::Value { unit, .. } => unit,
            Figure::Against { key: "added_ns_p50", .. } => "ns",
            Figure::Against { .. } | Figure::Quotient { .. } | Figure::Inverse { .. } => "×",
        }
    }

    pub(super) fn of(self, run: &Run, select: &str) -> Result<MedianRange, Error> {
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
            Figure::Against { baseline, key } => against(run, result, select, baseline, key),
            Figure::Quotient { key, divisor } => quotient(run, key, select, divisor),
            Figure::Inverse { key, dividend } => quotient(run, key, dividend, select),
        }
    }
}

impl Goal {
    /// The goal as text and whether the figure reaches it; nothing without a goal.
    pub(super) fn judge(
        self,
        figure: Figure,
        value: f64,
        run: &Run,
        select: &str,
    ) -> Result<Option<(String, bool)>, Error> {
        let unit = figure.unit();
        Ok(match self {
            Goal::None => None,
            Goal::AtMost(most) => Some((format!("≤ {most} {unit}"), value <= most)),
            Goal::AtLeast(least) => Some((format!("≥ {least} {unit}"), value >= least)),
            Goal::AtMostOrAdded(most, added_ns) => {
                let Figure::Against { baseline, .. } = figure else {
                    return Err(run.error("against", "the goal needs a comparison with a baseline".into()));
                };
                let added = Figure::Against { baseline, key: "added_ns_p50" }.of(run, select)?.median;
                let text = format!("≤ {most} {unit} or ≤ {added_ns} ns more ({added:.0} ns)");
                Some((text, value <= most || added <= added_ns))
            }
            Goal::TwoHopsAnd(ns) => {
                let most = 2.0 * spread_at(run, run.result(select)?, select, "/hop_ns")?.median + ns;
                Some((format!("≤ two hops + {ns} ns = {most:.0} ns"), value <= most))
            }
        })
    }
}

fn scaled(spread: MedianRange, by: f64) -> MedianRange {
    MedianRange { median: spread.median * by, min: spread.min * by, max: spread.max * by }
}

/// A figure of the rounds that count.
fn rounds(run: &Run, result: &Value, select: &str, key: &str) -> Result<MedianRange, Error> {
    let log = result["round_log"].as_array().map_or(&[][..], Vec::as_slice);
    // Where every round was dropped, all of them count, as in the result's other figures.
    let all_dropped = log.iter().all(|round| round["dropped"] == true);
    let kept = log.iter().filter(|round| all_dropped || round["dropped"] != true);
    let missing = || run.error(&format!("round_log[].{key} ({select})"), "missing: must be numbers".into());
    MedianRange::of(kept.filter_map(|round| round[key].as_f64())).ok_or_else(missing)
}

/// The figure at a pointer. A number is its own range.
fn spread_at(run: &Run, result: &Value, select: &str, pointer: &str) -> Result<MedianRange, Error> {
    let value = result.pointer(pointer).unwrap_or(&Value::Null);
    let median = value.as_f64().or_else(|| value["median"].as_f64());
    let Some(median) = median else {
        let key = pointer.trim_start_matches('/').replace('/', ".");
        let problem = format!("{value}: must be a number or {{median, min, max}}");
        return Err(run.error(&format!("{key} ({select})"), problem));
    };
    let end = |key| value.get(key).and_then(Value::as_f64).unwrap_or(median);
    Ok(MedianRange { median, min: end("min"), max: end("max") })
}

fn against(run: &Run, result: &Value, select: &str, baseline: &str, key: &str) -> Result<MedianRange, Error> {
    let mut all = result["against"].as_array().into_iter().flatten();
    match all.find(|against| against["baseline"] == baseline) {
        Some(against) => spread_at(run, against, select, &format!("/{key}")),
        None => Err(run.error(&format!("against ({select})"), format!("no comparison with {baseline}"))),
    }
}

fn quotient(run: &Run, key: &str, dividend: &str, divisor: &str) -> Result<MedianRange, Error> {
    let median = |select| Ok(spread_at(run, run.result(select)?, select, key)?.median);
    let value = median(dividend)? / median(divisor)?;
    Ok(MedianRange { median: value, min: value, max: value })
}
