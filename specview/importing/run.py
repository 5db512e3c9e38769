"""From a log to a trace: find out which log it is, read it line by line, write what it tells."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any, Literal

from engine.round import RunInfo, Sequence
from specview.errors import TraceError
from specview.importing import llama_cpp, vllm
from specview.importing.fields import FieldError
from specview.importing.step import Facts, Step
from specview.trace.writer import TraceWriter

Form = Literal["vllm", "llama.cpp"]
FORMS: tuple[Form, ...] = ("vllm", "llama.cpp")
LONGEST_LINE = 16_000_000
"""Characters. A response with a million steps stays below; anything longer is no log."""


def import_log(
    lines: Iterable[str], name: str, output: Path, *, form: Form | None, force: bool, progress: Callable[[int], None]
) -> int:
    """Write a trace with one run from the lines of a log; returns how many rounds it has.

    Args:
        name: how to call the log in messages.
        form: which log it is; found out from its first object when None.
        progress: is told how many rounds were written since the last call.

    Raises:
        TraceError: a line is not what the format says, or nothing in the log is a round. Nothing is left behind.
    """
    facts = Facts()
    writer = TraceWriter(output, force=force)
    try:
        info = RunInfo(uuid=uuid.uuid4().hex, source=facts.source)
        writer.begin_run(info)
        rounds = _write(_steps(lines, name, form, facts), writer, progress)
        if not rounds:
            raise TraceError(
                f"{name} has no rounds in it; it should be a vLLM log with detailed per-request acceptance metrics "
                "or a llama.cpp speculation log, one JSON object a line."
            )
        writer.update_info(RunInfo(info.uuid, facts.source, target=facts.target, gamma=facts.gamma))
    except BaseException:
        writer.discard()
        raise
    writer.close("finished", f"imported from {Path(name).name}")
    return rounds


def bounded(log: IO[str]) -> Iterator[str]:
    """The lines of a log. One that is too long comes cut, a character longer than allowed: memory stays flat."""
    while line := log.readline(LONGEST_LINE + 1):
        yield line


def _write(steps: Iterator[Step], writer: TraceWriter, progress: Callable[[int], None]) -> int:
    open_sequences: dict[object, int] = {}
    rounds = 0
    writer.set_status("running")
    for step in steps:
        handle = open_sequences.get(step.sequence)
        if handle is None:
            handle = writer.begin_sequence(
                Sequence(len(open_sequences), None, (), request_id=step.request_id, prompt_length=step.prompt_tokens)
            )
            open_sequences[step.sequence] = handle
        writer.add_round(handle, step.round)
        if step.ends is not None:
            writer.end_sequence(handle, step.ends)
        rounds += 1
        progress(1)
    return rounds


def _steps(lines: Iterable[str], name: str, form: Form | None, facts: Facts) -> Iterator[Step]:
    slots = llama_cpp.Slots()
    for number, text in enumerate(lines, 1):
        try:
            line = _object(text)
            if line is None:
                continue
            form = form or _form(line)
            if form is None:
                continue  # a response without metrics, or a chunk of a stream before the last
            facts.source = f"{form} log"
            yield from vllm.steps(line, number, facts) if form == "vllm" else llama_cpp.steps(line, slots)
        except FieldError as error:
            raise TraceError(f"{name}, line {number}: {error}; nothing was imported.") from error


def _form(line: dict[str, Any]) -> Form | None:
    if llama_cpp.matches(line):
        return "llama.cpp"
    return "vllm" if vllm.matches(line) else None


def _object(text: str) -> dict[str, Any] | None:
    """The object on a line; None for an empty line and the frame of a stream."""
    if len(text) > LONGEST_LINE:
        raise FieldError(f"it has more than {LONGEST_LINE:,} characters")
    text = text.strip().removeprefix("data:").strip()
    if not text or text == "[DONE]" or text.startswith((":", "event:")):
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise FieldError("it is no JSON object") from None
    if not isinstance(value, dict):
        raise FieldError("it is no JSON object")
    return value
