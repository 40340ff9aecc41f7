#!/usr/bin/env python3
"""Compares two JSON files of iwarp-perf, and says which figures changed beyond noise.

usage: scripts/compare.py OLD NEW [--threshold PERCENT] [--all]

A figure changed if it differs by more than the threshold (10 % of the old one) and the ranges of its rounds in the two files
do not overlap. A figure without rounds in one file is judged by the threshold alone. Lost or wrong messages count without a
threshold. --all prints the unchanged figures too.

examples:
  iwarp-perf suite --json old.json          before a change; after it --json new.json
  scripts/compare.py old.json new.json
  scripts/compare.py old.json new.json --threshold 5 --all

Exit codes: 0 no regression, 1 a regression, 2 bad arguments, a file that is no report, or two files without a common figure.
"""

import argparse
import json
import pathlib
import sys

# The keys of a result that say what it measured.
SETTINGS = """test transport bytes mtu qps cores depth post_list inline signal_every bidirectional path crc markers
              operation words owner atomics srq wait validated""".split()
# Those that a title shows, unless they have the value of a run without the option.
SHOWN = "path mtu qps depth post_list inline signal_every bidirectional rate".split()
USUAL = {"inline": 0, "signal_every": 1, "bidirectional": False}
# Properties of a machine that differ from run to run, or that no figure depends on.
OTHER_PROPERTIES = {"unix_time", "hugepage_kib"}


def read(path):
    try:
        report = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        sys.exit(bad(f"{path}: {error.strerror}"))
    except ValueError as error:
        sys.exit(bad(f"{path}: not JSON: {error}"))
    results = report.get("results") if isinstance(report, dict) and report.get("schema") == 1 else None
    if not isinstance(results, list) or not all(isinstance(one, dict) and "test" in one for one in results):
        sys.exit(bad(f"{path}: not a report of iwarp-perf: schema must be 1, results a list of tests"))
    return report


def bad(line):
    print(f"compare.py: {line}", file=sys.stderr)
    return 2


def is_same_case(old, new):
    """Whether two results measured the same. A setting that one of the files does not have is equal to any."""
    # Without a rate a loop is closed, unless the file is older than the key: then it has no `signal_every` either.
    knows_rate = [one.get("rate") is not None or one.get("signal_every") is not None for one in (old, new)]
    if all(knows_rate) and old.get("rate") != new.get("rate"):
        return False
    pairs = ((old.get(key), new.get(key)) for key in SETTINGS)
    return all(None in pair or pair[0] == pair[1] for pair in pairs)


def title(result):
    words = [result["test"], f"{result.get('bytes', 0)} B"]
    words += ["blocking"] if result.get("wait") == "block" else []
    words += ["checked"] if result.get("validated") else []
    for key in SHOWN:
        value = result.get(key)
        if value is not None and value != USUAL.get(key):
            words.append(str(value) if key == "path" else key if value is True else f"{key} {value}")
    return " ".join(words)


def spread(rounds, key):
    """The range over the rounds that count. Fewer than two have none."""
    values = [one[key] for one in rounds if one.get(key) is not None]
    return (min(values), max(values)) if len(values) > 1 else None


def figures(result):
    """The figures of a result: name, unit, value, range over rounds."""
    log = result.get("round_log") or []
    rounds = [one for one in log if not one.get("dropped")] or log
    rtt = result.get("rtt_ns") or result.get("setup_ns") or {}
    # The rate of a latency test is the inverse of its mean, which a single slow message moves.
    rate = None if rtt else result.get("messages_per_s")
    # Nothing retransmits raw frames, so their losses depend on the load of the machine.
    errors = None if result["test"] == "frame-bw" else result.get("errors")
    own = [
        ("p50", "ns", rtt.get("p50"), spread(rounds, "p50_ns")),
        ("p99.9", "ns", rtt.get("p999"), spread(rounds, "p999_ns")),
        ("gbit_per_s", "Gbit/s", result.get("gbit_per_s"), spread(rounds, "gbit_per_s")),
        ("messages_per_s", "1/s", rate, spread(rounds, "messages_per_s")),
        ("setups_per_s", "1/s", result.get("setups_per_s"), spread(rounds, "messages_per_s")),
        ("errors", "messages", errors, None),
    ]
    for against in result.get("against") or []:
        baseline = " ".join(filter(None, [against["baseline"], against.get("path")]))
        for name, key in [("p50", "ratio_p50"), ("p99.9", "ratio_p999"), ("gbit_per_s", "ratio_gbit")]:
            ratio = against.get(key)
            if ratio:
                own.append((f"{name} / {baseline}", "×", ratio["median"], (ratio["min"], ratio["max"])))
    return {name: (unit, value, rounds) for name, unit, value, rounds in own if value is not None}


def verdict(name, old, new, threshold):
    (unit, before, old_range), (_, after, new_range) = old, new
    difference = abs(after - before)
    is_noise = unit != "messages" and difference <= abs(before) * threshold / 100
    overlap = old_range and new_range and old_range[0] <= new_range[1] and new_range[0] <= old_range[1]
    if difference == 0 or is_noise or overlap:
        return "="
    less_is_better = name.startswith("p") or name == "errors"
    return "better" if (after < before) == less_is_better else "WORSE"


def machine_differences(old, new):
    for key in sorted((old.keys() | new.keys()) - OTHER_PROPERTIES):
        if old.get(key) != new.get(key):
            yield f"The machines differ: {key}: {json.dumps(old.get(key))} → {json.dumps(new.get(key))}"


def compare(old, new, threshold):
    """The figures that both reports have, as (title, figure, old, new, verdict), and the results that one of them has."""
    unpaired, changes, only_new = list(old["results"]), [], []
    for result in new["results"]:
        before = next((one for one in unpaired if is_same_case(one, result)), None)
        if before is None:
            only_new.append(result)
            continue
        unpaired.remove(before)
        older = figures(before)
        for name, figure in figures(result).items():
            if name in older:
                judged = verdict(name, older[name], figure, threshold)
                changes.append((title(result), name, older[name][1], figure[1], judged))
    return changes, unpaired, only_new


def percent(text):
    value = float(text)
    if not 0 <= value <= 1000:
        raise ValueError
    return value


def main(arguments):
    summary, _, more = __doc__.split("\n\n", 2)
    parser = argparse.ArgumentParser("compare.py", description=summary, epilog=more,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", metavar="OLD")
    parser.add_argument("new", metavar="NEW")
    parser.add_argument("--threshold", type=percent, default=10, metavar="PERCENT", help="0 to 1000, of the old figure")
    parser.add_argument("--all", action="store_true", help="print the unchanged figures too")
    options = parser.parse_args(arguments)
    old, new = read(options.old), read(options.new)
    changes, only_old, only_new = compare(old, new, options.threshold)
    if not changes:
        return bad(f"{options.old} and {options.new} have no figure in common: name two files of the same tests and settings")
    for line in machine_differences(old.get("machine") or {}, new.get("machine") or {}):
        print(line)
    for name, figure, before, after, judged in changes:
        if options.all or judged != "=":
            ratio = f"{after / before:.2f}" if before else "–"
            print(f"{judged:<7} {ratio:>6}  {figure}: {before:.6g} → {after:.6g}  {name}")
    for side, results in [("old", only_old), ("new", only_new)]:
        for result in results:
            print(f"only in the {side} file: {title(result)}")
    worse, better = (sum(change[4] == word for change in changes) for word in ("WORSE", "better"))
    print(f"{len(changes)} figures compared, threshold {options.threshold:g} %: {worse} worse, {better} better")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
