#!/usr/bin/env bash
# Installs the Debian packages that the build and the tests need and that are missing. Sourced by the other scripts.
#   install_packages build|verbs|test|counts|interop

BUILD_PACKAGES=(build-essential pkg-config libdpdk-dev libclang-dev)
# The headers of rdma-core, whose layouts the replacement of its libraries uses.
VERBS_PACKAGES=(libibverbs-dev librdmacm-dev)
# Programs that run over that replacement.
VERBS_PROGRAMS=(rdmacm-utils ibverbs-utils perftest qperf fio libfabric-bin openmpi-bin libopenmpi-dev python3-pyverbs)
TEST_PACKAGES=(iproute2 iputils-ping procps ethtool tshark python3 libusrsctp-dev "${VERBS_PACKAGES[@]}" "${VERBS_PROGRAMS[@]}")
# The packages for counting instructions.
COUNTS_PACKAGES=(valgrind)
# A virtual machine for Linux siw, and the build tools of its kernel module and image.
INTEROP_PACKAGES=("${TEST_PACKAGES[@]}" qemu-system-x86 bc cpio xz-utils zstd)

install_packages() {
    local wanted=("${BUILD_PACKAGES[@]}") missing=() package
    [ "$1" = verbs ] && wanted+=("${VERBS_PACKAGES[@]}")
    [ "$1" = test ] && wanted+=("${TEST_PACKAGES[@]}")
    [ "$1" = counts ] && wanted+=("${COUNTS_PACKAGES[@]}")
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

# build_options OPTION...: prints cargo's options that select what a script needs. With IRONWARP_WHOLE_BUILD set they select
# what stage build of test.sh does, but no tests: features, and so artefacts, are the same then, and one build serves all.
build_options() {
    if [ -n "${IRONWARP_WHOLE_BUILD:-}" ]; then
        echo --workspace --lib --bins --examples
    else
        echo "$@"
    fi
}

# The oldest Rust that builds the workspace: rust-version in Cargo.toml.
RUST_MIN=1.91

# Fails, and names the remedy, unless cargo is installed and new enough.
require_cargo() {
    local remedy version
    remedy="install it with rustup (https://rustup.rs): rustup toolchain install stable"
    [ -f "$HOME/.cargo/env" ] && . "$HOME/.cargo/env"
    command -v cargo >/dev/null || { echo "cargo is not installed, Rust $RUST_MIN or newer is needed; $remedy" >&2; return 1; }
    version=$(cargo --version | cut -d' ' -f2)
    if [ "$(printf '%s\n%s\n' "$RUST_MIN" "$version" | sort -V | head -1)" != "$RUST_MIN" ]; then
        echo "cargo is $version ($(command -v cargo)), Rust $RUST_MIN or newer is needed; $remedy" >&2
        return 1
    fi
}

# llvm_profdata: prints the toolchain's own llvm-profdata, since another one may not know the format of its counts, and adds it
# with rustup when it is missing.
llvm_profdata() {
    local tool
    tool=$(find "$(rustc --print sysroot)/lib/rustlib" -name llvm-profdata -type f | head -1)
    if [ -z "$tool" ]; then
        rustup component add llvm-tools >&2 || true
        tool=$(find "$(rustc --print sysroot)/lib/rustlib" -name llvm-profdata -type f | head -1)
    fi
    [ -n "$tool" ] || { echo "llvm-profdata is missing: rustup component add llvm-tools" >&2; return 1; }
    echo "$tool"
}

# The compiler's options beside a profile. Code that never runs is split from its function, so that the code that runs lies on
# fewer pages. Loops that poll in vain count far more than the work. By default the code with 99 % of all counts is hot, and that
# may exclude parts of the path of a message.
GUIDED_LAYOUT="-Cllvm-args=-enable-split-machine-functions -Cllvm-args=-profile-summary-cutoff-hot=999000"
