"""One fault at a time, and what the responder makes of it.

    faults.py ADDRESS PORT FAULT

Prints one JSON line: the Terminate that came back, if one did, what it showed, and how the connection ended. Then a
second, good connection must work, or the exit status is 1.
"""

import errno
import json
import sys
import time

import iwarp
from iwarp import READ_QUEUE, READ_REQUEST, READ_RESPONSE, SEND, SEND_QUEUE, TERMINATE, TERMINATE_QUEUE, WRITE

# More than the responder's receives, and more Reads than it takes at once. Each lot fits one TCP segment.
MANY_SENDS, MANY_READS = 40, 24
# The responder's longest message.
MESSAGE_BYTES = 16384
# More peers than may wait for their answer at once, and as many as there are queue pairs, in a crowded responder.
SILENT_PEERS, QUEUE_PAIRS = 12, 2
# The last tagged offset there is.
TOP = 0xFFFF_FFFF_FFFF_FFFF
# Longer than any deadline inside the responder.
TIMEOUT_S = 15.0


# Instead of a start-up request: what is sent at once, and nothing behind it.
STARTUP = {
    "http": b"GET / HTTP/1.1\r\nHost: 10.99.2.1\r\nUser-Agent: lost\r\n\r\n",
    "zeros": bytes(64),
    "key-wrong-in-its-last-octet": iwarp.mpa_request(key=b"MPA ID Req Framf"),
    "reply-instead-of-request": iwarp.mpa_request(key=iwarp.REPLY_KEY),
    "revision-0": iwarp.mpa_request(revision=0),
    "revision-3": iwarp.mpa_request(revision=3),
    "private-data-of-513": iwarp.mpa_request(bytes(513)),
    "private-data-of-65535": iwarp.mpa_request(bytes(600), length=65535),
    "private-data-shorter-than-sent": iwarp.mpa_request(bytes(8), length=4),
    "private-data-longer-than-sent": iwarp.mpa_request(bytes(4), length=8),
    "silence": b"",
}


def write(memory, offset=None, payload=bytes(16), **fields):
    return iwarp.tagged(WRITE, memory.stag, memory.offset if offset is None else offset, payload, **fields)


def send(payload=b"once", msn=1, opcode=SEND, queue=SEND_QUEUE, **fields):
    return iwarp.untagged(opcode, queue, msn, payload=payload, **fields)


def read(memory, offset=None, length=16, stag=None, msn=1, cut=28, **fields):
    stag, offset = memory.stag if stag is None else stag, memory.offset if offset is None else offset
    header = iwarp.read_header(0x51, 0, length, stag, offset) + bytes(1)
    return iwarp.untagged(READ_REQUEST, READ_QUEUE, msn, payload=header[:cut], **fields)


def segments(payload, size=1400):
    return [iwarp.untagged(SEND, SEND_QUEUE, 1, *piece) for piece in iwarp.pieces(payload, size)]


# In place of the first FPDUs: the segments that are sent, the last of which is the fault.
SEGMENTS = {
    "write-unknown-stag": lambda m: [iwarp.tagged(WRITE, m.stag ^ 0x0F0F_0F0F, m.offset, b"nowhere")],
    "write-stag-zero": lambda m: [iwarp.tagged(WRITE, 0, m.offset, b"nowhere")],
    "write-below": lambda m: [write(m, m.offset - 1)],
    "write-beyond": lambda m: [write(m, m.offset + m.length - 15)],
    "write-far": lambda m: [write(m, m.offset + (1 << 40))],
    "write-wraps": lambda m: [write(m, TOP - 3)],
    "write-second-segment-beyond": lambda m: [
        write(m, m.offset + m.length - 16, last=False),
        write(m, m.offset + m.length),
    ],
    "tagged-ddp-version-0": lambda m: [write(m, ddp_version=0)],
    "tagged-ddp-version-2": lambda m: [write(m, ddp_version=2)],
    "untagged-ddp-version-3": lambda m: [send(ddp_version=3)],
    "queue-3": lambda m: [send(queue=3)],
    "queue-4": lambda m: [send(queue=4)],
    "queue-top": lambda m: [send(queue=0xFFFF_FFFF)],
    "msn-0": lambda m: [send(msn=0)],
    "msn-skips-one": lambda m: [send(msn=1), send(msn=3)],
    "msn-repeats": lambda m: [send(msn=1), send(msn=1)],
    "read-msn-2": lambda m: [read(m, msn=2)],
    "offset-not-0": lambda m: [send(offset=4)],
    "offset-with-gap": lambda m: [send(last=False), send(offset=8)],
    "send-too-long": lambda m: segments(bytes(MESSAGE_BYTES + 1)),
    "send-too-long-in-one-segment": lambda m: segments(bytes(MESSAGE_BYTES + 1), MESSAGE_BYTES + 1),
    "send-without-receive": lambda m: [send(b"x", msn) for msn in range(1, MANY_SENDS)],
    "read-unknown-stag": lambda m: [read(m, stag=m.stag ^ 0x0F0F_0F0F)],
    "read-beyond": lambda m: [read(m, m.offset + m.length - 15)],
    "read-below": lambda m: [read(m, m.offset - 1)],
    "read-more-than-all": lambda m: [read(m, length=m.length + 1)],
    "read-wraps": lambda m: [read(m, TOP - 3)],
    "read-request-cut-short": lambda m: [read(m, cut=27)],
    "read-request-too-long": lambda m: [read(m, cut=29)],
    "reads-too-many": lambda m: [read(m, length=m.length, msn=msn) for msn in range(1, MANY_READS)],
    "opcode-15": lambda m: [send(opcode=15)],
    "opcode-of-a-write-untagged": lambda m: [send(opcode=WRITE)],
    "opcode-of-a-send-tagged": lambda m: [iwarp.tagged(SEND, m.stag, m.offset, b"once")],
    "opcode-of-a-send-on-the-read-queue": lambda m: [send(bytes(28), queue=READ_QUEUE)],
    "response-that-nobody-asked-for": lambda m: [iwarp.tagged(READ_RESPONSE, m.stag, m.offset, b"unasked")],
    "rdmap-version-2": lambda m: [send(version=2)],
    "tagged-rdmap-version-3": lambda m: [write(m, version=3)],
    "no-room-for-a-header": lambda m: [write(m)[:13]],
    "no-octet-at-all": lambda m: [b""],
    "peer-terminates": lambda m: [iwarp.untagged(TERMINATE, TERMINATE_QUEUE, 1, payload=b"\x12\x02\x00\x00")],
}

