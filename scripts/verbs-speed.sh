#!/usr/bin/env bash
# Compares perftest over the replacement libraries with the same tests of iwarp-perf: what the libraries cost.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
    cat <<'TXT'
usage: scripts/verbs-speed.sh [--rounds N] [--json FILE] [NAME]...

Builds the libraries of scripts/install-verbs.sh and iwarp-perf, and alternates rounds of both over memif, one processor at each
end, CRCs on. Prints the median of each and of the ratios of the rounds. Needs two processors and the packages perftest and jq.
Nothing else should run on the machine.

  --rounds N   rounds of each figure (default 7)
  --json FILE  the medians and the ratio of each round as JSON
  NAME         these tests only: send-lat write-lat read-lat atomic-lat send-bw write-bw read-bw

Latencies are round trips of 64 bytes (8 for atomics), bandwidths are of 64 KiB. Exit codes: 0 measured, 1 a program failed, 2 bad
arguments.

examples:
  scripts/verbs-speed.sh
  scripts/verbs-speed.sh --rounds 3 send-lat write-bw
TXT
}

# NAME PROGRAM ARGUMENTS: perftest's program. Of Sends and Writes it prints half of a round trip. Bandwidths are those of the
# second of three seconds: in the first one each end touches its memory for the first time, as iwarp-perf does before it measures.
TESTS="send-lat:ib_send_lat -s 64 -n 100000
write-lat:ib_write_lat -s 64 -n 100000
read-lat:ib_read_lat -s 64 -n 100000
atomic-lat:ib_atomic_lat -n 100000
send-bw:ib_send_bw -s 65536 -D 3 -f 1
write-bw:ib_write_bw -s 65536 -D 3 -f 1
read-bw:ib_read_bw -s 65536 -D 3 -f 1"

rounds=7
json=
only=()
while [ $# -gt 0 ]; do
    case $1 in
        --rounds) rounds=${2:?"--rounds needs a number"}; shift ;;
        --json) json=${2:?"--json needs a file"}; shift ;;
        -h | --help) usage; exit 0 ;;
        -*) echo "unknown option: $1" >&2; usage >&2; exit 2 ;;
        *) grep -q "^$1:" <<<"$TESTS" || { echo "no test is called $1" >&2; exit 2; }; only+=("$1") ;;
    esac
    shift
done
[[ "$rounds" =~ ^[1-9][0-9]?$ ]] || { echo "--rounds $rounds: must be 1 to 99" >&2; exit 2; }

# shellcheck source=scripts/packages.sh
. scripts/packages.sh
require_cargo
install_packages test
target=${CARGO_TARGET_DIR:-target}
libraries=$target/verbs/release/lib
scripts/install-verbs.sh "$libraries" >/dev/null
cargo build --release --quiet --locked -p iwarp-perf
native=$target/release/iwarp-perf
run=$(realpath "$libraries/../iwarp-run")
libraries=$(realpath "$libraries")

# The processors that iwarp-perf uses: the first for the client, the last for the server.
allowed=$(sed -n 's/^Cpus_allowed_list:\t//p' /proc/self/status)
client_core=${allowed%%[,-]*}
server_core=${allowed##*[,-]}

folder=$(mktemp -d)
name=speed$$
sockets=${XDG_RUNTIME_DIR:-${TMPDIR:-/tmp}}/iwarp-run-$(id -u)
server=
cleanup() {
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    rm -rf "$folder" "$sockets/$name"*
}
trap cleanup EXIT

# end ROLE PROCESSOR COMMAND...: one end of the pair.
end() {
    local role=$1 core=$2
    shift 2
    exec timeout -k 2 120 taskset -c "$core" "$run" --libraries "$libraries" --pair memif --role "$role" --name "$name" "$@"
}

# over_libraries PROGRAM ARGUMENTS...: the figure that perftest prints: a round trip in ns, or Gbit/s.
over_libraries() {
    local table
    (end server "$server_core" "$@" -R -F) >"$folder/server" 2>&1 &
    server=$!
    for _ in {1..100}; do [ -S "$sockets/$name.sock" ] && break; sleep 0.05; done
    (end client "$client_core" "$@" -R -F 10.99.0.1) >"$folder/client" 2>&1 ||
        { tail -n 5 "$folder/server" "$folder/client" >&2; return 1; }
    wait "$server" || { tail -n 5 "$folder/server" >&2; return 1; }
    server=
    table=$(grep -E '^ *[0-9]+ +[0-9]+ +[0-9.]+' "$folder/client" | tail -n 1)
    case $1 in
        ib_send_lat | ib_write_lat) awk '{ print $5 * 2000 }' <<<"$table" ;;
        *_lat) awk '{ print $5 * 1000 }' <<<"$table" ;;
        *) awk '{ print $4 * 0.008388608 }' <<<"$table" ;;
    esac
}

# over_native TEST
over_native() {
    local field=rtt_ns.p50 size=(--size 64)
    case $1 in
        atomic-lat) size=() ;;
        *-bw) field=gbit_per_s size=(--size 65536 --depth "$depth") ;;
    esac
    "$native" "$1" --pair memif-native "${size[@]}" --mtu "$mtu" --duration 1 --json "$folder/native.json" >/dev/null
    jq ".results[0].$field" "$folder/native.json"
}

median() { printf '%s\n' "$@" | sort -g | sed -n "$((($# + 1) / 2))p"; }

# The MTU of the configuration that iwarp-run makes for a memif, and perftest's number of outstanding requests.
mtu=9000
depth=128
results=()
printf '%-12s %12s %12s %-8s %s\n' "" libraries native "" ratio
while IFS=: read -r test command; do
    [ ${#only[@]} -eq 0 ] || [[ " ${only[*]} " == *" $test "* ]] || continue
    read -ra words <<<"$command"
    theirs=() ours=() ratios=()
    for ((round = 0; round < rounds; round++)); do
        theirs+=("$(over_libraries "${words[@]}")")
        ours+=("$(over_native "$test")")
        ratios+=("$(jq -n "${theirs[-1]} / ${ours[-1]} * 1000 | round / 1000")")
    done
    unit=ns
    [[ "$test" = *-lat ]] || unit=Gbit/s
    printf '%-12s %12.6g %12.6g %-8s %s\n' "$test" "$(median "${theirs[@]}")" "$(median "${ours[@]}")" "$unit" "$(median "${ratios[@]}")"
    results+=("$(jq -nc --arg test "$test" --arg unit "$unit" '{test: $test, unit: $unit, libraries: $ARGS.positional[0],
        native: $ARGS.positional[1], ratio: $ARGS.positional[2], ratios: $ARGS.positional[3]}' --jsonargs \
        "$(median "${theirs[@]}")" "$(median "${ours[@]}")" "$(median "${ratios[@]}")" "$(jq -nc '$ARGS.positional' --jsonargs "${ratios[@]}")")")
done <<<"$TESTS"
[ -z "$json" ] || printf '%s\n' "${results[@]}" | jq -s '{schema: 1, results: .}' >"$json"
