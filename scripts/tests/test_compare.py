"""scripts/compare.py: which figures of two reports changed beyond noise."""

import contextlib
import copy
import io
import json
import pathlib
import sys
import tempfile
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(SCRIPTS))
import compare


def report(*results):
    return {"schema": 1, "machine": {"cpu": "a processor"}, "build": {}, "results": list(results)}


def latency(p50, rounds=(), **more):
    """A Send latency whose rounds have these medians."""
    log = [{"p50_ns": ns, "p999_ns": 2 * ns, "dropped": False} for ns in rounds]
    return {"test": "send-lat", "transport": "ironwarp", "bytes": 64, "mtu": 1500, "qps": 1, "path": "memif", "errors": 0,
            "signal_every": 1, "rtt_ns": {"p50": p50, "p999": 2 * p50}, "messages_per_s": 1e6, "round_log": log, **more}


def bandwidth(gbit, **more):
    return {"test": "write-bw", "transport": "ironwarp", "bytes": 65536, "mtu": 1500, "qps": 1, "path": "memif", "inline": 0,
            "signal_every": 1, "bidirectional": False, "wait": "spin", "gbit_per_s": gbit, "messages_per_s": gbit * 1e6, **more}


def verdicts(old, new):
    changes, _, _ = compare.compare(report(old), report(new), 10)
    return [(figure, verdict) for _, figure, _, _, verdict in changes]


