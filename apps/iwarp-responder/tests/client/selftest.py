"""The client against what the RFCs print: a client that is wrong in the same way as its peer would notice nothing."""

import unittest

import iwarp


class Crc(unittest.TestCase):
    """RFC 3720 appendix B.4. The appendix prints octets as they lie on the wire, lowest first."""

    def check(self, data, printed):
        self.assertEqual(iwarp.crc32c(data).to_bytes(4, "little").hex(), printed)

    def test_zeros(self):
        self.check(bytes(32), "aa36918a")

    def test_ones(self):
        self.check(b"\xff" * 32, "43aba862")

    def test_incrementing(self):
        self.check(bytes(range(32)), "4e79dd46")

    def test_decrementing(self):
        self.check(bytes(range(31, -1, -1)), "5cdb3f11")


class Layout(unittest.TestCase):
    def test_the_fpdus_printed_in_rfc_5044(self):
        """Figures 5 and 6: a Send of 24 zeros. Their CRCs cover a marker too, before the FPDU and inside it."""
        first = iwarp.fpdu(iwarp.untagged(iwarp.SEND, iwarp.SEND_QUEUE, 1, 0, bytes(24)))[:-4]
        self.assertEqual(first[:20].hex(), "002a414300000000000000000000000100000000")
        self.assertEqual(iwarp.crc32c(bytes(4) + first).to_bytes(4, "little").hex(), "52239983")
        second = iwarp.fpdu(iwarp.untagged(iwarp.SEND, iwarp.SEND_QUEUE, 2, 0, bytes(24)))[:-4]
        marked = second[:20] + b"\x00\x00\x00\x14" + second[20:]
        self.assertEqual(iwarp.crc32c(marked).to_bytes(4, "little").hex(), "84925898")

    def test_an_fpdu_is_a_multiple_of_four(self):
        for size in range(9):
            self.assertEqual(len(iwarp.fpdu(bytes(size))) % 4, 0)

    def test_a_message_is_cut_without_gap(self):
        self.assertEqual(iwarp.pieces(b"", 4), [(0, b"", True)])
        self.assertEqual(iwarp.pieces(b"abcdef", 4), [(0, b"abcd", False), (4, b"ef", True)])
        self.assertEqual(iwarp.pieces(b"abcd", 4), [(0, b"abcd", True)])

    def test_a_terminate_that_shows_a_read_request(self):
        """RFC 5040 s4.8, figures 7 and 8."""
        header, request = iwarp.untagged(iwarp.READ_REQUEST, 1, 1), bytes(28)
        decoded = iwarp.decode_terminate(b"\x01\x02\xe0\x00" + b"\x00\x2e" + header + request)
        self.assertEqual((decoded["layer"], decoded["type"], decoded["code"]), (0, 1, 2))
        self.assertEqual((decoded["segment_bytes"], decoded["ddp"], decoded["rdma"]), (46, header, request))


unittest.main()
