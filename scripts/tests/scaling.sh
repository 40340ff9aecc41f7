#!/usr/bin/env bash
# scripts/scaling.sh: bad options are refused before anything is built; in an archive it runs the program beside it.
set -euo pipefail
cd "$(dirname "$0")/../.."

archive=$(mktemp -d)
trap 'rm -rf "$archive"' EXIT
cp scripts/scaling.sh "$archive/"
cat >"$archive/iwarp-perf" <<'TXT'
#!/bin/sh
echo "$LD_LIBRARY_PATH: $*"
TXT
chmod +x "$archive/iwarp-perf"
cases=0 failures=0

# expect STATUS WORDS OPTION...: what scaling.sh returns and prints.
expect() {
    local wanted=$1 words=$2 status=0 printed
    shift 2
    cases=$((cases + 1))
    printed=$("$archive/scaling.sh" "$@" 2>&1) || status=$?
    if [ "$status" -ne "$wanted" ] || [[ $printed != *"$words"* ]]; then
        echo "FAILED: $*: status $status, printed '$printed'; expected status $wanted and '$words'"
        failures=$((failures + 1))
    fi
}

expect 0 "$archive/lib: cores --json scaling.json"
expect 0 'cores --json x.json --quick --duration 2 --cores 4 --oversubscribe' \
    --json x.json --quick --seconds 2 --cores 4 --oversubscribe
expect 0 examples: --help
expect 2 'unknown option: --fast' --fast
expect 2 '--seconds: needs a value' --seconds
expect 2 '--archive: only with --guided' --archive --quick
expect 2 '--guided: only with --archive' --guided
echo "test result: $([ "$failures" -eq 0 ] && echo ok || echo FAILED). $((cases - failures)) passed; $failures failed;"
[ "$failures" -eq 0 ]
