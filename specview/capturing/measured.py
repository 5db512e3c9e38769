"""What the matrices of a round say, as plain numbers; and what is asked of them."""

from __future__ import annotations

from dataclasses import dataclass

from engine.round import Alternatives
from specview.capturing.observation import Observation
from specview.capturing.verdict import Context, Ending, Verdict, verdict


@dataclass(frozen=True, slots=True)
class Judged:
    """A round of which it is known how it went."""

    seen: Observation
    proposed: list[int]
    output: list[int]
    found: Verdict

    @classmethod
    def of(cls, seen: Observation, context: Context) -> Judged:
        proposed: list[int] = seen.sequence[seen.committed_before :].tolist()
        output: list[int] = seen.output.tolist()
        return cls(seen, proposed, output, verdict(seen, context, proposed, output))


@dataclass(frozen=True, slots=True)
class Measured:
    """The n + 1 rows of the target come before the n of the draft (none where it has no distribution)."""

    entropy: list[float]
    """Nats, of each row."""
    top: list[Alternatives]
    """Of each row."""
    own: list[float]
    """The candidates' probabilities: n of the target, then n of the draft."""
    ranks: list[int]
    """Place of each candidate in the target's row, 1 = most probable; ties go to the lower id."""
    overlap: list[float]
    """Of each candidate's two rows; empty without the draft's."""
    deviation: list[float | None]
    """Settings deviation of each row; None where the raw logits were not at hand."""
    end: Ending


def alternatives(probabilities: list[float], ids: list[int]) -> Alternatives:
    """The most probable first, as they are given; ties by id, and nobody of probability 0."""
    if probabilities[-1] > 0 and len(set(probabilities)) == len(probabilities):
        return tuple(zip(ids, probabilities, strict=True))
    some = [(token, x) for token, x in zip(ids, probabilities, strict=True) if x > 0]
    return tuple(sorted(some, key=lambda one: (-one[1], one[0])))
