"""Our stack in the guest, on cards that DPDK drives there, with `core.idle = "sleep"`: receive interrupts wake it, or a timer.

The log says which of both. vfio's interrupts are those that the guest's kernel has counted.
"""

from cells.pci import PING, Card
from matrix import cell
from outcome import check

WAITS = "waits for receive interrupts"
WOKEN = "woken by a receive interrupt"
NONE = "no receive interrupts"
# Echo requests, each after a time without frames.
ECHOES = 10


class SleepyCard(Card):
    """A card whose stack sleeps between frames, with an argument for DPDK."""

    def __init__(self, lab, slot, config, network, driver, argument=None):
        super().__init__(lab, slot, config, network, driver)
        original, self.config = self.config, "/tmp/sleep.toml"
        edits = f"s/0000:00:0[0-9]/0000:00:0{slot}/"
        if argument:
            edits += f'; s/^.eal.$/&\\nextra_args = ["{argument}"]/'
        lab.guest.must(f"sed '{edits}' {original} > {self.config}; printf '\\n[core]\\nidle = \"sleep\"\\n' >> {self.config}")

    def interrupts(self):
        """How many of this card's vfio has passed on since a program opened it."""
        lines = self.lab.guest.must(f"grep 'vfio.*00:0{self.slot}.0' /proc/interrupts; true").splitlines()
        return sum(int(word) for line in lines for word in line.split()[1:3])


def asleep(lab, *card, has_interrupts):
    """The stack of a card sleeps, and replies to echo requests, to our stack outside, and to siw. Gives its log."""
    card = SleepyCard(lab, *card)
    server = card.program(f"{PING} --server --persistent --size 65535 --log info")
    try:
        lab.guest.must(f"until ping -c 1 -W 1 {card.address}; do usleep 100000; done", 30)
        before = card.interrupts()
        lab.guest.must(f"ping -c {ECHOES} -i 0.3 -W 2 {card.address}", 30)
        raised = card.interrupts() - before
        for size in (100, 65535):
            options = ("--client", "--json", "--verify", "--address", card.address, "--count", 20, "--size", size)
            lab.node("iwarp-ping", *options).must_end(60)
            lab.nodes.pop()
            lab.guest.must(f"rping -c -a {card.address} -C 20 -S {size} -V", 60)
        check(server.poll() is None, f"the server has ended: {server.poll() and server.poll().said[-300:]}")
    finally:
        server.kill()
    said = server.wait().said
    check((WOKEN in said) == has_interrupts, f"interrupts wake it: {not has_interrupts}; it: {said.strip()[-600:]}")
    if has_interrupts:
        check(raised >= ECHOES, f"{raised} interrupts for {ECHOES} echo requests")
    else:
        check(raised == 0, f"{raised} interrupts, of which the stack has seen none")
    return said


@cell("e1000e-vfio/sleep-msi", ("pci",))
def msi(lab):
    asleep(lab, 4, "e1000e", "10.99.7", "vfio-pci", "--vfio-intr=msi", has_interrupts=True)


@cell("e1000e-vfio/sleep-intx", ("pci",))
def intx(lab):
    asleep(lab, 4, "e1000e", "10.99.7", "vfio-pci", "--vfio-intr=legacy", has_interrupts=True)


@cell("e1000e-vfio/sleep-msix", ("pci",))
def msix(lab):
    """DPDK's driver enables interrupts and assigns no vector to them, so none comes: the card is polled."""
    said = asleep(lab, 4, "e1000e", "10.99.7", "vfio-pci", has_interrupts=False)
    check(WAITS in said, f"the driver offers no interrupts: {said.strip()[-600:]}")


@cell("virtio-vfio/sleep", ("pci",))
def virtio(lab):
    asleep(lab, 6, "virtio-pci", "10.99.6", "vfio-pci", has_interrupts=True)


@cell("virtio-vfio/sleep-no-vectors", ("pci",))
def virtio_without_vectors(lab):
    """The driver refuses the configuration with interrupts, and is configured again without."""
    said = asleep(lab, 7, "virtio-pci", "10.99.6", "vfio-pci", has_interrupts=False)
    check(NONE in said, f"nothing was refused: {said.strip()[-600:]}")


@cell("virtio-uio/sleep", ("pci",))
def virtio_uio(lab):
    said = asleep(lab, 5, "virtio-pci", "10.99.6", "uio_pci_generic", has_interrupts=False)
    check(NONE in said, f"it is not said that there are no interrupts: {said.strip()[-600:]}")
