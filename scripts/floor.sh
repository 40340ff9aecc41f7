#!/usr/bin/env bash
# Compares frame-lat and frame-bw of iwarp-perf with a plain C program over the same device. The raw frames are the floor of
# every ratio in bench/RESULTS.md, so they must be as fast as what DPDK allows.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
    cat <<'TXT'
usage: scripts/floor.sh --reference DIR [--rounds N] [--json FILE]

Builds DIR/pingpong.c against DPDK and alternates rounds of it and of iwarp-perf over memif, one processor at each end. Prints
the median of each and of the ratios of the rounds. Needs root or sudo, gcc, jq, pkg-config and libdpdk-dev. Nothing else should
run on the machine.

pingpong.c takes EAL arguments, then `-- MODE BYTES COUNT`, where BYTES is a whole frame without its checksum. As `server` it
returns every frame, as `sink` it counts them until SIGTERM and prints `... M Mpps G Gbit/s`. As `client` it prints
`... p50 T ...` in microseconds, as `blast` it sends COUNT frames.

  --rounds N   rounds of each figure (default 7)
  --json FILE  the medians and the ratio of each round as JSON

Exit codes: 0 all medians are within 10 % of the reference, 1 one is not, 2 bad arguments.
TXT
}

# BYTES of the payload; iwarp-perf adds the 14 bytes of the link header.
SIZES="64 1500 9000"
HEADER=14

reference=
rounds=7
json=
while [ $# -gt 0 ]; do
    case $1 in
        --reference) reference=${2:?"--reference needs a folder"}; shift ;;
        --rounds) rounds=${2:?"--rounds needs a number"}; shift ;;
        --json) json=${2:?"--json needs a file"}; shift ;;
        -h | --help) usage; exit 0 ;;
        *) echo "unknown option: $1" >&2; usage >&2; exit 2 ;;
    esac
    shift
done
[ -f "$reference/pingpong.c" ] || { echo "--reference '$reference': must be a folder with pingpong.c" >&2; exit 2; }
[[ "$rounds" =~ ^[1-9][0-9]?$ ]] || { echo "--rounds $rounds: must be 1 to 99" >&2; exit 2; }

# shellcheck source=scripts/packages.sh
. scripts/packages.sh
require_cargo
install_packages build
cargo build --release --quiet --locked -p iwarp-perf
program=${CARGO_TARGET_DIR:-target}/release/iwarp-perf
if [ "$(id -u)" -eq 0 ]; then root=(); else root=(sudo); fi

folder=$(mktemp -d)
server=
cleanup() {
    [ -z "$server" ] || kill -TERM "$server" 2>/dev/null || true
    rm -rf "$folder"
}
trap cleanup EXIT
read -ra flags < <(pkg-config --cflags --libs libdpdk)
gcc -O3 -march=native "$reference/pingpong.c" -o "$folder/pingpong" "${flags[@]}"

