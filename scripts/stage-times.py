#!/usr/bin/env python3
"""Samples both ends of a test of iwarp-perf with perf and prints which part of the stack their time goes to.

A sample counts for the part that the innermost function of this project belongs to, inlined functions included; a driver of
DPDK's, the C library and the kernel have rows of their own. Polls without work are part of the figures: an end that waits
spends its time in the loop and the driver.
"""

import argparse
import collections
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

EXAMPLES = """Needs perf, llvm-symbolizer and a build with lines: cargo build --release -p iwarp-perf.

examples:
  scripts/stage-times.py write-bw --pair memif --size 1M --mtu 9000
  scripts/stage-times.py --program target/release/iwarp-perf send-lat --pair memif-native
"""

# The first pattern that a path contains decides.
PARTS = (
    ("core_arch/src/x86/rdtsc", "clock"),
    ("stack/arch/", "CRC, sum, copy (arch)"),
    ("stack/tcp/", "TCP"),
    ("stack/net/", "Ethernet, IP (net)"),
    ("stack/iwarp/", "MPA, DDP, RDMAP (iwarp)"),
    ("stack/mem/", "memory regions (mem)"),
    ("stack/rings/", "rings"),
    ("stack/port/", "port"),
    ("dpdk-sys/", "port"),
    ("/dpdk/", "port"),
    ("stack/verbs/src/core_loop/", "loop of the core"),
    ("stack/verbs/", "verbs"),
    ("stack/", "other crates of the stack"),
    ("apps/", "program"),
    ("bench/", "program"),
)
SAMPLES_A_SECOND = 4000


def main():
    parser = argparse.ArgumentParser(description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=pathlib.Path, default=pathlib.Path("target/release/iwarp-perf"), metavar="FILE")
    parser.add_argument("test", help="of iwarp-perf, between two processes")
    args, options = parser.parse_known_args()
    missing = [tool for tool in ("perf", "llvm-symbolizer", "readelf") if not shutil.which(tool)]
    if missing:
        sys.exit(f"not installed: {', '.join(missing)} (packages linux-perf, llvm, binutils)")
    if not args.program.exists():
        sys.exit(f"{args.program} does not exist: cargo build --release -p iwarp-perf")
    with tempfile.TemporaryDirectory() as folder:
        data = pathlib.Path(folder) / "perf.data"
        record = ["perf", "record", "--quiet", "-F", str(SAMPLES_A_SECOND), "-e", "cpu-clock", "-o", data, "--"]
        subprocess.run([*record, args.program, args.test, *options], check=True)
        shares = shares_of(data, args.program.resolve())
    if len(shares) < 2:
        sys.exit("fewer than two processes were sampled: a test between two processes is needed")
    print(table(shares))


def shares_of(data, program):
    """For each of the two busiest processes, the client's first: the samples of each part."""
    bases, samples = {}, collections.defaultdict(collections.Counter)
    script = ["perf", "script", "-i", data, "-F", "pid,ip,dso", "--show-mmap-events"]
    for line in subprocess.run(script, check=True, capture_output=True, text=True).stdout.splitlines():
        mapped = re.search(r"PERF_RECORD_MMAP2? (\d+)/\d+: \[(0x\w+)\(\w+\) @ (\w+) .*\]: r-xp (.*)$", line)
        if mapped:
            if pathlib.Path(mapped[4]) == program:
                bases[mapped[1]] = int(mapped[2], 16) - int(mapped[3], 16)
            continue
        sampled = re.match(r"\s*(\d+)\s+([0-9a-f]+) \((.*)\)$", line)
        if sampled:
            samples[sampled[1]][int(sampled[2], 16), sampled[3]] += 1
    skew = address_skew(program)
    shares = {}
    # The client's process is started before the server's.
    for pid in sorted(sorted(samples, key=lambda pid: -samples[pid].total())[:2], key=int):
        own = {address: address - bases[pid] + skew for address, dso in samples[pid] if dso == str(program) and pid in bases}
        parts = dict(zip(own, parts_of(program, own.values())))
        counted = collections.Counter()
        for (address, dso), count in samples[pid].items():
            counted[parts.get(address) or part_of_library(dso)] += count
        shares[pid] = counted
    return shares


def address_skew(program):
    """The difference of address and offset in the program's code segment."""
    for line in subprocess.run(["readelf", "-lW", program], check=True, capture_output=True, text=True).stdout.splitlines():
        words = line.split()
        if words[:1] == ["LOAD"] and "E" in words[6:8]:
            return int(words[2], 16) - int(words[1], 16)
    return 0


def parts_of(program, addresses):
    """The part of each address of the program: that of the innermost inlined function that has one."""
    text = "\n".join(hex(address) for address in addresses) + "\n"
    symbolizer = ["llvm-symbolizer", "--obj", program, "--inlines"]
    answers = subprocess.run(symbolizer, input=text, check=True, capture_output=True, text=True).stdout.split("\n\n")
    for answer in answers[: len(addresses)]:
        files = answer.strip().splitlines()[1::2]
        yield next((part for file in files for pattern, part in PARTS if pattern in file), "other libraries in the program")


def part_of_library(dso):
    name = pathlib.Path(dso).name
    if name.startswith("librte"):
        return f"driver ({name.removeprefix('librte_').split('.')[0]})"
    if "kernel" in dso or "vdso" in dso:
        return "kernel"
    return "C library (copies)" if name.startswith("libc.") else f"library ({name})"


def table(shares):
    """Markdown: a row for each part with one percent of an end's samples or more."""
    ends = list(shares.values())
    rows = sorted(set().union(*ends), key=lambda part: -sum(end[part] / end.total() for end in ends))
    lines = ["| part | client | server |", "| --- | --- | --- |"]
    for part in rows:
        percents = [100 * end[part] / end.total() for end in ends]
        if max(percents) >= 1:
            lines.append(f"| {part} | " + " | ".join(f"{percent:.0f} %" for percent in percents) + " |")
    return "\n".join(lines)


main()
