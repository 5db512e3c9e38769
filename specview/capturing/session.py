"""A capture in progress: recorders hand over what they saw, the session writes it into the trace."""

from __future__ import annotations

import itertools
import os
import threading
import time
import uuid
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from engine.round import Round, RunInfo, Sequence, Status, StopReason
from engine.vocabulary import Vocabulary
from specview.capturing.analysis import to_round
from specview.capturing.errors import CaptureWarning
from specview.capturing.facts import Facts, as_run, facts_of
from specview.capturing.observation import Observation
from specview.capturing.recorder import Recorder
from specview.capturing.tokens import find_tokenizer, vocabulary_of
from specview.capturing.worker import Worker
from specview.trace.writer import TraceWriter


@dataclass(slots=True)
class _Run:
    """A row of `runs`: the calls of one configuration."""

    info: RunInfo
    vocabulary: Vocabulary | None
    tokenizer: Any
    note: str | None
    sequences: int = 0
    explained: set[int] = field(default_factory=set)


class Session:
    """One trace being written by any number of `generate` calls, in any thread."""

    def __init__(self, path: Path, writer: TraceWriter, tokenizer: Any) -> None:
        self.path = path
        self.error: Exception | None = None
        self._writer = writer
        self._tokenizer = tokenizer
        self._process = os.getpid()
        self._clock_start = time.perf_counter_ns()
        self._lock = threading.Lock()
        self._closed = False
        self._keys = itertools.count()
        self._run: _Run | None = None
        self._handles: dict[int, int] = {}
        self._worker = Worker(self.fail)

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
        self._put(self._begin, recorder.key, recorder.facts, prompt)

    def round(self, recorder: Recorder, seen: Observation) -> None:
        self._put(self._round, recorder.key, recorder.facts, seen)

    def end(self, recorder: Recorder, reason: StopReason) -> None:
        self._put(self._end, recorder.key, reason)

    def fail(self, error: Exception) -> None:
        """Recording broke; the first error is raised when the capture ends, and nothing more is recorded."""
        if self.error is None:
            self.error = error

    def _put(self, task: Any, *arguments: Any) -> None:
        with self._lock:
            if not self._closed and self.error is None:
                self._worker.put(task, *arguments)

    # --- at the end

    def close(self, status: Status, message: str | None) -> int:
        """Write what waits and close the trace; returns the number of captured calls.

        Raises:
            TraceError: the trace could not be written.
        """
        with self._lock:
            self._closed = True
        self._worker.finish()
        if self._run is None:
            self._writer.discard()
            return 0
        for handle in self._handles.values():
            self._writer.end_sequence(handle, "failed" if status == "failed" else "interrupted")
        if self.error is not None:
            status, message = "failed", f"{type(self.error).__name__}: {self.error}"
        self._writer.close(status, message or self._run.note)
        return self._captured

    # --- on the worker's thread

    _captured = 0

    def _begin(self, key: int, facts: Facts, prompt: Tensor) -> None:
        run = self._run_for(facts)
        if run is None:
            return
        ids = tuple(prompt.tolist())
        text = None if run.tokenizer is None else run.tokenizer.decode(list(ids))
        self._explain(run, ids)
        self._handles[key] = self._writer.begin_sequence(Sequence(run.sequences, text, ids, target_prefill_calls=0))
        run.sequences += 1
        self._captured += 1

    def _round(self, key: int, facts: Facts, seen: Observation) -> None:
        handle = self._handles.get(key)
        if handle is None or self._run is None:
            return
        found = to_round(seen, facts.context)
        self._explain(self._run, _ids(found))
        self._writer.add_round(handle, found)

    def _end(self, key: int, reason: StopReason) -> None:
        handle = self._handles.pop(key, None)
        if handle is not None:
            self._writer.end_sequence(handle, reason)

    def _run_for(self, facts: Facts) -> _Run | None:
        """The run of this configuration: the current one, or a new one."""
        if self._run is not None and self._run.info == facts.info:
            return self._run
        if self._run is not None:
            if self._handles:
                warnings.warn(
                    "specview: a generate call was not recorded, because one with other models or settings was being "
                    "recorded at the same time; capture them one after the other.",
                    CaptureWarning,
                    stacklevel=2,
                )
                return None
            self._writer.set_status("finished", self._run.note)
        self._writer.begin_run(as_run(facts, uuid.uuid4().hex))
        name = facts.info.target
        tokenizer, missing = find_tokenizer(self._tokenizer, facts.tokenizer, name)
        note = " ".join(sentence for sentence in (facts.note, missing) if sentence) or None
        self._run = _Run(facts.info, vocabulary_of(tokenizer), tokenizer, note)
        self._writer.set_status("running", note)
        return self._run

    def _explain(self, run: _Run, ids: Iterable[int]) -> None:
        """Store what each token id stands for before the first round that shows it."""
        if run.vocabulary is None:
            return
        fresh = set(ids) - run.explained
        if fresh:
            run.explained |= fresh
            self._writer.add_vocab(run.vocabulary.entries(fresh))


def _ids(round_: Round) -> Iterator[int]:
    """Every token id that a round shows."""
    for position in round_.positions:
        if position.candidate is not None:
            yield position.candidate
        yield from (token for token, _ in position.draft_top)
        yield from (token for token, _ in position.target_top)
    yield from (token for token, _ in round_.committed)
