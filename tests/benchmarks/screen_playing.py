"""Playing a trace of 60 rounds a second: how many of them the screen gets through, and what that costs.

Run by `make bench`, or alone: `python -m tests.benchmarks.screen_playing [--seconds 15]`. The trace's own clock asks
for the pace; the place where the viewer says it was left tells how far it came.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from specview.trace.writer import TraceWriter
from tests import synthetic
from tests.benchmarks.screen_latency import Screen

ASKED = 60
"""Rounds a second, as many as a screen shows."""
ROUND_NS = 1_000_000_000 // ASKED


def write(path: Path, rounds: int) -> None:
    """A trace whose rounds all took the sixtieth part of a second."""
    with TraceWriter(path) as writer:
        writer.begin_run(synthetic.run_info(random.Random(1)))
        writer.add_vocab(synthetic.vocab())
        sequence = writer.begin_sequence(synthetic.prompt())
        for r in synthetic.rounds(rounds):
            times = replace(r.times, start_ns=r.index * ROUND_NS, round_ns=ROUND_NS, propose_ns=None, score_ns=None)
            writer.add_round(sequence, replace(r, times=times))
        writer.end_sequence(sequence, "stop")
        writer.close("finished")


def played(trace: Path, state: Path, seconds: float, start: int) -> tuple[float, float]:
    """Rounds a second reached from round `start` on, and seconds of processor a second."""
    screen = Screen(trace, state)
    screen.settle()
    for key in (b":", str(start + 1).encode(), b"\r"):
        os.write(screen.master, key)
        screen.settle(patience=1.0)
    cpu, began = screen.cpu_seconds(), time.perf_counter()
    os.write(screen.master, b" ")
    screen.drain(seconds)
    os.write(screen.master, b" ")
    took, cpu = time.perf_counter() - began, screen.cpu_seconds() - cpu
    screen.settle(patience=1.0)
    screen.close()
    (place,) = state.rglob("*.place.json")
    return (json.loads(place.read_text())["round"] - start) / took, cpu / took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "steady.db"
        length = int(options.seconds * ASKED * 2) + 4000
        write(trace, length)
        for number in range(options.runs):
            start = number * 2000 % 4000 + 10
            rate, cpu = played(trace, Path(folder) / f"state-{number}", options.seconds, start)
            print(
                f"  {rate:5.1f} of {ASKED} rounds/s from round {start:,} on: {rate / ASKED:6.1%}   {cpu:4.0%} of a core"
            )


if __name__ == "__main__":
    main()
