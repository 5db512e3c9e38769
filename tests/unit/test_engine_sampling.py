"""Logits → distribution, against transformers' own warpers; and draws, against the distribution."""

from __future__ import annotations

import pytest
import torch
from scipy import stats
from torch import Tensor
from transformers.generation.logits_process import (
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from engine.round import Sampling
from engine.sampling import Penalties, distribution, draw, scores, uniform_draws

GENERATOR = torch.Generator().manual_seed(5)
LOGITS = 3 * torch.randn(7, 3000, generator=GENERATOR)


@pytest.mark.parametrize("temperature", [0.3, 1.0, 1.7])
@pytest.mark.parametrize(
    ("settings", "warper"),
    [
        ({}, None),
        ({"top_k": 1}, TopKLogitsWarper(1)),
        ({"top_k": 40}, TopKLogitsWarper(40)),
        ({"top_p": 0.3}, TopPLogitsWarper(0.3)),
        ({"top_p": 0.95}, TopPLogitsWarper(0.95)),
        ({"top_p": 0.999}, TopPLogitsWarper(0.999)),
        ({"min_p": 0.05}, MinPLogitsWarper(0.05)),
    ],
)
def test_settings_agree_with_transformers(temperature: float, settings: dict[str, float], warper: object) -> None:
    expected = TemperatureLogitsWarper(temperature)(None, LOGITS.clone())
    if warper is not None:
        expected = warper(None, expected)
    ours = distribution(LOGITS, Sampling(temperature=temperature, **settings))
    torch.testing.assert_close(ours, torch.softmax(expected, dim=-1), atol=1e-6, rtol=1e-4)


def test_settings_do_not_change_the_logits() -> None:
    before = LOGITS.clone()
    scores(LOGITS, Sampling(temperature=0.5, top_k=3, top_p=0.5, min_p=0.1, logit_bias={1: 4.0}))
    assert torch.equal(before, LOGITS)


def test_top_p_keeps_the_smallest_set_and_at_least_one() -> None:
    logits = torch.tensor([[0.5, 0.25, 0.125, 0.125]]).log()
    assert distribution(logits, Sampling(top_p=0.5))[0].tolist() == [1, 0, 0, 0]
    kept = distribution(logits, Sampling(top_p=0.6))[0]
    assert (kept > 0).tolist() == [True, True, False, False]
    assert (distribution(logits, Sampling(top_p=1e-6)) > 0).sum() == 1
    ties = distribution(torch.zeros(1, 4), Sampling(top_p=0.5))
    assert (ties > 0).sum() == 2


def test_minus_infinity_is_a_token_that_cannot_be_said() -> None:
    logits = torch.tensor([[1.0, float("-inf"), 2.0]])
    assert distribution(logits, Sampling())[0, 1] == 0


def test_nan_stays_visible() -> None:
    assert torch.isnan(distribution(torch.tensor([[1.0, float("nan")]]), Sampling())).any()


def test_penalties_see_each_position_with_its_own_prefix() -> None:
    vocab = 12
    prompt, candidates = torch.tensor([1, 2, 2]), torch.tensor([3, 3, 5])
    sampling = Sampling(repetition_penalty=1.5, frequency_penalty=0.4, presence_penalty=0.3)
    penalties = Penalties.of_prompt(prompt, vocab)
    penalties.extend(torch.tensor([7, 7]))
    logits = torch.randn(4, vocab, generator=GENERATOR)
    ours = scores(logits, sampling, penalties.along(candidates))
    for row in range(4):
        before = torch.cat([prompt, torch.tensor([7, 7]), candidates[:row]])
        expected = RepetitionPenaltyLogitsProcessor(1.5)(before[None], logits[row : row + 1].clone())[0]
        counts = torch.bincount(torch.cat([torch.tensor([7, 7]), candidates[:row]]), minlength=vocab)
        expected = expected - 0.4 * counts - 0.3 * (counts > 0)
        torch.testing.assert_close(ours[row], expected)


def test_extending_counts_a_token_as_often_as_it_was_committed() -> None:
    penalties = Penalties.of_prompt(torch.tensor([0]), 4)
    penalties.extend(torch.tensor([2, 2, 3]))
    assert penalties.counts[0].tolist() == [0, 0, 2, 1]
    assert penalties.seen[0].tolist() == [True, False, True, True]


def test_logit_bias_is_added_before_the_temperature() -> None:
    logits = torch.zeros(1, 3)
    ours = scores(logits, Sampling(temperature=0.5, logit_bias={2: 1.0}))
    assert ours[0].tolist() == [0, 0, 2]


def test_greedy_scores_are_those_of_temperature_one() -> None:
    assert torch.equal(scores(LOGITS, Sampling(temperature=0.0)), scores(LOGITS, Sampling(temperature=1.0)))


def _drawn(row: Tensor, uniforms: Tensor) -> Tensor:
    return draw(row.expand(uniforms.shape[0], -1), uniforms)


def test_draws_follow_the_distribution() -> None:
    row = torch.softmax(torch.randn(1, 20, generator=GENERATOR), dim=-1)
    tokens = _drawn(row, torch.rand(40_000, generator=GENERATOR, dtype=torch.float64))
    counts = torch.bincount(tokens, minlength=20)
    expected = (row[0].double() / row.double().sum()) * 40_000
    assert stats.chisquare(counts.numpy(), expected.numpy()).pvalue > 0.001


def test_a_token_without_probability_is_never_drawn() -> None:
    row = torch.tensor([[0.0, 0.5, 0.0, 0.5, 0.0]])
    edges = torch.tensor([0.0, 0.25, 0.5, 0.75, 1 - 2**-53], dtype=torch.float64)
    assert set(_drawn(row, edges).tolist()) == {1, 3}


def test_the_largest_draw_stays_below_every_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind the last token of weight > 0 only such follow that are never drawn; rounding must not lead there."""
    monkeypatch.setattr(torch, "rand", lambda count, dtype, **_: torch.full((count,), 1 - 2**-53, dtype=dtype))
    largest = uniform_draws(2000, GENERATOR)
    rows = torch.softmax(4 * torch.randn(2000, 50, generator=GENERATOR), dim=-1)
    rows[:, 40:] = 0.0
    assert (draw(rows, largest) < 40).all()


def test_a_broken_row_gives_some_token() -> None:
    broken = torch.full((1, 50), float("nan"))
    assert 0 <= int(draw(broken, torch.tensor([0.5], dtype=torch.float64))) < 50


def test_scores_go_where_they_are_asked_to() -> None:
    for settings in (Sampling(), Sampling(temperature=0.5, top_p=0.9), Sampling(top_k=3, min_p=0.1)):
        room = torch.full((9, 3000), 7.0)
        made = scores(LOGITS, settings, into=room[1:8])
        assert made.data_ptr() == room[1:8].data_ptr()
        assert torch.equal(room[1:8], scores(LOGITS, settings))
        assert (room[[0, 8]] == 7.0).all()


def test_weights_need_not_be_normalised() -> None:
    row = torch.tensor([[0.0, 2e-6, 6e-6]])
    assert _drawn(row, torch.tensor([0.1, 0.3], dtype=torch.float64)).tolist() == [1, 2]
