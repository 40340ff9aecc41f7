#!/usr/bin/env bash
# Instructions per full-size segment (MTU 1500) and per acknowledgement, ours beside stock smoltcp's, counted by
# callgrind. See apps/iwarp-sim/examples/segment-cost/main.rs for what is counted.
set -euo pipefail
cd "$(dirname "$0")/.."

command -v valgrind >/dev/null || { echo "valgrind is not installed" >&2; exit 1; }
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

printf '%-28s %-10s %10s %10s\n' "" checksums ours smoltcp
for what in receive send acked; do
    case $what in
    receive) name="per received segment" ;;
    send) name="per sent segment" ;;
    acked) name="per acknowledgement of 16" ;;
    esac
    for checksums in device software; do
        printf '%-28s %-10s %10d %10d\n' "$name" "$checksums" \
            "$(count ours "$what" "$checksums")" "$(count smoltcp "$what" "$checksums")"
    done
done
