"""Beside siw: our round trips and throughput and those of perftest over siw, in one guest and one run, in turns.

    siw         perftest, each end in a network namespace of its own, over a veth with the kernel's offloads
    af_packet   iwarp-perf, two processes, over another veth without them
    memif       iwarp-perf, two processes, over shared memory
    memif, CRC  the same with the CRC of MPA, which siw leaves out unless told otherwise, and the other two here too
    native      iwarp-perf over shared memory with the library's own driver
    perftest    the program that runs over siw, unmodified, over the replacement libraries and that driver, no CRC

The guest is emulated, so only ratios mean anything. Each figure is the median of the rounds. perftest tells half of a
round trip for Sends and Writes, which is doubled here. Both poll. The emulated processor has no AVX and no carry-less
multiplication: a program that finds them uses them, and emulated they cost several times what they save.
"""

import json
import math
import shutil
import statistics
import time

from guest import Guest
from matrix import matches
from outcome import Failed
from programs import with_programs

# The operation, the figure, perftest's program for it with its arguments, and the factor that turns its figure into a
# round trip in microseconds or a throughput in Gbit/s.
TESTS = (
    ("send-lat", "ib_send_lat -s 64 -n 10000", 2),
    ("write-lat", "ib_write_lat -s 64 -n 10000", 2),
    ("read-lat", "ib_read_lat -s 64 -n 10000", 1),
    ("send-bw", "ib_send_bw -s 1048576 -n 20 -t 4", 0.008388608),
    ("write-bw", "ib_write_bw -s 1048576 -n 20 -t 4", 0.008388608),
    ("read-bw", "ib_read_bw -s 1048576 -n 20 -t 4", 0.008388608),
)
# The columns of perftest's table: #bytes, #iterations, then these.
TYPICAL, AVERAGE = 4, 3

TRANSPORTS = ("siw", "af_packet", "memif", "memif, CRC", "native", "perftest")
# The same in the JSON: transport, path, CRC.
KEYS = {
    "siw": ("siw", "veth", False),
    "af_packet": ("ironwarp", "af_packet", False),
    "memif": ("ironwarp", "memif", False),
    "memif, CRC": ("ironwarp", "memif", True),
    "native": ("ironwarp", "memif-native", False),
    "perftest": ("libraries", "memif-native", False),
}

# On a busy machine perftest sometimes cannot measure its clock's frequency, and measures nothing.
ATTEMPTS = 3

# One or two seconds of round trips each: the first emulation of code takes longer. Messages of 1 MiB are slow here:
# four of them are warm-up, the rest is counted.
DURATION_OPTIONS = {"lat": "--size 64 --duration 2", "bw": "--size 1M --iterations 40 --warmup 4"}
# Debian's DPDK needs SSE4.2.
PROCESSOR = "Nehalem"

SIW_ADDRESS = "10.9.0.1"
OUR_ADDRESSES = ("10.9.1.1", "10.9.1.2")
# siw distinguishes its listeners by interface number, so all numbers must differ, whatever their namespace.
NAMESPACE_SETUP = """\
set -e
modprobe veth
ip() { /sbin/ip "$@"; }
rdma link delete siw0
ip netns add a
ip netns add b
ip link add name va index 101 netns a type veth peer name vb index 102 netns b
for end in a:1 b:2; do
    name=${end%:*}
    ip -n $name link set lo up
    ip -n $name link set v$name up
    ip -n $name address add 10.9.0.${end#*:}/24 dev v$name
done
for name in a b; do ip netns exec $name rdma link add siw$name type siw netdev v$name; done
ip link add name wa type veth peer name wb
for name in wa wb; do
    ethtool -K $name tx off gso off tso off gro off
    ip link set $name up
done
"""
# Waits for a listener on 18515, perftest's port.
AWAIT_PERFTEST = (
    "until /sbin/ip netns exec a cat /proc/net/tcp /proc/net/tcp6 | grep -q ':4853 [0-9A-F:]* 0A '; do usleep 50000; done"
)
CONFIG = """\
[eal]
hugepages = "never"
memory_mib = 128
[port]
device.{device}
rx_frames = 4096
tx_frames = 4096
[net]
address = "{address}/24"
[core]
idle = "yield"
[mpa]
crc = false
[tcp]
refused_retries = 3
"""


