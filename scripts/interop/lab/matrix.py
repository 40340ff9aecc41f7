"""The matrix: named cells, the lab that each is given, and the table of how they ended."""

import fnmatch
import itertools
import re
import shutil
import subprocess
import time
from dataclasses import dataclass
from typing import Callable

from crc import is_the_peers
from dissect import check_captures
from fabric import Fabric
from groups import group_of
from guest import ADDRESS as GUEST
from guest import Guest
from node import SETTINGS, Node
from outcome import Failed, Skipped
from programs import with_archive, with_programs, with_storage

CELLS = []
# How often a cell is tried whose failures are the peer's.
TRIES_MAX = 5
# As siw's source has them.
SIW_DEFAULTS = {
    "mpa_crc_required": 0,
    "mpa_crc_strict": 0,
    "mpa_version": 2,
    "peer_to_peer": 0,
    "rtr_type": 192,
    "try_gso": 0,
    "zcopy_tx": 1,
}


@dataclass
class Cell:
    """One test: over which devices, whether the short run has it, and what it does with a lab."""

    name: str
    devices: tuple
    smoke: bool
    run: Callable


def cell(name, devices=("af_packet",), smoke=False):
    """Names a function as a cell of the matrix."""

    def register(function):
        CELLS.append(Cell(name, devices, smoke, function))
        return function

    return register


class Lab:
    """What a cell is given: a guest that is up, and programs of ours to start over one device."""

    def __init__(self, image, programs, folder, device, archive=None, storage=False, seconds=None):
        self.programs, self.folder, self.device, self.archive = programs, folder, device, archive
        # The independent peer for SCTP, on this side of the wire.
        self.sctp_peer = image / "sctp-peer"
        # How long the cells of storage that bear faults write and compare; of their own choice without it.
        self.seconds = seconds
        self.fabric = Fabric(device, folder)
        if device == "pci":
            image = with_programs(image, folder, programs, ("iwarp-perf", "iwarp-ping"), ("nic.sh", "hugepages.sh"))
        if device == "release" and archive:
            image = with_archive(image, folder, archive)
        if storage:
            image = with_storage(image, folder)
        self.guest = Guest(image, folder, self.fabric.qemu(), self.fabric.cards())
        self.cell_folder = folder
        self.nodes, self.running_captures = [], []
        # Where frames cannot be captured outside, our own processes capture them.
        self.captures = itertools.count()
        self.changed = self.degraded = False

    def begin(self, name):
        """A folder for what the cell leaves, a capture, and a guest that is up and knows nothing of earlier cells."""
        self.cell_folder = self.folder / name.replace("/", "-")
        self.cell_folder.mkdir(parents=True, exist_ok=True)
        self.running_captures = self._start_captures()
        self.up()

    def up(self):
        """Boots the guest unless it is up."""
        if self.guest.is_up():
            return
        self.guest.stop()
        # QEMU boots only when a process serves its card; later ones may come and go.
        first = self.node("iwarp-responder").wait_listening() if self.device == "vhost" else None
        self.guest.boot()
        self.fabric.after_boot(self.guest)
        if first:
            first.interrupt()
            self.nodes.remove(first)

    def end(self, passed):
        """Ends what the cell started. What it left is kept when it failed."""
        for node in self.nodes:
            node.kill()
        self.nodes = []
        self._end_captures()
        if passed:
            shutil.rmtree(self.cell_folder, ignore_errors=True)
            self._restore()
        else:
            # siw may be in any state by now.
            console = self.guest.folder / "console.log"
            if console.exists():
                shutil.copy(console, self.cell_folder)
            self.guest.stop()

    def dissect(self):
        """Lets Wireshark look for faults in what was captured. Gives what it has read, in words."""
        self._end_captures()
        found = check_captures(self.cell_folder, self.fabric.ours, self.fabric.device == "tap")
        return f"{found} FPDUs and DATA chunks read by Wireshark"

    def peers_fault(self):
        """What the guest did wrong on the wire, in words, if a capture from outside of our process shows that, and no such
        fault of ours."""
        return is_the_peers(self.cell_folder, GUEST) if self.fabric.watched else None

    def node(self, name, *arguments, sections=""):
        """Starts a program of ours."""
        words = [str(argument) for argument in arguments]
        if not self.fabric.watched:
            words += ["--pcap", str(self.cell_folder / f"wire-{next(self.captures)}.pcapng")]
        return self._start(name, words, SETTINGS + self.fabric.config() + sections)

    def dropin(self, *command, sections=""):
        """Starts somebody else's RDMA program over our libraries, which `scripts/install-verbs.sh` installs."""
        if not (self.programs / "../verbs/lib/libibverbs.so.1").exists():
            raise Skipped("the replacement libraries are not installed beside the programs")
        config = SETTINGS + self.fabric.config() + sections
        node = Node(self.programs, self.cell_folder, "iwarp-run", command, config, config_first=True)
        self.nodes.append(node)
        return node

    def nvmf(self, *arguments, sections):
        """Starts the storage program, whose configuration has the stack's as a part."""
        stack = re.sub(r"^\[", "[stack.", SETTINGS + self.fabric.config(), flags=re.MULTILINE)
        return self._start("iwarp-nvmf", [str(argument) for argument in arguments], sections + stack)

    def _start(self, name, words, config):
        node = Node(self.programs, self.cell_folder, name, words, config)
        self.nodes.append(node)
        return node

    def siw(self, **parameters):
        """Sets parameters of siw for this cell."""
        self.guest.set(**parameters)
        self.changed = True

    def degrade(self, netem):
        """Lets the network suffer, for this cell."""
        self.guest.degrade(netem)
        self.degraded = True

    def _restore(self):
        if self.changed:
            self.guest.set(**SIW_DEFAULTS)
        if self.degraded:
            self.guest.degrade(None)
        self.changed = self.degraded = False

    def _end_captures(self):
        for capture in self.running_captures:
            capture.terminate()
            capture.wait()
        self.running_captures = []

    def _start_captures(self):
        """The first frames for Wireshark, which finds no FPDU in a stream whose start it has not seen; the last ones for a
        reader, if the cell fails."""
        if not self.fabric.watched:
            return []
        first = ["-a", "filesize:65536", "-w", str(self.cell_folder / "wire.pcapng")]
        last = ["-b", "filesize:65536", "-b", "files:2", "-w", str(self.cell_folder / "last.pcapng")]
        running = [self._dumpcap(arguments) for arguments in (first, last)]
        deadline = time.monotonic() + 10
        while len(list(self.cell_folder.glob("*.pcapng"))) < len(running) and time.monotonic() < deadline:
            time.sleep(0.01)
        return running

    def _dumpcap(self, arguments):
        command = ["setpriv", "--pdeathsig", "KILL", "--", "dumpcap", "-q", "-i", self.fabric.watched, *arguments]
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


