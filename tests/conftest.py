"""Fixtures that several suites share."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

# Before torch is imported anywhere, and for the processes that tests start: tiny models gain nothing from a second
# thread, and two processes with two threads each get in each other's way.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["HF_HUB_OFFLINE"] = "1"

# A shell starts what it runs in the background with this ignored, and every process that a test starts inherits that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@dataclass(frozen=True)
class Result:
    """What a command did."""

    code: int
    out: str
    err: str


@pytest.fixture
def specview(capfd: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    """Run `specview …` in this process, through the same `main` as the script."""
    from specview.cli import main

    def run(*words: object) -> Result:
        with pytest.raises(SystemExit) as exit_:
            main([str(word) for word in words], prog_name="specview")
        out, err = capfd.readouterr()
        return Result(int(exit_.value.code or 0), out, err)

    return run


@dataclass(frozen=True)
class TinyPair:
    """Two model folders that fit together, and one that does not."""

    target: Path
    draft: Path
    stranger: Path

    def options(self) -> list[str]:
        """The command line's words for the pair, in float32."""
        return ["--draft", str(self.draft), "--target", str(self.target), "--dtype", "float32", "--device", "cpu"]


@pytest.fixture(scope="session")
def tiny_pair(tmp_path_factory: pytest.TempPathFactory) -> TinyPair:
    """Random Llamas with byte tokenizers, saved as standard model folders."""
    import torch
    from transformers.utils import logging

    from tests.capture_pair import word_tokenizer
    from tests.unit.tiny_target import tiny_target, tiny_tokenizer

    logging.disable_progress_bar()
    folder = tmp_path_factory.mktemp("tiny")
    target = tiny_target(seed=0)
    target.save_pretrained(folder / "target")
    tiny_tokenizer().save_pretrained(folder / "target")
    torch.manual_seed(1)
    for weight in target.parameters():
        weight.add_(torch.randn_like(weight) * weight.std() * 0.15)
    target.save_pretrained(folder / "draft")
    tiny_tokenizer().save_pretrained(folder / "draft")
    target.save_pretrained(folder / "stranger")
    word_tokenizer(folder / "stranger", vocab=260)
    return TinyPair(folder / "target", folder / "draft", folder / "stranger")
