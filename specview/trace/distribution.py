"""Exact medians and percentiles of a run's clocks, whatever its length, in flat memory.

Sorting a million values in SQLite takes longer than reading them twice. So values are counted in bins first, which says
in which bin each percentile lies; a second scan counts exactly what is in those bins. How wide the bins are is learned
from a sample.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from specview.metrics import nearest_rank
from specview.trace.aggregate import scope
from specview.trace.decode import DamagedValueError

SHARES = (0.5, 0.95)
SAMPLE = 1000
BINS = 8192
"""Bins of one column; larger values share the last one."""
ROWS_PER_FETCH = 10_000


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Median and 95th percentile (nearest rank), in the unit of the column."""

    median: int
    p95: int
    count: int


@dataclass(slots=True)
class _Column:
    """What is learned about one column, scan by scan."""

    name: str
    shift: int
    bins: Counter[int | None]

    @property
    def bin_sql(self) -> str:
        return f"min({self.name} >> {self.shift}, {BINS - 1})"

    def places(self) -> list[tuple[int, int]]:
        """Per share: the bin that holds the value, and how many values lie below that bin."""
        counted = sorted((key, n) for key, n in self.bins.items() if key is not None)
        total = sum(n for _, n in counted)
        found = []
        for share in SHARES:
            rank, below = nearest_rank(total, share), 0
            for key, n in counted:
                if below + n > rank:
                    found.append((key, below))
                    break
                below += n
        return found


def percentiles(connection: sqlite3.Connection, run_id: int, columns: Sequence[str]) -> dict[str, Percentiles | None]:
    """The percentiles of integer columns of `rounds` over one run; None for a column with no value in it.

    It scans more than once: a trace that may grow must be read in one transaction.

    Raises:
        DamagedValueError: a column holds what is no whole number.
    """
    where, value = scope(connection, run_id)
    learned = [_Column(name, shift, Counter()) for name, shift in _shifts(connection, where, value, columns)]
    for rows in _batches(connection, ", ".join(c.bin_sql for c in learned), where, value):
        for column, keys in zip(learned, zip(*rows, strict=True), strict=True):
            column.bins.update(keys)
    filled = [c for c in learned if set(c.bins) - {None}]
    exact = _values_in_bins(connection, where, value, filled)
    result: dict[str, Percentiles | None] = dict.fromkeys(columns)
    for column in filled:
        total = sum(n for key, n in column.bins.items() if key is not None)
        values = [
            _at(column, exact[column.name, key], nearest_rank(total, share) - below, key)
            for share, (key, below) in zip(SHARES, column.places(), strict=True)
        ]
        result[column.name] = Percentiles(values[0], values[1], total)
    return result


def _shifts(
    connection: sqlite3.Connection, where: str, value: tuple[int, ...], columns: Sequence[str]
) -> list[tuple[str, int]]:
    """Per column: how many bits to drop so that nearly all values fall into `BINS` bins."""
    sample = connection.execute(f"SELECT {', '.join(columns)} FROM rounds {where} LIMIT {SAMPLE}", value).fetchall()
    shifts = []
    for i, name in enumerate(columns):
        largest = max((row[i] for row in sample if isinstance(row[i], int)), default=0)
        # Four times the largest of the sample, should the run get slower later.
        shifts.append((name, max(0, (4 * largest // BINS).bit_length())))
    return shifts


def _values_in_bins(
    connection: sqlite3.Connection, where: str, value: tuple[int, ...], columns: list[_Column]
) -> dict[tuple[str, int], Counter[int]]:
    """Per column and wanted bin: its values, counted."""
    wanted = [(c, key) for c in columns for key in {key for key, _ in c.places()}]
    if not wanted:
        return {}
    conditions = [_in_bin(c, key) for c, key in wanted]
    selected = ", ".join(
        f"CASE WHEN {condition} THEN {c.name} END" for condition, (c, _) in zip(conditions, wanted, strict=True)
    )
    both = f"{where} {'AND' if where else 'WHERE'} ({' OR '.join(conditions)})"
    counters: list[Counter[int | None]] = [Counter() for _ in wanted]
    for rows in _batches(connection, selected, both, value):
        for counter, values in zip(counters, zip(*rows, strict=True), strict=True):
            counter.update(values)
    return {
        (c.name, key): Counter({v: n for v, n in counter.items() if isinstance(v, int)})
        for (c, key), counter in zip(wanted, counters, strict=True)
    }


def _in_bin(column: _Column, key: int) -> str:
    low = key << column.shift
    if key == BINS - 1:
        return f"{column.name} >= {low}"
    return f"{column.name} BETWEEN {low} AND {low + (1 << column.shift) - 1}"


def _at(column: _Column, counts: Counter[int], rank: int, key: int) -> int:
    if sum(counts.values()) != column.bins[key]:
        raise DamagedValueError(f"rounds.{column.name} holds what is no whole number")
    for value in sorted(counts):
        rank -= counts[value]
        if rank < 0:
            return value
    raise DamagedValueError(f"rounds.{column.name} cannot be counted")


def _batches(
    connection: sqlite3.Connection, selected: str, where: str, value: tuple[int, ...]
) -> Iterator[list[tuple[int | None, ...]]]:
    cursor = connection.execute(f"SELECT {selected} FROM rounds {where}", value)
    while rows := cursor.fetchmany(ROWS_PER_FETCH):
        yield rows
