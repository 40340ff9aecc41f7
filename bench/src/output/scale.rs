//! The table of a run over several cores, for a terminal.

use super::rows::{Row, or_dash};
use super::units::{rate, size};
use super::{DEFAULT_WIDTH, table};
use crate::report::{MedianRange, Report, Scale, TestResult};

const HEADS: [&str; 10] =
    ["test", "size", "path", "cores", "messages/s", "Gbit/s", "ratio", "fairness", "drops", "shared"];

/// Formats the report: rates are medians of rounds.
pub fn scale_table(report: &Report, width: Option<u16>) -> String {
    let rows = report.results.iter().map(|result| Row { result, cells: cells(result).into() });
    let table = table(HEADS.map(str::to_owned).into(), rows.collect(), width.unwrap_or(DEFAULT_WIDTH));
    let hops = report.hops.map_or_else(String::new, |hops| {
        format!("processor to processor: {:.0} ns near, {:.0} ns far\n", hops.near_ns, hops.far_ns)
    });
    let skipped: String = report.skipped.iter().map(|line| format!("skipped: {line}\n")).collect();
    let remarks: String = report.results.iter().filter_map(remark).collect();
    let (machine, build) = (report.machine.summary(), report.build.summary());
    format!("{machine}\n{build}\n{hops}\n{LEGEND}\n{table}\n{skipped}{remarks}")
}

const LEGEND: &str = "\
Cores a side; rates of all cores together, each the median of its rounds; ratio: to one core a side; fairness:
messages of the slowest queue pair over the mean; drops: frames dropped between cores; shared: whether a processor
polls several cores. 2p: the ends are two processes, for comparison.";

fn cells(result: &TestResult) -> [String; 10] {
    let gbit = MedianRange::of(result.counted_rounds().filter_map(|round| round.gbit_per_s));
    let cores = or_dash(result.cores.map(|cores| cores.to_string()));
    let scale = result.scale.as_ref();
    let share = |figure: Option<f64>| or_dash(figure.map(|figure| format!("{figure:.2}")));
    let listed = if result.post_list > Some(1) { ", lists" } else { "" };
    [
        format!("{}{listed}", result.name()),
        size(result.bytes),
        or_dash(result.path.map(|path| path.to_string())),
        if scale.is_some() { cores } else { format!("{cores}, 2p") },
        or_dash(result.median_rate().map(rate)),
        share(gbit.map(|gbit| gbit.median)),
        share(scale.and_then(|scale| scale.to_one_core)),
        share(result.fairness()),
        or_dash(scale.map(|scale| scale.steering_drops.to_string())),
        or_dash(
            scale.map(|Scale { oversubscribed, .. }| if *oversubscribed { "yes" } else { "no" }.to_owned()),
        ),
    ]
}

/// The errors of a result, which its row has no column for.
fn remark(result: &TestResult) -> Option<String> {
    let errors = result.errors.filter(|&errors| errors > 0)?;
    let cores = or_dash(result.cores.map(|cores| cores.to_string()));
    Some(format!("{errors} errors: {} {}, {cores} cores a side\n", result.name(), size(result.bytes)))
}
