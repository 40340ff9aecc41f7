"""An iWARP initiator over an ordinary TCP socket, written from the RFCs and from nothing else.

MPA revision 1 (RFC 5044), DDP (RFC 5041), RDMAP (RFC 5040), CRC32c on, markers where asked for. It keeps to blocking sockets and
plain bytes, so that what it sends can be read off the page. Whatever the peer sends is checked against the RFCs, and
a deviation raises `ProtocolError`.
"""

import collections
import socket
import struct

# RDMAP operations (RFC 5040 s4.1) and the queues that carry the untagged ones (s3.1).
WRITE, READ_REQUEST, READ_RESPONSE, SEND, TERMINATE = 0, 1, 2, 3, 7
SEND_INVALIDATE, SEND_SOLICITED, SEND_SOLICITED_INVALIDATE = 4, 5, 6
SEND_QUEUE, READ_QUEUE, TERMINATE_QUEUE = 0, 1, 2

TAGGED, LAST = 0x80, 0x40
DDP_VERSION = RDMAP_VERSION = 1

REQUEST_KEY, REPLY_KEY = b"MPA ID Req Frame", b"MPA ID Rep Frame"
MARKERS, CRC, REJECT = 0x80, 0x40, 0x20


class ProtocolError(Exception):
    """The peer broke an RFC."""


class Closed(Exception):
    """The peer ended the TCP connection. `how` is "fin" or "reset"."""

    def __init__(self, how):
        super().__init__(how)
        self.how = how


class Terminated(Exception):
    """The peer sent a Terminate."""

    def __init__(self, terminate):
        super().__init__(str(terminate))
        self.terminate = terminate


def require(condition, what):
    if not condition:
        raise ProtocolError(what)


# CRC32c: the reflected polynomial of RFC 3720 s12.1, one octet at a time.
def _crc_of_octet(octet):
    for _ in range(8):
        octet = octet >> 1 ^ (0x82F63B78 if octet & 1 else 0)
    return octet


_CRC_TABLE = [_crc_of_octet(octet) for octet in range(256)]


def crc32c(data):
    crc, table = 0xFFFFFFFF, _CRC_TABLE
    for octet in data:
        crc = crc >> 8 ^ table[(crc ^ octet) & 0xFF]
    return crc ^ 0xFFFFFFFF


def mpa_request(private_data=b"", flags=CRC, revision=1, key=REQUEST_KEY, length=None):
    """RFC 5044 s7.1.1. `length` overrides the private data's length field."""
    length = len(private_data) if length is None else length
    return key + struct.pack(">BBH", flags, revision, length) + private_data


def fpdu(ulpdu, crc_error=0):
    """RFC 5044 s4.1: length, ULPDU, zeros up to a multiple of four, CRC. `crc_error` spoils the CRC."""
    covered = struct.pack(">H", len(ulpdu)) + ulpdu
    covered += bytes(-len(covered) % 4)
    # The CRC's octets lie as in RFC 3720: the lowest first.
    return covered + struct.pack("<I", crc32c(covered) ^ crc_error)


def rdmap_control(opcode, version=RDMAP_VERSION):
    return version << 6 | opcode


def tagged(opcode, stag, offset, payload=b"", last=True, ddp_version=DDP_VERSION, version=RDMAP_VERSION):
    """A tagged segment (RFC 5041 s4.2)."""
    control = TAGGED | (LAST if last else 0) | ddp_version
    return struct.pack(">BBIQ", control, rdmap_control(opcode, version), stag, offset) + payload


def untagged(
    opcode, queue, msn, offset=0, payload=b"", last=True, ddp_version=DDP_VERSION, version=RDMAP_VERSION, stag=0
):
    """An untagged segment (RFC 5041 s4.3). A Send that invalidates has its STag in the ULP's field (RFC 5040 s4.1)."""
    control = (LAST if last else 0) | ddp_version
    return struct.pack(">BBIIII", control, rdmap_control(opcode, version), stag, queue, msn, offset) + payload


def read_header(sink_stag, sink_offset, length, stag, offset):
    """A Read Request's payload (RFC 5040 s4.4)."""
    return struct.pack(">IQIIQ", sink_stag, sink_offset, length, stag, offset)


def pieces(payload, size):
    """(offset, piece, whether last) of a message cut into segments. An empty message is one empty segment."""
    offsets = range(0, max(len(payload), 1), size)
    return [(offset, payload[offset : offset + size], offset == offsets[-1]) for offset in offsets]


