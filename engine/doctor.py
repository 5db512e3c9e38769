"""What is installed, which device and dtype a run would use and why, and whether a pair fits; no weights are loaded."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import metadata
from platform import python_version
from typing import Any

from engine import default_pair
from engine.device import Choice, choose, device_name
from engine.errors import PairError
from engine.layer_skip import parse_layers
from engine.loading import load_config, load_tokenizer
from engine.pair import lookup_length, same_vocabulary
from engine.proposers.feature_head import find_head

PACKAGES = ("specview", "torch", "transformers", "tokenizers", "safetensors", "gguf", "accelerate")


@dataclass(frozen=True, slots=True)
class Side:
    """One model as its config describes it."""

    name: str
    model_type: str
    layers: int | None
    vocab_size: int | None
    context: int | None


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Plain facts, ready to print."""

    packages: dict[str, str | None]
    """Version, or None where a package is not installed."""
    device: str | None
    device_name: str | None
    device_reason: str
    dtype: str | None
    dtype_reason: str
    default_model: str
    """Where the default target comes from, in words."""
    target: Side | None
    draft: Side | None
    problems: tuple[str, ...]
    """One sentence each; empty when a run would start."""

    @property
    def fits(self) -> bool:
        return not self.problems


def diagnose(
    draft: str | None = None, target: str | None = None, device: str = "auto", dtype: str = "auto"
) -> Diagnosis:
    """Look at the installation and at a pair (None: the default one); what is wrong is told, not raised."""
    problems: list[str] = []
    choice = _or_problem(problems, lambda: choose(device, dtype))
    place = target or _default_place()
    target_side = _or_problem(problems, lambda: _side(place, target or default_pair.NAME))
    draft_side = None
    if draft is not None:
        draft_side = _or_problem(problems, lambda: _draft_side(draft, target_side))
    if draft_side is not None and target_side is not None and draft is not None:
        _or_problem(problems, lambda: _check_tokenizers(draft, place))
    return Diagnosis(
        packages={"python": python_version(), **{name: _version(name) for name in PACKAGES}},
        device=str(choice.device) if isinstance(choice, Choice) else None,
        device_name=device_name(choice.device) if isinstance(choice, Choice) else None,
        device_reason=choice.device_reason if isinstance(choice, Choice) else "",
        dtype=str(choice.dtype).removeprefix("torch.") if isinstance(choice, Choice) else None,
        dtype_reason=choice.dtype_reason if isinstance(choice, Choice) else "",
        default_model=_default_model(),
        target=target_side,
        draft=draft_side,
        problems=tuple(problems),
    )


def _or_problem(problems: list[str], look: Any) -> Any:
    try:
        return look()
    except PairError as error:
        problems.append(str(error))
        return None


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _default_model() -> str:
    source = default_pair.embedded_file()
    if source is None:
        return f"not installed; {default_pair.HUB_ID} would be asked of the Hugging Face hub"
    converted = default_pair.converted_folder(source)
    if (converted / "config.json").is_file():
        return f"{default_pair.NAME}, converted in {converted}"
    return f"{default_pair.NAME}, to be converted into {converted} at its first use"


def _default_place() -> str:
    """Where the default target would be read from now."""
    source = default_pair.embedded_file()
    if source is None:
        return default_pair.HUB_ID
    converted = default_pair.converted_folder(source)
    return str(converted if (converted / "config.json").is_file() else source)


def _side(place: str, name: str) -> Side:
    from transformers import AutoModelForCausalLM

    config = load_config(place)
    if type(config) not in AutoModelForCausalLM._model_mapping:
        raise PairError(f"{name} is a {config.model_type}, which is no causal language model.")
    if getattr(AutoModelForCausalLM._model_mapping[type(config)], "_is_stateful", False):
        raise PairError(
            f"The cache of {name} ({config.model_type}) cannot be rolled back after a rejection; "
            "choose a model with ordinary attention layers."
        )
    text = config.get_text_config(decoder=True)
    return Side(
        name=name,
        model_type=str(text.model_type),
        layers=getattr(text, "num_hidden_layers", None),
        vocab_size=getattr(text, "vocab_size", None),
        context=getattr(text, "max_position_embeddings", None),
    )


def _draft_side(draft: str, target: Side | None) -> Side | None:
    """A draft that is no model of its own is checked by its spelling, and has no side."""
    if draft == "prompt-lookup" or draft.startswith("prompt-lookup:"):
        lookup_length(draft)
        return None
    if draft.startswith("self:"):
        if target is not None and target.layers is not None:
            parse_layers(draft.removeprefix("self:"), target.layers)
        return None
    if find_head(draft) is not None:
        return None
    return _side(draft, draft)


def _check_tokenizers(draft: str, target: str) -> None:
    ours, theirs = load_tokenizer(draft), load_tokenizer(target)
    if theirs is None:
        raise PairError(f"{target} has no tokenizer beside it; save the model's tokenizer into the same folder.")
    if ours is not None and not same_vocabulary(ours, theirs):
        raise PairError(
            f"The draft {draft} and the target {target} have different tokenizers "
            f"({len(ours)} and {len(theirs)} tokens); choose a draft made for the target's."
        )
