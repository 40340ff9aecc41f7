#!/usr/bin/env bash
# Prints the instructions of one 64-byte Send round trip, counted by callgrind: both ends, one thread, memory ports.
# stack/verbs/examples/round_trip_cost.rs says what is counted.
set -euo pipefail
cd "$(dirname "$0")/.."

case ${1:-} in
-h | --help)
    echo "usage: scripts/round-trip-cost.sh"
    echo "Prints the instructions of one 64-byte Send round trip (both ends, one thread, memory ports). Needs valgrind."
    exit 0
    ;;
esac

command -v valgrind >/dev/null || { echo "valgrind is not installed: apt-get install valgrind" >&2; exit 1; }
cargo build --quiet --release -p ironwarp --example round_trip_cost
program="${CARGO_TARGET_DIR:-target}/release/examples/round_trip_cost"

log=$(mktemp)
trap 'rm -f "$log"' EXIT
round_trips=$(valgrind --tool=callgrind --callgrind-out-file=/dev/null --toggle-collect='round_trip_cost::measured*' \
    "$program" 2>"$log")
instructions=$(sed -n 's/.*Collected : //p' "$log")
echo "instructions per 64 B Send round trip: $(((instructions + round_trips / 2) / round_trips))"
