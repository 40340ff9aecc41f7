#!/usr/bin/env bash
# The instructions of a 4 KiB command for the core of iwarp-nvmf's target, by stage, counted by callgrind over memory ports.
# See apps/iwarp-nvmf/examples/instructions.rs for what is counted.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
    cat <<'TXT'
usage: scripts/storage-cost.sh [read | write] [DEPTH] [MTU] [invalidate]

Prints the frames, bytes and FPDUs of a command, and the target's instructions by stage. Needs valgrind.

examples:
  scripts/storage-cost.sh
  scripts/storage-cost.sh read 32 1500 invalidate
TXT
}

case ${1:-} in
    -h | --help) usage; exit 0 ;;
    '' | read | write) ;;
    *) usage >&2; exit 2 ;;
esac
command -v valgrind >/dev/null || { echo "valgrind is not installed: apt-get install valgrind" >&2; exit 1; }
cargo build --quiet --release --locked -p iwarp-nvmf --example instructions
profile=$(mktemp)
trap 'rm -f "$profile"' EXIT
# `rep movsb` counts as one instruction for each byte, and whether memcpy uses it depends on the processor.
counts=$(GLIBC_TUNABLES=glibc.cpu.hwcaps=-ERMS,-FSRM valgrind --tool=callgrind --callgrind-out-file="$profile" \
    --toggle-collect='instructions::target_turn*' "${CARGO_TARGET_DIR:-target}/release/examples/instructions" \
    "${1:-read}" "${2:-32}" "${3:-9000}" "${4:-}" 2>/dev/null)
echo "$counts"
python3 scripts/storage-cost.py "$profile" "$(sed -n 's/ measured commands//p' <<<"$counts")"
