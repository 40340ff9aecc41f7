"""A conversation without faults: Sends that come back, Writes that are read back, an end in order.

    exchange.py ADDRESS PORT [--private-data HEX] [--sends SIZES] [--writes SIZES] [--segments SIZES] [--rounds N]

Prints one JSON line with what it did. Anything unexpected is an exception and exit status 1.
"""

import argparse
import json
import random

import iwarp

# Reads in flight at once: no more than the responder takes.
READS = 4
# Sends in flight at once.
SENDS = 8
# The alignment of the places that are written one after the other.
ALIGNMENT = 8


def sizes(text):
    return [int(size) for size in text.split(",") if size]


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("port", type=int)
    parser.add_argument("--private-data", type=bytes.fromhex, default=b"")
    parser.add_argument("--sends", type=sizes, default=[])
    parser.add_argument("--writes", type=sizes, default=[])
    parser.add_argument("--segments", type=sizes, default=[1400])
    parser.add_argument("--rounds", type=int, default=1)
    return parser.parse_args()


class Exchange:
    """What is sent is random, from a fixed seed; each message is cut into segments of the next size in the list."""

    def __init__(self, initiator, memory, segments):
        self.initiator = initiator
        self.memory = memory
        self.segments = segments
        self.random = random.Random(5040)
        self.messages = 0

    def payload(self, size):
        self.initiator.segment = self.segments[self.messages % len(self.segments)]
        self.messages += 1
        return self.random.randbytes(size)

    def echo_one_by_one(self, size_list):
        for size in size_list:
            payload = self.payload(size)
            self.initiator.send(payload)
            self.initiator.expect("send", payload)

    def echo_many_at_once(self, count, size):
        payloads = [self.payload(size) for _ in range(count)]
        for payload in payloads:
            self.initiator.send(payload)
        for payload in payloads:
            self.initiator.expect("send", payload)

    def echo_octet_by_octet(self, size):
        payload = self.payload(size)
        for segment in self.initiator.send_segments(payload):
            for octet in iwarp.fpdu(segment):
                self.initiator.connection.send(bytes([octet]))
        self.initiator.expect("send", payload)

    def write_and_read(self, size_list):
        """Each size on its own, as far into the memory as it fits."""
        for size in size_list:
            payload = self.payload(size)
            offset = self.memory.offset + (self.memory.length - size)
            self.initiator.write(self.memory.stag, offset, payload)
            self.initiator.post_read(self.memory.stag, offset, size)
            self.initiator.expect("read", payload)

    def read_many_at_once(self, size_list):
        """All of it written, then several Reads in flight."""
        offset, pending = self.memory.offset, []
        for size in size_list:
            payload = self.payload(size)
            if offset + size <= self.memory.offset + self.memory.length:
                self.initiator.write(self.memory.stag, offset, payload)
                pending.append((offset, payload))
                offset += size + -size % ALIGNMENT
        for start in range(0, len(pending), READS):
            batch = pending[start : start + READS]
            for at, payload in batch:
                self.initiator.post_read(self.memory.stag, at, len(payload))
            for _, payload in batch:
                self.initiator.expect("read", payload)

    def touch_nothing(self):
        """RFC 5041 s7.1, RFC 5040 s7.2: STag and offset of an empty message are not looked at."""
        self.initiator.write(0, 0xFFFF_FFFF_FFFF_FFFF, b"")
        self.initiator.post_read(0, 0xFFFF_FFFF_FFFF_FFFF, 0)
        self.initiator.expect("read", b"")


def main():
    args = arguments()
    initiator = iwarp.Initiator((args.address, args.port))
    memory = iwarp.decode_advertisement(initiator.start_up(args.private_data))
    exchange = Exchange(initiator, memory, args.segments)
    local_port = initiator.connection.socket.getsockname()[1]
    for _ in range(args.rounds):
        exchange.echo_one_by_one(args.sends)
        exchange.write_and_read(args.writes)
        exchange.read_many_at_once([size for size in args.writes if size < memory.length // 4])
        exchange.echo_many_at_once(SENDS, 1000)
        exchange.echo_octet_by_octet(40)
        exchange.touch_nothing()
    initiator.close()
    echoes = args.rounds * (len(args.sends) + SENDS + 1)
    print(json.dumps({"local_port": local_port, "memory": memory._asdict(), "echoes": echoes}))


main()
