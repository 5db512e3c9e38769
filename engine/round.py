"""The vocabulary that the engine, the trace store and the views share: plain frozen data, standard library only.

Letters as in Leviathan et al. (arXiv 2211.17192): the target's distribution is p (`target_prob`), the draft's is
q (`draft_prob`), γ candidates are proposed a round, and γ+1 positions are scored. Positions count from 1 as in the
papers; rounds, sequences and token positions count from 0. All probabilities are those *after* the sampling settings.
At temperature 0, where the settings' distribution is a point mass, the probabilities recorded are those of
temperature 1 under the other settings (so that the margin stays visible), and `rank` decides: accepted ⇔ rank 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

Fate = Literal["accepted", "rejected", "discarded", "cut"]
Origin = Literal["prompt", "accepted", "correction", "bonus", "target"]
CorrectionKind = Literal["correction", "bonus", "target"]
Status = Literal["loading", "running", "finished", "interrupted", "failed"]
StopReason = Literal["eos", "length", "stop", "interrupted", "failed"]
Cut = Literal["eos", "length", "stop"]

FINAL_STATUSES: frozenset[str] = frozenset({"finished", "interrupted", "failed"})

Alternatives = tuple[tuple[int, float], ...]
"""The most probable tokens of one distribution, best first: (token id, probability)."""


def _require(holds: bool, sentence: str) -> None:
    if not holds:
        raise ValueError(sentence)


@dataclass(frozen=True, slots=True)
class Sampling:
    """The settings that turn logits into a distribution, the same for draft and target.

    Raises:
        ValueError: a setting is outside its range; the message names the setting and the range.
    """

    temperature: float = 1.0
    """≥ 0; 0 is greedy decoding."""
    top_k: int = 0
    """Keep the k most probable tokens; 0 keeps all."""
    top_p: float = 1.0
    """Keep the smallest set of tokens whose probability reaches top_p; in (0, 1]."""
    min_p: float = 0.0
    """Keep tokens at least min_p times as probable as the best one; in [0, 1]."""
    repetition_penalty: float = 1.0
    """> 0; 1 is off. Divides positive and multiplies negative logits of tokens already present."""
    frequency_penalty: float = 0.0
    """Subtracted from a token's logit once per occurrence in the output so far; in [−2, 2]."""
    presence_penalty: float = 0.0
    """Subtracted from the logit of every token present in the output so far; in [−2, 2]."""
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    """Added to the logits of single token ids."""

    def __post_init__(self) -> None:
        _require(
            math.isfinite(self.temperature) and self.temperature >= 0,
            f"temperature must be 0 (greedy) or more, not {self.temperature:g}.",
        )
        _require(self.top_k >= 0, f"top-k must be 0 (off) or more, not {self.top_k}.")
        _require(0 < self.top_p <= 1, f"top-p must be above 0 and at most 1, not {self.top_p:g}.")
        _require(0 <= self.min_p <= 1, f"min-p must be between 0 and 1, not {self.min_p:g}.")
        _require(
            math.isfinite(self.repetition_penalty) and self.repetition_penalty > 0,
            f"repetition-penalty must be above 0, not {self.repetition_penalty:g}.",
        )
        for name in ("frequency", "presence"):
            value = getattr(self, f"{name}_penalty")
            _require(-2 <= value <= 2, f"{name}-penalty must be between -2 and 2, not {value:g}.")

    @property
    def greedy(self) -> bool:
        return self.temperature == 0


@dataclass(frozen=True, slots=True)
class RunInfo:
    """One pair with one configuration. What an imported trace does not know is None."""

    uuid: str
    source: str = "engine"
    """Who ran the loop: engine, transformers, vllm, llama.cpp, …"""
    draft: str | None = None
    target: str | None = None
    proposer: str | None = None
    """draft-model, prompt-lookup, self, …"""
    vocab_size: int | None = None
    device: str | None = None
    device_name: str | None = None
    target_dtype: str | None = None
    draft_dtype: str | None = None
    gamma: int | None = None
    """Candidates asked for in a round."""
    gamma_schedule: str | None = None
    """fixed, auto, …"""
    sampling: Sampling | None = None
    stop: tuple[str, ...] = ()
    """Stop strings."""
    max_new_tokens: int | None = None
    seed: int | None = None
    chat: bool | None = None
    """True when the tokenizer's chat template wrapped the prompt."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Package name → version."""


@dataclass(frozen=True, slots=True)
class Sequence:
    """One prompt, ready to decode: it is committed, and all but its last token are in the caches."""

    index: int
    prompt: str | None
    prompt_ids: tuple[int, ...]
    target_prefill_ns: int | None = None
    draft_prefill_ns: int | None = None
    target_prefill_calls: int | None = None
    request_id: str | None = None
    """The name that the source gave to this sequence."""
    prompt_length: int | None = None
    """Tokens of the prompt where a source tells how many they are, but not which."""


