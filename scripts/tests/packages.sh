#!/usr/bin/env bash
# scripts/packages.sh: an old or missing cargo is refused with the remedy.
set -euo pipefail
cd "$(dirname "$0")/../.."
. scripts/packages.sh

programs=$(mktemp -d)
trap 'rm -rf "$programs"' EXIT
failures=0
ln -s "$(command -v cut)" "$(command -v sort)" "$(command -v head)" "$programs/"

# expect STATUS WORD: what require_cargo returns and prints with only $programs in PATH.
expect() {
    local status=0 printed
    printed=$(HOME=$programs PATH=$programs require_cargo 2>&1) || status=$?
    if [ "$status" -ne "$1" ] || [[ $printed != *"$2"* ]]; then
        echo "FAILED: status $status, printed '$printed'; expected status $1 and '$2'"
        failures=$((failures + 1))
    fi
}

# cargo_is VERSION: a cargo that only states its version.
cargo_is() {
    printf '#!/bin/bash\necho "cargo %s (0000000 2026-01-01)"\n' "$1" >"$programs/cargo"
    sed -i "1s|.*|#!$(command -v bash)|" "$programs/cargo"
    chmod +x "$programs/cargo"
}

expect 1 'cargo is not installed'
cargo_is 1.63.0 # Debian 12's
expect 1 'cargo is 1.63.0'
expect 1 'rustup toolchain install'
cargo_is 1.91.0
expect 0 ''
cargo_is 1.100.0
expect 0 ''

# The script and the workspace name the same version.
grep -q "^rust-version = \"$RUST_MIN\"" Cargo.toml || { echo "FAILED: RUST_MIN differs from Cargo.toml"; failures=$((failures + 1)); }
echo "test result: ok. $((6 - failures)) passed; $failures failed;"
[ "$failures" -eq 0 ]
