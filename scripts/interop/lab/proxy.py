"""A way through the kernel's sockets of this machine, which sets a bit of ours to siw and looks at what siw sends.

siw sends FPDUs beyond the segment size only to peers that set a bit of its own in their start-up frame, which we do not.
The frame has no checksum of its own (RFC 5044 s7.1.1), so the bit can be set on its way.
"""

import contextlib
import socket
import threading

# siw's iwarp.h: MPA_RR_FLAG_GSO_EXP, in the octet of flags.
LARGE_FPDUS = 0x08
FLAGS_AT = 16
FRAME_BYTES = 20
CRC_BYTES = 4


class Proxy:
    """Takes connections at a port and makes one to `target` for each. `siw_called` says which end is siw."""

    def __init__(self, address, port, target, siw_called):
        self.target, self.siw_called = target, siw_called
        self.ulpdu_bytes_max = 0
        self.listener = socket.create_server((address, port))
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self):
        """Takes no more connections. Those there are end with their ends."""
        # A process that waits for the next connection would hold the port.
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def _serve(self):
        with contextlib.suppress(OSError):
            while True:
                caller, _ = self.listener.accept()
                called = socket.create_connection(self.target, 30)
                called.settimeout(None)
                siw, ours = (called, caller) if self.siw_called else (caller, called)
                threading.Thread(target=self._pass, args=(ours, siw, mark), daemon=True).start()
                threading.Thread(target=self._pass, args=(siw, ours, self._measure), daemon=True).start()

    def _pass(self, source, sink, look):
        """Passes on what comes; the first octets once there are enough of them to be looked at."""
        with contextlib.suppress(OSError), source, sink:
            stream = source.makefile("rb", buffering=0)
            look(stream, sink)
            while some := stream.read(1 << 16):
                sink.sendall(some)
            sink.shutdown(socket.SHUT_WR)

    def _measure(self, stream, sink):
        """The longest ULPDU of the stream's (RFC 5044 s4.1: length, ULPDU, pad to four octets, CRC)."""
        head = exactly(stream, sink, FRAME_BYTES)
        exactly(stream, sink, int.from_bytes(head[-2:], "big"))
        while length := exactly(stream, sink, 2):
            ulpdu_bytes = int.from_bytes(length, "big")
            self.ulpdu_bytes_max = max(self.ulpdu_bytes_max, ulpdu_bytes)
            exactly(stream, sink, ulpdu_bytes + -(2 + ulpdu_bytes) % 4 + CRC_BYTES)


def mark(stream, sink):
    """Sets the bit in the start-up frame."""
    frame = bytearray(take(stream, FRAME_BYTES))
    if len(frame) == FRAME_BYTES:
        frame[FLAGS_AT] |= LARGE_FPDUS
    sink.sendall(frame)


def exactly(stream, sink, count):
    """Passes on so many octets, and gives them; fewer where the stream ends."""
    octets = take(stream, count)
    sink.sendall(octets)
    return octets


def take(stream, count):
    """So many octets, fewer where the stream ends."""
    octets = b""
    while len(octets) < count and (some := stream.read(count - len(octets))):
        octets += some
    return octets
