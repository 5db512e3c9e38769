"""The trace store at size: writing, opening, jumping, summing up and exporting, against the `sqlite3` shell.

    python -m tests.benchmarks.trace_store [--rounds 1000000] [--keep FILE]

Ratios are measured in one run on one machine. `cpu` is the processor time of the process (of all its threads), which
means something on a busy machine too; `wall` is what a person waits. A line ends with ✓ or ✗ where there is a limit.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from specview.export.levels import query
from specview.trace.encode import POSITION_COLUMNS
from specview.trace.reader import TraceReader
from specview.trace.writer import TraceWriter
from tests import memory, synthetic

ROOT = Path(__file__).parents[2]
SMALL = 1000
JUMPS = 1000


@dataclass(frozen=True, slots=True)
class Result:
    name: str
    value: float
    unit: str
    limit: float | None = None
    at_least: bool = False

    @property
    def holds(self) -> bool | None:
        if self.limit is None:
            return None
        return self.value >= self.limit if self.at_least else self.value <= self.limit


@dataclass(frozen=True, slots=True)
class Times:
    wall: float
    cpu: float


def command(*words: str, stdin: str | None = None, output: Path | None = None) -> Times:
    """Wall and processor seconds of a process."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    with (output or Path("/dev/null")).open("wb") as out:
        subprocess.run(words, cwd=ROOT, input=stdin, text=True, stdout=out, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return Times(time.perf_counter() - started, cpu)


def making(path: Path, rounds: int) -> list[Result]:
    times = command(sys.executable, "-m", "tests.synthetic", "--rounds", str(rounds), "-o", str(path))
    size = path.stat().st_size
    return [
        Result("synthetic: rounds a second, wall", rounds / times.wall, "1/s", 10_000, at_least=True),
        Result("synthetic: rounds a second of processor time", rounds / times.cpu, "1/s"),
        Result("synthetic: bytes a round", size / rounds, "B", 1600),
    ]


def writing(folder: Path, count: int = 40_000) -> list[Result]:
    """Every round has positions of its own, so that nothing is cheaper than it would be for an engine."""
    made = list(synthetic.rounds(count, pool=count // 4))
    writer = TraceWriter(folder / "written.db")
    writer.begin_run(synthetic.run_info(random.Random(1)))
    sequence = writer.begin_sequence(synthetic.prompt())
    started, busy = time.perf_counter(), time.process_time()
    for r in made:
        writer.add_round(sequence, r)
    writer.close("finished")
    wall, cpu = time.perf_counter() - started, time.process_time() - busy
    return [
        Result("writer: rounds a second, wall", count / wall, "1/s", 10_000, at_least=True),
        Result("writer: rounds a second of processor time", count / cpu, "1/s"),
    ]


def cost_to_the_engine(folder: Path, count: int = 2000) -> list[Result]:
    """What recording takes from the thread that decodes: `add_round` itself, and what the writer's thread holds it up.

    The engine's work between two rounds is a loop of Python, the worst case: it never lets go of the lock by itself.
    """
    made = list(synthetic.rounds(count, pool=count // 4))

    def work() -> None:
        total = 0
        for i in range(20_000):
            total += i

    def decode(each: Callable[[int], None]) -> Times:
        started, busy = time.perf_counter(), time.thread_time()
        for i in range(count):
            work()
            each(i)
        return Times((time.perf_counter() - started) / count * 1e6, (time.thread_time() - busy) / count * 1e6)

    writer = TraceWriter(folder / "cost.db")
    writer.begin_run(synthetic.run_info(random.Random(1)))
    sequence = writer.begin_sequence(synthetic.prompt())
    plain = decode(lambda i: None)
    recorded = decode(lambda i: writer.add_round(sequence, made[i]))
    writer.close("finished")
    return [
        Result("writer: what a round costs the engine's thread, processor", recorded.cpu - plain.cpu, "µs", 100),
        Result("the same, wall", recorded.wall - plain.wall, "µs"),
    ]


def opening(large: Path, small: Path) -> list[Result]:
    def first(path: Path) -> float:
        """Open, find the run and its sequence, read the first screen of rounds; the best of 15."""
        best = 1e9
        for _ in range(15):
            started = time.perf_counter()
            with TraceReader(path) as reader:
                run = reader.runs()[0]
                sequence = reader.sequences(run.id, 0, 1)[0]
                reader.round_count(sequence.id)
                reader.rounds(sequence.id, 0, 50)
            best = min(best, time.perf_counter() - started)
        return best

    ratio = first(large) / first(small)
    rng = random.Random(3)
    delays = []
    with TraceReader(large) as reader:
        count = reader.round_count(1)
        reader.rounds(1, 0, 100)
        memory.forget_peak()
        before = memory.resident_megabytes()
        for _ in range(JUMPS):
            at = rng.randrange(count)
            started = time.perf_counter()
            reader.rounds(1, at, at + 1)
            delays.append((time.perf_counter() - started) * 1e3)
        for start in range(0, min(10_000, count), 100):
            reader.rounds(1, start, start + 100)
        grown = memory.peak_megabytes() - before
    delays.sort()
    return [
        Result("open to first rounds, large ÷ small", ratio, "×", 1.3),
        Result("jump to a random round, p99", delays[int(len(delays) * 0.99)], "ms", 20),
        Result("memory after 1000 jumps and 10,000 rounds", grown, "MB", 30),
    ]


def summing(path: Path) -> list[Result]:
    scan = f"SELECT {', '.join(f'count({c})' for c in POSITION_COLUMNS)} FROM positions"
    command("sqlite3", str(path), scan)  # both read from the system's cache
    shell = command("sqlite3", str(path), scan)
    stats = command(sys.executable, "-m", "specview", "stats", str(path))
    return [
        Result("stats ÷ one scan of all columns of positions in the shell, wall", stats.wall / shell.wall, "×", 2),
        Result("the same, processor time", stats.cpu / shell.cpu, "×"),
    ]


def exporting(path: Path, folder: Path) -> list[Result]:
    asked = f".mode csv\n.headers on\n{query('rounds')};\n"
    shell = command("sqlite3", str(path), stdin=asked, output=folder / "shell.csv")
    ours = command(
        sys.executable, "-m", "specview", "export", str(path), "--level", "rounds", "-o", str(folder / "rounds.csv")
    )
    return [
        Result("export of rounds as CSV ÷ the shell's, wall", ours.wall / shell.wall, "×", 2),
        Result("the same, processor time", ours.cpu / shell.cpu, "×"),
    ]


def flat_memory(path: Path) -> list[Result]:
    """Peak memory of stats and export in MB, as the processes see it themselves."""
    code = (
        "import sys\nfrom specview.cli import main\nfrom tests.memory import peak_megabytes\n"
        "try:\n    main(sys.argv[1:])\nfinally:\n    print(peak_megabytes(), file=sys.stderr)"
    )
    results = []
    for words in (["stats", str(path)], ["export", str(path), "--level", "rounds"]):
        done = subprocess.run(
            [sys.executable, "-c", code, *words],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            check=True,
        )
        results.append(Result(f"{words[0]}: peak memory", float(done.stderr.split()[-1]), "MB", 100))
    return results


def show(results: list[Result]) -> None:
    for r in results:
        mark = {None: " ", True: "✓", False: "✗"}[r.holds]
        limit = "" if r.limit is None else f"  ({'at least' if r.at_least else 'at most'} {r.limit:,g})"
        print(f"{mark} {r.name:<66}{r.value:>12,.2f} {r.unit}{limit}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1_000_000)
    parser.add_argument("--keep", type=Path, help="Use this trace, or make it there and keep it.")
    parser.add_argument("-o", "--output", type=Path, help="Write the results as JSON.")
    args = parser.parse_args()
    threading.current_thread().name = "engine"
    everything: list[Result] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        large, small = args.keep or folder / "large.db", folder / "small.db"
        synthetic.write(small, SMALL)
        steps: list[Callable[[], list[Result]]] = [
            lambda: writing(folder),
            lambda: cost_to_the_engine(folder),
            lambda: [] if large.exists() else making(large, args.rounds),
            lambda: opening(large, small),
            lambda: summing(large),
            lambda: exporting(large, folder),
            lambda: flat_memory(large),
        ]
        for step in steps:
            results = step()
            show(results)
            everything += results
    if args.output:
        args.output.write_text(json.dumps([asdict(r) for r in everything], indent=1) + "\n", encoding="utf-8")
    sys.exit(0 if all(r.holds is not False for r in everything) else 1)


if __name__ == "__main__":
    main()
