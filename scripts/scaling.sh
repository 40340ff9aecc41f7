#!/usr/bin/env bash
# Measures 1, 2, 4 and 8 cores a side on this machine, and builds the archive that does so on a Debian with nothing installed.
set -euo pipefail

usage() {
    cat <<'TXT'
usage: scaling.sh [--quick | --seconds N] [--cores N] [--oversubscribe] [--json FILE]
       scripts/scaling.sh --archive [--guided]

Measures 1, 2, 4 and 8 cores a side, as far as the processors go: each end of a core has a processor of its own. Over the
library's own memif and over DPDK's ring: Sends of 64 B, Writes of 64 B in lists, Writes of 64 KiB and 1 MiB, atomic
operations spread over 1024 words and all on one. Prints a table and writes the figures as JSON. Nothing else should run on
the machine. In the tree it builds the program first; in the archive the program lies beside it.

  --quick          under a minute, in place of under five
  --seconds N      the seconds of each figure, over all rounds (default: 4)
  --cores N        the most cores a side (default: 8)
  --oversubscribe  also what has fewer processors than cores; the table marks it
  --json FILE      the file of figures (default: scaling.json)
  --archive        builds scaling.tar.gz in the build folder: the program with DPDK inside, the libraries that it loads,
                   and this script
  --guided         builds the program as shipped, with a profile of its own run, which takes minutes and wants root

examples:
  scripts/scaling.sh --archive
  tar xf scaling.tar.gz && scaling/scaling.sh              on the other machine
  scaling/scaling.sh --quick --cores 2 --json two.json
TXT
}

refuse() { echo "$1" >&2; usage >&2; exit 2; }

archive= guided= json=scaling.json run=()
while [ $# -gt 0 ]; do
    case $1 in
        --archive) archive=1 ;;
        --guided) guided=1 ;;
        --quick | --oversubscribe) run+=("$1") ;;
        --seconds | --cores | --json)
            [ $# -gt 1 ] || refuse "$1: needs a value"
            case $1 in
                --seconds) run+=(--duration "$2") ;;
                --cores) run+=(--cores "$2") ;;
                --json) json=$2 ;;
            esac
            shift
            ;;
        -h | --help) usage; exit 0 ;;
        *) refuse "unknown option: $1" ;;
    esac
    shift
done
[ -z "$archive" ] || [ ${#run[@]} -eq 0 ] || refuse "--archive: only with --guided"
[ -z "$guided" ] || [ -n "$archive" ] || refuse "--guided: only with --archive"

here=$(cd "$(dirname "$0")" && pwd)
if [ -z "$archive" ] && [ -x "$here/iwarp-perf" ]; then
    LD_LIBRARY_PATH=$here/lib exec "$here/iwarp-perf" cores --json "$json" "${run[@]}"
fi

caller=$PWD
cd "$here/.."
# shellcheck source=scripts/packages.sh
. scripts/packages.sh
require_cargo
install_packages build
build=${CARGO_TARGET_DIR:-target}
if [ -n "$guided" ]; then
    scripts/build-guided.sh --static-dpdk iwarp-perf
    program=$build/guided/dist/iwarp-perf
else
    cargo build --release --quiet --locked -p iwarp-perf ${archive:+--features iwarp-perf/dpdk-static}
    program=$build/release/iwarp-perf
fi
if [ -z "$archive" ]; then
    program=$(realpath "$program")
    cd "$caller"
    exec "$program" cores --json "$json" "${run[@]}"
fi

tree=$build/scaling
rm -rf "$tree"
mkdir -p "$tree/lib"
strip -o "$tree/iwarp-perf" "$program"
cp scripts/scaling.sh LICENSE-APACHE LICENSE-MIT "$tree/"
# All libraries that the program loads, except those that every Debian has, which belong to its loader.
ldd "$program" | awk '$3 ~ /^\// { print $3 }' | grep -vE '/(libc|libm|libdl|libpthread|librt|libutil|libgcc_s)\.so\.[0-9]+$' |
    xargs cp -L -t "$tree/lib"
tar -C "$build" --owner=0 --group=0 --sort=name -czf "$build/scaling.tar.gz" scaling
echo "$build/scaling.tar.gz"
