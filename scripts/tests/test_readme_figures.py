"""README's figures: each is the one that the command beside it prints, by the file that a test compares that command with.

A row of the table under "Numbers" names its command. Known commands are those whose output a file of the tree has, and a test
keeps that file true: `iwarp-sim goodput` (apps/iwarp-sim/tests/golden/curves.csv) and `scripts/instruction-counts.sh`
(bench/instruction-budgets.txt). A row with another command needs a run of a commit: `bench/results/NAME.json`, and the commit in
it may not be that of a tree with changes.
"""

import csv
import json
import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def rows(readme):
    """The rows of the table under "Numbers": what, result, command."""
    section = readme.split("\n## Numbers\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def goodput(command, curves):
    """What `iwarp-sim goodput OPTIONS` prints for CUBIC, in Mbit/s, by the golden file."""
    options = dict(re.findall(r"--([a-z-]+) (\d+)", command))
    wanted = {
        "mtu_bytes": options.get("mtu", "1500"),
        "window_bytes": str(int(options.get("window-kib", "1024")) << 10),
        "gbit_s": options.get("gbit-s", "10"),
        "rtt_us": options.get("rtt-us", "50"),
        "loss_ppm": options.get("loss-ppm", "1000"),
    }
    found = [row for row in curves if all(row[key] == value for key, value in wanted.items())]
    return int(found[0]["cubic"]) // 1000 if found else None


def fault(row, before, root=ROOT):
    """What is wrong with a row, or None. `before` is the command of the row before, which "the same" repeats."""
    what, result, command = row
    figure = re.match(r"(\d+)\b", result)
    if not figure:
        return f"{what}: no figure in {result!r}"
    figure = int(figure.group(1))
    full = command.replace("the same", before.split(",")[0]) if "the same" in command else command
    if "iwarp-sim goodput" in full:
        with open(root / "apps/iwarp-sim/tests/golden/curves.csv", encoding="utf-8") as file:
            expected = goodput(full, list(csv.DictReader(file)))
    elif "scripts/instruction-counts.sh" in full:
        case = re.search(r"case `([a-z-]+)`", command)
        budgets = (root / "bench/instruction-budgets.txt").read_text(encoding="utf-8")
        counts = dict(re.findall(r"^([a-z-]+) (\d+)$", budgets, re.MULTILINE))
        expected = int(counts[case.group(1)]) if case and case.group(1) in counts else None
    else:
        recorded = re.search(r"bench/results/[a-z-]+\.json", full)
        if not recorded or not (root / recorded.group()).is_file():
            return f"{what}: {command}: no file of the tree has what this prints"
        text = (root / recorded.group()).read_text(encoding="utf-8")
        commit = json.loads(text).get("build", {}).get("commit") or "unknown"
        if commit == "unknown" or commit.endswith("-dirty"):
            return f"{what}: {recorded.group()} is of {commit}, not of a commit"
        expected = figure if re.search(rf"\b{figure}\b", text) else None
    return None if expected == figure else f"{what}: README has {figure}, the tree {expected}"


class ReadmeFigures(unittest.TestCase):
    def test_each_figure_is_that_of_its_command(self):
        readme = (ROOT / "README.md").read_text(encoding="utf-8")
        table, before, faults = rows(readme), "", []
        self.assertGreater(len(table), 3)
        for row in table:
            faults.append(fault(row, before))
            before = row[2] if "the same" not in row[2] else before
        self.assertEqual([one for one in faults if one], [])

    def test_a_false_figure_and_one_without_a_run_are_found(self):
        link = "`iwarp-sim goodput --rtt-us 1000 --window-kib 2048`"
        self.assertIn("README has 9059", fault(["TCP", "9059 Mbit/s", link], ""))
        self.assertIn("None", fault(["TCP", "9059 Mbit/s", "`iwarp-sim goodput --rtt-us 7`"], ""))
        counts = "`scripts/instruction-counts.sh`"
        self.assertIn("README has 1", fault(["Send", "1 instructions", "the same, case `round-trip`"], counts))
        self.assertIn("no file", fault(["Send", "1 µs", "`iwarp-perf send-lat`"], ""))
        self.assertIn("no figure", fault(["Send", "fast", counts], ""))

    def test_a_run_of_a_tree_with_changes_is_found(self):
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            (root / "bench/results").mkdir(parents=True)
            for commit, wrong in [("abc", None), ("abc-dirty", "not of a commit"), (None, "not of a commit")]:
                report = {"build": {"commit": commit}, "results": [{"gbit_per_s": 12}]}
                (root / "bench/results/suite.json").write_text(json.dumps(report), encoding="utf-8")
                said = fault(["x", "12 Gbit/s", "`bench/results/suite.json`"], "", root)
                self.assertTrue(said is None if wrong is None else wrong in said, said)


if __name__ == "__main__":
    unittest.main()
