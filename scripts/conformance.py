#!/usr/bin/env python3
"""Checks docs/conformance.csv against the tests, and prints the score of each RFC.

usage: scripts/conformance.sh [--list STATUS] [--uncited] [--strict]

  --list STATUS  print the requirements of that status, one of those below
  --uncited      print the requirements that none of their tests cites, by id or by section, in its comment or at the
                 head of its file
  --strict       fail when a MUST is missing or planned, when a decision names a MUST that is met, or when fewer than 95 %
                 of the iWARP RFCs' SHOULDs are shown, those of IPsec apart

Each row of the table is one requirement: id,level,status,tests,reason,summary.

  id       RFC<number>-<name>: RFC9293-MUST-19 is MUST-19 of that RFC's summary, RFC5040-3.1-01 the first of its
           section 3.1. What a requirement says stands in `summary`, in our own words.
  level    MUST, SHOULD or MAY; a prohibition is said in the summary
  status   shown           it is met as it stands with the default settings, and `tests` names the tests that show it
           by-default      a departure by default: the default settings do not meet it, and a setting does; `reason` names
                           the setting, and `tests` shows what it does
           departure       a part of it is met; `reason` says which is not, and why
           declined        not met, and `reason` says why
           not-supported   it belongs to a protocol that this stack does not have, and `reason` names the protocol
           not-applicable  it cannot apply here, and `reason` says why; this script counts such MUSTs, so that none is
                           added unseen
           missing         it ought to be shown and is not yet, and `reason` says what lacks
           planned         it belongs to a part that is not written yet, and `reason` names the part
           A MUST is by-default, departure, declined or not-supported only by a decision that this script names, and that
           the score repeats.
  tests    path/of/file.rs::name, separated by blanks. In a row that is not shown they bear its reason out

Fails when a row names a test that does not exist or does not run wherever its file is built, when none of its tests runs
without the tools, devices and permissions that a machine may lack, when the requirements are not those of the RFCs (their
number and a digest of ids and levels stand below), when a source file cites a requirement that the table does not have,
and when a row is incomplete, repeated or contradicts itself. Sources cite RFC 9293 by the short form MUST-19, SHLD-3,
MAY-4, and every RFC by the whole id.
"""

