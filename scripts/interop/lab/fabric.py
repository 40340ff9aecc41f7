"""How the guest and our process are joined, for each device.

    af_packet, af_xdp   guest ─ tap ─ bridge ─ veth ─ our raw or XDP socket
    tap                 guest ─ tap ─ the kernel's routing ─ tap of ours
    vhost               guest ─ shared memory ─ our process, no kernel in between
    pci                 as af_packet, with more cards of the guest's in the bridge, which our programs drive there
    release             as pci, where the guest has nothing of ours but the release archive

Everything lies in the network namespace that the lab was started in, which nobody else is in and which goes with its last
process: there is nothing to take down.
"""

import subprocess

from guest import ADDRESS as GUEST
from outcome import Failed

# The devices of cells of `every device`, and all devices.
HOST_DEVICES = ("af_packet", "vhost", "tap", "af_xdp")
IN_GUEST = ("pci", "release")
DEVICES = (*HOST_DEVICES, *IN_GUEST)

# Our stack's address and, for the tap, the kernel's.
OURS = "10.77.0.1"
OURS_BEHIND_TAP = "10.77.1.1"
KERNEL_AT_TAP = "10.77.1.2"
KERNEL_AT_GUEST = "10.77.0.254"

GUEST_TAP = "guest0"
# The cards that the guest's kernel leaves alone: QEMU's name, the interface of the other end, the slot, the hardware
# address.
CARDS = (
    ("e1000e", "card0", 4, "52:54:00:77:00:04"),
    ("virtio-net-pci", "card1", 5, "52:54:00:77:00:05"),
    # Behind the IOMMU, with interrupt vectors and without.
    ("virtio-net-pci,disable-legacy=on,iommu_platform=on", "card2", 6, "52:54:00:77:00:06"),
    ("virtio-net-pci,disable-legacy=on,iommu_platform=on,vectors=0", "card3", 7, "52:54:00:77:00:07"),
)
OUR_INTERFACE = "iwarp0"


class Fabric:
    """The way between the guest and us over one device."""

    def __init__(self, device, folder, mtu=1500):
        self.device, self.folder, self.mtu = device, folder, mtu
        self.ours = OURS_BEHIND_TAP if device == "tap" else OURS
        # Where frames can be captured: on the guest's own card.
        self.watched = None if device == "vhost" else GUEST_TAP

    def build(self):
        """Makes the interfaces."""
        run("ip link set lo up")
        if self.device != "vhost":
            run(f"ip tuntap add dev {GUEST_TAP} mode tap vnet_hdr")
            run(f"ip link set {GUEST_TAP} mtu {self.mtu} up")
        if self.device in ("af_packet", "af_xdp", *IN_GUEST):
            self._bridge()
        for _, tap, _, _ in self._cards():
            run(f"ip tuntap add dev {tap} mode tap vnet_hdr")
            run(f"ip link set {tap} mtu {self.mtu} master bridge0 up")
        if self.device == "tap":
            self._route()

    def remove(self):
        """Removes the interfaces, so that another device's can be made."""
        for name in (GUEST_TAP, OUR_INTERFACE, "bridge0", *(tap for _, tap, _, _ in self._cards())):
            subprocess.run(["ip", "link", "delete", name], stderr=subprocess.DEVNULL, check=False)

    def qemu(self):
        """QEMU's arguments for the card's other end."""
        if self.device == "vhost":
            line = f"socket,id=vhost,path={self.vhost_socket()},reconnect=1"
            return ["-chardev", line, "-netdev", "vhost-user,id=n0,chardev=vhost"]
        return ["-netdev", f"tap,id=n0,ifname={GUEST_TAP},script=no,downscript=no,vhost=off"]

    def cards(self):
        """QEMU's arguments for the guest's other cards, each in a slot of its own whatever else there is."""
        said = []
        for model, tap, slot, mac in self._cards():
            said += ["-netdev", f"tap,id={tap},ifname={tap},script=no,downscript=no,vhost=off"]
            said += ["-device", f"{model},netdev={tap},mac={mac},bus={{bus}},addr={slot}"]
        return said

    def _cards(self):
        return CARDS if self.device in IN_GUEST else ()

    def after_boot(self, guest):
        """What the guest must know about the way."""
        if self.device == "tap":
            guest.must(f"ip route add {OURS_BEHIND_TAP}/32 via {KERNEL_AT_GUEST}")

    def add_kernel_address(self):
        """Gives this machine's kernel an address beside ours and the guest's, for a cell that stands between the two."""
        run(f"ip address replace {KERNEL_AT_GUEST}/24 dev bridge0")
        return KERNEL_AT_GUEST

    def vhost_socket(self):
        """Our process makes it, QEMU connects to it."""
        return self.folder / "vhost.sock"

    def config(self):
        """The device's part of a configuration of ours."""
        settings = {
            "af_packet": f'device.af_packet = {{ interface = "{OUR_INTERFACE}" }}',
            **{device: f'device.af_packet = {{ interface = "{OUR_INTERFACE}" }}' for device in IN_GUEST},
            "af_xdp": f'device.af_xdp = {{ interface = "{OUR_INTERFACE}" }}',
            "tap": f'device.tap = {{ interface = "{OUR_INTERFACE}" }}',
            "vhost": f'device.vhost = {{ socket = "{self.vhost_socket()}" }}',
        }
        gateway = f'gateway = "{KERNEL_AT_TAP}"\n' if self.device == "tap" else ""
        return f'[port]\n{settings[self.device]}\nmtu = {self.mtu}\n[net]\naddress = "{self.ours}/24"\n{gateway}'

    def cut(self):
        """Takes the guest's link away."""
        run(f"ip link set {GUEST_TAP} down")

    def restore(self):
        """Gives the guest's link back."""
        run(f"ip link set {GUEST_TAP} up")

    def _bridge(self):
        run("ip link add bridge0 type bridge stp_state 0 forward_delay 0")
        run(f"ip link add {OUR_INTERFACE} mtu {self.mtu} type veth peer name peer0 mtu {self.mtu}")
        for name in (GUEST_TAP, "peer0"):
            run(f"ip link set {name} master bridge0")
        for name in (OUR_INTERFACE, "peer0"):
            # A veth otherwise passes unfinished frames: without checksums, and beyond the MTU.
            run(f"ethtool -K {name} tx off gso off tso off gro off")
            run(f"ip link set {name} up")
        run("ip link set bridge0 up")

    def _route(self):
        # Several queues, as our driver opens it. It is created here, so it keeps its address from one process of ours to the
        # next.
        run(f"ip tuntap add dev {OUR_INTERFACE} mode tap multi_queue")
        run(f"ip address add {KERNEL_AT_TAP}/24 dev {OUR_INTERFACE}")
        run(f"ip address add {KERNEL_AT_GUEST}/24 dev {GUEST_TAP}")
        run(f"ip link set {OUR_INTERFACE} up")
        with open("/proc/sys/net/ipv4/ip_forward", "w") as setting:
            setting.write("1")


def run(command):
    """Runs a command of this machine's that has to succeed."""
    ended = subprocess.run(command.split(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=30, check=False)
    if ended.returncode != 0:
        raise Failed(f"{command}: {ended.stdout.strip()}")
    return ended.stdout
