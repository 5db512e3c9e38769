"""How far a person came, kept in the user's state folder: `SPECVIEW_STATE`, else the platform's."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import platformdirs

from specview.tour.questions import Attempt
from specview.tour.station import ORDER

FILE = "tour.json"


@dataclass(frozen=True, slots=True)
class Solved:
    """A station whose outcome a person predicted."""

    tries: int


@dataclass(frozen=True, slots=True)
class Progress:
    """Which stations are solved, and where the tour was left."""

    solved: dict[str, Solved] = field(default_factory=dict)
    at: str = ORDER[0]

    def after(self, key: str, attempt: Attempt) -> Progress:
        """With an answer counted; the first right one of a station is the one that stays."""
        if attempt.verdict != "right" or key in self.solved:
            return self
        return replace(self, solved={**self.solved, key: Solved(attempt.tries)})

    def moved(self, key: str) -> Progress:
        return replace(self, at=key)

    @property
    def first(self) -> int:
        """Stations predicted at the first try."""
        return sum(1 for s in self.solved.values() if s.tries == 1)


def state_folder() -> Path:
    """Where progress and the tour's own recordings live."""
    if own := os.environ.get("SPECVIEW_STATE"):
        return Path(own)
    return Path(platformdirs.user_state_dir("specview", appauthor=False))


def load() -> Progress:
    """The progress of this person; none where there is no file, or none that we wrote.

    Raises:
        OSError: the file is there and cannot be read.
    """
    try:
        text = (state_folder() / FILE).read_text("utf-8")
    except FileNotFoundError:
        return Progress()
    try:
        return _read(json.loads(text))
    except (ValueError, TypeError, KeyError, AttributeError):
        # Torn, or of another program: the tour then begins anew, which loses no more than a few answers.
        return Progress()


def save(progress: Progress) -> None:
    """Write the progress, whole or not at all.

    Raises:
        OSError: it cannot be written.
    """
    path = state_folder() / FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{FILE}.{os.getpid()}.new")
    solved = {key: s.tries for key, s in progress.solved.items()}
    new.write_text(json.dumps({"specview": 1, "solved": solved, "at": progress.at}, indent=1) + "\n", "utf-8")
    new.replace(path)


def _read(data: Any) -> Progress:
    solved = {str(key): Solved(max(1, int(tries))) for key, tries in data["solved"].items() if key in ORDER}
    at = str(data["at"])
    return Progress(solved, at if at in ORDER else ORDER[0])
