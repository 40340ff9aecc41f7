#!/usr/bin/env bash
# Runs unmodified RDMA programs of Debian packages over ironwarp, each as two processes over memif, and prints the result of each.
set -uo pipefail
cd "$(dirname "$0")/.."

usage() {
    cat <<'TXT'
usage: scripts/verbs-programs.sh [--smoke] [--transport tcp|sctp] [--logs FOLDER] [--libraries FOLDER] [NAME]...

Builds the replacement libraries (scripts/install-verbs.sh --debug), runs the programs and ends with
`N passed, N failed, N skipped`. A program that is not installed is skipped. Figures that programs print are not judged.

  --smoke      the subset that scripts/test.sh runs
  --transport  the transport below RDMA; default: tcp
  --logs       where the output of the programs goes; default: target/verbs/logs
  --libraries  use the libraries and iwarp-run that were installed there, and build nothing
  NAME         run these only

examples:
  scripts/verbs-programs.sh
  scripts/verbs-programs.sh rping ib_write_bw
  scripts/verbs-programs.sh --transport sctp
TXT
}

smoke=0
transport=tcp
target=${CARGO_TARGET_DIR:-target}
logs=$target/verbs/logs
libraries=
only=()
while [ $# -gt 0 ]; do
    case $1 in
        --smoke) smoke=1 ;;
        --transport) transport=${2:?"--transport needs tcp or sctp"}; shift ;;
        --logs) logs=${2:?"--logs needs a folder"}; shift ;;
        --libraries) libraries=${2:?"--libraries needs a folder"}; shift ;;
        -h | --help) usage; exit 0 ;;
        -*) echo "unknown option: $1" >&2; usage >&2; exit 2 ;;
        *) only+=("$1") ;;
    esac
    shift
done

if [ -z "$libraries" ]; then
    libraries=$target/verbs/lib
    scripts/install-verbs.sh --debug "$libraries" || exit 1
fi
run=$(realpath "$libraries/../iwarp-run")
libraries=$(realpath "$libraries")
mkdir -p "$logs"
logs=$(realpath "$logs")

server=10.99.0.1
client=10.99.0.2
passed=0
failed=0
skipped=0
# The name of a cell's memif.
pair=
limit=60
# shellcheck source=scripts/verbs/network.sh
. scripts/verbs/network.sh
# shellcheck source=scripts/verbs/libraries.sh
. scripts/verbs/libraries.sh
trap 'delete_namespace; rm -f "${XDG_RUNTIME_DIR:-${TMPDIR:-/tmp}}/iwarp-run-$(id -u)/vp$$-"*' EXIT

# end ROLE LOG COMMAND...: one end of the pair.
end() {
    local role=$1 log=$2
    shift 2
    "${inside[@]}" timeout -k 5 "$limit" "$run" --libraries "$libraries" --pair memif --transport "$transport" \
        --role "$role" --name "$pair" "$@" >"$log" 2>&1
}

wanted() {
    [ ${#only[@]} -eq 0 ] && return 0
    [[ " ${only[*]} " == *" $1 "* ]]
}

# report NAME STATUS SECONDS [WHY]
report() {
    printf '%-24s %-8s %3d s  %s\n' "$1" "$2" "$3" "${4:-}"
    case $2 in
        passed) passed=$((passed + 1)) ;;
        failed) failed=$((failed + 1)) ;;
        skipped) skipped=$((skipped + 1)) ;;
    esac
}

missing() {
    command -v "$1" >/dev/null && return 1
    report "$2" skipped 0 "$1 is not installed"
}

# Waits until the server's end has opened its device.
wait_for_socket() {
    local socket=${XDG_RUNTIME_DIR:-${TMPDIR:-/tmp}}/iwarp-run-$(id -u)/$pair.sock tries
    # Some servers open the device when their client comes.
    for tries in $(seq 50); do
        [ -S "$socket" ] && return
        sleep 0.1
    done
}

# cell NAME EXPECTED SERVER-COMMAND -- CLIENT-COMMAND: both must succeed, and the client's output must have EXPECTED, a regular
# expression. A server that never ends by itself is named with a leading `@`: it is ended when the client is done.
cell() {
    local name=$1 expected=$2 start=$SECONDS serve=() call=() server_pid server_status client_status forever=0
    shift 2
    wanted "$name" || return 0
    if [ "$1" = @ ]; then forever=1; shift; fi
    while [ "$1" != -- ]; do serve+=("$1"); shift; done
    shift
    call=("$@")
    missing "${call[0]}" "$name" && return
    pair=vp$$-$name
    end server "$logs/$name.server" "${serve[@]}" &
    server_pid=$!
    wait_for_socket
    end client "$logs/$name.client" "${call[@]}"
    client_status=$?
    [ "$forever" -eq 1 ] && kill "$server_pid" 2>/dev/null
    wait "$server_pid"
    server_status=$?
    [ "$forever" -eq 1 ] && server_status=0
    if [ "$client_status" -ne 0 ] || [ "$server_status" -ne 0 ]; then
        report "$name" failed $((SECONDS - start)) "exit codes: server $server_status, client $client_status; $logs/$name.*"
    elif ! grep -qE "$expected" "$logs/$name.client"; then
        report "$name" failed $((SECONDS - start)) "no '$expected' in $logs/$name.client"
    else
        report "$name" passed $((SECONDS - start)) "$(figure "$name")"
    fi
}

