#!/usr/bin/env bash
# Installs the Debian packages that the build and the tests need and that are missing. Sourced by the other scripts.
#   install_packages build|test|interop

BUILD_PACKAGES=(build-essential pkg-config libdpdk-dev libclang-dev)
TEST_PACKAGES=(iproute2 ethtool tshark python3)
# A virtual machine for Linux siw, and what its kernel module and its image are built with.
INTEROP_PACKAGES=("${TEST_PACKAGES[@]}" qemu-system-x86 bc cpio xz-utils zstd)

install_packages() {
    local wanted=("${BUILD_PACKAGES[@]}") missing=() package
    [ "$1" = test ] && wanted+=("${TEST_PACKAGES[@]}")
    [ "$1" = interop ] && wanted+=("${INTEROP_PACKAGES[@]}")
    for package in "${wanted[@]}"; do
        dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
    done
    [ ${#missing[@]} -eq 0 ] && return 0
    echo "installing: ${missing[*]}"
    local root=()
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null || { echo "root or sudo is needed to install: ${missing[*]}" >&2; return 1; }
        root=(sudo)
    fi
    "${root[@]}" apt-get update -qq
    DEBIAN_FRONTEND=noninteractive "${root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

require_cargo() {
    [ -f "$HOME/.cargo/env" ] && . "$HOME/.cargo/env"
    command -v cargo >/dev/null && return 0
    echo "cargo is not installed: install a Rust toolchain (1.91 or newer) first" >&2
    return 1
}
