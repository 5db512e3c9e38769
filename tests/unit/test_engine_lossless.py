"""C12: the output follows the target's own distribution, and the experiment that says so can fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from engine import judge
from engine.proposers import Committed, Proposal
from engine.proposers.draft_model import DraftModel
from engine.round import Sampling
from engine.sampling import draw, scores
from engine.verify import Correction
from tests.unit.engine_models import TableModel, decoder, llama
from tests.unit.lossless import RUNS, SIGNIFICANCE, count, exact, module_logits, p_value, table_logits, tables

pytestmark = pytest.mark.timeout(1500)  # many thousand runs; a busy machine takes its time

SETTINGS = {
    "plain": Sampling(temperature=1.0),
    "temperature": Sampling(temperature=0.6),
    "top-k": Sampling(temperature=1.2, top_k=3),
    "top-p": Sampling(temperature=1.1, top_p=0.75),
    "min-p": Sampling(temperature=1.3, min_p=0.15),
}


def fit(sampling: Sampling, gamma: int, seed: int = 11, runs: int = RUNS, min_prob: float = 0.0) -> float:
    target, draft = tables()
    loop = decoder(TableModel(target), TableModel(draft), sampling, gamma, seed, min_prob=min_prob, top=0)
    return p_value(count(loop, [2], runs), exact(table_logits(target), [2], sampling))


@pytest.mark.parametrize("name", SETTINGS)
def test_the_output_follows_the_target(name: str) -> None:
    assert fit(SETTINGS[name], gamma=2) > SIGNIFICANCE


def test_real_modules_follow_the_target() -> None:
    target = llama(
        1, vocab=6, seed=3, hidden_size=16, intermediate_size=16, num_attention_heads=1, num_key_value_heads=1
    )
    draft = llama(
        1, vocab=6, seed=4, hidden_size=16, intermediate_size=16, num_attention_heads=1, num_key_value_heads=1
    )
    sampling = Sampling(temperature=8.0)
    loop = decoder(target, draft, sampling, gamma=1, seed=5, top=0)
    assert p_value(count(loop, [1]), exact(module_logits(target), [1], sampling)) > SIGNIFICANCE


def test_stopping_a_draft_early_stays_lossless() -> None:
    assert fit(SETTINGS["plain"], gamma=3, min_prob=0.3, runs=RUNS // 2) > SIGNIFICANCE


def test_sampling_the_correction_from_p_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def from_p(p: torch.Tensor, q: torch.Tensor, accepted: torch.Tensor) -> Correction:
        return Correction(p.index_select(0, accepted.reshape(1)), torch.ones(()), torch.zeros((), dtype=torch.bool))

    monkeypatch.setattr(judge, "correction", from_p)
    assert fit(SETTINGS["plain"], gamma=2, runs=RUNS // 4) < SIGNIFICANCE


class _Broken(DraftModel):
    """Proposes like a draft model, with one mistake; `spoil` changes (q, token) of each candidate."""

    def __init__(self, *arguments: Any, spoil: Callable[..., Proposal]) -> None:
        super().__init__(*arguments)
        self._spoil = spoil

    def propose(self, committed: Committed, gamma: int, uniforms: torch.Tensor) -> Proposal:
        return self._spoil(super().propose(committed, gamma, uniforms), uniforms)


def _greedy_draw(proposal: Proposal, _uniforms: torch.Tensor) -> Proposal:
    return Proposal(proposal.q.argmax(dim=-1), proposal.q, proposal.scores)


def _draw_before_the_settings(proposal: Proposal, uniforms: torch.Tensor) -> Proposal:
    """q is recorded after the settings, the draw is from the raw distribution."""
    raw = torch.softmax(proposal.scores * 0.5, dim=-1)
    return Proposal(draw(raw, uniforms[: raw.shape[0]]), proposal.q, proposal.scores)


def _record_before_the_settings(proposal: Proposal, _uniforms: torch.Tensor) -> Proposal:
    """The draw is from the settings' distribution, q is recorded without them."""
    halved = proposal.scores * 0.5
    return Proposal(proposal.tokens, torch.softmax(halved, dim=-1), halved)


@pytest.mark.parametrize("spoil", [_greedy_draw, _draw_before_the_settings, _record_before_the_settings])
def test_a_draft_whose_q_is_not_what_it_drew_from_is_noticed(spoil: Callable[..., Proposal]) -> None:
    target, draft = tables()
    sampling = Sampling(temperature=0.5)
    loop = decoder(TableModel(target), TableModel(draft), sampling, gamma=1, seed=3, top=0)
    loop.proposer = _Broken(loop.proposer.model, loop.proposer._map, sampling, spoil=spoil)
    assert p_value(count(loop, [2], RUNS // 4), exact(table_logits(target), [2], sampling)) < SIGNIFICANCE


def test_verification_without_the_settings_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    sampling = SETTINGS["top-k"]
    plain = Sampling(temperature=1.0)
    monkeypatch.setattr(judge, "scores", lambda logits, _sampling, penalties, into: scores(logits, plain, into=into))
    assert fit(sampling, gamma=2, runs=RUNS // 4) < SIGNIFICANCE


def test_acceptance_equals_the_overlap() -> None:
    """β = Σ min(p, q) is the chance of acceptance: judged candidates agree within three standard errors."""
    from tests.unit.engine_models import run

    target, draft = tables()
    loop = decoder(TableModel(target), TableModel(draft), SETTINGS["plain"], gamma=3, seed=2)
    judged = [p for r in run(loop, [1], 6_000) for p in r.positions[: r.judged]]
    accepted = sum(p.fate == "accepted" for p in judged)
    expected = sum(p.overlap for p in judged)
    deviation = sum(p.overlap * (1 - p.overlap) for p in judged) ** 0.5
    assert abs(accepted - expected) < 3 * deviation
