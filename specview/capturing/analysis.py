"""An observation becomes a `Round`: pure functions of tensors, run on the capture's own thread.

The probabilities are those that transformers itself computed: the softmax, in float32, of the same scores.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from engine.round import Alternatives, Position, Round
from specview.capturing import deviation
from specview.capturing.columns import Matrices, matrices
from specview.capturing.observation import Observation
from specview.capturing.passes import count_above, count_equal, largest
from specview.capturing.verdict import Context, Verdict, ending, verdict


def to_round(seen: Observation, context: Context) -> Round:
    """The round that an observation shows."""
    device = seen.target_scores.device
    candidates = seen.sequence[seen.committed_before :].to(device)
    drawn = seen.output.to(device)
    proposed: list[int] = candidates.tolist()
    output: list[int] = drawn.tolist()
    scores = matrices(seen, context.asked, torch.cat([candidates, drawn]))
    p = torch.softmax(scores.target, dim=-1)
    q = None if scores.draft is None else torch.softmax(scores.draft, dim=-1)
    found = verdict(seen, context, scores, proposed, output)
    end = ending(seen, context, found, scores, p, q, proposed, output[-1])
    kv = seen.kv
    return Round(
        index=seen.index,
        gamma=seen.gamma,
        proposed=len(proposed),
        judged=found.judged,
        accepted=found.accepted,
        committed_before=seen.committed_before,
        committed_after=seen.committed_before + len(output),
        committed=tuple(zip(output, found.origins, strict=True)),
        positions=_positions(seen, context, scores, p, q, candidates, found),
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


TWICE = "The settings asked for were applied twice to the draft, so q is sharper than asked."


def settings_applied_twice(seen: Observation, context: Context) -> bool:
    """Whether the draft's distributions are off the settings asked for, and are those of applying them twice.

    That is what transformers 5.24 does: the processors prepared for the target are handed to the assistant's own
    `generate`, which prepares and appends its own.
    """
    if context.asked is None or seen.draft_scores is None or not seen.proposed:
        return False
    scores = matrices(seen, context.asked, seen.sequence[seen.committed_before :].to(seen.target_scores.device))
    if scores.draft is None or scores.draft_asked is None or not context.asked.only_sampling:
        return False
    ties = context.asked.sampling.top_p < 1.0
    once = deviation.largest(scores.draft, scores.draft_asked, ties=ties)
    again = context.asked.apply(scores.draft_asked, seen.sequence, seen.committed_before)
    return max(once) > deviation.NOTICEABLE >= max(deviation.largest(scores.draft, again, ties=ties))


def _positions(
    seen: Observation,
    context: Context,
    scores: Matrices,
    p: Tensor,
    q: Tensor | None,
    candidates: Tensor,
    found: Verdict,
) -> tuple[Position, ...]:
    n = candidates.shape[0]
    proposed: list[int] = candidates.tolist()
    column = scores.column(candidates)
    target = _rows(scores.target, p, scores, context.alternatives)
    off = _off(scores.target, scores.target_asked, context)
    out = [
        Position(i + 1, target_entropy=entropy, target_top=top, target_deviation=apart)
        for i, (entropy, top, apart) in enumerate(zip(target.entropy, target.top, off, strict=True))
    ]
    own = p[:n].gather(1, column[:, None]).squeeze(1).tolist()
    ranks = _ranks(scores.target[:n], column)
    for i in range(n):
        out[i] = replace(out[i], candidate=proposed[i], target_prob=own[i], rank=ranks[i], fate=found.fates[i])
        if seen.point_mass:
            out[i] = replace(out[i], draft_prob=1.0, draft_entropy=0.0, draft_top=((proposed[i], 1.0),), overlap=own[i])
    if q is not None and scores.draft is not None and n:
        draft = _rows(scores.draft, q, scores, context.alternatives)
        off = _off(scores.draft, scores.draft_asked, context)
        chosen = q.gather(1, column[:, None]).squeeze(1).tolist()
        overlap = torch.minimum(p[:n], q).sum(-1).tolist()
        for i in range(n):
            out[i] = replace(
                out[i],
                draft_prob=chosen[i],
                draft_entropy=draft.entropy[i],
                draft_top=draft.top[i],
                draft_deviation=off[i],
                overlap=overlap[i],
            )
    if context.greedy:
        # Greedy distributions are point masses: they overlap altogether or not at all.
        out[:n] = [replace(one, overlap=None if one.overlap is None else float(one.rank == 1)) for one in out[:n]]
    return tuple(out)


@dataclass(frozen=True, slots=True)
class _Rows:
    entropy: list[float]
    """Nats."""
    top: list[Alternatives]


def _rows(scores: Tensor, probabilities: Tensor, of: Matrices, alternatives: int) -> _Rows:
    values, columns = largest(scores, min(max(alternatives, 1), scores.shape[-1]))
    best = probabilities.gather(1, columns)
    # H = log Z − Σ p·score. Where p is 0 the score may be −∞, and 0·∞ must not become NaN.
    finite = scores.clamp_min(torch.finfo(scores.dtype).min)
    entropy = values[:, 0] - best[:, 0].log() - torch.linalg.vecdot(probabilities, finite)
    top = [
        tuple(sorted(((t, x) for t, x in zip(ts, xs, strict=True) if x > 0), key=lambda one: (-one[1], one[0])))
        for ts, xs in zip(of.token(columns).tolist(), best.tolist(), strict=True)
    ]
    return _Rows([max(0.0, nats) for nats in entropy.tolist()], top)


def _ranks(scores: Tensor, column: Tensor) -> list[int]:
    """Place of each candidate in its row, 1 = most probable; ties go to the lower id."""
    own = scores.gather(1, column[:, None])
    ranks = [1 + int(above) for above in count_above(scores, own).tolist()]
    for i, level in enumerate(count_equal(scores, own).tolist()):
        if level > 1:
            ranks[i] += int((scores[i, : int(column[i])] == own[i]).sum())
    return ranks


def _off(scores: Tensor, asked: Tensor | None, context: Context) -> list[float] | list[None]:
    """Settings deviation of each row; None where the raw logits were not at hand."""
    if asked is None or context.asked is None:
        return [None] * scores.shape[0]
    if asked is scores or torch.equal(asked, scores):
        return [0.0] * scores.shape[0]
    return deviation.largest(scores, asked, ties=context.asked.sampling.top_p < 1.0)
