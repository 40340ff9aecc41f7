#!/usr/bin/env python3
"""Generates bench/RESULTS.md: a table for each question of bench/questions.toml, from the JSON of runs.

usage: scripts/results.py [--check]

Reads bench/results/NAME.json, which scripts/results.sh and scripts/interop/run.sh write, and writes bench/RESULTS.md.
Whether a goal is reached is computed here. An input that lacks something is an error that names the file and the key.

  --check  write nothing, and fail if the page is not what would be written
"""

import json
import pathlib
import statistics
import sys
import tomllib

BENCH = pathlib.Path(__file__).resolve().parent.parent / "bench"

INTRODUCTION = """\
`scripts/results.sh` runs the commands below and writes this file. `scripts/results.py` generates it from the JSON in
`bench/results`; a test fails when the two differ. `scripts/interop/run.sh --compare --json` writes the comparisons with siw.

For each goal that is not reached, [GOALS.md](GOALS.md) says where the time goes, what was tried and what comes next.

A figure is the median, with [min–max] over the rounds that count. A round trip is the full one. The machines are
shared: ratios of one run are comparable, times and rates of two runs are not. Simulated TCP goodput, which is exact, is
in `apps/iwarp-sim/tests/golden/curves.csv`.
"""
# Of a run whose commit does not say what was measured. scripts/results.sh makes none.
UNCOMMITTED = "; **with changes that were not committed, so to be measured again**"
ADDED_NS = "added_ns_p50"


class InputError(Exception):
    """What is wrong with a file: its name, the key, the problem."""


class Run:
    """The report of one command."""

    def __init__(self, file):
        self.file = file
        try:
            self.report = json.loads(file.read_text(encoding="utf-8"))
        except OSError as error:
            raise InputError(f"{file.name}: {error.strerror}") from error
        except json.JSONDecodeError as error:
            raise InputError(f"{file.name}: not JSON: {error}") from error
        if self.report.get("schema") != 1:
            raise self.error("schema", f"{self.report.get('schema')}: must be 1")
        for key in ["command", "machine", "build", "results"]:
            if key not in self.report:
                raise self.error(key, "missing")
        if not self.report["build"].get("commit"):
            raise self.error("build.commit", "missing: must be the commit that ran")

    def error(self, key, problem):
        return InputError(f"{self.file.name}: {key}: {problem}")

    def result(self, select):
        """The one result that has all keys of `select`: `key=value`, separated by spaces."""
        wanted = [word.split("=", 1) for word in select.split()]
        found = [one for one in self.report["results"] if all(text(one.get(key)) == value for key, value in wanted)]
        if len(found) != 1:
            count = "several results" if found else "no result"
            raise self.error("results", f"{count} with {select}: must be one")
        return found[0]

    def at(self, result, select, pointer):
        """The figure at a JSON pointer, with its range. A number is its own range."""
        value = result
        for key in pointer.strip("/").split("/"):
            value = value.get(key) if isinstance(value, dict) else None
        if isinstance(value, dict) and "median" in value:
            return value["median"], value.get("min", value["median"]), value.get("max", value["median"])
        if isinstance(value, (int, float)):
            return value, value, value
        key = pointer.strip("/").replace("/", ".")
        raise self.error(f"{key} ({select})", f"{value}: must be a number or {{median, min, max}}")

    def rounds(self, result, select, key):
        """A figure of the rounds that count. Where every round was dropped, all of them count."""
        log = result.get("round_log") or []
        kept = [one for one in log if not one.get("dropped")] or log
        values = [one[key] for one in kept if one.get(key) is not None]
        if not values:
            raise self.error(f"round_log[].{key} ({select})", "missing: must be numbers")
        return statistics.median(values), min(values), max(values)

    def against(self, select, baseline, key):
        """A comparison with a baseline of the same rounds."""
        for one in self.result(select).get("against") or []:
            if one["baseline"] == baseline:
                return self.at(one, select, key)
        raise self.error(f"against ({select})", f"no comparison with {baseline}")

    def quotient(self, key, dividend, divisor):
        value = self.at(self.result(dividend), dividend, key)[0] / self.at(self.result(divisor), divisor, key)[0]
        return value, value, value


def text(value):
    return value if isinstance(value, str) else json.dumps(value)


def unit_of(figure):
    match figure:
        case "round_trip":
            return "µs"
        case "rate":
            return "M/s"
        case {"value": {"unit": unit}}:
            return unit
        case {"against": {"key": key}} if key == ADDED_NS:
            return "ns"
    return "×"


def figure_of(figure, run, select):
    """The median, the least and the most of a figure."""
    result, scale = run.result(select), 1
    match figure:
        case "round_trip":
            spread, scale = run.rounds(result, select, "p50_ns"), 1e-3
        case "rate":
            spread = run.rounds(result, select, "gbit_per_s")
            scale = 1e3 / 8 / run.at(result, select, "bytes")[0]
        case {"value": {"key": key, "scale": divisor}}:
            spread, scale = run.at(result, select, key), 1 / divisor
        case {"against": {"baseline": baseline, "key": key}}:
            spread = run.against(select, baseline, key)
        case {"quotient": {"key": key, "divisor": divisor}}:
            spread = run.quotient(key, select, divisor)
        case {"inverse": {"key": key, "dividend": dividend}}:
            spread = run.quotient(key, dividend, select)
        case _:
            raise InputError(f"questions.toml: figures: {figure}: not a figure")
    return tuple(value * scale for value in spread)


