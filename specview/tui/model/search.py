"""Finding rounds: by the text they brought, or by what happened in them. Runs in a thread, on a reader of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from specview.text import join_pieces
from specview.trace.reader import TraceReader

BLOCK = 4096
"""Tokens looked at together."""


@dataclass(frozen=True, slots=True)
class Filter:
    """A question that a round answers with yes or no, as a condition on the table `rounds`."""

    name: str
    condition: str
    """SQL; `?` stands for `value`."""
    value: float | None = None

    def parameters(self) -> tuple[float, ...]:
        return () if self.value is None else (self.value,)


_NOT_CUT = "cut IS NULL AND accepted < proposed"
LOW_OVERLAP = 0.2
SLOW_SHARE = 0.95


def filters(gamma: int) -> list[Filter]:
    """The filters that make sense for a run that proposes `gamma` candidates; `slow` gets its value from the trace."""
    found = [Filter("full acceptance", "proposed > 0 AND accepted = proposed AND cut IS NULL")]
    found += [Filter(f"rejected at {i}", f"{_NOT_CUT} AND accepted = ?", i - 1) for i in range(1, gamma + 1)]
    found += [
        Filter(
            "correction equal to a discarded token",
            "EXISTS (SELECT 1 FROM positions p WHERE p.round_id = rounds.id AND p.fate = 'discarded'"
            " AND p.candidate = rounds.correction_token)",
        ),
        Filter(
            f"low overlap (below {LOW_OVERLAP:g})",
            "EXISTS (SELECT 1 FROM positions p WHERE p.round_id = rounds.id AND p.fate IN ('accepted', 'rejected')"
            " AND p.overlap < ?)",
            LOW_OVERLAP,
        ),
        Filter("slow (the slowest 5 %)", "round_ns > ?"),
        Filter("ended inside the block", "cut IS NOT NULL"),
        Filter("nothing proposed", "proposed = 0"),
        Filter("residual fallback", "residual_fallback = 1"),
    ]
    return found


def with_threshold(reader: TraceReader, sequence_id: int, chosen: Filter) -> Filter:
    """The filter with the value that only the trace can tell: the 95th percentile of the round times."""
    if not chosen.name.startswith("slow") or chosen.value is not None:
        return chosen
    (count,) = reader.connection.execute(
        "SELECT count(round_ns) FROM rounds WHERE sequence_id = ?", (sequence_id,)
    ).fetchone()
    if not count:
        return Filter(chosen.name, "round_ns > ?", float("inf"))
    (value,) = reader.connection.execute(
        "SELECT round_ns FROM rounds WHERE sequence_id = ? AND round_ns IS NOT NULL ORDER BY round_ns LIMIT 1 OFFSET ?",
        (sequence_id, min(count - 1, int(count * SLOW_SHARE))),
    ).fetchone()
    return Filter(chosen.name, chosen.condition, value)


def find_round(reader: TraceReader, sequence_id: int, wanted: Filter, start: int, direction: int) -> int | None:
    """The nearest round before or behind `start` that matches, or None."""
    compare, order = (">", "ASC") if direction > 0 else ("<", "DESC")
    row = reader.connection.execute(
        f"SELECT round_index FROM rounds WHERE sequence_id = ? AND round_index {compare} ? AND ({wanted.condition})"
        f" ORDER BY round_index {order} LIMIT 1",
        (sequence_id, start, *wanted.parameters()),
    ).fetchone()
    return int(row[0]) if row is not None else None


def find_text(
    reader: TraceReader,
    run_id: int,
    sequence_id: int,
    needle: str,
    start: int,
    direction: int,
    cancelled: Callable[[], bool],
) -> int | None:
    """The place of the first token of the next occurrence of `needle` in the output, upper and lower case alike.

    Looks from token `start` on, and goes on at the other end; None when there is none, or the search was cancelled.
    """
    count = reader.token_count(sequence_id)
    folded = needle.casefold()
    if not folded or not count:
        return None
    blocks = (count - 1) // BLOCK + 1
    first = min(start, count - 1) // BLOCK
    # The first block comes again at the end, for what lies on the other side of the start.
    for step in range(blocks + 1):
        if cancelled():
            return None
        block = (first + step * direction) % blocks
        places = _occurrences(reader, run_id, sequence_id, folded, block * BLOCK, min(count, (block + 1) * BLOCK))
        if step == 0:
            places = [p for p in places if (p > start if direction > 0 else p < start)]
        if places:
            return places[0] if direction > 0 else places[-1]
    return None


def _occurrences(reader: TraceReader, run_id: int, sequence_id: int, needle: str, start: int, stop: int) -> list[int]:
    """Places in start … stop − 1 of tokens where the needle begins; it may end in the block behind."""
    overhang = max(8, len(needle))
    tokens = reader.tokens(sequence_id, start, stop + overhang)
    names = reader.vocab(run_id, {t.token for t in tokens})
    pieces = join_pieces([names[t.token].data if t.token in names else b"" for t in tokens])
    folded = [piece.casefold() for piece in pieces]
    text = "".join(folded)
    places: list[int] = []
    at = text.find(needle)
    token, end = 0, len(folded[0]) if folded else 0
    while at >= 0:
        while at >= end and token + 1 < len(folded):
            token += 1
            end += len(folded[token])
        if tokens[token].position >= stop:
            break
        if not places or places[-1] != tokens[token].position:
            places.append(tokens[token].position)
        at = text.find(needle, at + 1)
    return places
