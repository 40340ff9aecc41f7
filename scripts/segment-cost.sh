#!/usr/bin/env bash
# Instructions per full-size segment (MTU 1500) and per acknowledgement, ours beside stock smoltcp's, counted by
# callgrind. See apps/iwarp-sim/examples/segment-cost/main.rs for what is counted.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
    cat <<'TXT'
usage: scripts/segment-cost.sh [--json FILE]

Prints the instructions of a received segment, a sent segment and the acknowledgement of sixteen segments, ours and
stock smoltcp's. Needs valgrind.

  --json FILE  the same as JSON, for `iwarp-perf results`
TXT
}

command="scripts/segment-cost.sh${*:+ $*}"
json=
while [ $# -gt 0 ]; do
    case $1 in
        --json) json=${2:?"--json needs a file"}; shift ;;
        -h | --help) usage; exit 0 ;;
        *) echo "unknown option: $1" >&2; usage >&2; exit 2 ;;
    esac
    shift
done

# shellcheck source=scripts/report.sh
. scripts/report.sh
command -v valgrind >/dev/null || { echo "valgrind is not installed: apt-get install valgrind" >&2; exit 1; }
cargo build --quiet --release -p iwarp-sim --example segment-cost
program="${CARGO_TARGET_DIR:-target}/release/examples/segment-cost"

# count STACK WHAT CHECKSUMS: instructions each, rounded.
count() {
    local log units instructions
    log=$(mktemp)
    units=$(valgrind --tool=callgrind --callgrind-out-file=/dev/null --toggle-collect='segment_cost::measured*' \
        "$program" "$@" 2>"$log")
    instructions=$(sed -n 's/.*Collected : //p' "$log")
    rm -f "$log"
    echo $(((instructions + units / 2) / units))
}

# result TRANSPORT WHAT CHECKSUMS INSTRUCTIONS: one result of the JSON.
result() {
    printf '{"test": "segment-cost", "transport": "%s", "segment": "%s", "checksums": "%s", "instructions": %d}' "$@"
}

results=()
printf '%-28s %-10s %10s %10s\n' "" checksums ours smoltcp
for what in receive send acked; do
    case $what in
    receive) name="per received segment" ;;
    send) name="per sent segment" ;;
    acked) name="per acknowledgement of 16" ;;
    esac
    for checksums in device software; do
        ours=$(count ours "$what" "$checksums")
        smoltcp=$(count smoltcp "$what" "$checksums")
        printf '%-28s %-10s %10d %10d\n' "$name" "$checksums" "$ours" "$smoltcp"
        results+=("$(result ironwarp "$what" "$checksums" "$ours")" "$(result smoltcp "$what" "$checksums" "$smoltcp")")
    done
done
[ -z "$json" ] || write_report "$json" "$command" "${results[@]}"
