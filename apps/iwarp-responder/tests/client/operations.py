"""Every kind of Send: what comes back, and what it does to the memory that was offered.

    operations.py ADDRESS PORT CASE

Prints one JSON line: the offered STag, the echoes that came back in order, and the Terminate at the end, if one came.
"""

import json
import sys

import iwarp

# A steering tag that the responder never gave us.
FOREIGN = 0x0F0F_0F0F


class Case:
    def __init__(self, address):
        self.initiator = iwarp.Initiator(address)
        self.memory = iwarp.decode_advertisement(self.initiator.start_up())
        self.echoes = []

    def echo(self, payload, **kind):
        """One Send, whose echo asks for an event where the Send did."""
        self.initiator.send(payload, **kind)
        wanted = "solicited send" if kind.get("solicited") else "send"
        self.initiator.expect(wanted, payload)
        self.echoes.append([wanted, len(payload)])

    def write_and_read(self):
        payload = bytes(range(200))
        self.initiator.write(self.memory.stag, self.memory.offset, payload)
        self.initiator.post_read(self.memory.stag, self.memory.offset, len(payload))
        self.initiator.expect("read", payload)

    def terminate(self):
        """The next message must be a Terminate, with FIN behind it."""
        try:
            message = self.initiator.receive()
            raise iwarp.ProtocolError(f"{message} where a Terminate was due")
        except iwarp.Terminated as terminated:
            told = [terminated.terminate[key] for key in ("layer", "type", "code")]
        try:
            self.initiator.receive()
        except iwarp.Closed as end:
            iwarp.require(end.how == "fin", "a Terminate that a reset may have destroyed")
        return told


def solicited(case):
    for size in (0, 1, 5000):
        case.echo(bytes(size), solicited=True)
        case.echo(bytes(size))
    case.initiator.close()


def invalidate(case, **kind):
    """The tag is good until the Send that ends it, and no longer."""
    case.write_and_read()
    case.echo(b"end of the tag", invalidate=case.memory.stag, **kind)
    case.initiator.post_read(case.memory.stag, case.memory.offset, 16)
    return case.terminate()


def write_behind(case):
    case.echo(b"", invalidate=case.memory.stag)
    case.initiator.write(case.memory.stag, case.memory.offset, b"too late")
    return case.terminate()


def twice(case):
    case.echo(b"", invalidate=case.memory.stag)
    case.initiator.send(b"", invalidate=case.memory.stag)
    return case.terminate()


def foreign(case):
    case.initiator.send(b"not yours", invalidate=case.memory.stag ^ FOREIGN)
    return case.terminate()


CASES = {
    "solicited": solicited,
    "invalidate": invalidate,
    "invalidate-solicited": lambda case: invalidate(case, solicited=True),
    "write-behind": write_behind,
    "invalidate-twice": twice,
    "invalidate-foreign": foreign,
}


def main():
    address, name = (sys.argv[1], int(sys.argv[2])), sys.argv[3]
    case = Case(address)
    terminate = CASES[name](case)
    print(json.dumps({"stag": case.memory.stag, "echoes": case.echoes, "terminate": terminate}))


main()
