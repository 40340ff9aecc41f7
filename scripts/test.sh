#!/usr/bin/env bash
# Runs every test that needs no other machine, and prints the time of each stage and what was skipped.
set -uo pipefail
cd "$(dirname "$0")/.."

usage() {
    cat <<'TXT'
usage: scripts/test.sh [--strict] [--long] [--interop] [--stage NAME]...

Installs missing system packages and runs, in this order: format, conformance table, lints, licenses and sources of the
dependencies, no-dpdk (a program and the unit tests of libraries, without DPDK and optimisation), static DPDK, build, scripts,
the library for C, RDMA programs over the replacement libraries, tests (property, documentation, devices, seeds of the fuzz
targets, unit tests of programs and of ports), soak (half a minute), interop-smoke (Linux siw in a virtual machine, both roles,
storage; RDMA over SCTP). Stages that do not depend on time run beside all of them, at the lowest priority: miri, instructions (counts),
simulator, loom. Ends with `N passed, N failed, N skipped`; a test that skips itself has not passed. A run in which nothing
passed fails.

  --strict      fail when anything is skipped that is not on the allowed list
  --long        the long forms too: two minutes of soak; all fixed seeds of the simulator, and fresh ones for a minute in place
                of half; fuzz (a minute of all targets with AddressSanitizer); address (the library for C under the sanitizer);
                oldest (a check by the oldest Rust, if it is installed); mutants (of what differs from MUTANTS_BASE, by default
                HEAD~1, for five minutes, if cargo-mutants is installed)
  --interop     the whole interop matrix in place of interop-smoke, as stage interop: some fifteen minutes
  --stage NAME  run this stage only, also one of the long ones; may be given several times

Longer still, by hand: scripts/soak.sh, scripts/fuzz.sh, scripts/sanitizers.sh, scripts/mutants.sh, iwarp-sim --seeds.

examples:
  scripts/test.sh
  scripts/test.sh --stage tests --stage loom
  scripts/test.sh --long --strict
  scripts/test.sh --interop --stage interop
TXT
}

# In the order of their reports.
STAGES=(format conformance lints deny no-dpdk static build scripts capi verbs-programs tests soak interop-smoke interop
    miri fuzz address instructions simulator loom oldest mutants)
LONG_STAGES=(fuzz address oldest mutants)

# The programs without a library.
PROGRAMS=(iwarp-perf iwarp-responder iwarp-run iwarp-soak iwarp-top)

strict=''
long=0
interop=0
only=()
while [ $# -gt 0 ]; do
    case $1 in
        --strict) strict=strict ;;
        --long) long=1 ;;
        --interop) interop=1 ;;
        --stage) only+=("${2:?"--stage needs a name"}"); shift ;;
        -h | --help) usage; exit 0 ;;
        *) echo "unknown option: $1" >&2; usage >&2; exit 2 ;;
    esac
    shift
done

# shellcheck source=scripts/counting.sh
. scripts/counting.sh
check_names "${STAGES[@]}" -- "${only[@]}" || exit 2
# The matrix has the cells of the short run.
[ "$interop" -eq 0 ] || [[ " ${only[*]} " != *" interop-smoke "* ]] || { echo "--interop runs no stage interop-smoke" >&2; exit 2; }
[ "$interop" -eq 1 ] || [[ " ${only[*]} " != *" interop "* ]] || { echo "stage interop needs --interop" >&2; exit 2; }

# shellcheck source=scripts/packages.sh
. scripts/packages.sh
require_cargo || exit 1
install_packages test || exit 1

# As in .ci/run, where there is no second build.
[ -z "${CI:-}" ] || export CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_CODEGEN_UNITS=1 CARGO_PROFILE_DEV_DEBUG=false \
    CARGO_PROFILE_DEV_BUILD_OVERRIDE_CODEGEN_UNITS=1 CARGO_PROFILE_RELEASE_BUILD_OVERRIDE_CODEGEN_UNITS=1

logs=${CARGO_TARGET_DIR:-target}/test-logs
mkdir -p "$logs"