def compare(image, programs, verbs, folder, rounds, patterns, report):
    """Measures those tests whose names match and prints a table; `verbs` is the folder of the replacement libraries. Writes
    JSON to the file `report`, unless it is None. Returns whether everything was measured."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    image = with_programs(image, folder, programs, ("iwarp-perf",), verbs=verbs)
    guest = Guest(image, folder, ["-netdev", "user,id=n0,restrict=on"], memory_mib=3072, processor=PROCESSOR)
    guest.boot()
    origin = {}
    figures = {test: {way: [] for way in TRANSPORTS} for test, _, _ in TESTS if matches(test, patterns)}
    try:
        guest.must(NAMESPACE_SETUP)
        for name, address in zip("ab", OUR_ADDRESSES):
            text = CONFIG.format(device=f'af_packet = {{ interface = "w{name}" }}', address=address)
            guest.must(f"cat >/tmp/{name}.toml <<'EOF'\n{text}EOF")
        for role, address in zip(("server", "client"), OUR_ADDRESSES):
            text = CONFIG.format(device=f'memif = {{ role = "{role}", socket = "/tmp/verbs.sock" }}', address=address)
            guest.must(f"cat >/tmp/{role}.toml <<'EOF'\n{text}EOF")
        for number in range(rounds):
            for test, tool, factor in (each for each in TESTS if each[0] in figures):
                figures[test]["siw"].append(perftest(guest, test, tool) * factor)
                figures[test]["memif"].append(ours(guest, test, "--pair memif --no-crc", origin))
                figures[test]["memif, CRC"].append(ours(guest, test, "--pair memif", origin))
                figures[test]["native"].append(ours(guest, test, "--pair memif-native --no-crc", origin))
                figures[test]["af_packet"].append(ours_over_veth(guest, test, origin))
                figures[test]["perftest"].append(perftest_over_libraries(guest, test, tool) * factor)
                text = ", ".join(f"{way} {values[-1]:.4g}" for way, values in figures[test].items())
                print(f"round {number + 1} of {rounds}: {test}: {text}", flush=True)
    except Failed as failure:
        print(f"the rest is not measured: {failure}")
    finally:
        guest.stop()
    print(table(figures))
    if report and origin:
        command = f"scripts/interop/run.sh --compare --rounds {rounds} --json {report}"
        results = results_of(figures)
        report.write_text(json.dumps({"schema": 1, "command": command, **origin, "results": results}, indent=1) + "\n")
    return all(not math.isnan(median(values)) for ways in figures.values() for values in ways.values())


def perftest(guest, test, tool):
    """A figure of perftest's over siw: microseconds, or 2^20 bytes a second."""
    for _ in range(ATTEMPTS):
        server = guest.start(f"/sbin/ip netns exec a {tool} -F -R", 100)
        guest.must(AWAIT_PERFTEST)
        # The program listens twice: the second connection is measured.
        time.sleep(1)
        said = guest.run(f"/sbin/ip netns exec b {tool} -F -R {SIW_ADDRESS}", 100).said
        server.kill()
        server.wait()
        figure = figure_of(test, said)
        if 0 < figure < math.inf:
            return figure
    print(f"{tool} measured nothing: {said.strip()[-200:]}", flush=True)
    return math.nan


def perftest_over_libraries(guest, test, tool):
    """The same over the replacement libraries."""
    run = "/verbs/iwarp-run --libraries /verbs/lib --config /tmp/{}.toml {} -F -R {}"
    for _ in range(ATTEMPTS):
        guest.must("rm -f /tmp/verbs.sock")
        server = guest.start(run.format("server", tool, ""), 100)
        guest.must("until test -S /tmp/verbs.sock; do usleep 50000; done")
        said = "CM_EVENT_REJECTED"
        deadline = time.monotonic() + 60
        # The device is there before the program listens.
        while "CM_EVENT_REJECTED" in said and time.monotonic() < deadline:
            time.sleep(1)
            said = guest.run(run.format("client", tool, OUR_ADDRESSES[0]), 100).said
        server.kill()
        server.wait()
        figure = figure_of(test, said)
        if 0 < figure < math.inf:
            return figure
    print(f"{tool} over the replacement libraries measured nothing: {said.strip()[-200:]}", flush=True)
    return math.nan


def figure_of(test, said):
    """The figure in the last row of perftest's table, or 0."""
    rows = [line.split() for line in said.splitlines() if line.split()[:1] and line.split()[0].isdigit()]
    return float(rows[-1][TYPICAL if test.endswith("-lat") else AVERAGE]) if rows else 0.0


def ours_over_veth(guest, test, origin):
    """A figure of ours between two processes with raw sockets at the ends of a veth."""
    server = guest.start("iwarp-perf server --config /tmp/a.toml", 150)
    guest.must("sleep 3")
    try:
        return ours(guest, test, f"--config /tmp/b.toml --connect {OUR_ADDRESSES[0]}", origin)
    finally:
        server.kill()


def ours(guest, test, way, origin):
    """A figure of iwarp-perf's: microseconds, or Gbit/s. Puts the machine and the build of its report into `origin`."""
    _, _, kind = test.rpartition("-")
    guest.must(f"rm -f /tmp/r.json; iwarp-perf {test} {way} {DURATION_OPTIONS[kind]} --json /tmp/r.json", 150)
    written = json.loads(guest.must("cat /tmp/r.json"))
    origin.update(machine=written["machine"], build=written["build"])
    result = written["results"][0]
    return result["rtt_ns"]["p50"] / 1000 if kind == "lat" else result["gbit_per_s"]


def results_of(figures):
    """The results of the JSON: what was measured, as median, min and max of the rounds."""
    results = []
    for test, ways in figures.items():
        latency = test.endswith("-lat")
        for way, values in ways.items():
            kept = [value * 1000 if latency else value for value in values if not math.isnan(value)]
            if kept:
                transport, path, crc = KEYS[way]
                spread = {"median": statistics.median(kept), "min": min(kept), "max": max(kept)}
                results.append({"test": test, "transport": transport, "path": path, "crc": crc,
                                "bytes": 64 if latency else 1 << 20, "p50_ns" if latency else "gbit_per_s": spread})
    return results


def table(figures):
    """Markdown: each figure, and how many times better ours is."""
    heads = ["siw", *(f"ours, {way}" for way in TRANSPORTS[1:]), *(f"{way}: better" for way in TRANSPORTS[1:])]
    lines = [f"| | {' | '.join(heads)} |", "| --- |" + " --- |" * len(heads)]
    for test, ways in figures.items():
        operation, _, kind = test.partition("-")
        siw, *mine = (median(ways[way]) for way in TRANSPORTS)
        better = [siw / one if kind == "lat" else one / siw for one in mine]
        what = f"{operation.capitalize()}, " + ("64 B, round trip, µs" if kind == "lat" else "1 MiB, Gbit/s")
        cells = [f"{siw:.3g}", *(f"{one:.3g}" for one in mine), *(f"{times:.2g} ×" for times in better)]
        lines.append(f"| {what} | {' | '.join(cells)} |")
    return "\n".join(lines)


def median(values):
    """The median of the rounds in which something was measured."""
    return statistics.median([value for value in values if not math.isnan(value)] or [math.nan])
