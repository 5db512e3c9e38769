"""Turns steps into the trace's rounds.

Where the model runs on a device of its own, a thread does it: the engine hands over a step and goes on. On a processor
the engine does it between two steps: a thread would take a core from its parallel loops, each of which waits for its
slowest part.
"""

from __future__ import annotations

import atexit
import queue
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from engine.round import Cut, PhaseTimes, Round, RunInfo, Sampling, Sequence, StopReason
from specview.trace.writer import TraceWriter
from specview.vllm_plugin import files, identity
from specview.vllm_plugin.capture import Matrix, StepCapture
from specview.vllm_plugin.log import Switch, logger
from specview.vllm_plugin.rounds import Facts, Progress, to_round
from specview.vllm_plugin.settings import Settings
from specview.vllm_plugin.steps import Begin, RequestStep, Step

QUEUE_LIMIT = 10_000
"""Steps that may wait; no disk is that slow, and memory stays flat. Then the engine waits: nothing is lost."""
CLOSE_SECONDS = 60.0
GATHER_SECONDS = 0.08
"""How long the writer, which is a thread, waits for company: the fewer its commits, the less they are in the way."""

_CUTS: dict[StopReason, Cut] = {"eos": "eos", "length": "length", "stop": "stop"}


@dataclass(slots=True)
class _Run:
    """The requests that share their sampling settings: one configuration, one run."""

    id: int
    sampling: Sampling | None
    sequences: int = 0
    seen: set[int] | None = None
    """Token ids whose vocabulary entry was written."""


@dataclass(slots=True)
class _Open:
    """A request that has begun and not ended."""

    begin: Begin
    sequence: int | None = None
    run: _Run | None = None
    rounds: int = 0
    prefill_calls: int = 0
    prefill_ns: int = 0
    text: bytes = b""
    """Of the output; kept only where a stop string may end it."""


