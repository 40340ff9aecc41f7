"""The guest as a host and as a target of NVMe over Fabrics: Linux's nvme-rdma and nvme-tcp, nvmet-rdma and nvmet-tcp.

Commands run in the guest. A command that fails ends the cell with its last line. The storage programs lie in an archive of
their own (`build-guest.sh`), which only the cells under `nvmf/` load.
"""

import json

from outcome import Failed, check

PORT = 4420
NQN = "nqn.2026-11.example:disk"
# The kernel's target in the guest.
KERNEL_NQN = "nqn.2026-11.example:kernel"
CONFIGFS = "/sys/kernel/config"


class Disk:
    """A namespace that the guest has connected to: the guest's name of its block device, and of its controller."""

    def __init__(self, guest, nqn, device):
        self.guest, self.nqn, self.device = guest, nqn, device
        self.controller = device.rstrip("0123456789").rstrip("n")

    def disconnect(self):
        """Ends all its queues."""
        said = self.guest.must(f"nvme disconnect -n {self.nqn}", 60)
        check("disconnected 1 controller" in said, f"nvme disconnect: {said.strip()}")

    def state(self):
        """What the kernel says of the controller: live, connecting, resetting, ..."""
        return self.guest.must(f"cat /sys/class/nvme/{self.controller}/state").strip()


def connect(guest, address, *, nqn=NQN, transport="rdma", queues=2, options=""):
    """Connects the guest's kernel to a subsystem of one namespace."""
    guest.must(f"modprobe nvme-{transport}")
    before = _devices(guest)
    words = f"nvme connect -t {transport} -a {address} -s {PORT} -n {nqn} -i {queues} {options}"
    ended = guest.run(words, 60)
    if ended.code != 0:
        log = guest.run("dmesg | grep -i nvme | tail -3").said.strip().replace("\n", "; ")
        raise Failed(f"nvme connect ended with {ended.code}: {ended.said.strip()[-200:]}; the kernel: {log}")
    guest.must("for i in $(seq 100); do ls /dev/nvme*n1 && exit; usleep 100000; done; exit 1", 30)
    new = _devices(guest) - before
    check(len(new) == 1, f"new block devices after nvme connect: {sorted(new)}")
    return Disk(guest, nqn, new.pop())


def _devices(guest):
    return set(guest.must("cd /dev; ls -d nvme*n* 2>/dev/null; true").split())


def discover(guest, address, transport="rdma", port=PORT):
    """The subsystems that the discovery controller reports, by name, the discovery subsystem excepted."""
    guest.must(f"modprobe nvme-{transport}")
    said = guest.must(f"nvme discover -t {transport} -a {address} -s {port} -o json", 60)
    records = json.loads(said[said.index("{") :])["records"]
    return {record["subnqn"]: record for record in records if record["subtype"] == "nvme subsystem"}


def fio(disk, *options, mib=4, jobs=2):
    """fio's words: writes all of an area for each job, then reads all of it back and compares."""
    words = f"fio --name=verify --filename=/dev/{disk.device} --ioengine=libaio --direct=1 --group_reporting"
    words += f" --numjobs={jobs} --size={mib}m --offset_increment={mib}m --verify=crc32c --verify_fatal=1 --do_verify=1"
    return " ".join((words, "--output-format=terse", *options))


def again_for(seconds, command):
    """A command again and again until time is up: fio's own limit would leave out the comparison."""
    return f"end=$(($(date +%s) + {seconds})); while [ $(date +%s) -lt $end ]; do {command} || exit; done"


RANDOM = ("--rw=randwrite", "--bs=4k", "--iodepth=32")
SEQUENTIAL = ("--rw=write", "--bs=1m", "--iodepth=4")


def must_verify(ended):
    """fio has compared everything that it has written."""
    check(ended.code == 0, f"fio ended with {ended.code}: {ended.said.strip()[-300:]}")


def make_file_system(disk):
    """ext4 with a copy of a tree on it, unmounted and checked. Gives the checksum of the tree's files."""
    device = f"/dev/{disk.device}"
    disk.guest.must(f"modprobe ext4 && mkfs.ext4 -q {device} && mkdir -p /mnt && mount {device} /mnt", 120)
    disk.guest.must("cp -a /usr/lib/modules /etc /mnt/ && sync", 240)
    summed = disk.guest.must("cd /mnt && find . -type f | sort | xargs sha256sum | sha256sum", 120)
    disk.guest.must(f"umount /mnt && fsck.ext4 -f -n {device}", 120)
    return summed


def read_file_system(disk):
    """Mounts what `make_file_system` left. Gives the checksum again, read from the device."""
    device = f"/dev/{disk.device}"
    disk.guest.must(f"echo 3 > /proc/sys/vm/drop_caches; mount -o ro {device} /mnt", 60)
    summed = disk.guest.must("cd /mnt && find . -type f | sort | xargs sha256sum | sha256sum", 120)
    disk.guest.must("umount /mnt", 60)
    return summed


class KernelTarget:
    """Linux's own target in the guest, over memory."""

    def __init__(self, guest, address, transport="rdma", mib=64, device=None):
        self.guest, self.transport = guest, transport
        subsystem, port = f"{CONFIGFS}/nvmet/subsystems/{KERNEL_NQN}", f"{CONFIGFS}/nvmet/ports/1"
        self.link = f"{port}/subsystems/{KERNEL_NQN}"
        if device is None:
            guest.must(f"modprobe brd rd_nr=1 rd_size={mib * 1024}")
            device = "/dev/ram0"
        guest.must(f"modprobe nvmet-{transport}; grep -q '{CONFIGFS}' /proc/mounts || mount -t configfs configfs {CONFIGFS}")
        guest.must(
            f"mkdir {subsystem} && echo 1 > {subsystem}/attr_allow_any_host && mkdir {subsystem}/namespaces/1 &&"
            f"echo -n {device} > {subsystem}/namespaces/1/device_path && echo 1 > {subsystem}/namespaces/1/enable"
        )
        guest.must(
            f"mkdir {port} && echo {transport} > {port}/addr_trtype && echo ipv4 > {port}/addr_adrfam &&"
            f"echo {address} > {port}/addr_traddr && echo {PORT} > {port}/addr_trsvcid && ln -s {subsystem} {self.link}"
        )
        self.subsystem, self.port = subsystem, port

    def remove(self):
        """Ends every connection, and leaves nothing."""
        self.guest.must(
            f"rm {self.link} && echo 0 > {self.subsystem}/namespaces/1/enable && rmdir {self.subsystem}/namespaces/1"
            f" {self.port} {self.subsystem}; modprobe -r brd nvmet-{self.transport}; true"
        )
