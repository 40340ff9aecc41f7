#!/usr/bin/env bash
# Builds the Linux peer of the interop lab from Debian packages: a kernel, soft-iWARP (siw), rping and a verbs program.
#   build-guest.sh FOLDER [--storage]
# Leaves FOLDER/vmlinux and FOLDER/guest.cpio, which QEMU boots directly. With --storage also FOLDER/storage.cpio, the storage
# programs (nvme, fio, e2fsprogs) for the cells that need them, which is loaded behind guest.cpio. Parts that are up to date are not built
# again, so a second call takes a moment. Packages come from the sources of this machine's apt.
# Exit codes: 0 built, 1 failed, 3 a package cannot be had.
#
# Debian's kernels do not include siw, so it is compiled here from the kernel's own source package and its headers. The
# constants that choose CRC, start-up and zero copy become module parameters; their defaults change nothing.
set -euo pipefail
export LC_ALL=C DEBIAN_FRONTEND=noninteractive

out=$(mkdir -p "${1:?usage: build-guest.sh FOLDER [--storage]}" && cd "$1" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
root=$out/root

# The guest's programs, and the compiler of its verbs program. apt adds their dependencies.
GUEST_PACKAGES=(busybox-static kmod iproute2 ethtool libibverbs1 ibverbs-providers librdmacm1 rdmacm-utils
    perftest qemu-guest-agent)
GUEST_LIBRARIES=(libibverbs-dev librdmacm-dev libsctp-dev)
# The storage programs. Only these files and the libraries that they load are kept: fio's packages bring storage clusters.
STORAGE_PACKAGES=(nvme-cli fio e2fsprogs)
STORAGE_FILES=(/usr/sbin/nvme /usr/bin/fio /sbin/mke2fs /sbin/e2fsck)
# Modules that the guest may load, with their dependencies.
MODULES=(virtio_pci virtio_net virtio_console virtio_rng ib_uverbs rdma_ucm sch_netem sch_ingress cls_matchall
    act_mirred ifb veth siw uio_pci_generic vfio-pci e1000e
    nvme-rdma nvme-tcp nvmet-rdma nvmet-tcp brd null_blk ext4 sctp)
SIW_FILES=(Makefile iwarp.h siw.h siw_cm.c siw_cm.h siw_cq.c siw_main.c siw_mem.c siw_mem.h siw_qp.c siw_qp_rx.c
    siw_qp_tx.c siw_verbs.c siw_verbs.h)
# Constants of the kernel's source that become parameters.
PARAMETERS=(zcopy_tx try_gso loopback_enabled mpa_crc_required mpa_crc_strict peer_to_peer)

# apt with a package state of its own, in which no package is installed.
apt_empty() {
    apt-get -qq -o Dir::State::status=/dev/null -o Dir::Cache::archives="$out/packages" -o Debug::NoLocking=1 \
        -o APT::Sandbox::User=root -y --no-install-recommends "$@"
}

is_unavailable() {
    echo "cannot be had from this machine's package sources: $*" >&2
    exit 3
}

fetch() {
    (cd "$out/packages" && for package in "$@"; do
        compgen -G "${package}_*.deb" >/dev/null || apt-get -qq -o APT::Sandbox::User=root download "$package" ||
            is_unavailable "$package"
    done)
}

unpack() {
    local folder=$1 package
    shift
    for package in "$@"; do
        # Debian's /bin and /lib are links, which dpkg's own unpacking would replace by folders.
        dpkg-deb --fsys-tarfile "$package" | tar -x -C "$folder" --keep-directory-symlink
    done
}

kernel_packages() {
    local image
    image=$(apt-cache depends linux-image-amd64 | awk '/Depends: linux-image/ { print $2; exit }')
    [ -n "$image" ] || is_unavailable linux-image-amd64
    release=${image#linux-image-}
    release=${release%-unsigned}
    series=$(grep -oE '^[0-9]+\.[0-9]+' <<<"$release")
    # The name of the compiler is part of a package's name; the headers contain it.
    mapfile -t headers < <(apt-cache depends "linux-headers-$release" | awk '/Depends: linux/ { print $2 }')
    fetch "$image" "linux-headers-$release" "${headers[@]}" "linux-source-$series"
}

build_vmlinux() {
    [ -s "$out/vmlinux" ] && return
    rm -rf "$out/kernel" && mkdir -p "$out/kernel"
    unpack "$out/kernel" "$out"/packages/linux-image-"$release"_*.deb
    # The kernel boots unpacked: under emulation unpacking takes seconds.
    python3 - "$out/kernel/boot/vmlinuz-$release" "$out/vmlinux" <<'PY'
import struct, subprocess, sys
image = open(sys.argv[1], "rb").read()
# Linux x86 boot protocol: sectors of set-up code at 0x1f1; offset and length of the packed kernel at 0x248.
offset, length = struct.unpack_from("<II", image, 0x248)
start = (image[0x1F1] + 1) * 512 + offset
packed = image[start : start + length]
tool = {b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd"}[packed[:5] if packed[:1] == b"\xfd" else packed[:4]]
# After the packed kernel follows its length. The tools report it as an error after they have written everything.
kernel = subprocess.run([tool, "-dc"], input=packed, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
assert kernel[:4] == b"\x7fELF", "no kernel in the image"
open(sys.argv[2], "wb").write(kernel)
PY
}

build_siw() {
    [ -s "$out/siw.ko" ] && return
    local tree=$out/build siw=$out/build/siw name
    rm -rf "$tree" && mkdir -p "$tree"
    unpack "$tree" "$out"/packages/linux-{headers,kbuild,compiler,source}-*.deb
    # The headers expect to be under /usr/src.
    sed -i "s#^include /usr/src/#include $tree/usr/src/#" "$tree/usr/src/linux-headers-$release/Makefile"
    # With each file named, tar need not unpack the rest of the kernel.
    tar -C "$tree" --strip-components=4 --occurrence=1 -xf "$tree/usr/src/linux-source-$series.tar.xz" \
        "${SIW_FILES[@]/#/linux-source-$series/drivers/infiniband/sw/siw/}"
    for name in "${PARAMETERS[@]}"; do
        sed -i -E "s/^const bool ($name)( = true)?;/bool \1\2; module_param(\1, bool, 0644);/" "$siw/siw_main.c"
        sed -i -E "s/^extern const bool $name;/extern bool $name;/" "$siw/siw.h"
        grep -q "module_param($name," "$siw/siw_main.c" || { echo "siw has no constant $name" >&2; exit 1; }
    done
    printf '%s\n' '#include <linux/moduleparam.h>' 'module_param(mpa_version, byte, 0644);' >>"$siw/siw_main.c"
    # In network byte order: 128 offers a Write, 64 a Read, 192 both.
    printf '%s\n' '#include <linux/moduleparam.h>' 'module_param(rtr_type, ushort, 0644);' >>"$siw/siw_cm.c"
    make -s -C "$tree/usr/src/linux-headers-$release" M="$siw" CONFIG_RDMA_SIW=m modules 2>&1 | grep -v BTF || true
    strip --strip-debug -o "$out/siw.ko" "$siw/siw.ko"
}

build_root() {
    [ "$root/ready" -nt "$here/build-guest.sh" ] && return
    local packages name module
    apt_empty --download-only install "${GUEST_PACKAGES[@]}" >/dev/null || is_unavailable "${GUEST_PACKAGES[@]}"
    fetch "${GUEST_LIBRARIES[@]}"
    rm -rf "$root" "$out/libraries"
    mkdir -p "$out/libraries" "$root"/usr/{bin,sbin,lib,lib64}
    for name in bin sbin lib lib64; do ln -s "usr/$name" "$root/$name"; done
    mkdir -p "$out/none/partial"
    mapfile -t packages < <(apt_empty -o Dir::Cache::archives="$out/none" --print-uris install "${GUEST_PACKAGES[@]}" |
        awk -v folder="$out/packages/" "/^'/ { print folder \$2 }")
    unpack "$root" "${packages[@]}"
    for name in "${GUEST_LIBRARIES[@]}"; do unpack "$out/libraries" "$out/packages/${name}"_*.deb; done
    rm -rf "$root"/usr/share "$root"/usr/lib/x86_64-linux-gnu/{gconv,perl*} "$root"/usr/lib/{systemd,udev}
    install_modules
    finish_root
    touch "$root/ready"
}

# Only the needed modules and their dependencies: the whole image is read at every boot.
install_modules() {
    local modules=$root/usr/lib/modules/$release module
    mkdir -p "$root/usr/lib/modules"
    cp -a "$out/kernel/lib/modules/$release" "$root/usr/lib/modules/"
    cp "$out/siw.ko" "$modules/"
    chroot "$root" depmod -a "$release"
    for module in "${MODULES[@]}"; do
        chroot "$root" modprobe -S "$release" --show-depends "$module" || { echo "no module $module" >&2; exit 1; }
    done | awk '/^insmod/ { print $2 }' | sort -u >"$out/modules"
    (cd "$root" && find lib/modules/"$release"/ -name '*.ko' | sed 's#^#/#' | sort | comm -23 - "$out/modules" |
        sed 's#^/##' | xargs rm -f)
    find "$modules" -type d -empty -delete
    chroot "$root" depmod -a "$release"
}

# Files that the installation of the packages would have created.
finish_root() {
    local applet
    mkdir -p "$root"/{dev,proc,sys,run,tmp,root,etc,var/run,var/lib}
    echo 'root:x:0:0:root:/root:/bin/sh' >"$root/etc/passwd"
    echo 'root:x:0:' >"$root/etc/group"
    echo '127.0.0.1 localhost' >"$root/etc/hosts"
    echo 'hosts: files' >"$root/etc/nsswitch.conf"
    ldconfig -r "$root"
    for applet in $("$root/usr/bin/busybox" --list); do
        [ -e "$root/usr/bin/$applet" ] || [ -e "$root/usr/sbin/$applet" ] || ln -s busybox "$root/usr/bin/$applet"
    done
}

# The verbs program is compiled here against the guest's own libraries; the peer for SCTP over the kernel's, and once more over
# usrsctp for this side of the wire.
build_programs() {
    local libraries=$out/libraries/usr
    make -s -C "$here/sctp-peer" OUT="$out" CFLAGS="-O1 -I$libraries/include -L$libraries/lib/x86_64-linux-gnu" all kernel
    cmp -s "$out/sctp-peer-kernel" "$root/usr/bin/sctp-peer" || cp "$out/sctp-peer-kernel" "$root/usr/bin/sctp-peer"
    [ "$root/usr/bin/peer" -nt "$here/guest/peer.c" ] && return
    gcc -O1 -Wall -Werror -I"$out/libraries/usr/include" -L"$root/usr/lib/x86_64-linux-gnu" \
        -Wl,-rpath-link,"$root/usr/lib/x86_64-linux-gnu" -o "$root/usr/bin/peer" \
        "$here/guest/peer.c" -l:librdmacm.so.1 -l:libibverbs.so.1
}

build_image() {
    local image=$out/guest.cpio
    [ "$image" -nt "$root/ready" ] && [ "$image" -nt "$here/guest/init" ] && [ "$image" -nt "$root/usr/bin/peer" ] &&
        [ "$image" -nt "$root/usr/bin/sctp-peer" ] && return
    install -m 755 "$here/guest/init" "$root/init"
    (cd "$root" && find . | cpio -o -H newc --quiet -R 0:0) >"$image.new"
    mv "$image.new" "$image"
}

# A second archive: storage programs and their libraries are larger than the guest, and only some cells need them.
build_storage() {
    local all=$out/storage-packages tree=$out/storage packages file
    [ "$out/storage.cpio" -nt "$here/build-guest.sh" ] && [ "$out/storage.cpio" -nt "$root/ready" ] && return
    apt_empty --download-only install "${STORAGE_PACKAGES[@]}" >/dev/null || is_unavailable "${STORAGE_PACKAGES[@]}"
    rm -rf "$all" "$tree"
    mkdir -p "$all"/usr/{bin,sbin,lib,lib64} "$tree/etc/nvme"
    for file in bin sbin lib lib64; do ln -s "usr/$file" "$all/$file"; done
    mapfile -t packages < <(apt_empty -o Dir::Cache::archives="$out/none" --print-uris install "${STORAGE_PACKAGES[@]}" |
        awk -v folder="$out/packages/" "/^'/ { print folder \$2 }")
    unpack "$all" "${packages[@]}"
    for file in "${STORAGE_FILES[@]}" $(for file in "${STORAGE_FILES[@]}"; do
        chroot "$all" /lib64/ld-linux-x86-64.so.2 --list "$file"; done | grep -oE '/[^ ]+\.so[^ ]*' | sort -u); do
        file=$(chroot_path "$file")
        [ -e "$root$file" ] || install -D "$all$file" "$tree$file"
    done
    # One program under several names.
    ln -sf mke2fs "$tree/usr/sbin/mkfs.ext4"
    ln -sf e2fsck "$tree/usr/sbin/fsck.ext4"
    echo nqn.2014-08.org.nvmexpress:uuid:6b1b2f6e-0000-4000-8000-000000000002 >"$tree/etc/nvme/hostnqn"
    echo 6b1b2f6e-0000-4000-8000-000000000002 >"$tree/etc/nvme/hostid"
    (cd "$tree" && find . | cpio -o -H newc --quiet -R 0:0) >"$out/storage.cpio.new"
    mv "$out/storage.cpio.new" "$out/storage.cpio"
    rm -rf "$all"
}

# /bin, /sbin, /lib and /lib64 are links into /usr.
chroot_path() {
    case $1 in
        /bin/* | /sbin/* | /lib/* | /lib64/*) echo "/usr$1" ;;
        *) echo "$1" ;;
    esac
}

mkdir -p "$out/packages/partial"
# Two runs at once would build the same files.
exec 9>"$out/lock"
flock 9
kernel_packages
build_vmlinux
build_siw
build_root
build_programs
build_image
[ "${2:-}" != --storage ] || build_storage
