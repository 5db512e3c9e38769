"""The Trace Event JSON that ui.perfetto.dev opens: a track per phase, counters for KV length and acceptance.

Format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU (Trace Event Format). Times are
microseconds on the run's clock. Phases of a round follow each other in the order in which the loop runs them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from engine.round import Round
from specview.errors import TraceError
from specview.export.levels import chosen_runs
from specview.text import showable
from specview.trace.reader import TraceReader
from specview.trace.records import RunRecord

TRACKS = ("round", "propose", "score", "accept", "rollback", "record")
ROUNDS_PER_READ = 1000
NS_PER_US = 1000.0

_HAS_CLOCKS = (
    "SELECT EXISTS (SELECT 1 FROM sequences s JOIN rounds r ON r.sequence_id = s.id WHERE s.run_id = ?"
    " AND (round_ns IS NOT NULL OR propose_ns IS NOT NULL OR score_ns IS NOT NULL))"
)

Event = dict[str, Any]


def write(reader: TraceReader, out: BinaryIO, *, run_id: int | None = None, progress: Callable[[int], None]) -> None:
    """Write the timeline of one run, or of all runs side by side, to a binary stream.

    Raises:
        TraceError: there is no such run, or no round of the chosen ones has a clock.
    """
    runs = chosen_runs(reader, run_id)
    if not any(reader.number(_HAS_CLOCKS, run.id) for run in runs):
        what = f"{reader.path} has" if run_id is None else f"Run {run_id} of {reader.path} has"
        raise TraceError(f"{what} no clocks, so there is no timeline; export it as csv or jsonl.")
    out.write(b'{"displayTimeUnit":"ms","traceEvents":[\n')
    for run in runs:
        _put(out, _names(run), first=run is runs[0])
        for events in _timeline(reader, run, progress):
            _put(out, events)
    out.write(b"\n]}\n")


def _put(out: BinaryIO, events: list[Event], *, first: bool = False) -> None:
    text = ",\n".join(json.dumps(event, ensure_ascii=False, separators=(",", ":")) for event in events)
    if text:
        out.write(f"{'' if first else ',' + chr(10)}{text}".encode())


def _names(run: RunRecord) -> list[Event]:
    title = f"run {run.id}: {showable(run.info.target or '?')} ◂ {showable(run.info.draft or '?')}"
    events: list[Event] = [{"ph": "M", "pid": run.id, "tid": 0, "name": "process_name", "args": {"name": title}}]
    for tid, track in enumerate(TRACKS, 1):
        events += [
            {"ph": "M", "pid": run.id, "tid": tid, "name": "thread_name", "args": {"name": track}},
            {"ph": "M", "pid": run.id, "tid": tid, "name": "thread_sort_index", "args": {"sort_index": tid}},
        ]
    return events


def _timeline(reader: TraceReader, run: RunRecord, progress: Callable[[int], None]) -> Iterator[list[Event]]:
    clock = 0  # where the next round begins when a source gives durations without a start
    for sequence in reader.all_sequences(run.id):
        last = reader.round_count(sequence.id)
        for start in range(0, last, ROUNDS_PER_READ):
            chunk = reader.rounds(sequence.id, start, start + ROUNDS_PER_READ, positions=False)
            for r in chunk:
                begins = clock if r.times.start_ns is None else r.times.start_ns
                events, ends = _round(run.id, sequence.index, r, begins)
                yield events
                clock = max(clock, ends)
            progress(len(chunk))


def _round(run: int, sequence: int, r: Round, begins: int) -> tuple[list[Event], int]:
    """The events of one round, and the ns at which it ends."""
    t = r.times
    phases = (t.propose_ns, t.score_ns, t.accept_ns, t.rollback_ns, t.record_ns)
    if t.round_ns is None and not any(phases):
        return [], begins
    spans: list[tuple[int, int, int]] = []
    at = begins
    for tid, duration in enumerate(phases, 2):
        if duration is not None:
            spans.append((tid, at, duration))
            at += duration
    ends = begins + t.round_ns if t.round_ns is not None else at
    name = f"{sequence}·{r.index}"
    facts = {"proposed": r.proposed, "accepted": r.accepted, "committed": r.committed_after - r.committed_before}
    events: list[Event] = [_span(run, 1, f"round {name}", begins, ends - begins, facts)]
    events += [_span(run, tid, TRACKS[tid - 1], at, duration, {"round": name}) for tid, at, duration in spans]
    events.append(_counter(run, "accepted", ends, {"accepted": r.accepted}))
    lengths = {
        name: length
        for name, length in (("target", r.target_kv_after), ("draft", r.draft_kv_after))
        if length is not None
    }
    if lengths:
        events.append(_counter(run, "KV length", ends, lengths))
    return events, ends


def _span(run: int, tid: int, name: str, at: int, duration: int, facts: dict[str, Any]) -> Event:
    return {
        "ph": "X", "pid": run, "tid": tid, "name": name, "ts": at / NS_PER_US, "dur": duration / NS_PER_US,
        "args": facts,
    }  # fmt: skip


def _counter(run: int, name: str, at: int, values: dict[str, int]) -> Event:
    return {"ph": "C", "pid": run, "name": name, "ts": at / NS_PER_US, "args": values}
