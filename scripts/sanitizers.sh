#!/usr/bin/env bash
# Runs tests under AddressSanitizer, ThreadSanitizer and Miri. Needs a nightly toolchain.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
    cat <<'TXT'
usage: scripts/sanitizers.sh [--quick] [address|thread|miri]...

  address  the library for C, instrumented, under the C programs of its tests; the C shim over DPDK and the port's tests
  thread   rings, registered memory and handles of the library for C, on threads. Builds the standard library too
  miri     types, arch, stats, rings, mem with all of its tests, the buffers of ports, and what the library for C has without
           a device

  --quick  the stages of scripts/test.sh: of address only the library for C, without DPDK; of miri, among the tests of mem,
           only its unit tests, owners and atomics

Without names all three. Needs: rustup toolchain install nightly -c miri -c rust-src

examples:
  scripts/sanitizers.sh
  scripts/sanitizers.sh --quick address
TXT
}

quick=0
kinds=()
for argument in "$@"; do
    case $argument in
        --quick) quick=1 ;;
        address | thread | miri) kinds+=("$argument") ;;
        -h | --help) usage; exit 0 ;;
        *) usage >&2; exit 2 ;;
    esac
done
[ ${#kinds[@]} -gt 0 ] || kinds=(address thread miri)

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

miri() {
    # Files that a failing property would write do not exist for Miri.
    local -x CARGO_TARGET_DIR=$target/miri MIRIFLAGS='-Zmiri-env-set=PROPTEST_DISABLE_FAILURE_PERSISTENCE=1'
    local memory=(--tests)
    [ "$quick" -eq 0 ] || memory=(--lib --test owners --test atomics)
    cargo +nightly miri test --locked -p ironwarp-types -p ironwarp-arch -p ironwarp-rings --lib
    cargo +nightly miri test --locked -p ironwarp-mem "${memory[@]}"
    # The other tests of this crate map files, which Miri cannot.
    cargo +nightly miri test --locked -p ironwarp-stats --lib core_stats
    cargo +nightly miri test --locked -p ironwarp-port --no-default-features --lib pool::
    cargo +nightly miri test --locked -p ironwarp-capi --no-default-features --lib boundary
}

for kind in "${kinds[@]}"; do "$kind"; done
