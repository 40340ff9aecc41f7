"""A process of ours: one of the project's programs over the fabric's device."""

import json
import os
import signal
import subprocess
import time

from outcome import Failed

LISTENS_WITHIN = 30
STOPS_WITHIN = 30

# What every configuration of ours begins with.
SETTINGS = """\
[eal]
hugepages = "never"
memory_mib = 256
[core]
idle = "yield"
"""


class Node:
    """A program that runs. What it prints goes to files in the cell's folder."""

    def __init__(self, programs, folder, name, arguments, config_text, config_first=False):
        folder.mkdir(parents=True, exist_ok=True)
        config = folder / f"{name}.toml"
        config.write_text(config_text)
        self.name, self.out, self.err = name, folder / f"{name}.out", folder / f"{name}.err"
        of_config = ["--config", str(config)]
        words = [*of_config, *arguments] if config_first else [*arguments, *of_config]
        command = ["setpriv", "--pdeathsig", "KILL", "--", str(programs / name), *words]
        # DPDK's own files go there.
        environment = {**os.environ, "RUNTIME_DIRECTORY": str(folder), "XDG_RUNTIME_DIR": str(folder)}
        with open(self.out, "w") as out, open(self.err, "w") as err:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environment)

    def wait_listening(self):
        """Waits until peers may connect."""
        self.wait_for(lambda: "listening" in self.out.read_text(), LISTENS_WITHIN, "does not listen")
        return self

    def wait_for(self, happened, seconds, otherwise):
        """Waits until something is so, at most `seconds`, while the program runs."""
        deadline = time.monotonic() + seconds
        while not happened():
            if self.process.poll() is not None:
                # The line may be the last one before its end.
                if happened():
                    return
                raise Failed(f"{self.name} {otherwise}: exit code {self.process.returncode}: {self.complaint()}")
            if time.monotonic() > deadline:
                raise Failed(f"{self.name} {otherwise} within {seconds} s: {self.complaint()}")
            time.sleep(0.02)

    def must_end(self, seconds, code=0):
        """Waits for the program's own end."""
        try:
            ended = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Failed(f"{self.name} does not end within {seconds} s: {self.complaint()}") from None
        if ended != code:
            raise Failed(f"{self.name} ended with {ended}, not {code}: {self.complaint()}")
        return self

    def interrupt(self, code=0):
        """Ctrl-C."""
        self.process.send_signal(signal.SIGINT)
        return self.must_end(STOPS_WITHIN, code)

    def kill(self):
        """Ends the program at once, as a crash does."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def events(self):
        """The lines of JSON that it printed."""
        lines = self.out.read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]

    def of(self, event):
        """The events of one kind."""
        return [line for line in self.events() if line["event"] == event]

    def complaint(self):
        """Its last words on standard error."""
        lines = self.err.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"
