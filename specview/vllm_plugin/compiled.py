"""Measures distributions on a processor in one pass over their vocabulary, compiled by numba, which every vLLM for a
processor brings along. Each block of a row is read from memory once, and everything is taken from it while the first
level of the cache holds it; the same in tensor operations costs a pass each, and the start of each.

Rows come as words, the bits of their numbers: `shift` is 16 where those are bfloat16 (uint16), 0 where they are float32
(uint32). Without numba the functions are plain Python, which only a test would want.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from specview.vllm_plugin.columns import INDEX, SCALARS

try:
    from numba import config, njit, prange, set_num_threads
except ModuleNotFoundError:
    COMPILED, njit, prange = False, None, range
else:
    COMPILED = True
    """Whether these functions are fast."""

Array = np.ndarray[Any, Any]

Function = TypeVar("Function", bound=Callable[..., Any])


def _fast(function: Function) -> Function:
    return _made(function, parallel=False)


def _fast_over_rows(function: Function) -> Function:
    return _made(function, parallel=True)


def _made(function: Function, *, parallel: bool) -> Function:
    if njit is None:
        return function
    # Sums may be taken in any order; a NaN stays a NaN.
    options = {"nogil": True, "error_model": "numpy", "fastmath": {"reassoc", "contract", "nsz"}}
    made: Function = njit(parallel=parallel, **options)(function)
    return made


_BLOCK = 512
_ABSOLUTE, _INFINITY, _LOWEST = np.int32(0x7FFFFFFF), np.int32(0x7F800000), np.int32(-(2**31))
_SMALLEST = np.finfo(np.float32).min
_NO_SHIFT, _SHIFT, _HALF, _ODD = np.uint32(0), np.uint32(16), np.uint32(0x7FFF), np.uint32(1)

_CANDIDATE, _TOKEN, _RANK = INDEX["candidate"], INDEX["token"], INDEX["rank"]
_TARGET_PROB, _TOKEN_TARGET_PROB = INDEX["target_prob"], INDEX["token_target_prob"]
_DRAFT_PROB, _TOKEN_DRAFT_PROB = INDEX["draft_prob"], INDEX["token_draft_prob"]
_TARGET_ENTROPY, _TARGET_DEVIATION = INDEX["target_entropy"], INDEX["target_deviation"]
_OVERLAP, _RESIDUAL_MASS = INDEX["overlap"], INDEX["residual_mass"]
_TOPS = len(SCALARS)


def use_threads(count: int) -> None:
    """Work with so many: a parallel loop of another width than torch's makes OpenMP end and start threads."""
    if COMPILED:
        set_num_threads(min(count, config.NUMBA_NUM_THREADS))


@_fast
def _number(word: Any, shift: Any) -> Any:
    return np.uint32(np.uint32(word) << shift).view(np.float32)


@_fast
def _order(word: Any, shift: Any) -> Any:
    """An integer that is larger for a larger number, and largest for a NaN, as in torch."""
    bits = np.uint32(np.uint32(word) << shift).view(np.int32)
    key = np.int32(bits ^ ((bits >> 31) & _ABSOLUTE))
    return _ABSOLUTE if np.int32(bits & _ABSOLUTE) > _INFINITY else key


@_fast
def _peak(words: Any, shift: Any) -> Any:
    """The largest `_order`."""
    peak = _LOWEST
    for i in range(len(words)):
        peak = max(peak, _order(words[i], shift))
    return peak


@_fast
def _sums(probs: Any, words: Any, shift: Any) -> Any:
    """Σ p and Σ p·score. Where p is 0 the score may be −∞, and 0·∞ must not become NaN."""
    mass = weighted = np.float32(0)
    for i in range(len(probs)):
        score = _number(words[i], shift)
        mass += probs[i]
        weighted += probs[i] * (_SMALLEST if score < _SMALLEST else score)
    return mass, weighted


@_fast
def _differing_bits(words: Any, raw: Any, shift: Any, divisor: Any) -> Any:
    """Not 0 where a float32 score is not its raw logit, divided in float32."""
    differing = np.uint32(0)
    for i in range(len(words)):
        number = _number(raw[i], shift)
        scaled = number if divisor == 1 else number / divisor
        differing |= np.uint32(words[i] ^ np.float32(scaled).view(np.uint32))
    return differing


