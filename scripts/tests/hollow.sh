#!/usr/bin/env bash
# No test of the tree is one that cannot fail, as far as scripts/hollow-tests.py sees.
set -euo pipefail
cd "$(dirname "$0")/../.."
exec scripts/hollow-tests.py