def decode_terminate(payload):
    """RFC 5040 s4.8."""
    require(len(payload) >= 4, "a Terminate shorter than its control field")
    kinds, code, bits, reserved = payload[:4]
    require(bits & 0x1F == 0 and reserved == 0, "reserved bits of a Terminate are not zero")
    terminate = {"layer": kinds >> 4, "type": kinds & 15, "code": code, "segment_bytes": None, "ddp": b"", "rdma": b""}
    rest = payload[4:]
    if bits & 0xC0:
        require(bits & 0xC0 == 0xC0, "segment length and DDP header go together")
        header_bytes = 14 if rest[2] & TAGGED else 18
        terminate["segment_bytes"] = int.from_bytes(rest[:2], "big")
        terminate["ddp"], rest = rest[2 : 2 + header_bytes], rest[2 + header_bytes :]
    if bits & 0x20:
        terminate["rdma"], rest = rest[:28], rest[28:]
    require(rest == b"", "a Terminate longer than what it announces")
    return terminate


Advertisement = collections.namedtuple("Advertisement", "stag offset length")


def decode_advertisement(private_data):
    """What the responder says about its memory."""
    require(len(private_data) == 16, f"{len(private_data)} octets of private data in the reply")
    return Advertisement(*struct.unpack(">IQI", private_data))


