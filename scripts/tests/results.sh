#!/usr/bin/env bash
# scripts/results.sh: a tree with changes is refused before anything is built or measured.
set -euo pipefail
cd "$(dirname "$0")/../.."

tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir "$tree/scripts"
cp scripts/results.sh "$tree/scripts/"
# What comes after the check, in place of the packages: the program gets there only with a clean tree.
echo 'echo reached; exit 7' >"$tree/scripts/packages.sh"
in_tree() { git -C "$tree" -c user.name=x -c user.email=x@example.invalid "$@"; }
in_tree init -q
in_tree add .
in_tree commit -qm first
failures=0

# expect STATUS WORD: what results.sh returns and prints.
expect() {
    local status=0 printed
    printed=$("$tree/scripts/results.sh" 2>&1) || status=$?
    if [ "$status" -ne "$1" ] || [[ $printed != *"$2"* ]]; then
        echo "FAILED: status $status, printed '$printed'; expected status $1 and '$2'"
        failures=$((failures + 1))
    fi
}

expect 7 reached
echo >"$tree/new"
expect 2 'the tree has changes'
rm "$tree/new"
echo '# changed' >>"$tree/scripts/results.sh"
expect 2 'scripts/results.sh'
echo "test result: $([ "$failures" -eq 0 ] && echo ok || echo FAILED). $((3 - failures)) passed; $failures failed;"
[ "$failures" -eq 0 ]
