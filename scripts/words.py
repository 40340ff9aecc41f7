#!/usr/bin/env python3
"""Finds words that an engineer of this field must translate, in sources, documents, configurations and scripts.

usage: scripts/words.py [FOLDER]

Prints each such word with what to write instead; docs/glossary.md has the terms to use. Identifiers are searched too: `NetNews`
and `net_news` are "net news" here. Prints also each comment of a Rust source that is wider than 100 columns; tables, diagrams
and code in documentation may be wider. The exit status is 1 if something is found. FOLDER is the repository's root by default.
"""

import os
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Words and phrases that are rejected, each with what to write.
REJECTED = {
    "attendance": "epoch slot",
    "by turns": "alternately",
    "crowd": "the hosts, the half-open connections",
    "dialect": "profile",
    "doomed": "failed",
    "house": "layout, crates",
    "how manieth": "the index of",
    "hoard": "over quota",
    "hoarder": "a connection over its quota",
    "is told": "is notified, gets an event",
    "let go of": "release, drop",
    "lets go of": "releases, drops",
    "likewise": "in the same way, too",
    "listened at": "cannot listen on ADDR",
    "news": "messages, updates, events",
    "parcel": "parameters, control message",
    "reproach": "Terminate",
    "rhythm": "marker spacing",
    "stranger": "an unknown peer, no connection",
    "strangers": "unknown peers",
    "was told": "was notified, got an event",
    "what came": "the received data",
    "what has come": "the received data",
    "whoever": "name the caller, the core, the peer",
    "whomever": "name it",
    "whose a": "which core owns",
}

EXTENSIONS = {".rs", ".md", ".toml", ".h", ".c", ".sh", ".py", ".csv"}

# The list itself and its test, and a header of the past that must not change.
EXEMPT = {"scripts/words.py", "scripts/tests/test_words.py", "stack/capi/tests/c/frozen/ironwarp.h"}


def words(line):
    """The words of a line in lower case, with one space before and after each. Identifiers are split at underscores and capitals."""
    parted = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", line)
    return " " + " ".join(re.findall(r"[^\W_]+", parted)).lower() + " "


def files(root):
    """The sources, documents, configurations and scripts below a folder, without hidden and built ones."""
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if name != "target" and not name.startswith("."))
        for name in sorted(names):
            if pathlib.Path(name).suffix in EXTENSIONS:
                yield pathlib.Path(folder) / name


def offenders(root):
    """One line for each rejected word below a folder."""
    for path in files(root):
        name = path.relative_to(root).as_posix()
        if name in EXEMPT:
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            found = words(line)
            for word, instead in REJECTED.items():
                if f" {word} " in found:
                    yield f'{name}:{number}: "{word}": {instead}'


# Columns of a comment: what is read beside code, and in a terminal of half a screen.
COMMENT_COLUMNS = 100


def wide_comments(root):
    """One line for each comment of a Rust source that is too wide."""
    for path in files(root):
        if path.suffix != ".rs":
            continue
        code = False
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            comment = re.match(r"\s*//[/!]?(.*)", line)
            text = comment[1].strip() if comment else ""
            # An example of code ends with its comment at the latest.
            code = bool(comment) and code != text.startswith("```")
            drawn = code or text.startswith("|") or "   " in text or "-->" in text
            if comment and not drawn and len(line) > COMMENT_COLUMNS:
                yield f"{path.relative_to(root).as_posix()}:{number}: a comment of {len(line)} columns"


def main(arguments):
    if len(arguments) > 1 or any(argument.startswith("-") for argument in arguments):
        help_wanted = arguments[0] in ("-h", "--help")
        print(__doc__, file=sys.stdout if help_wanted else sys.stderr)
        return 0 if help_wanted else 2
    root = pathlib.Path(arguments[0]) if arguments else ROOT
    found = [*offenders(root), *wide_comments(root)]
    print("\n".join(found + [f"{len(found)} places to change"]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
