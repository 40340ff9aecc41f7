"""Whose FPDUs bear a wrong CRC in a cell's capture, computed again here from the octets on the wire.

siw sends pages of the application as they are, in segments of their own, and computes the CRC before: if the page changes
meanwhile, the FPDU is wrong on the wire, and the receiver has to end the connection (RFC 5044 s8). A cell that ends so has
found nothing about our side. That is said of a failure only when the capture shows it: an FPDU of the peer's whose CRC is
wrong, and none of ours.

Takes captures that were made outside of our process (pcapng, Ethernet). A direction of a connection is followed from its
SYN, as a receiver follows it: the first copy of each octet counts. It is followed up to the first octet that the capture
lacks, and not at all if either side asked for markers, or neither for CRCs (RFC 5044 s7.1.1). What cannot be followed is
nobody's fault. Nothing here uses the project's code, or Wireshark.
"""

import struct
from collections import namedtuple

# Where a wrong CRC was seen: the sender, and the offset of the FPDU in its stream behind the start-up frame.
Wrong = namedtuple("Wrong", "sender offset")
Segment = namedtuple("Segment", "source sport target tport sequence syn octets")

START_UP_KEYS = (b"MPA ID Req Frame", b"MPA ID Rep Frame")
START_UP_BYTES = 20
MARKERS, CRCS = 0x80, 0x40
LENGTH_BYTES, CRC_BYTES = 2, 4
ETHERNET = 1
SECTION, INTERFACE, PACKET = 0x0A0D0D0A, 1, 6


def is_the_peers(folder, peer):
    """Whether a cell's captures show wrong CRCs of the peer's alone. Gives one of them in words, or nothing."""
    found = [wrong for capture in sorted(folder.glob("wire*.pcapng")) for wrong in wrong_crcs(capture.read_bytes())]
    if not found or any(wrong.sender != peer for wrong in found):
        return None
    return f"the peer's FPDU at octet {found[0].offset} of its stream has a wrong CRC on the wire"


def wrong_crcs(capture):
    """The FPDUs of a capture whose CRC is wrong, the first one of each direction of a connection."""
    streams = {}
    for frame in frames(capture):
        segment = segment_of(frame)
        if segment:
            ends = (segment.source, segment.sport), (segment.target, segment.tport)
            connections = streams.setdefault(ends, [])
            # A new connection may have the ends of an old one.
            if segment.syn and not (connections and connections[-1].began_with(segment)):
                connections.append(Stream(segment))
            if connections:
                connections[-1].add(segment)
    found = []
    for ends, connections in streams.items():
        for there, back in zip(connections, streams.get(ends[::-1], [])):
            offset = first_wrong(there.octets(), back.octets())
            if offset is not None:
                found.append(Wrong(ends[0][0], offset))
    return found


def first_wrong(there, back):
    """The offset of the first FPDU of a stream with a wrong CRC; `back` is the stream of the other direction."""
    mine, others = start_up(there), start_up(back)
    if not mine or not others:
        return None
    (flags, at), (other_flags, _) = mine, others
    if (flags | other_flags) & MARKERS or not (flags | other_flags) & CRCS:
        return None
    begin = at
    while at + LENGTH_BYTES <= len(there):
        covered = LENGTH_BYTES + int.from_bytes(there[at : at + LENGTH_BYTES], "big")
        covered += -covered % 4
        fpdu = there[at : at + covered + CRC_BYTES]
        if len(fpdu) < covered + CRC_BYTES:
            return None
        # RFC 5044 s4.4: as of iSCSI, least significant octet first.
        if crc32c(fpdu[:covered]) != int.from_bytes(fpdu[covered:], "little"):
            return at - begin
        at += covered + CRC_BYTES
    return None


def start_up(stream):
    """The flags of a start-up frame, and where the octets behind it begin."""
    if len(stream) < START_UP_BYTES or bytes(stream[:16]) not in START_UP_KEYS:
        return None
    return stream[16], START_UP_BYTES + int.from_bytes(stream[18:20], "big")


class Stream:
    """What one end of a connection has sent, by position behind its SYN."""

    def __init__(self, syn):
        self.first = (syn.sequence + 1) % 2**32
        self.whole = bytearray()
        # Octets ahead of a gap.
        self.ahead = {}

    def began_with(self, syn):
        """Whether a SYN is that of this stream, again."""
        return self.first == (syn.sequence + 1) % 2**32

    def add(self, segment):
        """Takes a segment. Octets that are there already are not replaced."""
        if segment.syn or not segment.octets:
            return
        at = (segment.sequence - self.first - len(self.whole)) % 2**32
        # The upper half of the numbers lies behind what is whole.
        at = len(self.whole) + (at if at < 2**31 else at - 2**32)
        if at > len(self.whole):
            self.ahead.setdefault(at, segment.octets)
            return
        self.whole += segment.octets[max(len(self.whole) - at, 0) :]
        for later in sorted(self.ahead):
            if later > len(self.whole):
                break
            self.whole += self.ahead.pop(later)[len(self.whole) - later :]

    def octets(self):
        """The received octets up to the first gap."""
        return memoryview(self.whole)


def frames(capture):
    """The frames of a pcapng file, up to the first block that is not whole."""
    order, at, is_ethernet = "<", 0, []
    while at + 12 <= len(capture):
        kind, length = struct.unpack_from(order + "II", capture, at)
        if kind == SECTION:
            order = "<" if capture[at + 8 : at + 12] == b"\x4d\x3c\x2b\x1a" else ">"
            (length,) = struct.unpack_from(order + "I", capture, at + 4)
            is_ethernet = []
        if length < 12 or at + length > len(capture):
            return
        if kind == INTERFACE:
            is_ethernet.append(struct.unpack_from(order + "H", capture, at + 8)[0] == ETHERNET)
        elif kind == PACKET and length >= 32:
            interface, _, _, kept, there = struct.unpack_from(order + "IIIII", capture, at + 8)
            # A frame that was cut off is as good as none.
            if interface < len(is_ethernet) and is_ethernet[interface] and kept == there <= length - 32:
                yield capture[at + 28 : at + 28 + kept]
        at += length


def segment_of(frame):
    """The TCP segment of an IPv4 frame, or nothing."""
    if len(frame) < 54 or frame[12:14] != b"\x08\x00" or frame[14] >> 4 != 4 or frame[23] != 6:
        return None
    ip_bytes, total = (frame[14] & 15) * 4, int.from_bytes(frame[16:18], "big")
    packet = frame[14 : 14 + total]
    tcp = packet[ip_bytes:]
    if len(packet) < total or ip_bytes < 20 or len(tcp) < 20:
        return None
    sport, tport, sequence, _, offset, flags = struct.unpack_from(">HHIIBB", tcp)
    source, target = (".".join(map(str, packet[at : at + 4])) for at in (12, 16))
    return Segment(source, sport, target, tport, sequence, bool(flags & 2), tcp[(offset >> 4) * 4 :])


def table():
    """What eight bits do to a CRC-32C, whose polynomial is 0x1EDC6F41, in bits reversed."""
    entries = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        entries.append(value)
    return entries


TABLE = table()


def crc32c(octets):
    """The CRC-32C of octets."""
    value, entries = 0xFFFFFFFF, TABLE
    for octet in octets:
        value = value >> 8 ^ entries[(value ^ octet) & 0xFF]
    return value ^ 0xFFFFFFFF
