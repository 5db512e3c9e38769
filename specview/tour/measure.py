"""Asking the engine, in a child process: the cost of scoring on this machine, and rounds that a trace lacks."""

from __future__ import annotations

import importlib.util
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from engine.round import Cost
from specview.errors import TraceError
from specview.recording.child import RecordingChild
from specview.recording.settings import Prompt
from specview.tour import cases
from specview.tour.costs import Figures, measured
from specview.tour.progress import state_folder
from specview.tour.survey import Survey, survey
from specview.trace.reader import TraceReader

FOUND = "tour-found.db"
"""The recording that is kept, in the state folder, once it shows what a trace lacked."""
PROMPTS = (
    "Why is the sky blue?",
    "Tell a short story about a fox and a river.",
    "How do plants make sugar from light?",
    "Name three inventions and what they changed.",
    "Describe a walk through an old town in the rain.",
    "What is the difference between speed and velocity?",
)


def engine_installed() -> bool:
    """Whether models can be run here; looks, and imports nothing."""
    return all(importlib.util.find_spec(name) is not None for name in ("torch", "transformers"))


class CostMeasurement:
    """A short recording, of which only the cost curve is wanted. `poll` never blocks.

    Args:
        pair: options of `specview record` that choose the pair; none for the default one.
    """

    def __init__(self, pair: Sequence[str] = ()) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="specview-tour-"))
        self._path = self._folder / "costs.db"
        self._child = RecordingChild([*pair, "--max-new-tokens=1", "--baseline-tokens=2"], self._path)
        self._child.send(Prompt(PROMPTS[0]))
        self.failed = ""
        """Why it ended without figures: the child's own sentence."""

    def poll(self) -> Figures | None:
        """The figures, as soon as they are there."""
        costs, target = self._read()
        if costs:
            self._child.stop()
            return measured(costs, target)
        if self._child.poll() is not None and not self.failed:
            self.failed = self._child.last_line.removeprefix("specview: ") or "the measurement ended without a figure."
        return None

    def close(self) -> None:
        """End the child, and remove what it wrote."""
        self._child.wait(grace=0.0)  # what it has not closed is thrown away anyway
        shutil.rmtree(self._folder, ignore_errors=True)

    def _read(self) -> tuple[list[Cost], str]:
        if not self._path.exists():
            return [], ""
        try:
            with TraceReader(self._path) as reader:
                runs = reader.runs()
                return (reader.costs(runs[0].id), runs[0].info.target or "") if runs else ([], "")
        except TraceError:
            return [], ""  # created a moment ago, and not written yet: the next poll reads it


class Search:
    """Records until a discarded candidate equals the next token. `poll` never blocks for long.

    Args:
        pair: options of `specview record` that choose the pair; none for the default one.
    """

    def __init__(self, pair: Sequence[str] = ()) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="specview-tour-"))
        self._path = self._folder / FOUND
        self._child = RecordingChild([*pair, "--max-new-tokens=128", "--baseline-tokens=0"], self._path)
        for prompt in PROMPTS * 4:
            self._child.send(Prompt(prompt))
        self.failed = ""

    def poll(self) -> Survey | None:
        """The survey of a trace that has one, as soon as one was recorded; it is kept for the next time."""
        if self._path.exists() and self._shows():
            self._child.wait()
            return survey(_keep(self._path))
        if self._child.poll() is not None and not self.failed:
            self.failed = self._child.last_line.removeprefix("specview: ") or "no such round was recorded."
        return None

    def close(self) -> None:
        """End the child, and remove what was not kept."""
        self._child.wait(grace=0.0)  # what it has not closed is thrown away anyway
        shutil.rmtree(self._folder, ignore_errors=True)

    def _shows(self) -> bool:
        try:
            return cases.same(survey(self._path)) is not None
        except TraceError:
            return False  # no round yet


def found_before() -> Survey | None:
    """The recording that an earlier tour kept, if it still shows what it was kept for."""
    path = state_folder() / FOUND
    if not path.exists():
        return None
    try:
        kept = survey(path)
    except TraceError:
        return None  # of an earlier version, or damaged: another one can be recorded
    return kept if cases.same(kept) is not None else None


def _keep(path: Path) -> Path:
    """Move a recording to the state folder; where that cannot be written, it stays where it is."""
    kept = state_folder() / FOUND
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, kept)
    except OSError:
        return path
    return kept
