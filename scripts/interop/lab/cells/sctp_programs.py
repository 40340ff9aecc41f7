"""RDMA over SCTP: iwarp-responder against the independent peer of scripts/interop/sctp-peer, in both roles.

The peer compares every byte. It runs over usrsctp at this machine's address on our wire, and over the kernel's SCTP in the guest.
"""

import contextlib
import functools
import time

from cells.sctp import OPERATIONS, PORT, SESSIONS, Inside, Outside
from fabric import HOST_DEVICES, run
from matrix import cell
from outcome import check

PEERS = {"usrsctp": Outside, "kernel": Inside}
SETTINGS = '[rdmap]\nextensions = "rfc7306"\n[stack]\ntransport = "sctp"\n'
# A silent peer is given up after three timeouts.
IMPATIENT = "[sctp]\nassociation_retries = 3\nheartbeat_interval_ms = 500\n"
# A second link of ours: to the guest in the bridge of the first, else of its own.
SECOND = {"ours": "10.78.0.1", "guest": "10.78.0.2", "outside": "10.78.0.254"}
TWO_LINKS = f"""
[sctp]
heartbeat_interval_ms = 200
multihoming = true
[[fabrics]]
port = {{ device.af_packet = {{ interface = "iwarp1" }} }}
net = {{ address = "{SECOND["ours"]}/24" }}
"""
# RFC 6951, at both ends the port of its registration.
IN_UDP = "[sctp]\nudp_local_port = 9899\nudp_encapsulation_port = 9899\n"
MEMORY = ("--bytes", 1 << 20, "--message-bytes", 1 << 17)
GOOD = "--scenario write --size 5000"
SMOKE = ("--scenario send --size 20000", "--scenario read --size 20000 --shuffle 4 --peer-to-peer", "--scenario atomic")
LONG = (
    "--scenario write --size 65536 --count 100",
    "--scenario send --size 20000 --count 40",
    "--scenario read --size 65536 --count 40",
)
# The layer, type and code of our Terminate.
TERMINATES = {
    "bad-write": (1, 1, 0),
    "bad-bounds": (1, 1, 1),
    "bad-read": (0, 1, 0),
    "bad-invalidate": (0, 1, 0),
    "bad-atomic": (0, 2, 7),
}
# What breaks a rule of RFC 5043 in a session, which ends.
BREACHES = (
    "segment-first long-private ssn-twice ssn-far initiate-twice accept function terminate-private ppid short ordered"
    " ddp-version"
).split()


def cells(name, peers=("usrsctp", "kernel"), **options):
    """A cell for each of the peer's SCTPs. The function gets the class of the peer."""

    def register(function):
        for each in peers:
            cell(f"sctp/{each}/{name}", **options)(functools.partial(function, peer=PEERS[each]))
        return function

    return register


def responder(lab, peer, *arguments, sections=""):
    # No frame of a peer outside passes the guest's card, where the lab captures.
    capture = ("--pcap", lab.cell_folder / f"wire-{next(lab.captures)}.pcapng") if peer is Outside else ()
    return lab.node("iwarp-responder", *arguments, *MEMORY, *capture, sections=SETTINGS + sections)


def listen(lab, peer, *arguments, sections=""):
    return responder(lab, peer, "--listen", f"{lab.fabric.ours}:{PORT}", *arguments, sections=sections).wait_listening()


def terminates(node, event):
    return [(line["layer"], line["type"], line["code"]) for line in node.of(event)]


def stop(node):
    """Ends our listener. Every session must have ended before."""
    begun = len(node.of("connected"))
    node.wait_for(lambda: len(node.of("disconnected")) == begun, 10, f"has not ended all of {begun} sessions")
    node.interrupt()


def drive(lab, peer, words):
    """Starts a peer that connects to us and drives."""
    return peer(lab, f"connect --remote {lab.fabric.ours} {words}")


def serve(lab, peer, words, *arguments, sections=""):
    """A peer listens and drives; we connect. Gives both, ended."""
    served = peer(lab, f"serve {words}").wait_listening()
    node = responder(lab, peer, "--connect", f"{peer.address(lab)}:{PORT}", *arguments, sections=sections)
    served.must()
    return node.must_end(30), served


@cells("we-listen/smoke", peers=("kernel",), devices=HOST_DEVICES, smoke=True)
@cells("we-listen/smoke", peers=("usrsctp",), smoke=True)
def we_listen_smoke(lab, peer):
    node = listen(lab, peer)
    for words in SMOKE:
        drive(lab, peer, words).must()
    stop(node)


@cells("we-connect/smoke", peers=("kernel",), devices=HOST_DEVICES)
@cells("we-connect/smoke", peers=("usrsctp",), smoke=True)
def we_connect_smoke(lab, peer):
    serve(lab, peer, GOOD)


