#!/usr/bin/env bash
# The interop lab: Linux siw, in a virtual machine built from Debian packages, against the project's programs.
#   scripts/interop/run.sh [--programs FOLDER] [--smoke] [--device af_packet|vhost|tap|af_xdp|pci|release]... [--only PATTERN]...
#                                                [--archive FILE]
#   scripts/interop/run.sh [--programs FOLDER] --compare [--rounds N] [--json FILE]     measures beside siw in one guest; built as shipped
#   scripts/interop/run.sh [--programs FOLDER] --compare-storage [--rounds N] [--json FILE]     the same for NVMe over Fabrics
#   scripts/interop/run.sh --list
# Builds the programs unless they lie in FOLDER. The machine, and what failing cells leave, lie in the build folder under
# interop/. Ends with `N passed, N failed, N skipped`.
# Exit codes: 0 none failed, 1 some did, 2 bad arguments, 3 nothing to run it with.
set -euo pipefail
cd "$(dirname "$0")/../.."

# Options that build and boot nothing need no packages.
case " $* " in
    *" -h "* | *" --help "* | *" --list "*) exec python3 -B scripts/interop/lab --image . --logs . --programs . "$@" ;;
esac

# shellcheck source=scripts/packages.sh
. scripts/packages.sh
install_packages interop || { echo "no QEMU or tools to be had for the interop lab" >&2; exit 3; }

build=${CARGO_TARGET_DIR:-target}
programs=$build/debug
if [ "${1:-}" = --programs ]; then
    programs=${2:?"--programs needs a folder"}
    shift 2
elif [[ " $* " == *" --compare-storage "* ]]; then
    scripts/build-guided.sh --static-dpdk iwarp-nvmf
    programs=$build/guided/dist
elif [[ " $* " == *" --compare "* ]]; then
    scripts/build-guided.sh --static-dpdk iwarp-perf
    programs=$build/guided/dist
else
    require_cargo
    # The profile of cargo test, so that one of the two builds serves both.
    read -ra selected <<<"$(build_options --workspace --bins)"
    cargo build --quiet --locked "${selected[@]}"
    # No cell of the short run needs the replacement libraries.
    [[ " $* " == *" --smoke "* ]] || scripts/install-verbs.sh --debug "$build/verbs/lib" >/dev/null
fi
verbs=$build/verbs/release/lib
guided=()
[ "$programs" != "$build/guided/dist" ] || guided=(--guided)
[[ " $* " != *" --compare "* ]] || scripts/install-verbs.sh "${guided[@]}" "$verbs" >/dev/null
status=0
scripts/interop/build-guest.sh "$build/interop/guest" --storage || status=$?
[ "$status" -eq 0 ] || { echo "no guest for the interop lab" >&2; exit "$status"; }

# A network namespace without a name ends with its last process, and so does everything in it.
exec unshare --net -- python3 -B scripts/interop/lab --image "$build/interop/guest" --programs "$programs" \
    --verbs "$verbs" --logs "$build/interop/logs" "$@"
