"""The sampled sequences on disk: one safetensors file a batch, in a folder per part (train, held-out).

A shard is written under another name and renamed, so that a killed run leaves whole shards only, and a rerun goes on
where it stopped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from engine.distill.sampler import Sampled


def save_shard(path: Path, sequences: Sequence[Sampled]) -> None:
    """Write one batch of sequences as flat arrays with their lengths."""
    tensors = {
        "ids": torch.cat([s.ids for s in sequences]).int(),
        "lengths": torch.tensor([len(s.ids) for s in sequences]),
        "prompt_lengths": torch.tensor([s.prompt_length for s in sequences]),
        "ended": torch.tensor([s.ended for s in sequences]),
        "states": torch.cat([s.states for s in sequences]),
        "log_normalizer": torch.cat([s.log_normalizer for s in sequences]),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    save_file(tensors, partial)
    partial.replace(path)


def load_shard(path: Path) -> list[Sampled]:
    """The sequences of one shard, as views into its arrays."""
    tensors = load_file(path)
    lengths = tensors["lengths"].tolist()
    ids = tensors["ids"].long().split(lengths)
    shorter = [length - 1 for length in lengths]
    return [
        Sampled(*fields)
        for fields in zip(
            ids,
            tensors["prompt_lengths"].tolist(),
            tensors["states"].split(shorter),
            tensors["log_normalizer"].split(shorter),
            tensors["ended"].tolist(),
            strict=True,
        )
    ]


def shard_paths(folder: Path) -> list[Path]:
    """The finished shards of a folder, in the order they were written."""
    return sorted(folder.glob("*.safetensors"))


def load_all(folder: Path) -> Iterator[Sampled]:
    """Every sequence of a folder."""
    for path in shard_paths(folder):
        yield from load_shard(path)
