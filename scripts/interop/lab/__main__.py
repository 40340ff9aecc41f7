"""Runs the interop matrix: Linux siw in a virtual machine against the project's programs."""

import argparse
import pathlib
import signal
import sys

import cells  # noqa: F401  its modules register themselves
from compare import compare
from compare_storage import compare_storage
from fabric import DEVICES
from groups import GROUPS, group_of, run_groups
from matrix import CELLS, Matrix

EXAMPLES = """examples:
  scripts/interop/run.sh --smoke
  scripts/interop/run.sh --device vhost --only 'vhost/rping/*'
  scripts/interop/run.sh --compare --rounds 9 --only send-lat
"""


def main():
    parser = argparse.ArgumentParser(prog="scripts/interop/run.sh", description=__doc__, epilog=EXAMPLES,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--image", type=pathlib.Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--programs", type=pathlib.Path, metavar="FOLDER",
                        help="where they lie, built; must come first; without it they are built")
    parser.add_argument("--verbs", type=pathlib.Path, help=argparse.SUPPRESS)
    parser.add_argument("--logs", type=pathlib.Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--smoke", action="store_true", help="only the shortest proof, over one device")
    parser.add_argument("--device", action="append", choices=DEVICES, help="over this device; may be given several times")
    parser.add_argument("--only", action="append", default=[], metavar="PATTERN", help="cells whose name matches, as 'af_packet/rping/*'")
    parser.add_argument("--archive", type=pathlib.Path, metavar="FILE", help="of scripts/release.sh, for the cells of release")
    parser.add_argument("--seconds", type=int, metavar="N", help="of the cells nvmf/endure/*, in place of their own; the long form is 600")
    parser.add_argument("--compare", action="store_true", help="measure beside siw in one guest, in place of the cells")
    parser.add_argument("--compare-storage", action="store_true", help="measure storage beside Linux's in one guest, in place of the cells")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="of the comparisons; their figures are medians of them")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="of the comparisons; that of --compare as bench/results/siw.json, for scripts/results.py")
    parser.add_argument("--group", choices=GROUPS, help=argparse.SUPPRESS)
    parser.add_argument("--list", action="store_true", help="name the cells and run none")
    arguments = parser.parse_args()
    devices = arguments.device or (DEVICES[:1] if arguments.smoke else DEVICES)
    if arguments.list:
        for device in devices:
            for each in CELLS:
                if device in each.devices:
                    print(f"{device}/{each.name}")
        return 0
    # Signals become exceptions, so that started processes are ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if arguments.compare:
        folder = arguments.logs / "compare"
        return 0 if compare(arguments.image, arguments.programs, arguments.verbs, folder, arguments.rounds, arguments.only, arguments.json) else 1
    if arguments.compare_storage:
        folder = arguments.logs / "compare-storage"
        return 0 if compare_storage(arguments.image, arguments.programs, folder, arguments.rounds, arguments.only, arguments.json) else 1
    matrix = Matrix(arguments.image, arguments.programs, arguments.logs, arguments.archive, arguments.seconds)
    chosen = matrix.choose(devices, arguments.only, arguments.smoke)
    groups = [group for group in GROUPS if any(group_of(device, each.name) == group for device, each in chosen)]
    if arguments.group is None and len(groups) > 1:
        return 0 if run_groups(groups) else 1
    if arguments.group:
        chosen = [(device, each) for device, each in chosen if group_of(device, each.name) == arguments.group]
        matrix.folder = arguments.logs / arguments.group
    return 0 if matrix.run(chosen) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