# figure NAME: what a program of perftest measured, as it prints it.
figure() {
    awk '/#bytes/ { head = $0; getline; print "bytes " $1 ", " (head ~ /t_typical/ ? "median " $5 " us" : "average " $4 " MB/s"); exit }' \
        "$logs/$1.client"
}

# one NAME EXPECTED STATUS COMMAND...: a program without a peer, its exit code and its output.
one() {
    local name=$1 expected=$2 status=$3 start=$SECONDS found
    shift 3
    wanted "$name" || return 0
    missing "$1" "$name" && return
    pair=vp$$-$name
    end server "$logs/$name.server" "$@"
    found=$?
    if [ "$found" -eq "$status" ] && grep -qE "$expected" "$logs/$name.server"; then
        report "$name" passed $((SECONDS - start))
    else
        report "$name" failed $((SECONDS - start)) "exit code $found; $logs/$name.server"
    fi
}

# perftest PROGRAM OPTIONS...: the same options at both ends.
perftest() {
    local name=$1 program=$2
    shift 2
    cell "$name" '^ *[0-9]+ +[0-9]+ +[0-9.]+' "$program" -R -F "$@" -- "$program" -R -F "$@" "$server"
}

# own_program NAME: calls with good and bad input, in a program of our own that is compiled with rdma-core's headers and links
# with its libraries. Under AddressSanitizer, whose functions then also serve the memory of the libraries. What is left is no
# leak: objects are kept for programs that use a pointer after its end. The stack of a cancelled thread stays poisoned, so the
# sanitizer may not touch it.
own_program() {
    local -x ASAN_OPTIONS=detect_leaks=0:use_sigaltstack=0
    wanted "$1" || return 0
    compile "$1" || return 0
    one "$1" "$1: [0-9]+ checks passed" 0 "$logs/$1" "$server"
}

compile() {
    cc -std=gnu11 -Wall -Wextra -Werror -g -fsanitize=address,undefined -fno-sanitize-recover=undefined -o "$logs/$1" "stack/verbs-compat/tests/c/$1.c" -libverbs -lrdmacm && return
    report "$1" failed 0 'does not compile: libibverbs-dev, librdmacm-dev'
    return 1
}

# A process ends with an open connection: the log of its peer says how the connection has ended.
exits_cell() {
    local -x ASAN_OPTIONS=detect_leaks=0:use_sigaltstack=0 IRONWARP_LOG=info
    wanted exits || return 0
    compile exits || return 0
    cell exits ' closed ' "$logs/exits" "$server" -- "$logs/exits" "$server" stays
}

# Without a configuration there is no device, and a wrong one is named.
configuration_cells() {
    local name output status
    name=no-configuration
    if wanted "$name" && ! missing ibv_devinfo "$name"; then
        output=$(LD_LIBRARY_PATH=$libraries ibv_devinfo 2>&1)
        if grep -q 'No IB devices found' <<<"$output"; then report "$name" passed 0; else report "$name" failed 0 "$output"; fi
    fi
    name=wrong-configuration
    if wanted "$name"; then
        printf '[port]\ndevice.memif = { role = "server", socket = "/tmp/x" }\nmtu = 1\n[net]\naddress = "10.0.0.1/8"\n' >"$logs/wrong.toml"
        output=$("$run" --libraries "$libraries" --config "$logs/wrong.toml" true 2>&1)
        status=$?
        if [ "$status" -eq 2 ] && grep -q 'port.mtu = 1' <<<"$output"; then
            report "$name" passed 0
        else
            report "$name" failed 0 "exit code $status: $output"
        fi
    fi
}

