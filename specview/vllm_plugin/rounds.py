"""A request's share of a step becomes a `Round`: pure functions of plain numbers, without vLLM and torch."""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from engine.round import Alternatives, CorrectionKind, Cut, Fate, Origin, PhaseTimes, Position, Round
from specview.vllm_plugin.columns import INDEX, SCALARS

Row = Sequence[float]

_CANDIDATE, _TOKEN = INDEX["candidate"], INDEX["token"]


@dataclass(frozen=True, slots=True)
class Facts:
    """What the sampler knew of one request in one step."""

    candidates: Sequence[Row]
    """One row a candidate, padding included, with the columns of `columns`."""
    last: Row
    """The position after the candidates."""
    top: int
    one_hot: bool
    drew_uniforms: bool
    deviation_of_candidates: bool
    deviation_of_last: bool
    draft_deviation: bool
    greedy: bool
    """This request decodes greedily, whatever the others of its batch do."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What the scheduler did with one request in one step."""

    index: int
    gamma: int
    committed_before: int
    generated: int
    """Tokens that the sampler put out, before the scheduler cut them at an end."""
    committed: tuple[int, ...]
    ended: Cut | None = None
    """Why the request ended in this step; None when it goes on."""
    target_kv_before: int | None = None
    target_kv_written: int | None = None
    target_kv_after: int | None = None
    scheduled_candidates: int = 0
    """For a step whose sampling was not seen."""


def to_round(progress: Progress, facts: Facts | None, times: PhaseTimes) -> Round:
    """The round that one verify step was for one request."""
    if facts is None:
        return _unseen(progress, times)
    rows = [row for row in facts.candidates if row[_CANDIDATE] >= 0]  # −1 pads what the grammar ruled out
    proposed = len(rows)
    accepted = min(progress.generated - 1, proposed)
    kept = min(accepted, len(progress.committed))
    cut = progress.ended if len(progress.committed) <= accepted else None
    end = facts.candidates[proposed] if accepted == proposed < len(facts.candidates) else facts.last
    kind: CorrectionKind = "target" if proposed == 0 else "bonus" if accepted == proposed else "correction"
    drawn = rows[accepted] if accepted < proposed else end
    ending = {} if cut is not None else _ending(drawn, kind, facts)
    origins: list[Origin] = ["accepted"] * kept
    if cut is None:
        origins.append(kind)
    return Round(
        index=progress.index,
        gamma=progress.gamma,
        proposed=proposed,
        judged=min(proposed, accepted + 1),
        accepted=accepted,
        committed_before=progress.committed_before,
        committed_after=progress.committed_before + len(progress.committed),
        committed=tuple(zip(progress.committed, origins, strict=True)),
        positions=(
            *(_position(i, row, _fate(i, accepted, kept), facts) for i, row in enumerate(rows)),
            _last_position(proposed + 1, end, facts, end is facts.last),
        ),
        cut=cut,
        target_kv_before=progress.target_kv_before,
        target_kv_written=progress.target_kv_written,
        target_kv_after=None if cut is not None else progress.target_kv_after,
        target_calls=1,
        times=times,
        **ending,  # type: ignore[arg-type]
    )


def _unseen(progress: Progress, times: PhaseTimes) -> Round:
    proposed = progress.scheduled_candidates
    accepted = min(progress.generated - 1, proposed)
    cut = progress.ended if len(progress.committed) <= accepted else None
    kind: CorrectionKind = "target" if proposed == 0 else "bonus" if accepted == proposed else "correction"
    origins: list[Origin] = ["accepted"] * min(accepted, len(progress.committed))
    if cut is None:
        origins.append(kind)
    return Round(
        index=progress.index,
        gamma=progress.gamma,
        proposed=proposed,
        judged=min(proposed, accepted + 1),
        accepted=accepted,
        committed_before=progress.committed_before,
        committed_after=progress.committed_before + len(progress.committed),
        committed=tuple(zip(progress.committed, origins, strict=True)),
        correction_token=None if cut is not None else progress.committed[-1],
        correction_kind=None if cut is not None else kind,
        cut=cut,
        target_kv_before=progress.target_kv_before,
        target_kv_written=progress.target_kv_written,
        target_kv_after=None if cut is not None else progress.target_kv_after,
        target_calls=1,
        times=times,
    )


