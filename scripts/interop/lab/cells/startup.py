"""What the two ends agree on before the first byte: CRC, who may speak first, revisions, and how many Reads."""

from cells.rping import call, serve
from cells.verbs import HOLD_OFF, peer_calls, peer_listens, start_peer, we_call
from matrix import cell
from outcome import check

# What siw calls ready-to-receive messages, in network byte order.
RTR = {"write": 128, "read": 64}


def both(lab, sections="", **parameters):
    """Pings both ways under settings of ours and of siw's."""
    lab.siw(**parameters)
    serve(lab, 20, 3000, sections=sections)
    call(lab, 20, 3000, sections=sections)


@cell("start-up/crc/both-ask")
def crc_both(lab):
    both(lab, mpa_crc_required=1)


@cell("start-up/crc/only-we-ask")
def crc_ours(lab):
    both(lab, mpa_crc_required=0)


@cell("start-up/crc/only-siw-asks")
def crc_theirs(lab):
    both(lab, "[mpa]\ncrc = false\n", mpa_crc_required=1)


@cell("start-up/crc/neither-asks")
def crc_none(lab):
    both(lab, "[mpa]\ncrc = false\n", mpa_crc_required=0)


@cell("start-up/peer-to-peer/siw-offers-write")
def rtr_write(lab):
    lab.siw(peer_to_peer=1, rtr_type=RTR["write"])
    serve(lab, 20, 3000)


@cell("start-up/peer-to-peer/siw-offers-read")
def rtr_read(lab):
    lab.siw(peer_to_peer=1, rtr_type=RTR["read"])
    serve(lab, 20, 3000)


@cell("start-up/peer-to-peer/siw-offers-both", smoke=True)
def rtr_both(lab):
    lab.siw(peer_to_peer=1, rtr_type=RTR["write"] | RTR["read"], mpa_crc_required=1)
    serve(lab, 20, 3000)


@cell("start-up/peer-to-peer/we-offer-write")
def rtr_our_write(lab):
    call(lab, 20, 3000, sections='[mpa]\nrtr_kinds = ["write"]\n')


@cell("start-up/peer-to-peer/we-offer-read")
def rtr_our_read(lab):
    call(lab, 20, 3000, sections='[mpa]\nrtr_kinds = ["read"]\n')


@cell("start-up/peer-to-peer/we-offer-none")
def rtr_off(lab):
    call(lab, 20, 3000, sections="[mpa]\npeer_to_peer = false\n")


@cell("start-up/revision-1/we-connect")
def revision_1(lab):
    # rping's server reads, which revision 1 at siw has no number of Reads for; peer only answers Sends and is written.
    peer_listens(lab, "--operation send --size 3000 --count 20", sections=HOLD_OFF + "revision = 1\npeer_to_peer = false\n")


@cell("start-up/revision-1/we-listen")
def revision_1_listen(lab):
    lab.siw(mpa_version=1)
    peer_calls(lab, "--operation send --size 3000 --count 20")


@cell("start-up/reads/1-each-way")
def reads_1(lab):
    for run in (peer_calls, peer_listens):
        run(lab, "--operation read --size 5000 --count 20 --ird 1 --ord 1")


@cell("start-up/reads/128-each-way")
def reads_128(lab):
    for run in (peer_calls, peer_listens):
        run(lab, "--operation read --size 5000 --count 64 --depth 32 --ird 128 --ord 128")


@cell("start-up/private-data/accepted")
def private_data(lab):
    """What goes with an acceptance is the place of the memory, without which nothing could be read; see the request's."""
    node = peer_calls(lab, "--operation read --count 2 --private-bytes 251")
    assert_private(node, "70" * 251)
    node = peer_listens(lab, "--operation read --count 2 --private-bytes 251")
    assert_private(node, "70" * 251)


@cell("start-up/private-data/rejected")
def rejected(lab):
    node = lab.node("iwarp-responder", "--refuse").wait_listening()
    lab.guest.must(f"peer --expect-reject --expect-private refused connect {lab.fabric.ours}", 60)
    node.interrupt()
    lab.nodes.pop()
    job = start_peer(lab, "--reject --private no-room")
    node = we_call(lab).must_end(60)
    job.must()
    told = [event["private_data"] for event in node.of("rejected")]
    check(told == [b"no-room".hex()], f"rejected with private data {told}")


def assert_private(node, wanted):
    """Who connected, or accepted, told us this much."""
    told = [event["private_data"] for event in node.of("connected")]
    check(told == [wanted], f"connected with private data {told}")
