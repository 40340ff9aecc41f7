"""scripts/results.py: small reports in, the page out; and bench/RESULTS.md beside what is generated."""

import copy
import json
import pathlib
import sys
import tempfile
import tomllib
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(SCRIPTS))
import results

QUESTIONS = """
results = { cost = "test=instructions" }
[figures]
"round trip" = "round_trip"
ratio = { against = { baseline = "frame-lat", key = "ratio_p50" } }
added = { against = { baseline = "frame-lat", key = "added_ns_p50" } }
instructions = { value = { key = "/instructions", scale = 1, unit = "instructions" } }
[[question]]
title = "How long?"
text = "Over memif."
"""
ROWS = """
{ name = "Send", file = "lat", of = "test=send-lat", figure = "round trip" },
{ name = "Send to frame", file = "lat", of = "test=send-lat", figure = "ratio", goal = { at_most_or_added = [2, 350] } },
{ name = "Send to frame, strictly", file = "lat", of = "test=send-lat", figure = "ratio", goal = { at_most = 2 } },
{ name = "instructions", file = "cost", of = "cost", figure = "instructions", goal = { at_most = 1000 } },
"""
PAGE = """
1 of 3 goals are reached.

## How long?

Over memif.

- Machine: AMD EPYC, 2 processors
- Commit: `0123abc`
- Command: `iwarp-perf suite`
- Command: `scripts/instruction-counts.sh`
- Load: the client had 3.75 context switches a round, mean of all rounds

| | figure | goal | |
| --- | --- | --- | --- |
| Send | 2.20 µs [2.00–2.40] |  |  |
| Send to frame | 2.50 × [2.25–3.00] | ≤ 2 × or ≤ 350 ns more (300 ns) | reached |
| Send to frame, strictly | 2.50 × [2.25–3.00] | ≤ 2 × | **not reached** |
| instructions | 1048 instructions | ≤ 1000 instructions | **not reached** |
"""


def report(command, result):
    machine, build = {"cpu": "AMD EPYC", "cores": 2}, {"commit": "0123abc"}
    return {"schema": 1, "command": command, "machine": machine, "build": build, "results": [result]}


def a_round(p50_ns, dropped=False):
    return {"p50_ns": p50_ns, "dropped": dropped, "context_switches": p50_ns // 1000}


LATENCY = report("iwarp-perf suite", {
    "test": "send-lat",
    "round_log": [a_round(2000), a_round(2400), a_round(2200), a_round(9000, dropped=True)],
    "against": [{"baseline": "frame-lat", "ratio_p50": {"median": 2.5, "min": 2.25, "max": 3}, "added_ns_p50": 300}],
})
COST = report("scripts/instruction-counts.sh", {"test": "instructions", "instructions": 1048})


class Results(unittest.TestCase):
    def page(self, latency=LATENCY, cost=COST, rows=ROWS):
        """The page of both reports. `None`: a file is missing."""
        with tempfile.TemporaryDirectory() as folder:
            for name, one in [("lat", latency), ("cost", cost)]:
                if one is not None:
                    content = one if isinstance(one, str) else json.dumps(one)
                    pathlib.Path(folder, f"{name}.json").write_text(content, encoding="utf-8")
            return results.page(tomllib.loads(f"{QUESTIONS}rows = [{rows}]\n"), pathlib.Path(folder))

    def test_a_question_is_a_section_with_its_origin_its_figures_and_its_goals(self):
        self.assertEqual(self.page(), f"# Results\n\n{results.INTRODUCTION}{PAGE}")

    def test_figures_of_a_tree_with_changes_and_figures_that_a_person_recorded_are_marked(self):
        cost = copy.deepcopy(COST)
        cost["build"]["commit"], cost["recorded"] = "0123abc-dirty", "from the run's printed table"
        page = self.page(cost=cost)
        self.assertIn("- Commit: `0123abc-dirty`; **with changes that were not committed", page)
        self.assertIn("- Commit: `0123abc`\n", page)
        self.assertIn("\n- Figures: from the run's printed table\n", page)

    def test_two_hops_are_those_of_the_run(self):
        row = '{ name = "difference", file = "lat", of = "test=send-lat", figure = "added", goal = { two_hops_and = 100 } }'
        for hop_ns, line in [
            (100, "| difference | 300 ns | ≤ two hops + 100 ns = 300 ns | reached |"),
            (99, "| difference | 300 ns | ≤ two hops + 100 ns = 298 ns | **not reached** |"),
        ]:
            latency = copy.deepcopy(LATENCY)
            latency["results"][0]["hop_ns"] = hop_ns
            self.assertIn(line, self.page(latency, rows=row))

    def test_an_input_that_lacks_something_is_named_with_its_key(self):
        def changed(change):
            latency = copy.deepcopy(LATENCY)
            change(latency)
            return latency

        for latency, error in [
            (None, "lat.json: No such file or directory"),
            ('{"schema": 1,', "lat.json: not JSON: "),
            (changed(lambda one: one.pop("machine")), "lat.json: machine: missing"),
            (changed(lambda one: one.update(schema=2)), "lat.json: schema: 2: must be 1"),
            (changed(lambda one: one["build"].clear()), "lat.json: build.commit: missing"),
            (changed(lambda one: one["results"].clear()), "lat.json: results: no result with test=send-lat: must be one"),
            (changed(lambda one: one["results"].append(one["results"][0])), "lat.json: results: several results with"),
            (changed(lambda one: one["results"][0].pop("round_log")), "lat.json: round_log[].p50_ns (test=send-lat): missing"),
            (changed(lambda one: one["results"][0].pop("against")), "lat.json: against (test=send-lat): no comparison with frame-lat"),
        ]:
            with self.assertRaises(results.InputError) as raised:
                self.page(latency)
            self.assertTrue(str(raised.exception).startswith(error), str(raised.exception))

    def test_an_error_in_the_questions_is_named(self):
        for figure, goal in [("none", ""), ("ratio", ", goal = { at_mots = 1 }")]:
            row = f'{{ name = "x", file = "lat", of = "test=send-lat", figure = "{figure}"{goal} }}'
            with self.assertRaisesRegex(results.InputError, "^questions.toml: "):
                self.page(rows=row)

    def test_the_page_in_the_repository_is_what_is_generated(self):
        self.assertEqual(results.main(["--check"]), 0)


if __name__ == "__main__":
    unittest.main()
