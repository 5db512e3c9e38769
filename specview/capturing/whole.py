"""A round measured on the whole vocabulary: what counts here is how often it is read."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from specview.capturing import deviation
from specview.capturing.measured import Judged, Measured, alternatives
from specview.capturing.observation import Observation
from specview.capturing.passes import expectations, fitted_rows, largest, ranks, same
from specview.capturing.scratch import Scratch
from specview.capturing.verdict import Context, ending


def measured(one: Judged, context: Context, scratch: Scratch) -> Measured:
    """The round; what `scratch` held is lost."""
    seen, n, stop = one.seen, one.seen.proposed, one.found.accepted
    blocks = score_blocks(seen)
    m = blocks[1].shape[0] if len(blocks) > 1 else 0
    probabilities = _softmax(blocks, scratch)
    x = probabilities.numpy()
    best, columns = largest(probabilities, min(max(context.alternatives, 1), x.shape[1]))
    values: list[list[float]] = best.tolist()
    places: list[list[int]] = columns.tolist()
    own = [float(x[i, token]) for i, token in enumerate(one.proposed)]
    if m:
        own += [float(x[n + 1 + i, token]) for i, token in enumerate(one.proposed)]
    least: Tensor | None = None
    if m and not context.greedy:  # greedy distributions are point masses, whose overlap is known
        room = scratch.take("least", (n, x.shape[1]))
        least = torch.minimum(probabilities[:n], probabilities[n + 1 :], out=room)
    shared: list[float] = [] if least is None else least.sum(-1).tolist()
    closing = ending(
        seen, context, one.found, one.output[-1], x[stop], x[n + 1 + stop] if stop < m else None,
        column=one.output[-1], rejected=one.proposed[stop] if stop < n else None,
        least=None if least is None or stop >= n else least[stop].numpy(),
    )  # fmt: skip
    off = _deviations(seen, context, blocks, probabilities, scratch)
    rows = [row for block in blocks for row in block.numpy()]
    # H = log Z − Σ p·score, and log Z = the highest score − log of its probability. The probabilities end here.
    entropy = [
        max(0.0, float(row[ids[0]]) - math.log(some[0]) - mean)
        for row, ids, some, mean in zip(rows, places, values, expectations(probabilities, blocks), strict=True)
    ]
    return Measured(
        entropy,
        [alternatives(some, ids) for some, ids in zip(values, places, strict=True)],
        own,
        ranks(rows, one.proposed, scratch),
        shared,
        off,
        closing,
    )


def score_blocks(seen: Observation) -> list[Tensor]:
    """The target's scores, and the draft's where it has some, float32 and equally wide.

    Models of one family pad their vocabularies differently; a token that one of them lacks has probability 0.
    """
    target, draft = seen.target_scores.float(), seen.draft_scores
    if draft is None or not draft.shape[0]:
        return [target]
    if draft.shape[1] == target.shape[1]:
        return [target, draft.float()]
    return [target, fitted_rows(draft, target.new_empty(draft.shape[0], target.shape[1]))]


def _softmax(blocks: list[Tensor], scratch: Scratch) -> Tensor:
    """(rows of all blocks, columns), written over what the round before computed."""
    rows = sum(scores.shape[0] for scores in blocks)
    found, start = scratch.take("probabilities", (rows, blocks[0].shape[1])), 0
    for scores in blocks:
        torch.softmax(scores, dim=-1, out=found[start : start + scores.shape[0]])
        start += scores.shape[0]
    return found


def _deviations(
    seen: Observation, context: Context, blocks: list[Tensor], probabilities: Tensor, scratch: Scratch
) -> list[float | None]:
    asked, n = context.asked, seen.proposed
    found: list[float | None] = [None] * probabilities.shape[0]
    if asked is None:
        return found
    nothing = asked.nothing
    if nothing:
        # The target's scores are then its logits by construction.
        found[: n + 1] = [0.0] * (n + 1)
    raws = (None if nothing else seen.target_logits, seen.draft_logits)
    for start, scores, raw in zip((0, n + 1), blocks, raws, strict=False):
        if raw is None:
            continue
        into = scratch.take("logits", tuple(scores.shape))
        if nothing and same(scores, fitted_rows(raw, into)):
            found[start : start + len(raw)] = [0.0] * len(raw)
            continue
        for i, row in enumerate(fitted_rows(raw, into)):
            # Row i of the draft stands behind the same prefix as row i of the target.
            wanted = row if nothing else asked.apply(row[None], seen.sequence, seen.committed_before + i)[0]
            used = probabilities[start + i]
            found[start + i] = deviation.of_row(scores[i], used, wanted, ties=asked.sampling.top_p < 1.0)
    return found
