"""What a row of each level holds: its columns, named as the metrics are, and the query behind them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from specview.errors import TraceError
from specview.metrics import PHASES
from specview.summary import finite, settings, summarize
from specview.trace.opening import LONGEST_CELL, LONGEST_VALUE
from specview.trace.reader import TraceReader
from specview.trace.records import RunRecord

Level = Literal["runs", "rounds", "positions", "tokens"]
Kind = Literal["integer", "real", "text", "json"]
LEVELS: tuple[Level, ...] = ("runs", "rounds", "positions", "tokens")
ROWS_PER_FETCH = 2000
FETCHED_BYTES = 2**24
"""What the long tokens of rows fetched at once may take."""
SHOWN_PER_BYTE = 4
"""A byte of a token shows as `\\xNN` at the longest; a longer text belongs to no token, and is damage."""
TEXT = "v.text"
"""The SQL of a token's text that is safe to show."""

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    kind: Kind
    sql: str = ""


@dataclass(frozen=True, slots=True)
class Export:
    """A level of a trace, ready to be written: `batches` yields lists of rows, each as wide as `columns`."""

    columns: tuple[Column, ...]
    batches: Iterator[list[Row]]
    total: int
    """How many rows there will be, for a progress bar."""
    source: str | None = None
    """What the rows are selected from; None where they do not come from one query."""
    reader: TraceReader | None = None


def _column(kind: Kind, name: str, sql: str | None = None) -> Column:
    return Column(name, kind, sql or name)


def _ms(phase: str) -> Column:
    return Column(f"{phase}_ms", "real", f"r.{phase}_ns / 1e6")


_PLACE = (
    _column("integer", "run_id", "s.run_id"),
    _column("integer", "sequence_index", "s.sequence_index"),
    _column("text", "request_id", "s.request_id"),
    _column("integer", "round_index", "r.round_index"),
)
_ROUNDS = (
    *_PLACE,
    _column("integer", "gamma", "r.gamma"),
    _column("integer", "num_draft_tokens", "r.proposed"),
    _column("integer", "num_judged_draft_tokens", "r.judged"),
    _column("integer", "num_accepted_draft_tokens", "r.accepted"),
    _column("integer", "num_output_tokens", "r.committed_after - r.committed_before"),
    _column("text", "correction_kind", "r.correction_kind"),
    _column("integer", "correction_token", "r.correction_token"),
    _column("text", "correction_text", "{text}"),
    _column("real", "correction_prob", "r.correction_prob"),
    _column("real", "correction_target_prob", "r.correction_target_prob"),
    _column("real", "correction_draft_prob", "r.correction_draft_prob"),
    _column("real", "residual_mass", "r.residual_mass"),
    _column("integer", "residual_fallback", "r.residual_fallback"),
    _column("text", "cut", "r.cut"),
    _column("text", "draft_stop", "r.draft_stop"),
    _column("integer", "committed_before", "r.committed_before"),
    _column("integer", "committed_after", "r.committed_after"),
    _column("integer", "target_kv_before", "r.target_kv_before"),
    _column("integer", "target_kv_written", "r.target_kv_written"),
    _column("integer", "target_kv_after", "r.target_kv_after"),
    _column("integer", "draft_kv_before", "r.draft_kv_before"),
    _column("integer", "draft_kv_written", "r.draft_kv_written"),
    _column("integer", "draft_kv_after", "r.draft_kv_after"),
    *(_ms(phase) for phase in ("start", "propose", "score", "accept", "rollback", "record", "round")),
    _column("integer", "target_calls", "r.target_calls"),
    _column("integer", "draft_calls", "r.draft_calls"),
)
_POSITIONS = (
    *_PLACE,
    _column("integer", "position", "p.position"),
    _column("integer", "candidate", "p.candidate"),
    _column("text", "candidate_text", "{text}"),
    _column("real", "draft_prob", "p.draft_prob"),
    _column("real", "target_prob", "p.target_prob"),
    _column("real", "u", "p.u"),
    _column("text", "fate", "p.fate"),
    _column("real", "overlap", "p.overlap"),
    _column("real", "draft_entropy", "p.draft_entropy"),
    _column("real", "target_entropy", "p.target_entropy"),
    _column("integer", "rank", "p.rank"),
    _column("json", "draft_top", "p.draft_top"),
    _column("json", "target_top", "p.target_top"),
    _column("integer", "parent", "p.parent"),
    _column("real", "draft_deviation", "p.draft_deviation"),
    _column("real", "target_deviation", "p.target_deviation"),
)
_TOKENS = (
    *_PLACE[:3],
    _column("integer", "position", "t.position"),
    _column("integer", "token", "t.token"),
    _column("text", "text", "{text}"),
    _column("text", "origin", "t.origin"),
    _column("integer", "round_index", "r.round_index"),
)
# The order of each query is the order in which the rows lie in the file, so that nothing is sorted.
_QUERIES: dict[str, tuple[tuple[Column, ...], str, str]] = {
    "rounds": (
        _ROUNDS,
        "FROM sequences s CROSS JOIN rounds r ON r.sequence_id = s.id"
        " LEFT JOIN vocab v ON v.run_id = s.run_id AND v.token = r.correction_token",
        "ORDER BY s.run_id, s.sequence_index, r.round_index",
    ),
    "positions": (
        _POSITIONS,
        "FROM sequences s CROSS JOIN rounds r ON r.sequence_id = s.id CROSS JOIN positions p ON p.round_id = r.id"
        " LEFT JOIN vocab v ON v.run_id = s.run_id AND v.token = p.candidate",
        "ORDER BY s.run_id, s.sequence_index, r.round_index, p.position",
    ),
    "tokens": (
        _TOKENS,
        "FROM sequences s CROSS JOIN tokens t ON t.sequence_id = s.id LEFT JOIN rounds r ON r.id = t.round_id"
        " LEFT JOIN vocab v ON v.run_id = s.run_id AND v.token = t.token",
        "ORDER BY s.run_id, s.sequence_index, t.position",
    ),
}
_COUNTS = {
    "rounds": "SELECT count(*) FROM rounds",
    "positions": "SELECT count(*) FROM positions",
    "tokens": "SELECT count(*) FROM tokens",
}


