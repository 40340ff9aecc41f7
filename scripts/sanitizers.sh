#!/usr/bin/env bash
# Runs tests under AddressSanitizer, ThreadSanitizer and Miri. Needs a nightly toolchain.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
    cat <<'TXT'
usage: scripts/sanitizers.sh [--quick] [--rounds N] [--seed N] [KIND]...

  address  the library for C, instrumented, under the C programs of its tests; the C shim over DPDK and the port's tests;
           the replacement libraries, instrumented, under the C programs of theirs
  verbs-address
           of these only the replacement libraries
  thread   rings, registered memory and handles of the library for C, on threads. Builds the standard library too
  verbs-thread
           the replacement libraries, instrumented, under the C programs of their tests. Builds the standard library too
  miri     types, arch, stats, rings, mem with all of its tests, the buffers of ports, and what the library for C has without
           a device

  --quick  the stages of scripts/test.sh: of address only the library for C, without DPDK; of miri neither types nor checksums,
           tags and the arithmetic of atomics, which have no unsafe code there, and of mem only its unit tests, owners, atomics,
           protection and threads
  --rounds N  rounds of torture.c, which cancels threads, forks, destroys twice and unmaps at random: default 60
  --seed N    of those rounds; drawn and printed when it is not given

Without names address, thread, verbs-thread and miri. Needs: rustup toolchain install nightly -c miri -c rust-src

examples:
  scripts/sanitizers.sh
  scripts/sanitizers.sh --quick address
  scripts/sanitizers.sh --rounds 1000 verbs-address verbs-thread
TXT
}

quick=0
rounds=60
seed=
kinds=()
while [ $# -gt 0 ]; do
    case $1 in
        --quick) quick=1 ;;
        --rounds) rounds=${2:?"--rounds needs a number"}; shift ;;
        --seed) seed=${2:?"--seed needs a number"}; shift ;;
        address | thread | miri) kinds+=("$1") ;;
        verbs-address | verbs-thread) kinds+=("${1/-/_}") ;;
        -h | --help) usage; exit 0 ;;
        *) usage >&2; exit 2 ;;
    esac
    shift