@_fast
def _differing_bits_of_draft(words: Any, raw: Any, shift: Any, divisor: Any) -> Any:
    """Likewise, rounded to the type that both have, to even."""
    differing = np.uint32(0)
    for i in range(len(words)):
        word = np.uint32(raw[i])
        if divisor != 1:
            word = np.float32(_number(raw[i], shift) / divisor).view(np.uint32)
            if shift:
                word = np.uint32(np.uint32(word + _HALF + np.uint32((word >> _SHIFT) & _ODD)) >> _SHIFT)
        differing |= np.uint32(word ^ np.uint32(words[i]))
    return differing


@_fast
def _at_least(scores: Any, bar: Any) -> Any:
    count = np.int32(0)
    for i in range(len(scores)):
        count += np.int32(scores[i] >= bar)
    return count


@_fast
def _above(scores: Any, bar: Any) -> Any:
    count = np.int32(0)
    for i in range(len(scores)):
        count += np.int32(scores[i] > bar)
    return count


@_fast
def _overlap(probs: Any, draft: Any) -> Any:
    """Σ min(p, q), but for a NaN of p alone."""
    overlap = np.float32(0)
    for i in range(len(probs)):
        overlap += probs[i] if probs[i] < draft[i] else draft[i]
    return overlap


@_fast
def _insert(key: Any, which: Any, keys: Any, places: Any) -> Any:
    """Keep it if it is among the largest so far; of equals, the first stay."""
    if key <= keys[-1]:
        return
    place = len(keys) - 1
    while place > 0 and keys[place - 1] < key:
        keys[place], places[place] = keys[place - 1], places[place - 1]
        place -= 1
    keys[place], places[place] = key, which


@_fast
def _best(words: Any, shift: Any, keys: Any, places: Any) -> Any:
    """The ids of the largest, out of the blocks (given by where they start) with the largest peaks: whoever is among
    the largest is in one of as many blocks."""
    ids = np.zeros(len(keys), np.int64)
    keys[:] = _LOWEST
    for start in places:
        if start < 0:  # there are fewer blocks
            continue
        block = words[start : start + _BLOCK]
        for i in range(len(block)):
            _insert(_order(block[i], shift), start + i, keys, ids)
    return ids


@_fast
def _larger(one: Any, other: Any) -> Any:
    """The larger of two, or the NaN."""
    return one if one > other or one != one else other


@_fast
def _entropy(top: Any, best: Any, mass: Any, weighted: Any) -> Any:
    """nats: H = −log p(best) − Σ p·(score − best)"""
    return -np.log(top) - (weighted - best * mass)


@_fast
def _target_row(
    words: Any, scores: Any, probs: Any, raw: Any, wide_raw: Any, divisor: Any, draft: Any, draft_words: Any,
    judged: Any, top: Any, row: Any,
) -> Any:  # fmt: skip
    """Fill one row of the matrix, from its candidate and its token; whether the scores are the scaled logits."""
    vocab = len(scores)
    candidate = min(max(int(row[_CANDIDATE]), 0), vocab - 1)
    token = min(max(int(row[_TOKEN]), 0), vocab - 1)
    keys, places = np.full(max(1, top), _LOWEST), np.full(max(1, top), -1)
    draft_keys, draft_places = keys.copy(), places.copy()
    mass = weighted = overlap = 0.0
    before = 0
    differing = np.uint32(0)
    for start in range(0, vocab, _BLOCK):
        stop = min(start + _BLOCK, vocab)
        _insert(_peak(words[start:stop], _NO_SHIFT), start, keys, places)
        some_mass, some_weighted = _sums(probs[start:stop], words[start:stop], _NO_SHIFT)
        mass += some_mass
        weighted += some_weighted
        if len(raw):
            differing |= _differing_bits(words[start:stop], raw[start:stop], _SHIFT, divisor)
        elif len(wide_raw):
            differing |= _differing_bits(words[start:stop], wide_raw[start:stop], _NO_SHIFT, divisor)
        else:
            differing = _ODD
        if judged:  # equal scores rank by id, as argmax does
            split = min(max(candidate, start), stop)
            before += _at_least(scores[start:split], scores[candidate])
            before += _above(scores[split:stop], scores[candidate])
            if len(draft):
                overlap += _overlap(probs[start:stop], draft[start:stop])
                _insert(_peak(draft_words[start:stop], _NO_SHIFT), start, draft_keys, draft_places)
    ids = _best(words, _NO_SHIFT, keys, places)
    first = ids[0]
    deviation = abs(mass - 1)
    for one in ids:  # only the softmax is left to differ
        expected = np.exp(scores[one] - scores[first]) * probs[first]
        deviation = _larger(abs(probs[one] - expected), deviation)
    row[_TARGET_PROB], row[_TOKEN_TARGET_PROB] = probs[candidate], probs[token]
    row[_TARGET_ENTROPY] = _entropy(probs[first], scores[first], mass, weighted)
    row[_TARGET_DEVIATION] = deviation
    for place in range(top):
        row[_TOPS + place], row[_TOPS + top + place] = ids[place], probs[ids[place]]
    if judged:
        row[_RANK] = 1 + before
        if len(draft):
            ids = _best(draft_words, _NO_SHIFT, draft_keys, draft_places)
            row[_DRAFT_PROB], row[_TOKEN_DRAFT_PROB] = draft[candidate], draft[token]
            for place in range(top):
                row[_TOPS + 2 * top + place] = ids[place]
                row[_TOPS + 3 * top + place] = draft[ids[place]]
        else:
            overlap = probs[candidate]  # of a one-hot q
        row[_OVERLAP] = overlap if mass == mass else mass
        row[_RESIDUAL_MASS] = mass - row[_OVERLAP]  # Σ max(0, p − q) = Σ p − Σ min(p, q)
    return differing == 0


