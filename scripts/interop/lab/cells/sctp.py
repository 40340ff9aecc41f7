"""RDMA over SCTP: the independent peer of scripts/interop/sctp-peer, over the kernel's SCTP in the guest.

The cells `sctp/peers/*` have no process of ours: the peer outside runs over usrsctp. They prove the peers over two SCTPs that
others wrote, both ends of which compare every byte.
"""

import json
import subprocess
import time

from fabric import run
from guest import ADDRESS as GUEST
from matrix import cell
from outcome import Failed, check

PORT = 5043
OPERATIONS = (
    "--scenario send --size 0",
    "--scenario send --size 70000",
    "--scenario send-inv --count 1 --depth 1",
    "--scenario write --size 70000 --enhanced --ird 3 --ord 9",
    "--scenario read --size 70000 --shuffle 16 --peer-to-peer",
    "--scenario atomic",
    "--scenario write --size 5000",
)
SESSIONS = "--sessions 3 --repeat 2"
REFUSALS = (
    ("--scenario bad-write", ""),
    ("--scenario bad-read", ""),
    ("--scenario terminate", ""),
    ("--scenario none --expect reject", "--reject plain"),
    ("--scenario none --enhanced --ird 2 --expect enhanced-reject", "--require-ord 8"),
    ("--scenario none --bad ssn-far", "--expect-violation ssn-far"),
    ("--scenario none --bad initiate-twice", "--expect-violation control"),
    ("--scenario none --bad no-indication", "--expect abort --expect-violation indication"),
)


class Outside:
    """A peer over usrsctp at this machine's address on the guest's wire."""

    def __init__(self, lab, words):
        command = ["setpriv", "--pdeathsig", "KILL", "--", str(lab.sctp_peer), *words]
        self.words = words
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        lab.nodes.append(self)

    def wait_listening(self):
        line = self.process.stdout.readline()
        check("listening" in line, f"sctp-peer {self.words}: {line}")
        return self

    def must(self, limit=60):
        """Waits for the end, which has to be a good one. Gives the result."""
        try:
            said = self.process.communicate(timeout=limit)[0]
        except subprocess.TimeoutExpired as late:
            raise Failed(f"sctp-peer {self.words}: does not end") from late
        check(self.process.returncode == 0, f"sctp-peer {self.words}: exit code {self.process.returncode}: {last(said)}")
        self.lines = [json.loads(line) for line in said.splitlines()]
        return self.lines[-1]

    def states(self, address):
        """The states that a path had, from the first on."""
        return [line["state"] for line in self.lines if line["event"] == "path" and line["address"] == address]

    def kill(self):
        self.process.kill()
        self.process.wait()


def last(said):
    """The line with the result, or what there is."""
    lines = said.strip().splitlines()
    return [line for line in lines if json.loads(line)["event"] in ("violation", "error", "result")] if lines else "it said nothing"


def wait_listening(lab):
    lab.guest.must(f"until grep -qs ' {PORT} ' /proc/net/sctp/eps; do usleep 20000; done", 15)


def pair(lab, driver, responder, guest_drives, guest_serves):
    """One end in the guest, one outside; either drives, and either serves."""
    ours = lab.fabric.add_kernel_address()
    words = {True: driver, False: f"--scenario respond {responder}"}
    serve = f"serve --local {GUEST if guest_serves else ours}"
    call = f"connect --local {ours if guest_serves else GUEST} --remote {GUEST if guest_serves else ours}"
    inside = f"sctp-peer {serve if guest_serves else call} {words[guest_drives]}"
    outside = f"{call if guest_serves else serve} {words[not guest_drives]}".split()
    if guest_serves:
        job = lab.guest.start(inside)
        wait_listening(lab)
        peer = Outside(lab, outside)
    else:
        peer = Outside(lab, outside).wait_listening()
        job = lab.guest.start(inside)
    ended = job.wait()
    check(ended.code == 0, f"guest: {inside}: exit code {ended.code}: {last(ended.said)}")
    peer.must()
    lab.nodes.remove(peer)


@cell("sctp/peers/operations")
def operations(lab):
    lab.guest.must("modprobe sctp")
    for driver in OPERATIONS:
        for guest_drives in (True, False):
            for guest_serves in (True, False):
                pair(lab, f"{driver} {SESSIONS}", SESSIONS, guest_drives, guest_serves)


@cell("sctp/peers/refusals")
def refusals(lab):
    lab.guest.must("modprobe sctp")
    for driver, responder in REFUSALS:
        for guest_drives in (True, False):
            pair(lab, driver, responder, guest_drives, guest_serves=not guest_drives)


@cell("sctp/peers/cut-path")
def cut_path(lab):
    """Two addresses at each end; the first path is cut while Writes go on, and returns."""
    ours = lab.fabric.add_kernel_address()
    second = {"guest": "10.78.0.2", "outside": "10.78.0.254"}
    run(f"ip address replace {second['outside']}/24 dev bridge0")
    lab.guest.must(f"modprobe sctp; /sbin/ip address replace {second['guest']}/24 dev eth0")
    fast = "--heartbeat 200 --path-max-retrans 1"
    job = lab.guest.start(f"sctp-peer serve --local {GUEST},{second['guest']} --scenario respond {fast}")
    wait_listening(lab)
    call = f"connect --local {ours},{second['outside']} --remote {GUEST} --scenario write --size 20000 --duration 12 {fast}"
    peer = Outside(lab, call.split())
    time.sleep(2)
    run(f"ip route add blackhole {GUEST}/32")
    lab.guest.must(f"/sbin/ip route add blackhole {ours}/32")
    time.sleep(4)
    run(f"ip route delete blackhole {GUEST}/32")
    lab.guest.must(f"/sbin/ip route delete blackhole {ours}/32")
    result, states = peer.must(), peer.states(GUEST)
    check(states[-2:] == ["unreachable", "available"], f"the path's states were {states}")
    check(result["stall_ms"] < 3000, f"{result['stall_ms']} ms without progress")
    lab.nodes.remove(peer)
    job.must()


@cell("sctp/peers/udp-encapsulation")
def udp_encapsulation(lab):
    """RFC 6951, at both ends the port of its registration."""
    lab.guest.must("modprobe sctp; echo 9899 > /proc/sys/net/sctp/udp_port; echo 9899 > /proc/sys/net/sctp/encap_port")
    try:
        for guest_drives in (True, False):
            pair(lab, "--scenario write --size 20000 --udp-encap 9899", "--udp-encap 9899", guest_drives, guest_serves=not guest_drives)
    finally:
        lab.guest.must("echo 0 > /proc/sys/net/sctp/udp_port; echo 0 > /proc/sys/net/sctp/encap_port")