import csv
import hashlib
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "docs" / "conformance.csv"
COLUMNS = ["id", "level", "status", "tests", "reason", "summary"]
LEVELS = ["MUST", "SHOULD", "MAY"]
STATUSES = ["shown", "by-default", "departure", "declined", "not-supported", "not-applicable", "missing", "planned"]
# The statuses of what is not met. A MUST has one of them by decision only.
UNMET = ["by-default", "departure", "declined", "not-supported"]
ID = re.compile(r"RFC[1-9]\d*-[A-Za-z0-9.]+-\d+")
# The ids of RFC 9293's own summary, as sources cite them.
SHORT = re.compile(r"(?<![\w-])(MUST|SHLD|MAY|REC)-(\d+)(?!\w)")
# A test with the attributes around it.
TEST = re.compile(
    r"((?:#\[[^\n]*\]\s*)*)#\[test\]\s*((?:#\[[^\n]*\]\s*)*)(?:pub\s+)?fn\s+(\w+)\s*\("
)
# A test with one of these does not run, or not always. Miri alone may be spared.
DISABLED = re.compile(r"#\[(?:ignore|cfg\()(?!not\(miri\)\)\])")
# The condition of a file; every test run but loom's and Miri's meets those two.
FILE_CONDITION = re.compile(r"^#!\[cfg\((?!not\((?:loom|miri)\)\)\])", re.MULTILINE)
# The end of a test that found nothing to test: a return without a value, or with that of a macro or of a helper that
# reports the skip.
EARLY_END = re.compile(r"\breturn\s*(?:[;}]|(?:\w+::)*\w+!|(?:\w+::)*skipped\s*\()")
# A function that may report a skip and end: its test's result is none either.
FUNCTION = re.compile(r"^[ \t]*(?:pub(?:\([a-z]+\))?\s+)?fn\s+(\w+)\s*[(<]", re.MULTILINE)
REPORTS_SKIP = re.compile(r"SKIPPED|\bskipped\s*\(")
# How many requirements each RFC has, and the digest of their ids and levels: none is left out, added or made weaker. Of
# RFC 9260 only the sections that `stack/sctp` meets so far: 3.1 to 3.3.1, 3.3.4, 3.3.7, 5.1.1 to 5.1.4, 5.2.1 to
# 5.4, 6 to 6.8, 6.10 to 9.2, and 16.
# Of RFC 3948, 4106, 4301 and 4303 only what `stack/ipsec` decides, which no stack uses yet: not the key exchange, the
# management, the audit log, NAT in transport mode and multicast.
REQUIREMENTS = {
    "RFC1122": (64, "ba17de86455b5c60"),
    "RFC1191": (11, "e76478aa6228cfee"),
    "RFC2018": (14, "b7d2e36e27bd1879"),
    "RFC2883": (5, "36de438f5b370c2b"),
    "RFC3168": (14, "e8ac0dd992ac676e"),
    "RFC3948": (7, "f8b7c0b78fdc1e20"),
    "RFC4106": (11, "37ac6485e485b165"),
    "RFC4301": (21, "4d80cae7da58d1d7"),
    "RFC4303": (31, "2f5faa809d711883"),
    "RFC4443": (20, "620e941298d14462"),
    "RFC4543": (3, "7cbf6ba88f6e5c38"),
    "RFC4821": (18, "80dd28e5e6fff54d"),
    "RFC4861": (45, "443e658f1b934395"),
    "RFC5040": (209, "84b60285ecb06c42"),
    "RFC5041": (165, "abcf55a8cb34bfed"),
    "RFC5042": (25, "31180746b90b5a7f"),
    "RFC5043": (45, "a44b0d3c5984faae"),
    "RFC5044": (180, "8964998845bb2027"),
    "RFC5681": (25, "c7c301ff2c04ec5b"),
    "RFC5961": (12, "48b9f14b71d24980"),
    "RFC6298": (13, "3f6563dbfb51446d"),
    "RFC6581": (69, "7cc42cd0fe28ddf2"),
    "RFC6675": (19, "33ae4245b9d86754"),
    "RFC6951": (23, "0a7211705da7cdc5"),
    "RFC7306": (106, "d44779d1c9862a12"),
    "RFC7323": (29, "5130a625e96938fe"),
    "RFC8201": (16, "14c9d8d719d42526"),
    "RFC8985": (14, "00f8286606fe5fbd"),
    "RFC9260": (369, "0d2a0a151b28fb19"),
    "RFC9293": (119, "5799f8f2baba544d"),
}
# The RFCs whose SHOULDs are counted together. RFC 9293 leaves more to the purpose of an implementation.
IWARP = ["RFC5040", "RFC5041", "RFC5044", "RFC6581", "RFC7306"]
SHOULDS_SHOWN_MIN = 0.95
# Requirements that are not met, by decision (docs/architecture.md, "Departures, and why", and docs/limitations.md): the
# subject, and the ids of its MUSTs. A number range stands for ids that differ in their last number, an asterisk for all
# MUSTs of an RFC.
DECISIONS = {
    "IPsec": [
        "RFC5040-8.2.2-01..04", "RFC5040-8.2.2-06", "RFC5040-8.2.2-08", "RFC5040-8.2.2-11", "RFC5040-8.2.2-18",
        "RFC5041-8.4.2-01..04", "RFC5041-8.4.2-06", "RFC5041-8.4.2-08", "RFC5041-8.4.2-11", "RFC5041-8.4.2-15",
        "RFC5042-5.4.5-01", "RFC5044-9.3-01", "RFC5044-9.4-01",
    ],
    "use of a TCP connection after a rejection": ["RFC5044-7.1.2-07", "RFC5044-7.1.2-13"],
    "urgent data": ["RFC9293-MUST-30..33", "RFC9293-MUST-62"],
    "source routes": ["RFC9293-MUST-51..53", "RFC1122-3.2.1.8-04", "RFC1122-3.2.2.6-07"],
    "SCTP": ["RFC5043-*"],
    "two thresholds of retransmissions (R1)": ["RFC9293-MUST-20"],
    "the time that a SYN is sent, by default": ["RFC9293-MUST-23"],
    "the timeout after a lost SYN, by default": ["RFC9293-MUST-18", "RFC6298-5-03"],
    "windows that stay closed, by default": ["RFC9293-MUST-37"],
    "TIME-WAIT, by default": ["RFC9293-MUST-13"],
    "Differentiated Services by connection": ["RFC9293-MUST-48", "RFC1122-3.2.1.6-01"],
    "Terminates of a responder before the first FPDU": ["RFC6581-9.1-08", "RFC6581-9.3-02"],
    "enhanced start-up for every connect, by default": ["RFC6581-10-03"],
    "the reduction by CUBIC, by default": ["RFC5681-3.1-07", "RFC5681-3.2-03", "RFC5681-4.3-01..02"],
    "an initial window of ten segments, by default": ["RFC5681-3.1-02"],
    "later RFCs in place of RFC 5681 (3465, 6928, 6937)": ["RFC5681-3-01", "RFC5681-3.2-06", "RFC5681-4.3-04"],
    "SACKs that remain valid after a timeout (RFC 6675)": ["RFC2018-5.1-02"],
    "blocks for data that is discarded": ["RFC2018-8-01"],
    "RFC 5042 without IPsec": ["RFC5040-8.1-01", "RFC7306-9-01"],
    "RFC 8985 and 6937 in place of RFC 6675's recovery": ["RFC6675-5-02..03", "RFC6675-5.1-02"],
    "a search for a larger path MTU": ["RFC4821-7.3-01", "RFC4821-7.4-01"],
    "packets of a program's own size": ["RFC4821-4-08"],
    "a window below one segment": ["RFC4821-4-05"],
    "a path MTU that another connection reported": ["RFC8201-5.2-03"],
    "ICMP errors of our own": ["RFC4443-2.1-01", "RFC1122-3.3.8-01"],
    "routes from the network: router advertisements, redirects": [
        "RFC4861-6.3.4-01", "RFC4861-7.2.5-06", "RFC1122-3.2.2.2-02",
    ],
    "several default gateways": ["RFC1122-3.3.1.2-02", "RFC1122-3.3.1.4-01", "RFC1122-3.3.1.6-01"],
    "reassembly of IP fragments": ["RFC1122-3.2.1.4-01", "RFC1122-3.3.2-01"],
    "IP options": ["RFC1122-3.2.1.8-01..02"],
    "fragments of SCTP messages": ["RFC9260-6-08", "RFC9260-6-11..12"],
    "addresses of an SCTP peer beyond four, and by default beyond one": ["RFC9260-5.1.2-04", "RFC9260-5.1.2-08"],
    "HEARTBEATs of an SCTP peer before the set-up is complete": ["RFC9260-8.3-02"],
    "source quench (RFC 6633)": ["RFC1122-3.2.2.3-01"],
}
# The SHOULDs that ask something of IPsec.
IPSEC_SHOULDS = {"RFC5040-8.2.2-12", "RFC5040-8.2.2-15", "RFC5040-8.2.2-16", "RFC5041-8.4.2-12"}
# How many MUSTs of each RFC cannot apply.
NOT_APPLICABLE_MUSTS = {
    "RFC1122": 1, "RFC3168": 1, "RFC4861": 1, "RFC5040": 9, "RFC5041": 7, "RFC5042": 7, "RFC5044": 2, "RFC6581": 1, "RFC6951": 3,
    "RFC8985": 1, "RFC9260": 6,
}
COMMENT = re.compile(r"^\s*//[/!]?\s?(.*)$")