class Connection:
    """A TCP connection, and the octets that have arrived on it."""

    def __init__(self, address, timeout_s, source_port=0):
        self.socket = socket.socket()
        self.socket.settimeout(timeout_s)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if source_port:
            self.socket.bind(("", source_port))
        self.socket.connect(address)

    def send(self, data):
        try:
            self.socket.sendall(data)
        except (ConnectionResetError, BrokenPipeError) as error:
            raise Closed("reset") from error

    def receive(self, size):
        """Exactly `size` octets."""
        data = bytearray()
        while len(data) < size:
            try:
                chunk = self.socket.recv(size - len(data))
            except ConnectionResetError as error:
                raise Closed("reset") from error
            if not chunk:
                require(not data, f"the stream ends {size - len(data)} octets early")
                raise Closed("fin")
            data += chunk
        return bytes(data)

    def finish(self):
        """Our half is over: FIN."""
        self.socket.shutdown(socket.SHUT_WR)

    def reset(self):
        """Closes with RST."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def close(self):
        self.socket.close()


class Initiator:
    """One RDMAP stream. Sends go out in segments of `segment` octets of payload at most."""

    def __init__(self, address, timeout_s=20.0, source_port=0):
        self.connection = Connection(address, timeout_s, source_port)
        self.segment = 1400
        self.sent = {SEND_QUEUE: 0, READ_QUEUE: 0}
        self.expected = {SEND_QUEUE: 1, TERMINATE_QUEUE: 1}
        # Reads that are not answered in full, oldest first: [sink STag, next offset, octets to come, octets so far].
        self.reads = collections.deque()
        self.sink_stag = 0x51AC0000
        # The Send that is arriving.
        self.message = bytearray()
        # Octets of the responder's stream of FPDUs so far, where we asked for markers, and markers among them.
        self.stream_at = None
        self.markers = 0

    def start_up(self, private_data=b"", markers=False):
        """Request and reply (RFC 5044 s7.1). Returns the reply's private data."""
        self.connection.send(mpa_request(private_data, flags=CRC | (MARKERS if markers else 0)))
        self.stream_at = 0 if markers else None
        flags, private_data = self.receive_reply()
        require(not flags & REJECT, "the connection was refused")
        require(not flags & MARKERS, "the responder asks for markers")
        require(flags & CRC, "C must be set where CRCs are the default")
        return private_data

    def receive_reply(self):
        reply = self.connection.receive(20)
        key, flags, revision, length = struct.unpack(">16sBBH", reply)
        require(key == REPLY_KEY, f"the reply's key is {key}")
        require(flags & 0x1F == 0, f"reserved flags in the reply: {flags:#x}")
        require(revision == 1, f"revision {revision} in the reply")
        require(length <= 512, f"{length} octets of private data in the reply")
        return flags, self.connection.receive(length)

    def send_ulpdu(self, ulpdu):
        self.connection.send(fpdu(ulpdu))

    def next_msn(self, queue):
        self.sent[queue] += 1
        return self.sent[queue]

    def send_segments(self, payload, solicited=False, invalidate=None):
        """A Send of one of the four kinds (RFC 5040 s5.3); `invalidate` is an STag of the peer's."""
        kinds = (SEND, SEND_SOLICITED) if invalidate is None else (SEND_INVALIDATE, SEND_SOLICITED_INVALIDATE)
        msn, stag = self.next_msn(SEND_QUEUE), invalidate or 0
        cut = pieces(payload, self.segment)
        return [untagged(kinds[solicited], SEND_QUEUE, msn, *piece, stag=stag) for piece in cut]

    def write_segments(self, stag, offset, payload):
        cut = pieces(payload, self.segment)
        return [tagged(WRITE, stag, offset + at, piece, last) for at, piece, last in cut]

    def send(self, payload, **kind):
        for segment in self.send_segments(payload, **kind):
            self.send_ulpdu(segment)

    def write(self, stag, offset, payload):
        for segment in self.write_segments(stag, offset, payload):
            self.send_ulpdu(segment)

    def post_read(self, stag, offset, length):
        """Asks for `length` octets, to a sink of its own at an odd offset."""
        self.sink_stag += 1
        sink_offset = 0xFFFF_FF00 + self.sink_stag
        self.reads.append([self.sink_stag, sink_offset, length, bytearray()])
        header = read_header(self.sink_stag, sink_offset, length, stag, offset)
        self.send_ulpdu(untagged(READ_REQUEST, READ_QUEUE, self.next_msn(READ_QUEUE), 0, header))

    def take(self, size, fpdu):
        """The next `size` octets of an FPDU. `fpdu` is all of it so far: where it begins, and its octets with markers."""
        if self.stream_at is None:
            octets = self.connection.receive(size)
            fpdu[1] += octets
            return octets
        octets = bytearray()
        while len(octets) < size:
            if self.stream_at % 512 == 0:
                # RFC 5044 s4.3: a marker points back to the length field, or is zero when that comes next.
                marker = self.connection.receive(4)
                back = 0 if fpdu[0] is None else self.stream_at - fpdu[0]
                require(marker == struct.pack(">HH", 0, back), f"marker {marker.hex()} at {self.stream_at}, not {back}")
                piece, self.markers = marker, self.markers + 1
            else:
                fpdu[0] = self.stream_at if fpdu[0] is None else fpdu[0]
                piece = self.connection.receive(min(size - len(octets), 512 - self.stream_at % 512))
                octets += piece
            fpdu[1] += piece
            self.stream_at += len(piece)
        return bytes(octets)

    def receive_ulpdu(self):
        """The next FPDU, its padding, CRC and markers checked."""
        fpdu = [None, bytearray()]
        length = int.from_bytes(self.take(2, fpdu), "big")
        padding = -(2 + length) % 4
        rest = self.take(length + padding + 4, fpdu)
        covered, crc = bytes(fpdu[1][:-4]), rest[-4:]
        require(struct.pack("<I", crc32c(covered)) == crc, "an FPDU with a wrong CRC")
        require(rest[length:-4] == bytes(padding), "padding that is not zero")
        return rest[:length]

    def receive(self):
        """Takes segments until a message is whole: ("send", octets), ("solicited send", octets) or ("read", octets)."""
        while True:
            ulpdu = self.receive_ulpdu()
            control, rdmap = ulpdu[0], ulpdu[1]
            require(control & 0x3F == DDP_VERSION, f"DDP control {control:#x}")
            require(rdmap & 0xF0 == RDMAP_VERSION << 6, f"RDMAP control {rdmap:#x}")
            take = self.on_response if control & TAGGED else self.on_untagged
            message = take(ulpdu, rdmap & 15, bool(control & LAST))
            if message is not None:
                return message

    def on_response(self, ulpdu, opcode, last):
        """A Read Response must continue the oldest Read (RFC 5040 s5.2.2)."""
        require(opcode == READ_RESPONSE, f"a tagged segment with opcode {opcode}")
        require(self.reads, "a Read Response that nobody asked for")
        read = self.reads[0]
        stag, offset = struct.unpack(">IQ", ulpdu[2:14])
        payload = ulpdu[14:]
        require((stag, offset) == (read[0], read[1]), f"a Read Response for {stag:#x} at {offset:#x}, not {read[:2]}")
        read[1] += len(payload)
        read[2] -= len(payload)
        read[3] += payload
        require(last == (read[2] == 0), f"last is {last} with {read[2]} octets to come")
        return ("read", bytes(self.reads.popleft()[3])) if last else None

    def on_untagged(self, ulpdu, opcode, last):
        reserved, queue, msn, offset = struct.unpack(">IIII", ulpdu[2:18])
        require(reserved == 0, "the field for a steering tag is not zero")
        require(msn == self.expected.get(queue), f"message {msn} on queue {queue}")
        allowed = {SEND_QUEUE: (SEND, SEND_SOLICITED), TERMINATE_QUEUE: (TERMINATE,)}[queue]
        require(opcode in allowed, f"opcode {opcode} on queue {queue}")
        require(offset == len(self.message), f"message offset {offset}, {len(self.message)} octets have come")
        self.message += ulpdu[18:]
        if not last:
            return None
        self.expected[queue] += 1
        message, self.message = bytes(self.message), bytearray()
        if queue == TERMINATE_QUEUE:
            raise Terminated(decode_terminate(message))
        return ("solicited send" if opcode == SEND_SOLICITED else "send", message)

    def expect(self, kind, payload):
        """The next message must be this one."""
        got = self.receive()
        require(got[0] == kind, f"a {got[0]} where a {kind} was due")
        require(got[1] == payload, f"a {kind} of {len(payload)} octets came back changed ({len(got[1])} octets)")

    def close(self):
        """FIN both ways, and nothing in between."""
        self.connection.finish()
        try:
            self.connection.receive(1)
            raise ProtocolError("data after the end")
        except Closed as end:
            require(end.how == "fin", "the peer reset a connection that was closed in order")
        self.connection.close()
