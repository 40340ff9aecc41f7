"""Programs of Debian's packages on both ends: here over our libraries (`iwarp-run`), in the guest over siw and rdma-core."""

import shutil

from fabric import HOST_DEVICES
from guest import ADDRESS as GUEST
from cells.startup import RTR
from matrix import cell
from outcome import Skipped, check

# As in cells/rping.py: siw may lose its first message otherwise.
HOLD_OFF = "[mpa]\nfirst_fpdu_holdoff_us = 100000\n"
RPING_PORT, PERFTEST_PORT, UCMATOSE_PORT = 7174, 18515, 7471
LIMIT = 90


def both(lab, ours_listens, guest_calls, guest_listens, we_call, port, said, tries=1):
    """One program in both roles. `said` is what the client prints when all went well."""
    if shutil.which(we_call[0]) is None:
        raise Skipped(f"{we_call[0]} is not installed")
    while not guest_reaches_us(lab, ours_listens, guest_calls, said, tries == 1):
        tries -= 1
    job = lab.guest.start(guest_listens, LIMIT)
    lab.guest.wait_listening(port)
    caller = lab.dropin(*we_call, sections=HOLD_OFF).must_end(LIMIT)
    check(said in caller.out.read_text(), f"{we_call[0]} did not print '{said}': {caller.complaint()}")
    job.must()


def guest_reaches_us(lab, ours_listens, guest_calls, said, is_last):
    """Our program listens, the guest's connects. Gives whether all went well; the last try fails the cell otherwise."""
    server = lab.dropin(*ours_listens)
    # Nobody may listen yet: some programs print nothing before a client comes.
    tried = f"for i in 1 2 3; do timeout 30 {guest_calls} && exit 0; sleep 1; done; exit 1"
    client = lab.guest.run(f"sh -c '{tried}'", 2 * LIMIT)
    went_well = client.code == 0 and said in client.said
    if went_well:
        server.must_end(LIMIT)
    else:
        server.kill()
        check(not is_last, f"{guest_calls} ended with {client.code}: {client.said.strip()[-200:]}; {server.complaint()}")
    lab.nodes.pop()
    return went_well


@cell("programs/rping", HOST_DEVICES)
def rping(lab):
    ours = lab.fabric.ours
    options = "-C 20 -S 5000 -V -v"
    both(lab, ["rping", "-s", "-a", ours, *options.split()], f"rping -c -a {ours} {options}",
         f"rping -s -a {GUEST} {options}", ["rping", "-c", "-a", GUEST, *options.split()], RPING_PORT, "ping data: rdma-ping-19")


@cell("programs/ucmatose")
def ucmatose(lab):
    # The server sends first, which RFC 5044 s7.1.2 allows only after an FPDU of the initiator: siw has to send an RTR.
    lab.siw(peer_to_peer=1, rtr_type=RTR["write"])
    ours = lab.fabric.ours
    options = "-c 4 -C 10 -S 1000"
    both(lab, ["ucmatose", "-b", ours, *options.split()], f"ucmatose -s {ours} {options}",
         f"ucmatose -b {GUEST} {options}", ["ucmatose", "-s", GUEST, *options.split()], UCMATOSE_PORT, "return status 0")


def perftest(lab, program, *options):
    """Its server listens for the second connection of a client later than a fast client comes, and a client of this release
    crashes when it is refused."""
    words = [program, "-R", "-F", *options]
    line = " ".join(words)
    both(lab, words, f"{line} {lab.fabric.ours}", line, [*words, GUEST], PERFTEST_PORT, "#bytes", tries=4)


@cell("programs/ib_send_lat")
def send_latency(lab):
    perftest(lab, "ib_send_lat", "-n", "100", "-s", "64")


@cell("programs/ib_write_bw")
def write_bandwidth(lab):
    perftest(lab, "ib_write_bw", "-n", "200", "-s", "65536")


@cell("programs/ib_read_bw")
def read_bandwidth(lab):
    perftest(lab, "ib_read_bw", "-n", "200", "-s", "65536")


@cell("programs/ib_send_bw-events")
def send_bandwidth(lab):
    perftest(lab, "ib_send_bw", "-n", "200", "-s", "65536", "--events")
