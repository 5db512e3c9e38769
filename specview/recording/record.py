"""The recorder: feeds the engine's rounds to a trace writer, and leaves a valid trace however the run ends."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from engine import ranks
from engine.errors import EngineError, PromptError
from engine.round import Round, RunInfo, Status, StopReason
from specview.errors import EngineMissingError, RunFailedError, SpecviewError, TraceError
from specview.recording.prompts import read_prompts
from specview.recording.settings import DEFAULT_GAMMA, DEFAULT_PROMPT, Prompt, RunSettings
from specview.recording.signals import Stop
from specview.recording.silent import SilentWriter
from specview.trace.reader import TraceReader
from specview.trace.writer import TraceWriter

if TYPE_CHECKING:
    from engine.baseline import Baseline
    from engine.session import Session

MESSAGE_INTERVAL_S = 0.1
"""A progress message reaches the trace at most this often."""

STOPPED = "stopped on request"
ENDED: frozenset[str] = frozenset({"eos", "length", "stop"})


class Reporter(Protocol):
    """Where the recorder tells a person how far it is."""

    def stage(self, sentence: str, fraction: float | None) -> None:
        """What is going on now; `fraction` is 0…1 where it is known."""

    def begin(self, prompt: str) -> None:
        """The next rounds are those of this prompt: `the prompt`, `prompt 2 of 3`."""

    def round(self, round_: Round, output_tokens: int) -> None:
        """A round was recorded; `output_tokens` counts the sequence's output so far."""

    def remark(self, sentence: str) -> None:
        """Something that the person should know, such as a prompt that could not be run; the run goes on."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a recording ended. `refused` counts the prompts that could not be run."""

    path: Path
    status: Status
    sequences: int
    refused: int


def record(settings: RunSettings, path: Path, reporter: Reporter, stop: Stop) -> Outcome:
    """Run the pair on every prompt and write the trace to `path`.

    Returns after the last prompt, or after a requested stop (status `interrupted`).

    Raises:
        EngineError, SpecviewError, KeyboardInterrupt: it ended before the first sequence, and nothing was written.
        RunFailedError: the run broke later; what was recorded is kept.
    """
    if settings.gamma == "auto" and ranks.world_size() > 1:
        raise SpecviewError("--gamma auto follows the clock of one process; with several, give --gamma a number.")
    prompts, total = _numbered_prompts(settings, path)
    # Of several ranks that decode together one records; the others draw the same tokens and write nothing.
    writer = (
        TraceWriter(path, force=settings.force, append=settings.append or settings.resume)
        if ranks.records()
        else SilentWriter()
    )
    recorder = _Recorder(settings, writer, reporter, stop, total)
    try:
        recorder.run(prompts)
        status: Status = "interrupted" if stop.requested else "finished"
        recorder.close(status, STOPPED if stop.requested else None)
    except KeyboardInterrupt:
        if not recorder.sequences:
            writer.discard()
            raise
        status = "interrupted"
        recorder.close(status, STOPPED)
    except (EngineError, SpecviewError) as error:
        if not recorder.sequences:
            writer.discard()
            raise
        if isinstance(error, TraceError):
            # The writer itself has failed: it marks the run as far as the disk lets it, and says the same again.
            with suppress(TraceError):
                writer.close("failed")
            raise RunFailedError(str(error)) from error
        recorder.close("failed", str(error))
        raise RunFailedError(f"{error} What was recorded before that is in {path}.") from error
    except BaseException as error:
        # A bug, or no memory left: the trace is evidence, so it is closed as failed before the error goes on.
        recorder.close("failed", f"{type(error).__name__}: {error}")
        raise
    return Outcome(path, status, recorder.sequences, len(recorder.refusals))


def _numbered_prompts(settings: RunSettings, path: Path) -> tuple[Iterator[tuple[int, Prompt]], int | None]:
    """(number, prompt) of each prompt to run, and how many there are, with those that are done. A file is read whole
    before a model loads, so that its errors come first; stdin is read as it comes, and its number is not known."""
    prompts: Iterable[Prompt]
    if settings.prompt_file is None:
        prompts = settings.prompts or (Prompt(DEFAULT_PROMPT),)
    elif settings.from_stdin:
        prompts = read_prompts(settings.prompt_file)
    else:
        prompts = tuple(read_prompts(settings.prompt_file))
    first = _first_unfinished(path) if settings.resume else 0
    if isinstance(prompts, tuple) and first >= len(prompts):
        raise SpecviewError(f"{path} has finished all {len(prompts)} prompts; there is nothing to resume.")
    return islice(enumerate(prompts), first, None), len(prompts) if isinstance(prompts, tuple) else None


def _first_unfinished(path: Path) -> int:
    """The number of the first prompt behind the last one that some run of the trace brought to its end."""
    with TraceReader(path) as reader:
        finished = [
            sequence.index
            for run in reader.runs()
            for sequence in reader.all_sequences(run.id)
            if sequence.stop_reason in ENDED
        ]
    return max(finished, default=-1) + 1