def main(arguments):
    options = parse(arguments)
    rows, faults = read_table()
    tests = Tests()
    for row in rows:
        faults += faults_of(row, tests)
    faults += other_requirements(rows)
    faults += unknown_citations(rows)
    if options["list"]:
        print_rows([row for row in rows if row["status"] == options["list"]])
    if options["uncited"]:
        print_rows([row for row in rows if row["status"] == "shown" and not tests.cite(row)])
    print_score(rows)
    if options["strict"]:
        faults += coverage_faults(rows)
    for fault in faults:
        print(f"conformance: {fault}", file=sys.stderr)
    return 1 if faults else 0


def parse(arguments):
    options = {"list": None, "uncited": False, "strict": False}
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        if argument in ("-h", "--help"):
            print(__doc__)
            sys.exit(0)
        if argument == "--list" and rest and rest[0] in STATUSES:
            options["list"] = rest.pop(0)
        elif argument in ("--uncited", "--strict"):
            options[argument[2:]] = True
        else:
            print(f"unknown option or value: {argument}\n{__doc__}", file=sys.stderr)
            sys.exit(2)
    return options


def read_table():
    with TABLE.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file, strict=True)
        if reader.fieldnames != COLUMNS:
            sys.exit(f"{TABLE}: the columns are not {','.join(COLUMNS)}")
        rows = list(reader)
    seen = set()
    faults = []
    for row in rows:
        if row["id"] in seen:
            faults.append(f"{row['id']} has two rows")
        seen.add(row["id"])
    return rows, faults


