#!/usr/bin/env bash
# From a fresh Debian 12 machine with a Rust toolchain to a report: RDMA latencies and bandwidth over DPDK shared
# memory, beside raw frames and kernel TCP. Needs root or sudo, no hugepages and no NIC.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
    cat <<'TXT'
usage: scripts/quickstart.sh [--quick] [--json FILE] [--html DIR]

Installs missing system packages, builds, runs `iwarp-perf suite --pair memif`, names the report it wrote.

  --quick      a shorter run, about half a minute instead of a few
  --json FILE  the results as JSON (default: report/suite.json)
  --html DIR   the report as a web page (default: report)

examples:
  scripts/quickstart.sh
  scripts/quickstart.sh --quick --json out.json --html report/
TXT
}

json=report/suite.json
html=report
extra=()
while [ $# -gt 0 ]; do
    case $1 in
        --quick) extra+=(--quick) ;;
        --json) json=${2:?"--json needs a file"}; shift ;;
        --html) html=${2:?"--html needs a directory"}; shift ;;
        -h | --help) usage; exit 0 ;;
        *) echo "unknown option: $1" >&2; usage >&2; exit 2 ;;
    esac
    shift
done

# shellcheck source=scripts/packages.sh
. scripts/packages.sh
require_cargo
install_packages build
install_packages test

echo "building"
cargo build --release --quiet --workspace --bin iwarp-perf

mkdir -p "$(dirname "$json")" "$html"
program=${CARGO_TARGET_DIR:-target}/release/iwarp-perf
if [ "$(id -u)" -eq 0 ]; then root=(); else root=(sudo); fi
status=0
"${root[@]}" "$program" suite --pair memif --json "$json" --html "$html" "${extra[@]}" || status=$?
# 3: all was measured, on a machine with other work. The program has said so.
[ "$status" -eq 0 ] || [ "$status" -eq 3 ] || exit "$status"
echo "data:   $json"
