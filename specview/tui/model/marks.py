"""Bookmarks and the place last viewed, kept beside the trace and never in it."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import platformdirs

from specview.tui.model.cursor import Cursor

Place = tuple[str, int]
"""Run uuid and sequence index."""


@dataclass(frozen=True, slots=True)
class Marks:
    """What a person left in a trace."""

    bookmarks: dict[Place, frozenset[int]] = field(default_factory=dict)
    last: tuple[str, int, int] | None = None
    """Run uuid, sequence and round looked at last."""

    def of(self, uuid: str, sequence: int) -> frozenset[int]:
        return self.bookmarks.get((uuid, sequence), frozenset())

    def toggled(self, uuid: str, sequence: int, round_: int) -> Marks:
        """With the round bookmarked, or no longer so."""
        return replace(self, bookmarks={**self.bookmarks, (uuid, sequence): self.of(uuid, sequence) ^ {round_}})

    def at(self, uuid: str, cursor: Cursor) -> Marks:
        return replace(self, last=(uuid, cursor.sequence, cursor.round))


def marks_path(trace: Path) -> Path:
    """`TRACE.marks.json` beside the trace; in the user's state folder when that cannot be written."""
    if os.access(trace.parent, os.W_OK):
        return trace.with_name(trace.name + ".marks.json")
    name = hashlib.sha256(str(trace.resolve()).encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return platformdirs.user_state_path("specview") / f"{name}.marks.json"


def load(trace: Path) -> Marks:
    """The marks of a trace; none when there is no file, or none that we wrote.

    Raises:
        OSError: the file is there and cannot be read.
    """
    try:
        text = marks_path(trace).read_text("utf-8")
    except FileNotFoundError:
        return Marks()
    try:
        return _read(json.loads(text))
    except (ValueError, TypeError, KeyError, AttributeError):
        # Somebody else's file, or a torn one: bookmarks are a convenience, a trace opens without them.
        return Marks()


def save(trace: Path, marks: Marks) -> None:
    """Write the marks, whole or not at all.

    Raises:
        OSError: they cannot be written.
    """
    path = marks_path(trace)
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    new.write_text(json.dumps(_written(marks), indent=1) + "\n", "utf-8")
    new.replace(path)


def _written(marks: Marks) -> dict[str, Any]:
    return {
        "specview": 1,
        "bookmarks": [
            {"run": uuid, "sequence": sequence, "rounds": sorted(rounds)}
            for (uuid, sequence), rounds in sorted(marks.bookmarks.items())
            if rounds
        ],
        "last": list(marks.last) if marks.last is not None else None,
    }


def _read(data: Any) -> Marks:
    bookmarks = {
        (str(entry["run"]), int(entry["sequence"])): frozenset(int(r) for r in entry["rounds"] if int(r) >= 0)
        for entry in data["bookmarks"]
    }
    last = data["last"]
    return Marks(bookmarks, (str(last[0]), int(last[1]), int(last[2])) if last is not None else None)
