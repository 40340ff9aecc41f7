#!/usr/bin/env bash
# Hugepages of 2 MiB for DPDK: shows them, reserves them, gives them back.
#
# ironwarp runs without hugepages too. With them a page walk covers more memory, and network cards with their own DMA
# need them. A reservation lasts until the next boot.
set -euo pipefail

PAGE_KIB=2048
POOL=${HUGEPAGES_POOL:-/sys/kernel/mm/hugepages/hugepages-${PAGE_KIB}kB}
MOUNT=${HUGEPAGES_MOUNT:-/dev/hugepages}

usage() {
    cat <<TEXT
Usage: scripts/hugepages.sh COMMAND

  status       how many 2 MiB pages there are, how many are free, where hugetlbfs is mounted
  alloc N      reserve N pages in all (N x 2 MiB), and mount hugetlbfs on $MOUNT unless it is mounted
  free         give back every page that no process uses, and unmount $MOUNT if it was empty
  --help       this text

Programs started with --in-memory, as ironwarp's are, need the pages but not the mount; --no-mount skips it.

Examples:
  sudo scripts/hugepages.sh alloc 512       # 1 GiB
  scripts/hugepages.sh status
  sudo scripts/hugepages.sh free
TEXT
}

fail() {
    echo "hugepages.sh: $1" >&2
    exit "${2:-1}"
}

# Reads one of the kernel's numbers: nr (reserved), free.
pages() {
    cat "$POOL/$1_hugepages"
}

mounted() {
    awk -v at="$MOUNT" '$2 == at && $3 == "hugetlbfs" { found = 1 } END { exit !found }' /proc/mounts
}

need_pool() {
    [[ -d $POOL ]] || fail "this kernel has no ${PAGE_KIB} KiB hugepages ($POOL does not exist)"
}

need_root() {
    [[ -w $POOL/nr_hugepages ]] || fail "may not change the number of hugepages: run it with sudo"
}

status() {
    local all free
    all=$(pages nr)
    free=$(pages free)
    echo "hugepages of 2 MiB: $all reserved ($((all * 2)) MiB), $free free, $((all - free)) in use"
    if mounted; then
        echo "hugetlbfs: mounted on $MOUNT"
    else
        echo "hugetlbfs: not mounted on $MOUNT (needed only by programs that share pages through files)"
    fi
}

alloc() {
    local wanted=$1 got
    [[ $wanted =~ ^[1-9][0-9]{0,6}$ ]] || fail "alloc $wanted: N must be a whole number of pages from 1 to 9999999" 2
    need_root
    # Memory in one piece is easier to find after compaction; a kernel without it is no error.
    echo 1 2>/dev/null >/proc/sys/vm/compact_memory || true
    echo "$wanted" >"$POOL/nr_hugepages"
    got=$(pages nr)
    if ((got < wanted)); then
        status
        fail "the kernel found only $got of $wanted pages in one piece each: free memory, ask for fewer, or reserve at boot (hugepages=$wanted)"
    fi
    [[ $mount == no ]] || mount_hugetlbfs
    status
}

mount_hugetlbfs() {
    mounted && return
    mkdir -p "$MOUNT"
    mount -t hugetlbfs -o pagesize=2M nodev "$MOUNT" || fail "cannot mount hugetlbfs on $MOUNT"
}

release() {
    need_root
    if mounted && [[ -z $(ls -A "$MOUNT") ]]; then
        umount "$MOUNT" || echo "hugepages.sh: $MOUNT stays mounted: it is in use" >&2
    fi
    echo 0 >"$POOL/nr_hugepages"
    local left
    left=$(pages nr)
    status
    ((left == 0)) || fail "$left pages are still used by running programs, or by files on $MOUNT"
}

mount=yes
words=()
for word in "$@"; do
    case $word in
        --help | -h) usage && exit 0 ;;
        --no-mount) mount=no ;;
        -*) fail "unknown option $word; see --help" 2 ;;
        *) words+=("$word") ;;
    esac
done

case "${words[0]:-}:${#words[@]}" in
    status:1) need_pool && status ;;
    alloc:2) need_pool && alloc "${words[1]}" ;;
    alloc:*) fail "alloc takes one number of pages; see --help" 2 ;;
    free:1) need_pool && release ;;
    :0) usage >&2 && exit 2 ;;
    *) fail "unknown command: ${words[*]}; see --help" 2 ;;
esac
