#!/usr/bin/env bash
# The systemd units: valid, within a bound of exposure also with each drop-in, and no two instances share what is theirs.
set -euo pipefail
cd "$(dirname "$0")/../.."

if ! command -v systemd-analyze >/dev/null; then
    echo "skipped: units (systemd-analyze is not installed)"
    exit 0
fi
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
units=$root/etc/systemd/system
mkdir -p "$units" "$root/usr/bin"
cp packaging/*.service "$units/"
for program in iwarp-nvmf iwarp-top; do
    printf '#!/bin/sh\n' >"$root/usr/bin/$program"
    chmod +x "$root/usr/bin/$program"
done
failures=0

fail() {
    echo "FAILED: $1" >&2
    failures=$((failures + 1))
}

# exposed UNIT BOUND [DROP-IN]: the exposure of systemd-analyze security, in tenths, is at most BOUND.
exposed() {
    local unit=$1 bound=$2 dropin=${3:-} name
    name=$unit${dropin:+ with $(basename "$dropin")}
    rm -rf "$units/$unit.d"
    if [ -n "$dropin" ]; then
        mkdir "$units/$unit.d"
        cp "$dropin" "$units/$unit.d/"
    fi
    systemd-analyze security --offline=yes --root="$root" --threshold="$bound" "$unit" >"$root/report" 2>&1 ||
        fail "$name: $(tail -1 "$root/report"), at most $bound tenths"
    systemd-analyze verify --man=no --root="$root" "$unit" >"$root/report" 2>&1 || true
    # The root has no other units.
    if grep -E "$unit.*(Unknown|Invalid|Failed to parse|ignoring)|bad-setting" "$root/report"; then fail "$name is not valid"; fi
    rm -rf "$units/$unit.d"
}

for unit in iwarp-nvmf@ iwarp-top@; do cp "packaging/$unit.service" "$units/${unit}disk.service"; done
exposed iwarp-nvmf@disk.service 20
exposed iwarp-top@disk.service 20
for dropin in packaging/drop-ins/*.conf; do
    case $dropin in
        # Root, since the card may write all memory.
        */uio.conf) exposed iwarp-nvmf@disk.service 32 "$dropin" ;;
        *) exposed iwarp-nvmf@disk.service 26 "$dropin" ;;
    esac
done

# What an instance listens on, and where it keeps its files, has its name.
for line in 'EnvironmentFile=.*%i' 'ExecStart=.*%i'; do
    grep -q "^$line" packaging/iwarp-top@.service || fail "iwarp-top@: no $line"
done
if grep -q '^Environment=IRONWARP_METRICS' packaging/iwarp-top@.service; then fail "iwarp-top@: one address for all instances"; fi
for line in 'StateDirectory=.*%i' 'RuntimeDirectory=.*%i' 'Type=notify' 'WatchdogSec=' 'RestartPreventExitStatus=2' 'User='; do
    grep -q "^$line" packaging/iwarp-nvmf@.service || fail "iwarp-nvmf@: no $line"
done
# A configuration that is not valid must end the main process, whose exit code prevents restarts.
if grep -q '^ExecStartPre=' packaging/iwarp-nvmf@.service; then fail "iwarp-nvmf@: ExecStartPre hides exit code 2"; fi
for script in postinst prerm postrm; do sh -n "packaging/maintainer/$script" || fail "$script"; done

[ "$failures" -eq 0 ] || exit 1
echo "units: passed"
