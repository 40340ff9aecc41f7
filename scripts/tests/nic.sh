#!/usr/bin/env bash
# scripts/nic.sh on a machine made of files: four cards, and the values that must, and must not, be written.
set -euo pipefail
cd "$(dirname "$0")/../.."

machine=$(mktemp -d)
trap 'rm -rf "$machine"' EXIT
export NIC_ROOT=$machine
checks=0
failures=0

# A card: address, driver, interface (or -), IOMMU group (or -).
card() {
    local at=$machine/sys/bus/pci/devices/$1
    mkdir -p "$at" "$machine/sys/bus/pci/drivers/$2"
    echo 0x020000 >"$at/class"
    echo 0x8086 >"$at/vendor"
    echo 0x10d3 >"$at/device"
    echo 0 >"$at/numa_node"
    : >"$at/driver_override"
    : >"$machine/sys/bus/pci/drivers/$2/unbind"
    ln -sfn "../../drivers/$2" "$at/driver"
    if [[ $3 != - ]]; then
        mkdir -p "$at/net/$3" "$machine/sys/class/net/$3"
        echo up >"$machine/sys/class/net/$3/operstate"
        ln -sfn "../../../bus/pci/devices/$1" "$machine/sys/class/net/$3/device"
    fi
    if [[ $4 != - ]]; then
        mkdir -p "$machine/sys/kernel/iommu_groups/$4/devices"
        ln -sfn "../../../../kernel/iommu_groups/$4" "$at/iommu_group"
        : >"$machine/sys/kernel/iommu_groups/$4/devices/$1"
    fi
}

fresh() {
    rm -rf "${machine:?}"/*
    mkdir -p "$machine/proc/net" "$machine/sys/bus/pci/drivers/vfio-pci" "$machine/sys/bus/pci/drivers/uio_pci_generic"
    : >"$machine/sys/bus/pci/drivers_probe"
    card 0000:01:00.0 e1000e ens1 5
    card 0000:02:00.0 ixgbe ens2 6
    card 0000:03:00.0 e1000e ens3 -
    card 0000:04:00.0 mlx5_core ens4 7
    mkdir -p "$machine/sys/bus/pci/devices/0000:05:00.0"
    echo 0x010802 >"$machine/sys/bus/pci/devices/0000:05:00.0/class"
    mkdir -p "$machine/sys/class/net/br0"
    printf 'Iface\tDestination\tGateway\nens1\t00000000\t0101A8C0\n' >"$machine/proc/net/route"
}

# Runs nic.sh; compares its exit code, and searches its output for every further word.
expect() {
    local want=$1 line=$2 said code=0 word
    shift 2
    # shellcheck disable=SC2086
    said=$(scripts/nic.sh $line 2>&1) || code=$?
    checks=$((checks + 1))
    if [[ $code -ne $want ]]; then
        echo "nic.sh $line: ended with $code, not $want: $said"
        failures=$((failures + 1))
    fi
    for word in "$@"; do
        if ! grep -qF -- "$word" <<<"$said"; then
            echo "nic.sh $line: '$word' is not in: $said"
            failures=$((failures + 1))
        fi
    done
    [[ $want -eq 0 ]] || [[ $(wc -l <<<"$said") -eq 1 ]] || { echo "more than one line: $said"; failures=$((failures + 1)); }
}

# Checks that a file holds exactly this.
holds() {
    checks=$((checks + 1))
    if [[ $(cat "$machine/sys/bus/pci/$1") != "$2" ]]; then
        echo "$1 holds '$(cat "$machine/sys/bus/pci/$1")', not '$2'"
        failures=$((failures + 1))
    fi
}

fresh
expect 0 list 0000:01:00.0 ens1 'default route' 0000:02:00.0 ixgbe 0000:04:00.0 mlx5_core 8086:10d3
if scripts/nic.sh list | grep -q 05:00.0; then echo "a disk is listed" && failures=$((failures + 1)); fi
expect 0 'status 02:00.0' ixgbe 'group 6' 'ens2' 'nic.sh bind 0000:02:00.0'
expect 0 'status ens3' 0000:03:00.0 'iommu:     none'
expect 0 'status ens4' "beside the kernel's driver"

# The default route's card is never taken, with or without force; nothing is written.
expect 1 'bind ens1' 'ens1 carries this host' 'default route'
expect 1 'bind 0000:01:00.0 vfio-pci --force' 'default route'
holds drivers/e1000e/unbind ''
holds drivers_probe ''

# A card with an address needs force.
: >"$machine/sys/class/net/ens2/addresses"
expect 1 'bind ens2' 'has an address' 'ip addr flush dev ens2'
expect 0 'bind ens2 --force --dry-run' "would write '0000:02:00.0' to /sys/bus/pci/drivers/ixgbe/unbind" \
    "would write 'vfio-pci' to /sys/bus/pci/devices/0000:02:00.0/driver_override" \
    "would write '0000:02:00.0' to /sys/bus/pci/drivers_probe"
holds drivers/ixgbe/unbind ''
rm "$machine/sys/class/net/ens2/addresses"

# The driver follows from the IOMMU.
expect 0 'bind ens2'
holds drivers/ixgbe/unbind 0000:02:00.0
holds devices/0000:02:00.0/driver_override vfio-pci
holds drivers_probe 0000:02:00.0
fresh
expect 0 'bind 03:00.0'
holds devices/0000:03:00.0/driver_override uio_pci_generic
expect 1 'bind 03:00.0 vfio-pci' 'needs an IOMMU' 'intel_iommu=on'
expect 1 'bind ens4' 'works beside mlx5_core'
expect 2 'bind ens2 nouveau' 'nouveau' 'vfio-pci'
expect 1 'bind ens2 igb_uio' 'the kernel has no igb_uio'

# And the way back.
fresh
ln -sfn ../../drivers/vfio-pci "$machine/sys/bus/pci/devices/0000:02:00.0/driver"
: >"$machine/sys/bus/pci/drivers/vfio-pci/unbind"
expect 0 'bind 02:00.0 vfio-pci' 'already with vfio-pci'
expect 0 'unbind 02:00.0'
holds drivers/vfio-pci/unbind 0000:02:00.0
holds devices/0000:02:00.0/driver_override ''
holds drivers_probe 0000:02:00.0
expect 0 'unbind ens3' "already the kernel's"

expect 2 'bind 0000:09:00.0' 'no such card'
expect 2 'bind nosuch0' 'neither a PCI address nor an interface'
expect 2 'status br0' 'not on a PCI card'
expect 2 'status 05:00.0' 'not a network card'
expect 2 'bind' 'takes a card'
expect 2 'steal ens2' 'unknown command'
expect 2 'list --quick' 'unknown option'

if [[ $failures -gt 0 ]]; then
    echo "test result: FAILED. 0 passed; $failures failed"
    exit 1
fi
echo "test result: ok. $checks passed; 0 failed"