def faults_of(row, tests):
    """What is wrong with one row."""
    if None in row or any(value is None for value in row.values()):
        return [f"{row['id']}: too many or too few columns"]
    faults = []
    if not ID.fullmatch(row["id"]):
        faults.append("this is no id")
    if row["level"] not in LEVELS or row["status"] not in STATUSES:
        faults.append(f"level {row['level']}, status {row['status']}")
    if row["status"] in ("shown", "by-default") and not row["tests"].strip():
        faults.append(f"{row['status']}, and no test is named")
    if row["status"] != "shown" and not row["reason"].strip():
        faults.append(f"{row['status']}, and no reason is given")
    if row["status"] in UNMET and row["level"] == "MUST" and not by_decision(row["id"]):
        faults.append(f"a MUST is {row['status']}, and no decision of this script names it")
    if not row["summary"].strip():
        faults.append("no summary")
    faults += [f"there is no test {name}" for name in row["tests"].split() if not tests.exists(name)]
    faults += [f"the test {name} does not always run" for name in row["tests"].split() if tests.is_disabled(name)]
    if row["status"] == "shown" and not any(tests.always_runs(name) for name in row["tests"].split()):
        faults.append("each of its tests needs a tool, a device or a permission, and ends without a result where it is missing")
    return [f"{row['id']}: {fault}" for fault in faults]


def other_requirements(rows):
    """RFCs whose requirements or levels are not those that the digest was made of."""
    faults = []
    for rfc, (count, digest) in REQUIREMENTS.items():
        mine = sorted(f"{row['id']},{row['level']}" for row in rows if row["id"].startswith(rfc + "-"))
        found = hashlib.sha256("\n".join(mine).encode()).hexdigest()[: len(digest)]
        if (len(mine), found) != (count, digest):
            faults.append(f"{rfc}: {len(mine)} requirements with digest {found}; it has {count} with digest {digest}")
    return faults


def decided_musts():
    """The MUSTs of all decisions; an RFC's name with an asterisk for all of its MUSTs."""
    ids = set()
    for named in DECISIONS.values():
        for entry in named:
            span = re.fullmatch(r"(.*-)(\d+)\.\.(\d+)", entry)
            if not span:
                ids.add(entry)
                continue
            width = len(span[2])
            ids |= {f"{span[1]}{number:0{width}}" for number in range(int(span[2]), int(span[3]) + 1)}
    return ids


def by_decision(identity):
    """Whether a decision names a MUST."""
    return identity in decided_musts() or identity.split("-", 1)[0] + "-*" in decided_musts()


