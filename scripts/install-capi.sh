#!/usr/bin/env bash
# Builds the library for programs in C and installs it, its header and its pkg-config file under a prefix.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
    cat <<'TXT'
usage: scripts/install-capi.sh [--static-dpdk] [--debug] PREFIX

Builds libironwarp and installs lib/libironwarp.so.1, lib/libironwarp.so, lib/libironwarp.a, include/ironwarp.h and,
for pkg-config, ironwarp.pc and ironwarp-static.pc under PREFIX.

  --static-dpdk  DPDK's archives and drivers in the library, and beside the archive as libironwarp_dpdk.a and
                 libironwarp_drivers.a; for programs that do not call DPDK themselves
  --debug        build without optimisation for speed, which takes less time

examples:
  scripts/install-capi.sh /usr/local
  scripts/install-capi.sh --static-dpdk "$HOME/ironwarp"
TXT
}

profile=release
flags=(--release)
features=()
prefix=
while [ $# -gt 0 ]; do
    case $1 in
        --static-dpdk) features=(--features dpdk-static) ;;
        --debug) profile=debug flags=() ;;
        -h | --help) usage; exit 0 ;;
        -*) echo "unknown option: $1" >&2; usage >&2; exit 2 ;;
        *) [ -z "$prefix" ] || { usage >&2; exit 2; }; prefix=$1 ;;
    esac
    shift
done
[ -n "$prefix" ] || { usage >&2; exit 2; }

# shellcheck source=scripts/packages.sh
. scripts/packages.sh
require_cargo
install_packages build
read -ra options <<<"$(build_options -p ironwarp-capi)"
cargo build --locked "${flags[@]}" "${options[@]}" "${features[@]}"

built=${CARGO_TARGET_DIR:-target}/$profile
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
install -d "$prefix/lib/pkgconfig" "$prefix/include"
prefix=$(cd "$prefix" && pwd)
install -m 755 "$built/libironwarp.so" "$prefix/lib/libironwarp.so.1"
ln -sf libironwarp.so.1 "$prefix/lib/libironwarp.so"
install -m 644 "$built/libironwarp.a" "$prefix/lib/libironwarp.a"
install -m 644 stack/capi/include/ironwarp.h "$prefix/include/ironwarp.h"

# pack_dpdk CONSTANT OUT: the archives of DPDK that dpdk-sys names by that constant, as one.
pack_dpdk() {
    local folder name
    folder=$(pkg-config --variable=libdir libdpdk)
    rm -f "$2"
    {
        echo "create $2"
        for name in $(sed -n "/^const $1:/,/;\$/p" dpdk-sys/build.rs | tr -d '\\\n' | grep -oE '"[^"]+"' | tr -d '"'); do
            echo "addlib $folder/librte_$name.a"
        done
        echo save
        echo end
    } | ar -M
}

# The libraries that the archive needs: DPDK if it is not inside, and the system's.
system='-lgcc_s -lutil -lrt -lpthread -lm -ldl -lc'
requires=libdpdk
libraries="-lrte_net_ring $system"
if [ ${#features[@]} -gt 0 ]; then
    requires=
    pack_dpdk STATIC_CORE "$prefix/lib/libironwarp_dpdk.a"
    pack_dpdk STATIC_DRIVERS "$prefix/lib/libironwarp_drivers.a"
    # Drivers register by constructors that no code calls, so they are linked whole.
    libraries="-Wl,--whole-archive \${libdir}/libironwarp_drivers.a -Wl,--no-whole-archive \${libdir}/libironwarp_dpdk.a"
    libraries+=" -lxdp -lbpf -lelf -lz -lpcap -lnuma -lbsd -latomic $system"
fi

# pc NAME LIBS REQUIRES
pc() {
    cat >"$prefix/lib/pkgconfig/$1.pc" <<TXT
prefix=$prefix
libdir=\${prefix}/lib
includedir=\${prefix}/include

Name: $1
Description: iWARP (RDMA over TCP/IP) in user space
Version: $version
Requires: $3
Libs: $2
Cflags: -I\${includedir}
TXT
}
pc ironwarp '-L${libdir} -lironwarp' ''
pc ironwarp-static "\${libdir}/libironwarp.a $libraries" "$requires"
echo "installed under $prefix; export PKG_CONFIG_PATH=$prefix/lib/pkgconfig"
