"""The whole recipe: generate, train, evaluate, write. Every step goes on where a killed run stopped."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from engine import default_pair
from engine.distill.data import frequent_tokens
from engine.distill.evaluate import Agreement, agreement
from engine.distill.generate import GenerateSettings, generate
from engine.distill.plain import PlainDraft, plain_from_target, save_plain
from engine.distill.sampler import Sampled
from engine.distill.start import config_for, fit_fusion, start_from_target
from engine.distill.store import load_all
from engine.distill.target import load_target
from engine.distill.train import TrainSettings, new_head, train
from engine.errors import PairError
from engine.head.folder import load_head, save_head
from engine.head.network import DraftHead

Kind = Literal["head", "plain"]


@dataclass(frozen=True)
class DistillSettings:
    """What to make. The defaults are those of the shipped head."""

    kind: Kind = "head"
    """head: reads the target's hidden states. plain: a model folder that reads tokens only."""
    layers: int = 1
    taps: tuple[int, ...] | None = None
    """After how many of the target's layers a head reads its states besides the final ones; None: after a third of them
    and after two thirds."""
    scored_tokens: int = 8192
    """Size of the trimmed vocabulary."""
    generate: GenerateSettings = field(default_factory=GenerateSettings)
    train: TrainSettings = field(default_factory=TrainSettings)
    depth: int = 5
    """Draft positions that the evaluation looks at."""
    start: Path | None = None
    """Train on from the head in this folder, with its vocabulary, rather than from the target's layers."""


def distill(
    target: Any,
    tokenizer: Any,
    target_name: str,
    out: Path,
    work: Path,
    settings: DistillSettings,
    report: Callable[[str], None],
    pause: Callable[[], None] = lambda: None,
) -> Agreement:
    """Make a draft for `target` in the folder `out`; `work` keeps the samples and the training state.

    Returns how the draft agrees with the target on held-out prompts, which is also written beside the weights.

    Raises:
        PairError: the samples hold nothing to learn from, or not the states that the head reads.
    """
    begin = time.monotonic()
    settings = replace(settings, generate=replace(settings.generate, taps=_taps(target, settings)))
    generate(target, tokenizer, work / "samples", settings.generate, report, pause)
    sequences = list(load_all(work / "samples" / "train"))
    held_out = list(load_all(work / "samples" / "held-out"))
    if not any(len(s.ids) > s.prompt_length + 1 for s in sequences):
        raise PairError(f"{target_name} ends every answer at once, so there is nothing to learn from.")
    width = (len(settings.generate.taps) + 1) * int(target.config.hidden_size)
    if any(s.states.shape[1] != width for s in (*sequences, *held_out)):
        raise PairError(f"The samples in {work} were made for other taps; choose another folder for them.")
    scored, share = frequent_tokens(target, sequences, settings.scored_tokens)
    report(f"vocabulary: {len(scored):,} tokens hold {share:.1%} of the target's probability")
    draft, scored, train_settings = _new_draft(target, scored, sequences, settings)
    checkpoint = work / f"{settings.kind}-{settings.layers}-{len(scored)}.pt"
    train(draft, target, scored, sequences, train_settings, checkpoint, report, pause)
    draft.to(target.dtype)
    measured = agreement(draft, target, scored, held_out, settings.depth)
    report(f"held-out: {measured}")
    notes = {
        "target": target_name,
        "answer_tokens": sum(len(s.ids) - s.prompt_length for s in sequences),
        "vocabulary_share": round(share, 4),
        "held_out": asdict(measured),
        "generate": asdict(settings.generate),
        "train": asdict(train_settings),
        "torch": torch.__version__,
    }
    match draft:
        case PlainDraft():
            save_plain(out, draft, tokenizer)
        case DraftHead():
            save_head(out, draft, scored, notes)
    report(f"written to {out} after {time.monotonic() - begin:.0f} s")
    return measured


def run(
    *,
    target: str | None,
    out: Path,
    work: Path | None,
    kind: Kind,
    tokens: int | None,
    steps: int | None,
    layers: int | None,
    taps: tuple[int, ...] | None,
    scored_tokens: int | None,
    seed: int,
    start: Path | None,
    report: Callable[[str], None],
) -> Agreement:
    """The recipe for a target by name; None keeps a setting's default.

    Raises:
        PairError: the target cannot be loaded or distilled.
    """
    loaded = load_target(target, lambda sentence, _share: report(sentence))
    defaults = DistillSettings()
    settings = replace(
        defaults,
        kind=kind,
        start=start,
        taps=taps,
        layers=layers or (2 if kind == "plain" else defaults.layers),
        scored_tokens=scored_tokens or defaults.scored_tokens,
        generate=replace(defaults.generate, tokens=tokens or defaults.generate.tokens, seed=seed),
        train=replace(defaults.train, steps=steps or defaults.train.steps, seed=seed),
    )
    name = target or default_pair.NAME
    return distill(
        loaded.module, loaded.tokenizer, name, out, work or out.with_name(out.name + ".work"), settings, report
    )


def _taps(target: Any, settings: DistillSettings) -> tuple[int, ...]:
    """The layers whose states the draft reads, besides the final ones."""
    if settings.kind == "plain":
        return ()
    if settings.start is not None:
        return load_head(settings.start)[0].config.taps
    layers = int(target.config.num_hidden_layers)
    taps = {layers // 3, 2 * layers // 3} - {0} if settings.taps is None else set(settings.taps)
    wrong = [tap for tap in taps if not 0 < tap <= layers]
    if wrong:
        raise PairError(f"There is no state after layer {wrong[0]}; the target has {layers} layers.")
    return tuple(sorted(taps))


def _new_draft(
    target: Any, scored: Tensor, sequences: Sequence[Sampled], settings: DistillSettings
) -> tuple[DraftHead | PlainDraft, Tensor, TrainSettings]:
    if settings.kind == "plain":
        return plain_from_target(target, settings.layers), scored, replace(settings.train, unroll=1)
    if settings.start is not None:
        head, scored = load_head(settings.start, torch.float32)
        return head.train().requires_grad_(True), scored, settings.train
    head = new_head(config_for(target, len(scored), settings.layers, settings.generate.taps), settings.train.seed)
    start_from_target(head, target)
    # An even sample of the sequences: shards hold prompts of similar length.
    fit_fusion(head, target, sequences[:: max(1, len(sequences) // 256)])
    return head, scored, settings.train