wanted() {
    if [ ${#only[@]} -gt 0 ]; then
        [[ " ${only[*]} " == *" $1 "* ]]
    else
        [ "$long" -eq 1 ] || [[ " ${LONG_STAGES[*]} " != *" $1 "* ]]
    fi
}

# stage NAME COMMAND...: runs a stage and reports it.
stage() {
    wanted "$1" || return 0
    run_stage "$@"
    report "$1"
}

# begin NAME...: starts stages, one after another, beside all that follow. They get the processor time that others leave:
# compilers wait for each other, and tests for timers. Each stage is the function of its name.
beside=()
begin() {
    local name names=()
    for name in "$@"; do
        wanted "$name" || continue
        names+=("$name")
        rm -f "$logs/$name.status"
    done
    [ ${#names[@]} -gt 0 ] || return 0
    # A process group of its own, so that Ctrl-C ends it with all of its children.
    set -m
    {
        renice -n 19 -p "$BASHPID" >/dev/null
        for name in "${names[@]}"; do run_stage "$name" "$name"; done
    } &
    set +m
    beside+=("${names[@]}")
}

# Waits for the stages that were begun and reports them.
finish() {
    wait
    local name
    for name in "${beside[@]}"; do report "$name"; done
    beside=()
}

end_beside() {
    local job
    for job in $(jobs -p); do kill -- "-$job" 2>/dev/null; done
}
trap end_beside EXIT
trap 'exit 130' INT TERM

# Its status, its seconds, and those of processors that it took.
run_stage() {
    local name=$1 start=$SECONDS status=0 TIMEFORMAT='%U %S'
    shift
    rm -f "$logs/$name.status"
    # In a process of its own: the time of one that ends beside it would count here.
    (time "$@" >"$logs/$name.log" 2>&1) 2>"$logs/$name.time" || status=$?
    echo "$status $((SECONDS - start)) $(awk '{ printf "%d", $1 + $2 }' "$logs/$name.time")" >"$logs/$name.status"
}

report() {
    local name=$1 log=$logs/$1.log status=1 seconds=0 cpu=0 verdict=ok
    # Without the file it was ended from outside.
    [ ! -e "$logs/$name.status" ] || read -r status seconds cpu <"$logs/$name.status"
    count_stage "$name" "$status" "$log"
    [ "$status" -eq 0 ] || verdict=FAILED
    printf '%-14s %-7s %4d s, %4d s of processors%s\n' "$name" "$verdict" "$seconds" "$cpu" \
        "$([ "$status" -eq 0 ] || echo "   $log")"
    if [ "$status" -ne 0 ]; then
        grep -aE '^(error|test .* FAILED|---- )|panicked at' "$log" | head -20
        tail -30 "$log"
    fi
}

format() {
    cargo fmt --all --check && cargo fmt --manifest-path fuzz/Cargo.toml --check
}

# With the wrapper that cargo clippy sets, cargo doc takes the crates that it has checked, and checks them itself otherwise. It
# documents what it does by default, and one example: with it dependencies have the features that tests ask for. Of the code
# without DPDK, which is the same less a part, stage no-dpdk counts the compiler's warnings.
lints() {
    local driver
    driver=$(rustc --print sysroot)/bin/clippy-driver
    cargo clippy --workspace --all-targets --locked -- -D warnings &&
        RUSTC_WORKSPACE_WRAPPER=$driver CLIPPY_ARGS='-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__' \
            RUSTDOCFLAGS='-D warnings' cargo doc --no-deps --locked \
            --workspace --exclude ironwarp-capi --exclude ironwarp-verbs-compat --lib "${PROGRAMS[@]/#/--bin=}" --example first
}

# A program must link and run on a machine without DPDK, and the unit tests of all libraries must compile without a warning and
# pass. The variable makes dpdk-sys find none. The crates are not optimised, which compiles unit tests in a fifth of the time;
# dependencies are those of the other builds.
without_dpdk() {
    local config=$logs/no-dpdk.toml
    cargo tree --workspace --depth 0 --prefix none --format '{p}' | cut -d' ' -f1 | sort -u |
        sed -n 's/..*/[profile.dev.package.&]\nopt-level = 0\ndebug = false/p' >"$config" || return
    local -x IRONWARP_NO_DPDK=1
    cargo build --workspace --locked --no-default-features --example first --config "$config" &&
        timeout 60 "${CARGO_TARGET_DIR:-target}/debug/examples/first" &&
        cargo test --workspace --exclude ironwarp-capi-rlib --locked --no-fail-fast --no-default-features --lib --config "$config" &&
        ! grep -E '^warning: .* generated [0-9]+ warning' "$logs/no-dpdk.log"
}

# What the tests need, once: the features of the whole workspace. The scripts of later stages take it from there.
whole_build() {
    cargo build --workspace --locked --lib --bins --examples --test '*'
}

# All but the unit tests that stage no-dpdk runs. The port has more of them with DPDK, compiled without optimisation as there.
# Programs without a library are selected with it: their dependencies have the features of the whole workspace.
all_tests() {
    [ -n "${IRONWARP_WHOLE_BUILD:-}" ] || whole_build || return
    local status=0
    cargo test --workspace --locked --no-fail-fast "${PROGRAMS[@]/#/--bin=}" --test '*' || status=1
    cargo test --locked -p ironwarp-port "${PROGRAMS[@]/#/--package=}" --lib \
        --config profile.dev.package.ironwarp-port.opt-level=0 || status=1
    cargo test --workspace --exclude ironwarp-capi-rlib --locked --no-fail-fast --doc || status=1
    return "$status"
}

miri() {
    scripts/sanitizers.sh --quick miri
}

loom() {
    # As the tests are built: optimised for speed, the build takes a minute and saves ten seconds.
    local -x RUSTFLAGS='--cfg loom' CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}/loom
    cargo test --locked -p ironwarp-rings --test loom && cargo test --locked -p ironwarp-mem --lib
}

# Licenses, bans and sources of the dependencies, by deny.toml, and known vulnerabilities where their database can be had.
deny() {
    local manifest
    for manifest in Cargo.toml fuzz/Cargo.toml; do
        cargo deny --log-level error --locked --config deny.toml --manifest-path "$manifest" \
            check licenses bans sources || return
    done
    if timeout 60 cargo deny --log-level error --config deny.toml fetch db; then
        cargo deny --log-level error --locked --config deny.toml check --disable-fetch advisories || return
    else
        echo 'SKIPPED: deny: the database of advisories cannot be had'
    fi
}

address() {
    scripts/sanitizers.sh --quick address
}

# What differs from this commit is broken on trial.
MUTANTS_BASE=${MUTANTS_BASE:-HEAD~1}
mutants() {
    scripts/mutants.sh --change "$MUTANTS_BASE" --minutes 5
}

# The oldest Rust that Cargo.toml names accepts the whole workspace.
oldest() {
    CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}/oldest cargo "+$RUST_MIN" check --workspace --locked
}

# A minute of all fuzz targets, from their seeds.
fuzz() {
    if ! cargo +nightly fuzz --version >/dev/null 2>&1 && ! cargo install --quiet --locked cargo-fuzz; then
        echo 'SKIPPED: fuzz: cargo-fuzz cannot be installed'
        echo 'test result: ok. 0 passed; 0 failed;'
        return 0
    fi
    scripts/fuzz.sh --smoke 60
}

# The storage target and its hosts, while frames, links, disks and processes fail.
soak() {
    local minutes=0.5
    [ "$long" -eq 0 ] || minutes=2
    scripts/soak.sh "$minutes" --json "$logs/soak.json"
}

# DPDK's archives and drivers are in the program: it loads no shared library of DPDK, and its devices work.
static_dpdk() {
    local target=${CARGO_TARGET_DIR:-target}
    cargo build --locked --workspace --features ironwarp-port/dpdk-static --example dpdk_cost &&
        ! readelf -d "$target/debug/examples/dpdk_cost" | grep -q 'NEEDED.*librte' &&
        timeout 120 "$target/debug/examples/dpdk_cost"
}

# Instructions of small operations, and of hostile packets, against their budgets and bounds: exact, unlike times.
instructions() {
    scripts/instruction-counts.sh --check && scripts/adversary-costs.sh
}

# Whole nodes over faulty links, with assertions on; each seed twice, with the fast path on and off. The summary counts
# as the tests of this stage.
simulator() {
    # What the tests are built as has all of that, and is a fifth slower than the profile "sim": less than its build takes.
    [ -n "${IRONWARP_WHOLE_BUILD:-}" ] || cargo build --workspace --locked --bin iwarp-sim || return
    local program=${CARGO_TARGET_DIR:-target}/debug/iwarp-sim scenario summary
    # Seeds that no run had before, of every scenario in turn. A failure prints the command that repeats it.
    local fresh=$((RANDOM * 32768 + RANDOM + 1000000000)) seconds=30
    [ "$long" -eq 0 ] || seconds=60
    echo "fresh seeds: iwarp-sim --every-scenario --seeds $fresh..$((fresh + 1000)) --seconds $seconds"
    "$program" --every-scenario --seeds "$fresh..$((fresh + 1000))" --seconds "$seconds" --traces "$logs" |
        tee "$logs/seeds" || return
    summary=$(grep -aoE '[0-9]+ passed, [0-9]+ failed' "$logs/seeds" | tail -1)
    echo "test result: ok. ${summary/,/;}"
    # Those before them are in the tests of iwarp-sim (`seeds.rs`), which run too.
    local fixed=(mixed:16..40 atomics:3..10 shared:3..5 memory:3..5 queues:3..5 storm:3..5 vanish:3..5 stalls:3..5
        visitors:3..5 slow-starts:3..5 shared-cores:3..5)
    [ "$long" -eq 0 ] || fixed=(mixed:16..200 atomics:3..40 shared:3..20 memory:3..20 queues:3..20 storm:3..20
        vanish:3..20 stalls:3..20 visitors:3..15 slow-starts:3..15 shared-cores:3..20)
    for scenario in "${fixed[@]}"; do
        "$program" --scenario "${scenario%:*}" --seeds "${scenario#*:}" --traces "$logs" |
            tee "$logs/seeds" || return
        summary=$(grep -aoE '[0-9]+ passed, [0-9]+ failed' "$logs/seeds" | tail -1)
        echo "test result: ok. ${summary/,/;}"
    done
}

# Linux siw against the project's programs; the summary of the lab counts as the tests of this stage.
interop() {
    local log=$logs/interop-cells limit=$1 status=0 summary
    shift
    timeout -k 10 "$limit" scripts/interop/run.sh "$@" >"$log" || status=$?
    cat "$log"
    if [ "$status" -eq 3 ]; then
        echo 'SKIPPED: interop: no QEMU or no kernel packages to be had'
        echo 'test result: ok. 0 passed; 0 failed;'
        return 0
    fi
    sed -nE 's/^(\S+) +skipped +[0-9.]+ s  (.*)/SKIPPED: \1: \2/p' "$log"
    summary=$(grep -oE '^[0-9]+ passed, [0-9]+ failed' "$log" | tail -1)
    [ -z "$summary" ] || echo "test result: ${summary/,/;};"
    return "$status"
}

# The whole matrix, with a release archive for the cells that need one.
whole_matrix() {
    local archive
    archive=$(scripts/release.sh --debug | tail -1) || return
    interop 3600 --archive "$archive"
}

# The library for C programs: installed under a prefix, found by pkg-config, linked both ways; and the Makefile of the
# example program. The crates' tests run the programs.
capi() {
    local prefix
    prefix=$(realpath -m "${CARGO_TARGET_DIR:-target}/capi-prefix")
    scripts/install-capi.sh --debug "$prefix" || return
    local -x PKG_CONFIG_PATH=$prefix/lib/pkgconfig LD_LIBRARY_PATH=$prefix/lib
    make -s -C apps/embed-c clean embed-c || return
    make -s -C apps/embed-c clean
    local way flags
    for way in ironwarp ironwarp-static; do
        read -ra flags <<<"$(pkg-config --cflags --libs "$way")"
        cc -std=gnu11 -o "$prefix/$way" stack/capi/tests/c/verbs.c "${flags[@]}" && timeout 60 "$prefix/$way" || return
    done
}

# Programs of Debian packages over the replacement of libibverbs and librdmacm; their cells count as the tests of this stage.
verbs_programs() {
    local log=$logs/verbs-cells status=0 summary
    scripts/verbs-programs.sh --smoke >"$log" || status=$?
    cat "$log"
    sed -nE 's/^(\S+) +skipped +[0-9]+ s  (.*)/SKIPPED: \1: \2/p' "$log"
    summary=$(grep -oE '^[0-9]+ passed, [0-9]+ failed' "$log" | tail -1)
    [ -z "$summary" ] || echo "test result: ${summary/,/;};"
    return "$status"
}

run_script_tests() {
    local test
    for test in scripts/tests/*.sh; do "$test" || return; done
}

# missing STAGE REASON: a stage that cannot run here, if it was asked for.
missing() {
    ! wanted "$1" || skip "$1: $2"
}

# begin_with TOOL REASON NAME...: begins stages for which TOOL must run.
begin_with() {
    local tool=$1 reason=$2 name
    shift 2
    if $tool --version >/dev/null 2>&1; then
        begin "$@"
    else
        for name in "$@"; do missing "$name" "$reason"; done
    fi
}

begin_with 'cargo +nightly miri' 'no nightly toolchain with Miri' miri
begin_with 'rustc +nightly' 'no nightly toolchain' fuzz address
! wanted instructions || install_packages counts || exit 1
begin instructions loom
begin_with "cargo +$RUST_MIN" "no toolchain of Rust $RUST_MIN" oldest
if git rev-parse --quiet --verify "$MUTANTS_BASE^{commit}" >/dev/null; then
    begin_with 'cargo mutants' 'cargo-mutants is not installed' mutants
else
    missing mutants "no commit $MUTANTS_BASE"
fi
stage format format
stage conformance scripts/conformance.sh --strict
stage lints lints
if cargo deny --version >/dev/null 2>&1; then
    stage deny deny
else
    missing deny 'cargo-deny is not installed'
fi
stage no-dpdk without_dpdk
stage static static_dpdk
stage build whole_build
! wanted build || export IRONWARP_WHOLE_BUILD=1
begin simulator
stage scripts run_script_tests
stage capi capi
stage verbs-programs verbs_programs
stage tests all_tests
stage soak soak
if [ "$interop" -eq 1 ]; then
    stage interop whole_matrix
else
    stage interop-smoke interop 900 --smoke
fi
finish

print_skips "$strict"
judge
