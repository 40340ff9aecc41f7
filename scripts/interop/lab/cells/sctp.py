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


class Peer:
    """The end of an association that drives or answers, and says in lines of JSON what it saw."""

    def __init__(self, lab, words):
        self.lab, self.words = lab, words

    def must(self, limit=90):
        """Waits for the end, which has to be a good one."""
        code, said = self._end(limit)
        check(code == 0, f"{self}: exit code {code}: {last(said)}")
        self.lines = [json.loads(line) for line in said.splitlines()]
        return self

    def result(self):
        """Its figures, after the end."""
        return self.lines[-1]

    def states(self, address):
        """The states that a path had, from the first on."""
        return [line["state"] for line in self.lines if line["event"] == "path" and line["address"] == address]

    def __str__(self):
        return f"{type(self).__name__}: sctp-peer {self.words}"


class Outside(Peer):
    """Over usrsctp, at this machine's address on the guest's wire."""

    def __init__(self, lab, words):
        super().__init__(lab, f"{words} --local {self.address(lab)}" if "--local " not in words else words)
        command = ["setpriv", "--pdeathsig", "KILL", "--", str(lab.sctp_peer), *self.words.split()]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        lab.nodes.append(self)

    @staticmethod
    def address(lab):
        return lab.fabric.add_kernel_address()

    def wait_listening(self):
        line = self.process.stdout.readline()
        check("listening" in line, f"{self}: {line}")
        return self

    def kill(self):
        self.process.kill()
        self.process.wait()

    def _end(self, limit):
        try:
            said = self.process.communicate(timeout=limit)[0]
        except subprocess.TimeoutExpired as late:
            raise Failed(f"{self}: does not end") from late
        self.lab.nodes.remove(self)
        return self.process.returncode, said


class Inside(Peer):
    """Over the kernel's SCTP, in the guest."""

    def __init__(self, lab, words):
        super().__init__(lab, f"{words} --local {GUEST}" if "--local " not in words else words)
        lab.guest.must("modprobe sctp")
        self.job = lab.guest.start(f"sctp-peer {self.words}", 90)

    @staticmethod
    def address(_lab):
        return GUEST

    def wait_listening(self):
        self.lab.guest.must(f"until grep -qs ' {PORT} ' /proc/net/sctp/eps; do usleep 20000; done", 15)
        return self

    def kill(self):
        self.job.kill()

    def _end(self, _limit):
        ended = self.job.wait()
        return ended.code, ended.said


def last(said):
    """The line with the result, or what there is."""
    lines = said.strip().splitlines()
    return [line for line in lines if json.loads(line)["event"] in ("violation", "error", "result")] if lines else "it said nothing"


def pair(lab, driver, responder, guest_drives, guest_serves):
    """One end in the guest, one outside; either drives, and either serves."""
    server, client = (Inside, Outside) if guest_serves else (Outside, Inside)
    responder = f"--scenario respond {responder}"
    serves, calls = (driver, responder) if guest_drives == guest_serves else (responder, driver)
    listening = server(lab, f"serve {serves}").wait_listening()
    calling = client(lab, f"connect --remote {server.address(lab)} {calls}")
    calling.must()
    listening.must()


@cell("sctp/peers/operations")
def operations(lab):
    for driver in OPERATIONS:
        for guest_drives in (True, False):
            for guest_serves in (True, False):
                pair(lab, f"{driver} {SESSIONS}", SESSIONS, guest_drives, guest_serves)


@cell("sctp/peers/refusals")
def refusals(lab):
    for driver, responder in REFUSALS:
        for guest_drives in (True, False):
            pair(lab, driver, responder, guest_drives, guest_serves=not guest_drives)


@cell("sctp/peers/cut-path")
def cut_path(lab):
    """Two addresses at each end; the first path is cut while Writes go on, and returns."""
    ours = lab.fabric.add_kernel_address()
    second = {"guest": "10.78.0.2", "outside": "10.78.0.254"}
    run(f"ip address replace {second['outside']}/24 dev bridge0")
    lab.guest.must(f"/sbin/ip address replace {second['guest']}/24 dev eth0")
    fast = "--heartbeat 200 --path-max-retrans 1"
    server = Inside(lab, f"serve --local {GUEST},{second['guest']} --scenario respond {fast}").wait_listening()
    call = f"connect --local {ours},{second['outside']} --remote {GUEST} --scenario write --size 20000 --duration 12 {fast}"
    peer = Outside(lab, call)
    time.sleep(2)
    run(f"ip route add blackhole {GUEST}/32")
    lab.guest.must(f"/sbin/ip route add blackhole {ours}/32")
    time.sleep(4)
    run(f"ip route delete blackhole {GUEST}/32")
    lab.guest.must(f"/sbin/ip route delete blackhole {ours}/32")
    result, states = peer.must().result(), peer.states(GUEST)
    check(states[-2:] == ["unreachable", "available"], f"the path's states were {states}")
    check(result["stall_ms"] < 3000, f"{result['stall_ms']} ms without progress")
    server.must()


@cell("sctp/peers/udp-encapsulation")
def udp_encapsulation(lab):
    """RFC 6951, at both ends the port of its registration."""
    lab.guest.must("modprobe sctp; echo 9899 > /proc/sys/net/sctp/udp_port; echo 9899 > /proc/sys/net/sctp/encap_port")
    try:
        for guest_drives in (True, False):
            pair(lab, "--scenario write --size 20000 --udp-encap 9899", "--udp-encap 9899", guest_drives, guest_serves=not guest_drives)
    finally:
        lab.guest.must("echo 0 > /proc/sys/net/sctp/udp_port; echo 0 > /proc/sys/net/sctp/encap_port")