class Recorder:
    """One engine core's trace. `first_time`, `put` and `close` belong to the engine's thread, the rest to the
    recorder's, where it has one."""

    def __init__(self, info: RunInfo, words: identity.Words, claim: files.Claim, switch: Switch) -> None:
        self.updated_ns = 0
        """When the engine had processed its last step."""
        self.scheduled_ns: dict[int, int] = {}
        """id of a step's schedule, while the step is under way → when scheduling it began."""
        self._info = info
        self._words = words
        self._claim = claim
        self._switch = switch
        self._ended = self._failed = False
        self._known: set[str] = set()
        self._open: dict[str, _Open] = {}
        self._origin_ns = time.perf_counter_ns()
        self._writer = TraceWriter(claim.path, append=claim.path.exists(), gather_seconds=GATHER_SECONDS)
        self._runs = [_Run(self._writer.begin_run(info), None)]
        self._writer.set_status("running")
        self._queue: queue.Queue[Step | None] = queue.Queue(QUEUE_LIMIT)
        self._thread: threading.Thread | None = None
        if info.device is None or not info.device.startswith("cpu"):
            self._thread = threading.Thread(target=self._work, name="specview-recorder", daemon=True)
            self._thread.start()
        atexit.register(self.close)
        logger.info("specview: recording into %s", claim.path)

    @classmethod
    def of_engine(cls, config: Any, switch: Switch, settings: Settings) -> Recorder:
        """The recorder of an engine core with this `VllmConfig`.

        Raises:
            TraceError: the trace cannot be written.
        """
        claim = files.claim(settings.path, files.rank_of(config))
        return cls(identity.run_info(config), identity.Words(config), claim, switch)

    def first_time(self, request_id: str) -> bool:
        """Whether a request is new; asked once, it is no longer."""
        if request_id in self._known:
            return False
        self._known.add(request_id)
        return True

    def put(self, step: Step) -> None:
        """Hand a step over."""
        self._known.difference_update(r.request_id for r in step.requests if r.ended is not None)
        self._known.difference_update(name for name, _ in step.aborted)
        if not step.requests and not step.aborted:
            return
        if self._thread is not None:
            self._queue.put(step)
        elif not self._ended:
            with self._closing_on_error():
                self._record(step)

    def close(self) -> None:
        """Write what waits, and end the trace. Closing twice is no error."""
        atexit.unregister(self.close)
        if self._thread is None:
            if not self._ended:
                with self._closing_on_error():
                    self._finish()
        elif self._thread.is_alive():
            self._queue.put(None)
            self._thread.join(CLOSE_SECONDS)

    def _work(self) -> None:
        with self._closing_on_error():
            while (step := self._queue.get()) is not None:
                self._record(step)
            self._finish()
        # The engine must never wait for a recorder that failed.
        while self._failed and self._queue.get() is not None:
            pass

    @contextmanager
    def _closing_on_error(self) -> Iterator[None]:
        """An error in the body is told once, and ends the trace as failed; it does not reach the engine."""
        done = False
        with self._switch.guard("recording"):
            yield
            done = True
        if done or self._ended:
            return
        self._ended = self._failed = True
        with self._switch.guard("closing the trace"):
            self._writer.close("failed", "The recorder failed; vLLM's log says why.")
        self._claim.release()

    def _finish(self) -> None:
        cut_off = {id(request.run) for request in self._open.values()}
        for name in list(self._open):
            self._end(name, "interrupted")
        *others, last = self._runs
        for run in others:
            self._writer.set_status("interrupted" if id(run) in cut_off else "finished", run=run.id)
        # The writer gives its final status to the run begun last.
        self._writer.close("interrupted" if id(last) in cut_off else "finished")
        self._claim.release()
        self._ended = True

    def _record(self, step: Step) -> None:
        matrix: Matrix = []
        times: Mapping[str, int] = {}
        if step.capture is not None:
            matrix, times = step.capture.matrix(), step.capture.times()
        for request in step.requests:
            self._request(request, step, matrix, times)
        for name, reason in step.aborted:
            self._end(name, reason)

    def _request(self, part: RequestStep, step: Step, matrix: Matrix, times: Mapping[str, int]) -> None:
        if part.begin is not None:
            self._open[part.request_id] = _Open(part.begin)
        request = self._open.get(part.request_id)
        if request is None:
            return
        if part.committed:
            sequence, run = self._sequence(part.request_id, request)
            facts = _facts(step.capture, part.request_id, matrix, request.begin.temperature == 0)
            round_ = to_round(_progress(part, request.rounds, self._info.gamma or 0), facts, self._times(step, times))
            request.rounds += 1
            self._add_vocabulary(run, round_)
            if request.begin.stop:
                request.text += self._words.data(part.committed)
            self._writer.add_round(sequence, round_)
        elif request.rounds == 0:
            request.prefill_calls += 1
            request.prefill_ns += step.wall_ns
        if part.ended is not None:
            self._end(part.request_id, part.ended)

    def _sequence(self, request_id: str, request: _Open) -> tuple[int, _Run]:
        """The request's place in the trace, made when its first token comes, or its end before that."""
        if request.sequence is None or request.run is None:
            run = request.run = self._run_of(request.begin.sampling())
            ids = request.begin.prompt_ids
            prompt = Sequence(
                index=run.sequences,
                prompt=self._words.text(ids),
                prompt_ids=ids,
                target_prefill_ns=request.prefill_ns,
                target_prefill_calls=request.prefill_calls,
                request_id=request_id,
            )
            run.sequences += 1
            self._add_entries(run, set(ids))
            request.sequence = self._writer.begin_sequence(prompt, run=run.id)
        return request.sequence, request.run

    def _run_of(self, sampling: Sampling) -> _Run:
        for run in self._runs:
            if run.sampling == sampling:
                return run
        first = self._runs[0]
        if first.sampling is None:
            first.sampling = sampling
            self._writer.update_info(replace(self._info, sampling=sampling))
            return first
        info = replace(self._info, uuid=str(uuid.uuid4()), sampling=sampling)
        run = _Run(self._writer.begin_run(info), sampling)
        self._writer.set_status("running", run=run.id)
        self._runs.append(run)
        return run

    def _end(self, request_id: str, reason: StopReason) -> None:
        request = self._open.pop(request_id, None)
        if request is None:
            return
        sequence, _ = self._sequence(request_id, request)
        if reason == "interrupted" and any(word.encode() in request.text for word in request.begin.stop):
            reason = "stop"
        self._writer.end_sequence(sequence, reason)

    def _add_vocabulary(self, run: _Run, round_: Round) -> None:
        ids = {token for token, _ in round_.committed}
        for p in round_.positions:
            ids.update(dict(p.target_top))
            if p.candidate is not None:
                ids.add(p.candidate)
                ids.update(dict(p.draft_top))
        self._add_entries(run, ids)

    def _add_entries(self, run: _Run, ids: set[int]) -> None:
        if run.seen is None:
            run.seen = set()
        new = ids - run.seen
        if new:
            run.seen |= new
            self._writer.add_vocab(self._words.entries(new), run=run.id)

    def _times(self, step: Step, phases: Mapping[str, int]) -> PhaseTimes:
        """A step's wall time runs from one processed step to the next; it holds the proposing for the step after it,
        while `propose` is the proposing for this one."""
        return PhaseTimes(
            start_ns=max(0, step.start_ns - self._origin_ns),
            propose_ns=phases.get("propose"),
            score_ns=phases.get("score"),
            accept_ns=phases.get("accept"),
            record_ns=phases.get("record"),
            round_ns=max(step.wall_ns, sum(phases.values())),
        )


def _facts(capture: StepCapture | None, request_id: str, matrix: Matrix, greedy: bool) -> Facts | None:
    if capture is None or request_id not in capture.request_ids:
        return None
    place = capture.request_ids.index(request_id)
    start = sum(capture.drafted[:place])
    return Facts(
        candidates=matrix[start : start + capture.drafted[place]],
        last=matrix[sum(capture.drafted) + place],
        top=capture.top,
        one_hot=capture.one_hot,
        drew_uniforms=capture.drew_uniforms,
        deviation_of_candidates=capture.deviation_of_candidates,
        deviation_of_last=capture.deviation_of_last,
        draft_deviation=capture.draft_deviation,
        greedy=greedy,
    )


def _progress(part: RequestStep, index: int, gamma: int) -> Progress:
    # A step that also reads the prompt, or reads again what a preemption threw away, writes more than the round's own
    # tokens; how much of it is the round's, vLLM does not say.
    reads_more = part.target_kv_before is not None and part.target_kv_before < part.committed_before - 1
    return Progress(
        index=index,
        gamma=gamma,
        committed_before=part.committed_before,
        generated=part.generated,
        committed=part.committed,
        ended=_CUTS.get(part.ended) if part.ended is not None else None,
        target_kv_before=None if reads_more else part.target_kv_before,
        target_kv_written=None if reads_more else part.target_kv_written,
        target_kv_after=part.target_kv_after,
        scheduled_candidates=part.scheduled_candidates,
    )
