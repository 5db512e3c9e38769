"""The facts of a `generate` call that hold for all its rounds."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import transformers
from transformers import GenerationConfig

from engine.round import RunInfo
from specview import __version__
from specview.capturing.settings import Asked, asked_sampling, unsaid
from specview.capturing.verdict import Context


@dataclass(frozen=True, slots=True)
class Facts:
    """A call's configuration. `info.uuid` is empty: calls of one configuration share a run."""

    info: RunInfo
    context: Context
    note: str | None
    """What the run's columns cannot say; one sentence."""
    tokenizer: Any
    """The target's tokenizer, where `generate` was given one."""
    name: str | None
    """Where the target was loaded from; None where nobody says."""
    max_length: int | None


def facts_of(model: Any, config: GenerationConfig, processors: Sequence[Any], arguments: dict[str, Any]) -> Facts:
    """Look at a call of `_assisted_decoding`; `arguments` are its keyword arguments."""
    draft = arguments.get("assistant_model")
    if config.assistant_early_exit is not None:
        kind, draft = "early-exit", model
    elif config.prompt_lookup_num_tokens is not None:
        kind, draft = "prompt-lookup", None
    elif getattr(config, "use_mtp", None):
        kind, draft = "mtp", model
    elif getattr(config, "speculation_type", None) == "dflash":
        kind = "dflash"
    else:
        kind = "draft-model"
    gamma, schedule = _gamma(config, draft)
    info = RunInfo(
        uuid="",
        source="transformers",
        draft=kind if draft is None else _draft_name(draft, kind, config),
        target=_name(model),
        proposer=kind,
        vocab_size=model.config.get_text_config().vocab_size,
        device=str(model.device),
        device_name=_device_name(model.device),
        target_dtype=_dtype(model),
        draft_dtype=None if draft is None else _dtype(draft),
        gamma=gamma,
        gamma_schedule=schedule,
        sampling=asked_sampling(config),
        stop=_stop_strings(config),
        max_new_tokens=config.max_new_tokens,
        versions={
            "specview": __version__,
            "transformers": transformers.__version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
    )
    context = Context(
        asked=Asked.of(processors),
        greedy=not config.do_sample,
        ensemble_weight=config.assistant_ensemble_weight,
        eos=_eos(config),
    )
    return Facts(
        info,
        context,
        unsaid(config, processors),
        arguments.get("tokenizer"),
        model.name_or_path or None,
        config.max_length,
    )


def as_run(facts: Facts, uuid: str) -> RunInfo:
    return replace(facts.info, uuid=uuid)


def _gamma(config: GenerationConfig, draft: Any) -> tuple[int | None, str | None]:
    """(γ asked for, its schedule). A schedule changes the number from call to call, so then there is no one γ."""
    if config.prompt_lookup_num_tokens is not None:
        return config.prompt_lookup_num_tokens, "fixed"
    if draft is None:
        return None, None
    own = draft.generation_config
    defaults = own._get_default_generation_params()

    def setting(name: str) -> Any:
        value = getattr(own, name, None)
        return defaults.get(name) if value is None else value

    schedule = setting("num_assistant_tokens_schedule") or "constant"
    if schedule != "constant":
        return None, schedule
    return setting("num_assistant_tokens"), "confidence" if setting("assistant_confidence_threshold") else "fixed"


def _draft_name(draft: Any, kind: str, config: GenerationConfig) -> str:
    if kind == "early-exit":
        return f"{_name(draft)}, first {config.assistant_early_exit} layers"
    return _name(draft)


def _name(model: Any) -> str:
    return model.name_or_path or type(model).__name__


def _dtype(model: Any) -> str:
    return str(model.dtype).removeprefix("torch.")


def _device_name(device: torch.device) -> str | None:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return platform.processor() or platform.machine() if device.type == "cpu" else None


def _stop_strings(config: GenerationConfig) -> tuple[str, ...]:
    stop = config.stop_strings
    return () if not stop else (stop,) if isinstance(stop, str) else tuple(stop)


def _eos(config: GenerationConfig) -> frozenset[int]:
    ids = getattr(config, "_eos_token_tensor", None)
    return frozenset() if ids is None else frozenset(int(token) for token in ids.flatten().tolist())
