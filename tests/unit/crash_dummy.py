"""Writes traces until it is killed: `python -m tests.unit.crash_dummy FOLDER COUNT`, for test_survival.

One process forks COUNT writers one after the other and kills each with SIGKILL at a random moment. Writer N records
into FOLDER/N.db and notes every round, after it handed it over, with the time in FOLDER/N.log, which no kill undoes.
The killer notes its own time on the last line.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path

from specview.trace.writer import TraceWriter
from tests import synthetic


def record(path: Path, log: int) -> None:
    """Record rounds as an engine would, one every millisecond or so, for ever."""
    writer = TraceWriter(path)
    writer.begin_run(synthetic.run_info(random.Random(path.stem)))
    writer.set_status("running")
    writer.add_vocab(synthetic.vocab())
    sequence = writer.begin_sequence(synthetic.prompt())
    for r in synthetic.rounds(1_000_000, pool=40):
        writer.add_round(sequence, r)
        os.write(log, f"{r.index} {time.monotonic_ns()}\n".encode())
        time.sleep(0.001)


def main() -> None:
    folder, count = Path(sys.argv[1]), int(sys.argv[2])
    rng = random.Random(7)
    for number in range(count):
        log = os.open(folder / f"{number}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        child = os.fork()
        if child == 0:
            record(folder / f"{number}.db", log)
        time.sleep(rng.uniform(0.02, 0.3))
        killed_at = time.monotonic_ns()
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.write(log, f"killed {killed_at}\n".encode())
        os.close(log)


if __name__ == "__main__":
    main()