# The processors that iwarp-perf uses: the first for the client, the last for the server.
allowed=$(sed -n 's/^Cpus_allowed_list:\t//p' /proc/self/status)
client_core=${allowed%%[,-]*}
server_core=${allowed##*[,-]}

# Ordinary pages where no huge pages are free, as in iwarp-perf.
pages=(--in-memory)
[ "$(sed -n 's/^HugePages_Free: *//p' /proc/meminfo)" -gt 0 ] || pages=(--no-huge -m 512)

# end ROLE PROCESSOR MODE BYTES COUNT: one end of the reference.
end() {
    local role=$1 core=$2
    shift 2
    exec "${root[@]}" timeout -k 2 60 "$folder/pingpong" -l "$core" --file-prefix="floor-$role-$$" --no-pci --no-telemetry \
        "${pages[@]}" --vdev="net_memif0,role=$role,id=0,socket=$folder/memif.sock,socket-abstract=no,bsize=10240,rsize=10" \
        -- "$@"
}

# reference SERVER_MODE CLIENT_MODE BYTES COUNT: prints what both ends print. DPDK's memif can crash a server whose client exits.
reference() {
    rm -f "$folder/memif.sock"
    (end server "$server_core" "$1") >"$folder/server.txt" 2>&1 &
    server=$!
    for _ in {1..100}; do [ -S "$folder/memif.sock" ] && break; sleep 0.05; done
    (end client "$client_core" "$2" "$3" "$4") 2>/dev/null
    sleep 0.2
    kill -TERM "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
    server=
    cat "$folder/server.txt"
}

# figure EXPRESSION SERVER_MODE CLIENT_MODE BYTES COUNT: what EXPRESSION of sed prints of a run that did not crash before.
figure() {
    local expression=$1 text
    shift
    for _ in {1..5}; do
        text=$(reference "$@" | sed -n "$expression")
        [ -z "$text" ] || { echo "$text"; return; }
    done
    echo "the reference printed no figure five times; its server: $(tail -n 1 "$folder/server.txt")" >&2
    return 1
}

# ours TEST BYTES FIELD: a figure of iwarp-perf.
ours() {
    local mtu=$(($2 < 576 ? 1500 : $2))
    "${root[@]}" "$program" "$1" --pair memif --size "$2" --mtu "$mtu" --duration 1 --json "$folder/ours.json" >/dev/null
    jq ".results[0].$3" "$folder/ours.json"
}

# median NUMBER...
median() { printf '%s\n' "$@" | sort -g | sed -n "$((($# + 1) / 2))p"; }

missed=0
results=()
# compare NAME UNIT BETTER REFERENCE OURS: the medians of two lists of rounds and of their ratios.
compare() {
    local name=$1 unit=$2 better=$3
    local -a theirs ours ratios
    read -ra theirs <<<"$4"
    read -ra ours <<<"$5"
    for i in "${!ours[@]}"; do ratios+=("$(jq -n "${ours[i]} / ${theirs[i]} * 1000 | round / 1000")"); done
    local ratio
    ratio=$(median "${ratios[@]}")
    local verdict=ok
    jq -en "if \"$better\" == \"less\" then $ratio <= 1.1 else $ratio >= 0.9 end" >/dev/null || { verdict="beyond 10 %"; missed=1; }
    printf '%-16s %10.3f %10.3f %-8s %8.3f  %s\n' "$name" "$(median "${theirs[@]}")" "$(median "${ours[@]}")" "$unit" "$ratio" \
        "$verdict"
    results+=("$(jq -nc --arg name "$name" --arg unit "$unit" '{test: $name, unit: $unit, reference: $ARGS.positional[0],
        ours: $ARGS.positional[1], ratio: $ARGS.positional[2], ratios: $ARGS.positional[3]}' --jsonargs \
        "$(median "${theirs[@]}")" "$(median "${ours[@]}")" "$ratio" "$(jq -nc '$ARGS.positional' --jsonargs "${ratios[@]}")")")
}

printf '%-16s %10s %10s %-8s %8s\n' "" reference ours "" ratio
for size in $SIZES; do
    frame=$((size + HEADER))
    lat=() lat_ours=() bw=() bw_ours=()
    for ((round = 0; round < rounds; round++)); do
        value=$(figure 's/.* p50 \([0-9.]*\) .*/\1/p' server client "$frame" 300000)
        lat+=("$value")
        lat_ours+=("$(ours frame-lat "$size" rtt_ns.p50 | jq '. / 1000')")
        value=$(figure 's/^rx .* \([0-9.]*\) Mpps.*/\1/p' sink blast "$frame" 6000000)
        bw+=("$value")
        bw_ours+=("$(ours frame-bw "$size" messages_per_s | jq '. / 1000000')")
    done
    compare "frame-lat $size" us less "${lat[*]}" "${lat_ours[*]}"
    compare "frame-bw $size" Mframe/s more "${bw[*]}" "${bw_ours[*]}"
done
[ -z "$json" ] || printf '%s\n' "${results[@]}" | jq -s '{schema: 1, results: .}' >"$json"
exit "$missed"