# The octets of a Send and of a Write, and where to cut them: in the length, the header, the payload, the CRC.
CUTS = (0, 1, 2, 3, 4, 15, 16, 19, 20, 21, 50)


class Outcome:
    """The bytes received until the responder ended the connection."""

    def __init__(self, stream, fault):
        self.terminate, self.messages = None, 0
        try:
            self.listen(stream)
        except iwarp.Closed as end:
            self.end = end.how
        stream.connection.close()
        self.fault = fault

    def listen(self, stream):
        while True:
            try:
                stream.receive()
                self.messages += 1
            except iwarp.Terminated as terminated:
                self.terminate = terminated.terminate

    def report(self):
        report = {"end": self.end, "messages": self.messages, "terminate": None}
        if self.terminate:
            report["terminate"] = [self.terminate[key] for key in ("layer", "type", "code")]
            report["shows_segment"] = self.shows_segment()
            report["shows_request"] = self.terminate["rdma"] != b"" and self.terminate["rdma"] == self.fault[18:]
        return report

    def shows_segment(self):
        """Whether the fault's own header came back, and its length."""
        if not self.terminate["ddp"]:
            return False
        iwarp.require(self.terminate["ddp"] == self.fault[: 14 if self.fault[0] & iwarp.TAGGED else 18], "the header")
        iwarp.require(self.terminate["segment_bytes"] == len(self.fault), "the segment's length")
        return True


def connected(address):
    stream = iwarp.Initiator(address, TIMEOUT_S)
    return stream, iwarp.decode_advertisement(stream.start_up())


def startup_fault(address, name):
    stream = iwarp.Initiator(address, TIMEOUT_S)
    stream.connection.send(STARTUP[name])
    return Outcome(stream, b"").report()


