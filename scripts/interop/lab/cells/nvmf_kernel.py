"""Linux's own target and host of NVMe over Fabrics in one guest: what the guest can do without us."""

import storage
from guest import ADDRESS as GUEST
from matrix import cell
from outcome import check


def alone(lab, transport):
    """Discovery, every byte by fio, and a file system."""
    target = storage.KernelTarget(lab.guest, GUEST, transport)
    found = storage.discover(lab.guest, GUEST, transport)
    check(list(found) == [storage.KERNEL_NQN], f"discovered {list(found)}")
    disk = storage.connect(lab.guest, GUEST, nqn=storage.KERNEL_NQN, transport=transport)
    storage.must_verify(lab.guest.run(storage.fio(disk, *storage.RANDOM, mib=2), 120))
    written = storage.make_file_system(disk)
    check(storage.read_file_system(disk) == written, "the tree is not what was written")
    disk.disconnect()
    target.remove()


@cell("nvmf/kernel-alone/rdma")
def rdma(lab):
    alone(lab, "rdma")


@cell("nvmf/kernel-alone/tcp")
def tcp(lab):
    alone(lab, "tcp")
