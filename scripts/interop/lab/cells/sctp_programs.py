"""RDMA over SCTP: iwarp-responder against the independent peer of scripts/interop/sctp-peer over usrsctp, in both roles.

The peer drives each scenario and compares every byte. It runs at this machine's address on our wire. No frame passes the
guest's card, so our process captures them.
"""

import time

from cells.sctp import OPERATIONS, PORT, SESSIONS, Outside
from fabric import run
from matrix import cell
from outcome import check

SETTINGS = '[rdmap]\nextensions = "rfc7306"\n[stack]\ntransport = "sctp"\n'
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


def responder(lab, *arguments):
    capture = lab.cell_folder / f"wire-{next(lab.captures)}.pcapng"
    return lab.node("iwarp-responder", *arguments, *MEMORY, "--pcap", capture, sections=SETTINGS)


def listen(lab, *arguments):
    return responder(lab, "--listen", f"{lab.fabric.ours}:{PORT}", *arguments).wait_listening()


def terminates(node, event):
    return [(line["layer"], line["type"], line["code"]) for line in node.of(event)]


def stop(node):
    """Ends our listener. Every session must have ended before."""
    begun = len(node.of("connected"))
    node.wait_for(lambda: len(node.of("disconnected")) == begun, 10, f"has not ended all of {begun} sessions")
    node.interrupt()


def drive(lab, words):
    """Starts a peer that connects to us and drives."""
    call = f"connect --local {lab.fabric.add_kernel_address()} --remote {lab.fabric.ours} {words}"
    return Outside(lab, call.split())


def must(lab, peer):
    """Waits for a peer's good end."""
    peer.must()
    lab.nodes.remove(peer)
    return peer


def serve(lab, words, *arguments):
    """A peer listens and drives; we connect. Gives both, ended."""
    address = lab.fabric.add_kernel_address()
    peer = Outside(lab, f"serve --local {address} {words}".split()).wait_listening()
    node = responder(lab, "--connect", f"{address}:{PORT}", *arguments)
    must(lab, peer)
    return node.must_end(30), peer


@cell("sctp/we-listen/smoke", smoke=True)
def we_listen_smoke(lab):
    node = listen(lab)
    for words in SMOKE:
        must(lab, drive(lab, words))
    stop(node)


@cell("sctp/we-connect/smoke", smoke=True)
def we_connect_smoke(lab):
    serve(lab, GOOD)


@cell("sctp/we-listen/operations")
def we_listen_operations(lab):
    node = listen(lab)
    for words in OPERATIONS:
        for more in (SESSIONS, "--shuffle 4 --enhanced"):
            must(lab, drive(lab, f"{words} {more}"))
    stop(node)


@cell("sctp/we-connect/operations")
def we_connect_operations(lab):
    for words in OPERATIONS:
        serve(lab, words)


@cell("sctp/we-listen/refused")
def we_listen_refused(lab):
    """Each gets its Terminate, and the next peer is served."""
    node = listen(lab)
    for scenario in TERMINATES:
        must(lab, drive(lab, f"--scenario {scenario}"))
    must(lab, drive(lab, "--scenario terminate"))
    must(lab, drive(lab, GOOD))
    stop(node)
    sent, received = terminates(node, "terminate_sent"), terminates(node, "terminate_received")
    check(sent == list(TERMINATES.values()), f"our Terminates were {sent}")
    check(received == [(0, 0, 0)], f"the peer's Terminates were {received}")


@cell("sctp/we-connect/refused")
def we_connect_refused(lab):
    for scenario, terminate in TERMINATES.items():
        node, _ = serve(lab, f"--scenario {scenario}")
        sent = terminates(node, "terminate_sent")
        check(sent == [terminate], f"{scenario}: our Terminates were {sent}")
    node, _ = serve(lab, "--scenario respond --linger 1", "--ask", "fetch-add")
    received = terminates(node, "terminate_received")
    check(received == [(0, 1, 0)], f"the peer's Terminates were {received}")


@cell("sctp/we-listen/breaches")
def we_listen_breaches(lab):
    """RFC 5043 s5, s6: the session ends, and the next peer is served."""
    node = listen(lab)
    for bad in BREACHES:
        for form in ("", "--enhanced"):
            must(lab, drive(lab, f"--scenario none --bad {bad} {form}"))
    # s7.1, s11.1: nothing is set up without the indication.
    for bad in ("no-indication", "other-indication"):
        must(lab, drive(lab, f"--scenario none --bad {bad} --expect abort"))
    must(lab, drive(lab, GOOD))
    stop(node)


@cell("sctp/we-listen/rejects")
def we_listen_rejects(lab):
    node = listen(lab, "--refuse")
    for form in ("", "--enhanced"):
        peer = must(lab, drive(lab, f"--scenario none {form} --expect reject"))
        rejects = [line["private"] for line in peer.lines if line["event"] == "control" and line["kind"] == "reject"]
        check(rejects == [b"refused".hex()], f"the private data of our Reject was {rejects}")
    node.interrupt()


@cell("sctp/we-connect/rejected")
def we_connect_rejected(lab):
    for reject in ("--reject plain", "--reject enhanced", "--require-ord 16000"):
        node, _ = serve(lab, f"--scenario respond --private no {reject}")
        check(len(node.of("rejected")) == 1, f"{reject}: {node.events()}")


@cell("sctp/we-listen/2-percent-loss")
def we_listen_loss(lab):
    node = listen(lab, "--drop", 20000)
    for words in LONG:
        must(lab, drive(lab, words))
    stop(node)


@cell("sctp/we-connect/2-percent-loss")
def we_connect_loss(lab):
    for words in LONG:
        serve(lab, words, "--drop", 20000)


@cell("sctp/we-listen/link-cut-and-restored")
def link_cut_and_restored(lab):
    node = listen(lab)
    peer = drive(lab, "--scenario write --size 20000 --duration 5")
    time.sleep(1.5)
    run("ip link set peer0 down")
    time.sleep(1)
    run("ip link set peer0 up")
    result = must(lab, peer).lines[-1]
    check(900 < result["stall_ms"] < 3000, f"{result['stall_ms']} ms without progress")
    stop(node)


@cell("sctp/we-listen/peer-restarted")
def peer_restarted(lab):
    """RFC 9260 s5.2: a peer that was killed comes back from the same port. Its old session ends, and it is served."""
    node = listen(lab)
    peer = drive(lab, "--scenario write --size 20000 --duration 20 --local-port 5044")
    time.sleep(1)
    peer.kill()
    must(lab, drive(lab, f"{GOOD} --local-port 5044"))
    stop(node)