def coverage_faults(rows):
    """What is still owed, and decisions that nothing needs any more."""
    musts = [row for row in rows if row["level"] == "MUST"]
    faults = [f"{row['id']} is {row['status']}" for row in musts if row["status"] in ("missing", "planned")]
    unmet = {row["id"] for row in musts if row["status"] in UNMET}
    unmet |= {identity.split("-", 1)[0] + "-*" for identity in unmet}
    faults += [f"{identity} is named by a decision, and is met" for identity in sorted(decided_musts() - unmet)]
    for rfc in REQUIREMENTS:
        count = NOT_APPLICABLE_MUSTS.get(rfc, 0)
        found = sum(row["status"] == "not-applicable" and row["id"].startswith(rfc + "-") for row in musts)
        if found != count:
            faults.append(f"{rfc}: {found} MUSTs are not applicable; this script says {count}")
    shown, applying = should_score(row for row in rows if row["id"] not in IPSEC_SHOULDS)
    if shown < SHOULDS_SHOWN_MIN * applying:
        faults.append(f"{shown} of {applying} SHOULDs are shown, fewer than {SHOULDS_SHOWN_MIN:.0%}")
    return faults


def should_score(rows):
    """The SHOULDs of the iWARP RFCs: how many are shown, of how many that apply."""
    mine = [row for row in rows if row["id"].split("-", 1)[0] in IWARP and row["level"] == "SHOULD"]
    applying = [row for row in mine if row["status"] not in ("not-applicable", "not-supported")]
    return sum(row["status"] == "shown" for row in applying), len(applying)


class Tests:
    """The tests of the source tree, looked up by file and name."""

    def __init__(self):
        self.files = {}
        # Whether a file, or the program whose module it is, is built under a condition.
        self.is_conditional = {}
        # The comment at the head of each file.
        self.heads = {}
        # The functions of each crate that may report a skip.
        self.skipping = {}

    def of_file(self, path):
        """The names of a file's tests; the comment in front of each, and its attributes."""
        if path not in self.files:
            file = ROOT / path
            inside = file.resolve().is_relative_to(ROOT)
            text = file.read_text(encoding="utf-8") if inside and file.is_file() else ""
            self.heads[path] = " ".join(line[3:].strip() for line in text.split("\n") if line.startswith("//!"))
            root = file.with_name("main.rs")
            of_root = root.read_text(encoding="utf-8") if inside and root.is_file() else ""
            self.is_conditional[path] = bool(FILE_CONDITION.search(text) or FILE_CONDITION.search(of_root))
            self.files[path] = {
                found[3]: (comment_before(text, found.start()), found[1] + found[2], body_of(text, found))
                for found in TEST.finditer(text)
            }
        return self.files[path]

    def exists(self, name):
        path, separator, function = name.rpartition("::")
        return bool(separator) and function in self.of_file(path)

    def is_disabled(self, name):
        path, _, function = name.rpartition("::")
        _, attributes, _ = self.of_file(path).get(function, ("", "", ""))
        return bool(DISABLED.search(attributes))

    def always_runs(self, name):
        """Whether a test is always built, and neither its own body, closures included, nor a function of its crate that it
        calls may end without a result."""
        path, _, function = name.rpartition("::")
        _, _, body = self.of_file(path).get(function, ("", "", ""))
        if self.is_conditional[path] or EARLY_END.search(body):
            return False
        return not self.skipping_functions(crate_of(ROOT / path)) & set(re.findall(r"\b(\w+)\s*\(", body))

    def skipping_functions(self, crate):
        """The functions of a crate that print the line of a skipped test, those apart whose name another one has."""
        if crate not in self.skipping:
            bodies = [
                (found[1], body_of(text, found))
                for text in (file.read_text(encoding="utf-8") for file in sorted(crate.rglob("*.rs")))
                for found in FUNCTION.finditer(text)
            ]
            skipping = [name for name, body in bodies if REPORTS_SKIP.search(body.partition("{")[2])]
            names = Counter(name for name, _ in bodies)
            self.skipping[crate] = {name for name in skipping if names[name] == 1}
        return self.skipping[crate]

    def cite(self, row):
        """Whether one of a row's tests cites its id or its section."""
        rfc, section, _ = row["id"].split("-", 2) if row["id"].count("-") == 2 else (row["id"], "", "")
        for name in row["tests"].split():
            path, _, function = name.rpartition("::")
            comment = self.of_file(path).get(function, ("", "", ""))[0] + " " + self.heads.get(path, "")
            if row["id"] in cited(comment) or (rfc[3:], section) in cited_sections(comment):
                return True
        return False


