#!/usr/bin/env bash
# Builds the programs as they are shipped: with a profile of their own work.
#
# The code of one message is about as large as a processor's first-level instruction cache. A compiler that knows which
# branches are taken moves the others away: a round trip then misses that cache a fifth as often. There are two builds
# and a short run between them. An instrumented program runs the suite, and its counts guide the second build.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
    cat <<'TXT'
usage: scripts/build-guided.sh [--static-dpdk] [PACKAGE]...

Builds PACKAGEs (default: iwarp-perf iwarp-responder) in the profile `dist`, guided by a run of `iwarp-perf suite
--quick --pair memif`. Needs the toolchain's llvm-tools (added with rustup when missing), and root or sudo for the run.
The programs lie in the build folder's guided/dist.

  --static-dpdk  DPDK's archives and drivers in the programs

examples:
  scripts/build-guided.sh
  scripts/build-guided.sh --static-dpdk iwarp-perf
TXT
}

static=
while [ $# -gt 0 ]; do
    case $1 in
        --static-dpdk) static=1 ;;
        -h | --help) usage; exit 0 ;;
        -*) echo "unknown option: $1" >&2; usage >&2; exit 2 ;;
        *) break ;;
    esac
    shift
done

# shellcheck source=scripts/packages.sh
. scripts/packages.sh
require_cargo
install_packages build
install_packages test

merge=$(llvm_profdata)

packages=("$@")
[ ${#packages[@]} -gt 0 ] || packages=(iwarp-perf iwarp-responder)
# The names of counted functions depend on the packages and their features, so both builds choose the same.
chosen=() programs=()
for package in iwarp-perf "${packages[@]}"; do
    chosen+=(-p "$package")
    if [ -n "$static" ] && grep -q '^dpdk-static' "apps/$package/Cargo.toml"; then chosen+=(--features "$package/dpdk-static"); fi
done
for package in "${packages[@]}"; do programs+=(--bin "$package"); done

target=${CARGO_TARGET_DIR:-target}
mkdir -p "$target"
target=$(cd "$target" && pwd)
counts=$target/guided/counts
rm -rf "$counts"
mkdir -p "$counts"
if [ "$(id -u)" -eq 0 ]; then root=(); else root=(sudo); fi

echo "building with counters"
RUSTFLAGS="${RUSTFLAGS:-} -Cprofile-generate=$counts" CARGO_TARGET_DIR=$target/instrumented \
    cargo build --profile dist --locked --quiet "${chosen[@]}" --bin iwarp-perf
echo "counting"
# 3: the machine has other work, which changes times and no counts.
"${root[@]}" "$target/instrumented/dist/iwarp-perf" suite --quick --pair memif --json "$counts/suite.json" >/dev/null ||
    [ $? -eq 3 ]
"$merge" merge -o "$target/guided/counts.profdata" "$counts"/*.profraw
echo "building for what was counted"
RUSTFLAGS="${RUSTFLAGS:-} -Cprofile-use=$target/guided/counts.profdata $GUIDED_LAYOUT" CARGO_TARGET_DIR=$target/guided \
    cargo build --profile dist --locked --quiet "${chosen[@]}" "${programs[@]}"
for package in "${packages[@]}"; do echo "$target/guided/dist/$package"; done