def judge(goal, figure, value, run, select):
    """The goal as text, and whether the value reaches it."""
    unit = unit_of(figure)
    match goal:
        case {"at_most": most}:
            return f"≤ {most:g} {unit}", value <= most
        case {"at_least": least}:
            return f"≥ {least:g} {unit}", value >= least
        case {"at_most_or_added": [most, most_added]}:
            added = run.against(select, figure["against"]["baseline"], ADDED_NS)[0]
            goal = f"≤ {most:g} {unit} or ≤ {most_added:g} ns more ({added:.0f} ns)"
            return goal, value <= most or added <= most_added
        case {"two_hops_and": ns}:
            most = 2 * run.at(run.result(select), select, "hop_ns")[0] + ns
            return f"≤ two hops + {ns:g} ns = {most:.0f} ns", value <= most
    raise InputError(f"questions.toml: goal: {goal}: not a goal")


def number(value):
    """Three digits; all digits of a larger whole part."""
    size = abs(value)
    return f"{value:.{3 if size < 0.1 else 2 if size < 10 else 1 if size < 100 else 0}f}"


def figure_text(spread, unit):
    median, least, most = spread
    spread = f" [{number(least)}–{number(most)}]" if least < most else ""
    return f"{number(median)} {unit}{spread}"


def provenance(run):
    """Where a run's figures are from: each line with its place in the list."""
    machine, build = run.report["machine"], run.report["build"]
    parts = [machine.get("cpu") or "unknown processor"]
    parts += [f"{machine['cores']} processors"] if machine.get("cores") else []
    parts += [f"Linux {machine['kernel']}"] if machine.get("kernel") else []
    parts += ["virtual"] if machine.get("hypervisor") else []
    profile = f", {build['profile']}" if build.get("profile") else ""
    dirty = UNCOMMITTED if build["commit"].endswith("-dirty") else ""
    yield 0, f"- Machine: {', '.join(parts)}"
    yield 1, f"- Commit: `{build['commit']}`{profile}{dirty}"
    yield 2, f"- Command: `{run.report['command']}`"
    if run.report.get("recorded"):
        yield 3, f"- Figures: {run.report['recorded']}"


def section(questions, question, runs, goals):
    """One question. Appends whether each of its goals is reached."""
    origin, rows, switches = {}, [], []
    for row in question["rows"]:
        if row["figure"] not in questions["figures"]:
            raise InputError(f"questions.toml: figures.{row['figure']}: missing")
        run, figure = runs(row["file"]), questions["figures"][row["figure"]]
        select = questions["results"].get(row["of"], row["of"])
        spread, goal, outcome = figure_of(figure, run, select), "", ""
        if "goal" in row:
            goal, is_reached = judge(row["goal"], figure, spread[0], run, select)
            goals.append(is_reached)
            outcome = "reached" if is_reached else "**not reached**"
        rows.append(f"| {row['name']} | {figure_text(spread, unit_of(figure))} | {goal} | {outcome} |")
        origin.update((line, place) for place, line in provenance(run))
        log = run.result(select).get("round_log") or []
        switches += [one["context_switches"] for one in log if one.get("context_switches") is not None]
    lines = sorted(origin, key=origin.get)
    if switches:
        mean = number(statistics.fmean(switches))
        lines.append(f"- Load: the client had {mean} context switches a round, mean of all rounds")
    table = ["| | figure | goal | |", "| --- | --- | --- | --- |", *rows]
    return "\n".join([f"\n## {question['title']}\n\n{question['text']}\n", *lines, "", *table]) + "\n"


def page(questions, folder):
    """The page that answers the questions from the reports of a folder."""
    read, goals = {}, []

    def runs(name):
        if name not in read:
            read[name] = Run(folder / f"{name}.json")
        return read[name]

    sections = "".join(section(questions, question, runs, goals) for question in questions["question"])
    return f"# Results\n\n{INTRODUCTION}\n{sum(goals)} of {len(goals)} goals are reached.\n{sections}"


def main(arguments):
    if arguments not in ([], ["--check"]):
        print(__doc__.strip(), file=sys.stdout if arguments == ["--help"] else sys.stderr)
        return 0 if arguments == ["--help"] else 2
    questions = tomllib.loads((BENCH / "questions.toml").read_text(encoding="utf-8"))
    try:
        generated = page(questions, BENCH / "results")
    except InputError as error:
        print(error, file=sys.stderr)
        return 1
    written = BENCH / "RESULTS.md"
    if not arguments:
        written.write_text(generated, encoding="utf-8")
    elif written.read_text(encoding="utf-8") != generated:
        print("bench/RESULTS.md is not what scripts/results.py writes: run it", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
