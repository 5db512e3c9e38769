"""Rollback: what is rolled back leaves no trace, and what cannot be rolled back is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import MambaConfig, MambaForCausalLM, MistralConfig, MistralForCausalLM
from transformers.cache_utils import DynamicCache

from engine import model as model_module
from engine.cache import BufferLayer, RollbackCache, make_cache, roll_back
from engine.errors import PairError
from engine.model import Model, probe_rollback
from engine.round import Sampling
from tests.unit.contract_rules import assert_contract
from tests.unit.engine_models import VOCAB, decoder, family, llama, output, run, sharpened

FAMILIES = ("llama", "gpt2", "qwen2", "qwen3", "gemma")


def fed(model: Model, *blocks: list[int]) -> torch.Tensor:
    with torch.inference_mode():
        for block in blocks:
            logits = model.forward(torch.tensor(block), len(block))
    return logits


@pytest.mark.parametrize("name", FAMILIES)
def test_a_rolled_back_branch_leaves_no_trace(name: str) -> None:
    model = Model(family(name, seed=1), name)
    model.begin(4)  # too small on purpose: it grows
    fed(model, [1, 2, 3], [4, 5, 6, 7])
    model.roll_back(4)
    assert model.length() == 4
    after = fed(model, [8, 9])
    model.begin(32)
    torch.testing.assert_close(after, fed(model, [1, 2, 3, 4], [8, 9]), atol=1e-4, rtol=1e-4)
    assert model.length() == 6


@pytest.mark.parametrize("name", FAMILIES)
def test_buffers_agree_with_transformers_own_cache(name: str) -> None:
    module = family(name, seed=2)
    model = Model(module, name)
    model.begin(16)
    ours = fed(model, [3, 1, 4], [1], [5, 9])
    with torch.inference_mode():
        cache = DynamicCache(config=module.config)
        for block in ([3, 1, 4], [1], [5, 9]):
            logits = module(input_ids=torch.tensor([block]), cache=cache, use_cache=True).logits[0]
    torch.testing.assert_close(ours, logits, atol=1e-4, rtol=1e-4)


def sliding(window: int, seed: int = 0, layers: int = 2) -> MistralForCausalLM:
    torch.manual_seed(seed)
    config = MistralConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        sliding_window=window,
        max_position_embeddings=256,
        eos_token_id=None,
        bos_token_id=None,
        pad_token_id=None,
    )
    return sharpened(MistralForCausalLM(config))


def test_sliding_windows_stay_exact_past_their_edge() -> None:
    module, draft = sliding(6), sliding(6, seed=3, layers=1)
    loop = decoder(module, draft, Sampling(temperature=0.0), gamma=4)
    prompt = [1, 2, 3, 4, 5, 6, 7, 8, 9]
    rounds = run(loop, prompt, 40)
    assert_contract(prompt, rounds, greedy=True)
    expected = module.generate(
        torch.tensor([prompt]), attention_mask=torch.ones(1, 9), do_sample=False, max_new_tokens=40, min_new_tokens=40
    )
    assert output(rounds) == expected[0, 9:].tolist()


def test_attention_sees_a_view_and_not_a_copy() -> None:
    layer = BufferLayer(8)
    states = torch.randn(1, 2, 3, 4)
    keys, _ = layer.update(states, states)
    assert keys.data_ptr() == layer.keys.data_ptr()
    layer.crop(-2)
    assert layer.get_seq_length() == 1
    keys, _ = layer.update(states[:, :, :1], states[:, :, :1])
    assert torch.equal(keys[:, :, :1], states[:, :, :1])
    assert keys.shape[-2] == 2


def test_layers_that_disagree_about_their_length_are_noticed() -> None:
    cache = RollbackCache(layers=[BufferLayer(4), BufferLayer(4)])
    cache.layers[0].update(torch.ones(1, 1, 2, 2), torch.ones(1, 1, 2, 2))
    with pytest.raises(RuntimeError, match="different lengths"):
        cache.filled()


def test_rolling_back_forward_changes_nothing() -> None:
    cache = make_cache(llama().config, 8)
    roll_back(cache, 5)
    assert cache.filled() == 0


@pytest.mark.parametrize("name", FAMILIES)
def test_ordinary_models_pass_the_probe(name: str) -> None:
    probe_rollback(Model(family(name, seed=1), name))


def test_a_recurrent_model_is_refused_by_name() -> None:
    config = MambaConfig(vocab_size=VOCAB, hidden_size=16, num_hidden_layers=1, state_size=4)
    with pytest.raises(PairError, match=r"cache of my-mamba \(mamba\) cannot be rolled back"):
        probe_rollback(Model(MambaForCausalLM(config).eval(), "my-mamba"))


class _NoOpCrop(DynamicCache):
    def crop(self, tokens_to_remove: int) -> None:
        pass


class _LyingCrop(DynamicCache):
    """Reports the length it was asked for, and keeps everything."""

    removed = 0

    def crop(self, tokens_to_remove: int) -> None:
        self.removed += abs(tokens_to_remove)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return super().get_seq_length(layer_idx) - (self.removed if layer_idx == 0 else 0)


class _NoCrop(DynamicCache):
    def crop(self, tokens_to_remove: int) -> None:
        raise NotImplementedError


@pytest.mark.parametrize("kind", [_NoOpCrop, _LyingCrop, _NoCrop])
def test_a_crop_is_not_trusted(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_module, "make_cache", lambda config, _capacity: kind(config=config))
    with pytest.raises(PairError, match="cannot be rolled back"):
        probe_rollback(Model(llama(), "m"))
