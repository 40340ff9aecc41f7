#!/usr/bin/env bash
# Counts the instructions of small operations with callgrind and compares them with bench/instruction-budgets.txt.
# apps/iwarp-sim/examples/count-instructions/ says what each case counts.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
    cat <<'TXT'
usage: scripts/instruction-counts.sh [--check | --update] [--json FILE] [CASE]...

Prints the instructions of one operation of each case, both ends together, beside the budget. Needs valgrind.

  --check      fails if a count is more than 2 % above its budget, or so far below it that the budget should follow
  --update     writes the counts as the new budgets
  --json FILE  the same as JSON, for `scripts/results.py`

cases: round-trip idle-poll write-alone write-spread read-alone write-list send-list write-large write-large-jumbo set-up
atomic-local atomic-locked atomic-shared atomic-forwarded atomic-alternating, and over SCTP round-trip-sctp
write-alone-sctp write-list-sctp write-large-sctp write-large-jumbo-sctp; all of them by default

examples:
  scripts/instruction-counts.sh round-trip idle-poll
  scripts/instruction-counts.sh --check
TXT
}

command="scripts/instruction-counts.sh${*:+ $*}"
budgets=bench/instruction-budgets.txt
all=(round-trip idle-poll write-alone write-spread read-alone write-list send-list write-large write-large-jumbo set-up
    atomic-local atomic-locked atomic-shared atomic-forwarded atomic-alternating
    round-trip-sctp write-alone-sctp write-list-sctp write-large-sctp write-large-jumbo-sctp)
mode=print json= cases=()
while [ $# -gt 0 ]; do
    case $1 in
        --check) mode=check ;;
        --update) mode=update ;;
        --json) json=${2:?"--json needs a file"}; shift ;;
        -h | --help) usage; exit 0 ;;
        -*) echo "unknown option: $1" >&2; usage >&2; exit 2 ;;
        *)
            [[ " ${all[*]} " == *" $1 "* ]] || { echo "unknown case: $1 (one of: ${all[*]})" >&2; exit 2; }
            cases+=("$1")
            ;;
    esac
    shift
done
[ ${#cases[@]} -gt 0 ] || cases=("${all[@]}")

# shellcheck source=scripts/report.sh
. scripts/report.sh
command -v valgrind >/dev/null || { echo "valgrind is not installed: apt-get install valgrind" >&2; exit 1; }
if ! grep -qw avx2 /proc/cpuinfo; then
    echo "SKIPPED: instruction counts: the budgets are for processors with AVX2"
    exit 0
fi
# Without DPDK, as the budgets. In the features of the workspace, so that dependencies are those of other builds.
cargo build --quiet --release --locked --workspace --no-default-features --example count-instructions
program=${CARGO_TARGET_DIR:-target}/release/examples/count-instructions
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# Instructions of one operation. `rep movsb` counts as one instruction for each byte, and whether memcpy uses it depends
# on the processor: it is switched off.
count() {
    local operations collected
    operations=$(GLIBC_TUNABLES=glibc.cpu.hwcaps=-ERMS,-FSRM valgrind --tool=callgrind --callgrind-out-file=/dev/null \
        --toggle-collect='count_instructions::*measured*' "$program" "$1" 2>"$log") || { cat "$log" >&2; return 1; }
    collected=$(sed -n 's/.*Collected : //p' "$log")
    echo $(((collected + operations / 2) / operations))
}

budget_of() {
    sed -n "s/^$1 \([0-9]*\)$/\1/p" "$budgets"
}

failed=0 results=() counted=()
printf '%-22s %12s %12s\n' case instructions budget
for name in "${cases[@]}"; do
    instructions=$(count "$name")
    budget=$(budget_of "$name")
    counted+=("$name $instructions")
    results+=("{\"test\": \"instructions\", \"case\": \"$name\", \"transport\": \"ironwarp\", \"path\": \"memory\", \"instructions\": $instructions}")
    printf '%-22s %12d %12s\n' "$name" "$instructions" "${budget:-none}"
    [ "$mode" = check ] || continue
    if [ -z "$budget" ]; then
        echo "$name has no budget in $budgets" >&2
        failed=1
    elif [ $((instructions * 100)) -gt $((budget * 102)) ]; then
        echo "$name: $instructions instructions, more than 2 % above the budget of $budget: find the cause, or" \
            "change the budget in the same commit (scripts/instruction-counts.sh --update) and say why" >&2
        failed=1
    elif [ $((instructions * 100)) -lt $((budget * 95)) ]; then
        echo "$name: $instructions instructions, more than 5 % below the budget of $budget: lower the budget" \
            "(scripts/instruction-counts.sh --update), so that the gain is kept" >&2
        failed=1
    fi
done
if [ "$mode" = update ]; then
    kept=$(grep -vE "^($(IFS='|'; echo "${cases[*]}")) " "$budgets" || true)
    { echo "$kept"; printf '%s\n' "${counted[@]}"; } | grep -v '^$' >"$log" && cp "$log" "$budgets"
fi
[ -z "$json" ] || write_report "$json" "$command" "${results[@]}"
exit $failed
