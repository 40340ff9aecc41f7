#!/usr/bin/env bash
# Runs the fuzz targets, each for the same time. Needs a nightly toolchain and cargo-fuzz.
set -euo pipefail
cd "$(dirname "$0")/../fuzz"

usage() {
    cat <<'TXT'
usage: scripts/fuzz.sh MINUTES [TARGET...]
       scripts/fuzz.sh --smoke SECONDS

Builds the targets with AddressSanitizer, the stack's assertions and checked arithmetic, and runs each of them, or the named
ones, for MINUTES. New inputs are kept in fuzz/corpus, an input that fails in
fuzz/artifacts. Prints executions, coverage and corpus of each target; exits with 1 if one failed.

  --smoke SECONDS  all targets together in about SECONDS, from the seeds only, leaving nothing behind

targets: toml, frames, neighbours, tcp, startup, fpdu, rdmap, sctp, sctp_sessions, esp, network, verbs, capi, memif, memif_rings, virtio_net, nvmf

examples:
  scripts/fuzz.sh 20
  scripts/fuzz.sh 60 rdmap tcp
TXT
}

case ${1:-} in
    -h | --help) usage; exit 0 ;;
    '') usage >&2; exit 2 ;;
esac
cargo +nightly fuzz --version >/dev/null 2>&1 || {
    echo "cargo-fuzz with a nightly toolchain is missing: rustup toolchain install nightly; cargo install cargo-fuzz" >&2
    exit 3
}

all=(toml frames neighbours tcp startup fpdu rdmap sctp sctp_sessions esp network verbs capi memif memif_rings virtio_net nvmf)
if [ "$1" = --smoke ]; then
    seconds=$((${2:?"--smoke needs a number of seconds"} / ${#all[@]}))
    [ "$seconds" -gt 0 ] || seconds=1
    smoke=1
    targets=("${all[@]}")
else
    case $1 in *[!0-9]*) usage >&2; exit 2 ;; esac
    seconds=$(($1 * 60))
    smoke=0
    shift
    targets=("${@:-${all[@]}}")
fi

for target in "${targets[@]}"; do
    [[ " ${all[*]} " == *" $target "* ]] || { echo "no target $target; there are: ${all[*]}" >&2; exit 2; }
done

logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
# A minute is mostly the seeds: slower programs lose less time than an optimised build takes.
[ "$smoke" -eq 0 ] || export CARGO_PROFILE_RELEASE_OPT_LEVEL=1
cargo +nightly fuzz build --release 2>"$logs/build" || { cat "$logs/build" >&2; exit 1; }
programs=${CARGO_TARGET_DIR:-target}/$(rustc +nightly -vV | sed -n 's/^host: //p')/release
failed=0

# The last progress line of libFuzzer: `#EXECUTIONS ... cov: EDGES ft: FEATURES corp: INPUTS/BYTES ...`.
figures() {
    grep -aE '^#[0-9]+.*cov: ' "$1" | tail -1 |
        sed -E 's/^#([0-9]+).*cov: ([0-9]+) ft: ([0-9]+) corp: ([0-9]+).*/\1 executions, \2 edges, \3 features, \4 inputs/'
}

for target in "${targets[@]}"; do
    seeds=seeds/$target
    [ "$target" != toml ] || seeds=../configs
    if [ "$smoke" -eq 1 ]; then
        corpus=("$logs/corpus-$target" "$seeds") artifacts=$logs
        mkdir -p "${corpus[0]}"
    else
        corpus=("corpus/$target" "$seeds") artifacts=artifacts/$target
        mkdir -p "${corpus[0]}" "$artifacts"
    fi
    log=$logs/$target
    printf '%-11s ' "$target"
    if "$programs/$target" -max_total_time="$seconds" -timeout=30 -max_len=2048 -len_control=0 -rss_limit_mb=4096 \
        -artifact_prefix="$artifacts/" "${corpus[@]}" >"$log" 2>&1; then
        figures "$log"
    else
        failed=1
        echo FAILED
        grep -aE 'panicked|ERROR|SUMMARY' -A2 "$log" | head -20 || tail -5 "$log"
        for input in "$artifacts"/{crash,oom,timeout,leak}-*; do
            [ -f "$input" ] && echo "input, in base64: $(base64 -w0 "$input")"
        done
    fi
done
exit "$failed"
