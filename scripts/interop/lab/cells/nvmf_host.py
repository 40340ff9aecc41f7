"""Our host of NVMe over Fabrics against Linux's own target, nvmet-rdma over siw."""

import hashlib
import json

import storage
from cells.verbs import HOLD_OFF
from guest import ADDRESS as GUEST
from matrix import cell
from outcome import check

TO = ("--connect", f"{GUEST}:{storage.PORT}", "--nqn", storage.KERNEL_NQN)


def host(lab, *words):
    """Runs a command of our host to its end."""
    node = lab.node("iwarp-nvmf", "host", *words, sections=HOLD_OFF).must_end(120)
    lab.nodes.remove(node)
    return node


@cell("nvmf/our-host/discover-identify-read")
def identify(lab):
    target = storage.KernelTarget(lab.guest, GUEST, mib=16)
    lab.guest.must("dd if=/dev/urandom of=/dev/ram0 bs=64k count=256 && sync", 60)
    found = host(lab, "discover", *TO).out.read_text()
    check(storage.KERNEL_NQN in found, f"discovered {found}")
    told = host(lab, "identify", *TO).out.read_text()
    check("model Linux" in told and f"namespace 1: {16 << 11} blocks of 512 bytes" in told, f"identified {told}")
    read = host(lab, "read", *TO, "--slba", 64, "--blocks", 2048).out.read_bytes()
    wanted = lab.guest.must("dd if=/dev/ram0 bs=512 skip=64 count=2048 2>/dev/null | sha256sum").split()[0]
    check(hashlib.sha256(read).hexdigest() == wanted, f"{len(read)} bytes read are not those of the disk")
    target.remove()


def verified(lab, commands, *options):
    """Writes places with contents that name them, then reads and checks them."""
    target = storage.KernelTarget(lab.guest, GUEST)
    for operation in ("write", "read"):
        words = ("--operation", operation, "--depth", 16, "--queues", 2, "--sequential", "--verify", "--json", "--commands", commands)
        report = json.loads(host(lab, "bench", *TO, *words, *options).out.read_text())
        check(report["commands"] == commands, f"{operation}: {report}")
    target.remove()


@cell("nvmf/our-host/4-KiB-in-capsule")
def in_capsule(lab):
    verified(lab, 1000, "--bytes", 4096)


@cell("nvmf/our-host/4-KiB-keyed")
def keyed(lab):
    verified(lab, 1000, "--bytes", 4096, "--no-in-capsule")


@cell("nvmf/our-host/64-KiB-with-invalidation")
def invalidated(lab):
    verified(lab, 200, "--bytes", 65536, "--invalidate")
