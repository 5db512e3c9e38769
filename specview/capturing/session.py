"""A capture in progress: recorders hand over what they saw, the session writes it into the trace."""

from __future__ import annotations

import itertools
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from engine.round import RunInfo, Sequence, Status, StopReason
from engine.vocabulary import Vocabulary
from specview.capturing.analysis import TWICE, settings_applied_twice, to_rounds
from specview.capturing.backlog import Backlog
from specview.capturing.deviation import NOTICEABLE
from specview.capturing.facts import Facts, as_run, facts_of
from specview.capturing.observation import Observation
from specview.capturing.recorder import Recorder
from specview.capturing.scratch import Scratch
from specview.capturing.tokens import find_tokenizer, vocabulary_of
from specview.capturing.worker import Worker, core_is_free
from specview.trace.writer import TraceWriter

_SETTLE_S = 0.005
"""How long a generation without a free core lets the trace's writer finish before it goes on: it takes half a
millisecond, and twice as much from a generation that needs the core."""


@dataclass(slots=True)
class _Run:
    """A row of `runs`: the calls of one configuration."""

    id: int
    info: RunInfo
    vocabulary: Vocabulary | None
    tokenizer: Any
    note: str | None
    sequences: int = 0
    explained: set[int] = field(default_factory=set)
    examined: bool = False
    """Whether it was looked at why q is off the settings asked for."""


@dataclass(frozen=True, slots=True)
class _Open:
    """A call that is being recorded."""

    key: int
    facts: Facts
    run: _Run
    sequence: int
    """The writer's handle."""
    aside: bool
    """Its rounds are analysed by the worker."""
    crowded: bool
    """Its own threads take every core."""
    backlog: Backlog = field(default_factory=Backlog)
    scratch: Scratch = field(default_factory=Scratch)