@cells("we-listen/operations")
def we_listen_operations(lab, peer):
    node = listen(lab, peer)
    for words in OPERATIONS:
        for more in (SESSIONS, "--shuffle 4 --enhanced"):
            drive(lab, peer, f"{words} {more}").must()
    stop(node)


@cells("we-connect/operations")
def we_connect_operations(lab, peer):
    for words in OPERATIONS:
        serve(lab, peer, words)


@cells("we-listen/refused")
def we_listen_refused(lab, peer):
    """Each gets its Terminate, and the next peer is served."""
    node = listen(lab, peer)
    for scenario in TERMINATES:
        drive(lab, peer, f"--scenario {scenario}").must()
    drive(lab, peer, "--scenario terminate").must()
    drive(lab, peer, GOOD).must()
    stop(node)
    sent, received = terminates(node, "terminate_sent"), terminates(node, "terminate_received")
    check(sent == list(TERMINATES.values()), f"our Terminates were {sent}")
    check(received == [(0, 0, 0)], f"the peer's Terminates were {received}")


@cells("we-connect/refused")
def we_connect_refused(lab, peer):
    for scenario, terminate in TERMINATES.items():
        node, _ = serve(lab, peer, f"--scenario {scenario}")
        sent = terminates(node, "terminate_sent")
        check(sent == [terminate], f"{scenario}: our Terminates were {sent}")
    node, _ = serve(lab, peer, "--scenario respond --linger 1", "--ask", "fetch-add")
    received = terminates(node, "terminate_received")
    check(received == [(0, 1, 0)], f"the peer's Terminates were {received}")


@cells("we-listen/breaches")
def we_listen_breaches(lab, peer):
    """RFC 5043 s5, s6: the session ends, and the next peer is served."""
    node = listen(lab, peer)
    for bad in BREACHES:
        for form in ("", "--enhanced"):
            drive(lab, peer, f"--scenario none --bad {bad} {form}").must()
    # s7.1, s11.1: nothing is set up without the indication.
    for bad in ("no-indication", "other-indication"):
        drive(lab, peer, f"--scenario none --bad {bad} --expect abort").must()
    drive(lab, peer, GOOD).must()
    stop(node)


@cells("we-listen/rejects")
def we_listen_rejects(lab, peer):
    node = listen(lab, peer, "--refuse")
    for form in ("", "--enhanced"):
        driver = drive(lab, peer, f"--scenario none {form} --expect reject").must()
        rejects = [line["private"] for line in driver.lines if line["event"] == "control" and line["kind"] == "reject"]
        check(rejects == [b"refused".hex()], f"the private data of our Reject was {rejects}")
    node.interrupt()


@cells("we-connect/rejected")
def we_connect_rejected(lab, peer):
    for reject in ("--reject plain", "--reject enhanced", "--require-ord 16000"):
        node, _ = serve(lab, peer, f"--scenario respond --private no {reject}")
        check(len(node.of("rejected")) == 1, f"{reject}: {node.events()}")


@cells("we-listen/2-percent-loss")
def we_listen_loss(lab, peer):
    node = listen(lab, peer, "--drop", 20000)
    for words in LONG:
        drive(lab, peer, words).must()
    stop(node)


@cells("we-connect/2-percent-loss")
def we_connect_loss(lab, peer):
    for words in LONG:
        serve(lab, peer, words, "--drop", 20000)


@cells("we-listen/corruption", peers=("kernel",))
def we_listen_corruption(lab, peer):
    """A bit of one frame in fifty is wrong, in each direction. The cell compares every byte."""
    node = listen(lab, peer)
    lab.degrade("limit 10000 corrupt 2%")
    for words in LONG:
        drive(lab, peer, words).must()
    stop(node)


@cells("we-listen/its-own-timers", peers=("kernel",))
def its_own_timers(lab, peer):
    """RFC 9260 s16: the peer's RTO.Min is 1 s. Its SACKs come 200 ms late."""
    node = listen(lab, peer)
    for words in LONG:
        drive(lab, peer, f"{words} --rto-min 1000 --repeat 3").must()
    stop(node)


@cells("we-listen/link-cut-and-restored")
def link_cut_and_restored(lab, peer):
    node = listen(lab, peer)
    driver = drive(lab, peer, "--scenario write --size 20000 --duration 5")
    time.sleep(1.5)
    run("ip link set peer0 down")
    time.sleep(1)
    run("ip link set peer0 up")
    result = driver.must().result()
    check(900 < result["stall_ms"] < 3000, f"{result['stall_ms']} ms without progress")
    stop(node)


@cells("we-listen/peer-restarted")
def peer_restarted(lab, peer):
    """RFC 9260 s5.2: a peer that was killed comes back from the same port. Its old session ends, and it is served."""
    node = listen(lab, peer)
    driver = drive(lab, peer, "--scenario write --size 20000 --duration 20 --local-port 5044")
    time.sleep(1)
    driver.kill()
    drive(lab, peer, f"{GOOD} --local-port 5044").must()
    stop(node)


