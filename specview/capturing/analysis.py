"""Observations become `Round`s: pure functions of tensors.

The probabilities are those that transformers itself computed: the softmax, in float32, of the same scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from engine.round import Position, Round
from specview.capturing import deviation, few, whole
from specview.capturing.measured import Judged, Measured
from specview.capturing.observation import Observation
from specview.capturing.passes import fitted_rows
from specview.capturing.scratch import Scratch
from specview.capturing.verdict import Context


@torch.inference_mode()
def to_rounds(rounds: Sequence[Observation], context: Context, scratch: Scratch) -> list[Round]:
    """The rounds that observations of one call show, each whatever the others are; what `scratch` held is lost."""
    judged = [Judged.of(seen.on_host(), context) for seen in rounds]
    measured = few.measured(judged, context, scratch)
    if measured is None:
        measured = [whole.measured(one, context, scratch) for one in judged]
    return [_round(one, facts, context) for one, facts in zip(judged, measured, strict=True)]


TWICE = "The settings asked for were applied twice to the draft, so q is sharper than asked."


@torch.inference_mode()
def settings_applied_twice(seen: Observation, context: Context, scratch: Scratch) -> bool:
    """Whether the draft's distributions are off the settings asked for, and are those of applying them twice.

    That is what transformers 5.24 does: the processors prepared for the target are handed to the assistant's own
    `generate`, which prepares and appends its own.
    """
    asked = context.asked
    if asked is None or not asked.only_sampling or seen.draft_scores is None or not seen.draft_logits:
        return False
    # What the target does with its logits is not asked here.
    one = Judged.of(replace(seen.on_host(), target_logits=None), context)
    columns = few.gathered([one], asked, scratch)
    if columns is not None:
        scores, logits = torch.from_numpy(columns.scores[columns.of]), torch.from_numpy(columns.logits)
    else:
        scores = whole.score_blocks(one.seen)[1]
        logits = fitted_rows(one.seen.draft_logits or (), torch.empty(scores.shape))
    q, ties = torch.softmax(scores, dim=-1), asked.sampling.top_p < 1.0
    once = asked.apply(logits, one.seen.sequence, one.seen.committed_before)
    twice = asked.apply(once, one.seen.sequence, one.seen.committed_before)
    off_once, off_twice = (max(deviation.largest(q, of.softmax(-1), ties=ties)) for of in (once, twice))
    return off_once > deviation.NOTICEABLE >= off_twice


def _round(one: Judged, facts: Measured, context: Context) -> Round:
    seen, found, end, kv = one.seen, one.found, facts.end, one.seen.kv
    return Round(
        index=seen.index,
        gamma=seen.gamma,
        proposed=len(one.proposed),
        judged=found.judged,
        accepted=found.accepted,
        committed_before=seen.committed_before,
        committed_after=seen.committed_before + len(one.output),
        committed=tuple(zip(one.output, found.origins, strict=True)),
        positions=_positions(one, facts, context),
        correction_token=end.token,
        correction_kind=found.kind,
        correction_prob=end.prob,
        correction_target_prob=end.target_prob,
        correction_draft_prob=end.draft_prob,
        residual_mass=end.residual_mass,
        residual_fallback=end.fallback,
        cut=found.cut,
        draft_stop=seen.draft_stop,
        target_kv_before=kv.target_before,
        target_kv_written=kv.target_written,
        target_kv_after=kv.target_after,
        draft_kv_before=kv.draft_before,
        draft_kv_written=kv.draft_written,
        draft_kv_after=kv.draft_after,
        target_calls=seen.target_calls,
        draft_calls=seen.draft_calls,
        times=seen.times,
    )


def _positions(one: Judged, facts: Measured, context: Context) -> tuple[Position, ...]:
    n = len(one.proposed)
    drafted = one.seen.draft_scores is not None
    sure = one.seen.point_mass and not drafted
    overlap = facts.overlap
    if context.greedy and (drafted or sure):
        # Greedy distributions are point masses: they overlap altogether or not at all.
        overlap = [float(rank == 1) for rank in facts.ranks]
    elif sure:
        overlap = facts.own[:n]
    out = []
    for i, candidate in enumerate(one.proposed):
        j = n + 1 + i
        out.append(
            Position(
                i + 1,
                candidate=candidate,
                draft_prob=facts.own[n + i] if drafted else 1.0 if sure else None,
                target_prob=facts.own[i],
                fate=one.found.fates[i],
                overlap=overlap[i] if overlap else None,
                draft_entropy=facts.entropy[j] if drafted else 0.0 if sure else None,
                target_entropy=facts.entropy[i],
                rank=facts.ranks[i],
                draft_top=facts.top[j] if drafted else ((candidate, 1.0),) if sure else (),
                target_top=facts.top[i],
                draft_deviation=facts.deviation[j] if drafted else None,
                target_deviation=facts.deviation[i],
            )
        )
    out.append(
        Position(
            n + 1,
            target_entropy=facts.entropy[n],
            target_top=facts.top[n],
            target_deviation=facts.deviation[n],
        )
    )
    return tuple(out)
