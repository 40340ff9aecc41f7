#!/usr/bin/env python3
"""Runs sctp-peer against itself: both roles of every scenario, in two network namespaces with two links.

usage: scripts/interop/sctp-peer/test.py [--sanitize] [unittest's arguments]

--sanitize builds with AddressSanitizer and UndefinedBehaviorSanitizer. Takes two minutes. Needs root and libusrsctp-dev. The
namespaces have no names and end with the test.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
# Links between the namespaces. Each end has an IPv4 and an IPv6 address on each.
LINKS = (1, 2)
LIMIT_S = 60
# Run in the first namespace, then in the other.
SETUP = """
ip link set lo up
for link in 1 2; do
    ip link add link$link type veth peer name link$link netns {other}
    ip addr add 10.91.$link.1/24 dev link$link
    ip addr add fd91:$link::1/64 dev link$link nodad
    ip link set link$link up
done
"""
SETUP_OTHER = """
ip link set lo up
for link in 1 2; do
    ip addr add 10.91.$link.2/24 dev link$link
    ip addr add fd91:$link::2/64 dev link$link nodad
    ip link set link$link up
done
"""


class Network:
    """Two namespaces; the ends are 1, which connects, and 2, which serves."""

    def __init__(self):
        self.holders = [subprocess.Popen(["unshare", "--net", "sleep", "infinity"]) for _ in range(2)]
        own = os.readlink("/proc/self/ns/net")
        for holder in self.holders:
            while os.readlink(f"/proc/{holder.pid}/ns/net") == own:
                time.sleep(0.01)
        self.run(1, SETUP.format(other=self.holders[1].pid))
        self.run(2, SETUP_OTHER)

    def inside(self, end):
        return ["nsenter", "-t", str(self.holders[end - 1].pid), "-n"]

    def run(self, end, script):
        subprocess.run([*self.inside(end), "sh", "-ec", script], check=True)

    def cut(self, link):
        self.run(1, f"ip link set link{link} down")

    def mend(self, link):
        # An IPv6 address goes with the link; the tests of cut links use IPv4.
        self.run(1, f"ip link set link{link} up")

    def close(self):
        for holder in self.holders:
            holder.kill()
            holder.wait()


class Peer:
    """One running sctp-peer and the lines that it prints."""

    def __init__(self, end, arguments):
        self.process = subprocess.Popen(
            [*NETWORK.inside(end), "timeout", str(LIMIT_S), str(PROGRAM), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines = []

    def wait_line(self, event):
        for text in self.process.stdout:
            self.lines.append(json.loads(text))
            if self.lines[-1]["event"] == event:
                return
        raise AssertionError(f"no {event}: {self.lines} {self.process.stderr.read()}")

    def end(self):
        out, err = self.process.communicate()
        self.lines += [json.loads(text) for text in out.splitlines()]
        self.stderr = err
        self.code = self.process.returncode
        return self

    def of(self, event):
        return [line for line in self.lines if line["event"] == event]

    @property
    def result(self):
        return self.lines[-1]


def addresses(end, links, family):
    return ",".join(f"10.91.{link}.{end}" if family == 4 else f"fd91:{link}::{end}" for link in links)


def pair(driver="", responder="", driver_serves=False, links=(1,), family=4, meanwhile=None):
    """Runs a driving end against a responding end; gives both, ended."""
    texts = {"driver": f"{driver}", "responder": f"--scenario respond {responder}"}
    server, client = ("driver", "responder") if driver_serves else ("responder", "driver")
    serving = Peer(2, ["serve", "--local", addresses(2, links, family), *texts[server].split()])
    serving.wait_line("listening")
    remote = addresses(2, links[:1], family)
    calling = Peer(1, ["connect", "--local", addresses(1, links, family), "--remote", remote, *texts[client].split()])
    if meanwhile:
        meanwhile()
    ended = {client: calling.end(), server: serving.end()}
    return ended["driver"], ended["responder"]


class Case(unittest.TestCase):
    def both_well(self, *arguments, **options):
        """Both ends find everything as expected. Gives their results."""
        ends = pair(*arguments, **options)
        for end in ends:
            self.assertEqual((end.code, end.result.get("ok"), end.stderr), (0, True, ""), f"{arguments} {options}\n{end.lines}")
        return ends

    def in_both_roles(self, driver, responder=""):
        return [self.both_well(driver, responder, driver_serves=driver_serves) for driver_serves in (False, True)]


class Operations(Case):
    def test_the_association_has_the_indication_and_equal_streams(self):
        for driver, responder in self.in_both_roles("--scenario none --streams 5", "--streams 5"):
            for end in (driver, responder):
                (up,) = end.of("association")
                self.assertEqual((up["indication"], up["value"], up["streams_in"], up["streams_out"]), (True, 1, 5, 5))

    def test_sends_of_any_length(self):
        for size in (0, 1, 1378, 1400, 1401, 70000):
            self.in_both_roles(f"--scenario send --size {size}")

    def test_sends_with_event_and_invalidation(self):
        self.in_both_roles("--scenario send-se")
        for _, responder in self.in_both_roles("--scenario send-inv --count 1 --depth 1"):
            self.assertEqual(len(responder.of("invalidated")), 1)

    def test_writes_and_reads_of_any_length(self):
        for operation in ("write", "read"):
            for size in (1, 1400, 70000):
                for _, responder in self.in_both_roles(f"--scenario {operation} --size {size}"):
                    self.assertGreater(responder.result["reads_in"] * responder.result["writes_in"], 0)

    def test_atomics(self):
        for _, responder in self.in_both_roles("--scenario atomic"):
            self.assertEqual(responder.result["atomics_in"], 6)

    def test_segments_in_odd_order(self):
        for operation in ("send", "write", "read"):
            for _, responder in self.in_both_roles(f"--scenario {operation} --size 30000 --shuffle 32", "--shuffle 32"):
                self.assertGreater(responder.result["out_of_order"], 10)

    def test_the_ddp_ssn_wraps(self):
        ask = "--scenario write --size 16000000 --depth 2 --count 6 --shuffle 60 --limit 50"
        _, responder = self.both_well(ask, "--bytes 32000000")
        self.assertGreater(responder.result["chunks_in"], 1 << 16)

    def test_ipv6(self):
        self.both_well("--scenario write --size 5000", family=6)

    def test_udp_encapsulation(self):
        self.both_well("--scenario write --size 5000 --udp-encap 9899", "--udp-encap 9899")

    def test_segments_of_516_octets_are_possible(self):
        self.both_well("--scenario write --size 5000 --segment-max 516", "--segment-max 516")


class Terminates(Case):
    def test_what_breaks_rights_gets_a_terminate(self):
        expected = {
            "bad-write": (1, 1, 0),
            "bad-bounds": (1, 1, 1),
            "bad-read": (0, 1, 0),
            "bad-invalidate": (0, 1, 9),
            "bad-atomic": (0, 2, 7),
        }
        for scenario, triple in expected.items():
            for driver, _ in self.in_both_roles(f"--scenario {scenario}"):
                told = [(line["layer"], line["type"], line["code"]) for line in driver.of("terminate-received")]
                self.assertEqual(told, [triple])

    def test_a_terminate_of_the_driving_end_is_received(self):
        for _, responder in self.in_both_roles("--scenario terminate"):
            self.assertEqual(responder.result["terminates_in"], 1)


class SetUp(Case):
    def test_private_data_of_any_length(self):
        for enhanced, most in (("", 512), ("--enhanced", 508)):
            for length in (0, 16, most):
                ends = self.both_well(f"--scenario none {enhanced} --private-bytes {length}", f"--private-bytes {length}")
                for end in ends:
                    self.assertEqual(len(end.of("control")[0]["private"]), 2 * length)

    def test_either_end_of_the_association_may_initiate(self):
        self.both_well("--scenario write --await", "--initiate")
        self.both_well("--scenario write --initiate", "--await", driver_serves=True)

    def test_ird_and_ord_are_negotiated(self):
        _, responder = self.both_well("--scenario read --enhanced --ird 3 --ord 9 --depth 8", "--ird 4 --ord 20")
        (asked,) = [line for line in responder.of("control") if line["kind"] == "enhanced-initiate"]
        self.assertEqual((asked["ird"], asked["ord"]), (3, 9))
        driver, _ = self.both_well("--scenario read --enhanced --ird 16383 --ord 16383", "--ird 4 --ord 20")
        (reply,) = [line for line in driver.of("control") if line["kind"] == "enhanced-accept"]
        self.assertEqual((reply["ird"], reply["ord"]), (16383, 16383))

    def test_each_indication_of_readiness(self):
        for rtr in ("s", "w", "r"):
            self.both_well(f"--scenario send --peer-to-peer --rtr {rtr}")
            self.both_well("--scenario send", f"--peer-to-peer --initiate --rtr {rtr}", driver_serves=True)

    def test_no_indication_in_common_is_a_terminate(self):
        driver, responder = pair("--scenario none --peer-to-peer --rtr s", "--rtr w")
        (told,) = responder.of("terminate-received")
        self.assertEqual((told["layer"], told["type"], told["code"]), (2, 0, 7))

    def test_refusals(self):
        for enhanced in ("", "--enhanced"):
            for reject, expect in (("plain", "reject"), ("busy", "terminate"), ("enhanced", "enhanced-reject")):
                if not enhanced and reject == "enhanced":
                    continue
                self.both_well(f"--scenario none {enhanced} --expect {expect}", f"--reject {reject}")
        driver, _ = self.both_well("--scenario none --enhanced --ird 2 --expect enhanced-reject", "--require-ord 8")
        self.assertEqual([line["ord"] for line in driver.of("control")], [8])


class Streams(Case):
    def test_sessions_share_an_association_and_end_alone(self):
        self.in_both_roles("--scenario write --sessions 3 --size 5000", "--sessions 3")
        self.both_well("--scenario bad-write --sessions 3", "--streams 3")

    def test_a_stream_is_used_again(self):
        for _, responder in self.in_both_roles("--scenario send --sessions 2 --repeat 5", "--sessions 2 --repeat 5"):
            self.assertEqual(responder.result["sessions"], 10)

    def test_a_session_that_nobody_initiates_is_a_failure(self):
        driver, _ = pair("--scenario write --sessions 2 --limit 2", "--sessions 1", driver_serves=True)
        self.assertEqual((driver.code, driver.result["ok"]), (1, False))


class Rules(Case):
    def test_what_breaks_them_ends_the_session(self):
        violations = {
            "ssn-twice": "ssn-twice",
            "ssn-far": "ssn-far",
            "initiate-twice": "control",
            "accept": "control",
            "function": "function",
            "terminate-private": "private-data",
            "ppid": "ppid",
            "short": "short",
            "ordered": "ordered",
            "segment-first": "no-session",
            "long-private": "private-data",
        }
        for bad, name in violations.items():
            for enhanced in ("", "--enhanced"):
                with self.subTest(bad=bad, enhanced=enhanced):
                    self.both_well(f"--scenario none --bad {bad} {enhanced} --expect terminate", f"--expect-violation {name}")

    def test_without_the_indication_nothing_is_set_up(self):
        for bad in ("no-indication", "other-indication"):
            driver, responder = pair(f"--scenario none --bad {bad}", "--expect abort --expect-violation indication")
            self.assertEqual((driver.code, responder.code), (0, 0), (driver.lines, responder.lines))
            self.assertEqual(driver.of("reply")[0]["reply"], "abort")
            self.assertEqual(responder.of("control"), [])

    def test_an_old_ddp_version_gets_a_terminate(self):
        driver, responder = pair("--scenario none --bad ddp-version")
        (told,) = driver.of("terminate-received")
        self.assertEqual((told["layer"], told["type"], told["code"]), (1, 1, 4))


class Paths(Case):
    def test_two_addresses_are_known_and_confirmed(self):
        driver, responder = self.both_well("--scenario write --duration 1 --heartbeat 100", "--heartbeat 100", links=LINKS)
        for end in (driver, responder):
            self.assertEqual(end.of("association")[0]["peer_addresses"], 2)

    def test_a_cut_link_loses_no_session(self):
        def cut_and_mend():
            time.sleep(1.5)
            NETWORK.cut(1)
            time.sleep(2.5)
            NETWORK.mend(1)

        ask = "--heartbeat 100 --path-max-retrans 1"
        driver, responder = self.both_well(
            f"--scenario write --size 65536 --duration 7 {ask}", ask, links=LINKS, meanwhile=cut_and_mend
        )
        self.assertLess(driver.result["stall_ms"], 2000)
        states = [(line["address"], line["state"]) for line in driver.of("path")]
        self.assertIn(("10.91.1.2", "unreachable"), states)
        self.assertIn(("10.91.1.2", "available"), states[states.index(("10.91.1.2", "unreachable")) :])

    def test_without_any_link_the_association_ends(self):
        driver, responder = pair(
            "--scenario write --duration 10 --limit 30 --expect abort", "--expect abort", meanwhile=lambda: (time.sleep(1), NETWORK.cut(1))
        )
        NETWORK.mend(1)
        self.assertTrue(driver.result["aborted"] and responder.result["aborted"], (driver.lines, responder.lines))


if __name__ == "__main__":
    target = "asan" if "--sanitize" in sys.argv else "all"
    arguments = [argument for argument in sys.argv if argument != "--sanitize"]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["make", "-s", "-C", str(HERE), f"OUT={folder}", target], check=True)
        PROGRAM = pathlib.Path(folder) / ("sctp-peer-asan" if target == "asan" else "sctp-peer")
        NETWORK = Network()
        try:
            unittest.main(argv=arguments)
        finally:
            NETWORK.close()
