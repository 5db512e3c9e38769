"""Follows one `generate` call, in the thread that makes it: notes references, lengths and clock readings.

Whatever goes wrong in here must not reach the generation: the recorder then stops, and the session says so when the
capture ends.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers.generation import candidate_generator as generators

from engine.round import StopReason
from specview.capturing.observation import Observation
from specview.capturing.open_round import OpenRound

_SAME_POSITIONS = (generators.AssistedCandidateGenerator, generators.EarlyExitCandidateGenerator)
"""Proposers whose cache counts the target's own tokens (others draft in another vocabulary, or share a cache)."""


class Sink(Protocol):
    """Where a recorder hands over what it saw."""

    def begin(self, recorder: Recorder, prompt: Tensor) -> None: ...

    def round(self, recorder: Recorder, seen: Observation) -> None: ...

    def end(self, recorder: Recorder, reason: StopReason) -> None: ...

    def fail(self, error: Exception) -> None: ...


_local = threading.local()


def current() -> Recorder | None:
    """The innermost `generate` call that this thread is recording."""
    stack: list[Recorder] = getattr(_local, "stack", [])
    return stack[-1] if stack else None


class Recorder:
    """One `generate` call. `key` tells it from all others; `wants_logits`: the settings can be applied again."""

    def __init__(
        self,
        sink: Sink,
        key: int,
        model: Any,
        cache: Any,
        *,
        wants_logits: bool,
        eos: frozenset[int],
        max_length: int | None,
        clock_start: int,
        facts: Any = None,
    ) -> None:
        self.key = key
        self.facts = facts
        self._sink = sink
        self._model = model
        self._cache = cache
        self._wants_logits = wants_logits
        self._eos = eos
        self._max_length = max_length
        self._clock_start = clock_start
        self._generator: Any = None
        self._undo: list[Callable[[], Any]] = []
        self._broken = False
        self._begun = False
        self._drafting = False
        self._rounds = 0
        self._open: OpenRound | None = None
        self._previous: OpenRound | None = None
        """The round before, until it is known where the draft rolled its cache back to."""

    # --- life

    def enter(self) -> None:
        if not hasattr(_local, "stack"):
            _local.stack = []
        _local.stack.append(self)
        self._step(self._listen_to_target)

    def leave(self, reason: StopReason | None) -> None:
        """The call is over. Everything that was hung onto models and caches is taken off; `reason` None: look."""
        _local.stack.remove(self)
        while self._undo:
            self._undo.pop()()
        if not self._begun:
            return
        self._step(self._hand_over_the_rest, time.perf_counter_ns())
        self._step(lambda: self._sink.end(self, reason or self._reason()))
        self._open = self._previous = self._generator = None

    def _step(self, note: Callable[..., None], *arguments: Any) -> None:
        if self._broken:
            return
        start = time.perf_counter_ns()
        try:
            note(*arguments)
        except Exception as error:  # noqa: BLE001 - the generation must go on; the session raises this at its end
            self._broken = True
            self._sink.fail(error)
        if self._open is not None:
            self._open.record += time.perf_counter_ns() - start

    # --- listening

    def watch(self, generator: Any) -> None:
        """Listen to the call's candidate generator, and to the model that it drafts with."""
        self._step(self._listen_to_generator, generator)

    def _listen_to_target(self) -> None:
        self._hang_on(self._model)
        crop = self._cache.crop

        def timed_crop(tokens: int) -> None:
            self._step(self._crop_begins)
            crop(tokens)
            self._step(self._crop_ends)

        self._cache.crop = timed_crop
        self._undo.append(lambda: vars(self._cache).pop("crop", None))

    def _listen_to_generator(self, generator: Any) -> None:
        self._generator = generator
        draft = getattr(generator, "assistant_model", None) or getattr(generator, "mtp_model", None)
        if draft is not None and draft is not self._model:
            self._hang_on(draft)
        get, update = generator.get_candidates, generator.update_candidate_strategy

        def get_candidates(input_ids: Tensor, *args: Any, **kwargs: Any) -> Any:
            self._step(self._proposal_begins, input_ids)
            try:
                result = get(input_ids, *args, **kwargs)
            finally:
                self._drafting = False
            self._step(self._proposal_ends, result)
            return result

        def update_candidate_strategy(input_ids: Tensor, scores: Tensor, num_matches: int) -> Any:
            self._step(self._round_ends, input_ids, scores)
            return update(input_ids, scores, num_matches)

        generator.get_candidates = get_candidates
        generator.update_candidate_strategy = update_candidate_strategy
        # The closures and the generator hold each other, and with them a KV cache: do not leave that to the collector.
        self._undo.append(lambda: vars(generator).pop("get_candidates", None))
        self._undo.append(lambda: vars(generator).pop("update_candidate_strategy", None))

    def _hang_on(self, model: Any) -> None:
        before = model.register_forward_pre_hook(self._forward_begins, with_kwargs=True)
        after = model.register_forward_hook(self._forward_ends)
        self._undo += [before.remove, after.remove]

    # --- what is noted, in the order of a round

    def _proposal_begins(self, input_ids: Tensor) -> None:
        now = time.perf_counter_ns()
        if not self._begun:
            self._begun = True
            self._sink.begin(self, input_ids[0])
        self._previous = self._open
        self._open = OpenRound(now, int(input_ids.shape[1]), self._gamma(), _length(self._cache))
        self._drafting = True

    def _proposal_ends(self, result: tuple[Tensor, Tensor | None]) -> None:
        this = self._required()
        this.proposed_at = this.mark()
        sequence, scores = result
        this.sequence = sequence[0].to(self._model.device)
        this.draft_scores = None if scores is None else scores[0]
        this.draft_kv_proposed = self._draft_length()
        this.stop = self._draft_stop(this)
        # Only now is the round before complete: the draft rolls its cache back as it starts the next proposal.
        self._hand_over(self._previous, this.start, this.draft_kv)
        self._previous = None

    def _forward_begins(self, _model: Any, _args: Any, _kwargs: Any) -> None:
        if torch.compiler.is_compiling() or current() is not self:
            return
        self._step(self._note_forward_begin)

    def _note_forward_begin(self) -> None:
        this = self._open
        if this is None:
            return
        if self._drafting:
            if not this.draft_calls:
                this.draft_kv = self._draft_length()
            this.draft_calls += 1
        else:
            this.target_calls += 1
            if this.target_calls == 1:
                this.score_begins = this.mark()

    def _forward_ends(self, _model: Any, _args: Any, output: Any) -> None:
        if torch.compiler.is_compiling() or current() is not self:
            return
        self._step(self._note_forward_end, output)

    def _note_forward_end(self, output: Any) -> None:
        this = self._open
        if this is None:
            return
        logits = getattr(output, "logits", None)
        if self._drafting:
            if logits is not None and self._wants_logits:
                this.draft_logits.append(logits)
        elif this.target_calls == 1:
            this.score_ends = this.mark()
            if logits is not None and self._wants_logits:
                rows = logits[0, -this.proposed - 1 :]
                # generate processes float32 logits in place, and a slice would keep the whole prompt's logits alive.
                this.target_logits = (
                    rows.clone() if rows.dtype == torch.float32 or logits.shape[1] > rows.shape[0] else rows
                )

    def sampled(self, matches: Tensor | int) -> None:
        """`_speculative_sampling` found this many matches (before any cut)."""
        self._step(self._note_matches, matches)

    def _note_matches(self, matches: Tensor | int) -> None:
        self._required().matches = matches

    def _crop_begins(self) -> None:
        this = self._open
        if this is None:
            return
        this.crop_begins = this.mark()
        this.target_kv_scored = _length(self._cache)

    def _crop_ends(self) -> None:
        this = self._open
        if this is None:
            return
        this.crop_ends = this.mark()
        this.target_kv_after = _length(self._cache)

    def _round_ends(self, input_ids: Tensor, scores: Tensor) -> None:
        this = self._required()
        this.scores = scores[0]
        this.output = input_ids[0, this.before :]

    # --- what is handed over

    def _hand_over(self, this: OpenRound | None, end: int, draft_after: int | None) -> None:
        if this is None or not this.complete:
            return  # the call broke in the middle of the round
        seen = this.observation(
            self._rounds,
            clock_start=self._clock_start,
            end=end,
            draft_after=draft_after,
            same_positions=self._same_positions,
            point_mass=isinstance(self._generator, generators.PromptLookupCandidateGenerator),
        )
        self._rounds += 1
        self._sink.round(self, seen)

    def _hand_over_the_rest(self, end: int) -> None:
        # The draft's cache is left as it was when the last round ended: it is never rolled back again. There is a
        # round before that, too, where the last proposal broke.
        if self._open is not None:
            self._hand_over(self._previous, self._open.start, None)
        self._hand_over(self._open, end, None)

    @property
    def _same_positions(self) -> bool:
        return type(self._generator) in _SAME_POSITIONS

    def _draft_length(self) -> int | None:
        held = getattr(self._generator, "assistant_kwargs", None)
        return None if held is None else _length(held.get("cache")) or 0

    def _gamma(self) -> int | None:
        if self._same_positions:
            return int(self._generator.num_assistant_tokens)
        if isinstance(self._generator, generators.PromptLookupCandidateGenerator):
            return int(self._generator.num_output_tokens)
        return None

    def _draft_stop(self, this: OpenRound) -> str | None:
        gamma, n = this.gamma, this.proposed
        if gamma is None or n >= gamma or this.sequence is None:
            return None
        if self._max_length is not None and n >= self._max_length - this.before - 1:
            return "length limit"
        if not self._same_positions:
            return "nothing found" if not n else "end of the match"
        return "end of text" if int(this.sequence[-1]) in self._eos else "low confidence"

    def _reason(self) -> StopReason:
        last = self._open
        if last is None or last.output is None:
            return "stop"
        if int(last.output[-1]) in self._eos:
            return "eos"
        length = last.before + int(last.output.shape[0])
        return "length" if self._max_length is not None and length >= self._max_length else "stop"

    def _required(self) -> OpenRound:
        if self._open is None:
            raise RuntimeError("transformers verified candidates that were never proposed")
        return self._open


def _length(cache: Any) -> int | None:
    """Positions in a cache, as the cache itself says; None without a cache."""
    return None if cache is None else int(cache.get_seq_length())
