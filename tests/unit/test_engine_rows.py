"""Best tokens, top tokens and ranks, against sorting."""

from __future__ import annotations

import pytest
import torch

from engine.rows import best, best_on_device, rank, rank_on_device, rank_on_host, top


def rows(vocab: int, seed: int = 0) -> torch.Tensor:
    """Rows with many equal scores, as bfloat16 logits have them."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-20, 20, (6, vocab), generator=generator).float()


@pytest.mark.parametrize("vocab", [1, 5, 640, 2048, 2049, 4096, 5000])
def test_the_best_token_is_the_first_of_the_highest(vocab: int) -> None:
    scores = rows(vocab)
    expected = [row.index(max(row)) for row in scores.tolist()]
    assert best(scores).tolist() == expected
    assert best_on_device(scores).tolist() == expected


@pytest.mark.parametrize("vocab", [5, 640, 2048, 2049, 4096, 5000])
def test_top_tokens_are_the_highest(vocab: int) -> None:
    scores = rows(vocab, seed=1) + torch.rand(6, vocab, generator=torch.Generator().manual_seed(2))
    values, ids = top(scores, 5)
    expected = scores.sort(dim=-1, descending=True)
    assert torch.equal(values, expected.values[:, :5])
    assert torch.equal(ids, expected.indices[:, :5])


def test_top_tokens_among_equals_have_the_right_scores() -> None:
    scores = rows(5000)
    values, ids = top(scores, 5)
    assert torch.equal(values, scores.sort(dim=-1, descending=True).values[:, :5])
    assert torch.equal(scores.gather(1, ids), values)
    assert all(len(set(row)) == 5 for row in ids.tolist())


def test_not_a_number_is_found_wherever_it_stands() -> None:
    """Whoever looks at the best score of a row must see that it is none."""
    scores = rows(5000)
    scores[2, 4711] = float("nan")
    assert best(scores)[2] == 4711
    values, _ = top(scores, 5)
    assert torch.isnan(values[2]).any()
    assert not torch.isnan(values[[0, 1, 3, 4, 5]]).any()


def test_ranks_count_who_is_ahead() -> None:
    scores = rows(300)
    tokens = torch.tensor([0, 17, 299, 100, 3, 250])
    expected = []
    for row, token in zip(scores.tolist(), tokens.tolist(), strict=True):
        order = sorted(range(300), key=lambda i: (-row[i], i))
        expected.append(order.index(token) + 1)
    assert rank_on_host(scores, tokens).tolist() == expected
    assert rank_on_device(scores, tokens).tolist() == expected
    assert rank(scores, best(scores)).tolist() == [1.0] * 6
