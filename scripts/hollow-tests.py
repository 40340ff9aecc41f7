#!/usr/bin/env python3
"""Looks for tests that cannot fail, in all Rust sources of the tree.

usage: scripts/hollow-tests.py [--unsure]

A test that asserts nothing, neither itself nor by a function of its crate, is a fault: the exit status is 1.

--unsure also lists each `assert!(x.all(..))` over something that may be empty, while nothing else in the test looks at how much
there is: its length or emptiness, one of its elements, or all of it by assert_eq. Some of them are sound for a reason that this
program does not see, so they are a list for reading and no fault.
"""

import collections
import re
import sys

from conformance import ROOT, TEST, body_of, crate_of, sources

FUNCTION = re.compile(r"^[ \t]*(?:pub(?:\([a-z ]+\))?\s+)?(?:unsafe\s+)?fn\s+(\w+)", re.MULTILINE)
# What makes a test fail: a macro, or a panic at a value of the wrong kind.
ASSERTS = re.compile(r"\b(?:(?:prop_)?(?:debug_)?assert\w*|panic|unreachable)!|\.(?:expect|unwrap)(?:_err)?\(")
MACROS = re.compile(r"\b(?:prop_)?assert\w*!|\bpanic!|\bunreachable!")
# How deep a chain of helpers may be, from a test to its assertion.
HELPERS_MAX = 4
ALL = re.compile(r"([\w.\[\]()&:]+?)\s*\.all\(")
ADAPTERS = re.compile(r"\.(?:iter|into_iter|drain|windows|values|keys|chunks|bytes|chars|lines|by_ref)\(.*$")
# A list that is written out, a range, or a part of a buffer.
FIXED = re.compile(r"^\(*(?:\[|-?\d|vec!|[A-Z_]{2,}\b)|\w\[[^\]]*\.\.|\]$|^\]")


def main(arguments):
    if arguments not in ([], ["--unsure"]):
        help_wanted = arguments[0] in ("-h", "--help")
        print(__doc__, file=sys.stdout if help_wanted else sys.stderr)
        return 0 if help_wanted else 2
    tests = faults = 0
    for name, body, helpers in all_tests():
        tests += 1
        if not MACROS.search(body) and not words(body) & helpers:
            faults += 1
            print(f"{name} asserts nothing")
        for unsure in unsure_alls(body) if arguments else []:
            print(f"{name}: nothing says that there is an element of: {unsure}")
    print(f"{tests} tests, {faults} assert nothing")
    return 1 if faults or not tests else 0


def all_tests():
    """Each test: its name, its body without comments, and the functions of its crate that assert something."""
    crates = collections.defaultdict(list)
    for path in sources():
        crates[crate_of(path)].append((path, path.read_text(encoding="utf-8")))
    for files in crates.values():
        helpers = asserting([text for _, text in files])
        for path, text in files:
            for test in TEST.finditer(text):
                yield f"{path.relative_to(ROOT)}::{test[3]}", plain(body_of(text, test)), helpers - {test[3]}


def asserting(texts):
    """The functions that assert something, by themselves or by another one of them."""
    bodies = collections.defaultdict(str)
    for text in texts:
        for function in FUNCTION.finditer(text):
            bodies[function[1]] += plain(body_of(text, function).partition("{")[2])
    names = {name for name, body in bodies.items() if ASSERTS.search(body)}
    for _ in range(HELPERS_MAX):
        names |= {name for name, body in bodies.items() if words(body) & names}
    return names


def plain(body):
    return re.sub(r"//[^\n]*", "", body)


def words(body):
    return set(re.findall(r"\w+", body))


def unsure_alls(body):
    """What is asserted of all elements of something that may have none."""
    for start in re.finditer(r"\b(?:prop_)?assert!\(", body):
        argument = " ".join(inside(body, start.end()).split()).replace(" .", ".")
        for match in ALL.finditer(argument):
            base = ADAPTERS.sub("", match[1]).lstrip("(&!*")
            if not base or FIXED.search(base) or is_made(base, body) or is_looked_at(re.escape(base), body):
                continue
            yield match[1]


def is_made(base, body):
    """Whether the test writes a list of that name out."""
    return re.search(rf"\blet (?:mut )?{re.escape(base)}(?:: [^=]*)? =\s*(?:vec!|\[|\(\d)", body)


def is_looked_at(base, body):
    """Whether a test says how much there is of something, or looks at an element."""
    return re.search(rf"\b{base}(?:\s*\.\w+\([^()]*\))*?\s*\.(?:len|count|is_empty|contains|any|last|first|sum)(?:::<\w+>)?\(|\b{base}\[", body) or re.search(
        rf"assert_(?:eq|ne)!\(\s*\(?&?{base}\b", body
    )


def inside(text, start):
    """What lies between a parenthesis that was opened before `start` and the one that closes it."""
    depth, at = 1, start
    while depth and at < len(text):
        depth += (text[at] in "([{") - (text[at] in ")]}")
        at += 1
    return text[start : at - 1]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