class Session:
    """One trace being written by any number of `generate` calls, in any thread.

    Rounds are analysed a few at a time: by a worker where torch leaves a core free, else between two rounds, by the
    thread that generated them.
    """

    def __init__(self, path: Path, writer: TraceWriter, tokenizer: Any) -> None:
        self.path = path
        self.error: Exception | None = None
        self._writer = writer
        self._tokenizer = tokenizer
        self._process = os.getpid()
        self._clock_start = time.perf_counter_ns()
        self._closed = False
        """Nothing new is taken in."""
        self._written = False
        """Nothing more is handed to the writer."""
        self._keys = itertools.count()
        self._runs: list[_Run] = []
        self._open: dict[int, _Open] = {}
        self._captured = 0
        self._worker: Worker | None = None
        self._lock = threading.Lock()
        """Held by whoever changes what is open or hands rows to the writer, which takes them from one thread."""

    # --- in the threads that generate

    def open(self, model: Any, config: Any, processors: Any, arguments: dict[str, Any]) -> Recorder | None:
        """A recorder for a call of `_assisted_decoding`; None where it cannot or must not be recorded."""
        cache = arguments.get("cache")
        if self._closed or self.error is not None or cache is None or os.getpid() != self._process:
            return None
        try:
            facts = facts_of(model, config, processors, arguments)
        except Exception as error:  # noqa: BLE001 - the generation must go on; raised when the capture ends
            self.fail(error)
            return None
        return Recorder(
            self,
            next(self._keys),
            model,
            cache,
            wants_logits=facts.context.asked is not None,
            eos=facts.context.eos,
            max_length=facts.max_length,
            clock_start=self._clock_start,
            facts=facts,
        )

    def begin(self, recorder: Recorder, prompt: Tensor) -> None:
        ids = tuple(prompt.tolist())
        on_processor, free = prompt.device.type == "cpu", core_is_free()
        with self._lock:
            if self._closed or self._over():
                return
            if on_processor and free and self._worker is None:
                self._worker = Worker(self.fail)
            self._begin(
                recorder.key, recorder.facts, ids, aside=on_processor and free, crowded=on_processor and not free
            )

    def round(self, recorder: Recorder, seen: Observation) -> None:
        with self._lock:
            if self._closed or self._over():
                return
            call = self._open[recorder.key]
            rounds = call.backlog.take() if call.backlog.add(seen) else []
        if rounds:
            self._do(call, self._analyse, call, rounds, call.scratch)

    def end(self, recorder: Recorder, reason: StopReason) -> None:
        with self._lock:
            if self._closed or self._over():
                return
            call = self._open[recorder.key]
            rounds = call.backlog.take()
        self._do(call, self._end, call, rounds, reason)

    def _do(self, call: _Open, task: Callable[..., None], *arguments: Any) -> None:
        if call.aside and self._worker is not None:
            self._worker.put(task, *arguments)
        else:
            task(*arguments)

    def fail(self, error: Exception) -> None:
        """Recording broke; the first error is raised when the capture ends, and nothing more is recorded."""
        if self.error is None:
            self.error = error

    def _over(self) -> bool:
        return self._written or self.error is not None

    # --- at the end

    def close(self, status: Status, message: str | None) -> int:
        """Write what waits and close the trace; returns the number of captured calls.

        Raises:
            TraceError: the trace could not be written.
        """
        with self._lock:
            self._closed = True
        if self._worker is not None:
            self._worker.finish()
        for call in list(self._open.values()):
            self._hand_in(call)
        with self._lock:
            self._written = True
        if not self._runs:
            self._writer.discard()
            return 0
        if self.error is not None:
            status, message = "failed", f"{type(self.error).__name__}: {self.error}"
        for call in self._open.values():
            self._writer.end_sequence(call.sequence, "failed" if status == "failed" else "interrupted")
        for run in self._runs[:-1]:
            self._writer.set_status(status, message or run.note, run=run.id)
        self._writer.close(status, message or self._runs[-1].note)
        return self._captured

    def _hand_in(self, call: _Open) -> None:
        """What waits of a call that is still running. Its thread may be at work with the call's own scratch."""
        try:
            self._analyse(call, call.backlog.take(), Scratch())
        except Exception as error:  # noqa: BLE001 - as in every round: raised when the capture has ended
            self.fail(error)

    # --- in the worker, or in the threads that generate

    def _analyse(self, call: _Open, rounds: list[Observation], scratch: Scratch) -> None:
        if not rounds or self._over():
            return
        try:
            found = to_rounds(rounds, call.facts.context, scratch)
        except Exception:
            if len(rounds) == 1:
                raise
            # One of them is at fault: those before it are kept.
            for seen in rounds:
                self._analyse(call, [seen], scratch)
            raise
        with self._lock:
            for seen, one in zip(rounds, found, strict=True):
                if self._over():
                    return
                self._explain(call.run, one.tokens())
                self._writer.add_round(call.sequence, one)
                if not call.run.examined and any((p.draft_deviation or 0) > NOTICEABLE for p in one.positions):
                    self._examine(call.run, seen, call.facts, scratch)
        if call.crowded:
            self._writer.settle(_SETTLE_S)

    def _end(self, call: _Open, rounds: list[Observation], reason: StopReason) -> None:
        self._analyse(call, rounds, call.scratch)
        with self._lock:
            if not self._over():
                del self._open[call.key]
                self._writer.end_sequence(call.sequence, reason)

    # --- with the lock held

    def _begin(self, key: int, facts: Facts, ids: tuple[int, ...], *, aside: bool, crowded: bool) -> None:
        run = self._run_of(facts)
        text = None if run.tokenizer is None else run.tokenizer.decode(list(ids))
        self._explain(run, ids)
        # transformers has no prefill before its first round: the first forward reads the prompt and the candidates.
        sequence = Sequence(run.sequences, text, ids, target_prefill_calls=0)
        handle = self._writer.begin_sequence(sequence, run=run.id)
        self._open[key] = _Open(key, facts, run, handle, aside, crowded)
        run.sequences += 1
        self._captured += 1

    def _run_of(self, facts: Facts) -> _Run:
        """The run of this configuration, a new one if it is the first call with it."""
        for run in self._runs:
            if run.info == facts.info:
                return run
        id_ = self._writer.begin_run(as_run(facts, uuid.uuid4().hex))
        tokenizer, missing = find_tokenizer(self._tokenizer, facts.tokenizer, facts.name)
        note = " ".join(sentence for sentence in (facts.note, missing) if sentence) or None
        run = _Run(id_, facts.info, vocabulary_of(tokenizer), tokenizer, note)
        self._runs.append(run)
        self._writer.set_status("running", note, run=id_)
        return run

    def _examine(self, run: _Run, seen: Observation, facts: Facts, scratch: Scratch) -> None:
        """Say in the run why q is off, once, where the reason is known."""
        run.examined = True
        if settings_applied_twice(seen, facts.context, scratch):
            run.note = " ".join(sentence for sentence in (TWICE, run.note) if sentence)
            self._writer.set_status("running", run.note, run=run.id)

    def _explain(self, run: _Run, ids: Iterable[int]) -> None:
        """Store what each token id stands for before the first round that shows it."""
        if run.vocabulary is None:
            return
        fresh = set(ids) - run.explained
        if fresh:
            run.explained |= fresh
            self._writer.add_vocab(run.vocabulary.entries(fresh), run=run.id)
