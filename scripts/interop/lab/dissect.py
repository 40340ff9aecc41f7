"""What Wireshark finds wrong in a cell's capture: its own dissector, and scripts/wireshark/ironwarp.lua for DDP over SCTP.

Frames that were lost, late or doubled are the network's doing. A start-up frame or an FPDU that cannot be read, or whose CRC
is wrong, is somebody's fault whatever the network did, and so is a wrong checksum of ours. Of the guest's own frames no
checksum is looked at: they are captured where its card would fill them in. So are ours over a tap, whose checksums the kernel
passes on to the guest's card. The kernel writes 0xffff for a checksum of 0, of TCP too. A peer over SCTP breaks rules on purpose:
there only our frames count.
"""

import pathlib
import subprocess

from outcome import Failed

# iWARP is searched on every port. The disabled protocols would claim a message's first octets.
SETTINGS = ["tcp.try_heuristic_first", "tcp.check_checksum", "ip.check_checksum", "tcp.reassemble_out_of_order"]
READ = ["timeout", "300", "tshark", "-n", *(word for name in SETTINGS for word in ("-o", f"{name}:TRUE"))]
READ += "--disable-protocol rpcordma --disable-protocol smb_direct".split()
LUA = pathlib.Path(__file__).resolve().parents[2] / "wireshark" / "ironwarp.lua"
READ += ["-X", f"lua_script:{LUA}", "-o", "sctp.checksum:CRC 32c"]
# Exit codes of tshark: success, or a capture that ends within a frame, as that of a killed process does.
TSHARK_OK = (0, 2)


def check_captures(folder, ours, is_tap):
    """Fails with the first fault in the captures of a cell. Gives how many FPDUs and DATA chunks were read."""
    tcp = "(tcp.checksum.status == 0 && tcp.checksum != 0xffff)"
    sums = "ip.checksum.status == 0" if is_tap else f"({tcp} || ip.checksum.status == 0)"
    # A peer's packet that was damaged on its way has a wrong IP checksum.
    wrong = f"(_ws.malformed && !sctp && !(ip.checksum.status == 0)) || iwarp_mpa.bad_length || (ip.src == {ours} && {sums})"
    # An ICMP error quotes the beginning of a packet.
    wrong += f" || (ip.src == {ours} && sctp && !icmp && (_ws.malformed || ironwarp.sctp.wrong || sctp.checksum.status == 0))"
    found = 0
    for capture in sorted(folder.glob("wire*.pcapng")):
        shown = f"iwarp_mpa.fpdu || ironwarp.sctp.ssn || {wrong}"
        read = [*READ, "-r", str(capture), "-V", "-O", "iwarp_mpa,ironwarp.sctp", "-Y", shown]
        with subprocess.Popen(read, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, errors="replace") as tshark:
            found += count(tshark.stdout, capture.name)
        must_have_read(tshark.returncode, capture)
        for line in dissection(capture, wrong):
            raise Failed(f"Wireshark: {capture.name}: {line}")
    return found


def count(lines, name):
    """FPDUs, none of which may have a wrong CRC, and DATA chunks of DDP."""
    found, frame = 0, ""
    for line in lines:
        if line.startswith("Frame "):
            frame = line.split(":")[0]
        elif "CRC check: " in line:
            found += 1
            if "Good" not in line:
                raise Failed(f"Wireshark: {name}: {frame}: {line.strip()}")
        elif "DDP-SSN: " in line:
            found += 1
    return found


def dissection(capture, wrong):
    """One line for each frame that is wrong."""
    read = [*READ, "-r", str(capture), "-Y", wrong]
    ended = subprocess.run(read, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    must_have_read(ended.returncode, capture)
    return [line.strip() for line in ended.stdout.splitlines()]


def must_have_read(code, capture):
    """Nothing found by a program that could not look is no proof."""
    if code not in TSHARK_OK:
        raise Failed(f"tshark ended with {code} over {capture.name}")
