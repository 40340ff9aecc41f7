//! The page: a heading, then a section for each question.

use core::fmt::Write;

use serde_json::Value;

use super::run::{Run, Runs};
use super::{Question, Questions, Row};
use crate::InputError;
use crate::report::MedianRange;

const INTRODUCTION: &str = "\
`scripts/results.sh` runs the commands below and writes this file. `iwarp-perf results` generates it from the JSON in
`bench/results`; a test fails when the two differ. `scripts/interop/run.sh --compare --json` writes the comparisons with siw.

For each goal that is not reached, [GOALS.md](GOALS.md) says where the time goes, what was tried and what comes next.

A figure is the median, with [min–max] over the rounds that count. A round trip is the full one. The machines are
shared: ratios of one run are comparable, times and rates of two runs are not. Simulated TCP goodput, which is exact, is
in `apps/iwarp-sim/tests/golden/curves.csv`.
";

/// The page that answers `questions` from `runs`.
pub fn markdown(questions: &Questions, runs: &mut Runs) -> Result<String, InputError> {
    let (mut sections, mut goals) = (String::new(), Vec::new());
    for question in &questions.question {
        sections.push_str(&section(questions, question, runs, &mut goals)?);
    }
    let reached = goals.iter().filter(|&&reached| reached).count();
    let summary = format!("{reached} of {} goals are reached.", goals.len());
    Ok(format!("# Results\n\n{INTRODUCTION}\n{summary}\n{sections}"))
}

/// One question. Appends whether each of its goals is reached.
fn section(
    questions: &Questions,
    question: &Question,
    runs: &mut Runs,
    goals: &mut Vec<bool>,
) -> Result<String, InputError> {
    let (mut origin, mut rows, mut switches) = (Vec::new(), String::new(), Vec::new());
    for row in &question.rows {
        let run = runs.run(&row.file)?;
        for line in provenance(run) {
            if !origin.contains(&line) {
                origin.push(line);
            }
        }
        switches.extend(context_switches(run.result(questions.select(row))?));
        rows.push_str(&table_row(questions, row, run, goals)?);
    }
    // Stable: machines, then commits, then commands, each in the order of the rows.
    origin.sort_by_key(|(kind, _)| *kind);
    let mut text = format!("\n## {}\n\n{}\n\n", question.title, question.text);
    for (kind, line) in origin {
        let _ = writeln!(text, "- {}: {line}", ["Machine", "Commit", "Command", "Figures"][kind]);
    }
    if !switches.is_empty() {
        let mean = number(switches.iter().sum::<f64>() / switches.len() as f64);
        let _ = writeln!(text, "- Load: the client had {mean} context switches a round, mean of all rounds");
    }
    let _ = write!(text, "\n| | figure | goal | |\n| --- | --- | --- | --- |\n{rows}");
    Ok(text)
}

/// Of a run whose commit does not say what was measured. `scripts/results.sh` makes none.
const UNCOMMITTED: &str = "; **with changes that were not committed, so to be measured again**";

/// Where a run's figures are from: each line with its index in the list.
fn provenance(run: &Run) -> Vec<(usize, String)> {
    let commit = run.build.commit.as_deref().unwrap_or_default();
    let profile = run.build.profile.as_deref().map_or_else(String::new, |profile| format!(", {profile}"));
    let mut lines = vec![
        (0, run.machine.summary()),
        (1, format!("`{commit}`{profile}{}", if commit.ends_with("-dirty") { UNCOMMITTED } else { "" })),
        (2, format!("`{}`", run.command)),
    ];
    lines.extend(run.recorded.iter().map(|recorded| (3, recorded.clone())));
    lines
}

/// How often the client lost its processor in each round: what else ran on the machine.
fn context_switches(result: &Value) -> impl Iterator<Item = f64> {
    let rounds = result["round_log"].as_array().into_iter().flatten();
    rounds.filter_map(|round| round["context_switches"].as_f64())
}

fn table_row(
    questions: &Questions,
    row: &Row,
    run: &Run,
    goals: &mut Vec<bool>,
) -> Result<String, InputError> {
    let (select, figure) = (questions.select(row), questions.figure(row)?);
    let value = figure.of(run, select)?;
    let judged = row.goal.map(|goal| goal.judge(figure, value.median, run, select)).transpose()?;
    goals.extend(judged.as_ref().map(|(_, is_reached)| *is_reached));
    let (goal, outcome) = match judged {
        Some((goal, is_reached)) => (goal, if is_reached { "reached" } else { "**not reached**" }),
        None => Default::default(),
    };
    Ok(format!("| {} | {} | {goal} | {outcome} |\n", row.name, figure_text(value, figure.unit())))
}

fn figure_text(value: MedianRange, unit: &str) -> String {
    let median = format!("{} {unit}", number(value.median));
    match value.min < value.max {
        true => format!("{median} [{}–{}]", number(value.min), number(value.max)),
        false => median,
    }
}

/// Three digits; all digits of a larger whole part.
fn number(value: f64) -> String {
    match value.abs() {
        size if size < 0.1 => format!("{value:.3}"),
        size if size < 10.0 => format!("{value:.2}"),
        size if size < 100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}
