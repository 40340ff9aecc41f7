#!/usr/bin/env bash
# Programs above other libraries than rdma-core's: MPI, libfabric and pyverbs. Sourced by scripts/verbs-programs.sh.

# mpi_cell NAME PROCESSES: an MPI program of our own (stack/verbs-compat/tests/c/mpi.c) by Open MPI over libfabric. Each process
# has a device of its own at the switch.
mpi_cell() {
    local name=$1 processes=$2 start=$SECONDS process status
    wanted "$name" || return 0
    missing mpirun.openmpi "$name" && return
    if ! mpicc.openmpi -std=gnu11 -Wall -Wextra -Werror -O1 -o "$logs/mpi" stack/verbs-compat/tests/c/mpi.c; then
        report "$name" failed 0 'does not compile: libopenmpi-dev'
        return
    fi
    for process in $(seq "$processes"); do switch_config "$process" >"$logs/mpi-$((process - 1)).toml"; done
    # More processes than processors must yield. Messages go through libfabric's endpoints for them, and nothing else.
    "${inside[@]}" env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout -k 5 120 \
        mpirun.openmpi --oversubscribe -n "$processes" --mca mpi_yield_when_idle 1 --mca pml cm --mca mtl ofi \
        --mca mtl_ofi_provider_include 'verbs;ofi_rxm' --mca mtl_base_verbose 10 \
        sh -c 'exec "$0" --libraries "$1" --config "$2/mpi-$OMPI_COMM_WORLD_RANK.toml" "$2/mpi"' "$run" "$libraries" "$logs" \
        >"$logs/$name" 2>&1
    status=$?
    if [ "$status" -ne 0 ]; then
        report "$name" failed $((SECONDS - start)) "exit code $status; $logs/$name"
    elif ! grep -q "mpi: $processes processes, all data right" "$logs/$name" || ! grep -q 'provider: ironwarp0' "$logs/$name"; then
        report "$name" failed $((SECONDS - start)) "not all processes, or another provider: $logs/$name"
    else
        report "$name" passed $((SECONDS - start)) "$(grep -c '^ping-pong\|^allreduce' "$logs/$name") series of messages compared"
    fi
}

# libfabric_cell NAME: libfabric's endpoints for connections (msg), and those for datagrams above them (rdm).
libfabric_cell() {
    local kind=${1#fi_pingpong-} size=1024 options limit=$limit
    # Up to 6 MiB.
    [ "$kind" = rdm-all ] && size=all limit=240
    options=(-p verbs -e msg)
    [ "$kind" = msg ] || options=(-p 'verbs;ofi_rxm' -e rdm)
    cell "$1" '^(1k|1024) ' fi_pingpong "${options[@]}" -I 10 -S "$size" -- fi_pingpong "${options[@]}" -I 10 -S "$size" "$server"
}

# Debian's pyverbs is for Debian's Python, whatever else is in PATH.
python=/usr/bin/python3

missing_pyverbs() {
    "$python" -c 'import pyverbs.cmid' 2>/dev/null && return 1
    wanted "$1" && report "$1" skipped 0 'python3-pyverbs is not installed'
}

pyverbs_cell() {
    local program=stack/verbs-compat/tests/python/pyverbs_send.py
    missing_pyverbs pyverbs && return
    cell pyverbs 'pyverbs: [0-9]+ checks passed' "$python" "$program" "$server" -- "$python" "$program" "$server" client
}

# Tests of rdma-core's own that need one process, as python3-pyverbs has them. They skip what the device lacks.
pyverbs_tests_cell() {
    local name=pyverbs-tests start=$SECONDS source=/usr/share/doc/rdma-core/tests folder status file
    wanted "$name" || return 0
    missing_pyverbs "$name" && return
    if ! [ -f "$source/run_tests.py" ]; then
        report "$name" skipped 0 "no $source: the package's documentation is not installed"
        return
    fi
    folder=$logs/pyverbs-tests.d
    rm -rf "$folder" && cp -r "$source" "$folder" && gunzip "$folder"/*.gz
    pair=vp$$-$name
    end server "$logs/$name.server" "$python" "$folder/run_tests.py" --dev ironwarp0 \
        tests.test_device tests.test_pd tests.test_cq tests.test_cqex tests.test_qp tests.test_fork
    status=$?
    if [ "$status" -eq 0 ] && grep -qE '^OK' "$logs/$name.server"; then
        report "$name" passed $((SECONDS - start)) "$(grep -oE '^Ran [0-9]+ tests' "$logs/$name.server"), $(grep -oE 'skipped=[0-9]+' "$logs/$name.server")"
    else
        report "$name" failed $((SECONDS - start)) "exit code $status; $logs/$name.server"
    fi
}
