#!/usr/bin/env bash
# Runs an NVMe target and three hosts for a while, every block checked, while frames, links, disks and processes fail.
# Memory, descriptors and resources must stay flat.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
    cat <<'TXT'
usage: scripts/soak.sh MINUTES [option of iwarp-soak]...

Hosts and target are joined by the native memif: it needs neither root nor a card.

examples:
  scripts/soak.sh 2
  scripts/soak.sh 10 --seed 7
  scripts/soak.sh 30 --json target/soak.json
TXT
}

case ${1:-} in
    -h | --help) usage; exit 0 ;;
    '' | -*) usage >&2; exit 2 ;;
esac
minutes=$1
shift

# shellcheck source=scripts/packages.sh
. scripts/packages.sh
require_cargo
install_packages build

read -ra selected <<<"$(build_options -p iwarp-soak)"
cargo build --locked "${selected[@]}"
exec "${CARGO_TARGET_DIR:-target}/debug/iwarp-soak" --minutes "$minutes" "$@"