smoke_cells() {
    configuration_cells
    own_program addresses
    own_program calls
    own_program cancels
    own_program completions
    own_program connections
    own_program endpoints
    exits_cell
    own_program forks
    own_program identifiers
    own_program lifetimes
    own_program memory
    own_program posts
    own_program queue_pairs
    own_program requests
    own_program shared_receives
    own_program torture
    own_program windows
    one ibv_devinfo 'transport:[[:space:]]+iWARP' 0 ibv_devinfo -v
    cell rping 'ping data: rdma-ping-9' rping -s -a "$server" -V -C 10 -v -- rping -c -a "$server" -V -C 10 -v
    cell ucmatose 'return status 0' ucmatose -b "$server" -- ucmatose -s "$server"
    perftest ib_send_lat ib_send_lat -n 100 -s 64
    perftest ib_write_lat ib_write_lat -n 50 -s 64
    perftest ib_read_lat ib_read_lat -n 100 -s 64
    perftest ib_atomic_lat ib_atomic_lat -n 100
    pyverbs_cell
    namespace_cells fi_pingpong-rdm mpi-2
    sctp_cells
}

sctp_cells() {
    local transport=sctp
    cell rping-sctp 'ping data: rdma-ping-9' rping -s -a "$server" -V -C 10 -v -- rping -c -a "$server" -V -C 10 -v
    cell ucmatose-sctp 'return status 0' ucmatose -b "$server" -c 4 -- ucmatose -s "$server" -c 4
}

more_cells() {
    one ibv_devices 'ironwarp0' 0 ibv_devices
    one udaddy-refused 'Protocol not supported' 255 udaddy
    cell rping-any-address 'ping data: rdma-ping-9' rping -s -C 10 -v -- rping -c -a "$server" -C 10 -v
    cell rping-large 'ping data: rdma-ping-2' rping -s -a "$server" -V -C 3 -v -S 65000 -- \
        rping -c -a "$server" -V -C 3 -v -S 65000
    cell ucmatose-many 'return status 0' ucmatose -b "$server" -c 8 -C 20 -S 1000 -- ucmatose -s "$server" -c 8 -C 20 -S 1000
    cell rdma_server 'end 0' rdma_server -p 7471 -- rdma_client -s "$server" -p 7471
    cell rdma_xserver 'end 0' rdma_xserver -p 7471 -- rdma_xclient -s "$server" -p 7471
    perftest ib_send_bw ib_send_bw -n 500
    perftest ib_write_bw ib_write_bw -n 500
    perftest ib_read_bw ib_read_bw -n 500
    perftest ib_atomic_bw ib_atomic_bw -n 500
    perftest ib_send_lat-events ib_send_lat -n 50 -s 64 --events
    perftest ib_send_bw-events ib_send_bw -n 200 --events
    perftest ib_read_lat-events ib_read_lat -n 50 -s 64 --events
    perftest ib_send_bw-all ib_send_bw -n 5 -a
    perftest ib_send_bw-both ib_send_bw -n 200 -b
    perftest ib_send_bw-srq ib_send_bw -n 200 --use-srq
    perftest ib_write_bw-qps ib_write_bw -n 100 -q 4
    perftest ib_send_bw-list ib_send_bw -n 200 -l 8
    fio_cells
    pyverbs_tests_cell
    namespace_cells qperf-rc_lat qperf-rc_bw fi_pingpong-msg fi_pingpong-rdm-all mpi-4
}

namespace_cells() {
    local name processes=4
    if ! { make_namespace "$processes" && make_switch "$processes"; } 2>/dev/null; then
        for name in "$@"; do
            wanted "$name" && report "$name" skipped 0 'no network namespace can be made'
        done
        return
    fi
    inside=(ip netns exec "$namespace")
    for name in "$@"; do
        case $name in
            qperf-rc_lat) cell "$name" 'latency' @ qperf -- qperf -cm1 -t 1 "$server" rc_lat ;;
            # The kernel may keep the port of the cell before for a minute.
            qperf-rc_bw) cell "$name" 'bw' @ qperf -lp 19766 -- qperf -lp 19766 -cm1 -t 1 "$server" rc_bw ;;
            fi_pingpong-*) libfabric_cell "$name" ;;
            mpi-*) mpi_cell "$name" "${name#mpi-}" ;;
        esac
    done
    inside=()
    delete_namespace
}

# A transfer of fio in each of its modes. Of Sends the receiver checks every byte. Of Writes and Reads fio compares nothing,
# because its engine transfers between buffers at fixed places and completes no request at the passive side.
fio_cells() {
    local verb common checks depth
    for verb in write read send; do
        common=(--ioengine=rdma --port=8888 --bs=64k --size=4m --iodepth=4 --name=rdma)
        checks=() depth=4
        # A Send without a posted receive ends the connection, and checking delays the next receives: all are posted at once.
        [ "$verb" = send ] && checks=(--verify=crc32c --verify_interval=4k --verify_fatal=1 --verify_state_save=0) depth=64
        cell "fio-$verb" 'err= 0' \
            fio "${common[@]}" "${checks[@]}" --iodepth="$depth" --rw=read -- \
            fio "${common[@]}" "${checks[@]}" --hostname="$server" --verb="$verb" --rw=write
    done
}

smoke_cells
[ "$smoke" -eq 1 ] || more_cells
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
