#!/usr/bin/env bash
# Network cards: lists them and their drivers, binds one for DPDK, and returns it to the kernel.
#
# A card that DPDK drives must be bound to vfio-pci (with an IOMMU) or uio_pci_generic (without). NVIDIA's cards
# (mlx5_core, mlx4_core) stay with the kernel's driver: DPDK works beside it, and they need no binding.
# A binding lasts until the next boot.
set -euo pipefail

# A folder that stands for the machine, for tests.
ROOT=${NIC_ROOT:-}
DEVICES=$ROOT/sys/bus/pci/devices
DRIVERS=$ROOT/sys/bus/pci/drivers

usage() {
    cat <<'TXT'
usage: scripts/nic.sh COMMAND [--dry-run]

  list                     every network card: address, driver, interface, link, memory node, what it is
  status ADDRESS           one card: driver, IOMMU group and who else is in it, interface, memory node, what DPDK needs
  bind ADDRESS [DRIVER]    takes the card from the kernel and gives it to DRIVER: vfio-pci, or uio_pci_generic; unless
                           named, vfio-pci where there is an IOMMU and uio_pci_generic elsewhere
  unbind ADDRESS           gives the card back to the kernel's own driver
  --dry-run                says what would be written, and writes nothing
  --help                   this text

ADDRESS is 0000:3b:00.0, 3b:00.0, or the name of the card's interface. The card whose interface carries this host's
default route, or an address of it, is not taken: --force takes one that has an address, nothing takes the default route's.

examples:
  scripts/nic.sh list
  sudo scripts/nic.sh bind 0000:3b:00.0
  sudo scripts/nic.sh bind ens4 uio_pci_generic --dry-run
  sudo scripts/nic.sh unbind 0000:3b:00.0
TXT
}

fail() {
    echo "nic.sh: $1" >&2
    exit "${2:-1}"
}

# The one line of a file, or nothing.
line() {
    [[ -r $1 ]] && head -n1 "$1" || true
}

# The name that a link leads to, or nothing.
target() {
    [[ -L $1 ]] && basename "$(readlink "$1")" || true
}

is_card() {
    [[ $(line "$DEVICES/$1/class") == 0x02* ]]
}

interface_of() {
    local names=("$DEVICES/$1/net/"*)
    [[ -e ${names[0]} ]] && basename "${names[0]}" || true
}

# Writes one value, or prints that it would.
put() {
    if [[ $dry == yes ]]; then
        echo "would write '$1' to ${2#"$ROOT"}"
    else
        { echo "$1" >"$2"; } 2>/dev/null || fail "cannot write '$1' to ${2#"$ROOT"}: run it with sudo"
    fi
}