class Compare(unittest.TestCase):
    def test_a_difference_within_the_threshold_is_noise(self):
        for new in [900, 1000, 1100]:
            self.assertEqual(verdicts(latency(1000), latency(new)), [("p50", "="), ("p99.9", "="), ("errors", "=")])

    def test_a_difference_is_noise_while_the_ranges_of_the_rounds_overlap(self):
        for new, verdict in [
            (latency(1400, [1300, 1400]), "="),
            (latency(1400, [1301, 1400]), "WORSE"),
            (latency(700, [600, 899]), "better"),
            # One round has no range.
            (latency(1400, [1300]), "WORSE"),
        ]:
            self.assertEqual(verdicts(latency(1000, [900, 1000, 1300]), new)[0], ("p50", verdict))

    def test_dropped_rounds_are_not_in_the_range(self):
        old = latency(1000, [900, 1000, 5000])
        old["round_log"][2]["dropped"] = True
        self.assertEqual(verdicts(old, latency(1400, [1300, 1500]))[0], ("p50", "WORSE"))

    def test_less_bandwidth_is_worse_and_more_is_better(self):
        for old, new, verdict in [(10, 8, "WORSE"), (10, 12, "better"), (0, 12, "better")]:
            self.assertEqual(verdicts(bandwidth(old), bandwidth(new)), [("gbit_per_s", verdict), ("messages_per_s", verdict)])

    def test_connection_set_up_is_compared_by_rate_and_latency(self):
        def setup(p50, rate):
            return {"test": "conn-rate", "setup_ns": {"p50": p50, "p999": p50}, "setups_per_s": rate, "errors": 0}

        expected = [("p50", "WORSE"), ("p99.9", "WORSE"), ("setups_per_s", "better"), ("errors", "=")]
        self.assertEqual(verdicts(setup(1000, 1e4), setup(2000, 2e4)), expected)

    def test_a_lost_message_is_a_regression_without_a_threshold(self):
        self.assertIn(("errors", "WORSE"), verdicts(latency(1000), latency(1000, errors=1)))

    def test_a_ratio_to_a_baseline_is_judged_by_its_own_range(self):
        def ratio(median, least, most):
            against = {"baseline": "frame-lat", "path": "memif", "ratio_p50": {"median": median, "min": least, "max": most}}
            return latency(1000, against=[against])

        for new, verdict in [((5, 4.4, 6), "="), ((5, 4.6, 6), "WORSE"), ((3, 2.5, 3.4), "better")]:
            self.assertEqual(verdicts(ratio(4, 3.5, 4.5), ratio(*new))[-1], ("p50 / frame-lat memif", verdict))

    def test_results_pair_by_what_they_measured(self):
        for other in [{"inline": 64}, {"signal_every": 16}, {"bidirectional": True}, {"rate": 1000.0}, {"qps": 4}, {"wait": "block"}]:
            one, other = bandwidth(10), bandwidth(5, **other)
            changes, only_old, only_new = compare.compare(report(one, other), report(other, one), 0)
            self.assertEqual({verdict for *_, verdict in changes}, {"="})
            self.assertEqual((only_old, only_new), ([], []))
            changes, only_old, only_new = compare.compare(report(one), report(other), 0)
            self.assertEqual((changes, len(only_old), len(only_new)), ([], 1, 1))

    def test_a_setting_that_an_older_file_does_not_have_is_equal_to_any(self):
        old = bandwidth(10, inline=None, signal_every=None, bidirectional=None)
        changes, _, only_new = compare.compare(report(old), report(bandwidth(10, rate=5.0, inline=64)), 0)
        self.assertEqual((len(changes), only_new), (2, []))

    def run_program(self, old, new, *options):
        """The exit code and all that is printed."""
        with tempfile.TemporaryDirectory() as folder:
            files = []
            for name, one in [("old.json", old), ("new.json", new)]:
                files.append(str(pathlib.Path(folder, name)))
                if one is not None:
                    pathlib.Path(files[-1]).write_text(one if isinstance(one, str) else json.dumps(one), encoding="utf-8")
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
                try:
                    status = compare.main([*files, *options])
                except SystemExit as ended:
                    status = ended.code
            return status, printed.getvalue()

    def test_the_exit_code_is_1_for_a_regression(self):
        slow, fast = report(bandwidth(5)), report(bandwidth(10))
        status, printed = self.run_program(fast, slow)
        self.assertEqual(status, 1)
        self.assertIn("WORSE     0.50  gbit_per_s: 10 → 5  write-bw 65536 B memif mtu 1500 qps 1", printed)
        self.assertTrue(printed.endswith("2 figures compared, threshold 10 %: 2 worse, 0 better\n"), printed)
        self.assertEqual(self.run_program(slow, fast)[0], 0)
        self.assertEqual(self.run_program(fast, slow, "--threshold", "60")[0], 0)

    def test_machines_that_differ_are_named(self):
        new = copy.deepcopy(report(bandwidth(10)))
        new["machine"]["cpu"] = "another processor"
        printed = self.run_program(report(bandwidth(10)), new, "--all")[1]
        self.assertIn('cpu: "a processor" → "another processor"', printed)
        self.assertIn("=         1.00  gbit_per_s: 10 → 10", printed)

    def test_what_cannot_be_compared_is_named(self):
        good = report(bandwidth(10))
        for old, new, words in [
            (good, report(), "no figure in common"),
            (good, report(latency(1000)), "no figure in common"),
            (good, "{", "new.json: not JSON: "),
            (None, good, "old.json: No such file"),
            (good, {"schema": 2}, "new.json: not a report"),
            (good, report({"bytes": 64}), "new.json: not a report"),
            (good, report(3), "new.json: not a report"),
        ]:
            status, printed = self.run_program(old, new)
            self.assertEqual(status, 2, printed)
            self.assertIn(words, printed)
        for threshold in ["-1", "nan", "x"]:
            self.assertEqual(self.run_program(good, good, f"--threshold={threshold}")[0], 2)

    def test_a_report_equals_itself(self):
        suite = json.loads((SCRIPTS.parent / "bench/results/suite.json").read_text(encoding="utf-8"))
        changes, only_old, only_new = compare.compare(suite, suite, 0)
        self.assertEqual(({verdict for *_, verdict in changes}, only_old, only_new), ({"="}, [], []))
        self.assertGreater(len(changes), len(suite["results"]))


if __name__ == "__main__":
    unittest.main()
