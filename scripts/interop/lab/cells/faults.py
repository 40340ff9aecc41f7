"""What goes wrong between two hosts: either end leaves, dies or restarts, the link is cut, frames are lost or late."""

import time

from cells.rping import call, serve
from cells.verbs import both, peer_calls, peer_listens, start_peer, we_call
from fabric import HOST_DEVICES
from matrix import cell
from outcome import check

# A peer that is silent is given up soon.
IMPATIENT = "[tcp]\nuser_timeout_ms = 4000\nkeep_alive = { idle_s = 1, interval_s = 1, probes = 3 }\n"


def idle_peer(lab, sections=""):
    """A connection that is up and idle: our process, and the guest's."""
    node = lab.node("iwarp-responder", sections=sections).wait_listening()
    job = lab.guest.start(f"peer --operation send --count 2 --stay connect {lab.fabric.ours}", 120)
    # Two echoes.
    node.wait_for(lambda: len(node.of("completion")) >= 4, 20, "is not sent to")
    return node, job


def must_disconnect(node, reasons, seconds=20):
    """Our application gets an event with the reason of the end."""
    node.wait_for(lambda: node.of("disconnected"), seconds, "does not hear that its peer has gone")
    told = node.of("disconnected")[0]["reason"]
    check(told in reasons, f"the end is reported as {told}, not as one of {reasons}")


def still_serves(lab, node):
    """The same process serves the next peer."""
    lab.guest.must(f"peer --operation send --count 5 connect {lab.fabric.ours}")
    node.interrupt()
    lab.nodes.pop()


@cell("faults/the-guest-disconnects")
def they_leave(lab):
    node = peer_calls(lab, "--operation send --count 5")
    check(node.of("disconnected")[0]["reason"] == "Closed", f"told as {node.of('disconnected')}")
    peer_listens(lab, "--operation send --count 5")


@cell("faults/we-disconnect")
def we_leave(lab):
    node = lab.node("iwarp-responder").wait_listening()
    job = lab.guest.start(f"peer --operation send --count 2 --await-close connect {lab.fabric.ours}", 60)
    node.wait_for(lambda: len(node.of("completion")) >= 4, 20, "is not sent to")
    node.interrupt()
    # The guest's connection manager tells its program.
    job.must()
    told = [line["reason"] for line in node.of("disconnected")]
    check(told == ["Closed"], f"the close was reported as {told}")


@cell("faults/peer-process-killed", HOST_DEVICES)
def killed(lab):
    node, job = idle_peer(lab)
    job.kill()
    must_disconnect(node, ("Closed", "Reset"))
    still_serves(lab, node)


@cell("faults/link-cut-and-restored", ("af_packet", "tap", "af_xdp"))
def cut(lab):
    """TCP bears a cut that ends before its patience does."""
    server = lab.node("iwarp-responder").wait_listening()
    job = lab.guest.start(f"peer --operation send --size 4096 --count 3000 connect {lab.fabric.ours}", 120)
    server.wait_for(lambda: len(server.of("completion")) >= 20, 20, "is not sent to")
    lab.fabric.cut()
    time.sleep(2)
    lab.fabric.restore()
    job.must()
    server.interrupt()
    lab.nodes.pop()


@cell("faults/link-cut-for-good")
def cut_for_good(lab):
    node, _ = idle_peer(lab, IMPATIENT)
    lab.fabric.cut()
    try:
        must_disconnect(node, ("TimedOut",), 30)
    finally:
        lab.fabric.restore()
    node.interrupt()
    lab.nodes.pop()


@cell("faults/guest-rebooted")
def rebooted(lab):
    """The new system knows nothing of the connection. Ours hears so, and serves it again."""
    node, _ = idle_peer(lab, IMPATIENT)
    lab.guest.stop()
    lab.up()
    must_disconnect(node, ("TimedOut", "Reset"), 30)
    still_serves(lab, node)


@cell("faults/nobody-listens")
def nobody(lab):
    node = we_call(lab).must_end(60)
    must_disconnect(node, ("Refused",))


@cell("faults/no-such-host")
def no_host(lab):
    lab.guest.stop()
    node = we_call(lab).must_end(60)
    must_disconnect(node, ("Unreachable",))


def ping_with_netem(lab, netem):
    """Pings, Sends and Reads both ways while frames suffer in both directions."""
    lab.degrade(netem)
    lab.siw(mpa_crc_required=1)
    serve(lab, 60, 20000, 120)
    call(lab, 60, 20000, 120)
    both(lab, "--operation send --size 16384 --count 60 --depth 8", 120, ("--receives", 64))
    both(lab, "--operation read --size 65536 --count 32 --depth 8", 120)


@cell("faults/netem/loss-1-percent", HOST_DEVICES)
def loss(lab):
    ping_with_netem(lab, "limit 10000 loss 1%")


@cell("faults/netem/reorder")
def reorder(lab):
    ping_with_netem(lab, "limit 10000 delay 2ms reorder 80%")


@cell("faults/netem/duplicate")
def duplicate(lab):
    ping_with_netem(lab, "limit 10000 duplicate 5%")


@cell("faults/netem/delay-and-jitter")
def delay(lab):
    ping_with_netem(lab, "limit 10000 delay 5ms 2ms")
