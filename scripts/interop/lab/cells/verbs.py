"""Verbs of the guest's against iwarp-responder: every operation that siw has, in both roles of the connection.

In both roles, the guest's program does the operations and compares; ours keeps memory, echoes Sends and answers.
"""

from fabric import HOST_DEVICES
from guest import ADDRESS as GUEST
from matrix import cell
from outcome import check
from proxy import Proxy

PORT = 4791
HOLD_OFF = "[mpa]\nfirst_fpdu_holdoff_us = 100000\n"
LARGE = 16 << 20


def peer_calls(lab, arguments, limit=60, options=(), sections="", at=None):
    """We listen; the guest's program connects and operates. Gives our process, ended."""
    node = lab.node("iwarp-responder", *options, sections=sections).wait_listening()
    lab.guest.must(f"peer {arguments} connect {at or lab.fabric.ours}", limit)
    node.wait_for(lambda: node.of("disconnected"), 10, "does not hear that its peer has gone")
    check(not of_errors(node), f"iwarp-responder: {of_errors(node)[:1]}")
    lab.nodes.pop()
    return node.interrupt()


def peer_listens(lab, arguments, limit=60, options=(), sections=HOLD_OFF, at=GUEST):
    """The guest's program listens and operates once we have connected. Gives our process, ended."""
    job = start_peer(lab, arguments, limit)
    node = we_call(lab, *options, sections=sections, at=at)
    job.must()
    node.must_end(60)
    check(node.of("connected"), "iwarp-responder does not tell that it is connected")
    check(not of_errors(node), f"iwarp-responder: {of_errors(node)[:1]}")
    lab.nodes.pop()
    return node


def start_peer(lab, arguments, limit=60):
    """The guest's program, listening."""
    job = lab.guest.start(f"peer {arguments} listen", limit)
    lab.guest.wait_listening(PORT)
    return job


def we_call(lab, *options, sections=HOLD_OFF, at=GUEST):
    """Our process, connecting."""
    return lab.node("iwarp-responder", "--connect", f"{at}:{PORT}", *options, sections=sections)


def of_errors(node):
    """Terminates and failed requests that no cell of this module should see. Those that were flushed did not fail."""
    failed = [line for line in node.of("completion") if line["status"] not in ("Success", "FlushedInError")]
    return node.of("terminate_sent") + node.of("terminate_received") + failed


def both(lab, arguments, limit=60, options=()):
    """In both roles."""
    peer_calls(lab, arguments, limit, options)
    peer_listens(lab, arguments, limit, options)


@cell("verbs/send/0-to-16-KiB", HOST_DEVICES)
def send(lab):
    for size in (0, 1, 2, 1433, 1500, 16384):
        both(lab, f"--operation send --size {size} --count 20 --depth 4")


@cell("verbs/send/16-MiB")
def send_large(lab):
    both(lab, f"--operation send --size {LARGE} --count 2", 120, ("--message-bytes", LARGE, "--receives", 2))


@cell("verbs/send/solicited-event")
def solicited(lab):
    for run in (peer_calls, peer_listens):
        node = run(lab, "--operation send-se --size 100 --count 20")
        receives = [line for line in node.of("completion") if line["opcode"] == "Receive" and line["status"] == "Success"]
        told = [line["solicited"] for line in receives]
        check(told == [True] * 20, f"of 20 solicited Sends {sum(told)} were told as such")


@cell("verbs/send/invalidate")
def invalidate(lab):
    """Once: the tag is gone then."""
    for run in (peer_calls, peer_listens):
        node = run(lab, "--operation send-inv --size 100 --count 1")
        tags = [line["invalidated"] for line in node.of("completion") if line["invalidated"] is not None]
        check(len(tags) == 1, f"one tag was to be invalidated, not {tags}")


@cell("verbs/write/0-to-64-KiB", HOST_DEVICES)
def write(lab):
    for size in (0, 1, 2, 1433, 1500, 65536):
        both(lab, f"--operation write --size {size} --count 20 --depth 4")


@cell("verbs/write/16-MiB")
def write_large(lab):
    both(lab, f"--operation write --size {LARGE} --count 2", 120, ("--bytes", LARGE))


