#!/usr/bin/env bash
# Checks the conformance table against the tests and prints the score of each RFC. See scripts/conformance.py.
set -euo pipefail
exec python3 "$(dirname "$0")/conformance.py" "$@"
