"""scripts/hollow-tests.py: which tests it takes for hollow."""

import importlib.util
import pathlib
import sys
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(SCRIPTS))
spec = importlib.util.spec_from_file_location("hollow_tests", SCRIPTS / "hollow-tests.py")
hollow = importlib.util.module_from_spec(spec)
spec.loader.exec_module(hollow)


class Alls(unittest.TestCase):
    def unsure(self, *lines):
        return list(hollow.unsure_alls("\n".join(lines)))

    def test_what_may_be_empty_is_found(self):
        for line in (
            "assert!(sent.iter().all(|one| one.ok));",
            "assert!(peer.receive_all(&mut node).iter().all(|one| one.ok));",
            "prop_assert!(parse(&list).sack.iter().all(|one| one.ok));",
            "assert!(told().len() < 9 && rows.all(|row| row.ok), \"{row}\");",
            "assert!(\n    pair.near\n        .completions\n        .iter()\n        .all(|one| one.ok)\n);",
        ):
            self.assertEqual(len(self.unsure(line)), 1, line)

    def test_what_is_counted_elsewhere_is_not(self):
        for other in (
            "assert_eq!(sent.len(), 3);",
            "assert!(!sent.is_empty());",
            "assert_eq!(sent.iter().map(|one| one.bytes).sum::<u64>(), 7);",
            "assert_eq!(sent, [1, 2]);",
            "assert_eq!((&sent, 1), other);",
            "let last = sent[0];",
            "assert!(sent.iter().any(|one| one.ok));",
            "while sent.len() < 3 { turn(); }",
        ):
            self.assertEqual(self.unsure(other, "assert!(sent.iter().all(|one| one.ok));"), [], other)
        self.assertEqual(len(self.unsure("assert_eq!(resent.len(), 3);", "assert!(sent.iter().all(|one| one.ok));")), 1)

    def test_what_is_written_out_is_not(self):
        for line in (
            "assert!([1, 2].iter().all(|one| one.ok));",
            "assert!((0..9).all(|one| ok(one)));",
            "assert!(KINDS.iter().all(|one| one.ok));",
            "assert!(bytes[..9].iter().all(|one| *one == 0));",
        ):
            self.assertEqual(self.unsure(line), [], line)
        for made in ("let sent = vec![0u8; 9];", "let mut sent = [1, 2];", "let sent: Vec<u8> = vec![1];"):
            self.assertEqual(self.unsure(made, "assert!(sent.iter().all(|one| one.ok));"), [], made)


class Assertions(unittest.TestCase):
    def test_a_chain_of_helpers_that_ends_in_an_assertion_counts(self):
        text = """
fn far() { near(1) }
fn near(n: u8) { assert!(n > 0); }
fn silent() { let _ = send(); }
fn opens() { file().expect("a file"); }
"""
        self.assertEqual(hollow.asserting([text]), {"far", "near", "opens"})

    def test_comments_do_not(self):
        self.assertEqual(hollow.asserting(["fn quiet() {\n    // assert!(true)\n}\n"]), set())


if __name__ == "__main__":
    unittest.main()
