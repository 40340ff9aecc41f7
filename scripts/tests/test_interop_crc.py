"""scripts/interop/lab/crc.py and matrix.py: when the failure of a cell is the peer's."""

import pathlib
import struct
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "interop" / "lab"))
import crc  # noqa: E402
import matrix  # noqa: E402
from outcome import Failed, Skipped  # noqa: E402

PEER, OURS = "10.77.0.2", "10.77.0.1"
CRCS, MARKERS = 0x40, 0x80


def start_up(kind, flags, private=b""):
    return b"MPA ID " + kind + b" Frame" + bytes([flags, 1]) + struct.pack(">H", len(private)) + private


def fpdu(ulpdu, wrong=False):
    covered = struct.pack(">H", len(ulpdu)) + ulpdu
    covered += bytes(-len(covered) % 4)
    return covered + struct.pack("<I", crc.crc32c(covered) ^ (0x100 if wrong else 0))


def block(kind, body):
    body += bytes(-len(body) % 4)
    return struct.pack("<II", kind, len(body) + 12) + body + struct.pack("<I", len(body) + 12)


def pcapng(frames, cut=0):
    head = block(0x0A0D0D0A, b"\x4d\x3c\x2b\x1a" + struct.pack("<HHq", 1, 0, -1)) + block(1, struct.pack("<HHI", 1, 0, 0))
    packets = [block(6, struct.pack("<IIIII", 0, 0, 0, len(frame), len(frame)) + frame) for frame in frames]
    whole = head + b"".join(packets)
    return whole[: len(whole) - cut]


def frame(source, target, sequence, octets=b"", flags=0x10, ports=(4791, 1000)):
    tcp = struct.pack(">HHIIBBHHH", *ports, sequence % 2**32, 0, 5 << 4, flags, 1000, 0, 0) + octets
    addresses = b"".join(bytes(map(int, address.split("."))) for address in (source, target))
    ip = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(tcp), 0, 0, 64, 6, 0) + addresses
    # Short frames are padded on the wire.
    return (b"\x02" * 12 + b"\x08\x00" + ip + tcp).ljust(60, b"\x00")


class Connection:
    """Both directions of a connection: the frames of each are cut from its octets."""

    def __init__(self, peer_flags=CRCS, our_flags=CRCS, first=2**32 - 50):
        self.first = first
        self.sent = {PEER: start_up(b"Req", peer_flags, b"hello"), OURS: start_up(b"Rep", our_flags)}

    def say(self, who, *fpdus):
        self.sent[who] += b"".join(fpdus)
        return self

    def frames(self, segment=100, shuffle=lambda cut: cut):
        made = []
        for who, whom, ports in ((PEER, OURS, (1, 2)), (OURS, PEER, (2, 1))):
            made.append(frame(who, whom, self.first, flags=2, ports=ports))
            octets = self.sent[who]
            cut = [
                frame(who, whom, self.first + 1 + at, octets[at : at + segment], ports=ports)
                for at in range(0, len(octets), segment)
            ]
            made += shuffle(cut)
        return made


def judge(*captures):
    with tempfile.TemporaryDirectory() as folder:
        for number, capture in enumerate(captures):
            (pathlib.Path(folder) / f"wire-{number}.pcapng").write_bytes(capture)
        return crc.is_the_peers(pathlib.Path(folder), PEER)


GOOD = [fpdu(bytes(range(n))) for n in (0, 1, 2, 3, 250)]
BAD = fpdu(b"a page that changed", wrong=True)


