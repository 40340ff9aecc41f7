"""The project's programs as the guest gets them: a second archive behind the guest's own, which the kernel unpacks over it.

Besides the programs it has the libraries that they need and the guest lacks, and DPDK's drivers that they are used with.
"""

import pathlib
import shutil
import subprocess

from outcome import Failed

HERE = pathlib.Path(__file__).resolve().parents[3]
# The folder in which DPDK searches for drivers, and the drivers of the guest's devices.
DRIVERS = pathlib.Path("/usr/lib/x86_64-linux-gnu/dpdk")
NAMES = ("bus_pci", "bus_vdev", "mempool_ring", "net_af_packet", "net_e1000", "net_memif", "net_ring", "net_virtio")


def with_programs(image, folder, programs, names, scripts=(), storage=False, verbs=None):
    """An image like `image`, in `folder`, that has programs and scripts of ours in /usr/bin, configurations in /configs; the
    storage programs if asked; and of a folder of `scripts/install-verbs.sh` the replacement libraries in /verbs/lib and
    `iwarp-run` beside it."""
    ours = folder / "image"
    tree = folder / "tree"
    for old in (ours, tree):
        shutil.rmtree(old, ignore_errors=True)
    ours.mkdir(parents=True)
    files = [_stripped(programs / name, tree) for name in names]
    if scripts:
        files.append(_bash(tree))
        shutil.copytree(HERE / "configs", tree / "configs")
    for script in scripts:
        shutil.copy2(HERE / "scripts" / script, tree / "usr/bin")
    for driver in _drivers():
        _copy(driver, tree)
        files.append(driver)
    if verbs:
        files += _verbs(verbs, tree)
    return _image(image, ours, tree, files, storage)


def with_archive(image, folder, archive):
    """An image like `image`, in `folder`, that has a release archive as /srv/ironwarp.tar.gz, and nothing of ours beside it."""
    ours, tree = folder / "image", folder / "tree"
    for old in (ours, tree):
        shutil.rmtree(old, ignore_errors=True)
    for new in (ours, tree / "srv", tree / "usr/bin"):
        new.mkdir(parents=True)
    shutil.copy2(archive, tree / "srv/ironwarp.tar.gz")
    return _image(image, ours, tree, [_bash(tree)])


def with_storage(image, folder):
    """An image like `image`, in `folder`, with the storage programs that `build-guest.sh` leaves beside it."""
    ours = folder / "image"
    shutil.rmtree(ours, ignore_errors=True)
    ours.mkdir(parents=True)
    (ours / "vmlinux").symlink_to((image / "vmlinux").resolve())
    (ours / "guest.cpio").write_bytes((image / "guest.cpio").read_bytes() + (image / "storage.cpio").read_bytes())
    return ours


def _image(image, ours, tree, files, storage=False):
    """Packs a tree behind an image, with the libraries that files of it need."""
    for library in _libraries(files):
        if not (image / "root" / _place(library)).exists():
            _copy(library, tree)
    shutil.rmtree(tree / "usr/lib64", ignore_errors=True)
    (ours / "vmlinux").symlink_to((image / "vmlinux").resolve())
    added = subprocess.run(
        "find . | cpio -o -H newc --quiet -R 0:0", shell=True, cwd=tree, stdout=subprocess.PIPE, check=True
    ).stdout
    with open(ours / "guest.cpio", "wb") as packed:
        packed.write((image / "guest.cpio").read_bytes())
        if storage:
            packed.write((image / "storage.cpio").read_bytes())
        packed.write(added)
    return ours


def _bash(tree):
    """Our scripts are written for it, and the guest has a smaller shell."""
    place = tree / "usr/bin/bash"
    shutil.copy2("/bin/bash", place)
    return place


def _stripped(program, tree):
    place = tree / "usr/bin" / program.name
    place.parent.mkdir(parents=True, exist_ok=True)
    # Symbols are most of a program, and the guest keeps programs in memory.
    subprocess.run(["strip", "-o", str(place), str(program)], check=True)
    return place


def _verbs(folder, tree):
    libraries = tree / "verbs/lib"
    libraries.mkdir(parents=True)
    library = libraries / "libibverbs.so.1"
    subprocess.run(["strip", "--strip-unneeded", "-o", str(library), str(folder / library.name)], check=True)
    (libraries / "librdmacm.so.1").symlink_to(library.name)
    runner = libraries.parent / "iwarp-run"
    subprocess.run(["strip", "-o", str(runner), str(folder.parent / runner.name)], check=True)
    return [library, runner]


def _drivers():
    folders = sorted(DRIVERS.glob("pmds-*"))
    if not folders:
        raise Failed(f"no drivers of DPDK's under {DRIVERS}")
    return [driver for name in NAMES for driver in folders[-1].glob(f"librte_{name}.so.[0-9]*")]


def _libraries(files):
    """What the dynamic linker says that these files load."""
    found = set()
    for file in files:
        for line in subprocess.run(["ldd", str(file)], stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines():
            words = line.split()
            if len(words) >= 3 and words[1] == "=>" and words[2].startswith("/"):
                found.add(pathlib.Path(words[2]))
    return sorted(found)


def _place(path):
    """Where a path of this machine's lies in an archive: /lib is a link to usr/lib there too."""
    text = str(path).lstrip("/")
    return text if text.startswith("usr/") else "usr/" + text


def _copy(path, tree):
    """Copies a file, or a link and what it points to: loaded under two names a driver must stay one file."""
    path = path.parent.resolve() / path.name
    place = tree / _place(path)
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.is_symlink() or place.exists():
        return
    shutil.copy2(path, place, follow_symlinks=False)
    if path.is_symlink():
        _copy(path.parent / path.readlink(), tree)