@dataclass(frozen=True, slots=True)
class Position:
    """One of the γ+1 scored positions of a round. At γ+1 there is no candidate, no q and no fate."""

    position: int
    """1 … γ+1."""
    candidate: int | None = None
    draft_prob: float | None = None
    """q(candidate)."""
    target_prob: float | None = None
    """p(candidate)."""
    u: float | None = None
    """The uniform draw on [0, 1) of the acceptance test; None when not judged, not drawn (greedy) or not known."""
    fate: Fate | None = None
    overlap: float | None = None
    """β = Σ min(p, q), the chance that a draw from q is accepted here."""
    draft_entropy: float | None = None
    """Nats."""
    target_entropy: float | None = None
    """Nats."""
    rank: int | None = None
    """Place of the candidate in p, 1 = most probable; ties go to the lower id, as argmax does."""
    draft_top: Alternatives = ()
    target_top: Alternatives = ()
    parent: int | None = None
    """Position of the parent in a draft tree; None in a chain."""
    draft_deviation: float | None = None
    """max |q − q'|, q' the draft's raw logits under the settings asked for; None where they were not at hand."""
    target_deviation: float | None = None
    """max |p − p'|, likewise for the target."""


@dataclass(frozen=True, slots=True)
class PhaseTimes:
    """Nanoseconds. `round_ns` is wall time and at least the sum of the phases; None where a source has no clock."""

    start_ns: int | None = None
    """Offset of the round from the start of the run's clock."""
    propose_ns: int | None = None
    score_ns: int | None = None
    accept_ns: int | None = None
    """Test, residual and draw."""
    rollback_ns: int | None = None
    record_ns: int | None = None
    """The instrument itself."""
    round_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Round:
    """One verify step, from a committed prefix to the next. KV lengths are read from the caches, never computed."""

    index: int
    gamma: int | None
    """The γ in force; `proposed` can be smaller (early stop, end of context, nothing found)."""
    proposed: int
    judged: int | None
    """Accepted plus rejected; None where a source does not say."""
    accepted: int
    """Before any end-of-text, stop-string or length cut."""
    committed_before: int
    committed_after: int
    committed: tuple[tuple[int, Origin], ...] = ()
    """The tokens that this round committed, in order: (token id, origin)."""
    positions: tuple[Position, ...] = ()
    correction_token: int | None = None
    """The token drawn by the target at the end of the round; None when a cut came before it."""
    correction_kind: CorrectionKind | None = None
    correction_prob: float | None = None
    """Its probability under the distribution it was drawn from (residual, or p for bonus and target)."""
    correction_target_prob: float | None = None
    correction_draft_prob: float | None = None
    residual_mass: float | None = None
    """Σ max(0, p − q) at the rejected position."""
    residual_fallback: bool = False
    """The residual was numerically zero, and the correction was drawn from p."""
    cut: Cut | None = None
    """What ended the sequence inside the accepted block."""
    draft_stop: str | None = None
    """Why fewer than γ candidates were proposed."""
    target_kv_before: int | None = None
    target_kv_written: int | None = None
    target_kv_after: int | None = None
    draft_kv_before: int | None = None
    draft_kv_written: int | None = None
    draft_kv_after: int | None = None
    target_calls: int | None = None
    draft_calls: int | None = None
    times: PhaseTimes = PhaseTimes()

    @property
    def candidates(self) -> tuple[int | None, ...]:
        """The proposed tokens, in order."""
        return tuple(p.candidate for p in self.positions[: self.proposed])

    def tokens(self) -> Iterator[int]:
        """Every token id that the round shows, in no order and some of them several times."""
        for position in self.positions:
            if position.candidate is not None:
                yield position.candidate
            yield from (token for token, _ in position.draft_top)
            yield from (token for token, _ in position.target_top)
        yield from (token for token, _ in self.committed)
        if self.correction_token is not None:
            yield self.correction_token


@dataclass(frozen=True, slots=True)
class Cost:
    """Median time of one forward that scores `positions` tokens at once (the cost curve of clause C14)."""

    positions: int
    target_ns: int | None
    draft_ns: int | None
    context: int | None = None
    """Tokens in the cache when it was measured."""


@dataclass(frozen=True, slots=True)
class VocabEntry:
    """What one token id stands for, so that a trace replays with no tokenizer."""

    token: int
    data: bytes
    """The token's own bytes; they may be half a UTF-8 character."""
    special: bool = False
    """A control token (end of text, chat turns, padding), not text."""
