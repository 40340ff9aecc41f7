"""The Linux peer: a virtual machine under QEMU's emulation, and commands given to it.

Commands go through QEMU's guest agent over a virtual serial line, so they need no network and work while the network is
cut. Everything waits with a limit. The machine keeps nothing: it boots from memory, in seconds.
"""

import base64
import json
import socket
import subprocess
import time
from dataclasses import dataclass

from outcome import Failed

ADDRESS = "10.77.0.2"
MAC = "52:54:00:77:00:02"
# Timeouts under emulation on a busy machine.
BOOT_SECONDS = 90
AGENT_SECONDS = 60
# Frames as on a wire: complete checksums, none longer than the MTU.
NO_OFFLOADS = "".join(
    f",{name}=off"
    for name in "csum gso guest_csum guest_tso4 guest_tso6 guest_ecn guest_ufo host_tso4 host_tso6 host_ecn host_ufo".split()
)


@dataclass
class Ended:
    """How a command ended: its exit code, 128 + N for signal N, and what it said on both outputs."""

    code: int
    said: str


class Guest:
    """One virtual machine. `network` are QEMU's arguments for its card's other end, which is called n0; `cards` those for
    further cards, for whose sake the machine has an IOMMU then."""

    def __init__(self, image, folder, network, cards=(), mtu=1500, memory_mib=1024, processor="max"):
        self.cards, self.memory, self.processor = list(cards), f"{memory_mib}M", processor
        self.image, self.folder, self.network, self.mtu = image, folder, network, mtu
        self.qemu = None
        self.agent = None

    def boot(self):
        """Starts the machine and waits until it takes commands."""
        (self.folder / "agent").unlink(missing_ok=True)
        self.console = self.folder / "console.log"
        with open(self.folder / "qemu.log", "w") as log:
            self.qemu = subprocess.Popen(self._command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + BOOT_SECONDS
        while not self._agent_replies():
            if self.qemu.poll() is not None:
                said = self._last(self.folder / "qemu.log"), self._last(self.console)
                raise Failed(f"QEMU ended while the guest started; it: {said[0]}; the guest: {said[1]}")
            if time.monotonic() > deadline:
                self.stop()
                raise Failed(f"the guest is not up after {BOOT_SECONDS} s: {self._last(self.console)}")
            time.sleep(0.05)

    def stop(self):
        """Switches the machine off. It has nothing to lose."""
        if self.agent:
            self.agent.close()
            self.agent = None
        if self.qemu:
            self.qemu.kill()
            self.qemu.wait()
            self.qemu = None

    def is_up(self):
        """Whether the machine runs and takes commands."""
        return self.qemu is not None and self.qemu.poll() is None and self._agent_replies()

    def start(self, command, limit=60):
        """Starts a shell command, killed after `limit` seconds."""
        arguments = {"path": "/usr/bin/timeout", "arg": ["-s", "KILL", str(limit), "sh", "-c", command]}
        environment = ["PATH=/usr/sbin:/usr/bin", "HOME=/root", "LC_ALL=C"]
        pid = self._request("guest-exec", **arguments, env=environment, **{"capture-output": True})["pid"]
        return Job(self, command, pid, time.monotonic() + limit + AGENT_SECONDS)

    def run(self, command, limit=60):
        """Runs a shell command to its end."""
        return self.start(command, limit).wait()

    def must(self, command, limit=60):
        """Runs a command that has to succeed. Gives what it said."""
        return self.start(command, limit).must()

    def set(self, **parameters):
        """Sets parameters of siw: mpa_crc_required, peer_to_peer, rtr_type, mpa_version, try_gso, ..."""
        self.must("; ".join(f"echo {value} > /sys/module/siw/parameters/{name}" for name, value in parameters.items()))

    def degrade(self, netem):
        """Applies a netem setting to frames of both directions. Nothing removes it."""
        # By path: the shell would run busybox's own tc and ip, which have fewer functions.
        if netem is None:
            self.must("/sbin/tc qdisc del dev eth0 root; /sbin/tc qdisc del dev eth0 ingress; true")
            return
        # Arriving frames have no queue in which they could be delayed: they pass through another interface's.
        self.must(
            "modprobe ifb numifbs=1 && /sbin/ip link set ifb0 up && /sbin/tc qdisc add dev eth0 ingress &&"
            "/sbin/tc filter add dev eth0 ingress matchall action mirred egress redirect dev ifb0 &&"
            f"/sbin/tc qdisc replace dev eth0 root netem {netem} && /sbin/tc qdisc replace dev ifb0 root netem {netem}"
        )

    def wait_listening(self, port, limit=15):
        """Waits until somebody listens at a port. 0A is TCP's LISTEN in the kernel's table."""
        self.must(f"until grep -qs ':{port:04X} [0-9A-F:]* 0A ' /proc/net/tcp /proc/net/tcp6; do usleep 20000; done", limit)

    def _command(self):
        settings = f"lab.address={ADDRESS}/24 lab.mtu={self.mtu}"
        # The machine must end with its owner.
        command = ["setpriv", "--pdeathsig", "KILL", "--", "qemu-system-x86_64"]
        command += "-nodefaults -no-user-config -display none -no-reboot -smp 2 -cpu".split()
        command.append(self.processor)
        command += ["-m", self.memory]
        bus = "pci.0"
        if self.cards:
            bus = "pcie.0"
            command += "-machine q35,kernel-irqchip=split -device intel-iommu,intremap=on".split()
        else:
            command += ["-machine", "pc"]
        # In its own slot ahead of the others, so that the kernel names it eth0. QEMU 7.2 under emulation dies of interrupt
        # vectors with a vhost-user back end: vectors=0 does without.
        vectors = ",vectors=0" if "vhost-user" in " ".join(self.network) else ""
        card = f"virtio-net-pci,netdev=n0,mac={MAC},bus={bus},addr=3{vectors}{NO_OFFLOADS}"
        command += [*self.network, "-device", card, *(word.format(bus=bus) for word in self.cards)]
        command += ["-accel", "tcg,thread=multi,tb-size=512"]
        # If the card's other end is another process, that process maps the guest's memory.
        command += ["-object", f"memory-backend-memfd,id=memory,size={self.memory},share=on", "-numa", "node,memdev=memory"]
        command += ["-kernel", str(self.image / "vmlinux"), "-initrd", str(self.image / "guest.cpio")]
        # On a busy machine the emulated timer fails the kernel's check, which then panics.
        kernel = "console=ttyS0 loglevel=5 earlyprintk=ttyS0 panic=-1 no_timer_check net.ifnames=0 mitigations=off nokaslr"
        if self.cards:
            # The kernel's drivers and uio work without an IOMMU, vfio with one.
            kernel += " intel_iommu=on iommu=pt"
        command += ["-append", f"{kernel} {settings}"]
        command += ["-chardev", f"file,id=console,path={self.folder}/console.log", "-serial", "chardev:console"]
        command += ["-chardev", f"socket,id=agent,path={self.folder}/agent,server=on,wait=off"]
        command += ["-device", "virtio-serial-pci"]
        command += ["-device", "virtserialport,chardev=agent,name=org.qemu.guest_agent.0"]
        command += ["-object", "rng-random,id=rng,filename=/dev/urandom", "-device", "virtio-rng-pci,rng=rng"]
        return command

    def _agent_replies(self):
        try:
            if self.agent is None:
                self.agent = Agent(self.folder / "agent", 1)
                self.agent.request("guest-ping")
                self.agent.line.settimeout(AGENT_SECONDS)
            else:
                self.agent.request("guest-ping")
            return True
        except (OSError, ValueError):
            if self.agent:
                self.agent.close()
            self.agent = None
            return False

    def _request(self, command, **arguments):
        if self.agent is None:
            raise Failed("the guest is not up")
        try:
            return self.agent.request(command, **arguments)
        except (OSError, ValueError) as error:
            raise Failed(f"the guest does not answer: {error}: {self._last(self.console)}") from error

    @staticmethod
    def _last(path):
        return last_line(path.read_text(errors="replace")) if path.exists() else "it said nothing"


class Job:
    """A command that runs in the guest."""

    def __init__(self, guest, command, pid, deadline):
        self.guest, self.command, self.pid, self.deadline = guest, command, pid, deadline
        self.ended = None

    def poll(self):
        """How it ended, or nothing while it runs."""
        if self.ended is None:
            status = self.guest._request("guest-exec-status", pid=self.pid)
            if status["exited"]:
                said = b"".join(base64.b64decode(status.get(name, "")) for name in ("out-data", "err-data"))
                code = 128 + status["signal"] if "signal" in status else status.get("exitcode", 1)
                self.ended = Ended(code, said.decode(errors="replace"))
        return self.ended

    def wait(self):
        """Waits for the end, which the command's own limit brings about at the latest."""
        pause = 0.01
        while self.poll() is None:
            if time.monotonic() > self.deadline:
                raise Failed(f"guest: {self.command}: does not end")
            time.sleep(pause)
            pause = min(pause * 1.5, 0.2)
        return self.ended

    def must(self):
        """Waits for the end, which has to be a good one. Gives what the command said."""
        ended = self.wait()
        if ended.code != 0:
            raise Failed(f"guest: {self.command}: exit code {ended.code}: {last_line(ended.said)}")
        return ended.said

    def kill(self):
        """Kills the command and what it started itself."""
        self.guest.run(f"kill -KILL $(cat /proc/{self.pid}/task/*/children) {self.pid}", 10)


class Agent:
    """One connection to the guest agent: a line of JSON each way."""

    def __init__(self, path, seconds):
        self.line = socket.socket(socket.AF_UNIX)
        self.line.settimeout(seconds)
        self.line.connect(str(path))
        self.heard = b""
        # Output left over from an earlier connection is not a reply.
        mark = time.monotonic_ns() & 0x7FFFFFFF
        self._send(b"\xff", "guest-sync-delimited", id=mark)
        while self._receive().rpartition(b"\xff")[2] != b'{"return": %d}' % mark:
            pass

    def request(self, command, **arguments):
        """Gives a command, returns its answer."""
        self._send(b"", command, **arguments)
        answer = json.loads(self._receive())
        if "error" in answer:
            raise ValueError(answer["error"]["desc"])
        return answer["return"]

    def close(self):
        """Hangs up."""
        self.line.close()

    def _send(self, before, command, **arguments):
        self.line.sendall(before + json.dumps({"execute": command, "arguments": arguments}).encode() + b"\n")

    def _receive(self):
        while b"\n" not in self.heard:
            some = self.line.recv(1 << 16)
            if not some:
                raise ConnectionError("the agent hung up")
            self.heard += some
        answer, _, self.heard = self.heard.partition(b"\n")
        return answer


def last_line(text):
    """The last line that says something."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"
