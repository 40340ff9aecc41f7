#!/usr/bin/env bash
# The JSON of scripts that count instructions, in the schema of `iwarp-perf --json`. Sourced by them.
#   write_report FILE COMMAND RESULT...   each RESULT is a JSON object

write_report() {
    local file=$1 command=$2 cpu kernel commit results
    shift 2
    cpu=$(sed -n '/^model name/{s/^[^:]*: *//p;q}' /proc/cpuinfo)
    kernel=$(uname -r)
    # Results of runs do not change what was measured.
    commit=$(git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
    git diff --quiet HEAD -- . ':!bench/results' ':!bench/RESULTS.md' 2>/dev/null || commit+=-dirty
    results=$(printf ',\n  %s' "$@")
    printf '{"schema": 1, "command": "%s",\n"machine": {"cpu": "%s", "cores": %d, "kernel": "%s"},\n"build": {"commit": "%s", "profile": "release"},\n"results": [%s\n]}\n' \
        "$command" "$cpu" "$(nproc)" "$kernel" "$commit" "${results#,}" >"$file"
}
