"""Packed attention computes what transformers' own attention computes, on caches of any length."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional
from transformers import Gemma2Config, Gemma2ForCausalLM, GemmaConfig, GemmaForCausalLM

from engine.attention import NAME, packed_attention, use_packed_attention
from engine.model import Model
from engine.round import Sampling
from tests.unit.engine_models import VOCAB, decoder, family, llama, output, run, sharpened

BLOCKS = [list(range(9)), [4], [5, 6, 7, 8], [i % VOCAB for i in range(70)], [2, 3, 4]]


def gemma() -> GemmaForCausalLM:
    torch.manual_seed(4)
    return sharpened(
        GemmaForCausalLM(
            GemmaConfig(
                vocab_size=VOCAB,
                hidden_size=32,
                intermediate_size=64,
                num_hidden_layers=2,
                num_attention_heads=4,
                num_key_value_heads=1,
                head_dim=8,
                eos_token_id=None,
            )
        )
    )


def logits(module: torch.nn.Module, packed: bool) -> torch.Tensor:
    module.set_attn_implementation("sdpa")
    model = Model(module, "m")
    assert module.config._attn_implementation == NAME
    if not packed:
        module.set_attn_implementation("sdpa")
    model.begin(8)
    with torch.inference_mode():
        return torch.cat([model.forward(torch.tensor(block), len(block)) for block in BLOCKS])


def test_a_grouped_model_computes_the_same() -> None:
    module = gemma()
    torch.testing.assert_close(logits(module, packed=True), logits(module, packed=False), atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("n", [2, 5, 64])
def test_packing_is_attention_with_repeated_keys(n: int) -> None:
    generator = torch.Generator().manual_seed(n)
    query = torch.randn(1, 6, n, 8, generator=generator)
    key, value = (torch.randn(1, 2, 90, 8, generator=generator) for _ in range(2))
    mask = (torch.arange(90) <= torch.arange(90 - n, 90)[:, None])[None, None]
    ours, _ = packed_attention(llama().model.layers[0].self_attn, query, key, value, mask, scaling=0.3)
    repeated = [states.repeat_interleave(3, dim=1) for states in (key, value)]
    expected = functional.scaled_dot_product_attention(query, *repeated, attn_mask=mask, scale=0.3)
    torch.testing.assert_close(ours, expected.transpose(1, 2))


def test_generate_is_unchanged() -> None:
    module = gemma()
    prompt = [1, 2, 3]
    ids = torch.tensor([prompt])
    options = {"attention_mask": torch.ones_like(ids), "do_sample": False, "max_new_tokens": 20, "min_new_tokens": 20}
    expected = module.generate(ids, **options)[0, 3:].tolist()
    loop = decoder(module, gemma(), Sampling(temperature=0.0))
    assert module.config._attn_implementation == NAME
    assert output(run(loop, prompt, 20)) == expected
    assert module.generate(ids, **options)[0, 3:].tolist() == expected


def test_models_that_gain_nothing_or_attend_otherwise_are_left_alone() -> None:
    assert not use_packed_attention(family("gpt2", 1))  # a key head a query head
    eager = gemma()
    eager.set_attn_implementation("eager")
    assert not use_packed_attention(eager)
    assert eager.config._attn_implementation == "eager"


def test_sliding_layers_with_soft_capped_scores_stay_exact() -> None:
    torch.manual_seed(1)
    config = Gemma2Config(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        sliding_window=8,
        eos_token_id=None,
    )
    module = sharpened(Gemma2ForCausalLM(config))
    prompt = list(range(12))
    ids = torch.tensor([prompt])
    expected = module.generate(
        ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=24, min_new_tokens=24
    )
    assert output(run(decoder(module, module, Sampling(temperature=0.0)), prompt, 24)) == expected[0, 12:].tolist()
