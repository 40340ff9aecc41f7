"""The documents: what they link to, and the files and functions that they name, exist.

A file is named in backticks with a folder or an ending that the tree has; names with capitals, as `NAME.json`, are placeholders.
docs/architecture.md and docs/fast-path.md also name functions, as `Type::function` or `module::function`. README lists every page.
"""

import functools
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("bench/*.md")])
# Pages that lead a reader through the code.
GUIDES = [ROOT / "docs/architecture.md", ROOT / "docs/fast-path.md"]
CRATES = ["stack", "apps", "bench", "dpdk-sys"]

# Figures in prose that a constant decides: page, text with the figure, source, name of the constant.
FIGURES = [
    ("docs/semantics.md", r"with a quantum of (\d+) KiB of FPDUs", "verbs/src/core_loop/data_path/quantum.rs", "LARGE_BYTES"),
    ("docs/semantics.md", r"in a round of at most (\d+) KiB", "verbs/src/core_loop/data_path/quantum.rs", "SMALL_ROUND_BYTES"),
    ("docs/semantics.md", r"(\d+) rounds have a quantum", "verbs/src/core_loop/data_path/quantum.rs", "SMALL_ROUNDS"),
    ("docs/semantics.md", r"rounds have a quantum of (\d+) KiB", "verbs/src/core_loop/data_path/quantum.rs", "SMALL_BYTES"),
    ("docs/semantics.md", r"calls between two cores to (\d+)", "verbs/src/core_loop/data_path/remote_atomics.rs", "CREDITS"),
    ("docs/architecture.md", r"at most (\d+) segments", "verbs/src/core_loop/data_path/tx.rs", "ROUND_UNITS_MAX"),
    ("docs/architecture.md", r"at most (\d+) for a connection", "tcp/src/output/acks.rs", "NOW_MAX"),
    ("docs/limitations.md", r"ports of a stack; addresses of a port \| (\d+);", "verbs/src/config/fabrics.rs", "PORTS_MAX"),
]

LINK = re.compile(r"\]\((?!https?:)([^)#]*)(?:#([^)]+))?\)")
FILE = re.compile(r"`([a-z_.][\w./-]*/[\w./-]*|[a-z_]\w*\.rs)`")
FUNCTION = re.compile(r"`((?:\w+::)+[a-z_]\w*)(?:\(\))?`")
COUNTER = re.compile(r"`((?:cores|atomics|net|tcp|port|verbs|iwarp)_[a-z0-9_]+)`")
SETTING = re.compile(r"`(?:limits|core|tcp|mpa|rdmap|ddp|net|port|eal|stack)(?:\.[a-z0-9_]+)*\.([a-z0-9_]+)\b[^`]*`")
DEFINED = re.compile(r"\b(?:fn|struct|enum|trait|type|mod|const|static)\s+(\w+)|^\s*(?:pub(?:\([a-z ]+\))?\s+)?(\w+)[:,(]", re.MULTILINE)


def prose(text):
    """A page without its examples of commands and code; diagrams, which have no language, stay."""
    return re.sub(r"^```[a-z].*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors(text):
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", prose(text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(text, folder):
    """Each link of a page to a file or a heading that does not exist."""
    for name, anchor in LINK.findall(prose(text)):
        target = folder / name if name else None
        if target and not target.exists():
            yield name
        elif anchor and anchor not in anchors(target.read_text(encoding="utf-8") if target else text):
            yield f"{name}#{anchor}"


@functools.cache
def tree():
    """The paths of all files and folders, without hidden and built ones."""
    found = set()
    for top in ROOT.iterdir():
        if top.name.startswith(".") or top.name in ("target", "report"):
            continue
        found.add(top.name)
        if top.is_dir():
            found.update(path.relative_to(ROOT).as_posix() for path in top.rglob("*") if "target" not in path.parts)
    return found


def missing_files(text, paths):
    """Each file that a page names and that no path of the tree ends with."""
    for name in FILE.findall(prose(text)):
        plain = name.rstrip("/").removeprefix("../")
        is_of_tree = plain.split("/")[0] in paths or plain.endswith(".rs")
        if is_of_tree and not re.search(r"[A-Z]{2}", plain) and plain not in paths:
            if not any(path.endswith("/" + plain) for path in paths):
                yield name


@functools.cache
def definitions():
    """The names that the sources define."""
    found = set()
    for crate in CRATES:
        for path in (ROOT / crate).rglob("*.rs"):
            if "target" not in path.parts:
                found.update(name for pair in DEFINED.findall(path.read_text(encoding="utf-8")) for name in pair if name)
                found.add(path.stem if path.stem != "mod" else path.parent.name)
    return found | {name.removeprefix("ironwarp-") for name in (path.name for path in (ROOT / "stack").iterdir())}


def missing_functions(text, defined):
    """Each `path::name` of a page of which a part is not defined anywhere."""
    for name in FUNCTION.findall(text):
        if any(part not in defined for part in name.split("::")):
            yield name


def unknown_names(text):
    """Each counter that is not declared, and each setting that no configuration explains."""
    counters = (ROOT / "stack/stats/src/counter.rs").read_text(encoding="utf-8")
    settings = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "configs").rglob("*.toml"))
    yield from (name for name in COUNTER.findall(text) if f'"{name}"' not in counters)
    yield from (name for name in SETTING.findall(text) if not re.search(rf"\b{name}\b", settings))