def give_up(lab, node):
    """The peer has become silent: our session ends, by the timeouts of DATA or of a HEARTBEAT."""
    node.wait_for(lambda: node.of("disconnected"), 30, "does not notice that its peer is silent")
    reasons = [line["reason"] for line in node.of("disconnected")]
    check(reasons == ["TimedOut"], f"the end is reported as {reasons}")


@cells("we-listen/link-cut-for-good", peers=("kernel",))
def link_cut_for_good(lab, peer):
    """While Read Responses are under way."""
    node = listen(lab, peer, sections=IMPATIENT)
    driver = drive(lab, peer, "--scenario read --size 65536 --duration 60 --expect abort")
    node.wait_for(lambda: node.of("connected"), 20, "is not connected to")
    time.sleep(1)
    lab.fabric.cut()
    try:
        give_up(lab, node)
        driver.kill()
    finally:
        lab.fabric.restore()
    drive(lab, peer, GOOD).must()
    stop(node)


@cells("we-listen/guest-rebooted", peers=("kernel",))
def guest_rebooted(lab, peer):
    """An idle peer is switched off. The new system connects from the same port."""
    node = listen(lab, peer, sections=IMPATIENT)
    drive(lab, peer, "--scenario respond --linger 60 --local-port 5044")
    node.wait_for(lambda: node.of("connected"), 20, "is not connected to")
    lab.guest.stop()
    give_up(lab, node)
    lab.up()
    drive(lab, peer, f"{GOOD} --local-port 5044").must()
    stop(node)


@contextlib.contextmanager
def two_links(lab, peer):
    """Gives the addresses of a peer that has two, as we do, one in each subnet."""
    second = SECOND["guest" if peer is Inside else "outside"]
    run("ip link add iwarp1 type veth peer name peer1")
    try:
        for name in ("iwarp1", "peer1"):
            run(f"ethtool -K {name} tx off gso off tso off gro off")
            run(f"ip link set {name} up")
        if peer is Inside:
            run("ip link set peer1 master bridge0")
            lab.guest.must(f"/sbin/ip address replace {second}/24 dev eth0")
        else:
            run(f"ip address add {second}/24 dev peer1")
        yield f"{peer.address(lab)},{second}"
    finally:
        run("ip link delete iwarp1")


def cut_first_link(after, seconds):
    time.sleep(after)
    run("ip link set peer0 down")
    time.sleep(seconds)
    run("ip link set peer0 up")


def must_have_switched(lab, peer):
    """The peer has sent over the second link and again over the first, and paused for less than the outage."""
    states, result = peer.states(lab.fabric.ours), peer.result()
    check(states[-2:] == ["unreachable", "available"], f"the states of our first address were {states}")
    check(result["stall_ms"] < 2500, f"{result['stall_ms']} ms without progress")


@cells("we-listen/first-link-cut")
def we_listen_first_link_cut(lab, peer):
    """RFC 9260 s8.2: Writes go on over the second link. The first one is used again when it is back."""
    with two_links(lab, peer) as addresses:
        node = listen(lab, peer, sections=TWO_LINKS)
        words = f"--local {addresses} --scenario write --size 20000 --duration 10 --heartbeat 200 --path-max-retrans 1"
        driver = drive(lab, peer, words)
        cut_first_link(2, 3)
        must_have_switched(lab, driver.must())
        stop(node)


@cells("we-connect/first-link-cut")
def we_connect_first_link_cut(lab, peer):
    with two_links(lab, peer) as addresses:
        # Reads: our side has the data to send.
        words = f"--local {addresses} --scenario read --size 20000 --duration 10 --heartbeat 200 --path-max-retrans 1"
        served = peer(lab, f"serve {words}").wait_listening()
        node = responder(lab, peer, "--connect", f"{peer.address(lab)}:{PORT}", sections=TWO_LINKS)
        cut_first_link(2, 3)
        must_have_switched(lab, served.must())
        node.must_end(30)


@cells("udp-encapsulation")
def udp_encapsulation(lab, peer):
    """RFC 6951, in both roles."""
    ports = "/proc/sys/net/sctp/udp_port /proc/sys/net/sctp/encap_port"
    if peer is Inside:
        lab.guest.must(f"modprobe sctp; echo 9899 | tee {ports}")
    try:
        node = listen(lab, peer, sections=IN_UDP)
        for words in OPERATIONS:
            drive(lab, peer, f"{words} --udp-encap 9899").must()
        stop(node)
        serve(lab, peer, f"{GOOD} --udp-encap 9899", sections=IN_UDP)
    finally:
        if peer is Inside:
            lab.guest.must(f"echo 0 | tee {ports}")
