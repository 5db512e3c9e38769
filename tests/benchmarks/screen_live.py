"""What watching costs: tokens per second of `live` against `record`, the default pair, in alternating runs.

Run by `make bench`, or alone: `python -m tests.benchmarks.screen_live [--runs 5]`. The screen runs in a process of its
own, so that all it can take from the engine is the processor's time.
"""

from __future__ import annotations

import argparse
import fcntl
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

from specview.metrics import tokens_per_second
from specview.trace.reader import TraceReader

SPECVIEW = Path(sys.executable).with_name("specview")
PATIENCE_S = 600


def recorded(folder: Path, number: int, words: list[str]) -> Path:
    """A run without a screen."""
    path = folder / f"record-{number}.db"
    subprocess.run([SPECVIEW, "record", *words, "-o", path], check=True, capture_output=True)
    return path


def watched(folder: Path, number: int, words: list[str]) -> Path:
    """The same run under `live` on a pseudo-terminal of 160×48, ended with q when it is done."""
    path = folder / f"live-{number}.db"
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 48, 160, 0, 0))
    process = subprocess.Popen(
        [SPECVIEW, "live", *words, "-o", path],
        stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
        env=os.environ | {"TERM": "xterm-256color", "COLORTERM": "truecolor"},
    )  # fmt: skip
    os.close(slave)
    deadline = time.monotonic() + PATIENCE_S
    looked = 0.0
    try:
        while process.poll() is None:
            if time.monotonic() > deadline:
                raise TimeoutError("the live run does not end")
            if select.select([master], [], [], 0.2)[0]:
                with suppress(OSError):  # Linux says EIO where the other side has closed the terminal
                    os.read(master, 1 << 16)
            if time.monotonic() - looked > 1:
                looked = time.monotonic()
                if _done(path):
                    os.write(master, b"q")
    finally:
        process.kill()
        process.wait()
        os.close(master)
    return path


def _done(path: Path) -> bool:
    if not path.exists():
        return False
    with TraceReader(path) as reader:
        runs = reader.runs()
        return bool(runs) and any(s.stop_reason is not None for s in reader.sequences(runs[-1].id))


def speed(path: Path) -> float:
    """Output tokens a second of the rounds."""
    with TraceReader(path) as reader:
        value = tokens_per_second(reader.totals(reader.runs()[-1].id))
    assert value is not None
    return value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=200)
    options = parser.parse_args()
    words = ["--prompt", "Write a long story about the sea.", f"--max-new-tokens={options.tokens}", "--seed=1"]
    with tempfile.TemporaryDirectory() as folder:
        pairs = []
        for number in range(options.runs):
            pair = speed(recorded(Path(folder), number, words)), speed(watched(Path(folder), number, words))
            pairs.append(pair)
            print(f"  record {pair[0]:6.1f} tok/s   live {pair[1]:6.1f} tok/s")
    record, live = (statistics.median(side) for side in zip(*pairs, strict=True))
    print(f"live against record: {live / record - 1:+.1%} (median of {options.runs} alternating runs)")


if __name__ == "__main__":
    main()
