"""Hands rows that lie in a processor's memory to the functions of `compiled`."""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from specview.vllm_plugin.columns import INDEX, width
from specview.vllm_plugin.deviation import GREEDY_BELOW, target_deviation
from specview.vllm_plugin.entropy import own_entropy
from specview.vllm_plugin.scored import Scored, Scratch

Array = np.ndarray[Any, Any]

_WORDS = {torch.bfloat16: (torch.uint16, 16), torch.float32: (torch.uint32, 0)}
_NO_ROWS = np.zeros(0, np.int64)


def measurable(tensor: Tensor) -> bool:
    """Whether these rows can be measured here, and soon."""
    return tensor.device.type == "cpu" and bool(_functions().COMPILED)


def _functions() -> ModuleType:
    # Not before it is needed: vLLM looks through all loaded modules as it starts, and stumbles over numba's.
    from specview.vllm_plugin import compiled

    return compiled


def compile_for(dtype: torch.dtype) -> None:
    """Compile for logits of this type, so that no step waits for it."""
    _functions().use_threads(torch.get_num_threads())
    scratch = Scratch()
    raw = torch.zeros(2, 2, dtype=dtype)
    scores, token = raw.to(torch.float32), torch.zeros(2, dtype=torch.int64)
    packed(Scored(scores, token, token, raw=raw, judged=1, draft=scores[:1]), 1, scratch)
    draft_facts(raw, None, raw, scores, token)


def packed(s: Scored, top: int, scratch: Scratch) -> Tensor:
    """(n, `columns.width(top)`) as `measure.pack` gives it."""
    probs = s.probs
    if probs is None:
        probs = torch.softmax(s.scores, dim=-1, out=scratch.get("probs", s.scores))
    n = len(s.scores)
    matrix = torch.full((n, width(top)), math.nan)
    matrix[:, INDEX["candidate"]] = s.candidate
    matrix[:, INDEX["token"]] = s.token
    raw, rows = None, _NO_ROWS
    if s.raw is not None and s.top_k is None and s.top_p is None:
        raw = s.raw if s.raw.dtype in _WORDS else s.raw.float()
        rows = np.arange(n) if s.raw_rows is None else s.raw_rows.to(torch.int64).numpy()
    narrow = raw if raw is not None and raw.dtype == torch.bfloat16 else torch.empty(1, 0, dtype=torch.bfloat16)
    wide = raw if raw is not None and raw.dtype == torch.float32 else torch.empty(1, 0)
    draft = torch.empty(1, 0) if s.draft is None else s.draft
    exact = _functions().measure_targets(
        _numbers(s.scores), _numbers(probs), _words(narrow)[0], _words(wide)[0], rows, _divisors(s.temperature, n),
        _numbers(draft), s.judged, top, matrix.numpy(),
    )  # fmt: skip
    if s.raw is None:
        matrix[:, INDEX["target_deviation"]] = math.nan
    elif not exact.all():
        matrix[:, INDEX["target_deviation"]] = target_deviation(s, probs, scratch.get("work", s.scores), scratch)
    if s.uniform is not None:
        matrix = matrix.to(s.uniform.dtype)  # vLLM draws in float64
    of_judged = matrix[: s.judged]
    if s.uniform is not None:
        of_judged[:, INDEX["u"]] = s.uniform
    if s.draft is not None:
        entropy = own_entropy(s.draft, scratch) if s.draft_entropy is None else s.draft_entropy
        of_judged[:, INDEX["draft_entropy"]] = entropy
    if s.draft_deviation is not None:
        of_judged[:, INDEX["draft_deviation"]] = s.draft_deviation
    return matrix


def draft_facts(
    raw: Tensor, temperature: Tensor | None, scores: Tensor, probs: Tensor, tokens: Tensor
) -> tuple[Tensor, Tensor] | None:
    """As `drafts.draft_facts`; None where the scores are not the logits under the temperature, or of a type that is not
    known here."""
    if raw.dtype not in _WORDS or scores.dtype != raw.dtype:
        return None
    facts = torch.empty(len(raw), 2)
    (logits, shift), (words, _) = _words(raw), _words(scores)
    exact = _functions().measure_drafts(
        words, logits, np.uint32(shift), _divisors(temperature, len(raw)), _numbers(probs),
        tokens.to(torch.int64).numpy(), facts.numpy(),
    )  # fmt: skip
    return (facts[:, 0], facts[:, 1]) if exact.all() else None


def _numbers(tensor: Tensor) -> Array:
    found: Array = tensor.contiguous().numpy()
    return found


def _words(tensor: Tensor) -> tuple[Array, int]:
    kind, shift = _WORDS[tensor.dtype]
    return tensor.contiguous().view(kind).numpy(), shift


def _divisors(temperature: Tensor | None, count: int) -> Array:
    if temperature is None:
        return np.ones(count, np.float32)
    own: Array = temperature.to(torch.float32).numpy()
    return np.where(own < GREEDY_BELOW, np.float32(1), own)
