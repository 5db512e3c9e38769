"""A head that drafts from the target's own hidden states (EAGLE, arXiv 2401.15077), over a trimmed vocabulary.

It predicts far better than a plain draft of its size, because the target has already read the prefix for it. What
it needs are the target's hidden states at every committed position but the last: `observe` brings them.
"""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import SafetensorError
from torch import Tensor
from torch.nn.functional import embedding

from engine.errors import PairError
from engine.head.cache import HeadCache
from engine.head.folder import HEAD_FILE, load_head
from engine.head.network import DraftHead
from engine.linear import project
from engine.model import Model
from engine.proposers import Committed, Proposal, Room
from engine.round import Sampling
from engine.sampling import REMOVED, draw, scores, treats_tokens_alike
from engine.vocab_map import VocabMap


def find_head(name: str) -> Path | None:
    """The folder that `name` stands for when it holds a head rather than a model of its own."""
    folder = Path(name)
    return folder if (folder / HEAD_FILE).is_file() else None


def load_feature_head(folder: Path, target: Model, sampling: Sampling, min_prob: float = 0.0) -> FeatureHead:
    """The head of a folder, ready to draft for `target`, in the target's dtype.

    Raises:
        PairError: the folder is damaged, or its head was made for a target of another shape.
    """
    try:
        head, scored = load_head(folder, target.dtype)
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
        raise PairError(f"The draft head in {folder} cannot be read ({error}); make it again.") from error
    config = head.config
    width = int(target.module.get_output_embeddings().weight.shape[1])
    if (config.hidden_size, config.vocab_size) != (width, target.vocab_size):
        raise PairError(
            f"The draft head in {folder} was made for a target of width {config.hidden_size} with "
            f"{config.vocab_size} tokens, but {target.name} has width {width} and {target.vocab_size}."
        )
    layers = int(target.config.num_hidden_layers)
    if any(not 0 < tap <= layers for tap in config.taps):
        raise PairError(
            f"The draft head in {folder} reads the states after layers {config.taps}, but {target.name} has {layers}."
        )
    return FeatureHead(head, scored, target, sampling, min_prob)