def query(level: Level, *, run_id: int | None = None, raw_text: bool = False) -> str:
    """The SELECT behind a level, as any SQL shell runs it (with `raw_text`, after `raw_text` was made a function)."""
    text = "raw_text(v.bytes)" if raw_text else TEXT
    selected = ", ".join(f"{c.sql.format(text=text)} AS {c.name}" for c in _QUERIES[level][0])
    return f"SELECT {selected} {_source(level, run_id)}"


def _source(level: Level, run_id: int | None) -> str:
    _, source, order = _QUERIES[level]
    where = "" if run_id is None else f"WHERE s.run_id = {int(run_id)} "
    return f"{source} {where}{order}"


def chosen_runs(reader: TraceReader, run_id: int | None) -> list[RunRecord]:
    """The run with this number, or all runs.

    Raises:
        TraceError: there is no such run, or the trace cannot be read.
    """
    runs = [run for run in reader.runs() if run_id in (None, run.id)]
    if run_id is not None and not runs:
        raise TraceError(f"{reader.path} has no run {run_id}; `specview list {reader.path}` shows its runs.")
    return runs


def export_of(reader: TraceReader, level: Level, *, run_id: int | None = None, raw_text: bool = False) -> Export:
    """The rows of one level.

    Args:
        run_id: only this run.
        raw_text: token text as it is, not made safe to show; bytes that are no UTF-8 come as `\\xNN`.

    Raises:
        TraceError: there is no such run, or the trace cannot be read.
    """
    runs = chosen_runs(reader, run_id)
    if level == "runs":
        return _runs(reader, runs)
    if raw_text:
        reader.connection.create_function("raw_text", 1, _raw_text, deterministic=True)
    return Export(
        _QUERIES[level][0],
        _rows(reader, query(level, run_id=run_id, raw_text=raw_text)),
        reader.number(_COUNTS[level]),
        _source(level, run_id),
        reader,
    )


def _rows(reader: TraceReader, sql: str) -> Iterator[list[Row]]:
    longest, rows_per_fetch = limits(reader)
    with reader.reading(longest):
        cursor: sqlite3.Cursor = reader.connection.execute(sql)
        while rows := cursor.fetchmany(rows_per_fetch):
            yield rows


def limits(reader: TraceReader) -> tuple[int, int]:
    """(Bytes of the longest value that a row may hold, rows to fetch at once). A token of a megabyte is odd and no
    damage, so where the vocabulary has one, more is allowed, and fewer rows are in memory."""
    longest = SHOWN_PER_BYTE * reader.longest_token()
    if longest <= LONGEST_CELL:
        return LONGEST_CELL, ROWS_PER_FETCH
    return LONGEST_VALUE, max(1, FETCHED_BYTES // longest)


@lru_cache(maxsize=65_536)
def _raw_text(data: bytes | str | None) -> str | None:
    return data.decode("utf-8", "backslashreplace") if isinstance(data, bytes) else data


def _runs(reader: TraceReader, runs: Iterable[RunRecord]) -> Export:
    flat = [_flat({**settings(run), **finite(summarize(reader, run).values())}) for run in runs]
    names = list(dict.fromkeys(name for row in flat for name in row))
    columns = tuple(Column(name, _kind(name, (row.get(name) for row in flat))) for name in names)
    return Export(columns, iter([[tuple(row.get(name) for name in names) for row in flat]]), len(flat))


_SPREADS = frozenset(f"{phase}_ms" for phase in (*PHASES, "time_to_first_token"))
_JSON = frozenset(
    (
        "stop", "logit_bias", "versions", "acceptance_rate_per_position", "conditional_acceptance_per_position",
        "overlap_per_position", "acceptance_histogram",
    )
)  # fmt: skip


def _flat(values: dict[str, Any]) -> dict[str, Any]:
    """Spreads become three columns each; lists and mappings become JSON text."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if name in _SPREADS:
            flat |= {f"{name}_{key}": None if value is None else value[key] for key in ("mean", "median", "p95")}
        elif name in _JSON:
            flat[name] = None if value is None else json.dumps(value, ensure_ascii=False)
        else:
            flat[name] = int(value) if isinstance(value, bool) else value
    return flat


def _kind(name: str, values: Iterable[Any]) -> Kind:
    found = {type(value) for value in values if value is not None}
    if name in _JSON:
        return "json"
    if found == {int}:
        return "integer"
    return "real" if found and found <= {int, float} else "text"
