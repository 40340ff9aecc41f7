#!/usr/bin/env bash
# scripts/counting.sh: what scripts/test.sh counts as passed, failed and skipped, and when a run fails.
set -uo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=scripts/counting.sh
. scripts/counting.sh

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
checks=0
wrong=0

# equals WHAT GOT WANTED
equals() {
    checks=$((checks + 1))
    [ "$2" = "$3" ] || { echo "FAILED: $1: '$2', not '$3'"; wrong=$((wrong + 1)); }
}

# A run of stages: pairs of exit status and log. Prints what was counted, the skips, and the exit status of the run.
run() {
    (
        strict=$1
        shift
        number=0
        while [ $# -gt 0 ]; do
            number=$((number + 1))
            printf '%b' "$2" >"$folder/$number.log"
            count_stage "stage$number" "$1" "$folder/$number.log"
            shift 2
        done
        print_skips "$strict" 2>/dev/null
        judge 2>/dev/null
        echo "exit $?"
    ) | paste -sd' '
}

libtest() {
    echo "running 9 tests\ntest result: $1. $2 passed; $3 failed; ${4:-0} ignored; 0 measured; 0 filtered out; finished in 0.1s\n"
}

equals 'results add up' "$(run '' 0 "$(libtest ok 3 0)$(libtest ok 4 0)" 0 "$(libtest ok 2 0)")" '9 passed, 0 failed, 0 skipped exit 0'
equals 'a stage without results is one test' "$(run '' 0 'all well\n')" '1 passed, 0 failed, 0 skipped exit 0'
equals 'a stage that fails without results is one failure' "$(run '' 0 'fine\n' 1 'no disk\n')" '1 passed, 1 failed, 0 skipped exit 1'
equals 'failures are counted once' "$(run '' 101 "$(libtest FAILED 3 2)")" '3 passed, 2 failed, 0 skipped exit 1'
equals 'a stage that fails although its tests passed is a failure' "$(run '' 101 "$(libtest ok 3 0)")" '3 passed, 1 failed, 0 skipped exit 1'
equals 'a skipped test has not passed' "$(run '' 0 "test a ... \nSKIPPED: no tool\nok\n$(libtest ok 3 0)")" \
    'skipped: no tool 2 passed, 0 failed, 1 skipped exit 0'
equals 'each skip counts, also of one reason' "$(run '' 0 "SKIPPED: no tool\ntest b ... SKIPPED: no tool\nSKIPPED: no root\n$(libtest ok 5 0)")" \
    'skipped: no root skipped: no tool (2 times) 2 passed, 0 failed, 3 skipped exit 0'
equals 'cells that were skipped are not among those that passed' "$(run '' 0 'SKIPPED: cell: no cable\ntest result: 3 passed; 0 failed;\n')" \
    'skipped: cell: no cable 3 passed, 0 failed, 1 skipped exit 0'
equals 'a run of skips alone fails' "$(run '' 0 "SKIPPED: no tool\n$(libtest ok 1 0)")" 'skipped: no tool 0 passed, 0 failed, 1 skipped exit 1'
equals 'a stage of which nothing was there passes nothing' \
    "$(run '' 0 'SKIPPED: interop: no QEMU or no kernel packages to be had\ntest result: ok. 0 passed; 0 failed;\n')" \
    'skipped: interop: no QEMU or no kernel packages to be had 0 passed, 0 failed, 1 skipped exit 1'
equals 'a run of nothing fails' "$(run '')" '0 passed, 0 failed, 0 skipped exit 1'
equals 'strict: what may be skipped' "$(run strict 0 "SKIPPED: interop: no QEMU or no kernel packages to be had\ntest result: 4 passed; 0 failed;\n")" \
    'skipped: interop: no QEMU or no kernel packages to be had 4 passed, 0 failed, 1 skipped exit 0'
equals 'strict: what may not' "$(run strict 0 "SKIPPED: no tool\nSKIPPED: no tool\n$(libtest ok 4 0)")" \
    'skipped: no tool (2 times) 2 passed, 2 failed, 2 skipped exit 1'
equals 'strict: a reason that only begins like one' "$(run strict 0 "SKIPPED: fuzz: no nightly toolchain, or so\n$(libtest ok 4 0)")" \
    'skipped: fuzz: no nightly toolchain, or so 3 passed, 1 failed, 1 skipped exit 1'
equals 'octets that are no text' "$(run '' 0 "\xff\xfe\n$(libtest ok 2 0)")" '2 passed, 0 failed, 0 skipped exit 0'

# Names of stages are checked before anything is installed or built.
for line in '--stage nosuch' '--stage test' '--stage tests --stage nosuch' '--stage interop' '--interop --stage interop-smoke'; do
    status=0
    # shellcheck disable=SC2086
    said=$(PATH=/usr/bin:/bin scripts/test.sh $line 2>&1) || status=$?
    equals "test.sh $line: exit status" "$status" 2
    equals "test.sh $line: one line" "$(wc -l <<<"$said")" 1
done
# Every stage that the script runs has a name in its list.
listed=$(sed -n '/^STAGES=(/,/)/p' scripts/test.sh | tr -d '()' | sed 's/STAGES=//' | xargs -n1 | sort)
ran=$(sed -E "s/^( *)begin_with ('[^']*'|\"[^\"]*\") ('[^']*'|\"[^\"]*\")/\1begin/" scripts/test.sh |
    sed -nE 's/^ *(stage|begin) ([a-z -]+).*/\1 \2/p' |
    awk '$1 == "stage" { print $2 } $1 == "begin" { for (i = 2; i <= NF; i++) print $i }' | sort -u)
equals 'the list of stages' "$(comm -3 <(echo "$listed") <(echo "$ran") | xargs)" ''

echo "test result: $([ "$wrong" -eq 0 ] && echo ok || echo FAILED). $((checks - wrong)) passed; $wrong failed;"
[ "$wrong" -eq 0 ]
