#!/usr/bin/env bash
# A property that failed once is tried again in every later run: no test turns off that proptest writes its failures,
# and git does not ignore the files. They are NAME.proptest-regressions beside a file of tests/, and under
# proptest-regressions/ for all others.
set -euo pipefail
cd "$(dirname "$0")/../.."

off=$(grep -rnE 'failure_persistence: *None|FileFailurePersistence::Off' --include=*.rs stack apps bench fuzz/targets || true)
[ -z "$off" ] || { echo "proptest does not keep the failures of:" "$off" >&2; exit 1; }
for file in stack/rings/tests/model.proptest-regressions stack/tcp/proptest-regressions/queue/arena.txt; do
    ! git check-ignore -q "$file" || { echo "git ignores $file" >&2; exit 1; }
done