done
[ ${#kinds[@]} -gt 0 ] || kinds=(address thread verbs_thread miri)

host=$(rustc +nightly -vV | sed -n 's/^host: //p')
[ -n "$host" ] || { echo "a nightly toolchain is missing: rustup toolchain install nightly -c miri -c rust-src" >&2; exit 3; }
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")

# Instrumented Rust reports through the runtime that the C compiler links to the programs: the library for C has no
# runtime of its own.
address() {
    local features=() folder=$target/sanitizers/address
    [ "$quick" -eq 0 ] || features=(--no-default-features)
    RUSTFLAGS=-Zsanitizer=address CARGO_TARGET_DIR=$folder \
        cargo +nightly build --locked --target "$host" -p ironwarp-capi "${features[@]}"
    IRONWARP_CAPI_LIBRARY=$folder/$host/debug cargo test --locked --workspace --test programs
    [ "$quick" -eq 0 ] || return 0
    verbs_address
    # The shim is C: its instrumentation comes from the C compiler, the runtime from rustc. DPDK's own memory has no red zones.
    # Leaks are not looked for: DPDK keeps what it allocates at start.
    RUSTFLAGS=-Zsanitizer=address CFLAGS='-fsanitize=address -fno-omit-frame-pointer' ASAN_OPTIONS=detect_leaks=0 \
        CARGO_TARGET_DIR=$folder cargo +nightly test --locked --target "$host" -p ironwarp-dpdk-sys -p ironwarp-port --lib --tests
}

# The standard library must be instrumented too, or its locks are no synchronisation for the sanitizer.
thread() {
    RUSTFLAGS=-Zsanitizer=thread CARGO_TARGET_DIR=$target/sanitizers/thread \
        cargo +nightly test -Zbuild-std --locked --target "$host" --no-default-features \
        -p ironwarp-rings -p ironwarp-mem -p ironwarp-capi --lib --test model --test owners --test threads
}

verbs_address() {
    # Objects are kept for programs that use a pointer after its end, so nothing that is left is a leak. The stack of a
    # cancelled thread stays poisoned, so the sanitizer may not touch it.
    local -x ASAN_OPTIONS=detect_leaks=0:use_sigaltstack=0
    RUSTFLAGS=-Zsanitizer=address CARGO_TARGET_DIR=$target/sanitizers/address \
        cargo +nightly build --locked --target "$host" --no-default-features -p ironwarp-verbs-compat
    verbs_programs address asan
}

verbs_thread() {
    # A child of fork starts threads of its own. What peers read and write is copied by assembly, which the sanitizer does not see,
    # so the accesses to registered memory without an order, which RDMA allows, are no reports.
    local -x TSAN_OPTIONS='die_after_fork=0 halt_on_error=1'
    RUSTFLAGS=-Zsanitizer=thread CARGO_TARGET_DIR=$target/sanitizers/thread \
        cargo +nightly build -Zbuild-std --locked --target "$host" --no-default-features -p ironwarp-verbs-compat
    verbs_programs thread tsan
}

# verbs_programs KIND RUNTIME: the replacement libraries, instrumented, under the C programs of their tests. Each is linked with
# the libraries, and with the runtime of the toolchain that instrumented them. Without DPDK: the library's own memif needs none.
verbs_programs() {
    local kind=$1 folder=$target/sanitizers/verbs-$1 runtime archive source program arguments failed=()
    runtime=$(rustc +nightly --print sysroot)/lib/rustlib/$host/lib/librustc-nightly_rt.$2.a
    archive=$target/sanitizers/$kind/$host/debug/libironwarp_verbs.a
    mkdir -p "$folder"
    printf '[port]\ndevice.memif = { role = "server", socket = "%s/memif.sock" }\n[net]\naddress = "10.99.0.1/24"\n' \
        "$folder" >"$folder/verbs.toml"
    for source in stack/verbs-compat/tests/c/*.c; do
        program=$(basename "$source" .c)
        # These need MPI, and a second process.
        [ "$program" != mpi ] && [ "$program" != exits ] || continue
        cc -std=gnu11 -g -O1 -DPATIENCE=500 "-fsanitize=$kind" -c -o "$folder/$program.o" "$source"
        cc -o "$folder/$program" "$folder/$program.o" -Wl,--whole-archive "$archive" "$runtime" -Wl,--no-whole-archive \
            -Wl,--export-dynamic -lpthread -lrt -lm -ldl -lgcc_s -lutil
        arguments=(10.99.0.1)
        if [ "$program" = torture ]; then
            arguments+=("$rounds" "${seed:-$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}")
            echo "torture: ${arguments[1]} rounds of seed ${arguments[2]}"
        fi
        IRONWARP_CONFIG=$folder/verbs.toml timeout -k 5 600 "$folder/$program" "${arguments[@]}" || failed+=("$program")
    done
    [ ${#failed[@]} -eq 0 ] || { echo "failed under the $kind sanitizer: ${failed[*]}" >&2; return 1; }
}

miri() {
    # Files that a failing property would write do not exist for Miri.
    local -x CARGO_TARGET_DIR=$target/miri MIRIFLAGS='-Zmiri-env-set=PROPTEST_DISABLE_FAILURE_PERSISTENCE=1'
    local crates=(-p ironwarp-types -p ironwarp-arch -p ironwarp-rings) memory=(--tests) without=()
    if [ "$quick" -eq 1 ]; then
        crates=(-p ironwarp-arch -p ironwarp-rings)
        memory=(--lib --test owners --test atomics --test protection --test threads)
        # Arithmetic: there is no unsafe code in types, and none under Miri in these.
        without=(--skip checksum:: --skip crc32c:: --skip table::tag:: --skip atomic::operation::)
    fi
    cargo +nightly miri test --locked "${crates[@]}" --lib -- "${without[@]}"
    cargo +nightly miri test --locked -p ironwarp-mem "${memory[@]}" -- "${without[@]}"
    # The other tests of this crate map files, which Miri cannot.
    cargo +nightly miri test --locked -p ironwarp-stats --lib core_stats
    cargo +nightly miri test --locked -p ironwarp-port --no-default-features --lib pool::
    cargo +nightly miri test --locked -p ironwarp-capi --no-default-features --lib boundary
}

for kind in "${kinds[@]}"; do "$kind"; done
