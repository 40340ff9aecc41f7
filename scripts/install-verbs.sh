#!/usr/bin/env bash
# Builds libibverbs.so.1 and librdmacm.so.1 over ironwarp and installs them in a folder for LD_LIBRARY_PATH.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
    cat <<'TXT'
usage: scripts/install-verbs.sh [--debug] [FOLDER]

Builds the libraries that replace rdma-core's and installs libibverbs.so.1 and librdmacm.so.1 in FOLDER, and iwarp-run
beside the folder. Both names are one file, so that their state exists once: copy the link as a link. Programs that are
started by `iwarp-run PROGRAM ARGUMENTS...` use them; the system's libraries are not touched.

  --debug  build without optimisation for speed, which takes less time
  FOLDER   default: target/verbs/lib, where iwarp-run of the same build finds it

examples:
  scripts/install-verbs.sh
  scripts/install-verbs.sh /opt/ironwarp/lib
TXT
}

profile=release
flags=(--release)
target=${CARGO_TARGET_DIR:-target}
folder=$target/verbs/lib
while [ $# -gt 0 ]; do
    case $1 in
        --debug) profile=debug flags=() ;;
        -h | --help) usage; exit 0 ;;
        -*) echo "unknown option: $1" >&2; usage >&2; exit 2 ;;
        *) folder=$1 ;;
    esac
    shift
done

# shellcheck source=scripts/packages.sh
. scripts/packages.sh
require_cargo
install_packages verbs
read -ra options <<<"$(build_options -p ironwarp-verbs-compat -p iwarp-run)"
cargo build --locked "${flags[@]}" "${options[@]}"

archive=$target/$profile/libironwarp_verbs.a
# Not nm: with LLVM's plugin for binutils it reads the bitcode of a release build in place of its symbols.
readelf -sW "$archive" 2>/dev/null | grep ' GLOBAL .* ibv_open_device$' >/dev/null ||
    { echo "$archive is empty: the headers of rdma-core were missing (libibverbs-dev, librdmacm-dev)" >&2; exit 1; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp stack/verbs-compat/exports.map "$work/exports.map"

# Providers of the system's libibverbs (libmlx5, libefa) link with its private names, whose version changes with each release.
# They become functions that do nothing and report an error, since no provider gets a device.
private_names() {
    local system
    system=$(PATH=$PATH:/sbin:/usr/sbin ldconfig -p | sed -n 's/.*libibverbs\.so\.1 .*=> //p' | head -1)
    [ -n "$system" ] || return 0
    nm -D --with-symbol-versions "$system" | grep '@@IBVERBS_PRIVATE_' | sed -E 's/^[0-9a-f]* *//' | tr -s '@' ' '
}
private_names >"$work/private"
echo '#include <errno.h>' >"$work/private.c"
if [ -s "$work/private" ]; then
    version=$(cut -d' ' -f3 "$work/private" | head -1)
    {
        echo "$version {"
        echo '    global:'
        cut -d' ' -f2 "$work/private" | sed 's/^/        /; s/$/;/'
        echo "} IBVERBS_1.1;"
    } >>"$work/exports.map"
    while read -r kind name _; do
        # The one that ibv_devinfo calls is a real one.
        [ "$name" = ibv_query_gid_type ] && continue
        case $kind in
            T | t) echo "int $name(void) { errno = ENOSYS; return ENOSYS; }" ;;
            *) echo "char $name;" ;;
        esac
    done <"$work/private" >>"$work/private.c"
fi

read -ra dpdk <<<"$(pkg-config --libs libdpdk)"
mkdir -p "$folder"
cc -shared -fPIC -o "$folder/libibverbs.so.1.new" \
    -Wl,-soname,libibverbs.so.1 -Wl,--version-script="$work/exports.map" -Wl,-z,defs -Wl,-z,nodelete -Wl,--as-needed \
    "$work/private.c" -Wl,--whole-archive "$archive" -Wl,--no-whole-archive \
    "${dpdk[@]}" -lrte_net_ring -lgcc_s -lutil -lrt -lpthread -lm -ldl -lc
mv -f "$folder/libibverbs.so.1.new" "$folder/libibverbs.so.1"
ln -sf libibverbs.so.1 "$folder/librdmacm.so.1"
[ "$target/$profile/iwarp-run" -ef "$folder/../iwarp-run" ] || install -m 755 "$target/$profile/iwarp-run" "$folder/../iwarp-run"
echo "installed in $folder; start programs with $(dirname "$folder")/iwarp-run"
