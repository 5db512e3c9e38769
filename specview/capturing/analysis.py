"""An observation becomes a `Round`: pure functions of tensors.

The probabilities are those that transformers itself computed: the softmax, in float32, of the same scores. It is the
generation that waits for them, so what counts here is how often the whole vocabulary is read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from engine.round import Alternatives, Position, Round
from specview.capturing import deviation
from specview.capturing.columns import Matrices, matrices
from specview.capturing.observation import Observation
from specview.capturing.passes import count_above, count_equal, expectations, largest, overlap, same
from specview.capturing.scratch import Scratch
from specview.capturing.verdict import Context, Verdict, ending, verdict


@torch.inference_mode()
def to_round(seen: Observation, context: Context, scratch: Scratch) -> Round:
    """The round that an observation shows; what `scratch` held is lost."""
    device = seen.target_scores.device
    candidates = seen.sequence[seen.committed_before :].to(device)
    drawn = seen.output.to(device)
    proposed: list[int] = candidates.tolist()
    output: list[int] = drawn.tolist()
    scores = matrices(seen, context.asked, torch.cat([candidates, drawn]), scratch)
    blocks = [scores.target] if scores.draft is None else [scores.target, scores.draft]
    probabilities = _softmax(blocks, scratch)
    p = probabilities[: len(proposed) + 1]
    q = None if scores.draft is None else probabilities[len(proposed) + 1 :]
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
        positions=_positions(seen, context, scores, blocks, probabilities, candidates, found, scratch),
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


@torch.inference_mode()
def settings_applied_twice(seen: Observation, context: Context) -> bool:
    """Whether the draft's distributions are off the settings asked for, and are those of applying them twice.

    That is what transformers 5.24 does: the processors prepared for the target are handed to the assistant's own
    `generate`, which prepares and appends its own.
    """
    if context.asked is None or seen.draft_scores is None or not seen.proposed:
        return False
    asked, t = context.asked, seen.committed_before
    no_tokens = seen.sequence[:0].to(seen.target_scores.device)
    # What the target does with its logits is not asked here.
    scores = matrices(replace(seen, target_logits=None), asked, no_tokens, Scratch())
    if scores.draft is None or scores.logits is None or not asked.only_sampling:
        return False
    q, ties = torch.softmax(scores.draft, dim=-1), asked.sampling.top_p < 1.0
    once = asked.apply(scores.logits, seen.sequence, t)
    twice = asked.apply(once, seen.sequence, t)
    off_once, off_twice = (max(deviation.largest(q, one.softmax(-1), ties=ties)) for one in (once, twice))
    return off_once > deviation.NOTICEABLE >= off_twice


def _softmax(blocks: list[Tensor], scratch: Scratch) -> Tensor:
    """(rows of all blocks, columns), written over what the round before computed."""
    rows = sum(scores.shape[0] for scores in blocks)
    found, start = scratch.take("probabilities", (rows, blocks[0].shape[1]), blocks[0].device), 0
    for scores in blocks:
        torch.softmax(scores, dim=-1, out=found[start : start + scores.shape[0]])
        start += scores.shape[0]
    return found


def _positions(
    seen: Observation,
    context: Context,
    scores: Matrices,
    blocks: list[Tensor],
    probabilities: Tensor,
    candidates: Tensor,
    found: Verdict,
    scratch: Scratch,
) -> tuple[Position, ...]:
    n = candidates.shape[0]
    column = scores.column(candidates)
    rows = _rows(blocks, probabilities, scores, column, context.alternatives, scratch)
    off = _deviations(seen, context, scores, blocks, probabilities, scratch)
    ids: list[int] = candidates.tolist()
    drafted = scores.draft is not None
    sure = seen.point_mass and not drafted
    least: list[float] = []
    if context.greedy and (drafted or sure):
        # Greedy distributions are point masses: they overlap altogether or not at all.
        least = [float(rank == 1) for rank in rows.ranks]
    elif drafted and n:
        least = overlap(probabilities[:n], probabilities[n + 1 :], scratch).tolist()
    elif sure:
        least = rows.own[:n]
    out = []
    for i in range(n):
        j = n + 1 + i
        out.append(
            Position(
                i + 1,
                candidate=ids[i],
                draft_prob=rows.own[j] if drafted else 1.0 if sure else None,
                target_prob=rows.own[i],
                fate=found.fates[i],
                overlap=least[i] if least else None,
                draft_entropy=rows.entropy[j] if drafted else 0.0 if sure else None,
                target_entropy=rows.entropy[i],
                rank=rows.ranks[i],
                draft_top=rows.top[j] if drafted else ((ids[i], 1.0),) if sure else (),
                target_top=rows.top[i],
                draft_deviation=off[j] if drafted else None,
                target_deviation=off[i],
            )
        )
    out.append(Position(n + 1, target_entropy=rows.entropy[n], target_top=rows.top[n], target_deviation=off[n]))
    return tuple(out)


@dataclass(frozen=True, slots=True)
class _Rows:
    """Facts of the rows, the target's n + 1 before the draft's n."""

    entropy: list[float]
    """Nats."""
    top: list[Alternatives]
    own: list[float]
    """The candidate's probability; that of column 0 where there is no candidate."""
    ranks: list[int]
    """Place of each candidate in the target's row, 1 = most probable; ties go to the lower id."""


