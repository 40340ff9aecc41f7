#!/usr/bin/env bash
# Builds libibverbs.so.1 and librdmacm.so.1 over ironwarp and installs them in a folder for LD_LIBRARY_PATH.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
    cat <<'TXT'
usage: scripts/install-verbs.sh [--debug | --guided] [FOLDER]

Builds the libraries that replace rdma-core's and installs libibverbs.so.1 and librdmacm.so.1 in FOLDER, and iwarp-run
beside the folder. Both names are one file, so that their state exists once: copy the link as a link. Programs that are
started by `iwarp-run PROGRAM ARGUMENTS...` use them; the system's libraries are not touched.

  --debug   build without optimisation for speed, which takes less time
  --guided  lay out the code by a profile: libraries with counters run perftest's programs over a pair of memifs first. Adds
            the toolchain's llvm-tools with rustup when missing, and installs the packages of the tests, perftest among them
  FOLDER    default: target/verbs/lib, where the iwarp-run beside it finds it

examples:
  scripts/install-verbs.sh
  scripts/install-verbs.sh --guided /opt/ironwarp/lib
TXT
}

profile=release
flags=(--release)
guided=
target=${CARGO_TARGET_DIR:-target}
folder=$target/verbs/lib
while [ $# -gt 0 ]; do
    case $1 in
        --debug) profile=debug flags=() guided= ;;
        --guided) profile=dist flags=(--profile dist) guided=1 ;;
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
[ -z "$guided" ] || install_packages test
work=$(mktemp -d)
server=
cleanup() {
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT
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

# build OPTION...: builds the archive and iwarp-run in the folder $target.
build() {
    CARGO_TARGET_DIR=$target cargo build --locked "${flags[@]}" "$@"
    archive=$target/$profile/libironwarp_verbs.a
    # Not nm: with LLVM's plugin for binutils it reads the bitcode of a release build in place of its symbols.
    readelf -sW "$archive" 2>/dev/null | grep ' GLOBAL .* ibv_open_device$' >/dev/null ||
        { echo "$archive is empty: the headers of rdma-core were missing (libibverbs-dev, librdmacm-dev)" >&2; return 1; }
}

# install_in FOLDER: links the archive, and installs the libraries in FOLDER and iwarp-run beside it.
install_in() {
    mkdir -p "$1"
    cc -shared -fPIC -o "$1/libibverbs.so.1.new" \
        -Wl,-soname,libibverbs.so.1 -Wl,--version-script="$work/exports.map" -Wl,-z,defs -Wl,-z,nodelete -Wl,--as-needed \
        "$work/private.c" -Wl,--whole-archive "$archive" -Wl,--no-whole-archive \
        "${dpdk[@]}" -lrte_net_ring -lgcc_s -lutil -lrt -lpthread -lm -ldl -lc
    mv -f "$1/libibverbs.so.1.new" "$1/libibverbs.so.1"
    ln -sf libibverbs.so.1 "$1/librdmacm.so.1"
    [ "$target/$profile/iwarp-run" -ef "$1/../iwarp-run" ] || install -m 755 "$target/$profile/iwarp-run" "$1/../iwarp-run"
}

# count FOLDER: runs each test of perftest over the libraries of FOLDER, both ends at the same time. They are not pinned to
# processors.
count() {
    local name=count$$ words test
    local run=("$1/../iwarp-run" --libraries "$1" --pair memif --name "$name")
    for test in "ib_send_lat -s 64" "ib_write_lat -s 64" "ib_read_lat -s 64" "ib_atomic_lat" "ib_send_bw -s 65536" \
        "ib_write_bw -s 65536" "ib_read_bw -s 65536"; do
        read -ra words <<<"$test"
        timeout -k 2 120 "${run[@]}" --role server "${words[@]}" -n 20000 -R -F >"$work/server" 2>&1 &
        server=$!
        sleep 1
        timeout -k 2 120 "${run[@]}" --role client "${words[@]}" -n 20000 -R -F 10.99.0.1 >"$work/client" 2>&1 && wait "$server" ||
            { tail -n 5 "$work/server" "$work/client" >&2; echo "$test failed over the libraries with counters" >&2; return 1; }
        server=
    done
}

base=$target
if [ -n "$guided" ]; then
    merge=$(llvm_profdata)
    mkdir -p "$base/guided-verbs"
    counts=$(realpath "$base/guided-verbs")
    rm -rf "$counts/raw"
    user_flags=${RUSTFLAGS:-}
    echo "building with counters"
    export RUSTFLAGS="$user_flags -Cprofile-generate=$counts/raw"
    target=$base/instrumented
    build -p ironwarp-verbs-compat -p iwarp-run
    install_in "$work/counted/lib"
    echo "counting"
    count "$work/counted/lib"
    "$merge" merge -o "$counts/verbs.profdata" "$counts"/raw/*.profraw
    echo "building for what was counted"
    export RUSTFLAGS="$user_flags -Cprofile-use=$counts/verbs.profdata $GUIDED_LAYOUT"
    target=$base/guided
    build -p ironwarp-verbs-compat -p iwarp-run
else
    read -ra options <<<"$(build_options -p ironwarp-verbs-compat -p iwarp-run)"
    build "${options[@]}"
fi
install_in "$folder"
echo "installed in $folder; start programs with $(dirname "$folder")/iwarp-run"
