"""Our programs in the guest, on cards that its kernel has given up, in place of the kernel's own stack.

They come one by one, or as the release archive, which is unpacked there. The configurations are those under configs/, as they are; so are the scripts that take the card and the hugepages. Outside
there is our stack over a raw socket; the guest's siw reaches us through its own card, the bridge outside, and
back in by the other; so do the guest's echo requests.
"""

import json

from matrix import cell
from outcome import Skipped, check

PING = "iwarp-ping --json --verify"


class Card:
    """A card of the guest's, its configuration, and addresses: its stack's, our stack's outside, and the guest's kernel's."""

    def __init__(self, lab, slot, config, network, driver, unpacked=""):
        self.lab, self.slot, self.config = lab, slot, f"{unpacked}/configs/{config}.toml"
        path = f"PATH={unpacked}/bin:{unpacked}/scripts:$PATH; " if unpacked else ""
        self.path = path
        self.address, outside, siw = (f"{network}.{number}" for number in (1, 2, 3))
        lab.fabric.ours = outside
        lab.guest.must(f"/sbin/ip address replace {siw}/24 dev eth0")
        lab.guest.must(f"{path}hugepages.sh alloc 256")
        lab.guest.must(f"{path}nic.sh bind 0000:00:0{slot}.0 {driver}")

    def program(self, words, limit=90):
        """A program of ours on the card."""
        return self.lab.guest.start(f"{self.path}{words} --config {self.config}", limit)


def through(lab, *card):
    """Everything that is tried with a card."""
    card = Card(lab, *card)
    ask_the_doctor(card)
    they_ping(lab, card)
    we_ping(lab, card)
    measure(lab, card)


def ask_the_doctor(card):
    """It finds the card in order."""
    told = card.program("iwarp-perf doctor").wait()
    check(told.code == 0, f"the doctor: {told.said.strip()[-300:]}")


def they_ping(lab, card):
    """The card's stack listens: to echo requests, our stack outside, and siw of the same guest."""
    server = card.program(f"{PING} --server --persistent --size 65535")
    try:
        # The stack takes its time to start.
        lab.guest.must(f"until ping -c 1 -W 1 {card.address}; do usleep 100000; done; ping -c 3 {card.address}", 30)
        for size in (100, 65535):
            options = ("--client", "--json", "--verify", "--address", card.address, "--count", 20, "--size", size)
            lab.node("iwarp-ping", *options).must_end(60)
            lab.nodes.pop()
            lab.guest.must(f"rping -c -a {card.address} -C 20 -S {size} -V", 60)
        check(server.poll() is None, f"the server has ended: {server.poll() and server.poll().said[-300:]}")
    finally:
        server.kill()


def we_ping(lab, card):
    """The card's stack connects to ours outside."""
    for size in (100, 65535):
        server = lab.node("iwarp-ping", "--server", "--json", "--verify", "--count", 20, "--size", size).wait_listening()
        card.program(f"{PING} --client --address {lab.fabric.ours} --count 20 --size {size}").must()
        server.must_end(60)
        lab.nodes.pop()


def measure(lab, card):
    """Every byte of what iwarp-perf moves is checked."""
    lab.node("iwarp-perf", "server")
    for test in ("send-lat", "write-bw", "read-bw"):
        words = f"iwarp-perf {test} --connect {lab.fabric.ours} --duration 1 --validate --json /tmp/r.json"
        ended = card.program(words).wait()
        check(ended.code == 0, f"iwarp-perf {test}: {ended.said.strip()[-300:]}")
        result = json.loads(lab.guest.must("cat /tmp/r.json"))["results"][0]
        check(result["errors"] == 0, f"{test}: {result['errors']} errors")


@cell("e1000e-vfio", ("pci",))
def e1000e_vfio(lab):
    through(lab, 4, "e1000e", "10.99.7", "vfio-pci")


@cell("e1000e-uio", ("pci",))
def e1000e_uio(lab):
    through(lab, 4, "e1000e", "10.99.7", "uio_pci_generic")


@cell("virtio-uio", ("pci",))
def virtio_uio(lab):
    through(lab, 5, "virtio-pci", "10.99.6", "uio_pci_generic")


@cell("e1000e-vfio", ("release",))
def unpacked_e1000e(lab):
    """A machine without DPDK, and without anything of ours but what the archive has."""
    if not lab.archive:
        raise Skipped("no --archive, which scripts/release.sh makes")
    lab.guest.must("cd /srv && tar -xzf ironwarp.tar.gz && cd ironwarp-*/ && sha256sum -c SHA256SUMS")
    unpacked = lab.guest.must("echo /srv/ironwarp-*/").strip().rstrip("/")
    through(lab, 4, "e1000e", "10.99.7", "vfio-pci", unpacked)
