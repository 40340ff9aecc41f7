"""The matrix in several groups at once, each with a guest and a network namespace of its own: most cells wait for most of
their time, for a boot, for a loss to be noticed, or for the other end.
"""

import re
import subprocess
import sys

GROUPS = ("cells", "endurance", "devices", "nvmf")
SUMMARY = re.compile(r"^(\d+) passed, (\d+) failed, (\d+) skipped$")


def group_of(device, name):
    """Where a cell runs: storage, what lasts, what is tried over one device only, and the other devices."""
    if name.startswith("nvmf/"):
        return "nvmf"
    if name.startswith("endurance/"):
        return "endurance"
    return "cells" if device == "af_packet" else "devices"


def run_groups(groups):
    """Runs this program once for each group, passes on what they say, and adds up. Gives whether none failed."""
    # It has a capture and a machine to end, so it gets a signal that it can handle.
    owned = ["setpriv", "--pdeathsig", "TERM", "--", "unshare", "--net", "--", sys.executable, "-B", *sys.argv]
    running = [
        subprocess.Popen([*owned, "--group", group], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        for group in groups
    ]
    score = [0, 0, 0]
    try:
        for group, process in zip(groups, running):
            score = [before + more for before, more in zip(score, _listen(group, process))]
    finally:
        for process in running:
            process.terminate()
            process.wait()
    print(f"{score[0]} passed, {score[1]} failed, {score[2]} skipped", flush=True)
    return score[1] == 0


def _listen(group, process):
    """Group after group, so that the table stays in order. What is said meanwhile waits in its pipe, which has the room."""
    for line in process.stdout:
        summary = SUMMARY.match(line.strip())
        if summary:
            process.wait()
            return [int(number) for number in summary.groups()]
        print(line, end="", flush=True)
    print(f"{group}/* failed  0.0 s  it ended with {process.wait()} and no summary", flush=True)
    return [0, 1, 0]
