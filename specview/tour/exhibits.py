"""The evidence beside the inspector's own panes: who saw what, how often, how long. Data only; a widget draws it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from specview.tour.words import Word


@dataclass(frozen=True, slots=True)
class Mask:
    """The causal mask over one round: row i sees the prefix and the candidates before its place."""

    columns: tuple[Word, ...]
    """The prefix, then the candidates that a row may see."""
    rows: int
    """γ+1 distributions; row i (from 1) sees the first i columns."""
    asked: int
    """The row that the question is about."""

    def sees(self, row: int, column: int) -> bool:
        """Whether row 1 … γ+1 is conditioned on column 0 … γ."""
        return column < row


@dataclass(frozen=True, slots=True)
class Histogram:
    """Rounds by the number of tokens that they brought."""

    counts: tuple[tuple[int, int], ...]
    """(tokens, rounds), for every number from 0 to γ+2."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar of a comparison."""

    key: str
    """Its label in the catalogue (`station.bar.key`)."""
    amount: float | None
    text: str
    """The amount as it is printed."""
    role: str = "target"
    late: bool = False
    """Part of the outcome: hidden until that is shown."""
    values: Mapping[str, Word] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Bars:
    """Groups of bars, each group on a scale of its own."""

    groups: tuple[tuple[Bar, ...], ...]
    note: str = ""
    """Where the figures come from: the end of a catalogue key (`station.note.…`)."""
    values: Mapping[str, Word] = field(default_factory=dict)


Exhibit = Mask | Histogram | Bars
