"""From a key press to the last byte of the painted result, through a pseudo-terminal, on short and long traces.

Run by `make bench`, or alone: `python -m tests.benchmarks.screen_latency [--rounds 1000000]`. The wall time says what a
person feels on this machine with whatever else runs on it; the CPU time says what the screen itself costs.
"""

from __future__ import annotations

import argparse
import fcntl
import math
import os
import pty
import select
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from contextlib import suppress
from pathlib import Path

from tests.synthetic import write

SIZE = (160, 48)
QUIET_S = 0.08
"""No byte for so long: the screen is painted."""
KEYS = {
    "a round": (b"\x1b[C", b"\x1b[D"),
    "a phase": (b"\x1b[1;2C", b"\x1b[1;2D"),
    "10 rounds": (b"\x1b[6~", b"\x1b[5~"),
    "a position": (b"j", b"k"),
}
"""Pairs that undo each other: every press paints something, whatever the length of the trace."""


class Screen:
    """`specview replay` on a pseudo-terminal of 160×48."""

    def __init__(self, trace: Path, state: Path) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", SIZE[1], SIZE[0], 0, 0))
        self.process = subprocess.Popen(
            [Path(sys.executable).with_name("specview"), "replay", trace],
            stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
            env=os.environ | {"TERM": "xterm-256color", "COLORTERM": "truecolor", "XDG_STATE_HOME": str(state)},
        )  # fmt: skip
        os.close(slave)

    def settle(self, patience: float = 60.0) -> float:
        """Read until nothing comes any more, and return when the last byte came."""
        last = time.perf_counter()
        deadline = last + patience
        seen = False
        while time.perf_counter() < deadline:
            ready = select.select([self.master], [], [], QUIET_S)[0]
            if ready:
                os.read(self.master, 1 << 16)
                last = time.perf_counter()
                seen = True
            elif seen:
                break
        return last

    def drain(self, seconds: float) -> int:
        """Read for so long, and return how many bytes came."""
        end = time.perf_counter() + seconds
        count = 0
        while (left := end - time.perf_counter()) > 0:
            if select.select([self.master], [], [], left)[0]:
                count += len(os.read(self.master, 1 << 16))
        return count

    def press(self, key: bytes) -> float:
        """Seconds from the key to the last byte that it caused."""
        began = time.perf_counter()
        os.write(self.master, key)
        return self.settle(patience=1.0) - began

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        os.write(self.master, b"q")
        while self.process.poll() is None:
            if select.select([self.master], [], [], 0.1)[0]:
                with suppress(OSError):  # the other side may be gone by now
                    os.read(self.master, 1 << 16)
        os.close(self.master)


def share_of(times: list[float], share: float) -> float:
    """The value that `share` of the sorted values do not exceed."""
    return times[min(len(times) - 1, math.ceil(share * len(times)) - 1)]


def measure(rounds: int, presses: int, jump_count: int, given: Path | None = None) -> None:
    """Print a line a key for a made-up trace of so many rounds, or for a given one."""
    with tempfile.TemporaryDirectory() as folder:
        trace = given or Path(folder) / "run.db"
        if given is None:
            write(trace, rounds)
        began = time.perf_counter()
        screen = Screen(trace, Path(folder) / "state")
        opened = screen.settle() - began
        for _ in range(20):
            screen.press(KEYS["a round"][0])
        print(f"{rounds:,} rounds: opened in {opened * 1e3:.0f} ms")
        for name, pair in KEYS.items():
            cpu = screen.cpu_seconds()
            times = sorted(screen.press(pair[i % 2]) * 1e3 for i in range(presses))
            cpu = (screen.cpu_seconds() - cpu) / presses * 1e3
            print(
                f"  {name:<14} median {statistics.median(times):6.1f} ms   p95 {share_of(times, 0.95):6.1f} ms"
                f"   CPU {cpu:5.1f} ms a key"
            )
        jumps = []
        for place in range(max(1, jump_count)):
            os.write(screen.master, b":")
            screen.settle(patience=1.0)
            os.write(screen.master, str(1 + place * 7919 * 131 % rounds).encode())
            screen.settle(patience=1.0)
            jumps.append(screen.press(b"\r") * 1e3)
        jumps.sort()
        print(
            f"  {'jump anywhere':<14} median {statistics.median(jumps):6.1f} ms   p95 {share_of(jumps, 0.95):6.1f} ms"
            f"   p99 {share_of(jumps, 0.99):6.1f} ms"
        )
        cpu, began = screen.cpu_seconds(), time.perf_counter()
        time.sleep(5)
        share = (screen.cpu_seconds() - cpu) / (time.perf_counter() - began)
        print(f"  idle           {share:.1%} of a core")
        screen.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, nargs="*", default=[100, 1_000_000])
    parser.add_argument("--presses", type=int, default=60)
    parser.add_argument("--jumps", type=int, default=100)
    parser.add_argument("--trace", type=Path, help="a trace that is there already; --rounds says how long it is")
    options = parser.parse_args()
    for rounds in options.rounds:
        measure(rounds, options.presses, options.jumps, options.trace)


if __name__ == "__main__":
    main()