# An address or an interface's name; gives the full address.
resolve() {
    local name=$1 device
    if [[ $name =~ ^([0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$ ]]; then
        [[ $name == *:*:* ]] || name=0000:$name
        [[ -e $DEVICES/$name ]] || fail "$name: no such card; list shows those there are" 2
    else
        device=$ROOT/sys/class/net/$name/device
        [[ -e $ROOT/sys/class/net/$name ]] || fail "$name: neither a PCI address nor an interface; list shows them" 2
        [[ -L $device ]] || fail "$name: not on a PCI card; af_packet and af_xdp take it as it is" 2
        name=$(target "$device")
        # Behind virtio the card is the parent.
        [[ -e $DEVICES/$name ]] || name=$(basename "$(dirname "$(readlink "$device")")")
        [[ -e $DEVICES/$name ]] || fail "$1: not on a PCI card; af_packet and af_xdp take it as it is" 2
    fi
    is_card "$name" || fail "$name: not a network card (class $(line "$DEVICES/$name/class"))" 2
    echo "$name"
}

# virtio hangs its interface under a device of its own.
interface_below() {
    local found
    found=$(interface_of "$1")
    if [[ -z $found ]]; then
        local below=("$DEVICES/$1"/virtio*/net/*)
        [[ -e ${below[0]} ]] && found=$(basename "${below[0]}")
    fi
    echo "$found"
}

default_interfaces() {
    awk '$2 == "00000000" { print $1 }' "$ROOT/proc/net/route" 2>/dev/null || true
    awk '$1 == "00000000000000000000000000000000" && $2 == "00" && $10 != "lo" { print $10 }' \
        "$ROOT/proc/net/ipv6_route" 2>/dev/null || true
}

has_address() {
    if [[ -n $ROOT ]]; then
        [[ -e $ROOT/sys/class/net/$1/addresses ]]
    else
        [[ -n $(ip -o addr show dev "$1" scope global 2>/dev/null) ]]
    fi
}

list() {
    local at address driver interface found=no
    printf '%-13s %-16s %-12s %-8s %-5s %s\n' address driver interface link node vendor:device
    for at in "$DEVICES"/*; do
        address=$(basename "$at")
        is_card "$address" || continue
        found=yes
        driver=$(target "$at/driver")
        interface=$(interface_below "$address")
        printf '%-13s %-16s %-12s %-8s %-5s %s:%s%s\n' "$address" "${driver:--}" "${interface:--}" \
            "$(line "$ROOT/sys/class/net/$interface/operstate" | sed 's/^$/-/;')" \
            "$(line "$at/numa_node")" "$(line "$at/vendor" | sed s/^0x//)" "$(line "$at/device" | sed s/^0x//)" \
            "$(default_interfaces | grep -qx -- "${interface:-none}" && echo '  default route' || true)"
    done
    [[ $found == yes ]] || echo "no network card on a PCI bus: memif, tap, af_packet, af_xdp and vhost need none"
}

status() {
    local address=$1 at=$DEVICES/$1 driver group other
    driver=$(target "$at/driver")
    echo "card:      $address $(line "$at/vendor"):$(line "$at/device")"
    echo "driver:    ${driver:-none}"
    echo "interface: $(interface_below "$address" | sed 's/^$/none/')"
    echo "node:      $(line "$at/numa_node")"
    group=$(target "$at/iommu_group")
    if [[ -n $group ]]; then
        echo "iommu:     group $group"
        for other in "$at/iommu_group/devices/"*; do
            other=$(basename "$other")
            [[ $other == "$address" || $other == '*' ]] && continue
            echo "           with $other ($(target "$DEVICES/$other/driver" | sed 's/^$/no driver/'))"
        done
    else
        echo "iommu:     none: vfio-pci cannot be used, uio_pci_generic can"
    fi
    case $driver in
        vfio-pci | uio_pci_generic | igb_uio) echo "dpdk:      ready" ;;
        mlx5_core | mlx4_core) echo "dpdk:      ready, beside the kernel's driver" ;;
        *) echo "dpdk:      sudo scripts/nic.sh bind $address" ;;
    esac
}

# Refuses a card whose loss would cut this host off.
guard() {
    local interface
    interface=$(interface_below "$1")
    [[ -n $interface ]] || return 0
    if default_interfaces | grep -qx -- "$interface"; then
        fail "$1: $interface carries this host's default route; taking it would cut the host off"
    fi
    if [[ $force != yes ]] && has_address "$interface"; then
        fail "$1: $interface has an address: sudo ip addr flush dev $interface, or --force"
    fi
}

load() {
    [[ -d $DRIVERS/$1 ]] && return
    if [[ $dry == yes ]]; then
        echo "would load $1"
        return
    fi
    if [[ -z $ROOT ]]; then modprobe "$1" 2>/dev/null || true; fi
    [[ -d $DRIVERS/$1 ]] || fail "the kernel has no $1: modprobe $1 says why"
}

release() {
    local driver
    driver=$(target "$DEVICES/$1/driver")
    if [[ -n $driver ]]; then put "$1" "$DRIVERS/$driver/unbind"; fi
}

bind_to() {
    local address=$1 driver=${2:-} at=$DEVICES/$1 now
    now=$(target "$at/driver")
    case $now in
        mlx5_core | mlx4_core) fail "$address: DPDK works beside $now; this card must not be bound to another driver" ;;
    esac
    if [[ -z $driver ]]; then
        [[ -L $at/iommu_group ]] && driver=vfio-pci || driver=uio_pci_generic
    fi
    [[ $driver == vfio-pci || $driver == uio_pci_generic || $driver == igb_uio ]] ||
        fail "$driver: vfio-pci, uio_pci_generic or igb_uio" 2
    if [[ $driver == vfio-pci && ! -L $at/iommu_group ]]; then
        fail "$address: vfio-pci needs an IOMMU: boot with intel_iommu=on or amd_iommu=on, or name uio_pci_generic"
    fi
    if [[ $now == "$driver" ]]; then
        echo "$address: already with $driver"
        return
    fi
    guard "$address"
    load "$driver"
    release "$address"
    put "$driver" "$at/driver_override"
    put "$address" "$ROOT/sys/bus/pci/drivers_probe"
    settled "$address" "$driver"
}

unbind() {
    local address=$1 now
    now=$(target "$DEVICES/$1/driver")
    case $now in
        vfio-pci | uio_pci_generic | igb_uio | '') ;;
        *) echo "$address: already the kernel's, with $now" && return ;;
    esac
    release "$address"
    put "" "$DEVICES/$address/driver_override"
    put "$address" "$ROOT/sys/bus/pci/drivers_probe"
    [[ $dry == yes ]] || echo "$address: $(target "$DEVICES/$address/driver" | sed 's/^$/no driver of the kernel wants it/')"
}

# A test folder has no real devices to bind.
settled() {
    [[ $dry == yes || -n $ROOT ]] && return
    local now
    now=$(target "$DEVICES/$1/driver")
    [[ $now == "$2" ]] || fail "$1: $2 did not take it (its driver is ${now:-none}): dmesg says why"
    echo "$1: $2"
}

dry=no
force=no
words=()
for word in "$@"; do
    case $word in
        --help | -h) usage && exit 0 ;;
        --dry-run) dry=yes ;;
        --force) force=yes ;;
        -*) fail "unknown option $word; see --help" 2 ;;
        *) words+=("$word") ;;
    esac
done

command=${words[0]:-}
card() {
    resolve "${words[1]:?}"
}
case $command:${#words[@]} in
    list:1) list ;;
    status:2) address=$(card) && status "$address" ;;
    bind:2) address=$(card) && bind_to "$address" ;;
    bind:3) address=$(card) && bind_to "$address" "${words[2]}" ;;
    unbind:2) address=$(card) && unbind "$address" ;;
    list:* | status:* | bind:* | unbind:*) fail "$command: takes a card's address or interface; see --help" 2 ;;
    :0) usage >&2 && exit 2 ;;
    *) fail "unknown command: ${words[*]}; see --help" 2 ;;
esac
