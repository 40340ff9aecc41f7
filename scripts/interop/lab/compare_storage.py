"""Storage beside the alternatives: NVMe over Fabrics in one guest and one run, in turns, all over a backend without data.

    siw         Linux's nvme-rdma and nvmet-rdma, both over siw, by the kernel's loopback
    tcp         Linux's nvme-tcp and nvmet-tcp, by the kernel's loopback
    linux-ours  Linux's nvme-rdma over siw and a veth to our target, which has a raw socket at the veth's other end
    ours        our host and our target, two processes over memif

fio measures the first three, `iwarp-nvmf host bench` the last. The guest is emulated, so only ratios mean anything. Figures
are medians of the rounds: commands a second, the mean latency, and the processor time of the whole guest for a command.
"""

import json
import shutil
import statistics

import storage
from compare import PROCESSOR
from guest import ADDRESS as GUEST
from guest import Guest
from matrix import matches
from outcome import Failed
from programs import with_programs

# Name, bytes of a command, commands outstanding.
TESTS = tuple(
    (f"{operation}-{bytes // 1024}-KiB-depth-{depth}", operation, bytes, depth)
    for bytes in (4096, 131072)
    for depth in (1, 32)
    for operation in ("read", "write")
)
SECONDS = 4
# Our host counts commands, not seconds: about as many as it does in that time, by bytes.
COMMANDS = {4096: 40000, 131072: 2000}

ADDRESS, OURS, OUR_MEMIF = "10.9.2.2", "10.9.2.1", "10.9.3.1"
SETUP = f"""\
set -e
modprobe -a veth nvmet-rdma nvmet-tcp nvme-rdma nvme-tcp
modprobe null_blk gb=1 irqmode=0
ip() {{ /sbin/ip "$@"; }}
ip link add wa type veth peer name wb
for name in wa wb; do ethtool -K $name tx off gso off tso off gro off; ip link set $name up; done
ip address add {ADDRESS}/24 dev wb
rdma link add siwb type siw netdev wb
"""
TARGET = """\
listeners = ["{address}:4420"]
[stack.eal]
hugepages = "never"
memory_mib = 128
[stack.core]
idle = "yield"
[stack.port]
{device}
[stack.net]
address = "{address}/24"
[[subsystem]]
nqn = "{nqn}"
allow_any_host = true
[[subsystem.namespace]]
nsid = 1
backend.null = {{ mib = 1024 }}
"""
HOST = """\
[eal]
hugepages = "never"
memory_mib = 128
[core]
idle = "yield"
[port]
device.memif = { role = "client", socket = "/tmp/nvmf.sock" }
[net]
address = "10.9.3.2/24"
"""


def compare_storage(image, programs, folder, rounds, patterns, report):
    """Measures the tests whose names match and prints a table. Writes JSON to the file `report`, unless it is None.
    Returns whether everything was measured."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    image = with_programs(image, folder, programs, ("iwarp-nvmf",), storage=True)
    guest = Guest(image, folder, ["-netdev", "user,id=n0,restrict=on"], memory_mib=3072, processor=PROCESSOR)
    figures = {each: {way: [] for way in WAYS} for each in TESTS if matches(each[0], patterns)}
    try:
        guest.boot()
        guest.must(SETUP)
        guest.must(f"cat >/tmp/host.toml <<'EOF'\n{HOST}EOF")
        for number in range(rounds):
            for way, measure in WAYS.items():
                print(f"round {number + 1} of {rounds}: {way}", flush=True)
                measure(guest, way, figures)
    except Failed as failure:
        print(f"the rest is not measured: {failure}")
    finally:
        guest.stop()
    print(table(figures))
    if report:
        command = f"scripts/interop/run.sh --compare-storage --rounds {rounds} --json {report}"
        report.write_text(json.dumps({"schema": 1, "command": command, "results": results_of(figures)}, indent=1) + "\n")
    return all(len(measured) == rounds for ways in figures.values() for measured in ways.values())


def between_kernels(guest, way, figures):
    """Linux's host on Linux's target."""
    transport, address = ("tcp", "127.0.0.1") if way == "tcp" else ("rdma", GUEST)
    target = storage.KernelTarget(guest, address, transport, device="/dev/nullb0")
    on_disk(guest, storage.connect(guest, address, nqn=storage.KERNEL_NQN, transport=transport, queues=1), way, figures)
    target.remove()


def from_kernel(guest, way, figures):
    """Linux's host on our target."""
    server = serve(guest, OURS, 'device.af_packet = { interface = "wa" }')
    on_disk(guest, storage.connect(guest, OURS, queues=1), way, figures)
    server.kill()


