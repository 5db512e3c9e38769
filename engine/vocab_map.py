"""A draft's vocabulary laid out over the target's: padding, smaller heads, and id maps.

Three kinds of draft share a tokenizer with the target and yet have heads of another width: one whose embedding is
padded (ids beyond the smaller size stand for nothing, and are masked out of q), and one whose reduced head needs a
table from its own ids to the target's (EAGLE-3 calls it `d2t`). q is 0 for every token that the draft cannot say; the
acceptance test stays lossless, since the residual covers what q lacks.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from engine.errors import PairError

MAP_FILES = ("d2t.safetensors", "d2t.json")


@dataclass(frozen=True, slots=True)
class VocabMap:
    """How ids and logits cross between a draft and a target.

    Attributes:
        target_vocab: width of the target's logits.
        shared: ids below this number mean the same in both (no id map).
        draft_to_target: (draft vocab,) int64 target id of each draft id; None without an id map.
        target_to_draft: (target vocab,) int64 draft input id of each target id; None where inputs need no map.
    """

    target_vocab: int
    shared: int
    draft_to_target: Tensor | None = None
    target_to_draft: Tensor | None = None

    def to_draft(self, ids: Tensor) -> Tensor:
        """(n,) target ids → (n,) ids that the draft's embedding takes."""
        return ids if self.target_to_draft is None else self.target_to_draft[ids]

    def to_target(self, logits: Tensor) -> Tensor:
        """(n, draft vocab) logits → (n, target vocab), −inf where the draft has no such token."""
        if self.draft_to_target is None and logits.shape[-1] == self.target_vocab == self.shared:
            return logits
        out = logits.new_full((logits.shape[0], self.target_vocab), float("-inf"))
        if self.draft_to_target is None:
            out[:, : self.shared] = logits[:, : self.shared]
        else:
            out[:, self.draft_to_target] = logits
        return out


def plain_map(
    draft_vocab: int, target_vocab: int, tokens: int, embedding_rows: int | None = None, device: str = "cpu"
) -> VocabMap:
    """The map of two heads over one tokenizer with `tokens` ids; either head may be padded.

    A padded target may, however seldom, say an id of its padding; a draft with fewer embedding rows reads it as 0.
    """
    back = None
    if embedding_rows is not None and embedding_rows < target_vocab:
        back = torch.arange(target_vocab, device=device)
        back[embedding_rows:] = 0
    return VocabMap(target_vocab, min(draft_vocab, target_vocab, max(tokens, 1)), None, back)


def find_id_map(folder: Path) -> Path | None:
    """The id map file of a draft folder, if it has one."""
    return next((folder / name for name in MAP_FILES if (folder / name).is_file()), None)


def load_id_map(path: Path, draft_vocab: int, embedding_rows: int, target_vocab: int, device: torch.device) -> VocabMap:
    """Read an id map: a JSON array of target ids, or a safetensors tensor `d2t` of offsets (target id − draft id).

    Raises:
        PairError: the table has another length than the draft's head, repeats an id, or names an id that the target
            does not have.
    """
    table = _read_table(path)
    if table.shape[0] != draft_vocab:
        raise PairError(f"{path} maps {table.shape[0]} ids, but the draft's head has {draft_vocab}.")
    if int(table.min()) < 0 or int(table.max()) >= target_vocab or len(set(table.tolist())) != table.shape[0]:
        raise PairError(f"{path} must name each target id below {target_vocab} at most once.")
    back = None
    if embedding_rows < target_vocab:
        # Tokens that the draft has no input for are read as its token 0: q is then a poor guess, never a wrong one.
        back = torch.zeros(target_vocab, dtype=torch.int64)
        back[table] = torch.arange(draft_vocab)
        back = back.to(device)
    return VocabMap(target_vocab, 0, table.to(device), back)


def _read_table(path: Path) -> Tensor:
    if path.suffix == ".json":
        import json

        try:
            return torch.tensor(json.loads(path.read_text(encoding="utf-8")), dtype=torch.int64)
        except (ValueError, TypeError) as error:
            raise PairError(f"{path} must be a JSON array of token ids.") from error
    from safetensors.torch import load_file

    try:
        offsets: Tensor = load_file(path)["d2t"].to(torch.int64)
    except Exception as error:  # safetensors raises its own, undocumented types
        raise PairError(f"{path} must hold a tensor named d2t.") from error
    return torch.add(offsets, torch.arange(offsets.shape[0]))
