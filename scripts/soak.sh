#!/usr/bin/env bash
# Runs random operations for a while over memif, ring and tap, checked byte for byte, while frames, links and processes
# fail. Memory, descriptors and resources must stay flat.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
    cat <<'TXT'
usage: scripts/soak.sh MINUTES [option of iwarp-soak]...

Each device gets a third of the time. Over tap, processes are killed and links go down; that needs root.
`--device storage` runs iwarp-nvmf's target and three hosts instead: both are killed, links are cut, namespaces reloaded.

examples:
  scripts/soak.sh 2
  scripts/soak.sh 30 --queue-pairs 64 --json target/soak.json
  scripts/soak.sh 10 --device tap --seed 7
  scripts/soak.sh 30 --device storage --json target/soak-storage.json
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

options=("$@")
if [ "$(id -u)" != 0 ] && [[ " $* " != *" --device "* ]]; then
    echo "SKIPPED: soak over tap: needs root for a network namespace"
    options+=(--device memif --device ring)
fi
read -ra selected <<<"$(build_options -p iwarp-soak)"
cargo build --locked "${selected[@]}"
exec "${CARGO_TARGET_DIR:-target}/debug/iwarp-soak" --minutes "$minutes" "${options[@]}"
