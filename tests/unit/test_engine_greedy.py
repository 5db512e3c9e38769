"""Greedy speculative decoding in float32 equals `model.generate(do_sample=False)`, token for token."""

from __future__ import annotations

import random

import pytest
import torch

from engine.round import Sampling
from tests.unit.engine_models import VOCAB, decoder, family, first_layer_of, llama, output, run

GREEDY = Sampling(temperature=0.0)
TOKENS = 16
LENGTHS = (1, 2, 3, 5, 8, 13, 21, 34)
FAMILIES = ("llama", "gpt2", "qwen2", "qwen3", "gemma")


def generated(module: torch.nn.Module, prompts: list[list[int]], tokens: int) -> list[list[int]]:
    """What transformers itself makes of prompts of one length."""
    ids = torch.tensor(prompts)
    out = module.generate(
        ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=tokens, min_new_tokens=tokens
    )
    return [row[len(prompts[0]) :].tolist() for row in out]


@pytest.mark.parametrize("name", FAMILIES)
def test_tiny_models_over_200_prompts(name: str) -> None:
    target, draft = family(name, seed=1), family(name, seed=2, layers=1)
    rng = random.Random(name)
    loops = [decoder(target, draft, GREEDY, gamma) for gamma in range(9)]
    accepted = 0
    for length in LENGTHS:
        prompts = [[rng.randrange(VOCAB) for _ in range(length)] for _ in range(200 // len(LENGTHS))]
        for number, (prompt, expected) in enumerate(zip(prompts, generated(target, prompts, TOKENS), strict=True)):
            rounds = run(loops[number % 9], prompt, TOKENS)
            assert output(rounds) == expected
            accepted += sum(r.accepted for r in rounds)
    assert accepted < 200 * TOKENS  # the draft differs: rejections, and so rollbacks, did happen


def test_a_draft_that_is_often_right() -> None:
    target = llama()
    draft = first_layer_of(target)
    loop = decoder(target, draft, GREEDY, gamma=5)
    prompts = [[i, 2 * i % VOCAB, 3 * i % VOCAB] for i in range(1, 20)]
    for prompt, expected in zip(prompts, generated(target, prompts, 40), strict=True):
        assert output(run(loop, prompt, 40)) == expected


def test_repetition_penalty_as_transformers_applies_it() -> None:
    target, draft = family("llama", seed=5), family("llama", seed=6, layers=1)
    loop = decoder(target, draft, Sampling(temperature=0.0, repetition_penalty=1.7), gamma=3)
    for prompt in ([3, 9, 3, 11], [1], [5, 5, 5, 5, 5, 5]):
        ids = torch.tensor([prompt])
        out = target.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            repetition_penalty=1.7,
            max_new_tokens=30,
            min_new_tokens=30,
        )
        assert output(run(loop, prompt, 30)) == out[0, len(prompt) :].tolist()


def test_the_draft_being_the_target_accepts_everything_for_ever() -> None:
    target = llama()
    loop = decoder(target, target, GREEDY, gamma=4)
    loop.proposer.model = type(loop.target)(target, "draft")  # its own cache
    rounds = run(loop, [1, 2, 3], 100)
    assert [r.accepted for r in rounds] == [4] * 20
    assert all(r.draft_kv_after == r.committed_after - 2 for r in rounds)
