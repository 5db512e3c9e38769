"""The fused forward against the module it replaces, and the modules that it must leave alone."""

from __future__ import annotations

import pytest
import torch

from engine.fused import fuse
from engine.layer_skip import skip_layers
from engine.model import Model
from tests.unit.engine_models import VOCAB, family, llama

BLOCKS = [list(range(5)), [4], [5, 6, 7, 8], [i % VOCAB for i in range(70)], [1], [2, 3]]


def logits(model: Model) -> torch.Tensor:
    model.begin(8)
    with torch.inference_mode():
        return torch.cat([model.forward(torch.tensor(block), len(block)) for block in BLOCKS])


@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3"])
def test_it_computes_what_the_module_computes(name: str) -> None:
    module = family(name, seed=3)
    before = logits(Model(module, name, fused=False))
    fused = Model(module, name)
    assert fuse(module) is not None
    torch.testing.assert_close(logits(fused), before, atol=2e-5, rtol=1e-4)
    # The module's parameters are views of the joined matrices now, and still compute the same.
    torch.testing.assert_close(logits(Model(module, name, fused=False)), before)


def test_a_long_prompt_in_two_blocks() -> None:
    module = llama()
    prompt = torch.arange(200) % VOCAB
    answers = []
    for fused in (False, True):
        model = Model(module, "m", fused=fused)
        model.begin(8)
        with torch.inference_mode():
            model.forward(prompt[:90], 1)
            answers.append(model.forward(prompt[90:], 3))
    torch.testing.assert_close(answers[1], answers[0], atol=2e-5, rtol=1e-4)


def test_biases_and_grouped_heads() -> None:
    module = llama(attention_bias=True, mlp_bias=True, num_key_value_heads=1)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if name.endswith("bias"):
                parameter.normal_()
    before = logits(Model(module, "m", fused=False))
    torch.testing.assert_close(logits(Model(module, "m")), before, atol=1e-4, rtol=1e-4)


def test_a_draft_that_shares_layers_shares_their_projections() -> None:
    module = llama()
    whole = fuse(module)
    skipped = fuse(skip_layers(module, (0, 2)))
    for mine, theirs in ((0, 0), (1, 2)):
        for name in ("qkv", "out", "gate_up", "down"):
            assert getattr(skipped._layers[mine], name) is getattr(whole._layers[theirs], name)


def test_hidden_states_are_those_before_the_head() -> None:
    module = llama()
    caught = []
    for fused in (False, True):
        model = Model(module, "m", fused=fused)
        model.catch_hidden(taps=(1, 2))
        model.begin(8)
        with torch.inference_mode():
            answer = model.forward(torch.tensor([1, 2, 3]), 1)
            assert model.hidden.shape == (3, 96)
            torch.testing.assert_close(module.lm_head(model.hidden[:, 64:])[-1:], answer)
            below = module.model(torch.tensor([[1, 2, 3]]), output_hidden_states=True).hidden_states[1:3]
            torch.testing.assert_close(model.hidden[:, :64], torch.cat(below, dim=-1)[0], atol=1e-5, rtol=1e-4)
            caught.append(model.hidden)
    torch.testing.assert_close(caught[1], caught[0], atol=1e-5, rtol=1e-4)


def test_a_fused_forward_that_computes_something_else_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    module = llama()
    good, bad = Model(module, "good"), Model(module, "bad")
    assert not good.distrust_fused()
    monkeypatch.setattr(bad._fused, "_scale", 3.0)
    before = logits(Model(module, "m", fused=False))
    assert bad.distrust_fused()
    torch.testing.assert_close(logits(bad), before)


def _hooked() -> torch.nn.Module:
    module = llama()
    module.model.layers[0].register_forward_hook(lambda *_: None)
    return module


@pytest.mark.parametrize(
    "module",
    [
        family("gpt2", 1),
        family("gemma", 1),
        llama(rope_parameters={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}),
        llama(hidden_act="gelu"),
        _hooked(),
    ],
    ids=["gpt2", "gemma", "dynamic-rope", "gelu", "hooked"],
)
def test_other_modules_are_left_alone(module: torch.nn.Module) -> None:
    assert fuse(module) is None
