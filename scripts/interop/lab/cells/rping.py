"""Linux's rping against iwarp-ping, which speaks its protocol, in both roles."""

from guest import ADDRESS as GUEST
from fabric import DEVICES
from matrix import cell
from outcome import check

PORT = 7174
# siw as the accepting side can lose its own first message when ours follows its reply at once.
HOLD_OFF = ("--hold-off", 5000)
SIZES = (1, 100, 1444, 4096, 65536)
# rping's own least: a text begins with its ping's number.
SIZES_OF_RPING = (64, 100, 1444, 4096, 65536)


def serve(lab, count, size, limit=60, options=()):
    """We listen, rping connects, pings and compares every byte."""
    server = lab.node("iwarp-ping", "--server", "--json", "--verify", "--count", count, "--size", size, *options)
    server.wait_listening()
    lab.up()
    client = lab.guest.run(f"rping -c -a {lab.fabric.ours} -C {count} -S {size} -V", limit)
    check(client.code == 0, f"rping -c ended with {client.code}: {client.said.strip()[-200:]}")
    server.must_end(15)


def call(lab, count, size, limit=60, options=HOLD_OFF):
    """rping listens, we connect, ping and compare every byte."""
    server = lab.guest.start(f"rping -s -a {GUEST} -C {count} -S {size} -V", limit)
    lab.guest.wait_listening(PORT)
    client = lab.node(
        "iwarp-ping", "--client", "--json", "--verify", "--address", GUEST, "--count", count, "--size", size, *options
    )
    client.must_end(limit)
    ended = server.wait()
    check(ended.code == 0, f"rping -s ended with {ended.code}: {ended.said.strip()[-200:]}")


@cell("rping/we-listen/100-bytes", DEVICES, smoke=True)
def we_listen(lab):
    serve(lab, 50, 100)


@cell("rping/we-connect/100-bytes", DEVICES, smoke=True)
def we_connect(lab):
    call(lab, 50, 100)