class _Recorder:
    """One run in progress: what is open, what was counted, which token ids the trace already explains."""

    def __init__(
        self,
        settings: RunSettings,
        writer: TraceWriter | SilentWriter,
        reporter: Reporter,
        stop: Stop,
        total: int | None,
    ) -> None:
        self.settings = settings
        self.total = total
        self.writer = writer
        self.reporter = reporter
        self.stop = stop
        self.sequences = 0
        self.refusals: list[PromptError] = []
        self._open: int | None = None
        self._explained: set[int] = set()
        self._last_message = 0.0
        self._uuid = uuid.uuid4().hex

    def run(self, prompts: Iterable[tuple[int, Prompt]]) -> None:
        session = self._load()
        for index, prompt in prompts:
            try:
                self._decode(session, index, prompt)
            except PromptError as error:
                if self.settings.single_prompt:
                    raise
                self.refusals.append(error)
                self._remark(str(error))
            else:
                if self.settings.from_stdin:
                    self.writer.set_status("running", "waiting for the next prompt")
            if self.stop.requested:
                return
        if self.refusals and not self.sequences:
            raise SpecviewError("No prompt could be run, so nothing was recorded; mend them and try again.")

    def _remark(self, sentence: str) -> None:
        self.reporter.remark(sentence)
        self.writer.set_status("running", sentence)

    def close(self, status: Status, message: str | None) -> None:
        if self._open is not None:
            reason: StopReason = "failed" if status == "failed" else "interrupted"
            self.writer.end_sequence(self._open, reason)
        self.writer.close(status, message)

    def _load(self) -> Session:
        settings = self.settings
        # The run stands in the trace before torch is imported, which takes seconds, so that a follower sees it load.
        info = RunInfo(self._uuid, draft=settings.draft, target=settings.target, sampling=settings.sampling)
        self.writer.begin_run(info)
        self._stage("Starting the engine")
        try:
            from engine.session import load_session
        except ModuleNotFoundError as error:
            raise EngineMissingError(error) from error

        return load_session(
            settings.draft,
            settings.target,
            sampling=settings.sampling,
            gamma=settings.gamma if isinstance(settings.gamma, int) else DEFAULT_GAMMA,  # where auto begins
            gamma_schedule="auto" if settings.gamma == "auto" else "fixed",
            draft_min_prob=settings.draft_min_prob,
            draft_device=settings.draft_device,
            device_map=settings.device_map,
            max_new_tokens=settings.max_new_tokens,
            seed=settings.seed,
            device=settings.device,
            dtype=settings.dtype,
            stop=settings.stop,
            top=settings.top,
            progress=self._stage,
        )

    def _decode(self, session: Session, index: int, prompt: Prompt) -> None:
        """One sequence, from its prompt to its stop."""
        text, content = _content(prompt)
        ids = session.encode(content, chat=self.settings.chat)
        if not self.sequences:
            # Only now: whether a chat template was used is known with the first prompt.
            self.writer.update_info(replace(session.info, uuid=self._uuid))
        baseline = self._measure(session, ids) if not self.sequences else None
        which = self._which(index)
        self._stage(f"Reading {which}")
        self.reporter.begin(which)
        sequence = replace(session.prefill(index, text, ids), request_id=prompt.request_id)
        self._explain(session, ids)
        handle = self._open = self.writer.begin_sequence(sequence)
        self.sequences += 1
        if baseline is not None:
            self._explain(session, baseline.ids)
            self.writer.set_baseline(baseline.ms_per_token, len(baseline.ids), baseline.ids, handle)
        self.writer.set_status("running")
        with self.stop.patience():
            for round_ in session.decode():
                self._explain(session, round_.tokens())
                self.writer.add_round(handle, round_)
                self.reporter.round(round_, round_.committed_after - len(ids))
                if self.stop.requested:
                    break
        self.writer.end_sequence(handle, session.stop_reason or "interrupted")
        self._open = None
        if session.uncaptured is not None and self.sequences == 1:
            self._remark(session.uncaptured)

    def _which(self, index: int) -> str:
        if self.total is None:
            return f"prompt {index + 1:,}"
        return "the prompt" if self.total == 1 else f"prompt {index + 1:,} of {self.total:,}"

    def _measure(self, session: Session, ids: tuple[int, ...]) -> Baseline | None:
        """Plain decoding and the cost curve, once a run. An auto γ needs the curve even where no baseline is wanted."""
        baseline = None
        if self.settings.baseline_tokens:
            self._stage("Measuring plain decoding")
            baseline = session.baseline(ids, self.settings.baseline_tokens)
        if self.settings.baseline_tokens or self.settings.gamma == "auto":
            self._stage("Measuring the cost of scoring several positions")
            self.writer.add_costs(session.costs(ids))
        return baseline

    def _explain(self, session: Session, ids: Iterable[int]) -> None:
        """Store what each token id stands for before the first round that shows it."""
        fresh = set(ids) - self._explained
        if fresh:
            self._explained |= fresh
            self.writer.add_vocab(session.vocab(sorted(fresh)))

    def _stage(self, sentence: str, fraction: float | None = None) -> None:
        self.reporter.stage(sentence, fraction)
        now = time.monotonic()
        if fraction is None or now - self._last_message >= MESSAGE_INTERVAL_S:
            self._last_message = now
            status: Status = "running" if self.sequences else "loading"
            self.writer.set_status(status, sentence if fraction is None else f"{sentence} {fraction:.0%}")


def _content(prompt: Prompt) -> tuple[str, str | list[dict[str, str]]]:
    """(the prompt as the trace shows it, the prompt as the session takes it)."""
    if prompt.text is not None:
        return prompt.text, prompt.text
    messages = [dict(message) for message in prompt.messages]
    return "\n".join(f"{message['role']}: {message['content']}" for message in messages), messages
