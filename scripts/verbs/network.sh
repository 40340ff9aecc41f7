#!/usr/bin/env bash
# The network namespace of programs that talk over the kernel's TCP first, to the address that they use for RDMA, or that look
# for a network interface with it. Sourced by scripts/verbs-programs.sh.

# What runs the programs: nothing, or the namespace.
inside=()
namespace=iwvp-$$

# host_address NUMBER: the address of a program, from 1.
host_address() {
    echo "10.99.0.$1"
}

# make_namespace HOSTS: a namespace in which the kernel has the addresses of so many programs too.
make_namespace() {
    local host
    ip netns add "$namespace" && ip -n "$namespace" link set lo up &&
        ip -n "$namespace" link add iw0 type veth peer name iw1 && ip -n "$namespace" link set iw0 up &&
        ip -n "$namespace" link set iw1 up || return 1
    for host in $(seq "$1"); do
        ip -n "$namespace" address add "$(host_address "$host")/24" dev iw0 || return 1
    done
}

# make_switch HOSTS: a bridge with an interface for the device of each program. The kernel has their addresses and is not to
# answer for them: it does not use ARP there, and drops segments whose source is an address of its own.
make_switch() {
    local host
    ip netns exec "$namespace" sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1
    ip -n "$namespace" link add br0 type bridge && ip -n "$namespace" link set br0 arp off up || return 1
    for host in $(seq "$1"); do
        ip -n "$namespace" link add "port$host" type veth peer name "bridge$host" &&
            ip -n "$namespace" link set "bridge$host" master br0 up && ip -n "$namespace" link set "port$host" arp off up || return 1
    done
}

# switch_config HOST: the configuration of a program at the switch. As a device of DPDK's it is not checked against the
# kernel's addresses.
switch_config() {
    cat <<TOML
[eal]
hugepages = "never"
memory_mib = 256
extra_args = ["--vdev=net_af_packet0,iface=port$1,framesz=2048,blocksz=4096,framecnt=512"]
[port]
device.dpdk = { name = "net_af_packet0" }
rx_frames = 4096
tx_frames = 4096
[net]
address = "$(host_address "$1")/24"
[core]
idle = "yield"
[stack]
transport = "$transport"
[tcp]
refused_retries = 3
keep_alive = { idle_s = 5, interval_s = 1, probes = 5 }
[sctp]
share_associations = false
refused_retries = 5
heartbeat_interval_ms = 1000
TOML
}

delete_namespace() {
    ip netns del "$namespace" 2>/dev/null
}
