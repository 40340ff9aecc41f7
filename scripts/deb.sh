#!/usr/bin/env bash
# Builds the Debian package: programs, libraries, manual pages, completions, units, configurations, documentation.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
    cat <<'TXT'
usage: scripts/deb.sh [--debug] [FOLDER]

Builds the programs with Debian's shared DPDK and packs FOLDER/ironwarp_VERSION-1_ARCH.deb (FOLDER: the build folder's dist).
The package depends on DPDK's packages, so all of Debian's network drivers work, those for NVIDIA's cards among them, and
fixes of DPDK arrive with Debian's. scripts/release.sh makes an archive for machines without DPDK.
Inside are iwarp-run with the libraries that replace rdma-core's for its programs, and libironwarp with its header.
Needs cargo-deb, which is built into the build folder when it is not installed.

  --debug  build without optimisation for speed, which takes less time

examples:
  scripts/deb.sh
  sudo apt install ./target/dist/ironwarp_0.1.0-1_amd64.deb
TXT
}

profile=dist built=dist folder= libraries=()
while [ $# -gt 0 ]; do
    case $1 in
        --debug) profile=dev built=debug libraries=(--debug) ;;
        -h | --help) usage; exit 0 ;;
        -*) echo "unknown option: $1" >&2; usage >&2; exit 2 ;;
        *) [ -z "$folder" ] || { usage >&2; exit 2; }; folder=$1 ;;
    esac
    shift
done

# shellcheck source=scripts/packages.sh
. scripts/packages.sh
require_cargo
install_packages build verbs

PROGRAMS=(iwarp-nvmf iwarp-perf iwarp-ping iwarp-responder iwarp-run iwarp-top)
target=${CARGO_TARGET_DIR:-target}
mkdir -p "$target" "${folder:=$target/dist}"
target=$(cd "$target" && pwd)
folder=$(cd "$folder" && pwd)
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
tree=$target/deb

cargo_deb=$(command -v cargo-deb || true)
if [ -z "$cargo_deb" ]; then
    cargo_deb=$target/tools/bin/cargo-deb
    [ -x "$cargo_deb" ] || cargo install --quiet --locked --debug --root "$target/tools" cargo-deb
fi

packages=()
for program in "${PROGRAMS[@]}"; do packages+=(-p "$program"); done
cargo build --quiet --locked --profile "$profile" "${packages[@]}"

rm -rf "$tree"
mkdir -p "$tree"/{usr/bin,usr/share/doc/ironwarp,usr/share/ironwarp,usr/lib/sysusers.d,lib/systemd/system}
share=$tree/usr/share
for program in "${PROGRAMS[@]}"; do
    strip -o "$tree/usr/bin/$program" "$target/$built/$program"
    "$target/$built/$program" --generate-docs "$share" >/dev/null
done
# iwarp-run looks there; programs of rdma-core that it does not start keep the system's libraries.
scripts/install-verbs.sh "${libraries[@]}" "$tree/usr/lib/ironwarp/verbs" >/dev/null
rm "$tree/usr/lib/ironwarp/iwarp-run"
scripts/install-capi.sh "${libraries[@]}" "$tree/usr" >/dev/null
sed -i 's|^prefix=.*|prefix=/usr|' "$tree"/usr/lib/pkgconfig/*.pc
strip --strip-unneeded "$tree"/usr/lib/libironwarp.so.1 "$tree"/usr/lib/ironwarp/verbs/libibverbs.so.1
strip --strip-debug "$tree"/usr/lib/libironwarp.a
gzip -9n "$share"/man/man1/*
# Debian's zsh looks there.
mv "$share/zsh/site-functions" "$share/zsh/vendor-completions"
cp -R scripts/{nic.sh,hugepages.sh,wireshark} "$share/ironwarp/"
cp -R configs docs README.md CHANGELOG.md LICENSE-APACHE LICENSE-MIT "$share/doc/ironwarp/"
cp packaging/*.service "$tree/lib/systemd/system/"
cp packaging/ironwarp.sysusers "$tree/usr/lib/sysusers.d/ironwarp.conf"
cp -R packaging/drop-ins "$share/ironwarp/"
cp -R packaging/maintainer "$tree/"
sed "s/^version = .*/version = \"$version\"/" packaging/Cargo.toml >"$tree/Cargo.toml"
: >"$tree/none.rs"

(cd "$tree" && CARGO_TARGET_DIR=$tree/target "$cargo_deb" --quiet --no-build --no-strip --output "$folder/" >/dev/null)
ls "$folder/ironwarp_$version"-*.deb
