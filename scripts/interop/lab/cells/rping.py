"""Linux's rping against iwarp-ping, which speaks its protocol, in both roles. Both ends compare every byte."""

from fabric import HOST_DEVICES
from guest import ADDRESS as GUEST
from matrix import cell
from outcome import check

PORT = 7174
# siw as the accepting side can lose its own first message when ours follows its reply at once. On real machines 5000 will
# do; an emulated one on a busy machine is twenty times slower.
HOLD_OFF = ("--hold-off", 100000)
# rping takes 23 to 65535 bytes. 1444 is what one segment carries.
SIZES = (23, 1444, 1445, 4096, 65535)


def serve(lab, count, size, limit=60, sections=""):
    """We listen; rping connects and pings."""
    options = ("--server", "--json", "--verify", "--count", count, "--size", size)
    server = lab.node("iwarp-ping", *options, sections=sections).wait_listening()
    client = lab.guest.run(rping_to(lab, count, size), limit)
    check(client.code == 0, f"rping -c ended with {client.code}: {client.said.strip()[-200:]}")
    server.must_end(60)


def call(lab, count, size, limit=60, sections=""):
    """rping listens; we connect and ping."""
    server = lab.guest.start(f"rping -s -a {GUEST} -C {count} -S {size} -V", limit)
    lab.guest.wait_listening(PORT)
    ping(lab, count, size, sections).must_end(limit)
    ended = server.wait()
    check(ended.code == 0, f"rping -s ended with {ended.code}: {ended.said.strip()[-200:]}")


def ping(lab, count, size, sections=""):
    """A client of ours, whatever the server is."""
    options = ("--client", "--json", "--verify", "--address", GUEST, "--count", count, "--size", size)
    return lab.node("iwarp-ping", *options, *HOLD_OFF, sections=sections)


def rping_to(lab, count, size):
    """The client of the guest's."""
    return f"rping -c -a {lab.fabric.ours} -C {count} -S {size} -V"


@cell("rping/we-listen/100-bytes", HOST_DEVICES, smoke=True)
def we_listen(lab):
    serve(lab, 50, 100)


@cell("rping/we-connect/100-bytes", HOST_DEVICES, smoke=True)
def we_connect(lab):
    call(lab, 50, 100)


@cell("rping/we-listen/23-bytes-to-64-KiB", HOST_DEVICES)
def we_listen_sizes(lab):
    for size in SIZES:
        serve(lab, 20, size)


@cell("rping/we-connect/23-bytes-to-64-KiB", HOST_DEVICES)
def we_connect_sizes(lab):
    for size in SIZES:
        call(lab, 20, size)


@cell("rping/we-listen/persistent", HOST_DEVICES)
def we_listen_persistent(lab):
    """One server of ours, several clients, two of them at once."""
    server = lab.node("iwarp-ping", "--server", "--persistent", "--json", "--verify").wait_listening()
    for _ in range(2):
        jobs = [lab.guest.start(rping_to(lab, 20, size)) for size in (100, 20000)]
        for job in jobs:
            ended = job.wait()
            check(ended.code == 0, f"rping -c ended with {ended.code}: {ended.said.strip()[-200:]}")
    server.interrupt()


@cell("rping/we-connect/persistent", HOST_DEVICES)
def we_connect_persistent(lab):
    """One server of rping's, several clients of ours, one after the other."""
    server = lab.guest.start(f"rping -s -P -a {GUEST} -S 65535 -V", 90)
    lab.guest.wait_listening(PORT)
    for size in (100, 20000, 100):
        ping(lab, 20, size).must_end(60)
        lab.nodes.pop()
    check(server.poll() is None, "the persistent rping has ended")
    server.kill()