def markers(address):
    """RFC 5044 s4.3: an end that is asked for markers has to send them. They stand in a Read Response and in a Terminate."""
    stream = iwarp.Initiator(address, TIMEOUT_S)
    memory = iwarp.decode_advertisement(stream.start_up(markers=True))
    payload = bytes(index % 251 for index in range(min(memory.length, 20000)))
    stream.write(memory.stag, memory.offset, payload)
    stream.post_read(memory.stag, memory.offset, len(payload))
    stream.expect("read", payload)
    iwarp.require(stream.markers >= len(payload) // 512, f"{stream.markers} markers in {len(payload)} octets")
    ulpdu = send(queue=7)
    stream.send_ulpdu(ulpdu)
    return Outcome(stream, ulpdu).report()


def segment_fault(address, name):
    """All segments in one write, so that the responder meets them together."""
    stream, memory = connected(address)
    sent = SEGMENTS[name](memory)
    stream.connection.send(b"".join(map(iwarp.fpdu, sent)))
    # Where one of many is the fault, the responder's limit decides which one.
    return Outcome(stream, shown(name, sent)).report()


def shown(name, sent):
    return sent[{"send-without-receive": 32, "reads-too-many": 16}.get(name, -1)]


def wrong_crc(address, spoilt):
    stream, memory = connected(address)
    ulpdu = write(memory, payload=bytes(100))
    stream.connection.send(iwarp.fpdu(ulpdu) + iwarp.fpdu(ulpdu, crc_error=spoilt))
    return Outcome(stream, ulpdu).report()


def spoilt_payload(address):
    """A bit of the payload changes after the CRC was made."""
    stream, _ = connected(address)
    octets = bytearray(iwarp.fpdu(send(bytes(1000))))
    octets[500] ^= 0x10
    stream.connection.send(bytes(octets))
    return Outcome(stream, b"").report()


def data_behind_the_fault(address):
    """What follows a fault is acknowledged and dropped: a reset would destroy the Terminate on its way."""
    stream, memory = connected(address)
    fault = write(memory, memory.offset + memory.length)
    stream.connection.send(iwarp.fpdu(fault) + 100 * iwarp.fpdu(write(memory, payload=bytes(1400))))
    return Outcome(stream, fault).report()


def cut_requests(address):
    """The connection ends after each of some prefixes of the request, by FIN and by RST."""
    request = iwarp.mpa_request(bytes(64))
    for cut in CUTS:
        end_early(iwarp.Initiator(address, TIMEOUT_S), request[:cut])
        reset_early(iwarp.Initiator(address, TIMEOUT_S), request[:cut])
    return {"connections": 0}


def cut_fpdus(address):
    """The same in an FPDU: each of these was connected."""
    for cut in CUTS:
        stream, memory = connected(address)
        end_early(stream, iwarp.fpdu(write(memory, payload=bytes(40)))[:cut])
        reset_early(connected(address)[0], iwarp.fpdu(send(bytes(40)))[:cut])
    return {"connections": 2 * len(CUTS)}


def end_early(stream, octets):
    stream.connection.send(octets)
    stream.connection.finish()
    outcome = Outcome(stream, b"")
    iwarp.require(outcome.terminate is None and outcome.messages == 0, "something came back")


def reset_early(stream, octets):
    stream.connection.send(octets)
    stream.connection.reset()


def reset_in_a_write(address):
    stream, memory = connected(address)
    stream.write(memory.stag, memory.offset, bytes(30_000))
    stream.connection.send(iwarp.fpdu(write(memory, payload=bytes(1000)))[:500])
    stream.connection.reset()
    return {}


def reset_while_reading(address):
    """The responder has megabytes to send when the reset comes."""
    stream, memory = connected(address)
    for _ in range(16):
        stream.post_read(memory.stag, memory.offset, memory.length)
    stream.connection.receive(1000)
    stream.connection.reset()
    return {}


def many_silent(address):
    """More peers than may wait say nothing. Some are turned away at once, the others after a while."""
    streams = [silent_peer(address) for _ in range(SILENT_PEERS)]
    for stream in filter(None, streams):
        Outcome(stream, b"")
    return {"ended": len(streams)}


def silent_peer(address):
    try:
        return iwarp.Initiator(address, TIMEOUT_S)
    except ConnectionResetError:
        return None


def many_connected(address):
    """One peer more than there are queue pairs is refused in words; those before it are not disturbed."""
    streams = [connected(address)[0] for _ in range(QUEUE_PAIRS)]
    late = iwarp.Initiator(address, TIMEOUT_S)
    late.connection.send(iwarp.mpa_request())
    flags, why = late.receive_reply()
    outcome = Outcome(late, b"").report()
    for stream in streams:
        stream.send(b"still here")
        stream.expect("send", b"still here")
        stream.close()
    return {"refused": bool(flags & iwarp.REJECT), "why": why.decode(), **outcome}


def port_reused(address):
    """RFC 6191: where the responder closed first, its memory of the old connection does not lock the port."""
    stream, memory = connected(address)
    port = stream.connection.socket.getsockname()[1]
    fault = write(memory, memory.offset + memory.length)
    stream.send_ulpdu(fault)
    outcome = Outcome(stream, fault)
    again = from_port(address, port)
    again.start_up()
    again.close()
    return outcome.report()


def from_port(address, port):
    """A connection from a port that our own TCP is about to let go."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            return iwarp.Initiator(address, TIMEOUT_S, port)
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EADDRNOTAVAIL) or time.monotonic() > deadline:
                raise
            time.sleep(0.001)


OTHERS = {
    "port-reused": port_reused,
    "many-silent": many_silent,
    "many-connected": many_connected,
    "markers": markers,
    "crc-wrong-in-one-bit": lambda address: wrong_crc(address, 1),
    "crc-complemented": lambda address: wrong_crc(address, 0xFFFF_FFFF),
    "payload-spoilt": spoilt_payload,
    "data-behind-the-fault": data_behind_the_fault,
    "cut-requests": cut_requests,
    "cut-fpdus": cut_fpdus,
    "reset-in-a-write": reset_in_a_write,
    "reset-while-reading": reset_while_reading,
}


def run(address, name):
    if name in STARTUP:
        return startup_fault(address, name)
    if name in SEGMENTS:
        return segment_fault(address, name)
    return OTHERS[name](address)


def good(address):
    """Nothing else was disturbed."""
    stream, memory = connected(address)
    payload = bytes(range(256)) * 10
    stream.send(payload)
    stream.expect("send", payload)
    stream.write(memory.stag, memory.offset, payload)
    stream.post_read(memory.stag, memory.offset, len(payload))
    stream.expect("read", payload)
    stream.close()


def main():
    address, name = (sys.argv[1], int(sys.argv[2])), sys.argv[3]
    report = run(address, name)
    good(address)
    print(json.dumps({"fault": name, **report}))


main()
