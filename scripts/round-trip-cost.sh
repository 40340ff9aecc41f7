#!/usr/bin/env bash
# Prints the instructions of one 64-byte Send round trip, counted by callgrind: both ends, one thread, memory ports.
# stack/verbs/examples/round_trip_cost.rs says what is counted.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
    cat <<'TXT'
usage: scripts/round-trip-cost.sh [--json FILE]

Prints the instructions of one 64-byte Send round trip (both ends, one thread, memory ports). Needs valgrind.

  --json FILE  the same as JSON, for `iwarp-perf results`
TXT
}

command="scripts/round-trip-cost.sh${*:+ $*}"
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
cargo build --quiet --release -p ironwarp --example round_trip_cost
program="${CARGO_TARGET_DIR:-target}/release/examples/round_trip_cost"

log=$(mktemp)
trap 'rm -f "$log"' EXIT
round_trips=$(valgrind --tool=callgrind --callgrind-out-file=/dev/null --toggle-collect='round_trip_cost::measured*' \
    "$program" 2>"$log")
collected=$(sed -n 's/.*Collected : //p' "$log")
instructions=$(((collected + round_trips / 2) / round_trips))
echo "instructions per 64 B Send round trip: $instructions"
[ -z "$json" ] || write_report "$json" "$command" \
    "{\"test\": \"round-trip-cost\", \"transport\": \"ironwarp\", \"path\": \"memory\", \"bytes\": 64, \"instructions\": $instructions}"
