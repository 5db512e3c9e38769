"""The doctor: says what is there and what would go wrong, and never fails itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from transformers import MambaConfig, T5Config

from engine import default_pair
from engine.doctor import diagnose
from tests.unit.engine_folders import byte_tokenizer, save_model


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_model(tmp_path_factory.mktemp("doctor") / "target", layers=3)


def test_a_pair_that_fits(target: str, tmp_path: Path) -> None:
    found = diagnose(save_model(tmp_path / "draft", layers=1), target, device="cpu")
    assert found.fits
    assert (found.target.layers, found.draft.layers, found.target.vocab_size) == (3, 1, 257)
    assert found.device == "cpu"
    assert found.dtype in ("bfloat16", "float32")
    assert found.dtype_reason
    assert found.packages["torch"]


@pytest.mark.parametrize("draft", ["prompt-lookup", "prompt-lookup:2", "self:0-1", None])
def test_drafts_that_are_no_model(target: str, draft: str | None) -> None:
    found = diagnose(draft, target)
    assert found.fits
    assert found.draft is None


@pytest.mark.parametrize(
    ("draft", "device", "why"),
    [
        ("self:7", "cpu", "layers 0 to 2"),
        ("prompt-lookup:99", "cpu", "between 1 and 10"),
        ("./nowhere", "cpu", "no folder"),
        ("prompt-lookup", "abacus", "no device named abacus"),
    ],
)
def test_problems_are_sentences(target: str, draft: str, device: str, why: str) -> None:
    found = diagnose(draft, target, device=device)
    assert not found.fits
    assert why in found.problems[0]


def test_different_tokenizers(target: str, tmp_path: Path) -> None:
    draft = save_model(tmp_path / "draft", tokenizer=byte_tokenizer(swap=True))
    assert "different tokenizers" in diagnose(draft, target).problems[0]


def test_models_that_cannot_take_part(target: str, tmp_path: Path) -> None:
    for name, config in (("mamba", MambaConfig(hidden_size=8)), ("t5", T5Config(d_model=8))):
        config.save_pretrained(tmp_path / name)
        problem = diagnose(None, str(tmp_path / name)).problems[0]
        assert name in problem
    assert "cannot be rolled back" in diagnose(None, str(tmp_path / "mamba")).problems[0]


def test_the_default_model(monkeypatch: pytest.MonkeyPatch, target: str, tmp_path: Path) -> None:
    file = tmp_path / "m.gguf"
    file.write_bytes(b"x")
    monkeypatch.setenv("SPECVIEW_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(default_pair, "embedded_file", lambda: file)
    assert "first use" in diagnose(None, target).default_model
    monkeypatch.setattr(default_pair, "embedded_file", lambda: None)
    assert "not installed" in diagnose(None, target).default_model
