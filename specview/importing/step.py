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

    source: str = "log"
    """Tells the contract that much of these rounds was worked out, not seen."""
    target: str | None = None
    gamma: int | None = None


def fates(proposed: int, judged: int | None, rejected: bool) -> list[Fate | None]:
    """What a first rejection says of each candidate; nothing where the log does not tell it.

    Args:
        judged: candidates up to the first rejected one, itself included.
        rejected: whether one was rejected.
    """
    if judged is None:
        return [None] * proposed
    found: list[Fate | None] = ["accepted"] * min(proposed, judged - rejected)
    if rejected and len(found) < proposed:
        found.append("rejected")
    return found + ["discarded"] * (proposed - len(found))


def kind(proposed: int, accepted: int) -> CorrectionKind:
    """What the token after the accepted candidates is."""
    if proposed == 0:
        return "target"
    return "bonus" if accepted >= proposed else "correction"


def bare_positions(proposed: int) -> tuple[Position, ...]:
    """Positions of which no more is known than that a candidate stood there."""
    return tuple(Position(i) for i in range(1, proposed + 1))
