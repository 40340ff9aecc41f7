#!/usr/bin/env python3
"""Divides the instructions of a callgrind profile by stage: `storage-cost.py PROFILE COMMANDS`, for storage-cost.sh.

The stage of an instruction is that of the function that it was compiled into.
"""
import collections
import re
import sys

STAGES = [
    ("copies", r"mem(cpy|move)|ironwarp_mem::copy"),
    ("CRCs", r"crc"),
    ("checksums", r"ironwarp_arch::checksum"),
    ("target: commands", r"iwarp_nvmf::"),
    ("verbs: posts, completions", r"^<?ironwarp::context::|ironwarp_iwarp::wr::"),
    ("receive: frame to capsule", r"on_burst|data_path::rx|ironwarp_tcp::input|stream::receive"),
    ("transmit: FPDUs", r"ironwarp_iwarp::stream"),
    ("transmit: TCP, IP", r"::transmit|ironwarp_tcp::(output|conn)|ironwarp_net::path|data_path::tx"),
    ("device", r"ironwarp_port::"),
]
REST = "loop, timers, the rest"


def functions(path):
    """Returns the instructions of each function itself."""
    names, costs, function, is_call = {}, collections.Counter(), "?", False
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            name = re.match(r"c?fn=\((\d+)\)(?: (.*))?", line)
            if name:
                if name[2]:
                    names[name[1]] = name[2]
                if line.startswith("fn="):
                    function = names.get(name[1], "?")
            elif line.startswith("calls="):
                # The line after this one has what the called function cost.
                is_call = True
            elif re.match(r"[\d+*-]", line):
                if not is_call:
                    costs[function] += int(line.split()[1])
                is_call = False
    return costs


def main():
    path, commands = sys.argv[1], int(sys.argv[2])
    stages = collections.Counter({name: 0 for name, _ in STAGES})
    for function, cost in functions(path).items():
        stages[next((name for name, pattern in STAGES if re.search(pattern, function)), REST)] += cost
    for name in [name for name, _ in STAGES] + [REST]:
        print(f"{name:<28} {stages[name] / commands:>10,.0f}")
    print(f"{'all':<28} {sum(stages.values()) / commands:>10,.0f}")


main()