def _fate(place: int, accepted: int, kept: int) -> Fate:
    if place < accepted:
        return "accepted" if place < kept else "cut"
    return "rejected" if place == accepted else "discarded"


def _position(place: int, row: Row, fate: Fate, facts: Facts) -> Position:
    candidate = int(row[_CANDIDATE])
    target_prob = row[INDEX["target_prob"]]
    rank = None if math.isnan(target_prob) else int(row[INDEX["rank"]])
    judged = fate != "discarded"
    return Position(
        position=place + 1,
        candidate=candidate,
        draft_prob=1.0 if facts.one_hot else row[INDEX["draft_prob"]],
        target_prob=target_prob,
        u=row[INDEX["u"]] if judged and facts.drew_uniforms and not facts.greedy else None,
        fate=fate,
        # Greedy distributions are point masses: they overlap altogether or not at all.
        overlap=float(rank == 1) if facts.greedy and rank is not None else row[INDEX["overlap"]],
        draft_entropy=0.0 if facts.one_hot else row[INDEX["draft_entropy"]],
        target_entropy=_entropy(row),
        rank=rank,
        draft_top=((candidate, 1.0),)
        if facts.one_hot and facts.top
        else _top(row, len(SCALARS) + 2 * facts.top, facts),
        target_top=_top(row, len(SCALARS), facts),
        draft_deviation=row[INDEX["draft_deviation"]] if facts.draft_deviation else None,
        target_deviation=row[INDEX["target_deviation"]] if facts.deviation_of_candidates else None,
    )


def _last_position(position: int, row: Row, facts: Facts, is_last: bool) -> Position:
    deviates = facts.deviation_of_last if is_last else facts.deviation_of_candidates
    return Position(
        position=position,
        target_entropy=_entropy(row),
        target_top=_top(row, len(SCALARS), facts),
        target_deviation=row[INDEX["target_deviation"]] if deviates else None,
    )


def _ending(row: Row, kind: CorrectionKind, facts: Facts) -> dict[str, float | int | str | bool | None]:
    """The token that ended the round, and the distribution that it was drawn from (clauses C6 and C7)."""
    found: dict[str, float | int | str | bool | None] = {
        "correction_token": int(row[_TOKEN]),
        "correction_kind": kind,
        "correction_target_prob": row[INDEX["token_target_prob"]],
    }
    if kind != "correction":
        found["correction_prob"] = 1.0 if facts.greedy else row[INDEX["token_target_prob"]]
        return found
    q = 0.0 if facts.one_hot else row[INDEX["token_draft_prob"]]
    mass = _within_unit(row[INDEX["residual_mass"]])
    found["correction_draft_prob"] = q
    if facts.greedy:
        # Of two point masses that differ, the residual is the target's, whole.
        return found | {"correction_prob": 1.0, "residual_mass": 1.0}
    found["residual_mass"] = mass
    if mass > sys.float_info.min:
        found["correction_prob"] = _within_unit((row[INDEX["token_target_prob"]] - q) / mass)
    return found


def _within_unit(value: float) -> float:
    """A float32 sum over the vocabulary may leave [0, 1] by a rounding error; NaN stays what it is."""
    return value if math.isnan(value) else min(1.0, max(0.0, value))


def _entropy(row: Row) -> float:
    nats = row[INDEX["target_entropy"]]
    return 0.0 if nats < 0 else nats  # rounding may leave a point mass a hair below zero; NaN stays


def _top(row: Row, start: int, facts: Facts) -> Alternatives:
    ids, probs = row[start : start + facts.top], row[start + facts.top : start + 2 * facts.top]
    found = tuple(zip(map(int, ids), probs, strict=True))
    if all(map(operator.gt, probs, (*probs[1:], 0.0))):
        return found
    # Equal probabilities come in any order; a NaN is evidence and stays.
    return tuple(sorted((one for one in found if not one[1] <= 0), key=lambda one: (-one[1], one[0])))
