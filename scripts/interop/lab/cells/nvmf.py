"""Our target of NVMe over Fabrics, used by Linux: nvme-rdma over siw, with its tools, fio and a file system."""

import json

import storage
from matrix import cell
from outcome import check

MIB = 64
MEMORY = f"memory = {{ mib = {MIB} }}"
# af_xdp's path to the guest is af_packet's.
DEVICES = ("af_packet", "vhost", "tap")


def sections(lab, backend=MEMORY, access="allow_any_host = true", limits=""):
    """The target's part of a configuration: one subsystem of one namespace."""
    return f"""listeners = ["{lab.fabric.ours}:{storage.PORT}"]
state_dir = "{lab.cell_folder}/state"
[limits]
{limits}
[[subsystem]]
nqn = "{storage.NQN}"
model = "ironwarp lab"
serial = "77"
{access}
[[subsystem.namespace]]
nsid = 1
backend.{backend}
"""


def serve(lab, **parts):
    """Starts the target."""
    return lab.nvmf("serve", sections=sections(lab, **parts)).wait_listening()


def file_backend(lab):
    """A sparse file in the cell's folder."""
    path = lab.cell_folder / "disk.img"
    with open(path, "ab") as file:
        file.truncate(MIB << 20)
    return f'file = {{ path = "{path}" }}'


def stop(lab, node):
    """Ctrl-C, which the target takes as a request to end well."""
    node.interrupt()
    lab.nodes.remove(node)


@cell("nvmf/discover-connect-list", DEVICES)
def tools(lab):
    """What an administrator does first. Twice, so that what the first connection held must be free again."""
    node = serve(lab)
    found = storage.discover(lab.guest, lab.fabric.ours)
    check(list(found) == [storage.NQN], f"discovered {list(found)}")
    check(found[storage.NQN]["traddr"].strip() == lab.fabric.ours, f"the record: {found[storage.NQN]}")
    for _ in range(2):
        disk = storage.connect(lab.guest, lab.fabric.ours)
        listed = json.loads(lab.guest.must("nvme list -o json"))["Devices"]
        told = [(each["ModelNumber"].strip(), each["SerialNumber"].strip(), each["PhysicalSize"]) for each in listed]
        check(told == [("ironwarp lab", "77", MIB << 20)], f"nvme list: {told}")
        for command in ("id-ctrl", "id-ns -n 1", "list-ns", "ns-descs -n 1", "smart-log", "error-log", "fw-log", "get-feature -f 7", "flush -n 1"):
            lab.guest.must(f"nvme {command.split()[0]} /dev/{disk.controller} {' '.join(command.split()[1:])}")
        check(disk.state() == "live", f"the controller is {disk.state()}")
        disk.disconnect()
    stop(lab, node)


@cell("nvmf/refused")
def refused(lab):
    """A name that does not exist, a host that is not allowed. The one that is allowed is served afterwards."""
    allowed = "nqn.2014-08.org.nvmexpress:uuid:6b1b2f6e-0000-4000-8000-000000000077"
    node = serve(lab, access=f'hosts = ["{allowed}"]')
    lab.guest.must("modprobe nvme-rdma")
    words = f"nvme connect -t rdma -a {lab.fabric.ours} -s {storage.PORT}"
    for options in (f"-n {storage.NQN}.other -q {allowed}", f"-n {storage.NQN}"):
        ended = lab.guest.run(f"{words} {options}", 60)
        check(ended.code != 0, f"nvme connect {options} was accepted")
    disk = storage.connect(lab.guest, lab.fabric.ours, options=f"-q {allowed}")
    disk.disconnect()
    stop(lab, node)


def fio(lab, *options, mib):
    """fio writes, reads back and compares."""
    node = serve(lab)
    disk = storage.connect(lab.guest, lab.fabric.ours)
    storage.must_verify(lab.guest.run(storage.fio(disk, *options, mib=mib), 240))
    disk.disconnect()
    stop(lab, node)


@cell("nvmf/fio/random-4-KiB", DEVICES, smoke=True)
def random(lab):
    fio(lab, *storage.RANDOM, mib=4)


@cell("nvmf/fio/sequential-1-MiB", DEVICES)
def sequential(lab):
    fio(lab, *storage.SEQUENTIAL, mib=16)


@cell("nvmf/fio/mixed-512-B-to-64-KiB")
def mixed(lab):
    fio(lab, "--rw=randrw", "--bsrange=512-64k", "--iodepth=16", mib=8)


@cell("nvmf/ext4")
def ext4(lab):
    """A file system on a file of ours. It is there after the target was started again, to the byte."""
    node = serve(lab, backend=file_backend(lab))
    disk = storage.connect(lab.guest, lab.fabric.ours)
    written = storage.make_file_system(disk)
    disk.disconnect()
    stop(lab, node)
    node = serve(lab, backend=file_backend(lab))
    disk = storage.connect(lab.guest, lab.fabric.ours)
    check(storage.read_file_system(disk) == written, "the tree is not what was written")
    disk.disconnect()
    stop(lab, node)
