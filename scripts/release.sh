#!/usr/bin/env bash
# Builds the release archive: programs, the library for C, configurations, scripts and documentation, for a Debian 12
# machine without DPDK.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
    cat <<'TXT'
usage: scripts/release.sh [--debug] [FOLDER]

Builds everything with DPDK's archives inside and packs FOLDER/ironwarp-VERSION-MACHINE.tar.gz with its checksum beside it
(FOLDER: the build folder's dist). Inside, bin/ has the programs, lib/ironwarp/ the system's libraries that they load and
that a bare machine lacks, lib/ and include/ the library for C, share/ manual pages and completions, scripts/ nic.sh and
hugepages.sh, packaging/ systemd units, licences/ the terms of everything inside that is not ours, and SHA256SUMS what every file should be. It runs from wherever it is unpacked.

The programs are laid out by a profile of a run here (scripts/build-guided.sh), which wants root or sudo.

  --debug  build without optimisation for speed, which takes less time

examples:
  scripts/release.sh
  scripts/release.sh /srv/releases
TXT
}

profile=dist folder=
while [ $# -gt 0 ]; do
    case $1 in
        --debug) profile=dev ;;
        -h | --help) usage; exit 0 ;;
        -*) echo "unknown option: $1" >&2; usage >&2; exit 2 ;;
        *) [ -z "$folder" ] || { usage >&2; exit 2; }; folder=$1 ;;
    esac
    shift
done

# shellcheck source=scripts/packages.sh
. scripts/packages.sh
require_cargo
install_packages build

PROGRAMS=(iwarp-nvmf iwarp-perf iwarp-ping iwarp-responder iwarp-top)
WITH_DPDK=(iwarp-nvmf iwarp-perf iwarp-ping iwarp-responder)
target=${CARGO_TARGET_DIR:-target}
mkdir -p "$target" "${folder:=$target/dist}"
target=$(cd "$target" && pwd)/archive
folder=$(cd "$folder" && pwd)
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
name=ironwarp-$version-$(uname -m)
tree=$target/$name
built=$target/guided/dist
[ "$profile" = dist ] || built=$target/debug

# DT_RPATH, since it also applies to the libraries' own libraries.
export RUSTFLAGS="${RUSTFLAGS:-} -Clink-arg=-Wl,-rpath,\$ORIGIN/../lib/ironwarp -Clink-arg=-Wl,--disable-new-dtags"
export CARGO_TARGET_DIR=$target
packages=() features=()
for program in "${PROGRAMS[@]}"; do packages+=(-p "$program"); done
for program in "${WITH_DPDK[@]}"; do features+=(--features "$program/dpdk-static"); done
if [ "$profile" = dist ]; then
    scripts/build-guided.sh --static-dpdk "${PROGRAMS[@]}"
else
    cargo build --locked "${packages[@]}" "${features[@]}"
fi

rm -rf "$tree"
mkdir -p "$tree"/{bin,lib/ironwarp,scripts}
for program in "${PROGRAMS[@]}"; do
    strip -o "$tree/bin/$program" "$built/$program"
    "$built/$program" --generate-docs "$tree/share" >/dev/null
done
! readelf -d "$tree"/bin/* | grep 'NEEDED.*librte' || { echo "a program needs a library of DPDK's" >&2; exit 1; }

# All libraries that the programs load, except those that every Debian has, which belong to its loader.
mapfile -t libraries < <(for program in "${PROGRAMS[@]}"; do ldd "$built/$program"; done | awk '$3 ~ /^\// { print $3 }' | sort -u |
    grep -vE '/(libc|libm|libdl|libpthread|librt|libutil|libgcc_s)\.so\.[0-9]+$')
cp -L "${libraries[@]}" "$tree/lib/ironwarp/"

# The licences of the contents: of Debian's libraries, DPDK's archives among them, and of the crates.
system_terms() {
    mkdir -p "$tree/licences/system"
    local file package
    for file in "$@"; do
        # The package lists the file by the path from before /lib became a link, or by the one after.
        package=$(dpkg-query -S "$file" 2>/dev/null || dpkg-query -S "$(realpath "$file")" 2>/dev/null || dpkg-query -S "/usr$file")
        package=${package%%:*}
        cp -L "/usr/share/doc/$package/copyright" "$tree/licences/system/$package"
    done
}
crate_terms() {
    local crate terms files
    cargo tree --locked --edges normal --prefix none --format '{p} {l}' "${packages[@]}" "${features[@]}" -p ironwarp-capi |
        sed -nE 's/ \(\*\)$//; /\(\//!s/^(\S+) v(\S+)( \(proc-macro\))? (.*)/\1-\2 \4/p' | sort -u |
        while read -r crate terms; do
            files=$(find "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/"$crate" -maxdepth 1 -type f \
                -iregex '.*/\(licen[cs]e\|copying\|copyright\|notice\|unlicense\)[^/]*')
            mkdir -p "$tree/licences/crates/$crate"
            echo "$terms" >"$tree/licences/crates/$crate/terms"
            [ -z "$files" ] || xargs cp -t "$tree/licences/crates/$crate" <<<"$files"
        done
}
system_terms "${libraries[@]}" "$(find /usr/lib -name librte_eal.a | head -1)"
crate_terms
standard=$(rustc --print sysroot)/share/doc/rust/COPYRIGHT-library.html
[ ! -f "$standard" ] || cp "$standard" "$tree/licences/rust-standard-library.html"

install=(--static-dpdk)
[ "$profile" = dist ] || install+=(--debug)
scripts/install-capi.sh "${install[@]}" "$tree" >/dev/null
# The place of installation is unknown here; pkg-config computes it.
sed -i 's#^prefix=.*#prefix=${pcfiledir}/../..#' "$tree"/lib/pkgconfig/*.pc
strip --strip-debug "$tree"/lib/libironwarp.{so.1,a} "$tree"/lib/libironwarp_{dpdk,drivers}.a

cp -R configs docs README.md CHANGELOG.md LICENSE-APACHE LICENSE-MIT "$tree"
mkdir -p "$tree/packaging"
cp packaging/*.service "$tree/packaging/"
cp -R scripts/{nic.sh,hugepages.sh,wireshark} "$tree/scripts/"
(cd "$tree" && find . -type f ! -name SHA256SUMS -print0 | sort -z | xargs -0 sha256sum >SHA256SUMS)
tar -C "$target" --owner=0 --group=0 --sort=name -czf "$folder/$name.tar.gz" "$name"
(cd "$folder" && sha256sum "$name.tar.gz" >"$name.tar.gz.sha256")
echo "$folder/$name.tar.gz"