@cell("verbs/read/0-to-64-KiB", HOST_DEVICES)
def read(lab):
    for size in (0, 1, 2, 1433, 1500, 65536):
        both(lab, f"--operation read --size {size} --count 20 --depth 4")


@cell("verbs/read/16-MiB")
def read_large(lab):
    both(lab, f"--operation read --size {LARGE} --count 2", 120, ("--bytes", LARGE))


@cell("verbs/many-queue-pairs")
def many(lab):
    peer_calls(lab, "--operation send --size 2000 --count 4 --qps 64", 120)
    peer_listens(lab, "--operation send --size 2000 --count 4 --qps 64", 120, ("--connections", 64))


@cell("verbs/many-outstanding")
def outstanding(lab):
    # A receive is posted again once its echo is acknowledged, which is after the guest has the echo.
    options = ("--receives", 128)
    for operation in ("send", "write", "read"):
        both(lab, f"--operation {operation} --size 8192 --count 320 --depth 32 --ord 32", 120, options)


@cell("verbs/zero-copy/unsignaled-writes")
def zero_copy(lab):
    """siw hands pages of unsignaled requests to TCP as they are: the CRC comes in a segment of its own."""
    for crc in (0, 1):
        lab.siw(zcopy_tx=1, mpa_crc_required=crc)
        both(lab, "--operation write --size 65536 --count 40 --depth 8 --unsignaled")


@cell("verbs/gso/refused")
def gso_refused(lab):
    """siw offers FPDUs longer than any segment by a bit of its own in the start-up frames, which we leave unset."""
    for crc in (0, 1):
        lab.siw(try_gso=1, mpa_crc_required=crc)
        both(lab, "--operation write --size 65536 --count 40 --depth 8")
        both(lab, "--operation send --size 16384 --count 40 --depth 8", 60, ("--receives", 64))


@cell("verbs/gso/fpdus-beyond-a-segment")
def gso(lab):
    """siw sends them where it finds its bit, which a proxy sets: what spans many segments is taken, placed and checked."""
    at = lab.fabric.add_kernel_address()
    for crc in (0, 1):
        lab.siw(try_gso=1, mpa_crc_required=crc)
        for run, target, siw_called in ((peer_calls, lab.fabric.ours, False), (peer_listens, GUEST, True)):
            proxy = Proxy(at, PORT, (target, PORT), siw_called)
            try:
                run(lab, "--operation write --size 65536 --count 40 --depth 8", at=at)
                run(lab, "--operation send --size 16384 --count 40 --depth 8", options=("--receives", 64), at=at)
            finally:
                proxy.close()
            check(proxy.ulpdu_bytes_max > lab.fabric.mtu, f"siw's longest ULPDU had {proxy.ulpdu_bytes_max} bytes")


def refused(lab, operation, opcode):
    """siw does not know the operation: its Terminate reaches our application, and it serves the next peer."""
    job = start_peer(lab, "--stay", 60)
    extensions = HOLD_OFF + '[rdmap]\nextensions = "rfc7306"\n'
    node = we_call(lab, "--ask", operation, sections=extensions)
    node.wait_for(lambda: node.of("disconnected"), 20, "does not hear that its peer has gone")
    node.must_end(60)
    told = [(line["layer"], line["type"], line["code"]) for line in node.of("terminate_received")]
    # RFC 5040 s4.8: RDMAP, remote operation error, unexpected opcode.
    check(told == [(0, 2, 6)], f"the application got Terminates {told}, not of 0/2/6")
    asked = [line for line in node.of("completion") if line["opcode"] == opcode]
    # What is only sent is complete once TCP has its acknowledgement; what is answered is not.
    well = opcode == "Immediate" or (asked and asked[0]["status"] != "Success")
    check(len(asked) == 1 and well, f"the request completed as {asked}")
    lab.nodes.pop()
    job.kill()
    peer_calls(lab, "--operation send --size 100 --count 5")
    peer_listens(lab, "--operation send --size 100 --count 5")


@cell("verbs/refused/atomic")
def atomic(lab):
    refused(lab, "fetch-add", "FetchAdd")


@cell("verbs/refused/immediate")
def immediate(lab):
    refused(lab, "immediate", "Immediate")
