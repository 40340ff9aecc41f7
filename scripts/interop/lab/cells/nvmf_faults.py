"""Our target while the link, the host or the target itself fails under fio: no byte is lost and everything is freed.

Linux sends the commands again that a lost controller left, so fio sees neither an error nor a wrong byte.
"""

import time

import storage
from cells.nvmf import file_backend, serve, stop
from matrix import cell
from outcome import check

KEEP_ALIVE_S = 8
HOST = f"--keep-alive-tmo={KEEP_ALIVE_S} --reconnect-delay=1 --ctrl-loss-tmo=300"
# Seconds for fio to end, under emulation.
LIMIT = 300


def fio_under(lab, disk, seconds=0):
    """Starts fio, and waits until some of its blocks are written. It compares all of them at its end."""
    words = storage.fio(disk, *storage.RANDOM, mib=8)
    job = lab.guest.start(storage.again_for(seconds, words) if seconds else words, LIMIT + seconds)
    # The fifth field is the number of writes. Linux 6.1 counts them at the path, nvme0c0n1, and not at nvme0n1.
    written = "cat /sys/block/nvme*/stat | awk '{ sum += $5 } END { print sum }'"
    lab.guest.must(f"until [ $({written}) -ge 64 ]; do usleep 50000; done", 60)
    return job


def cut(lab, seconds):
    """Takes the link away for some time."""
    lab.fabric.cut()
    time.sleep(seconds)
    lab.fabric.restore()


def under_cut(lab, seconds):
    node = serve(lab)
    disk = storage.connect(lab.guest, lab.fabric.ours, options=HOST)
    job = fio_under(lab, disk)
    cut(lab, seconds)
    storage.must_verify(job.wait())
    check(disk.state() == "live", f"the controller is {disk.state()}")
    disk.disconnect()
    stop(lab, node)


@cell("nvmf/faults/link-cut-5-s")
def cut_short(lab):
    under_cut(lab, 5)


@cell("nvmf/faults/link-cut-beyond-keep-alive")
def cut_long(lab):
    """The host gives its controller up and makes another."""
    under_cut(lab, 2 * KEEP_ALIVE_S + 4)


@cell("nvmf/faults/target-killed")
def killed(lab):
    """What was answered is in the file; the rest is sent again to the next process."""
    node = serve(lab, backend=file_backend(lab))
    disk = storage.connect(lab.guest, lab.fabric.ours, options=HOST)
    job = fio_under(lab, disk)
    node.kill()
    lab.nodes.remove(node)
    node = serve(lab, backend=file_backend(lab))
    storage.must_verify(job.wait())
    check(disk.state() == "live", f"the controller is {disk.state()}")
    disk.disconnect()
    stop(lab, node)


@cell("nvmf/faults/host-gone")
def host_gone(lab):
    """The target has places for one host. The next one is served only when all that the first one held is free."""
    node = serve(lab, limits="controllers = 1\nconnections = 3\ncapsules = 288\nkeep_alive_default_ms = 8000")
    disk = storage.connect(lab.guest, lab.fabric.ours, options=HOST)
    fio_under(lab, disk)
    lab.guest.stop()
    # It may boot faster than the keep-alive timeout.
    time.sleep(2 * KEEP_ALIVE_S)
    lab.up()
    disk = storage.connect(lab.guest, lab.fabric.ours, options=HOST)
    storage.must_verify(lab.guest.run(storage.fio(disk, *storage.RANDOM, mib=2), 120))
    disk.disconnect()
    stop(lab, node)


@cell("nvmf/faults/loss-1-percent", ("af_packet", "vhost"))
def loss(lab):
    node = serve(lab)
    lab.degrade("limit 10000 loss 1%")
    disk = storage.connect(lab.guest, lab.fabric.ours, options=HOST)
    storage.must_verify(lab.guest.run(storage.fio(disk, *storage.RANDOM, mib=4), LIMIT))
    disk.disconnect()
    stop(lab, node)


@cell("nvmf/endure/loss-and-cuts")
def endure(lab):
    """One frame of a hundred lost, and the link cut every minute. `--seconds 600` is the long form."""
    seconds = lab.seconds or 40
    node = serve(lab, backend=file_backend(lab))
    lab.degrade("limit 10000 loss 1%")
    disk = storage.connect(lab.guest, lab.fabric.ours, options=HOST)
    job = fio_under(lab, disk, seconds)
    begun = time.monotonic()
    pause = min(60, seconds / 2)
    while time.monotonic() - begun + pause < seconds:
        time.sleep(pause)
        cut(lab, 5)
    storage.must_verify(job.wait())
    disk.disconnect()
    stop(lab, node)
