"""Bookmarks, kept beside the trace, and the place last viewed, kept in the user's state folder; never in the trace.

Looking at a trace leaves nothing in its folder: the file with the bookmarks appears with the first bookmark.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import platformdirs

Place = tuple[str, int]
"""Run uuid and sequence index."""


@dataclass(frozen=True, slots=True)
class Marks:
    """The bookmarked rounds of a trace."""

    bookmarks: dict[Place, frozenset[int]] = field(default_factory=dict)

    def of(self, uuid: str, sequence: int) -> frozenset[int]:
        return self.bookmarks.get((uuid, sequence), frozenset())

    def toggled(self, uuid: str, sequence: int, round_: int) -> Marks:
        """With the round bookmarked, or no longer so."""
        return replace(self, bookmarks={**self.bookmarks, (uuid, sequence): self.of(uuid, sequence) ^ {round_}})


@dataclass(frozen=True, slots=True)
class LastPlace:
    """Where a trace was left."""

    uuid: str
    sequence: int
    round: int


def marks_path(trace: Path) -> Path:
    """`TRACE.marks.json` beside the trace; in the user's state folder when that cannot be written."""
    if os.access(trace.parent, os.W_OK):
        return trace.with_name(trace.name + ".marks.json")
    return _state_path(trace, "marks")


def place_path(trace: Path) -> Path:
    """Where the place last viewed is kept."""
    return _state_path(trace, "place")


def _state_path(trace: Path, kind: str) -> Path:
    name = hashlib.sha256(os.fsencode(trace.resolve())).hexdigest()[:16]
    return platformdirs.user_state_path("specview") / f"{name}.{kind}.json"


def load_marks(trace: Path) -> Marks:
    """The bookmarks of a trace; none when there is no file, or none that we wrote.

    Raises:
        OSError: the file is there and cannot be read.
    """
    data = _read(marks_path(trace))
    try:
        return Marks(
            {
                (str(entry["run"]), int(entry["sequence"])): frozenset(int(r) for r in entry["rounds"] if int(r) >= 0)
                for entry in data["bookmarks"]
            }
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        # Nobody's file, or somebody else's: bookmarks are a convenience, a trace opens without them.
        return Marks()


def save_marks(trace: Path, marks: Marks) -> None:
    """Write the bookmarks, whole or not at all; without any, the file goes.

    Raises:
        OSError: they cannot be written.
    """
    entries = [
        {"run": uuid, "sequence": sequence, "rounds": sorted(rounds)}
        for (uuid, sequence), rounds in sorted(marks.bookmarks.items())
        if rounds
    ]
    if entries:
        _write(marks_path(trace), {"specview": 1, "bookmarks": entries})
    else:
        marks_path(trace).unlink(missing_ok=True)


def load_place(trace: Path) -> LastPlace | None:
    """Where the trace was left; None when it was never viewed.

    Raises:
        OSError: the file is there and cannot be read.
    """
    data = _read(place_path(trace))
    try:
        return LastPlace(str(data["run"]), int(data["sequence"]), int(data["round"]))
    except (ValueError, TypeError, KeyError):
        return None


def save_place(trace: Path, place: LastPlace) -> None:
    """Remember where the trace was left.

    Raises:
        OSError: it cannot be written.
    """
    _write(place_path(trace), {"run": place.uuid, "sequence": place.sequence, "round": place.round})


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text("utf-8", "replace"))
    except FileNotFoundError:
        return None
    except ValueError:
        return None  # torn, or no JSON: the caller goes on without


def _write(path: Path, data: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    new.write_text(json.dumps(data, indent=1) + "\n", "utf-8")
    new.replace(path)
