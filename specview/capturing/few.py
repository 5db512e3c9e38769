"""Rounds measured on the few columns that matter, several rounds at once.

transformers keeps 50 tokens (top-k) of a vocabulary unless told otherwise. Everything that a position records can then
be computed on the tokens that some distribution gives probability to there, which is exact. Looking for them takes a
few passes over the rows; what follows are matrices of some hundred columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from engine.round import Sampling
from specview.capturing import deviation
from specview.capturing.measured import Judged, Measured, alternatives
from specview.capturing.passes import Floats, fitted_rows, floors
from specview.capturing.scratch import Scratch
from specview.capturing.settings import Asked
from specview.capturing.verdict import Context, ending
from specview.capturing.whole import score_blocks

_LARGEST_TOP_K = 256
_SLACK = 8
"""Columns of a distribution beyond top-k, for tokens that tie with its last one."""

Ids = NDArray[np.int64]


class _Block(NamedTuple):
    """The rows of one model in one round. Where a row needs fewer columns than W, the others have id −1 and score −∞;
    W does not depend on the round, so that neither do the sums over a row."""

    ids: Ids
    """(rows, W), each sorted as far as it goes."""
    scores: Floats
    """(rows, W)."""
    logits: Floats | None
    """(rows, W) raw ones; None where they were not at hand."""


@dataclass(frozen=True, slots=True)
class Few:
    """R rows of some rounds: the target's of each round, then the draft's of each."""

    ids: Ids
    """(R, W)."""
    scores: Floats
    """(R, W)."""
    logits: Floats
    """(L, W)."""
    of: list[int]
    """(L,): the rows that these logits belong to."""
    rounds: list[tuple[slice, slice]]
    """The rows of each round, of the target and of the draft."""


def gathered(rounds: Sequence[Judged], asked: Asked | None, scratch: Scratch) -> Few | None:
    """The columns that matter in these rounds under the settings asked for; None where they are not few, or not known
    to be: what was asked for is one thing, who is alive in the scores is looked up and not believed."""
    if asked is None or not asked.only_sampling or not 0 < asked.sampling.top_k <= _LARGEST_TOP_K:
        return None
    found: list[tuple[_Block, _Block]] = []
    for one in rounds:
        blocks = _of_round(one, asked.sampling, scratch)
        if blocks is None:
            return None
        found.append(blocks)
    in_order = [pair[model] for model in (0, 1) for pair in found]
    ends = np.cumsum([block.scores.shape[0] for block in in_order]).tolist()
    rows = [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]
    raw = [(block.logits, own) for block, own in zip(in_order, rows, strict=True) if block.logits is not None]
    return Few(
        np.concatenate([block.ids for block in in_order]),
        np.concatenate([block.scores for block in in_order]),
        np.concatenate([in_order[0].scores[:0], *(logits for logits, _ in raw)]),
        [row for _, own in raw for row in range(own.start, own.stop)],
        list(zip(rows[: len(found)], rows[len(found) :], strict=True)),
    )


def _of_round(one: Judged, asked: Sampling, scratch: Scratch) -> tuple[_Block, _Block] | None:
    n, vocab, w = len(one.proposed), one.seen.target_scores.shape[-1], 3 * (asked.top_k + _SLACK)
    if asked.top_k + _SLACK >= vocab:
        return None
    whole: list[tuple[Floats, Floats | None]] = []
    # A key is a position and a token, and the place of that token in a matrix of all columns.
    keys = [np.arange(n) * vocab + np.array(one.proposed, dtype=np.int64)]
    keys.append(np.array([one.found.accepted * vocab + one.output[-1]]))
    names, raws = ("logits", "draft logits"), (one.seen.target_logits, one.seen.draft_logits)
    for name, scores, raw in zip(names, score_blocks(one.seen), raws, strict=False):
        into = scratch.take(name, tuple(scores.shape))
        whole.append((scores.numpy(), None if raw is None else fitted_rows(raw, into).numpy()))
        keys.append(_alive(*whole[-1], asked, scratch))
    key = np.sort(np.concatenate(keys), kind="stable")  # the longest are sorted already
    key = key[np.append(True, key[1:] != key[:-1])]
    position = key // vocab
    counts = np.bincount(position, minlength=n + 1)
    if counts.max() > w:
        return None
    place = position * w + np.arange(key.size) - (np.cumsum(counts) - counts)[position]
    ids = np.full((n + 1, w), -1)
    ids.ravel()[place] = key - position * vocab

    def few(rows: Floats) -> Floats:
        found = np.full((rows.shape[0], w), -np.inf, dtype=np.float32)
        end = np.searchsorted(key, rows.size)
        found.ravel()[place[:end]] = rows.ravel()[key[:end]]
        return found

    target, *draft = [_Block(ids[: len(s)], few(s), None if raw is None else few(raw)) for s, raw in whole]
    return target, draft[0] if draft else _Block(ids[:0], target.scores[:0], None)


def _alive(scores: Floats, logits: Floats | None, asked: Sampling, scratch: Scratch) -> Ids:
    """Sorted keys of the tokens that have probability, or would have some under the settings asked for."""
    alive, more = (scratch.flags(name, scores.shape) for name in ("alive", "more"))
    np.greater(scores, -np.inf, out=alive)
    if logits is None:
        return alive.ravel().nonzero()[0]
    if asked.top_p == 1.0 and asked.min_p == 0.0:
        # As many as top-k keeps are mostly those that it should keep: then nobody else reaches the least of them.
        keys = alive.ravel().nonzero()[0]
        counts = np.bincount(keys // scores.shape[1], minlength=len(scores))
        if counts.min() >= asked.top_k:
            least = np.minimum.reduceat(logits.ravel()[keys], np.cumsum(counts) - counts)
            np.greater_equal(logits, least[:, None], out=more)
            if np.count_nonzero(more) == keys.size:
                return keys
    np.greater_equal(logits, floors(logits, asked.top_k), out=more)
    return np.logical_or(alive, more, out=alive).ravel().nonzero()[0]


def measured(rounds: Sequence[Judged], context: Context, scratch: Scratch) -> list[Measured] | None:
    """Each of the rounds; None where the columns that matter are not few."""
    few = gathered(rounds, context.asked, scratch)
    if few is None or context.asked is None:
        return None
    probabilities = torch.softmax(torch.from_numpy(few.scores), dim=-1)
    x = probabilities.numpy()
    best, places = probabilities.topk(min(max(context.alternatives, 1), x.shape[1]), dim=-1)
    tokens = np.take_along_axis(few.ids, places.numpy(), axis=1)
    top = [alternatives(some, ids) for some, ids in zip(best.tolist(), tokens.tolist(), strict=True)]
    entropy = _entropy(few.scores, x)
    off = _deviations(few, x, context.asked)
    found: list[Measured] = []
    for one, (p, q) in zip(rounds, few.rounds, strict=True):
        n, stop = len(one.proposed), one.found.accepted
        ids, proposed = few.ids[p], np.array(one.proposed, dtype=np.int64)
        columns = (ids[:n] == proposed[:, None]).argmax(-1)
        own = [x[model][:n][np.arange(min(n, len(x[model]))), columns[: len(x[model])]] for model in (p, q)]
        least = np.minimum(x[p][: len(x[q])], x[q])
        shared: list[float] = least.sum(-1).tolist()
        closing = ending(
            one.seen, context, one.found, one.output[-1], x[p][stop], x[q][stop] if stop < len(x[q]) else None,
            column=int((ids[stop] == one.output[-1]).argmax()),
            rejected=int(columns[stop]) if stop < n else None,
            least=least[stop] if stop < len(x[q]) else None,
        )  # fmt: skip
        found.append(
            Measured(
                entropy[p] + entropy[q],
                top[p] + top[q],
                np.concatenate(own).tolist(),
                _ranks(few.scores[p][:n], ids[:n], proposed, columns),
                shared,
                off[p] + off[q],
                closing,
            )
        )
    return found


def _entropy(scores: Floats, x: Floats) -> list[float]:
    """H = log Z − Σ p·score, and log Z = the highest score − log of its probability."""
    products = np.multiply(x, scores, out=np.zeros_like(x), where=x > 0)
    found: list[float] = (scores.max(-1) - np.log(x.max(-1)) - products.sum(-1)).tolist()
    return [max(0.0, nats) for nats in found]


def _ranks(scores: Floats, ids: Ids, tokens: Ids, columns: Ids) -> list[int]:
    own = scores[np.arange(len(columns)), columns][:, None]
    lower, alive = ids < tokens[:, None], scores > -np.inf
    before = (scores > own) | ((scores == own) & lower)
    # A token that was removed has all other removed ones of lower id before it, and only some of them have a column.
    removed = 1 + alive.sum(-1) + tokens - (alive & lower).sum(-1)
    found: list[int] = np.where(own[:, 0] > -np.inf, 1 + before.sum(-1), removed).tolist()
    return found


def _deviations(few: Few, x: Floats, asked: Asked) -> list[float | None]:
    off: list[float | None] = [None] * len(x)
    if few.of:
        wanted = torch.softmax(asked.apply(torch.from_numpy(few.logits), torch.empty(0), 0), dim=-1)
        apart = deviation.largest(torch.from_numpy(x[few.of]), wanted, ties=asked.sampling.top_p < 1.0)
        for row, value in zip(few.of, apart, strict=True):
            off[row] = value
    return off
