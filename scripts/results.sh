#!/usr/bin/env bash
# Measures again what bench/RESULTS.md reports and writes that file.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
    cat <<'TXT'
usage: scripts/results.sh [--quick] [--only NAME]...

Builds, runs the commands of bench/RESULTS.md that two processors suffice for, keeps the JSON of each as
bench/results/NAME.json, and generates bench/RESULTS.md. Needs root or sudo, valgrind, and a tree without changes, so that each
figure is of a commit: commit the results of one run before the next. Nothing else should run on the machine. The comparisons with siw are measured by scripts/interop/run.sh --compare --json bench/results/siw.json, and by
scripts/interop/run.sh --programs target/release --compare --only '*-lat' --json bench/results/siw-libraries.json.

  --quick      the ordinary release build and short runs, about two minutes; without it the build as shipped and about ten
  --only NAME  only this run; may be given several times

Names: suite, suite-native, rate-frame, rate-send, rate-write, rate-read, rate-write-imm, rate-send-list, rate-write-list,
rate-write-alone, rate-native-list, rate-native-alone, conn-rate, scaling, atomics, instruction-counts

examples:
  scripts/results.sh
  scripts/results.sh --quick --only suite --only atomics
TXT
}

NAMES=" suite suite-native rate-frame rate-send rate-write rate-read rate-write-imm rate-send-list rate-write-list rate-write-alone rate-native-list rate-native-alone conn-rate scaling atomics instruction-counts "
quick=()
seconds=5
only=
while [ $# -gt 0 ]; do
    case $1 in
        --quick) quick=(--quick); seconds=1 ;;
        --only)
            [[ "$NAMES" == *" ${2:-} "* ]] || { echo "--only ${2:-}: must be one of$NAMES" >&2; exit 2; }
            only+=" $2 "
            shift
            ;;
        -h | --help) usage; exit 0 ;;
        *) echo "unknown option: $1" >&2; usage >&2; exit 2 ;;
    esac
    shift
done

# A figure is of the commit that its JSON names, which changes would make untrue.
changed=$(git status --porcelain)
[ -z "$changed" ] || { printf 'the tree has changes; commit or remove them first:\n%s\n' "$changed" >&2; exit 2; }

# shellcheck source=scripts/packages.sh
. scripts/packages.sh
require_cargo
install_packages build
install_packages test

build=${CARGO_TARGET_DIR:-target}
if [ ${#quick[@]} -gt 0 ]; then
    cargo build --release --quiet --locked -p iwarp-perf
    program=$build/release/iwarp-perf
else
    scripts/build-guided.sh iwarp-perf
    program=$build/guided/dist/iwarp-perf
fi
if [ "$(id -u)" -eq 0 ]; then root=(); else root=(sudo); fi

# wanted NAME: whether this run is requested.
wanted() {
    [ -z "$only" ] || [[ "$only" == *" $1 "* ]] || return 1
    echo "== $1"
}

# perf NAME TEST OPTION...: a run of iwarp-perf.
perf() {
    local name=$1
    shift
    ! wanted "$name" || "${root[@]}" "$program" "$@" --json "bench/results/$name.json"
}

# rate NAME TEST OPTION...: messages of 64 B one way. rate_native: over the library's own memif driver.
rate() { perf "rate-$1" "$2" --pair memif --size 64 --duration "$seconds" "${@:3}"; }
rate_native() { perf "rate-native-$1" "$2" --pair memif-native --size 64 --duration "$seconds" "${@:3}"; }

lists=(--depth 1024 --post-list 16 --signal-every 16)
perf suite suite --pair memif "${quick[@]}"
perf suite-native suite --pair memif-native "${quick[@]}"
rate frame frame-bw
rate send send-bw
rate write write-bw
rate read read-bw
rate write-imm write-imm-bw
rate send-list send-bw "${lists[@]}"
rate write-list write-bw "${lists[@]}"
rate write-alone write-bw --qps 64 --depth 1
rate_native list write-bw "${lists[@]}"
rate_native alone write-bw --qps 64 --depth 1
perf conn-rate conn-rate --pair memif --duration "$seconds" --depth 64
perf scaling scaling --pair ring --duration "$seconds"
perf atomics atomics --pair ring --duration "$seconds"
! wanted instruction-counts || scripts/instruction-counts.sh --json bench/results/instruction-counts.json

scripts/results.py
echo "results: bench/RESULTS.md"