def misplaced_functions(text):
    """Each function in a row of a guide's tables that none of the row's files defines."""
    for row in re.findall(r"^\|.*\.rs`.*$", text, re.MULTILINE):
        cells = row.split("|")
        if len(cells) < 5:
            continue
        sources = "".join((ROOT / "stack" / name).read_text(encoding="utf-8") for name in FILE.findall(cells[3]))
        for name in re.findall(r"`([\w:]+)`", cells[2]):
            if not re.search(rf"\bfn {name.split('::')[-1]}\b", sources):
                yield name


def false_figures(figures):
    """Each figure that is not that of its constant. One in KiB has a constant of `N * 1024`."""
    for page, shown, source, name in figures:
        figure = re.search(shown, re.sub(r"\s+", " ", (ROOT / page).read_text(encoding="utf-8")))
        value = re.search(rf"const {name}: \w+ = (\d+)", (ROOT / "stack" / source).read_text(encoding="utf-8"))
        if not figure or not value or figure.group(1) != value.group(1):
            yield f"{page}: {shown}: {name} of {source} is {value and value.group(1)}"


class Documents(unittest.TestCase):
    def test_links_lead_somewhere(self):
        for page in PAGES:
            with self.subTest(page.name):
                self.assertEqual(list(broken_links(page.read_text(encoding="utf-8"), page.parent)), [])

    def test_files_that_are_named_exist(self):
        paths = tree()
        for page in PAGES:
            with self.subTest(page.name):
                self.assertEqual(list(missing_files(page.read_text(encoding="utf-8"), paths)), [])

    def test_functions_that_a_guide_names_exist(self):
        defined = definitions()
        for page in GUIDES:
            with self.subTest(page.name):
                self.assertEqual(list(missing_functions(page.read_text(encoding="utf-8"), defined)), [])

    def test_the_way_of_a_message_names_each_function_with_its_file(self):
        text = GUIDES[0].read_text(encoding="utf-8")
        self.assertGreater(len(re.findall(r"^\| \d+ \|", text, re.MULTILINE)), 20)
        self.assertEqual(list(misplaced_functions(text)), [])

    def test_figures_in_prose_are_those_of_the_code(self):
        self.assertEqual(list(false_figures(FIGURES)), [])

    def test_counters_and_settings_that_are_named_exist(self):
        for page in PAGES:
            # This page names the options of another tool.
            if page.name != "packetdrill.md":
                with self.subTest(page.name):
                    self.assertEqual(list(unknown_names(page.read_text(encoding="utf-8"))), [])

    def test_readme_lists_every_page(self):
        listed = {(ROOT / name).resolve() for name, _ in LINK.findall((ROOT / "README.md").read_text(encoding="utf-8")) if name}
        self.assertEqual([page.name for page in PAGES if page not in listed and page.name != "README.md"], [])

    def test_what_is_missing_is_found(self):
        page = "# One\n[a](README.md) [b](no.md) [c](#one) [d](#two) [e](README.md#no-such-heading)\n"
        self.assertEqual(list(broken_links(page, ROOT)), ["no.md", "#two", "README.md#no-such-heading"])
        page = "`stack/no/such.rs` `stack/NAME/lib.rs` `such.rs` `x/lib.rs` `types/src/lib.rs` `eal/words`\n```sh\n`stack/no`\n```\n"
        self.assertEqual(list(missing_files(page, tree())), ["stack/no/such.rs", "such.rs", "x/lib.rs"])
        page = "`Stack::builder` `Stack::no_such_function` `NoSuchType::builder`"
        self.assertEqual(list(missing_functions(page, definitions())), ["Stack::no_such_function", "NoSuchType::builder"])
        page = "`tcp_rx_segments` `tcp_no_such_counter` `tcp.user_timeout_ms` `tcp.no_such_setting = 1`"
        self.assertEqual(list(unknown_names(page)), ["tcp_no_such_counter", "no_such_setting"])
        page, _, source, name = FIGURES[0]
        self.assertEqual(len(list(false_figures([(page, "no such text", source, name), (page, r"every (.)", source, name)]))), 2)
        page = "| 1 | `Span::copy_in`, `Tcp::transmit` | `mem/src/view.rs` | What it does. |\n"
        self.assertEqual(list(misplaced_functions(page)), ["Tcp::transmit"])


if __name__ == "__main__":
    unittest.main()