@_fast_over_rows
def measure_targets(
    scores: Any, probs: Any, raw: Any, wide_raw: Any, raw_rows: Any, divisors: Any, draft: Any, judged: Any, top: Any,
    matrix: Any,
) -> Any:  # fmt: skip
    """Fill the matrix, but for what is not a row's own; (n,) whether all scores of a row are its scaled logits.

    Args:
        scores: (n, vocab) float32, and `probs`, their softmax.
        raw: (rows, vocab) words of the logits where those are bfloat16, `wide_raw`, where they are float32; the other
            has no column, and so have both where they are not to be compared.
        raw_rows: (n,) which of them.
        divisors: (n,) float32 temperatures.
        draft: (judged, vocab) float32, or of no column for a one-hot q.
        matrix: (n, `columns.width(top)`) float32, NaN but for each row's candidate and token.
    """
    n = len(scores)
    words, draft_words = scores.view(np.uint32), draft.view(np.uint32)
    exact = np.zeros(n, np.bool_)
    for row in prange(n):
        i = np.int64(row)  # an unsigned index would make a float of the choices below
        narrow = raw_rows[i] if raw.shape[1] else np.int64(0)
        wide = raw_rows[i] if wide_raw.shape[1] else np.int64(0)
        of_draft = i if i < judged and draft.shape[1] else np.int64(0)
        exact[i] = _target_row(
            words[i], scores[i], probs[i], raw[narrow], wide_raw[wide], divisors[i], draft[of_draft],
            draft_words[of_draft], i < judged, top, matrix[i],
        )  # fmt: skip
    return exact


@_fast
def _draft_row(words: Any, raw: Any, shift: Any, divisor: Any, probs: Any, token: Any, facts: Any) -> Any:
    keys, places = np.full(1, _LOWEST), np.full(1, -1)
    mass = weighted = 0.0
    differing = np.uint32(0)
    for start in range(0, len(words), _BLOCK):
        stop = min(start + _BLOCK, len(words))
        _insert(_peak(words[start:stop], shift), start, keys, places)
        some_mass, some_weighted = _sums(probs[start:stop], words[start:stop], shift)
        mass += some_mass
        weighted += some_weighted
        differing |= _differing_bits_of_draft(words[start:stop], raw[start:stop], shift, divisor)
    first = _best(words, shift, keys, places)[0]
    best, top = _number(words[first], shift), probs[first]
    expected = np.exp(_number(words[token], shift) - best) * top
    facts[0] = _larger(abs(probs[token] - expected), abs(mass - 1))
    facts[1] = _entropy(top, best, mass, weighted)
    return differing == 0


@_fast_over_rows
def measure_drafts(words: Any, raw: Any, shift: Any, divisors: Any, probs: Any, tokens: Any, facts: Any) -> Any:
    """(n,) whether all scores of a row are its raw logits under the temperature.

    Args:
        words: (n, vocab) of the scores, and `raw`, of the logits.
        divisors: (n,) float32 temperatures.
        probs: (n, vocab) float32, the softmax of the scores.
        tokens: (n,) drawn from them, at which the softmax is tried.
        facts: (n, 2) to be filled: deviation and entropy.
    """
    exact = np.zeros(len(words), np.bool_)
    for i in prange(len(words)):
        exact[i] = _draft_row(words[i], raw[i], shift, divisors[i], probs[i], tokens[i], facts[i])
    return exact
