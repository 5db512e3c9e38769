"""What both importers make of a log: rounds, each with the sequence that it belongs to."""

from __future__ import annotations

from dataclasses import dataclass

from engine.round import CorrectionKind, Fate, Position, Round, StopReason

MOST_CANDIDATES = 4096
"""Candidates in one round; a larger number is a broken log, not a proposer."""


@dataclass(frozen=True, slots=True)
class Step:
    """One round of one request, as its log told it."""

    sequence: object
    """Equal for the rounds of one sequence."""
    round: Round
    request_id: str | None = None
    prompt_tokens: int = 0
    """Committed tokens before the sequence's first round."""
    ends: StopReason | None = None
    """Why the sequence ends with this round, where the log tells."""


@dataclass(slots=True)
class Facts:
    """What a log tells about the run as a whole, as it becomes known."""

    source: str
    target: str | None = None
    gamma: int | None = None


def fates(proposed: int, accepted: int) -> list[Fate]:
    """The fates that a number of accepted candidates stands for: accepted, then rejected, then discarded."""
    found: list[Fate] = ["accepted"] * min(accepted, proposed)
    if accepted < proposed:
        found.append("rejected")
    return found + ["discarded"] * (proposed - len(found))


def kind(proposed: int, accepted: int) -> CorrectionKind:
    """What the token after the accepted candidates is."""
    if proposed == 0:
        return "target"
    return "bonus" if accepted >= proposed else "correction"


def bare_positions(proposed: int, accepted: int) -> tuple[Position, ...]:
    """Positions of which no more than their fate is known."""
    return tuple(Position(i, fate=fate) for i, fate in enumerate(fates(proposed, accepted), 1))