class Decision(unittest.TestCase):
    def test_the_crc_is_that_of_rfc_3720(self):
        # RFC 3720 B.4.
        self.assertEqual(crc.crc32c(bytes(32)), 0x8A9136AA)
        self.assertEqual(crc.crc32c(b"\xff" * 32), 0x62A8AB43)
        self.assertEqual(crc.crc32c(bytes(range(32))), 0x46DD794E)

    def test_a_good_capture_is_nobodys_fault(self):
        connection = Connection().say(PEER, *GOOD).say(OURS, *GOOD)
        for segment in (1, 7, 100, 1460):
            self.assertIsNone(judge(pcapng(connection.frames(segment))), segment)

    def test_a_wrong_crc_of_the_peer_is_the_peers(self):
        connection = Connection().say(PEER, *GOOD, BAD, *GOOD).say(OURS, *GOOD)
        for segment in (1, 7, 100, 1460):
            said = judge(pcapng(connection.frames(segment)))
            self.assertIn(f"octet {len(b''.join(GOOD))} ", said or "nothing", segment)

    def test_a_wrong_crc_of_ours_is_not_the_peers(self):
        self.assertIsNone(judge(pcapng(Connection().say(OURS, BAD).frames())))
        both = Connection().say(OURS, BAD).say(PEER, BAD)
        self.assertIsNone(judge(pcapng(both.frames())), "both")
        apart = [pcapng(Connection().say(who, BAD).frames()) for who in (PEER, OURS)]
        self.assertIsNone(judge(*apart), "in two captures")

    def test_without_a_capture_it_is_nobodys(self):
        self.assertIsNone(judge())
        self.assertIsNone(judge(b""))
        self.assertIsNone(judge(b"no pcapng at all, but some octets"))
        self.assertIsNone(judge(pcapng([])))

    def test_loss_order_and_repeats_change_nothing(self):
        good, bad = Connection().say(PEER, *GOOD, *GOOD), Connection().say(PEER, *GOOD, BAD)
        for shuffle in (lambda cut: cut[::-1], lambda cut: cut + cut, lambda cut: cut[1::2] + cut[::2]):
            self.assertIsNone(judge(pcapng(good.frames(13, shuffle))))
            self.assertIsNotNone(judge(pcapng(bad.frames(13, shuffle))))

    def test_a_later_copy_does_not_replace_the_first(self):
        good, bad = Connection().say(PEER, *GOOD, fpdu(b"x" * 19)), Connection().say(PEER, *GOOD, fpdu(b"x" * 19, wrong=True))
        first = len(good.frames())
        self.assertIsNone(judge(pcapng(good.frames() + bad.frames()[1:])))
        self.assertIsNotNone(judge(pcapng(bad.frames() + good.frames()[1:first])))

    def test_nothing_is_said_beyond_a_gap(self):
        bad = Connection().say(PEER, *GOOD, BAD)
        self.assertIsNone(judge(pcapng(bad.frames(20, lambda cut: cut[:4] + cut[5:]))))
        self.assertIsNone(judge(pcapng(bad.frames()[1:])), "without the SYN")
        self.assertIsNone(judge(pcapng([each for each in bad.frames(1000) if OURS.encode() in each])), "one direction alone")

    def test_a_capture_that_ends_within_a_frame_is_read_up_to_it(self):
        bad = Connection().say(PEER, BAD).say(OURS, *GOOD)
        self.assertIsNotNone(judge(pcapng(bad.frames(), cut=9)))

    def test_crcs_that_are_not_in_use_are_not_looked_at(self):
        self.assertIsNone(judge(pcapng(Connection(0, 0).say(PEER, BAD).frames())))
        for flags in ((CRCS, 0), (0, CRCS)):
            self.assertIsNotNone(judge(pcapng(Connection(*flags).say(PEER, BAD).frames())), flags)
        self.assertIsNone(judge(pcapng(Connection(CRCS | MARKERS).say(PEER, BAD).frames())), "markers")

    def test_each_connection_of_the_same_ends_is_looked_at(self):
        one, two = Connection().say(PEER, *GOOD), Connection(first=7).say(PEER, BAD)
        self.assertIsNotNone(judge(pcapng(one.frames() + two.frames())))
        self.assertIsNotNone(judge(pcapng(two.frames() + one.frames())))

    def test_a_repeated_syn_begins_no_connection(self):
        frames = Connection().say(PEER, *GOOD, BAD).frames()
        self.assertIsNotNone(judge(pcapng([frames[0], *frames])))


class Lab:
    """Stands for the lab: cells fail as listed, each with its fault of the peer's."""

    def __init__(self, *faults):
        self.faults, self.tried, self.cell_folder = list(faults), [], pathlib.Path()

    def begin(self, name):
        self.tried.append(name)

    def run(self, _):
        if self.faults:
            raise Failed("the connection ended")

    def dissect(self):
        return "7 FPDUs read by Wireshark"

    def peers_fault(self):
        return self.faults.pop(0)

    def end(self, _):
        pass


class Repeats(unittest.TestCase):
    def run_cell(self, lab, run=None):
        told = []
        runner = matrix.Matrix(None, None, None)
        runner._print_result = lambda name, verdict, _, line: told.append((name, verdict, line))
        runner._one(lab, "cell", matrix.Cell("cell", (), False, run or lab.run))
        (one,) = told
        return one

    def test_a_cell_that_passes_is_tried_once(self):
        lab = Lab()
        self.assertEqual(self.run_cell(lab), ("cell", "passed", "7 FPDUs read by Wireshark"))
        self.assertEqual(lab.tried, ["cell"])

    def test_a_failure_that_is_not_the_peers_is_final(self):
        for faults in ([None], ["its CRC", None]):
            lab = Lab(*faults)
            name, verdict, line = self.run_cell(lab)
            self.assertEqual((name, verdict), ("cell", "failed"))
            self.assertIn("the connection ended", line)
            self.assertEqual(len(lab.tried), len(faults))

    def test_a_failure_of_the_peers_is_repeated_and_said(self):
        lab = Lab("its CRC", "its other CRC")
        _, verdict, line = self.run_cell(lab)
        self.assertEqual((verdict, lab.tried), ("passed", ["cell", "cell-2", "cell-3"]))
        for part in ("7 FPDUs", "try 1: its CRC", "try 2: its other CRC"):
            self.assertIn(part, line)

    def test_repeats_have_a_bound_and_then_nothing_is_shown(self):
        lab = Lab(*["its CRC"] * 100)
        _, verdict, line = self.run_cell(lab)
        self.assertEqual((verdict, len(lab.tried)), ("skipped", matrix.TRIES_MAX))
        self.assertIn("the peer failed in each of 5 tries", line)

    def test_a_cell_that_cannot_be_tried_is_not_repeated(self):
        def skip(_):
            raise Skipped("no cable")

        self.assertEqual(self.run_cell(Lab("its CRC"), skip), ("cell", "skipped", "no cable"))


if __name__ == "__main__":
    unittest.main()
