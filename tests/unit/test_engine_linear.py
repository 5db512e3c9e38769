"""Projections: right in both layouts, shared by those who share weights, and never handed to others."""

from __future__ import annotations

import gc

import pytest
import torch
from torch import nn

from engine import linear, memory
from engine.linear import Projection, joined, project


def layers(count: int = 3, bias: bool = True, dtype: torch.dtype = torch.float32) -> list[nn.Linear]:
    torch.manual_seed(count)
    return [nn.Linear(32, 16 * (i + 1), bias=bias).to(dtype) for i in range(count)]


def expected(parts: list[nn.Linear], x: torch.Tensor) -> torch.Tensor:
    return torch.cat([part(x) for part in parts], dim=-1)


def made(parts: list[nn.Linear]) -> Projection:
    return project([part.weight for part in parts], None if parts[0].bias is None else [part.bias for part in parts])


@pytest.mark.parametrize("blocks", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("n", [1, 5, 33])
def test_it_is_the_stacked_layers(
    blocks: bool, bias: bool, count: int, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linear, "_blocks_help", lambda _dtype: blocks)
    parts = layers(count, bias)
    x = torch.randn(n, 32)
    with torch.inference_mode():
        before = expected(parts, x)
        torch.testing.assert_close(made(parts)(x), before, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(expected(parts, x), before)


def test_without_room_nothing_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available", lambda: 1000)
    assert not memory.room_for(600)
    assert memory.room_for(400)
    parts = layers(1)
    plain = Projection([parts[0].weight], None, rearrange=memory.room_for(600))
    assert plain._matrix.data_ptr() == parts[0].weight.data_ptr()


def test_available_memory_is_a_number_of_bytes() -> None:
    assert memory.available() > 1 << 20


def test_half_precision() -> None:
    parts = layers(2, dtype=torch.bfloat16)
    x = torch.randn(5, 32).bfloat16()
    with torch.inference_mode():
        torch.testing.assert_close(made(parts)(x), expected(parts, x), atol=0.02, rtol=0.02)


def test_the_same_weights_have_one_projection() -> None:
    parts = layers()
    one = made(parts)
    assert made(parts) is one
    assert made(parts[:2]) is not one


def test_a_projection_goes_when_nobody_holds_it() -> None:
    gc.collect()
    before = len(linear._projections)
    one = made(layers())
    assert len(linear._projections) == before + 1
    del one
    gc.collect()
    assert len(linear._projections) == before


def test_joining_moves_parameters_into_one_matrix_and_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "_blocks_help", lambda _dtype: False)
    parts = layers()
    one = made(parts)
    assert made(parts) is one
    whole = joined([part.weight for part in parts])
    assert whole.data_ptr() == parts[0].weight.data_ptr()
    assert whole.shape == (16 + 32 + 48, 32)
    parts[1].weight.data.fill_(7)
    assert torch.equal(whole[16:48], torch.full((32, 32), 7.0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_without_the_kernels_the_plain_path_is_taken(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert not linear._try_blocks(dtype)