class FeatureHead:
    """Drafts with a `DraftHead`; the embedding and the output rows are the target's.

    The cache holds one entry a token. An entry made while drafting rests on the head's own output in place of a target
    state; it stays after its token was accepted, and is made anew from the target's state at the next proposal, in the
    forward that reads the pending token. q is 0 outside the trimmed vocabulary, which keeps the output exact (C12).
    """

    kind = "eagle"

    def __init__(
        self, head: DraftHead, scored: Tensor, target: Model, sampling: Sampling, min_prob: float = 0.0
    ) -> None:
        """`scored`: (trimmed vocab,) target ids that the head can say."""
        device = target.output_device
        self.context_length = target.context_length
        self.calls = 0
        self.vocab_size = target.vocab_size
        self.embedding_rows = target.embedding_rows
        self.device = self.output_device = device
        self.taps = head.config.taps
        self._head = head.to(device)
        self._head.arrange()
        self._embedding: Tensor = target.module.get_input_embeddings().weight
        rows: Tensor = target.module.get_output_embeddings().weight[scored.to(device)]
        self._rows = project([rows])
        self._scored = scored.to(device)
        self._map = VocabMap(target.vocab_size, 0, self._scored)
        self._sampling = sampling
        self._min_prob = min_prob
        self._caches = [HeadCache(head.config, rows.dtype, device) for _ in head.stack]
        self._prompt = torch.empty(0, dtype=torch.int64, device=device)
        self._states = torch.zeros(1, head.config.feature_size, dtype=rows.dtype, device=device)
        self._known = 0
        self._firm = 0

    @torch.inference_mode()
    def begin(self, ids: Tensor, capacity: int) -> None:
        """Start a sequence; the prompt is taken in as `observe` brings its states."""
        self.calls = 0
        self._prompt = ids[:-1].to(self.device)
        # Row i + 1 holds the states after token i; row 0, before any token, is zero as in training.
        self._states = self._states.new_zeros(capacity + 1, self._states.shape[1])
        self._known = self._firm = 0
        for cache in self._caches:
            cache.crop(0)

    @torch.inference_mode()
    def observe(self, hidden: Tensor) -> None:
        count = hidden.shape[0]
        self._states[self._known + 1 : self._known + 1 + count] = hidden
        self._known += count
        ready = min(self._prompt.shape[0], self._known)
        if self._firm < ready:
            self._read(self._prompt[self._firm : ready], ready)

    def prepare(self, gamma: int) -> None:
        """Its forwards are called, not replayed."""

    def propose(self, committed: Committed, gamma: int, uniforms: Tensor) -> Proposal:
        t = committed.ids.shape[0]
        state = self._read(committed.ids[self._firm :], t)
        penalties = committed.penalties
        trimmed = treats_tokens_alike(self._sampling)
        tokens: list[Tensor] = []
        score_rows: list[Tensor] = []
        q_rows: list[Tensor] = []
        stop = None
        for i in range(gamma):
            if i > 0:
                if penalties is not None:
                    penalties = penalties.along(tokens[-1]).last()
                entered = self._head.enter_own(state, embedding(tokens[-1], self._embedding))
                state = self._step(entered, t + i - 1)
            logits = self._rows(state)
            row = scores(logits if trimmed else self._map.to_target(logits), self._sampling, penalties)
            q = torch.softmax(row, dim=-1)
            place = row.argmax(dim=-1) if self._sampling.greedy else draw(q, uniforms[i : i + 1])
            tokens.append(self._scored[place] if trimmed else place)
            score_rows.append(row)
            q_rows.append(q)
            if self._min_prob > 0.0 and i + 1 < gamma and float(q[0, place]) < self._min_prob:
                stop = "min-prob"
                break
        k = len(tokens)
        room = committed.room or Room.of(k, self.vocab_size, self.device)
        q_all, scores_all = room.probabilities[:k], room.scores[:k]
        if trimmed:
            self._lay_out(torch.cat(q_rows), 0.0, q_all)
            self._lay_out(torch.cat(score_rows), REMOVED, scores_all)
        else:
            torch.cat(q_rows, out=q_all)
            torch.cat(score_rows, out=scores_all)
        return Proposal(torch.cat(tokens), q_all, scores_all, stop)

    def _lay_out(self, rows: Tensor, elsewhere: float, out: Tensor) -> None:
        """(k, trimmed vocab) over the target's vocabulary. Settings that look at no other token may work on the
        trimmed rows, a sixth of the width, and are laid out once a round."""
        out.fill_(elsewhere)
        out[:, self._scored] = rows

    def roll_back(self, length: int) -> None:
        for cache in self._caches:
            cache.crop(length)
        self._firm = min(self._firm, length)
        self._known = min(self._known, length)

    def length(self) -> int:
        return self._caches[0].length

    def forward(self, ids: Tensor, keep: int) -> Tensor:
        """One draft forward behind what the cache holds, for timing it; (keep, trimmed vocab) logits."""
        own = self._states[:1, : self._head.config.hidden_size].expand(ids.shape[0], -1)
        entered = self._head.enter_own(own, embedding(ids, self._embedding))
        return self._rows(self._head.step(entered, self._caches, self.length())[-keep:])

    def _read(self, ids: Tensor, end: int) -> Tensor:
        """Take in the committed tokens before position `end`, from the target's states; the last one's (1, width)."""
        entered = self._head.enter(self._states[self._firm : end], embedding(ids, self._embedding))
        state = self._step(entered, self._firm)
        self._firm = end
        return state

    def _step(self, entered: Tensor, start: int) -> Tensor:
        self.calls += 1
        return self._head.step(entered, self._caches, start)[-1:]
