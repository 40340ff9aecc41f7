"""scripts/wireshark/ironwarp.lua over SCTP, on a capture of scripts/interop/sctp-peer against itself.

The capture has the packets with DATA chunks of seven associations: a Send with Invalidate after enhanced set-up, atomic
operations, a Read that breaks protection, a Reject, an Enhanced Reject, a Terminate with private data, and an Initiate with 513
octets of it.
"""

import pathlib
import shutil
import subprocess
import unittest

HERE = pathlib.Path(__file__).resolve().parent
LUA = HERE.parent / "wireshark" / "ironwarp.lua"
DDP, CONTROL = "16", "17"


def dissect(*fields, only="sctp.data_payload_proto_id"):
    """One tuple of texts for each packet that a filter finds."""
    arguments = [argument for field in fields for argument in ("-e", field)]
    command = ["tshark", "-n", "-X", f"lua_script:{LUA}", "-r", str(HERE / "sctp.pcap"), "-Y", only, "-T", "fields", *arguments]
    ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=True)
    if "Lua" in ended.stderr:
        raise AssertionError(ended.stderr)
    return [tuple(line.split("\t")) for line in ended.stdout.splitlines()]


@unittest.skipUnless(shutil.which("tshark"), "tshark is not installed")
class Dissection(unittest.TestCase):
    def test_session_control_is_named_in_the_order_of_the_capture(self):
        functions = [code for (code,) in dissect("ironwarp.sctp.function", only=f"sctp.data_payload_proto_id == {CONTROL}")]
        self.assertEqual("".join(functions), "5644" "1244" "1244" "13" "57" "1244" "14")

    def test_every_chunk_has_its_ddp_ssn(self):
        # The first association: Initiate, empty Write, Send with Invalidate, Terminate; and Accept, Send, Terminate.
        first = dissect("sctp.srcport", "ironwarp.sctp.ssn", only="ironwarp.sctp.ssn")[:7]
        (initiator, responder) = first[0][0], first[1][0]
        self.assertEqual([ssn for port, ssn in first if port == initiator], ["0", "1", "2", "3"])
        self.assertEqual([ssn for port, ssn in first if port == responder], ["0", "1", "2"])

    def test_segments_are_those_of_ddp_and_rdmap(self):
        segments = dissect("iwarp_rdma.opcode", "ironwarp.atomic.operation", only=f"sctp.data_payload_proto_id == {DDP}")
        opcodes = [int(opcode, 16) for opcode, _ in segments]
        write, request, response, send, invalidate, terminate, atomic, reply = 0, 1, 2, 3, 4, 7, 10, 11
        self.assertEqual(opcodes, [write, invalidate, send, write, *[atomic, reply] * 6, request, response, request, terminate])
        self.assertEqual([name for _, name in segments if name], ["FetchAdd"] * 3 + ["CmpSwap"] * 3)

    def test_ird_ord_and_private_data_are_shown(self):
        fields = ("ironwarp.sctp.function", "ironwarp.mpa.ird", "ironwarp.mpa.ord", "ironwarp.mpa.rtr_read", "ironwarp.mpa.private_data")
        region = "43000000000000000010000000100000"
        told = dissect(*fields, only="ironwarp.mpa.private_data")
        self.assertEqual(told[:2], [("5", "16", "16", "1", region + b"hello".hex()), ("6", "16", "16", "1", region)])
        self.assertEqual(told[-4:-2], [("5", "2", "16", "0", region), ("7", "16", "8", "0", region)])
        (reject,) = [line for line in told if line[0] == "3"]
        self.assertEqual(reject, ("3", "", "", "", region + b"no".hex()))

    def test_wrong_private_data_is_pointed_out(self):
        wrong = dissect("ironwarp.sctp.function", "ironwarp.sctp.wrong", only="ironwarp.sctp.wrong")
        self.assertEqual(wrong, [("4", "private data of 4 octets"), ("1", "private data of 513 octets")])


if __name__ == "__main__":
    unittest.main()
