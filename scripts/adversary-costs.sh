#!/usr/bin/env bash
# Counts with callgrind what a node spends on a hostile packet of each kind, against an honest Send of 64 bytes.
# apps/iwarp-sim/src/adversary/bounds.rs has the kinds and their bounds, docs/security.md the table.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
    cat <<'TXT'
usage: scripts/adversary-costs.sh [KIND]...

Prints the instructions that a node spends on a hostile packet of each kind, their ratio to those for an honest Send of 64
bytes, and the bound of that ratio. Fails if a ratio is above its bound. Needs valgrind.

examples:
  scripts/adversary-costs.sh
  scripts/adversary-costs.sh sack-split gaps
TXT
}

case ${1:-} in
    -h | --help) usage; exit 0 ;;
    -*) echo "unknown option: $1" >&2; usage >&2; exit 2 ;;
esac
command -v valgrind >/dev/null || { echo "valgrind is not installed: apt-get install valgrind" >&2; exit 1; }
# As in instruction-counts.sh.
cargo build --quiet --release --locked --workspace --no-default-features --example count-instructions
program=${CARGO_TARGET_DIR:-target}/release/examples/count-instructions
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# Instructions for one packet of a kind.
count() {
    local packets collected
    packets=$(GLIBC_TUNABLES=glibc.cpu.hwcaps=-ERMS,-FSRM valgrind --tool=callgrind --callgrind-out-file=/dev/null \
        --toggle-collect='count_instructions::*measured*' "$program" "$1" 2>"$log") || { cat "$log" >&2; return 1; }
    collected=$(sed -n 's/.*Collected : //p' "$log")
    echo $(((collected + packets / 2) / packets))
}

kinds=$("$program" list)
for kind in "$@"; do
    grep -q "^$kind " <<<"$kinds" || { echo "unknown kind: $kind (one of: $(cut -d' ' -f1 <<<"$kinds" | xargs))" >&2; exit 2; }
done
honest=$(count honest)
failed=0
printf '%-20s %12s %8s %8s\n' kind instructions ratio bound
printf '%-20s %12d %8s\n' honest "$honest" 1.00
while read -r kind bound; do
    [ $# -eq 0 ] || [[ " $* " == *" $kind "* ]] || continue
    instructions=$(count "$kind")
    percent=$(((instructions * 100 + honest / 2) / honest))
    printf '%-20s %12d %5d.%02d %5d.%02d\n' "$kind" "$instructions" $((percent / 100)) $((percent % 100)) \
        $((bound / 100)) $((bound % 100))
    if [ "$percent" -gt "$bound" ]; then
        echo "$kind: a packet costs more than its bound; find the cause, or change the bound and say why" >&2
        failed=1
    fi
done <<<"$kinds"
exit $failed
