"""A station of the tour: one question about one recorded round or one measurement, and what hides its outcome."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from specview.tour.exhibits import Exhibit
from specview.tour.questions import Attempt, Option, Question, fault
from specview.tour.survey import Place
from specview.tour.words import Word

Phase = Literal["propose", "score", "accept", "correct"]

ORDER = (
    "chain",
    "propose",
    "score",
    "accept",
    "correct",
    "mask",
    "stop",
    "same",
    "progress",
    "kv_rejected",
    "kv_full",
    "cost",
    "flops",
    "close",
)
"""The stations in the lesson's order."""


@dataclass(frozen=True, slots=True)
class Veil:
    """What of its round a station shows before the prediction."""

    phase: Phase = "correct"
    """Nothing that came later is shown."""
    fates: int | None = None
    """Verdicts up to this position are shown; None shows all that the phase knows."""
    draws: bool = False
    """u is shown up to the first candidate behind the prefix that the person marked."""


@dataclass(frozen=True, slots=True)
class Station:
    """What one station shows and asks. Its texts stand in the catalogue under its key."""

    key: str
    place: Place | None
    question: Question | None = None
    veil: Veil = Veil()
    after: Phase = "correct"
    """The phase that the revealed round is shown in."""
    values: Mapping[str, Word] = field(default_factory=dict)
    variants: tuple[str, ...] = ()
    """Ends of catalogue keys that are looked up first: what this trace makes different."""
    exhibit: Exhibit | None = None
    kv: bool = False
    """The KV lanes are what it is about."""
    timeline: bool = False
    """The timeline belongs to the outcome."""
    selected: int | None = None
    """The position whose alternatives are shown."""

    @property
    def missing(self) -> bool:
        """The trace has nothing to ask this about."""
        return self.question is None and self.key != "close"


def feedback(station: Station, attempt: Attempt) -> tuple[str, Option | None] | None:
    """The end of the key of the sentence that answers an attempt, and the option that it is about."""
    if station.question is None or attempt.verdict is None:
        return None
    if attempt.verdict == "right":
        return "yes", None
    return fault(station.question, attempt)
