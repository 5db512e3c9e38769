"""The settings that a `generate` call asked for: for the record, and to be applied once more to raw logits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig
from transformers.generation import logits_process as processors

from engine import sampling as rules
from engine.round import Sampling

_SAMPLING_WARPERS: tuple[type, ...] = (
    processors.TemperatureLogitsWarper,
    processors.TopKLogitsWarper,
    processors.TopPLogitsWarper,
    processors.MinPLogitsWarper,
)
"""What `Sampling` can say, in the order in which transformers applies them."""

_OF_THE_ROW: tuple[type, ...] = (
    processors.TopHLogitsWarper,
    processors.TypicalLogitsWarper,
    processors.EpsilonLogitsWarper,
    processors.EtaLogitsWarper,
    processors.LogitNormalization,
    processors.InfNanRemoveLogitsProcessor,
)
_OF_THE_PREFIX: tuple[type, ...] = (
    processors.MinLengthLogitsProcessor,
    processors.MinNewTokensLengthLogitsProcessor,
    processors.RepetitionPenaltyLogitsProcessor,
    processors.NoRepeatNGramLogitsProcessor,
    processors.SequenceBiasLogitsProcessor,
    processors.NoBadWordsLogitsProcessor,
    processors.SuppressTokensLogitsProcessor,
    processors.SuppressTokensAtBeginLogitsProcessor,
    processors.ForcedBOSTokenLogitsProcessor,
    processors.ForcedEOSTokenLogitsProcessor,
)
"""Processors that may be called again without anybody noticing: they keep no state, draw nothing and call no model.
Any other (guidance, watermarks, a user's own) is never called by the instrument."""

_UNSAID = ("typical_p", "top_h", "epsilon_cutoff", "eta_cutoff", "no_repeat_ngram_size", "guidance_scale")
_UNSAID_OFF: dict[str, tuple[Any, ...]] = {
    "typical_p": (None, 1.0),
    "top_h": (None,),
    "epsilon_cutoff": (None, 0.0),
    "eta_cutoff": (None, 0.0),
    "no_repeat_ngram_size": (None, 0),
    "guidance_scale": (None, 1, 1.0),
}


def asked_sampling(config: GenerationConfig) -> Sampling:
    """The settings in the vocabulary of the trace; without sampling transformers is greedy and applies no warper."""
    common = Sampling(
        repetition_penalty=config.repetition_penalty or 1.0,
        logit_bias=_single_token_bias(config.sequence_bias),
    )
    if not config.do_sample:
        return replace(common, temperature=0.0)
    return replace(
        common,
        temperature=1.0 if config.temperature is None else float(config.temperature),
        top_k=int(config.top_k or 0),
        top_p=1.0 if config.top_p is None else float(config.top_p),
        min_p=float(config.min_p or 0.0),
    )


def unsaid(config: GenerationConfig, asked: Sequence[Any]) -> str | None:
    """One sentence about settings that change the distributions and have no column of their own, or None."""
    named = [f"{name}={getattr(config, name)}" for name in _UNSAID if _is_on(config, name)]
    if config.assistant_ensemble_weight is not None:
        named.append(
            f"assistant_ensemble_weight={config.assistant_ensemble_weight:g} (acceptance is relaxed, not lossless)"
        )
    known = (*_SAMPLING_WARPERS, *_OF_THE_ROW, *_OF_THE_PREFIX)
    named += sorted({type(one).__name__ for one in asked if type(one) not in known})
    return f"Settings without a column: {', '.join(named)}." if named else None


def _is_on(config: GenerationConfig, name: str) -> bool:
    return getattr(config, name, None) not in _UNSAID_OFF[name]


def _single_token_bias(bias: Any) -> dict[int, float]:
    """The part of transformers' sequence_bias that biases single tokens."""
    if not bias:
        return {}
    pairs = bias.items() if isinstance(bias, dict) else bias
    return {int(ids[0]): float(value) for ids, value in pairs if len(ids) == 1}


@dataclass(frozen=True, slots=True)
class Asked:
    """The settings as they are applied once, to raw logits (clause C1: the same settings for draft and target).

    `before` looks at the prefix and runs row by row, `sampling` is the usual warpers, `after` is whatever follows.
    """

    before: tuple[Any, ...] = ()
    sampling: Sampling = field(default_factory=Sampling)
    after: tuple[Any, ...] = ()

    @classmethod
    def of(cls, asked: Sequence[Any]) -> Asked | None:
        """The processors that `generate` prepared, sorted; None when one of them must not be called again."""
        before: list[Any] = []
        after: list[Any] = []
        warpers: list[Any] = []
        for one in asked:
            kind = type(one)
            if kind not in (*_SAMPLING_WARPERS, *_OF_THE_ROW, *_OF_THE_PREFIX):
                return None
            if kind in _SAMPLING_WARPERS and not after and _in_order(warpers, one) and _removes_plainly(one):
                warpers.append(one)
            else:
                (after if warpers or after else before).append(one)
        return cls(tuple(before), _as_sampling(warpers), tuple(after))

    @property
    def nothing(self) -> bool:
        """No processor at all: the scores are the logits."""
        return not self.before and not self.after and self.sampling == Sampling()

    @property
    def only_sampling(self) -> bool:
        """Nothing but temperature, top-k, top-p and min-p, which know no token by its id."""
        return not self.before and not self.after

    def apply(self, logits: Tensor, sequence: Tensor, committed: int) -> Tensor:
        """(rows, V) scores under the settings; row i stands behind the prefix `sequence[: committed + i]`."""
        scores = self._each(self.before, logits.float(), sequence, committed)
        scores = rules.scores(scores, self.sampling)
        return self._each(self.after, scores, sequence, committed)

    @staticmethod
    def _each(some: tuple[Any, ...], scores: Tensor, sequence: Tensor, committed: int) -> Tensor:
        if not some:
            return scores
        rows = []
        for i in range(scores.shape[0]):
            row = scores[i : i + 1].clone()
            for one in some:
                row = one(sequence[None, : committed + i], row)
            rows.append(row)
        return torch.cat(rows)


def _in_order(warpers: list[Any], one: Any) -> bool:
    """Whether a warper comes behind the ones before it in the order that `Sampling` means."""
    place = _SAMPLING_WARPERS.index
    return not warpers or place(type(one)) > place(type(warpers[-1]))


def _removes_plainly(one: Any) -> bool:
    """Whether a warper removes tokens the usual way: to −∞, and keeps no more than it must."""
    return getattr(one, "filter_value", -float("inf")) == -float("inf") and getattr(one, "min_tokens_to_keep", 1) == 1


def _as_sampling(warpers: list[Any]) -> Sampling:
    found = Sampling()
    for one in warpers:
        if isinstance(one, processors.TemperatureLogitsWarper):
            found = replace(found, temperature=float(one.temperature))
        elif isinstance(one, processors.TopKLogitsWarper):
            found = replace(found, top_k=int(one.top_k))
        elif isinstance(one, processors.TopPLogitsWarper):
            # 0 is legal there and keeps one token, as any value just above it does
            found = replace(found, top_p=max(float(one.top_p), torch.finfo(torch.float32).tiny))
        else:
            found = replace(found, min_p=float(one.min_p))
    return found
