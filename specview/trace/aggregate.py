"""Sums over a run or a sequence, made by SQLite in a scan; nothing is loaded."""

from __future__ import annotations

import sqlite3
from collections import Counter

from specview.metrics import WIDEST, Totals

COLUMNS_PER_SCAN = 64


def totals(
    connection: sqlite3.Connection, run_id: int, sequence_id: int | None = None, *, overlap: bool = False
) -> Totals:
    """The sums behind the metrics of a run or of one of its sequences.

    Args:
        overlap: include Σ min(p, q), which scans the positions as well.
    """
    where, value = scope(connection, run_id, sequence_id)
    sums = connection.execute(
        "SELECT max(max(proposed), max(accepted)), count(*), sum(proposed), sum(judged), count(judged), sum(accepted),"
        " sum(committed_after - committed_before), count(round_ns), sum(propose_ns), sum(score_ns), sum(accept_ns),"
        " sum(rollback_ns), sum(record_ns), sum(round_ns), sum(target_calls), sum(draft_calls),"
        " sum(score_ns) FILTER (WHERE proposed > 0), count(score_ns) FILTER (WHERE proposed > 0)"
        f" FROM rounds {where}",
        value,
    ).fetchone()
    widest, rounds, proposed, judged, judged_known, accepted, output, timed, *rest = sums
    proposed_at, judged_at, accepted_at = _places(connection, where, value, widest)
    sums_at, counts_at = _overlap(connection, where, value, proposed_at) if overlap else ((), ())
    return Totals(
        rounds,
        proposed or 0,
        None if judged_known < rounds else judged or 0,
        accepted or 0,
        output or 0,
        proposed_at,
        judged_at,
        accepted_at,
        sums_at,
        counts_at,
        timed,
        *rest,
    )


def scope(connection: sqlite3.Connection, run_id: int, sequence_id: int | None = None) -> tuple[str, tuple[int, ...]]:
    """The WHERE clause, with its values, that keeps the rounds of a run or of one of its sequences."""
    if sequence_id is not None:
        return "WHERE sequence_id = ?", (sequence_id,)
    if not connection.execute("SELECT EXISTS (SELECT 1 FROM runs WHERE id != ?)", (run_id,)).fetchone()[0]:
        return "", ()  # the only run: a plain scan, without a look at the index for each round
    return "WHERE sequence_id IN (SELECT id FROM sequences WHERE run_id = ?)", (run_id,)


def _places(
    connection: sqlite3.Connection, where: str, value: tuple[int, ...], widest: object
) -> tuple[tuple[int, ...], ...]:
    """Rounds that proposed, judged and accepted a candidate at position 1, 2, …"""
    names = ("proposed", "judged", "accepted")
    if isinstance(widest, int) and widest <= COLUMNS_PER_SCAN:
        # A sum a position: SQLite would sort the rounds to group them, which takes longer than to read them.
        columns = ", ".join(f"sum({name} >= {i})" for name in names for i in range(1, widest + 1))
        row = connection.execute(f"SELECT {columns or 0} FROM rounds {where}", value).fetchone()
        counts = [tuple(n or 0 for n in row[at * widest : (at + 1) * widest]) for at in range(3)]
        return tuple(_trimmed(of) for of in counts)
    groups = Counter(connection.execute(f"SELECT {', '.join(names)} FROM rounds {where}", value))
    return tuple(_at_least(_counted(groups, column)) for column in range(3))


def _trimmed(counts: tuple[int, ...]) -> tuple[int, ...]:
    return counts[: max((i for i, n in enumerate(counts, 1) if n), default=0)]


def _counted(groups: Counter[tuple[object, ...]], column: int) -> Counter[int]:
    counts: Counter[int] = Counter()
    for group, number in groups.items():
        value = group[column]
        if isinstance(value, int):
            counts[value] += number
    return counts


def _at_least(counts: Counter[int]) -> tuple[int, ...]:
    """How many of the counted values are ≥ 1, ≥ 2, …"""
    widest = min(WIDEST, max(counts, default=0))
    result: list[int] = []
    remaining = sum(n for value, n in counts.items() if value > WIDEST)
    for place in range(widest, 0, -1):
        remaining += counts.get(place, 0)
        result.append(remaining)
    return tuple(reversed(result))


def _overlap(
    connection: sqlite3.Connection, where: str, value: tuple[int, ...], proposed_at: tuple[int, ...]
) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """Per position: the sum of the overlaps that are numbers, and how many there are. Scans without sorting."""
    rounds = f"WHERE round_id IN (SELECT id FROM rounds {where})" if where else ""
    places = range(1, len(proposed_at) + 1)

    # A text, as a NaN is kept, is larger than any number.
    number = "overlap <= 2"

    def scan(of: str) -> list[float]:
        found: list[float] = []
        for start in range(0, len(places), COLUMNS_PER_SCAN):
            some = places[start : start + COLUMNS_PER_SCAN]
            columns = ", ".join(f"{of} FILTER (WHERE position = {i} AND {number})" for i in some)
            found += connection.execute(f"SELECT {columns} FROM positions {rounds}", value).fetchone()
        return found

    if len(places) > COLUMNS_PER_SCAN:
        return tuple(scan("total(overlap)")), tuple(int(n) for n in scan("count(*)"))
    if not places:
        return (), ()
    columns = ", ".join(f"total(overlap) FILTER (WHERE position = {i})" for i in places)
    *sums, known = connection.execute(
        f"SELECT {columns}, count(*) FILTER (WHERE {number}) FROM positions {rounds}", value
    ).fetchone()
    if known == sum(proposed_at):
        return tuple(sums), proposed_at  # every candidate has one, as in a trace of ours
    return tuple(scan("total(overlap)")), tuple(int(n) for n in scan("count(*)"))
