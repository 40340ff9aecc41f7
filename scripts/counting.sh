#!/usr/bin/env bash
# How scripts/test.sh counts and judges. Sourced by it and by its test.

passed=0
failed=0
skipped=0
skips=()

# Skips that --strict allows: Miri, the sanitizers and the fuzz targets need a nightly toolchain, the interop lab needs packages
# of a kernel, cargo-deny and cargo-mutants take minutes to build, and the oldest Rust is one more toolchain. A machine may have
# none of them, and an old processor.
allowed_skips='^(miri: no nightly toolchain with Miri'
allowed_skips+='|address: no nightly toolchain'
allowed_skips+='|deny: cargo-deny is not installed|deny: the database of advisories cannot be had'
allowed_skips+='|fuzz: no nightly toolchain|fuzz: cargo-fuzz cannot be installed'
allowed_skips+='|oldest: no toolchain of Rust [0-9.]+'
allowed_skips+='|mutants: cargo-mutants is not installed|mutants: no commit [^ ]+'
allowed_skips+='|mutants: [0-9]+ minutes ended before a mutant was tried'
allowed_skips+='|interop: no QEMU or no kernel packages to be had'
allowed_skips+='|block devices: no loop device can be made'
allowed_skips+='|one pass: the processor has no kernel for it'
allowed_skips+='|instruction counts: the budgets are for processors with AVX2)$'

skip() {
    skipped=$((skipped + 1))
    skips+=("$1")
}

# Adds up the result lines in the log of a stage, and the skips that tests report. For libtest a test that skips itself has
# passed; here it has not. Only libtest's lines say how many tests were ignored: the summaries of our own programs have no
# skipped cell among those that passed.
count() {
    local line number tested=0 reported=0
    while read -r line; do
        number=$(sed -E 's/.* ([0-9]+) passed.*/\1/' <<<"$line")
        if [[ $line == *' ignored;'* ]]; then tested=$((tested + number)); else passed=$((passed + number)); fi
        failed=$((failed + $(sed -E 's/.* ([0-9]+) failed.*/\1/' <<<"$line")))
    done < <(grep -aE '^test result: ' "$1")
    while read -r line; do
        skip "${line#*SKIPPED: }"
        reported=$((reported + 1))
    done < <(grep -aoE 'SKIPPED: .*' "$1")
    passed=$((passed + (tested > reported ? tested - reported : 0)))
}

# Adds what one stage of a run found: its name, exit status and log.
count_stage() {
    local before=$failed
    if [ "$2" -eq 0 ]; then
        # A stage without results of its own is one test.
        grep -qaE '^test result: ' "$3" || passed=$((passed + 1))
        count "$3"
        return
    fi
    [ ! -e "$3" ] || count "$3"
    [ "$failed" -gt "$before" ] || failed=$((failed + 1))
}

# Prints the skips, each reason with how often it was given. With `strict` those that are not allowed are failures.
print_skips() {
    local number reason
    [ ${#skips[@]} -gt 0 ] || return 0
    while read -r number reason; do
        echo "skipped: $reason$([ "$number" -eq 1 ] || echo " ($number times)")"
        if [ "$1" = strict ] && ! [[ $reason =~ $allowed_skips ]]; then
            echo "not allowed to be skipped: $reason" >&2
            failed=$((failed + number))
        fi
    done < <(printf '%s\n' "${skips[@]}" | sort | uniq -c)
}

# The closing line. Succeeds if something passed, and nothing failed.
judge() {
    echo "$passed passed, $failed failed, $skipped skipped"
    if [ "$passed" -eq 0 ]; then
        echo "nothing passed" >&2
        return 1
    fi
    [ "$failed" -eq 0 ]
}

# Fails, and names what there is, unless every name after `--` is one of those before it.
check_names() {
    local known=() name
    while [ "$1" != -- ]; do known+=("$1"); shift; done
    shift
    for name in "$@"; do
        [[ " ${known[*]} " == *" $name "* ]] || { echo "there is no stage '$name'; stages: ${known[*]}" >&2; return 1; }
    done
}
