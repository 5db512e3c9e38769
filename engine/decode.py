"""The loop: propose, score, accept, correct — and roll back. One generator, one `Round` at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from engine.facts import Facts, measure, positions, unpack
from engine.gamma import GammaSchedule
from engine.graphs import Step
from engine.judge import Ending, Judged, end, judge
from engine.model import Model
from engine.proposers import Committed, Proposal, Proposer, Room
from engine.round import CorrectionKind, Cut, Origin, Round, Sampling, StopReason
from engine.sampling import Penalties, has_penalties, treats_tokens_alike, uniform_draws
from engine.stopping import Stopping
from engine.timing import PhaseClock


class Uniforms(NamedTuple):
    """A round's random numbers, drawn together before it starts."""

    tests: Tensor
    """(γ,) float32: the u of the acceptance tests."""
    draws: Tensor
    """(γ+1,) float64: one a candidate, the last one for the correction or bonus."""


class Decoder:
    """Speculative decoding of one sequence at a time (Leviathan et al., arXiv 2211.17192, algorithm 1).

    Args:
        target: scores candidates; proposer: drafts them.
        generator: the run's only source of randomness, on the target's output device.
        top: alternatives recorded a distribution.
    """

    def __init__(
        self,
        target: Model,
        proposer: Proposer,
        sampling: Sampling,
        schedule: GammaSchedule,
        generator: torch.Generator,
        clock: PhaseClock,
        top: int = 5,
    ) -> None:
        self.target = target
        self.proposer = proposer
        self.sampling = sampling
        self.schedule = schedule
        self.top = top
        self.stop_reason: StopReason | None = None
        self._generator = generator
        self._clock = clock
        self._device = generator.device
        self._room = Room.of(schedule.largest, target.vocab_size, self._device)

    def begin(self, ids: list[int], stopping: Stopping) -> None:
        """Take over a prompt that both models have been prefilled with (all but its last token)."""
        capacity = len(ids) + stopping.limit + self.schedule.largest + 1
        self._tape = torch.zeros(capacity, dtype=torch.int64, device=self._device)
        self._tape[: len(ids)] = torch.tensor(ids, dtype=torch.int64, device=self._device)
        if self._room.scores.shape[0] <= 2 * self.schedule.largest:
            self._room = Room.of(self.schedule.largest, self.target.vocab_size, self._device)
        self._committed = list(ids)
        self._stopping = stopping
        self._penalties = None
        if has_penalties(self.sampling):
            self._penalties = Penalties.of_prompt(self._tape[: len(ids)], self.target.vocab_size)
        self._index = 0
        self.stop_reason = "length" if self._full() else None

    def rounds(self) -> Iterator[Round]:
        """Decode until the sequence ends; `stop_reason` then says why.

        Raises:
            NumericalError: a model produced logits that are no distribution.
        """
        while self.stop_reason is None:
            with torch.inference_mode():
                finished = self._round()
            self.schedule.learn(finished)
            self._index += 1
            yield finished

    def _round(self) -> Round:
        clock, target, proposer = self._clock, self.target, self.proposer
        t = len(self._committed)
        gamma, asked = self._gamma(t)
        before = (target.length(), proposer.length(), target.calls, proposer.calls)

        target.prepare((gamma + 1,), keep=gamma + 1)
        proposer.prepare(gamma)
        clock.begin()
        uniforms = self._draw_uniforms(gamma)
        # 1. Propose: γ candidates, each drawn from its own q.
        proposal = self._propose(t, gamma, uniforms)
        k = proposal.tokens.shape[0]
        clock.mark("propose")

        # 2. Score: one forward over the pending token and the candidates gives p at all k+1 positions.
        self._tape[t : t + k] = proposal.tokens
        logits = target.forward(self._tape[t - 1 : t + k].to(target.device), k + 1).to(self._device)
        clock.mark("score")

        # 3. Accept: the longest prefix that passes the test.
        judged = self._accept(logits, proposal, uniforms.tests[:k])

        # 4. Correct: one token from the residual, or the bonus from p when everything was accepted.
        ending = self._correct(judged, proposal, uniforms.draws[-1:])
        self._tape.index_copy_(0, (t + judged.accepted).reshape(1), ending.token)
        clock.mark("accept")

        measured = self._measure(judged, ending, proposal, uniforms.tests[:k])
        clock.mark("record")
        packed = measured.tolist()  # the round's only transfer, and its only synchronisation
        clock.transferred()
        written = (target.length(), proposer.length())

        one_hot = proposal.scores is None
        facts = unpack(packed, k, self.top, target.vocab_size, self.sampling.greedy, one_hot)
        block, cut = self._cut(facts)
        clock.mark("record")

        # 5. Roll back: both caches keep what is on the true path and was fed; the last token stays pending.
        target.roll_back(t + len(block) - 1)
        proposer.roll_back(t + len(block) - 1)
        if proposer.taps is not None and target.hidden is not None:
            proposer.observe(target.hidden[: len(block)])
        clock.mark("rollback")

        self._commit(block)
        kept = min(facts.accepted, len(block))
        corrected = len(block) == facts.accepted + 1
        return Round(
            index=self._index,
            gamma=asked,
            proposed=k,
            judged=min(k, facts.accepted + 1),
            accepted=facts.accepted,
            committed_before=t,
            committed_after=len(self._committed),
            committed=_origins(facts, block, k),
            positions=positions(facts, kept),
            correction_token=facts.token if corrected else None,
            correction_kind=_kind(facts, k) if corrected else None,
            correction_prob=facts.token_prob if corrected else None,
            correction_target_prob=facts.token_target_prob if corrected else None,
            correction_draft_prob=facts.token_draft_prob if corrected and facts.accepted < k else None,
            residual_mass=self._residual_mass(facts, k),
            residual_fallback=facts.fallback and corrected and not self.sampling.greedy,
            cut=cut,
            draft_stop=proposal.stop if gamma == asked else "context",
            target_kv_before=before[0],
            target_kv_written=written[0] - before[0],
            target_kv_after=target.length(),
            draft_kv_before=before[1],
            draft_kv_written=None if written[1] is None or before[1] is None else written[1] - before[1],
            draft_kv_after=proposer.length(),
            target_calls=target.calls - before[2],
            draft_calls=proposer.calls - before[3],
            times=clock.finish(),
        )

    def _accept(self, logits: Tensor, proposal: Proposal, tests: Tensor) -> Judged:
        penalties = self._penalties.along(proposal.tokens) if self._penalties is not None else None

        def step(logits: Tensor, tokens: Tensor, tests: Tensor) -> Judged:
            return judge(logits, tokens, tests, proposal.q, self.sampling, penalties, self._room)

        return Judged(*self._run("accept", step, proposal, logits, proposal.tokens, tests))

    def _correct(self, judged: Judged, proposal: Proposal, uniform: Tensor) -> Ending:
        def step(uniform: Tensor, *judged: Tensor) -> Ending:
            return end(Judged(*judged), proposal.q, uniform, self.sampling.greedy)

        return Ending(*self._run("correct", step, proposal, uniform, *judged))

    def _measure(self, judged: Judged, ending: Ending, proposal: Proposal, tests: Tensor) -> Tensor:
        split = len(judged)

        def step(tokens: Tensor, tests: Tensor, *found: Tensor) -> tuple[Tensor]:
            drafted = replace(proposal, tokens=tokens)
            judged, ending = Judged(*found[:split]), Ending(*found[split:])
            return (measure(judged, ending, drafted, tests, self.top, self._room, self.sampling.greedy),)

        return self._run("measure", step, proposal, proposal.tokens, tests, *judged, *ending)[0]

    def _run(self, name: str, step: Step, proposal: Proposal, *inputs: Tensor) -> tuple[Tensor, ...]:
        """A step as a replayed graph, where all that it reads besides its inputs is always at the same place."""
        graphs = self.target.graphs
        if graphs is None or not treats_tokens_alike(self.sampling) or not self._room.holds(proposal):
            return step(*inputs)
        return graphs.run((name, self._room.scores.data_ptr()), step, *inputs)

    def _gamma(self, t: int) -> tuple[int, int]:
        """(γ that both contexts leave room for, γ asked for)."""
        asked = self.schedule.gamma()
        gamma = asked
        for limit, slack in ((self.target.context_length, 0), (self.proposer.context_length, 1)):
            # The target is fed up to the last candidate, the draft up to the one before it.
            if limit is not None:
                gamma = min(gamma, max(0, limit - t + slack))
        return gamma, asked

    def _draw_uniforms(self, gamma: int) -> Uniforms:
        if self.sampling.greedy:
            return Uniforms(torch.empty(0), torch.empty(gamma + 1))
        return Uniforms(
            torch.rand(gamma, generator=self._generator, device=self._device),
            uniform_draws(gamma + 1, self._generator),
        )

    def _propose(self, t: int, gamma: int, uniforms: Uniforms) -> Proposal:
        if gamma == 0:
            nothing = torch.empty(0, dtype=torch.int64, device=self._device)
            return Proposal(nothing, torch.empty(0, self.target.vocab_size, device=self._device))
        committed = Committed(self._tape[:t], self._committed, self._penalties, self._room)
        return self.proposer.propose(committed, gamma, uniforms.draws)

    def _cut(self, facts: Facts) -> tuple[list[int], Cut | None]:
        """(tokens that this round commits, what cut them short inside the accepted block)."""
        block = [*facts.candidates[: facts.accepted], facts.token]
        stop = self._stopping.first(block)
        if stop is None:
            return block, None
        self.stop_reason = stop.reason
        return block[: stop.kept], stop.reason if stop.kept <= facts.accepted else None

    def _commit(self, block: list[int]) -> None:
        t = len(self._committed)
        if self._penalties is not None:
            self._penalties.extend(self._tape[t : t + len(block)])
        self._committed += block
        self._stopping.commit(block)
        if self.stop_reason is None and self._full():
            self.stop_reason = "length"

    def _full(self) -> bool:
        limit = self.target.context_length
        return self._stopping.limit <= 0 or (limit is not None and len(self._committed) > limit)

    def _residual_mass(self, facts: Facts, k: int) -> float | None:
        if facts.accepted == k:
            return None
        return 1.0 - facts.overlaps[facts.accepted] if self.sampling.greedy else facts.residual_mass


def _kind(facts: Facts, proposed: int) -> CorrectionKind:
    if proposed == 0:
        return "target"
    return "bonus" if facts.accepted == proposed else "correction"


def _origins(facts: Facts, block: list[int], proposed: int) -> tuple[tuple[int, Origin], ...]:
    origins: list[Origin] = ["accepted"] * facts.accepted
    origins.append(_kind(facts, proposed))
    return tuple(zip(block, origins, strict=False))