def on_disk(guest, disk, way, figures):
    """fio on a block device of the kernel's, which is disconnected afterwards."""
    for test, measured in figures.items():
        _, operation, size, depth = test
        words = f"fio --name=m --filename=/dev/{disk.device} --ioengine=libaio --direct=1 --rw=rand{operation} --bs={size}"
        words += f" --iodepth={depth} --size=512m --time_based --ramp_time=1 --runtime={SECONDS} --output-format=json"
        said, busy_us = with_busy_time(guest, words)
        told = json.loads(said[said.index("{") :])["jobs"][0][operation]
        # The processor is busy during the ramp too, at the same rate.
        commands = told["total_ios"] * (SECONDS + 1) / SECONDS
        measured[way].append((told["iops"], told["lat_ns"]["mean"] / 1000, busy_us / commands))
    disk.disconnect()


def ours(guest, way, figures):
    """Our host on our target."""
    server = serve(guest, OUR_MEMIF, 'device.memif = { role = "server", socket = "/tmp/nvmf.sock" }')
    for test, measured in figures.items():
        _, operation, size, depth = test
        words = f"iwarp-nvmf host bench --config /tmp/host.toml --connect {OUR_MEMIF}:{storage.PORT} --nqn {storage.NQN} --json"
        words += f" --operation {operation} --bytes {size} --depth {depth} --commands {COMMANDS[size]}"
        said, busy_us = with_busy_time(guest, words)
        # The log is among what it says.
        told = json.loads(next(line for line in said.splitlines() if line.startswith("{")))
        rate = told["commands_per_second"]
        # Depth = rate times latency (Little's law).
        measured[way].append((rate, depth / rate * 1e6, busy_us / told["commands"]))
    server.kill()


WAYS = {"siw": between_kernels, "tcp": between_kernels, "linux-ours": from_kernel, "ours": ours}


def serve(guest, address, device):
    """Starts our target in the guest."""
    text = TARGET.format(address=address, device=device, nqn=storage.NQN)
    guest.must(f"cat >/tmp/target.toml <<'EOF'\n{text}EOF")
    server = guest.start("exec iwarp-nvmf serve --config /tmp/target.toml >/tmp/target.out 2>&1", 900)
    guest.must("until grep -q listening /tmp/target.out; do usleep 100000; done", 60)
    return server


def with_busy_time(guest, words):
    """What a command says, and the microseconds that the guest's processors were busy meanwhile."""
    before = busy_ticks(guest)
    said = guest.must(words, 200)
    if "{" not in said:
        raise Failed(f"no JSON from {words}: {said.strip()[-200:]}")
    return said, (busy_ticks(guest) - before) * 10_000


def busy_ticks(guest):
    """Ticks of 10 ms of all processors that were not idle: user, nice, system, irq, softirq."""
    fields = guest.must("head -1 /proc/stat").split()[1:]
    return sum(int(fields[place]) for place in (0, 1, 2, 5, 6))


def results_of(figures):
    """The results of the JSON: medians of the rounds."""
    results = []
    for (name, operation, size, depth), ways in figures.items():
        for way, measured in ways.items():
            if measured:
                rate, latency_us, busy_us = (statistics.median(each) for each in zip(*measured))
                results.append({"test": name, "operation": operation, "bytes": size, "depth": depth, "way": way,
                                "iops": rate, "latency_us": latency_us, "cpu_us_per_command": busy_us})
    return results


def table(figures):
    """Markdown: commands a second, mean latency and processor time a command, and ours to siw."""
    lines = ["| | " + " | ".join(WAYS) + " | ours to siw |", "| --- |" + " --- |" * (len(WAYS) + 1)]
    for (name, _, _, _), ways in figures.items():
        medians = {way: [statistics.median(each) for each in zip(*measured)] for way, measured in ways.items() if measured}
        cells = ["{:.0f}/s, {:.0f} µs, CPU {:.0f} µs".format(*medians[way]) if way in medians else "" for way in WAYS]
        both = "ours" in medians and "siw" in medians
        cells.append(f"{medians['ours'][0] / medians['siw'][0]:.2g} ×" if both else "")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)
