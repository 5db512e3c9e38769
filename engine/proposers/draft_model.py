"""A draft model: the classic proposer, a smaller causal LM that drafts token by token."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.model import Model
from engine.proposers import Committed, Proposal, Room
from engine.round import Sampling
from engine.rows import best
from engine.sampling import Penalties, draw, scores, treats_tokens_alike
from engine.vocab_map import VocabMap


class DraftModel:
    """Drafts with a causal LM, through the same sampling settings as the target.

    A candidate below `min_prob` is still proposed, and is the last one. Dropping it instead would bend the output:
    whether it is tested would then depend on its own value, and the acceptance test is only lossless when that
    choice depends on the prefix alone.
    """

    taps = None

    def __init__(
        self,
        model: Model,
        vocab_map: VocabMap,
        sampling: Sampling,
        kind: str = "draft-model",
        min_prob: float = 0.0,
    ) -> None:
        self.model = model
        self.kind = kind
        self._map = vocab_map
        self._sampling = sampling
        self._min_prob = min_prob
        # The argmax needs no q; what is recorded of it is then made for all candidates at once.
        self._needs_q = not sampling.greedy or min_prob > 0.0

    @property
    def context_length(self) -> int | None:
        return self.model.context_length

    @property
    def calls(self) -> int:
        return self.model.calls

    def begin(self, ids: Tensor, capacity: int) -> None:
        self.model.begin(capacity)
        self.model.prefill(self._map.to_draft(ids[:-1].to(self.model.device)))

    def prepare(self, gamma: int) -> None:
        self.model.prepare((2, *[1] * gamma), keep=1)

    def propose(self, committed: Committed, gamma: int, uniforms: Tensor) -> Proposal:
        target_device = committed.ids.device
        # What the cache lacks: the pending token, and after a full acceptance also the last candidate (clause C10).
        feed = committed.ids[self.model.length() :].to(self.model.device)
        penalties = committed.penalties
        room = committed.room or Room.of(gamma, self._map.target_vocab, target_device)
        tokens: list[Tensor] = []
        stop = None
        for i in range(gamma):
            logits = self.model.forward(self._map.to_draft(feed), 1)
            (token,) = self._choose(i, logits.to(target_device), uniforms[i : i + 1], room, penalties)
            q = room.probabilities[i : i + 1]
            tokens.append(token)
            if self._min_prob > 0.0 and i + 1 < gamma and float(q[0, token]) < self._min_prob:
                stop = "min-prob"
                break
            if penalties is not None and i + 1 < gamma:
                penalties = penalties.along(token).last()
            feed = token.to(self.model.device)
        every, q = room.scores[: len(tokens)], room.probabilities[: len(tokens)]
        if not self._needs_q:
            torch.softmax(every, dim=-1, out=q)
        return Proposal(torch.cat(tokens), q, every, stop)

    def _choose(
        self, i: int, logits: Tensor, uniform: Tensor, room: Room, penalties: Penalties | None
    ) -> tuple[Tensor, ...]:
        """((1,) id of candidate i,); its scores and q are then row i of the room."""

        def step(logits: Tensor, uniform: Tensor) -> tuple[Tensor, ...]:
            row = scores(self._map.to_target(logits), self._sampling, penalties, into=room.scores[i : i + 1])
            q = torch.softmax(row, dim=-1, out=room.probabilities[i : i + 1]) if self._needs_q else row
            return (best(row) if self._sampling.greedy else draw(q, uniform),)

        graphs = self.model.graphs
        if graphs is None or not treats_tokens_alike(self._sampling):
            return step(logits, uniform)
        return graphs.run(("choose", i, room.scores.data_ptr()), step, logits, uniform)

    def observe(self, hidden: Tensor) -> None:
        """A plain draft model looks at tokens only."""

    def roll_back(self, length: int) -> None:
        self.model.roll_back(length)

    def length(self) -> int | None:
        return self.model.length()
