"""What a check of the contract finds."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, field

from engine.round import Round, RunInfo
from specview.trace.records import RunRecord, SequenceRecord

KEPT_VIOLATIONS = 100
"""Violations of one clause that are listed; further ones are only counted, so that memory stays flat."""

JUDGED = ("accepted", "cut", "rejected")
"""The fates of candidates that the acceptance test looked at."""


LOG_SOURCES = ("vllm log", "llama.cpp log")
"""The sources that `specview import` writes."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One place where a clause does not hold."""

    recorded: str
    expected: str
    position: int | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one clause says about one round: how many facts it could look at, and which of them break it."""

    checked: int = 0
    findings: tuple[Finding, ...] = ()
    given_up: int = 0
    """Valid cache positions that were dropped and fed again: no violation, but a cost that C10's note counts."""


NOTHING = Outcome()


@dataclass(frozen=True, slots=True)
class Context:
    """What a clause may know beside the round itself."""

    info: RunInfo
    sequence: SequenceRecord
    previous: Round | None
    """The round before it; None for the first of a sequence."""
    following: Round | None = None
    """The round after it; None for the last."""

    @property
    def greedy(self) -> bool | None:
        """Whether the run decodes greedily; None when its settings were not recorded."""
        return None if self.info.sampling is None else self.info.sampling.greedy

    @property
    def from_log(self) -> bool:
        """Whether the run was imported from a log of counts: what is not in the log was worked out, not seen."""
        return self.info.source in LOG_SOURCES


@dataclass(frozen=True, slots=True)
class Violation:
    """A finding with its place in the trace. Rounds and sequences count from 0, positions from 1, as in the file."""

    clause: str
    run: int
    sequence: int | None
    round: int | None
    position: int | None
    recorded: str
    expected: str


@dataclass(slots=True)
class ClauseReport:
    """One clause over one run."""

    id: str
    title: str
    checked: int = 0
    """Facts that the clause could look at."""
    broken: int = 0
    violations: list[Violation] = field(default_factory=list)
    """The first `KEPT_VIOLATIONS` of them."""
    note: str | None = None
    """What was measured, in words."""

    @property
    def verdict(self) -> str:
        """`ok`, `broken` or `not recorded`."""
        if self.broken:
            return "broken"
        return "ok" if self.checked else "not recorded"

    def add(self, violation: Violation) -> None:
        self.broken += 1
        if len(self.violations) < KEPT_VIOLATIONS:
            self.violations.append(violation)


@dataclass(frozen=True, slots=True)
class RunReport:
    run: RunRecord
    sequences: int
    rounds: int
    clauses: tuple[ClauseReport, ...]

    @property
    def holds(self) -> bool:
        return not any(clause.broken for clause in self.clauses)


def f32(value: float) -> float:
    """The nearest float32. Both p and q are float32 and a double has more than twice their digits, so rounding a
    double's quotient gives the very quotient that float32 hardware gives."""
    try:
        result: float = struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)
    return result


def is_probability(value: float) -> bool:
    """Whether a number lies in [0, 1]; float32 sums may pass 1 by a few units in the last place."""
    return 0.0 <= value <= 1.000001  # false for NaN


def number(value: float | int | None) -> str:
    """A number for people, exact enough to see by how much a test failed."""
    if value is None:
        return "nothing"
    return str(value) if isinstance(value, int) else f"{value:.6g}"
