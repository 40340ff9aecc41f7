"""scripts/words.py: the tree has none of the rejected words and no wide comment, and one that had would be found."""

import contextlib
import io
import pathlib
import sys
import tempfile
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(SCRIPTS))
import words


class Words(unittest.TestCase):
    def test_the_tree_uses_the_words_of_the_field(self):
        self.assertGreater(len(list(words.files(words.ROOT))), 500)
        self.assertEqual(list(words.offenders(words.ROOT)), [])

    def test_identifiers_are_split_into_words(self):
        self.assertEqual(words.words("fn on_stranger(NetNews) // Whoever's"), " fn on stranger net news whoever s ")

    def test_a_rejected_word_fails_the_program(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "target").mkdir()
            (root / "target" / "built.rs").write_text("// news\n", encoding="utf-8")
            (root / "notes.txt").write_text("news\n", encoding="utf-8")
            self.assertEqual(self.status(root), 0)
            for text in ["struct NetNews;", "fn net_news() {}", "// It is told.", "// News, at last."]:
                (root / "one.rs").write_text(f"//! A module.\n{text}\n", encoding="utf-8")
                self.assertEqual(self.status(root), 1, text)
            self.assertRegex(next(words.offenders(root)), r'^one\.rs:2: "news": ')

    def test_a_wide_comment_fails_the_program(self):
        self.assertEqual(list(words.wide_comments(words.ROOT)), [])
        wide = "word " * 20
        for text, status in [
            (f"/// {wide}", 1),
            (f"    // {wide}", 1),
            (f"let x = 1;\n//! {wide}", 1),
            (f"/// | {wide} |", 0),
            (f"//! a  -->  {wide}", 0),
            (f"/// ```\n/// {wide}\n/// ```", 0),
            (f"/// ```\n/// x\n/// ```\n/// {wide}", 1),
            (f'let x = "{wide}";', 0),
        ]:
            with tempfile.TemporaryDirectory() as folder:
                root = pathlib.Path(folder)
                (root / "one.rs").write_text(f"{text}\n", encoding="utf-8")
                self.assertEqual(self.status(root), status, text)

    def status(self, root):
        with contextlib.redirect_stdout(io.StringIO()):
            return words.main([str(root)])


if __name__ == "__main__":
    unittest.main()