class Matrix:
    """Runs cells and keeps the score."""

    def __init__(self, image, programs, folder, archive=None, seconds=None):
        self.image, self.programs, self.folder, self.archive, self.seconds = image, programs, folder, archive, seconds
        self.score = {"passed": 0, "failed": 0, "skipped": 0}

    @staticmethod
    def choose(devices, patterns, smoke):
        """The cells asked for, each with the device that it is to be run over, device by device."""
        chosen = [(device, each) for device in devices for each in CELLS if device in each.devices]
        chosen = [(device, each) for device, each in chosen if each.smoke or not smoke]
        return [(device, each) for device, each in chosen if matches(f"{device}/{each.name}", patterns)]

    def run(self, chosen):
        """Runs chosen cells, a guest for each device. Gives whether none failed."""
        for device, those in itertools.groupby(chosen, lambda pair: pair[0]):
            self._over(device, [each for _, each in those])
        score = self.score
        print(f"{score['passed']} passed, {score['failed']} failed, {score['skipped']} skipped", flush=True)
        return score["failed"] == 0

    def _over(self, device, cells):
        folder = self.folder / device
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        # The groups run in processes of their own, so storage is among these cells only if they are its.
        storage = any(group_of(device, each.name) == "nvmf" for each in cells)
        lab = Lab(self.image, self.programs, folder, device, self.archive, storage, self.seconds)
        try:
            lab.fabric.build()
            for each in cells:
                self._one(lab, f"{device}/{each.name}", each)
        except Failed as failure:
            self._print_result(f"{device}/*", "failed", 0, f"no way to the guest: {failure}")
        finally:
            lab.guest.stop()
            lab.fabric.remove()

    def _one(self, lab, name, each):
        """Runs a cell; again, where the capture shows that the failure is the peer's."""
        start, faults = time.monotonic(), []
        while True:
            verdict, line = self._try(lab, f"{name}-{len(faults) + 1}" if faults else name, each)
            fault = lab.peers_fault() if verdict == "failed" else None
            if fault is None:
                break
            faults.append(f"{fault}; {lab.cell_folder}")
            if len(faults) == TRIES_MAX:
                # It found nothing about our side, neither good nor bad.
                verdict, line = "skipped", f"the peer failed in each of {TRIES_MAX} tries"
                break
        tries = [f"try {number}: {fault}" for number, fault in enumerate(faults, 1)]
        self._print_result(name, verdict, time.monotonic() - start, "; ".join(filter(None, [line, *tries])))

    @staticmethod
    def _try(lab, name, each):
        """Runs a cell once. Gives how it ended, and why."""
        verdict, line = "passed", ""
        try:
            lab.begin(name)
            each.run(lab)
            line = lab.dissect()
        except Skipped as reason:
            verdict, line = "skipped", str(reason)
        except Failed as failure:
            verdict, line = "failed", f"{failure}; {lab.cell_folder}"
        finally:
            lab.end(verdict != "failed")
        return verdict, line

    def _print_result(self, name, verdict, seconds, line):
        self.score[verdict] += 1
        print(f"{name:52} {verdict:8} {seconds:6.1f} s  {line}".rstrip(), flush=True)


def matches(name, patterns):
    """Whether a name is among those asked for."""
    return not patterns or any(fnmatch.fnmatch(name, pattern) for pattern in patterns)
