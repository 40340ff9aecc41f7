#!/usr/bin/env bash
# Runs the unit tests of the programs in Python: test_*.py beside this file.
set -uo pipefail
cd "$(dirname "$0")/../.."

log=$(mktemp)
trap 'rm -f "$log"' EXIT
python3 -B -m unittest discover -s scripts/tests -p 'test_*.py' >"$log" 2>&1
status=$?
cat "$log"
ran=$(sed -nE 's/^Ran ([0-9]+) tests? .*/\1/p' "$log")
# The numbers of `FAILED (failures=1, errors=2)`.
failed=$(sed -n 's/^FAILED//p' "$log" | grep -oE '[0-9]+' | paste -sd+ | sed 's/^$/0/')
failed=$((${failed:-0}))
[ "${ran:-0}" -gt 0 ] || { echo 'no test ran' >&2; status=1; }
echo "test result: $([ "$status" -eq 0 ] && echo ok || echo FAILED). $((${ran:-0} - failed)) passed; $failed failed;"
exit "$status"