def crate_of(file):
    """The folder of the crate that a file belongs to."""
    return next((folder for folder in file.parents if (folder / "Cargo.toml").is_file()), ROOT)


def body_of(text, found):
    """The lines of a function, up to the brace that closes it at its own indentation."""
    start = text.rfind("\n", 0, found.end()) + 1
    line = text[start : text.find("\n", start) % (len(text) + 1)]
    if line.endswith("}"):
        return line
    indentation = re.match(r" *", line)[0]
    end = text.find(f"\n{indentation}}}", start)
    return text[start:end]


def comment_before(text, offset):
    lines = []
    for line in reversed(text[:offset].split("\n")[:-1]):
        comment = COMMENT.match(line)
        if not comment:
            break
        lines.append(comment[1])
    return " ".join(reversed(lines))


def cited(text):
    """The ids that a text cites."""
    return {f"RFC9293-{kind}-{number}" for kind, number in SHORT.findall(text)} | set(ID.findall(text))


def cited_sections(text):
    """The sections that a text cites: (RFC, section) for `RFC 5041 s7.1, s8.2 and RFC 6581 s9`."""
    sections = set()
    for part in re.split(r"(?=RFC \d)", text):
        rfc = re.match(r"RFC (\d+)", part)
        if rfc:
            sections |= {(rfc[1], section.rstrip(".")) for section in re.findall(r"\bs([A-Z0-9][A-Z0-9.]*)", part)}
    return sections


def unknown_citations(rows):
    """Citations of requirements that do not exist, in the source files that belong to the tree."""
    known = {row["id"] for row in rows}
    covered = {identity.split("-", 1)[0] for identity in known}
    faults = []
    for path in sources():
        for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), start=1):
            for identity in sorted(cited(line) - known):
                if identity.split("-", 1)[0] in covered:
                    faults.append(f"{path.relative_to(ROOT)}:{number} cites {identity}, which is not in the table")
    return faults


def sources():
    listing = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.rs"],
        capture_output=True, check=False,
    )
    if listing.returncode == 0:
        names = [name for name in listing.stdout.decode().split("\0") if name]
        return [ROOT / name for name in names if (ROOT / name).is_file()]
    skipped = {"target", ".git"}
    return [path for path in sorted(ROOT.rglob("*.rs")) if not skipped & set(path.relative_to(ROOT).parts)]


def print_rows(rows):
    for row in rows:
        print(f"{row['id']:<18} {row['level']:<6} {row['summary']}")
        if row["reason"]:
            print(f"{'':<25} {row['reason']}")
    print()


def print_score(rows):
    line = "{:<8} {:<7} {:>12}" + "".join(f" {{:>{max(8, len(status) + 1)}}}" for status in STATUSES)
    print(line.format("", "level", "requirements", *STATUSES))
    for rfc in sorted({row["id"].split("-", 1)[0] for row in rows}):
        mine = [row for row in rows if row["id"].startswith(rfc + "-")]
        for level in [*LEVELS, "all"]:
            counted = [row for row in mine if level in (row["level"], "all")]
            counts = [sum(row["status"] == status for row in counted) for status in STATUSES]
            print(line.format(rfc, level, len(counted), *counts))
    shown, applying = should_score(rows)
    rest = should_score(row for row in rows if row["id"] not in IPSEC_SHOULDS)
    print(f"SHOULDs of the iWARP RFCs: {shown} of {applying} that apply are shown; without those of IPsec {rest[0]} of {rest[1]}")
    musts = [row for row in rows if row["level"] == "MUST"]
    counts = {status: sum(row["status"] == status for row in musts) for status in STATUSES}
    print(
        f"MUSTs: {counts['shown']} of {len(musts)} are met by default and shown, {counts['by-default']} by a setting, "
        f"{counts['departure']} in part, {counts['declined']} are declined, {counts['not-supported']} belong to protocols that "
        f"are not supported, {counts['not-applicable']} cannot apply. What is not met, by decision:"
    )
    for subject, named in DECISIONS.items():
        print(f"  {subject}: {', '.join(named)}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
