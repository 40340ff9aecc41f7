"""scripts/conformance.py: which rows and tests it accepts."""

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import conformance  # noqa: E402

SOURCE = """
#[test]
fn sound() {
    assert!(true);
}

#[test]
fn ends_early() {
    if !tool() {
        return;
    }
}

#[test]
fn reports_a_skip() {
    let Some(lab) = lab() else { return skipped("no lab") };
}

#[test]
fn asserts_the_refusal_alone() {
    let Ok(pair) = pair() else { return assert!(denied()) };
}

#[test]
fn in_a_helper() {
    alone(|| {
        assert!(true);
    });
}

#[test]
fn returns_from_a_closure() {
    let value = || {
        return 3;
    };
    assert_eq!(value(), 3);
}

#[test]
fn uses_a_method_of_a_common_name() {
    assert!(lab.read());
}

fn alone(body: impl FnOnce()) {
    if !root() {
        return skipped("no root");
    }
    body()
}

mod other {
    fn read() {
        println!("SKIPPED: no tool");
    }

    mod again {
        fn read() {
            true
        }
    }
}

fn skipped(reason: &str) {
    println!("SKIPPED: {reason}");
}
"""


class EarlyEnds(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root, conformance.ROOT = conformance.ROOT, pathlib.Path(folder.name)
        self.addCleanup(setattr, conformance, "ROOT", self.root)
        (conformance.ROOT / "Cargo.toml").touch()
        (conformance.ROOT / "tests.rs").write_text(SOURCE)
        self.tests = conformance.Tests()

    def always(self, name):
        return self.tests.exists(f"tests.rs::{name}") and self.tests.always_runs(f"tests.rs::{name}")

    def test_a_test_that_may_end_without_a_result_does_not_always_run(self):
        for name in ("ends_early", "reports_a_skip", "asserts_the_refusal_alone", "in_a_helper"):
            self.assertFalse(self.always(name), name)

    def test_others_do(self):
        for name in ("sound", "returns_from_a_closure", "uses_a_method_of_a_common_name"):
            self.assertTrue(self.always(name), name)


class Statuses(unittest.TestCase):
    def faults(self, **columns):
        row = {"id": "RFC9293-MUST-1", "level": "MUST", "status": "shown", "tests": "", "reason": "", "summary": "s"}
        return " ".join(conformance.faults_of(row | columns, conformance.Tests()))

    def test_a_must_that_is_not_met_needs_a_decision(self):
        for status in conformance.UNMET:
            self.assertIn("no decision", self.faults(status=status, reason="why"), status)
            self.assertNotIn("no decision", self.faults(id="RFC9293-MUST-20", status=status, reason="why"), status)
            self.assertNotIn("no decision", self.faults(level="SHOULD", status=status, reason="why"), status)

    def test_what_is_not_shown_needs_a_reason(self):
        for status in conformance.STATUSES:
            self.assertEqual("no reason" in self.faults(status=status), status != "shown", status)

    def test_what_a_setting_reaches_needs_a_test(self):
        for status in ("shown", "by-default"):
            self.assertIn("no test is named", self.faults(status=status, reason="why"))

    def test_a_decision_about_what_is_met_is_a_fault(self):
        row = {"id": "RFC9293-MUST-20", "level": "MUST", "status": "shown"}
        self.assertTrue(any("RFC9293-MUST-20 is named by a decision" in fault for fault in conformance.coverage_faults([row])))


if __name__ == "__main__":
    unittest.main()