def _rows(
    blocks: list[Tensor], probabilities: Tensor, of: Matrices, column: Tensor, alternatives: int, scratch: Scratch
) -> _Rows:
    best, columns = largest(probabilities, min(max(alternatives, 1), probabilities.shape[-1]))
    places = torch.split(columns, [scores.shape[0] for scores in blocks])
    highest = [scores.gather(1, place) for scores, place in zip(blocks, places, strict=True)]
    # H = log Z − Σ p·score, and log Z = the highest score − log of its probability.
    most = torch.cat([scores[:, 0] for scores in highest])
    entropy = most - best[:, 0].log() - expectations(probabilities, blocks, scratch)
    top = [
        tuple(sorted(((t, x) for t, x in zip(ts, xs, strict=True) if x > 0), key=lambda one: (-one[1], one[0])))
        for ts, xs in zip(of.token(columns).tolist(), best.tolist(), strict=True)
    ]
    n = column.shape[0]
    everywhere = torch.cat([column, column.new_zeros(1), column])[: probabilities.shape[0]]
    own = probabilities.gather(1, everywhere[:, None])
    low = (own[:n] <= best[:n, -1:]).squeeze(1).tolist()
    ranks = _ranks(blocks[0][:n], column, highest[0][:n], columns[:n], low, scratch) if n else []
    return _Rows([max(0.0, nats) for nats in entropy.tolist()], top, own.squeeze(1).tolist(), ranks)


def _ranks(
    scores: Tensor, column: Tensor, highest: Tensor, columns: Tensor, low: list[bool], scratch: Scratch
) -> list[int]:
    """Where nobody is `low`, every candidate is more probable than the last of the highest, and finds its place among
    them. Otherwise all rows are read."""
    own = scores.gather(1, column[:, None])
    if not any(low):
        before = (highest > own) | ((highest == own) & (columns < column[:, None]))
        found: list[int] = (1 + before.sum(-1)).tolist()
        return found
    ranks = [1 + int(above) for above in count_above(scores, own, scratch).tolist()]
    for i, level in enumerate(count_equal(scores, own, scratch).tolist()):
        if level > 1:
            ranks[i] += int((scores[i, : int(column[i])] == own[i]).sum())
    return ranks


def _deviations(
    seen: Observation,
    context: Context,
    scores: Matrices,
    blocks: list[Tensor],
    probabilities: Tensor,
    scratch: Scratch,
) -> list[float | None]:
    """Settings deviation of each row; None where the raw logits were not at hand."""
    asked, n, t = context.asked, seen.proposed, seen.committed_before
    found: list[float | None] = [None] * probabilities.shape[0]
    if asked is None:
        return found
    if asked.nothing:
        found[: n + 1] = [0.0] * (n + 1)
    if scores.logits is None:
        return found
    if asked.nothing and scores.draft is not None and same(scores.draft, scores.logits, scratch):
        found[n + 1 :] = [0.0] * n
        return found
    sequence = seen.sequence.to(scores.logits.device)
    rows = [row for block in blocks for row in block][scores.of]
    used = probabilities[scores.of]
    # Row i of the draft stands behind the same prefix as row i of the target.
    split = max(0, n + 1 - scores.of.start)
    parts = (slice(0, None),) if asked.only_sampling else (slice(0, split), slice(split, None))
    apart: list[float] = []
    for part in parts:
        apart += deviation.of_rows(rows[part], used[part], scores.logits[part], asked, sequence, t, scratch)
    found[scores.of] = apart
    return found
